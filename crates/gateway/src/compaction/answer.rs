//! The answers, in the forms of OpenAI's Responses API.

use palimpsest_core::message::Usage;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::CompactionForm;
use crate::answer::OwnAnswer;
use crate::context::CompactedConversation;
use crate::reading::write_event;

#[derive(Serialize)]
struct CompactedResponse<'a> {
    id: String,
    object: &'static str,
    created_at: i64,
    output: Vec<&'a RawValue>,
    usage: ResponseUsage,
}

/// The tokens of the model that wrote the summary. No model reads or writes anything for the other summaries.
#[derive(Clone, Copy, Serialize)]
struct ResponseUsage {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
}

#[derive(Clone, Copy, Serialize)]
struct InputDetails {
    cache_write_tokens: u64,
    cached_tokens: u64,
}

#[derive(Clone, Copy, Serialize)]
struct OutputDetails {
    reasoning_tokens: u64,
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        // The `input_tokens` of OpenAI include cached tokens, and those of `Usage` do not.
        let input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
        Self {
            input_tokens: input,
            input_tokens_details: InputDetails {
                cache_write_tokens: usage.cache_write_tokens,
                cached_tokens: usage.cache_read_tokens,
            },
            output_tokens: usage.output_tokens,
            output_tokens_details: OutputDetails {
                reasoning_tokens: 0,
            },
            total_tokens: input + usage.output_tokens,
        }
    }
}

/// The fields of a request that its response repeats.
#[derive(Deserialize)]
struct RequestFields<'a> {
    stream: Option<bool>,
    #[serde(borrow)]
    instructions: Option<&'a RawValue>,
    max_output_tokens: Option<&'a RawValue>,
    metadata: Option<&'a RawValue>,
    model: Option<&'a RawValue>,
    parallel_tool_calls: Option<&'a RawValue>,
    prompt_cache_key: Option<&'a RawValue>,
    reasoning: Option<&'a RawValue>,
    service_tier: Option<&'a RawValue>,
    store: Option<&'a RawValue>,
    temperature: Option<&'a RawValue>,
    text: Option<&'a RawValue>,
    tool_choice: Option<&'a RawValue>,
    tools: Option<&'a RawValue>,
    top_p: Option<&'a RawValue>,
    truncation: Option<&'a RawValue>,
    user: Option<&'a RawValue>,
}

/// A response that consists of a compaction item. All fields that the API defines are present.
#[derive(Clone, Serialize)]
struct Response<'a> {
    id: &'a str,
    object: &'static str,
    created_at: i64,
    completed_at: Option<i64>,
    status: &'static str,
    background: bool,
    error: Option<()>,
    incomplete_details: Option<()>,
    instructions: Option<&'a RawValue>,
    max_output_tokens: Option<&'a RawValue>,
    metadata: &'a RawValue,
    model: Option<&'a RawValue>,
    output: Vec<&'a RawValue>,
    parallel_tool_calls: &'a RawValue,
    previous_response_id: Option<()>,
    prompt_cache_key: Option<&'a RawValue>,
    reasoning: &'a RawValue,
    service_tier: Option<&'a RawValue>,
    store: &'a RawValue,
    temperature: &'a RawValue,
    text: &'a RawValue,
    tool_choice: &'a RawValue,
    tools: &'a RawValue,
    top_p: &'a RawValue,
    truncation: &'a RawValue,
    usage: Option<ResponseUsage>,
    user: Option<&'a RawValue>,
}

/// An event of a stream, with the fields that its type has.
#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'a Response<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<&'a RawValue>,
}

/// Writes the answer to a request for a compaction with this body. `None` if the conversation has no summary, or if the
/// body is not valid.
pub(crate) fn answer(
    form: CompactionForm,
    compacted: &CompactedConversation,
    body: &[u8],
) -> Option<OwnAnswer> {
    match form {
        CompactionForm::Endpoint => conversation(compacted),
        CompactionForm::Trigger => response(compacted, body),
    }
}

fn conversation(compacted: &CompactedConversation) -> Option<OwnAnswer> {
    let items = compacted.items.iter();
    let items = items.map(|item| serde_json::from_slice(item));
    let answer = CompactedResponse {
        id: format!("resp_{}", compacted.id),
        object: "response.compaction",
        created_at: compacted.created_at_seconds,
        output: items.collect::<Result<_, _>>().ok()?,
        usage: compacted.usage.into(),
    };
    Some(OwnAnswer::json(serde_json::to_vec(&answer).ok()?))
}

fn response(compacted: &CompactedConversation, body: &[u8]) -> Option<OwnAnswer> {
    let item: &RawValue = serde_json::from_slice(compacted.summary.as_ref()?).ok()?;
    let fields: RequestFields<'_> = serde_json::from_slice(body).ok()?;
    let id = format!("resp_{}", compacted.id);
    let in_progress = fields.in_progress(&id, compacted.created_at_seconds)?;
    let completed = Response {
        output: vec![item],
        completed_at: Some(compacted.created_at_seconds),
        status: "completed",
        usage: Some(compacted.usage.into()),
        ..in_progress.clone()
    };
    Some(if fields.stream == Some(true) {
        OwnAnswer::events(events(&in_progress, item, &completed)?)
    } else {
        OwnAnswer::json(serde_json::to_vec(&completed).ok()?)
    })
}

/// Writes the events of a stream.
fn events(
    in_progress: &Response<'_>,
    item: &RawValue,
    completed: &Response<'_>,
) -> Option<Vec<u8>> {
    let with_response = |kind, response| (kind, Some(response), None);
    let with_item = |kind| (kind, None, Some(item));
    let all = [
        with_response("response.created", in_progress),
        with_response("response.in_progress", in_progress),
        with_item("response.output_item.added"),
        with_item("response.output_item.done"),
        with_response("response.completed", completed),
    ];
    let mut text = Vec::new();
    for (sequence_number, (kind, response, item)) in all.into_iter().enumerate() {
        let event = Event {
            kind,
            sequence_number,
            response,
            // The summary is the only item of the response.
            output_index: item.map(|_| 0),
            item,
        };
        let data = serde_json::to_string(&event).ok()?;
        write_event(&mut text, Some(kind), &data);
    }
    Some(text)
}

impl<'a> RequestFields<'a> {
    /// Returns the response before its item, with the defaults of the API.
    fn in_progress(&self, id: &'a str, created_at: i64) -> Option<Response<'a>> {
        let or = |given: Option<&'a RawValue>, default: &'static str| match given {
            Some(given) => Some(given),
            None => serde_json::from_str(default).ok(),
        };
        Some(Response {
            id,
            object: "response",
            created_at,
            completed_at: None,
            status: "in_progress",
            background: false,
            error: None,
            incomplete_details: None,
            instructions: self.instructions,
            max_output_tokens: self.max_output_tokens,
            metadata: or(self.metadata, "{}")?,
            model: self.model,
            output: Vec::new(),
            parallel_tool_calls: or(self.parallel_tool_calls, "true")?,
            previous_response_id: None,
            prompt_cache_key: self.prompt_cache_key,
            reasoning: or(self.reasoning, r#"{"effort":null,"summary":null}"#)?,
            service_tier: self.service_tier,
            store: or(self.store, "true")?,
            temperature: or(self.temperature, "1.0")?,
            text: or(self.text, r#"{"format":{"type":"text"}}"#)?,
            tool_choice: or(self.tool_choice, r#""auto""#)?,
            tools: or(self.tools, "[]")?,
            top_p: or(self.top_p, "1.0")?,
            truncation: or(self.truncation, r#""disabled""#)?,
            usage: None,
            user: self.user,
        })
    }
}
