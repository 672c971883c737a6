//! The stream and the JSON of OpenAI's Responses API.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::places::Places;
use super::splice::{Calls, Shown, Splice, event};
use crate::reading::{Fields, Unread};

/// The calls that the provider runs itself.
const HOSTED: [&str; 5] = [
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
];

/// The items of the current response, by their position in it.
#[derive(Debug, Default)]
pub(super) struct Responses {
    places: Places,
    /// The number of the next event for the agent.
    sequence: u64,
    /// The items of the earlier responses that the agent got.
    earlier: Vec<Box<RawValue>>,
    /// The id of the first response.
    id: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    output_index: Option<u64>,
    sequence_number: Option<u64>,
    item: Option<Item>,
}

#[derive(Deserialize)]
struct Item {
    r#type: String,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Tool {
    name: Option<String>,
}

impl Item {
    /// Returns true if the agent has to run the item.
    fn is_call(&self) -> bool {
        let kind = &*self.r#type;
        // An unknown kind of call counts as the agent's. The response then ends, so that the agent can run the call.
        kind == "mcp_approval_request" || (kind.ends_with("_call") && !HOSTED.contains(&kind))
    }

    fn is_own(&self, state: &Splice) -> bool {
        self.r#type == "function_call" && state.is_own(self.name.as_deref())
    }
}

impl Responses {
    pub(super) fn event(&mut self, state: &mut Splice, data: &[u8]) -> Result<Shown, Unread> {
        let parsed: Event<'_> = serde_json::from_slice(data)?;
        let name = &*parsed.r#type;
        let place = match name {
            "response.created" | "response.queued" | "response.in_progress" => {
                if state.is_later {
                    return Ok(Shown::Hidden);
                }
                return self.begun(state, name, parsed.sequence_number, data);
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                return self.ended(state, name, parsed.sequence_number, data);
            }
            _ => match parsed.output_index {
                None => None,
                Some(index) => {
                    if name == "response.output_item.added" {
                        let item = parsed.item.as_ref().ok_or(Unread::Unknown)?;
                        self.add(state, index, item);
                    }
                    if self.places.is_hidden(index) {
                        return Ok(Shown::Hidden);
                    }
                    // `output_item.added` announces each item. An event of another position is not understood.
                    let place = self.places.get(index).ok_or(Unread::Unknown)?;
                    (place != index).then_some(place)
                }
            },
        };
        self.numbered(state, name, (parsed.sequence_number, place), data)
    }

    pub(super) fn begin_next(&mut self) {
        self.places.begin_next();
    }

    fn add(&mut self, state: &mut Splice, index: u64, item: &Item) {
        if item.is_own(state) {
            self.places.hide(state, index);
            return;
        }
        state.calls.agents += usize::from(item.is_call());
        self.places.show(state, index);
    }

    /// Removes the offered tools from an event with the response, which repeats the tools of the request.
    fn begun(
        &mut self,
        state: &Splice,
        name: &str,
        sequence: Option<u64>,
        data: &[u8],
    ) -> Result<Shown, Unread> {
        let mut fields: Fields = serde_json::from_slice(data)?;
        let mut response: Fields = fields.read("response")?.ok_or(Unread::Unknown)?;
        if !remove_tools(state, &mut response)? {
            return self.numbered(state, name, (sequence, None), data);
        }
        self.sequence = next_after(sequence.unwrap_or(self.sequence));
        fields.set_value("response", &response)?;
        Ok(Shown::Changed(event(Some(name), &fields)?))
    }

    /// Gives an event its numbers for the agent.
    fn numbered(
        &mut self,
        state: &Splice,
        name: &str,
        (sequence, place): (Option<u64>, Option<u64>),
        data: &[u8],
    ) -> Result<Shown, Unread> {
        if !state.is_displaced() {
            self.sequence = next_after(sequence.unwrap_or(self.sequence));
            return Ok(Shown::AsIs);
        }
        let own = self.sequence;
        self.sequence = next_after(own);
        // Both numbers fit already, so the event keeps its bytes.
        if place.is_none() && sequence.is_none_or(|sequence| sequence == own) {
            return Ok(Shown::AsIs);
        }
        let mut fields: Fields = serde_json::from_slice(data)?;
        if sequence.is_some() {
            fields.set_value("sequence_number", &own)?;
        }
        if let Some(place) = place {
            fields.set_value("output_index", &place)?;
        }
        Ok(Shown::Changed(event(Some(name), &fields)?))
    }

