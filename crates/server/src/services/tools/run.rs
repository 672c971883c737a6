//! The implementation of each tool. Errors in the model's input become error results for the model.

use std::fmt::Write as _;

use palimpsest_core::command::{Rejection, Snip};
use palimpsest_core::event;
use palimpsest_core::ids::{Ordinal, SessionKey};
use palimpsest_core::policy::{ModelTool, Policy};
use palimpsest_core::session::{RequestStamp, Session, TranscriptEntry};
use palimpsest_core::transcript_reader;
use palimpsest_core::view::TargetOverride;
use palimpsest_engine::filter::messages_of_span;
use palimpsest_engine::originals::{OriginalMessage, contents, restore_results};
use palimpsest_engine::results::{ResultSelection, range, search as search_lines};
use palimpsest_engine::search_threads::SearchBudget;
use palimpsest_engine::searching::SearchCursor;
use palimpsest_engine::tools::{NOTE_BYTES, page};
use palimpsest_proto::context::v1::read_tool_result_request::Result as Whose;
use palimpsest_proto::context::v1::{
    self, CallRef, ErrorReason, SearchMessagesRequest, TextPattern,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tonic::{Code, Status};

use super::super::results::{original, search_error};
use super::super::search::search_from;
use super::super::{Service, snip};
use crate::convert::{self, FieldError};
use crate::errors::ServiceError;

const DEFAULT_HITS: u32 = 20;
const MAX_HITS: u32 = 100;
const MAX_CONTEXT_LINES: usize = 100;
/// The maximum number of messages in one answer.
const MAX_MESSAGES: u32 = 200;
/// The number of messages whose contents are in memory at the same time.
const MESSAGES_PER_READ: usize = 8;

/// The answer of a tool.
pub(super) struct ToolOutcome {
    pub(super) text: String,
    pub(super) is_error: bool,
    pub(super) snipped: Option<Box<v1::ContentSnipped>>,
}

impl ToolOutcome {
    fn success(text: String) -> Self {
        Self {
            text,
            is_error: false,
            snipped: None,
        }
    }

    fn failed(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_error: true,
            snipped: None,
        }
    }
}

