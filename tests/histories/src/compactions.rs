//! Compactions in random histories, with assertions for their start, their steps and their end.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use crate::SessionHarness;
use palimpsest_core::command::{
    AdvanceCompaction, Command, CompactionInput, CompactionMessages, CompactionScope, Decided,
    Decision, DropRule, ExternalSummary, StartCompaction, SummarySource, SummarySpec,
    WrittenSummary,
};
use palimpsest_core::event::{
    CallState, CompactionFailureReason, DroppedContent, Event, RecordedEvent, RequestMethod,
    RequestStamp, Strategy, Trigger, Visibility,
};
use palimpsest_core::ids::{MessageId, Ordinal, Timestamp};
use palimpsest_core::levels::compaction::without_pinned;
use palimpsest_core::message::{Block, Digest, Message, MessageKind, Role, Usage};
use palimpsest_core::session::RunningCompaction;

impl SessionHarness {
    /// Runs the next step of the running compaction, or starts a new one.
    pub(super) fn compact(&mut self, how: u8, place: u8) {
        if let Some(running) = self.session.compactions().running.clone() {
            return match how % 9 {
                0 => self.fail(&running),
                1 | 2 => self.shorten(&running),
                3 => self.expire(&running),
                4 => self.drop_oldest(place),
                8 => self.answer_hook(&running, place),
                _ => self.finish(&running, place),
            };
        }
        match how % 8 {
            0 => self.drop_oldest(place),
            1 if self.session.compactions().prepared.is_some() => self.use_prepared(place),
            2 => self.start_ready(place),
            3 if place.is_multiple_of(2) => self.adopt(place),
            _ => {
                self.start(how, place);
                if how.is_multiple_of(2) {
                    // This value finishes the new compaction at once. Otherwise other steps happen in between.
                    self.compact(5, place);
                }
            }
        }
    }

    fn start(&mut self, how: u8, place: u8) {
        let visible = self.visible();
        let message = visible
            .get(usize::from(place) % visible.len().max(1))
            .copied();
        let scope = match (how % 3, message) {
            (1, Some(id)) => CompactionScope::UpTo(id),
            (2, Some(id)) => CompactionScope::From(id),
            _ => CompactionScope::Whole,
        };
        let request = self.stamp(RequestMethod::Compact);
        let asked = if how.is_multiple_of(5) {
            Trigger::PromptTooLong
        } else {
            Trigger::Manual
        };
        let strategy = if how.is_multiple_of(7) {
            Strategy::Delegated
        } else {
            Strategy::Model
        };
        let spec = SummarySpec {
            scope,
            ..SummarySpec::new(strategy)
        };
        let started = self.try_run(Command::StartCompaction(StartCompaction {
            request: Some(request),
            ..StartCompaction::new(asked, SummarySource::Write(spec))
        }));
        started.unwrap();
        // Random histories never reach the threshold for summaries that are prepared ahead, so the event is edited.
        if place.is_multiple_of(3) && self.session.compactions().running.is_some() {
            let mut last = self.log.pop().unwrap();
            if let Event::CompactionStarted(event) = &mut last.event
                && event.strategy == Strategy::Model
            {
                event.ahead = true;
            }
            let before = self.session.revision().get() - 1;
            // The session has applied the event in its first form, so it is replayed without it.
            self.session = self.at(palimpsest_core::ids::Revision::new(before));
            self.session.apply(&last).unwrap();
            self.log.push(last);
        }
    }

    /// Adopts a summary from another program for the messages around a position.
    fn adopt(&mut self, place: u8) {
        let visible = self.visible();
        let at = usize::from(place) % visible.len().max(1);
        let CompactionMessages {
            boundary_id: mark,
            summary_id: summary,
            ..
        } = self.made(1);
        let summary = Message::new(summary, Role::User, vec![Block::text("what they did")]);
        let first = visible.get(at / 2).copied();
        let external = ExternalSummary {
            summary: Arc::new(summary),
            first: first.filter(|_| place.is_multiple_of(3)),
            last: visible.get(at).copied(),
            kept: visible.get(at / 2 + 1).copied().into_iter().collect(),
            before_tokens: None,
            mark,
        };
        let source = SummarySource::External(Box::new(external));
        self.run(Command::StartCompaction(StartCompaction::new(
            Trigger::Auto,
            source,
        )));
    }

    /// Returns the command that finishes the running compaction with a short model summary. `None` if none is running.
    pub fn finish_by_model(&self, made: CompactionMessages) -> Option<AdvanceCompaction> {
        let running = self.session.compactions().running.as_ref()?;
        let summary = WrittenSummary {
            text: "it was worked".into(),
            strategy: Strategy::Model,
            model: "m".into(),
            usage: Usage::default(),
            dropped: None,
        };
        Some(AdvanceCompaction {
            duration_ms: 1,
            ..AdvanceCompaction::new(running.key, CompactionInput::Summary { summary, made })
        })
    }

