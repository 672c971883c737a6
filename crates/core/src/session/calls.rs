//! Every tool call of a session, and what became of it.

use std::collections::{BTreeSet, HashMap};

use crate::event::{CallState, Pairing};
use crate::ids::{CallKey, Ordinal};
use crate::message::ToolUse;

/// What our own wire ids begin with; a caller's id that begins so is mapped like an illegal one.
const MAPPED_PREFIX: &str = "palimpsest_";
/// What both providers take as the id of a call.
const MAX_ID_LEN: usize = 64;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The message that it stands in.
    pub message: Ordinal,
    /// The block within the message.
    pub block: u16,
    /// The caller's id.
    pub id: Box<str>,
    /// The tool.
    pub name: Box<str>,
    /// Whether the caller's id cannot stand on the wire.
    pub mapped: bool,
    /// What became of it.
    pub state: CallState,
    /// Where its result stands in the transcript, whether or not it is in the view.
    pub original: Option<(Ordinal, u16)>,
    /// How many characters its result has, as it came.
    pub result_chars: u64,
    /// The estimated size of its result, as it came.
    pub result_tokens: u32,
}

impl Call {
    /// The message and the block that hold its result, as long as the call has one in the view.
    pub const fn result(&self) -> Option<(Ordinal, u16)> {
        match self.state {
            CallState::Answered { message, block } | CallState::Late { message, block } => {
                Some((message, block))
            }
            _ => None,
        }
    }
}

/// All calls of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls {
    calls: Vec<Call>,
    by_id: HashMap<Box<str>, Vec<CallKey>>,
}

impl Calls {
    /// One call.
    pub fn get(&self, key: CallKey) -> Option<&Call> {
        self.calls.get(key.get() as usize)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (CallKey, &Call)> + ExactSizeIterator {
        self.calls
            .iter()
            .enumerate()
            .map(|(index, call)| (CallKey::new(crate::view::count(index)), call))
    }

    /// The calls that share a caller's id, oldest first.
    pub fn with_id(&self, id: &str) -> &[CallKey] {
        self.by_id.get(id).map_or(&[], Vec::as_slice)
    }

    /// The call that stands in a block.
    pub fn at(&self, message: Ordinal, block: u16) -> Option<CallKey> {
        self.calls
            .binary_search_by_key(&(message, block), |call| (call.message, call.block))
            .ok()
            .map(|index| CallKey::new(crate::view::count(index)))
    }

    /// The calls of a message, in order.
    pub fn of(&self, message: Ordinal) -> impl DoubleEndedIterator<Item = (CallKey, &Call)> {
        let from = self.calls.partition_point(|call| call.message < message);
        let to = self.calls.partition_point(|call| call.message <= message);
        let keys = (from..to).map(|index| CallKey::new(crate::view::count(index)));
        keys.zip(&self.calls[from..to])
    }

    /// The calls of some messages, in order.
    pub(crate) fn of_all(&self, messages: &BTreeSet<Ordinal>) -> impl Iterator<Item = CallKey> {
        let calls = messages.iter().flat_map(|message| self.of(*message));
        calls.map(|(call, _)| call)
    }

    /// The id that a call has on the wire.
    pub fn wire_id(&self, key: CallKey, max_len: usize) -> std::borrow::Cow<'_, str> {
        match self.get(key) {
            Some(call) if !call.mapped && call.id.len() <= max_len => (&*call.id).into(),
            _ => self.own_id(key).into(),
        }
    }

    /// The service's own wire id of a call, which leads to no other.
    pub fn own_id(&self, key: CallKey) -> String {
        format!("{MAPPED_PREFIX}{key}")
    }

    /// The call that a service's own wire id stands for.
    pub fn mapped(&self, wire_id: &str) -> Option<CallKey> {
        let key = CallKey::parse(wire_id.strip_prefix(MAPPED_PREFIX)?)?;
        self.get(key).map(|_| key)
    }

    /// Registers a call; calls come in the order of the transcript.
    pub(crate) fn push(&mut self, message: Ordinal, block: u16, tool: &ToolUse) -> CallKey {
        let id = &*tool.id;
        let key = CallKey::new(crate::view::count(self.calls.len()));
        let same = self.by_id.entry(id.into()).or_default();
        let mapped = !is_legal(id) || !same.is_empty();
        same.push(key);
        self.calls.push(Call {
            message,
            block,
            id: id.into(),
            name: tool.name.clone(),
            mapped,
            state: CallState::Open,
            original: None,
            result_chars: 0,
            result_tokens: 0,
        });
        key
    }

    /// Finds the call that a result answers: among the open calls with its id, the first of the
    /// latest message that has one.
    pub fn pair(&self, id: &str) -> Pairing {
        let same = self.with_id(id);
        let open = |key: &&CallKey| self.state(**key) == CallState::Open;
        if let Some(latest) = same.iter().rev().find(open) {
            let message = self.calls[latest.get() as usize].message;
            let first = same
                .iter()
                .filter(open)
                .find(|key| self.calls[key.get() as usize].message == message);
            return Pairing::Answer(*first.unwrap_or(latest));
        }
        same.iter()
            .rev()
            .find_map(|key| match self.state(*key) {
                CallState::Interrupted => Some(Pairing::Late(*key)),
                CallState::Answered { .. } | CallState::Late { .. } => {
                    Some(Pairing::Duplicate(*key))
                }
                CallState::Open | CallState::Gone => None,
            })
            .unwrap_or(Pairing::Orphan)
    }

