//! The stream and the JSON of OpenAI's Chat Completions API.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::places::Places;
use super::splice::{Calls, Shown, Splice, event};
use crate::reading::{Fields, Unread};

/// The calls of the current response, by their position in it.
#[derive(Debug, Default)]
pub(super) struct Chat {
    places: Places,
    /// The id of the first response, which all chunks have.
    id: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Call {
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
}

impl Chat {
    pub(super) fn event(&mut self, state: &mut Splice, data: &[u8]) -> Result<Shown, Unread> {
        if data.trim_ascii() == b"[DONE]" {
            return Ok(if state.continues {
                Shown::Hidden
            } else {
                Shown::AsIs
            });
        }
        let mut chunk: Fields = serde_json::from_slice(data)?;
        let mut is_changed = self.rename(state, &mut chunk);
        let usage: Option<Fields> = chunk.read("usage")?;
        if let Some(mut usage) = usage {
            state.output_tokens.1 = usage.read("completion_tokens")?.unwrap_or_default();
            if state.output_tokens.0 > 0 {
                state.add_output(&mut usage, "completion_tokens")?;
                state.add_output(&mut usage, "total_tokens")?;
                chunk.set_value("usage", &usage)?;
                is_changed = true;
            }
        }
        let mut choices: Vec<Fields> = chunk.read("choices")?.unwrap_or_default();
        match &mut choices[..] {
            // The usage of a response that continues is part of the later usage.
            [] if state.continues => return Ok(Shown::Hidden),
            [] => {}
            [choice] => match self.choice(state, choice)? {
                Shown::Hidden => return Ok(Shown::Hidden),
                Shown::AsIs => {}
                Shown::Changed(_) => {
                    chunk.set_value("choices", &choices)?;
                    is_changed = true;
                }
            },
            // Tools are offered only to a request for one completion, so several choices are unexpected.
            _ => return Err(Unread::Unknown),
        }
        if !is_changed {
            return Ok(Shown::AsIs);
        }
        Ok(Shown::Changed(event(None, &chunk)?))
    }

    pub(super) fn begin_next(&mut self) {
        // The calls of a later response begin anew, because the agent got none of an earlier one.
        self.places = Places::default();
    }

    /// Gives a chunk of a later response the id of the first one. Returns true for such a chunk.
    fn rename(&mut self, state: &Splice, chunk: &mut Fields) -> bool {
        if !state.is_later && self.id.is_none() {
            self.id = chunk.get("id").map(RawValue::to_owned);
        }
        if let Some(id) = self.id.as_ref().filter(|_| state.is_later) {
            chunk.set("id", id.clone());
        }
        state.is_later
    }

    /// Changes a choice. `Changed` has no bytes here.
    fn choice(&mut self, state: &mut Splice, choice: &mut Fields) -> Result<Shown, Unread> {
        let mut shown = Shown::AsIs;
        let mut delta: Fields = choice.read("delta")?.unwrap_or_default();
        if let Some(calls) = delta.read::<Vec<Fields>>("tool_calls")? {
            let count = calls.len();
            let (calls, is_changed) = self.calls(state, calls)?;
            let is_empty = calls.is_empty();
            if is_empty && count > 0 {
                delta.remove("tool_calls");
                // A delta that consisted of hidden calls would arrive as an empty one, so the whole event is hidden.
                let is_blank = ["content", "reasoning_content", "reasoning", "refusal"]
                    .iter()
                    .all(|field| delta.get(field).is_none_or(|value| value.get() == "null"));
                shown = if is_blank {
                    Shown::Hidden
                } else {
                    Shown::Changed(Vec::new())
                };
            } else if is_changed {
                delta.set_value("tool_calls", &calls)?;
                shown = Shown::Changed(Vec::new());
            }
            choice.set_value("delta", &delta)?;
        }
        let reason: Option<String> = choice.read("finish_reason")?;
        let Some(reason) = reason else {
            return Ok(shown);
        };
        if state.end(matches!(&*reason, "tool_calls" | "stop")) {
            return Ok(Shown::Hidden);
        }
        if state.ends_without_calls() && reason == "tool_calls" {
            choice.set_value("finish_reason", &"stop")?;
            return Ok(Shown::Changed(Vec::new()));
        }
        // The reason must arrive, whatever else the chunk had.
        Ok(if shown == Shown::Hidden {
            Shown::Changed(Vec::new())
        } else {
            shown
        })
    }