    fn finish(&mut self, running: &RunningCompaction, place: u8) {
        // The state before the command is recorded, because the assertions compare it with the outcome.
        let (before, there) = (self.shown(), self.taking_part());
        let leaving = self.leaving(&running.leaving);
        let pieces = self.session.sealed().pieces().to_vec();
        let reported = self.session.info().reported_tokens;
        let usage = Usage {
            input_tokens: 900,
            output_tokens: place.into(),
            ..Usage::default()
        };
        let made = self.made(place);
        let said = made.hook_messages.iter();
        let said = said.filter(|message| message.kind == MessageKind::Hook);
        let hooks = Self::hooks_at_end(place, said.map(|message| message.id).collect());
        let summary = WrittenSummary {
            text: "what was said".into(),
            strategy: running.strategy,
            model: "m".into(),
            usage,
            dropped: running.dropped,
        };
        let decided = self.try_run(Command::AdvanceCompaction(AdvanceCompaction {
            attempt: running.attempt,
            duration_ms: 1,
            hooks,
            ..AdvanceCompaction::new(running.key, CompactionInput::Summary { summary, made })
        }));
        let Decided::Now(Decision { events, .. }) = decided.unwrap() else {
            assert_eq!(
                running.strategy,
                Strategy::Delegated,
                "only a delegated compaction may be shortened"
            );
            return;
        };
        match events.last() {
            Some(Event::CompactionFinished(event)) => {
                Self::check_hooks(running, &events, event);
                let now = self.session.info().reported_tokens;
                assert_eq!(now - reported, usage.total_tokens());
                assert!(!running.range_changed && !running.ahead);
                assert!(
                    leaving.is_subset(&there),
                    "the summary covers messages outside the view"
                );
                let after = self.shown();
                assert!(
                    after.is_disjoint(&leaving),
                    "a summarized message is still shown"
                );
                let stays: BTreeSet<Ordinal> = before.difference(&leaving).copied().collect();
                assert!(
                    after.is_superset(&stays),
                    "a message outside the summary was removed"
                );
            }
            Some(Event::SummaryPrepared(_)) => {
                assert!(!running.range_changed && running.ahead);
                assert_eq!(self.session.sealed().pieces(), pieces);
            }
            Some(Event::CompactionFailed(failed)) => {
                let is_late = running.deadline.as_millis() <= self.now;
                assert!(match failed.reason {
                    CompactionFailureReason::RangeChanged => running.range_changed,
                    CompactionFailureReason::Expired => is_late,
                    why => why == CompactionFailureReason::NotSmaller,
                });
                assert_eq!(self.session.sealed().pieces(), pieces);
            }
            other => panic!("{other:?}"),
        }
        self.check_answer(running);
    }

    fn use_prepared(&mut self, place: u8) {
        let prepared = self.session.compactions().prepared.clone().unwrap();
        // Collapsed messages are summarized too.
        let there = self.taking_part();
        let leaving = self.leaving(&prepared.leaving);
        let made = self.made(place);
        self.run(Command::StartCompaction(StartCompaction::new(
            Trigger::Manual,
            SummarySource::Prepared(made),
        )));
        if let Some(RecordedEvent {
            event: Event::CompactionFinished(event),
            ..
        }) = self.log.last()
            && event.key == prepared.key
        {
            assert!(
                leaving.is_subset(&there),
                "the prepared summary covers messages outside the view"
            );
            assert!(self.shown().is_disjoint(&leaving));
            assert_eq!(self.session.compactions().prepared, None);
        }
    }

    /// Returns the messages that leave: the chosen ones except those that were pinned since.
    pub(super) fn leaving(&mut self, chosen: &[Ordinal]) -> BTreeSet<Ordinal> {
        self.load_content();
        without_pinned(&self.session, chosen)
            .unwrap()
            .into_iter()
            .collect()
    }

    pub(super) fn drop_oldest(&mut self, place: u8) {
        self.load_content();
        let session = &self.session;
        // The start of the current turn, open calls and system messages must stay.
        let turn = session.current_turn();
        let start = turn.and_then(|turn| session.turns().start(turn));
        let entries = session.transcript().entries();
        let system = entries
            .filter(|(_, entry)| entry.visibility == Visibility::Visible && entry.role.is_system());
        let open = session.calls().iter();
        let open = open.filter(|(_, call)| call.state == CallState::Open);
        let mut stays: BTreeSet<Ordinal> = system.map(|(at, _)| at).collect();
        stays.extend(open.map(|(_, call)| call.message));
        stays.extend(start);
        stays.retain(|at| session.transcript().is_in_view(*at));
        let made = self.made(1);
        let source = SummarySource::DropOldest {
            rule: DropRule::AtLeast((!place.is_multiple_of(3)).then_some(u64::from(place) * 5)),
            made,
        };
        self.run(Command::StartCompaction(StartCompaction::new(
            Trigger::PromptTooLong,
            source,
        )));
        assert!(
            self.shown().is_superset(&stays),
            "a protected message was removed"
        );
    }