    /// The call with this id whose result stands in a block of the transcript, in the view or not. Where
    /// an undo gave a result to another call, the one that it answers now.
    pub fn answered_by(&self, id: &str, message: Ordinal, block: u16) -> Option<CallKey> {
        let place = Some((message, block));
        let of = |known: fn(&Call) -> Option<(Ordinal, u16)>| {
            let stands_there = |key: &CallKey| self.get(*key).and_then(known) == place;
            self.with_id(id).iter().copied().find(stands_there)
        };
        of(Call::result).or_else(|| of(|call| call.original))
    }

    /// What became of a call.
    pub fn state(&self, key: CallKey) -> CallState {
        self.get(key).map_or(CallState::Gone, |call| call.state)
    }

    pub(crate) fn set(&mut self, key: CallKey, state: CallState) {
        if let Some(call) = self.calls.get_mut(key.get() as usize) {
            call.state = state;
            call.original = call.result().or(call.original);
        }
    }

    /// Registers a call again that another state of the session knows.
    pub(crate) fn restore_call(&mut self, call: Call) {
        let key = CallKey::new(crate::view::count(self.calls.len()));
        self.by_id.entry(call.id.clone()).or_default().push(key);
        self.calls.push(call);
    }

    /// Says how large a call's result is.
    pub(crate) fn measure(&mut self, key: CallKey, chars: u64, tokens: u32) {
        if let Some(call) = self.calls.get_mut(key.get() as usize) {
            (call.result_chars, call.result_tokens) = (chars, tokens);
        }
    }

    /// Sets what became of some calls. A result that answers another call than the one that it came for
    /// is as large as it was.
    pub(crate) fn settle(&mut self, states: impl IntoIterator<Item = (CallKey, CallState)>) {
        let sizes = self.result_sizes();
        for (key, state) in states {
            self.set(key, state);
            self.measure_by(key, &sizes);
        }
    }

    /// How large the results in blocks of the transcript are.
    pub(super) fn result_sizes(&self) -> HashMap<(Ordinal, u16), (u64, u32)> {
        let size = |call: &Call| Some((call.original?, (call.result_chars, call.result_tokens)));
        self.calls.iter().filter_map(size).collect()
    }

    pub(super) fn measure_by(&mut self, key: CallKey, sizes: &HashMap<(Ordinal, u16), (u64, u32)>) {
        let place = self.get(key).and_then(Call::result);
        if let Some((chars, tokens)) = place.and_then(|place| sizes.get(&place)) {
            self.measure(key, *chars, *tokens);
        }
    }

    /// Takes back what came after `last`. `interrupted` are the interruptions that stay.
    pub(crate) fn rewind(&mut self, last: Option<Ordinal>, interrupted: &[CallKey]) {
        let left = |message: Ordinal| last.is_none_or(|last| message > last);
        for (index, call) in self.calls.iter_mut().enumerate() {
            let key = CallKey::new(crate::view::count(index));
            call.state = match call.state {
                _ if left(call.message) => CallState::Gone,
                CallState::Late { message, .. } if interrupted.contains(&key) && !left(message) => {
                    call.state
                }
                _ if interrupted.contains(&key) => CallState::Interrupted,
                CallState::Answered { message, .. } if left(message) => CallState::Open,
                CallState::Interrupted | CallState::Late { .. } => CallState::Open,
                state => state,
            };
        }
    }

    /// Puts them together again from what a snapshot holds.
    pub fn restore(calls: Vec<Call>) -> Self {
        let mut by_id: HashMap<Box<str>, Vec<CallKey>> = HashMap::new();
        for (index, call) in calls.iter().enumerate() {
            let key = CallKey::new(crate::view::count(index));
            by_id.entry(call.id.clone()).or_default().push(key);
        }
        Self { calls, by_id }
    }
}

fn is_legal(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= MAX_ID_LEN
        && !id.starts_with(MAPPED_PREFIX)
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(id: &str) -> ToolUse {
        ToolUse {
            id: id.into(),
            name: "Read".into(),
            input: crate::message::ToolInput::Text("".into()),
            extra: crate::json::UnknownFields::default(),
        }
    }

    fn answer(calls: &mut Calls, id: &str, at: u32) -> Pairing {
        let pairing = calls.pair(id);
        if let Pairing::Answer(key) = pairing {
            let message = Ordinal::new(at);
            calls.set(key, CallState::Answered { message, block: 0 });
        }
        pairing
    }

    #[test]
    fn a_reused_id_pairs_by_position_and_is_mapped() {
        let mut calls = Calls::default();
        let first = calls.push(Ordinal::new(0), 0, &tool("x"));
        assert_eq!(answer(&mut calls, "x", 1), Pairing::Answer(first));
        let (second, third) = (
            calls.push(Ordinal::new(2), 0, &tool("x")),
            calls.push(Ordinal::new(2), 1, &tool("x")),
        );
        assert_eq!(answer(&mut calls, "x", 3), Pairing::Answer(second));
        assert_eq!(answer(&mut calls, "x", 4), Pairing::Answer(third));
        assert_eq!(answer(&mut calls, "x", 5), Pairing::Duplicate(third));
        assert_eq!(answer(&mut calls, "y", 6), Pairing::Orphan);
        assert_eq!(calls.wire_id(first, 64), "x");
        assert_eq!(calls.wire_id(third, 64), "palimpsest_c2");
    }

    #[test]
    fn illegal_and_look_alike_ids_are_mapped() {
        let mut calls = Calls::default();
        for id in ["", "a.b", "palimpsest_c9", &"x".repeat(65)] {
            let key = calls.push(Ordinal::new(0), 0, &tool(id));
            assert_eq!(calls.wire_id(key, 64), format!("palimpsest_{key}"));
        }
        let long = calls.push(Ordinal::new(0), 0, &tool(&"y".repeat(41)));
        assert_eq!(calls.wire_id(long, 64), "y".repeat(41));
        assert_eq!(calls.wire_id(long, 40), format!("palimpsest_{long}"));
    }
}
