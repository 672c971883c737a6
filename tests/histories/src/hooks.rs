//! Hooks in random histories: their answers, with assertions for compactions.

use crate::SessionHarness;
use palimpsest_core::command::{
    AdvanceCompaction, Command, CompactionInput, Decided, StartCompaction, SummarySource,
};
use palimpsest_core::event::{CompactionFinished, Event, Hook, HookCall, HookResult, Trigger};
use palimpsest_core::ids::MessageId;
use palimpsest_core::message::{Block, MessageKind};
use palimpsest_core::session::RunningCompaction;

impl SessionHarness {
    /// Records the answer of a hook before the summary is written.
    pub(super) fn answer_hook(&mut self, running: &RunningCompaction, place: u8) {
        let pieces = self.session.sealed().pieces().to_vec();
        let was_asked = running.hooks.has_pre_compact_call();
        let must_keep: Vec<Box<str>> = (0..place % 3)
            .map(|at| format!("keep {at} of {place}").into())
            .collect();
        let answered = CompactionInput::HookAnswered {
            call: call(Hook::PreCompact, HookResult::Continued),
            instructions: place.is_multiple_of(2).then(|| "name the lamp".into()),
            must_keep: must_keep.clone(),
            files: Vec::new(),
        };
        let answer = AdvanceCompaction::new(running.key, answered);
        let decided = self.try_run(Command::AdvanceCompaction(answer));
        assert_eq!(self.session.sealed().pieces(), pieces);
        let Some(now) = self.session.compactions().running.as_ref() else {
            assert!(running.is_delegated() && running.deadline.as_millis() <= self.now);
            return;
        };
        // Only the first answer counts. A second one records no event.
        if was_asked {
            assert_eq!(decided, Ok(Decided::events(Vec::new())));
            assert_eq!(
                now.hooks, running.hooks,
                "a second hook response was recorded"
            );
        } else {
            assert_eq!(now.hooks.must_keep, must_keep);
            assert!(now.hooks.has_pre_compact_call());
        }
    }

    /// Returns the hook calls at the end of a compaction. One of them adds the given messages.
    pub(super) fn hooks_at_end(how: u8, messages: Vec<MessageId>) -> Vec<HookCall> {
        let mut calls = Vec::new();
        if how.is_multiple_of(2) {
            calls.push(call(Hook::PostCompact, HookResult::FailedContinued));
        }
        if !messages.is_empty() {
            calls.push(HookCall {
                messages,
                ..call(Hook::SessionStart, HookResult::Continued)
            });
        }
        calls
    }

    /// Checks that hook calls are recorded, and that the summary contains the texts to keep.
    pub(super) fn check_hooks(
        running: &RunningCompaction,
        events: &[Event],
        event: &CompactionFinished,
    ) {
        let own = events.iter().filter_map(|event| match event {
            Event::HookCalled(called) => Some(&called.call),
            _ => None,
        });
        let all = running.hooks.calls.iter().chain(own);
        assert!(all.eq(&event.hooks), "a hook call is missing");
        let summary = event
            .messages
            .iter()
            .find(|one| one.message.kind == MessageKind::Summary);
        let Some(Block::Text { text, .. }) = summary.and_then(|one| one.message.blocks.first())
        else {
            panic!("the event has no summary");
        };
        for kept in &running.hooks.must_keep {
            assert!(text.contains(&**kept), "{kept} is not in {text}");
        }
    }

    /// Starts a compaction from a prepared summary or from session memory. The compaction waits for hooks.
    pub(super) fn start_ready(&mut self, place: u8) {
        let prepared = self.session.compactions().prepared.clone();
        let leaving = prepared.as_ref().map(|one| self.leaving(&one.leaving));
        let pieces = self.session.sealed().pieces().to_vec();
        let made = self.made(place);
        let source = match &prepared {
            Some(_) => SummarySource::Prepared(made),
            None => SummarySource::SessionMemory(made),
        };
        self.run(Command::StartCompaction(StartCompaction {
            awaits_hooks: true,
            ..StartCompaction::new(Trigger::Manual, source)
        }));
        assert_eq!(self.session.sealed().pieces(), pieces);
        let running = self.session.compactions().running.as_ref();
        if let (Some(prepared), Some(running)) = (prepared, running) {
            assert_eq!(running.key, prepared.key);
            assert_eq!(leaving, Some(running.leaving.iter().copied().collect()));
            assert_eq!(
                running.hooks, prepared.hooks,
                "hooks of a prepared summary were called again"
            );
        }
    }
}

fn call(hook: Hook, result: HookResult) -> HookCall {
    HookCall {
        hook,
        result,
        detail: "".into(),
        duration_ms: 2,
        messages: Vec::new(),
    }
}