    fn shorten(&mut self, running: &RunningCompaction) {
        let (Some(first), Some(last)) = (running.leaving.first(), running.leaving.last()) else {
            return;
        };
        let dropped = DroppedContent {
            messages: 1,
            rounds: 1,
            tokens: 1,
            first: *first,
            last: *last,
        };
        self.run(Command::AdvanceCompaction(AdvanceCompaction {
            attempt: running.attempt,
            ..AdvanceCompaction::new(running.key, CompactionInput::Shortened(dropped))
        }));
        let Some(now) = self.session.compactions().running.as_ref() else {
            assert!(running.is_delegated() && running.deadline.as_millis() <= self.now);
            return self.check_answer(running);
        };
        assert_eq!(Some(now).map(|now| now.attempt), Some(running.attempt + 1));
        // An answer to the earlier attempt has no effect after the request was shortened.
        let failed = CompactionInput::Failed {
            why: CompactionFailureReason::DelegateFailed,
            detail: "".into(),
        };
        let late = self.try_run(Command::AdvanceCompaction(AdvanceCompaction {
            attempt: running.attempt,
            ..AdvanceCompaction::new(running.key, failed)
        }));
        assert_eq!(late, Ok(Decided::events(Vec::new())));
    }

    /// Advances the clock to the deadline. The next command then closes the compaction.
    pub(super) fn expire(&mut self, running: &RunningCompaction) {
        self.now = self.now.max(running.deadline.as_millis());
        let before = self.session.revision();
        let title = palimpsest_core::command::UpdateSession {
            title: Some(format!("later {}", self.now).into()),
            ..palimpsest_core::command::UpdateSession::default()
        };
        self.run(Command::UpdateSession(title));
        // Revisions count from 1, so the earlier revision is the index of the next event.
        let closed = &self.log[usize::try_from(before.get()).unwrap()];
        assert!(matches!(&closed.event, Event::CompactionFailed(failed)
            if failed.reason == CompactionFailureReason::Expired && failed.key == running.key));
        self.check_answer(running);
    }

    pub(super) fn fail(&mut self, running: &RunningCompaction) {
        let failed = CompactionInput::Failed {
            why: CompactionFailureReason::Empty,
            detail: "said nothing".into(),
        };
        self.run(Command::AdvanceCompaction(AdvanceCompaction {
            attempt: running.attempt,
            duration_ms: 1,
            ..AdvanceCompaction::new(running.key, failed)
        }));
        self.check_answer(running);
    }

    /// Checks that a repeat of the request is answered with the outcome of this compaction.
    fn check_answer(&self, running: &RunningCompaction) {
        assert_eq!(self.session.compactions().running, None);
        // A compaction from a prepared summary or session memory was started without a request id.
        let Some(request) = running.request.as_ref() else {
            return;
        };
        let now = Timestamp::from_millis(self.now);
        if let Some(found) = self.session.requests().find(request, now) {
            // Revisions count from 1, indexes from 0.
            let at = usize::try_from(found.revision.get() - 1).unwrap();
            let of = match &self.log[at].event {
                Event::CompactionFinished(event) => event.key,
                Event::CompactionFailed(event) => event.key,
                Event::SummaryPrepared(event) => event.key,
                other => panic!("{other:?} is no outcome"),
            };
            assert_eq!(of, running.key);
        }
    }

    fn taking_part(&self) -> BTreeSet<Ordinal> {
        let entries = self.session.transcript().entries();
        let part = entries.filter(|(_, entry)| entry.visibility.is_in_view());
        part.map(|(at, _)| at).collect()
    }

    fn shown(&self) -> BTreeSet<Ordinal> {
        let entries = self.session.transcript().entries();
        let shown = entries.filter(|(_, entry)| entry.visibility == Visibility::Visible);
        shown.map(|(at, _)| at).collect()
    }

    fn stamp(&mut self, method: RequestMethod) -> RequestStamp {
        self.next_id += 1;
        RequestStamp {
            id: format!("request {}", self.next_id).into(),
            method,
            digest: Digest::from_bytes([7; 16]),
        }
    }

    pub(super) fn made(&mut self, place: u8) -> CompactionMessages {
        let mut id = || {
            self.next_id += 1;
            MessageId::new(Uuid::from_u128(self.next_id - 1))
        };
        let (boundary_id, summary_id, attached) = (id(), id(), id());
        // Only hooks add messages here. The attachments of a compaction come from the working state.
        let mut note = Message::new(attached, Role::User, vec![Block::text("a file again")]);
        note.kind = MessageKind::Hook;
        note.machine_generated = true;
        let latest = self.session.hidden_latest_request();
        let latest = latest.and_then(|at| self.contents().nth(at.index()));
        CompactionMessages {
            boundary_id,
            summary_id,
            request_message: latest.map(|(_, message)| message),
            hook_messages: if place.is_multiple_of(2) {
                vec![Arc::new(note)]
            } else {
                Vec::new()
            },
        }
    }
}