    /// Returns the agent's calls with their new positions, and true if any call is missing or has moved.
    fn calls(
        &mut self,
        state: &mut Splice,
        calls: Vec<Fields>,
    ) -> Result<(Vec<Fields>, bool), Unread> {
        let (mut shown, mut is_changed) = (Vec::with_capacity(calls.len()), false);
        for mut call in calls {
            let index: u64 = call.read("index")?.unwrap_or_default();
            let function: Option<Function> = call.read("function")?;
            let name = function.and_then(|function| function.name);
            let known = self.places.get(index);
            // Only the first delta of a call has its name. Later ones are found by their index.
            let is_new = known.is_none() && !self.places.is_hidden(index);
            if is_new && state.is_own(name.as_deref()) {
                self.places.hide(state, index);
            }
            if self.places.is_hidden(index) {
                is_changed = true;
                continue;
            }
            let place = known.unwrap_or_else(|| self.places.show(state, index));
            state.calls.agents = self.places.len();
            if place != index {
                call.set_value("index", &place)?;
                is_changed = true;
            }
            shown.push(call);
        }
        Ok((shown, is_changed))
    }
}

fn message(response: &Fields) -> Result<(Fields, Fields), Unread> {
    let choices: Vec<Fields> = response.read("choices")?.unwrap_or_default();
    let [choice] = &choices[..] else {
        return Err(Unread::Unknown);
    };
    let message = choice.read("message")?.ok_or(Unread::Unknown)?;
    Ok((choice.clone(), message))
}

/// Returns the calls of a response, and true if the model ended it.
pub(super) fn calls(state: &Splice, response: &Fields) -> Result<(Calls, bool), Unread> {
    let (choice, message) = message(response)?;
    let mut calls = Calls::default();
    for call in message.read::<Vec<Call>>("tool_calls")?.unwrap_or_default() {
        let name = call.function.and_then(|function| function.name);
        if state.is_own(name.as_deref()) {
            calls.own += 1;
        } else {
            calls.agents += 1;
        }
    }
    let reason: Option<String> = choice.read("finish_reason")?;
    // After another reason, such as `length`, the last call can be incomplete.
    let is_regular = matches!(reason.as_deref(), Some("tool_calls" | "stop"));
    Ok((calls, is_regular))
}

/// Joins responses to one, without calls of offered tools.
pub(super) fn join(state: &Splice, responses: &[Fields]) -> Result<Fields, Unread> {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for response in responses {
        let (_, message) = message(response)?;
        text.push_str(&message.read::<String>("content")?.unwrap_or_default());
        let all: Vec<Box<RawValue>> = message.read("tool_calls")?.unwrap_or_default();
        for raw in all {
            let call: Call = serde_json::from_str(raw.get())?;
            let name = call.function.and_then(|function| function.name);
            if !state.is_own(name.as_deref()) {
                calls.push(raw);
            }
        }
    }
    let mut joined = responses.last().cloned().unwrap_or_default();
    if let Some(id) = responses.first().and_then(|first| first.get("id")) {
        joined.set("id", id.to_owned());
    }
    let (mut choice, mut message) = message(&joined)?;
    let content = (!text.is_empty()).then_some(text);
    message.set_value("content", &content)?;
    if calls.is_empty() {
        message.remove("tool_calls");
    } else {
        message.set_value("tool_calls", &calls)?;
    }
    choice.set_value("message", &message)?;
    if state.ends_without_calls() {
        choice.set_value("finish_reason", &"stop")?;
    }
    joined.set_value("choices", &[choice])?;
    if let Some(mut usage) = joined.read::<Fields>("usage")? {
        state.add_output(&mut usage, "completion_tokens")?;
        state.add_output(&mut usage, "total_tokens")?;
        joined.set_value("usage", &usage)?;
    }
    Ok(joined)
}