    fn ended(
        &mut self,
        state: &mut Splice,
        name: &str,
        sequence: Option<u64>,
        data: &[u8],
    ) -> Result<Shown, Unread> {
        let mut fields: Fields = serde_json::from_slice(data)?;
        let response: Fields = fields.read("response")?.ok_or(Unread::Unknown)?;
        let usage: Fields = response.read("usage")?.unwrap_or_default();
        state.output_tokens.1 = usage.read("output_tokens")?.unwrap_or_default();
        if self.id.is_none() {
            self.id = response.get("id").map(RawValue::to_owned);
        }
        if state.end(name == "response.completed") {
            self.earlier.extend(shown_items(state, &response)?);
            return Ok(Shown::Hidden);
        }
        // The only response, without a hidden call: at most its repeated tools change.
        if !state.is_later && state.calls.own == 0 {
            return self.begun(state, name, sequence, data);
        }
        let earlier = std::mem::take(&mut self.earlier);
        let joined = joined(state, response, earlier, self.id.as_deref())?;
        fields.set_value("response", &joined)?;
        if sequence.is_some() {
            fields.set_value("sequence_number", &self.sequence)?;
        }
        Ok(Shown::Changed(event(Some(name), &fields)?))
    }
}

/// Returns the number after one that a provider can choose.
fn next_after(number: u64) -> u64 {
    number.saturating_add(1)
}

/// Returns true if a response repeats offered tools of its request.
pub(super) fn repeats_tools(state: &Splice, response: &Fields) -> Result<bool, Unread> {
    remove_tools(state, &mut response.clone())
}

/// Removes the offered tools from the tools that a response repeats. Returns true if there were any.
fn remove_tools(state: &Splice, response: &mut Fields) -> Result<bool, Unread> {
    let mut tools: Vec<Box<RawValue>> = response.read("tools")?.unwrap_or_default();
    let count = tools.len();
    tools.retain(|raw| {
        let tool = serde_json::from_str::<Tool>(raw.get());
        !tool.is_ok_and(|tool| state.is_own(tool.name.as_deref()))
    });
    let is_changed = tools.len() < count;
    if is_changed {
        response.set_value("tools", &tools)?;
    }
    Ok(is_changed)
}

/// Returns the items of a response that the agent gets.
fn shown_items(state: &Splice, response: &Fields) -> Result<Vec<Box<RawValue>>, Unread> {
    let mut items: Vec<Box<RawValue>> = response.read("output")?.unwrap_or_default();
    let mut failed = None;
    items.retain(|raw| match serde_json::from_str::<Item>(raw.get()) {
        Ok(item) => !item.is_own(state),
        Err(error) => {
            failed = Some(error);
            true
        }
    });
    failed.map_or(Ok(items), |error| Err(error.into()))
}

fn joined(
    state: &Splice,
    mut last: Fields,
    earlier: Vec<Box<RawValue>>,
    id: Option<&RawValue>,
) -> Result<Fields, Unread> {
    let mut items = earlier;
    items.extend(shown_items(state, &last)?);
    last.set_value("output", &items)?;
    remove_tools(state, &mut last)?;
    if let Some(id) = id {
        last.set("id", id.to_owned());
    }
    if let Some(mut usage) = last.read::<Fields>("usage")? {
        state.add_output(&mut usage, "output_tokens")?;
        state.add_output(&mut usage, "total_tokens")?;
        last.set_value("usage", &usage)?;
    }
    Ok(last)
}

/// Returns the calls of a response, and true if the model ended it.
pub(super) fn calls(state: &Splice, response: &Fields) -> Result<(Calls, bool), Unread> {
    let mut calls = Calls::default();
    for item in response.read::<Vec<Item>>("output")?.unwrap_or_default() {
        if item.is_own(state) {
            calls.own += 1;
        } else {
            calls.agents += usize::from(item.is_call());
        }
    }
    let status: Option<String> = response.read("status")?;
    Ok((calls, status.as_deref() == Some("completed")))
}

/// Joins responses to one, without calls of offered tools.
pub(super) fn join(state: &Splice, responses: &[Fields]) -> Result<Fields, Unread> {
    let Some((last, earlier)) = responses.split_last() else {
        return Ok(Fields::default());
    };
    let mut items = Vec::new();
    for response in earlier {
        items.extend(shown_items(state, response)?);
    }
    joined(state, last.clone(), items, responses[0].get("id"))
}
