//! The stream and the JSON of Anthropic's Messages API.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::places::Places;
use super::splice::{Calls, Shown, Splice, event};
use crate::reading::{Fields, Unread};

/// The blocks of the current response, by their position in it.
#[derive(Debug, Default)]
pub(super) struct Messages {
    places: Places,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    index: Option<u64>,
    content_block: Option<Block>,
    delta: Option<Delta>,
}

#[derive(Deserialize)]
struct Block {
    r#type: String,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    stop_reason: Option<String>,
}

impl Messages {
    pub(super) fn event(&mut self, state: &mut Splice, data: &[u8]) -> Result<Shown, Unread> {
        let parsed: Event<'_> = serde_json::from_slice(data)?;
        match &*parsed.r#type {
            // The agent has the start of the first response, and gets one message.
            "message_start" if state.is_later => Ok(Shown::Hidden),
            "content_block_start" => {
                let index = parsed.index.ok_or(Unread::Unknown)?;
                let block = parsed.content_block.ok_or(Unread::Unknown)?;
                if block.r#type == "tool_use" {
                    if state.is_own(block.name.as_deref()) {
                        self.places.hide(state, index);
                        return Ok(Shown::Hidden);
                    }
                    state.calls.agents += 1;
                }
                self.places.show(state, index);
                self.renumbered(&parsed.r#type, index, data)
            }
            "content_block_delta" | "content_block_stop" => {
                let index = parsed.index.ok_or(Unread::Unknown)?;
                if self.places.is_hidden(index) {
                    return Ok(Shown::Hidden);
                }
                self.renumbered(&parsed.r#type, index, data)
            }
            "message_delta" => {
                let stop = parsed.delta.and_then(|delta| delta.stop_reason);
                Self::ended(state, stop.as_deref(), data)
            }
            "message_stop" if state.continues => Ok(Shown::Hidden),
            _ => Ok(Shown::AsIs),
        }
    }

    pub(super) fn begin_next(&mut self) {
        self.places.begin_next();
    }

    fn renumbered(&self, name: &str, index: u64, data: &[u8]) -> Result<Shown, Unread> {
        let place = self.places.get(index).ok_or(Unread::Unknown)?;
        if place == index {
            return Ok(Shown::AsIs);
        }
        let mut fields: Fields = serde_json::from_slice(data)?;
        fields.set_value("index", &place)?;
        Ok(Shown::Changed(event(Some(name), &fields)?))
    }

    fn ended(state: &mut Splice, stop: Option<&str>, data: &[u8]) -> Result<Shown, Unread> {
        let mut fields: Fields = serde_json::from_slice(data)?;
        let mut usage: Fields = fields.read("usage")?.unwrap_or_default();
        state.output_tokens.1 = usage.read("output_tokens")?.unwrap_or_default();
        if state.end(stop == Some("tool_use")) {
            return Ok(Shown::Hidden);
        }
        // After `tool_use` an agent looks for its calls, and it got none.
        let needs_reason = stop == Some("tool_use") && state.ends_without_calls();
        // Without an earlier response the usage is right, and the event keeps its bytes.
        if state.output_tokens.0 == 0 && !needs_reason {
            return Ok(Shown::AsIs);
        }
        state.add_output(&mut usage, "output_tokens")?;
        fields.set_value("usage", &usage)?;
        if needs_reason {
            let mut delta: Fields = fields.read("delta")?.unwrap_or_default();
            delta.set_value("stop_reason", &"end_turn")?;
            fields.set_value("delta", &delta)?;
        }
        Ok(Shown::Changed(event(Some("message_delta"), &fields)?))
    }
}

/// Returns the calls of a response, and true if the model ended it.
pub(super) fn calls(state: &Splice, response: &Fields) -> Result<(Calls, bool), Unread> {
    let content: Vec<Block> = response.read("content")?.unwrap_or_default();
    let mut calls = Calls::default();
    for block in content.iter().filter(|block| block.r#type == "tool_use") {
        if state.is_own(block.name.as_deref()) {
            calls.own += 1;
        } else {
            calls.agents += 1;
        }
    }
    let stop: Option<String> = response.read("stop_reason")?;
    Ok((calls, stop.as_deref() == Some("tool_use")))
}

/// Joins responses to one, without calls of offered tools.
pub(super) fn join(state: &Splice, responses: &[Fields]) -> Result<Fields, Unread> {
    let mut content: Vec<Box<RawValue>> = Vec::new();
    for response in responses {
        let blocks: Vec<Box<RawValue>> = response.read("content")?.unwrap_or_default();
        for raw in blocks {
            let block: Block = serde_json::from_str(raw.get())?;
            if !(block.r#type == "tool_use" && state.is_own(block.name.as_deref())) {
                content.push(raw);
            }
        }
    }
    let mut joined = responses.last().cloned().unwrap_or_default();
    if let Some(id) = responses.first().and_then(|first| first.get("id")) {
        joined.set("id", id.to_owned());
    }
    joined.set_value("content", &content)?;
    if let Some(mut usage) = joined.read::<Fields>("usage")? {
        state.add_output(&mut usage, "output_tokens")?;
        joined.set_value("usage", &usage)?;
    }
    if state.ends_without_calls() {
        joined.set_value("stop_reason", &"end_turn")?;
    }
    Ok(joined)
}