/// The service, the session and the request of a call.
pub(super) struct ToolContext<'a> {
    pub(super) service: &'a Service,
    pub(super) key: &'a SessionKey,
    pub(super) policy: &'a Policy,
    /// The stamp of the call, or the error of its request id. Only a tool that changes the session uses the stamp.
    pub(super) stamp: Result<Option<RequestStamp>, FieldError>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SnipInput {
    ids: Vec<String>,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadResultInput {
    reference: Option<String>,
    tool_use_id: Option<String>,
    first_line: Option<u64>,
    lines: Option<u64>,
    tail_lines: Option<u64>,
    offset: Option<u64>,
    pattern: Option<String>,
    #[serde(default)]
    context_lines: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadTranscriptInput {
    first: Option<u64>,
    last: Option<u64>,
    message_id: Option<String>,
    collapse_id: Option<Box<str>>,
    #[serde(default)]
    offset: usize,
}

/// The messages to read.
struct PickedMessages {
    entries: Vec<(Ordinal, TranscriptEntry)>,
    /// True if exactly one message is read. Long parts of a single message are not shortened.
    whole: bool,
}

impl ReadTranscriptInput {
    fn pick(&self, session: &Session) -> Result<PickedMessages, ServiceError> {
        let transcript = session.transcript();
        // Models count messages from 1, and ordinals start at 0.
        let place = |number: u64| u32::try_from(number.saturating_sub(1)).unwrap_or(u32::MAX);
        let from = self.first.map(place);
        // A span id takes precedence over a message id, and a message id over numbers.
        let messages: Vec<Ordinal> = match (&self.collapse_id, &self.message_id) {
            (Some(id), _) => {
                let messages = messages_of_span(session, id);
                let messages =
                    messages.ok_or_else(|| Rejection::SpanNotFound { id: id.clone() })?;
                let from = Ordinal::new(from.unwrap_or(0));
                messages
                    .into_iter()
                    .filter(|message| *message >= from)
                    .collect()
            }
            (None, Some(id)) => {
                let id = convert::message_id(id, "message_id")?;
                transcript.find(id).into_iter().collect()
            }
            (None, None) => {
                let first = from.unwrap_or(0);
                let last = self.last.map_or(first, place);
                // Limited before the range is collected, because `last` can be any number.
                let last = last.min(first.saturating_add(MAX_MESSAGES - 1));
                (first..=last).map(Ordinal::new).collect()
            }
        };
        // A single message may be read in parts, so only then an offset applies.
        let whole = messages.len() == 1 && self.collapse_id.is_none();
        let entry = |message: Ordinal| Some((message, transcript.get(message)?.clone()));
        Ok(PickedMessages {
            entries: messages.into_iter().map_while(entry).collect(),
            whole,
        })
    }

    /// Appends a message to an answer of at most `max` bytes. Returns true if the answer is complete.
    fn append_message(
        &self,
        session: &Session,
        original: &OriginalMessage,
        (whole, max): (bool, usize),
        text: &mut String,
    ) -> bool {
        let message = (original.ordinal, &*original.message);
        let calls = session.calls();
        if whole {
            let (part, next) = transcript_reader::render_message(message, calls, self.offset, max);
            text.push_str(&part);
            if let Some(next) = next {
                let id = message.1.id;
                let _ = write!(
                    text,
                    "\n[cut: ask again with message_id \"{id}\" and offset {next}]"
                );
            }
            return true;
        }
        // The first message is cut if it does not fit, and later ones start the next answer.
        let space = if text.is_empty() { max } else { usize::MAX };
        let tools = &session.policy().model_tools;
        let page = transcript_reader::outline([message], calls, tools, space);
        if text.is_empty() || text.len() + page.text.len() <= max {
            text.push_str(&page.text);
            return false;
        }
        text.push_str(&self.continuation_hint(session, original.ordinal));
        true
    }

    /// Returns the note about how to continue after a cut.
    fn continuation_hint(&self, session: &Session, next: Ordinal) -> String {
        let next = u64::from(next.get()) + 1;
        match (&self.collapse_id, self.last) {
            (Some(id), _) => {
                format!("[cut: ask again with collapse_id \"{id}\" and first {next}]")
            }
            (None, last) => {
                let all = session.transcript().len();
                let last = last
                    .map(|last| format!(" and last {last}"))
                    .unwrap_or_default();
                format!("[cut: {all} messages in all; ask again with first {next}{last}]")
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchInput {
    pattern: String,
    #[serde(default)]
    regex: bool,
    #[serde(default)]
    ignore_case: bool,
    max_hits: Option<u32>,
    first: Option<u64>,
}

fn parse<T: DeserializeOwned>(input: &str) -> Result<T, ToolOutcome> {
    // Some models send an empty input for a tool without arguments.
    let input = if input.trim().is_empty() { "{}" } else { input };
    serde_json::from_str(input).map_err(|error| {
        ToolOutcome::failed(format!(
            "The input does not fit the tool's schema: {error}."
        ))
    })
}

impl ToolContext<'_> {
    pub(super) async fn run(
        &self,
        tool: ModelTool,
        input: &str,
    ) -> Result<ToolOutcome, ServiceError> {
        let outcome = match tool {
            ModelTool::Snip => self.snip(input).await,
            ModelTool::ReadToolResult => self.read_result(input).await,
            ModelTool::ReadTranscript => self.read_transcript(input).await,
            ModelTool::SearchTranscript => self.search(input).await,
        };
        let mut outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => to_tool_error(error)?,
        };
        // The limit applies to error texts too.
        cap(
            &mut outcome.text,
            self.policy.model_tools.max_answer_bytes as usize,
        );
        Ok(outcome)
    }

    async fn snip(&self, input: &str) -> Result<ToolOutcome, ServiceError> {
        let input: SnipInput = match parse(input) {
            Ok(input) => input,
            Err(outcome) => return Ok(outcome),
        };
        // Models often copy the whole tag `[id:...]` from a message instead of the id.
        let bare = |id: &String| {
            let id = id.trim().trim_start_matches('[').trim_end_matches(']');
            id.strip_prefix("id:").unwrap_or(id).into()
        };
        let snip = Snip {
            turns: input.ids.iter().map(bare).collect(),
            messages: Vec::new(),
            blocks: Vec::new(),
            // The reason becomes part of an event, so it is shortened.
            reason: input.reason.chars().take(1_000).collect::<String>().into(),
            trigger: event::Trigger::Model,
            expected_revision: None,
            request: self.stamp.clone()?,
        };
        let reply = snip::run(
            self.service,
            self.key,
            snip,
            &TargetOverride::default(),
            false,
        )
        .await?;
        let snipped = reply.snipped.unwrap_or_default();
        let freed = reply.effect.map_or(0, |effect| effect.freed_tokens);
        let text = format!(
            "Removed {} turns with {} messages, about {freed} tokens.",
            snipped.turn_ids.len(),
            snipped.message_ids.len(),
        );
        Ok(ToolOutcome {
            text,
            is_error: false,
            snipped: Some(Box::new(snipped)),
        })
    }

    async fn read_result(&self, input: &str) -> Result<ToolOutcome, ServiceError> {
        let input: ReadResultInput = match parse(input) {
            Ok(input) => input,
            Err(outcome) => return Ok(outcome),
        };
        let whose = match (input.reference, input.tool_use_id) {
            (Some(reference), _) => Whose::Reference(reference),
            (None, Some(id)) => Whose::Call(CallRef {
                tool_use_id: id,
                ..CallRef::default()
            }),
            (None, None) => {
                return Ok(ToolOutcome::failed(
                    "Give a reference, or the tool_use_id of the call.",
                ));
            }
        };
        let original = original(self.service, self.key, &whose).await?;
        let max = self.policy.model_tools.max_answer_bytes as usize;
        // A search runs on the search threads, because the pattern comes from the model.
        if let Some(pattern) = input.pattern {
            let pattern = self.pattern(pattern, true, false)?;
            let context = input.context_lines.min(MAX_CONTEXT_LINES);
            let from = input.first_line.unwrap_or(1);
            let part = move |work: &mut SearchBudget| {
                let found = search_lines(&original.text, &pattern, context, (from, max), work);
                found.map(|(found, next)| (found, next, original))
            };
            let (searches, work) = (&self.service.searches, SearchBudget::of_call());
            let (found, _) = searches.run(&self.key.project, work, part).await?;
            let (found, next, original) = found.map_err(search_error)?;
            if found.is_empty() {
                let more = next.map(|next| {
                    format!(" up to line {}: ask again with first_line {next}", next - 1)
                });
                let text = format!("No line matches{}.", more.unwrap_or_default());
                return Ok(ToolOutcome::success(text));
            }
            let mut out = String::new();
            for stretch in found {
                let _ = writeln!(out, "[line {}]", stretch.first_line);
                let lines = &original.text[stretch.range.clone()];
                // The first range may exceed the limit: a page without a range would not progress.
                let shown = &lines[..lines.floor_char_boundary(max)];
                out.push_str(shown);
                if !out.ends_with('\n') {
                    out.push('\n');
                }
                if shown.len() < lines.len() {
                    let rest = stretch.range.start + shown.len();
                    let _ = writeln!(out, "[cut: ask again with offset {rest}, without pattern]");
                }
            }
            if let Some(next) = next {
                let _ = write!(out, "[more matches: ask again with first_line {next}]");
            }
            return Ok(ToolOutcome::success(out));
        }
        // An answer that was cut names the offset of its rest, so the offset takes precedence.
        let selection = match (
            input.offset, input.tail_lines, input.first_line, input.lines,
        ) {
            (Some(offset), ..) => ResultSelection::Bytes {
                offset: original
                    .text
                    .floor_char_boundary(usize::try_from(offset).unwrap_or(usize::MAX))
                    as u64,
                length: None,
            },
            (_, Some(lines), ..) => ResultSelection::Tail(lines),
            (_, None, None, None) => ResultSelection::All,
            (_, None, first, lines) => ResultSelection::Lines {
                first: first.unwrap_or(1).max(1),
                lines,
            },
        };
        let part = range(&original.text, &selection);
        Ok(ToolOutcome::success(page(&original.text, part, max)))
    }

    async fn read_transcript(&self, input: &str) -> Result<ToolOutcome, ServiceError> {
        let input: ReadTranscriptInput = match parse(input) {
            Ok(input) => input,
            Err(outcome) => return Ok(outcome),
        };
        let picked = self
            .service
            .sessions
            .read(self.key, |session| input.pick(session));
        let PickedMessages { entries, whole } = match picked.await? {
            Ok(picked) if !picked.entries.is_empty() => picked,
            Ok(_) => return Ok(ToolOutcome::failed("There is no such message.")),
            Err(error) => {
                return Ok(ToolOutcome::failed(format!(
                    "{}.",
                    Status::from(error).message()
                )));
            }
        };
        // The space for the note at the end is reserved within the limit.
        let max = self.policy.model_tools.max_answer_bytes as usize;
        let max = max.saturating_sub(NOTE_BYTES);
        let mut text = String::new();
        // Contents are loaded in small parts and only until the answer is full: a span can have more messages than fit
        // into memory.
        for part in entries.chunks(MESSAGES_PER_READ) {
            for mut original in contents(self.service, self.key, part.to_vec()).await? {
                // Original results are restored first, so that the model reads them.
                restore_results(self.service, self.key, &mut original).await?;
                let show = |session: &Session| {
                    input.append_message(session, &original, (whole, max), &mut text)
                };
                if self.service.sessions.read(self.key, show).await? {
                    return Ok(ToolOutcome::success(text));
                }
            }
        }
        Ok(ToolOutcome::success(text))
    }

    async fn search(&self, input: &str) -> Result<ToolOutcome, ServiceError> {
        let input: SearchInput = match parse(input) {
            Ok(input) => input,
            Err(outcome) => return Ok(outcome),
        };
        let pattern = if input.regex {
            v1::text_pattern::Pattern::Regex(input.pattern)
        } else {
            v1::text_pattern::Pattern::Literal(input.pattern)
        };
        let request = SearchMessagesRequest {
            session: self.key.to_string(),
            pattern: Some(TextPattern {
                pattern: Some(pattern),
                ignore_case: input.ignore_case,
            }),
            page_size: input.max_hits.unwrap_or(DEFAULT_HITS).clamp(1, MAX_HITS),
            ..SearchMessagesRequest::default()
        };
        let (found, next) = search_from(self.service, request, input.first).await?;
        // Models see ordinals that start at 1.
        let number = |next: &SearchCursor| u64::from(next.message.get()) + 1;
        if found.hits.is_empty() {
            // An incomplete search without matches must not be reported as "no matches".
            let text = match next {
                Some(next) => format!(
                    "Nothing matches before message {0}; the rest was not searched: ask again \
                     with first {0}.",
                    number(&next)
                ),
                None => "Nothing matches.".to_owned(),
            };
            return Ok(ToolOutcome::success(text));
        }
        // The space for the note at the end is reserved within the limit.
        let max = self.policy.model_tools.max_answer_bytes as usize;
        let max = max.saturating_sub(NOTE_BYTES);
        let mut out = String::new();
        let mut cut = None;
        for (at, hit) in found.hits.iter().enumerate() {
            let role = hit
                .role()
                .as_str_name()
                .trim_start_matches("ROLE_")
                .to_ascii_lowercase();
            let snippet = hit.snippet.replace('\n', " ");
            let line = format!("[{}] {role}: {snippet}\n", hit.ordinal);
            if !out.is_empty() && out.len() + line.len() > max {
                cut = Some(at);
                break;
            }
            out.push_str(&line);
        }
        if let Some(shown) = cut {
            let all = found.hits.len();
            let _ = writeln!(
                out,
                "[cut: {shown} of {all} hits; a narrower pattern shows the rest]"
            );
        }
        // After a cut, a search from `next` on would skip the hits that are not shown.
        if let Some(next) = next.filter(|_| cut.is_none()) {
            // The tool continues at a message, so the other matches in this one need another pattern.
            let (from, more) = if next.is_inside() {
                let more = format!("message {} has more hits; ", number(&next));
                (number(&next) + 1, more)
            } else {
                (number(&next), String::new())
            };
            let _ = writeln!(
                out,
                "[{more}messages from {from} on were not searched: ask again with first {from}]"
            );
        }
        // The policy can rename or disable the reader.
        if let Some(reader) = self.policy.model_tools.name_of(ModelTool::ReadTranscript) {
            let _ = write!(out, "[read any of them with {reader} by its number]");
        }
        Ok(ToolOutcome::success(out))
    }

    fn pattern(
        &self,
        text: String,
        regex: bool,
        ignore_case: bool,
    ) -> Result<regex::Regex, ServiceError> {
        let pattern = if regex {
            v1::text_pattern::Pattern::Regex(text)
        } else {
            v1::text_pattern::Pattern::Literal(text)
        };
        let pattern = TextPattern {
            pattern: Some(pattern),
            ignore_case,
        };
        let limits = self.service.limits().narrowed_by(&self.policy.limits);
        Ok(convert::text_pattern(Some(pattern), &limits, "pattern")?)
    }
}

/// Turns errors in the model's input into error results. All other errors fail the call.
fn to_tool_error(error: ServiceError) -> Result<ToolOutcome, ServiceError> {
    // These errors describe the input, so the model can correct it.
    let is_its_own = matches!(
        error.reason(),
        ErrorReason::InvalidField
            | ErrorReason::InvalidPattern
            | ErrorReason::AmbiguousToolUseId
            | ErrorReason::ResultNotFound
            | ErrorReason::CollapseNotFound
            | ErrorReason::MessageTooLarge
            | ErrorReason::MessageNotFound
            | ErrorReason::MessageNotVisible
            | ErrorReason::TurnNotFound
            | ErrorReason::TurnForeign
            | ErrorReason::TurnNotVisible
            | ErrorReason::TurnAlreadySnipped
            | ErrorReason::TurnIsCurrent
            | ErrorReason::Pinned
    );
    if !is_its_own {
        return Err(error);
    }
    let status = Status::from(error);
    debug_assert_ne!(status.code(), Code::Internal);
    Ok(ToolOutcome::failed(format!("{}.", status.message())))
}

/// Truncates an answer to its limit and adds a note.
fn cap(text: &mut String, max: usize) {
    const NOTE: &str = "\n[cut to the limit of an answer]";
    if text.len() <= max {
        return;
    }
    let end = max.saturating_sub(NOTE.len());
    text.truncate(text.floor_char_boundary(end));
    text.push_str(NOTE);
}
