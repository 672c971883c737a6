//! The tool calls of a session and their states.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::event::{CallState, Pairing};
use crate::ids::{CallKey, Ordinal};
use crate::message::{CallKind, ToolUse};

/// Prefix of the service's own wire ids. A caller's id with this prefix is mapped like an illegal id.
const MAPPED_PREFIX: &str = "palimpsest_";
/// Maximum length of a call id that both providers accept, in bytes.
const MAX_ID_LEN: usize = 64;

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The message that contains the call.
    pub message: Ordinal,
    /// The index of the call's block within the message.
    pub block: u16,
    /// The caller's `tool_use_id`.
    pub id: Box<str>,
    /// The name of the tool.
    pub name: Box<str>,
    /// The kind of the call.
    pub kind: CallKind,
    /// True if the caller's id cannot be used on the wire: it is illegal or not unique.
    pub uses_service_id: bool,
    /// The state of the call.
    pub state: CallState,
    /// The message and block of the latest result in the transcript, visible or not.
    pub result_position: Option<(Ordinal, u16)>,
    /// Size of the result as appended, in characters.
    pub result_chars: u64,
    /// Estimated tokens of the result as appended.
    pub result_tokens: u32,
}

impl Call {
    /// Returns the message and block of the result, if the call has a result in the view.
    pub const fn result(&self) -> Option<(Ordinal, u16)> {
        match self.state {
            CallState::Answered { message, block } | CallState::Late { message, block } => {
                Some((message, block))
            }
            _ => None,
        }
    }
}

/// All calls of a session, ordered by position. The index of a call is its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls {
    calls: Vec<Call>,
    by_id: HashMap<Box<str>, Vec<CallKey>>,
}

impl Calls {
    /// Returns a call by its key.
    pub fn get(&self, key: CallKey) -> Option<&Call> {
        self.calls.get(key.get() as usize)
    }

    /// Iterates over all calls in the order of the transcript.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (CallKey, &Call)> + ExactSizeIterator {
        self.calls
            .iter()
            .enumerate()
            .map(|(index, call)| (CallKey::new(crate::view::count(index)), call))
    }

    /// Returns the calls with the same caller's id, oldest first.
    pub fn with_id(&self, id: &str) -> &[CallKey] {
        self.by_id.get(id).map_or(&[], Vec::as_slice)
    }

    /// Returns the call in a block.
    pub fn find_at(&self, message: Ordinal, block: u16) -> Option<CallKey> {
        self.calls
            .binary_search_by_key(&(message, block), |call| (call.message, call.block))
            .ok()
            .map(|index| CallKey::new(crate::view::count(index)))
    }

    /// Returns the calls of a message, in order.
    pub fn of(&self, message: Ordinal) -> impl DoubleEndedIterator<Item = (CallKey, &Call)> {
        let from = self.calls.partition_point(|call| call.message < message);
        let to = self.calls.partition_point(|call| call.message <= message);
        let keys = (from..to).map(|index| CallKey::new(crate::view::count(index)));
        keys.zip(&self.calls[from..to])
    }

    /// Returns the calls of several messages, in order.
    pub(crate) fn of_all(&self, messages: &BTreeSet<Ordinal>) -> impl Iterator<Item = CallKey> {
        let calls = messages.iter().flat_map(|message| self.of(*message));
        calls.map(|(call, _)| call)
    }

    /// Returns the id of a call on the wire: the caller's id if it is legal, unique and at most `max_len` bytes.
    /// Otherwise returns the service's own id.
    pub fn wire_id(&self, key: CallKey, max_len: usize) -> std::borrow::Cow<'_, str> {
        match self.get(key) {
            Some(call) if !call.uses_service_id && call.id.len() <= max_len => (&*call.id).into(),
            _ => self.service_id(key).into(),
        }
    }

    /// Returns the kind of a call.
    pub fn kind(&self, key: CallKey) -> CallKind {
        self.get(key).map_or(CallKind::Function, |call| call.kind)
    }

    /// Returns the service's own wire id of a call. This id is unique within the session.
    pub fn service_id(&self, key: CallKey) -> String {
        format!("{MAPPED_PREFIX}{key}")
    }

    /// Returns the call that one of the service's own wire ids names.
    pub fn find_by_service_id(&self, wire_id: &str) -> Option<CallKey> {
        let key = CallKey::parse(wire_id.strip_prefix(MAPPED_PREFIX)?)?;
        self.get(key).map(|_| key)
    }

    /// Registers a call. Calls must be registered in the order of the transcript, because lookups use binary search.
    ///
    /// With `keeps_ids`, a call that left the view does not occupy its id.
    pub(crate) fn push(
        &mut self,
        message: Ordinal,
        block: u16,
        tool: &ToolUse,
        keeps_ids: bool,
    ) -> CallKey {
        let id = &*tool.id;
        let key = CallKey::new(crate::view::count(self.calls.len()));
        let same = self.by_id.entry(id.into()).or_default();
        // Providers require unique ids, so a later call with the same id is mapped.
        let is_gone = |key: &CallKey| {
            let call = self.calls.get(key.get() as usize);
            call.is_none_or(|call| call.state == CallState::Gone)
        };
        let is_free = same.is_empty() || keeps_ids && same.iter().all(is_gone);
        let uses_service_id = !is_legal(id) || !is_free;
        same.push(key);
        self.calls.push(Call {
            message,
            block,
            id: id.into(),
            name: tool.name.clone(),
            kind: tool.kind(),
            uses_service_id,
            state: CallState::Open,
            result_position: None,
            result_chars: 0,
            result_tokens: 0,
        });
        key
    }

    /// Returns the calls whose id on the wire is also that of an earlier call. An undo brings calls back whose ids later
    /// calls use.
    pub(crate) fn conflicting(&self) -> BTreeSet<CallKey> {
        let mut taken = HashSet::new();
        let shown = self
            .iter()
            .filter(|(_, call)| call.state != CallState::Gone && !call.uses_service_id);
        shown
            .filter(|(_, call)| !taken.insert(&call.id))
            .map(|(key, _)| key)
            .collect()
    }

    /// Changes the ids of calls on the wire from the caller's to the service's, or back.
    pub(crate) fn remap(&mut self, calls: &[CallKey]) {
        for key in calls {
            if let Some(call) = self.calls.get_mut(key.get() as usize) {
                call.uses_service_id = !call.uses_service_id;
            }
        }
    }

    /// Finds the call that a result answers: the first open call with this id in the latest message that has one.
    pub fn pair(&self, id: &str) -> Pairing {
        let same = self.with_id(id);
        let open = |key: &&CallKey| self.state(**key) == CallState::Open;
        // Callers reuse ids, so a result answers the latest response. Calls of one response are answered in their
        // order.
        if let Some(latest) = same.iter().rev().find(open) {
            let message = self.calls[latest.get() as usize].message;
            let first = same
                .iter()
                .filter(open)
                .find(|key| self.calls[key.get() as usize].message == message);
            return Pairing::Answer(*first.unwrap_or(latest));
        }
        // No open call has the id. An interrupted call accepts a late result, an answered one makes this a duplicate.
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

    /// Returns the call with this id whose result is in the given block, visible or not. After an undo moved the
    /// result to another call, returns the call that the result answers now.
    pub fn find_by_result(&self, id: &str, message: Ordinal, block: u16) -> Option<CallKey> {
        let position = Some((message, block));
        let of = |known: fn(&Call) -> Option<(Ordinal, u16)>| {
            let stands_there = |key: &CallKey| self.get(*key).and_then(known) == position;
            self.with_id(id).iter().copied().find(stands_there)
        };
        of(Call::result).or_else(|| of(|call| call.result_position))
    }

    /// Returns the state of a call. Unknown calls count as gone.
    pub fn state(&self, key: CallKey) -> CallState {
        self.get(key).map_or(CallState::Gone, |call| call.state)
    }

    pub(crate) fn set(&mut self, key: CallKey, state: CallState) {
        if let Some(call) = self.calls.get_mut(key.get() as usize) {
            call.state = state;
            // The position of the last result is kept when the call loses it, so that the result can still be read.
            call.result_position = call.result().or(call.result_position);
        }
    }

    /// Registers a copy of a call from another state of the same session.
    pub(crate) fn restore_call(&mut self, call: Call) {
        let key = CallKey::new(crate::view::count(self.calls.len()));
        self.by_id.entry(call.id.clone()).or_default().push(key);
        self.calls.push(call);
    }

    /// Sets the size of a call's result.
    pub(crate) fn set_result_size(&mut self, key: CallKey, chars: u64, tokens: u32) {
        if let Some(call) = self.calls.get_mut(key.get() as usize) {
            (call.result_chars, call.result_tokens) = (chars, tokens);
        }
    }

    /// Sets the states of several calls. A result that moves to another call keeps its measured size.
    pub(crate) fn restore_states(
        &mut self,
        states: impl IntoIterator<Item = (CallKey, CallState)>,
    ) {
        let sizes = self.result_sizes();
        for (key, state) in states {
            self.set(key, state);
            self.restore_result_size(key, &sizes);
        }
    }

    /// Returns the sizes of all results, by message and block, in characters and tokens.
    pub(super) fn result_sizes(&self) -> HashMap<(Ordinal, u16), (u64, u32)> {
        let size = |call: &Call| {
            Some((
                call.result_position?,
                (call.result_chars, call.result_tokens),
            ))
        };
        self.calls.iter().filter_map(size).collect()
    }

    pub(super) fn restore_result_size(
        &mut self,
        key: CallKey,
        sizes: &HashMap<(Ordinal, u16), (u64, u32)>,
    ) {
        let position = self.get(key).and_then(Call::result);
        if let Some((chars, tokens)) = position.and_then(|position| sizes.get(&position)) {
            self.set_result_size(key, *chars, *tokens);
        }
    }

    /// Rewinds the states of all calls to the message `last`. `interrupted` names the calls whose interruption
    /// remains in the view.
    pub(crate) fn rewind(&mut self, last: Option<Ordinal>, interrupted: &[CallKey]) {
        let left = |message: Ordinal| last.is_none_or(|last| message > last);
        for (index, call) in self.calls.iter_mut().enumerate() {
            let key = CallKey::new(crate::view::count(index));
            // A late result before `last` stays. A later one leaves its call interrupted again, because the
            // interruption was served.
            call.state = match call.state {
                _ if left(call.message) => CallState::Gone,
                CallState::Late { message, .. } if interrupted.contains(&key) && !left(message) => {
                    call.state
                }
                _ if interrupted.contains(&key) => CallState::Interrupted,
                CallState::Answered { message, .. } if left(message) => CallState::Open,
                // The interruption left the view with the rewind, so the call waits for its result again.
                CallState::Interrupted | CallState::Late { .. } => CallState::Open,
                state => state,
            };
        }
    }

    /// Rebuilds the calls from a snapshot.
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
    // A caller's id with the service's prefix could equal a mapped id, so it is mapped as well.
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
    fn a_reused_call_id_pairs_by_position_and_is_mapped() {
        let mut calls = Calls::default();
        let first = calls.push(Ordinal::new(0), 0, &tool("x"), true);
        assert_eq!(answer(&mut calls, "x", 1), Pairing::Answer(first));
        let (second, third) = (
            calls.push(Ordinal::new(2), 0, &tool("x"), true),
            calls.push(Ordinal::new(2), 1, &tool("x"), true),
        );
        assert_eq!(answer(&mut calls, "x", 3), Pairing::Answer(second));
        assert_eq!(answer(&mut calls, "x", 4), Pairing::Answer(third));
        assert_eq!(answer(&mut calls, "x", 5), Pairing::Duplicate(third));
        assert_eq!(answer(&mut calls, "y", 6), Pairing::Orphan);
        assert_eq!(calls.wire_id(first, 64), "x");
        assert_eq!(calls.wire_id(third, 64), "palimpsest_c2");
    }

    #[test]
    fn a_call_that_left_the_view_frees_its_id() {
        for keeps_ids in [true, false] {
            let mut calls = Calls::default();
            let first = calls.push(Ordinal::new(0), 0, &tool("x"), keeps_ids);
            calls.set(first, CallState::Gone);
            let second = calls.push(Ordinal::new(1), 0, &tool("x"), keeps_ids);
            let third = calls.push(Ordinal::new(2), 0, &tool("x"), keeps_ids);
            assert_eq!(calls.wire_id(second, 64) == "x", keeps_ids);
            assert_eq!(calls.wire_id(third, 64), "palimpsest_c2");
            // An undo brings the first call back.
            calls.set(first, CallState::Open);
            let conflicting: Vec<CallKey> = calls.conflicting().into_iter().collect();
            let expected: &[CallKey] = if keeps_ids { &[second] } else { &[] };
            assert_eq!(conflicting, expected);
            calls.remap(&conflicting);
            assert!(calls.conflicting().is_empty());
        }
    }

    #[test]
    fn invalid_and_reserved_call_ids_are_mapped() {
        let mut calls = Calls::default();
        for id in ["", "a.b", "palimpsest_c9", &"x".repeat(65)] {
            let key = calls.push(Ordinal::new(0), 0, &tool(id), true);
            assert_eq!(calls.wire_id(key, 64), format!("palimpsest_{key}"));
        }
        let long = calls.push(Ordinal::new(0), 0, &tool(&"y".repeat(41)), true);
        assert_eq!(calls.wire_id(long, 64), "y".repeat(41));
        assert_eq!(calls.wire_id(long, 40), format!("palimpsest_{long}"));
    }
}
