//! The prompt cache ledger of a session. It is compared with numbers that were computed by hand, and with a simple
//! ledger that keeps every sent piece.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::sync::Arc;

use palimpsest_core::command::{Append, Command, RestoreContext, Rewind, ServeView, Snip};
use palimpsest_core::event::{ChangeKind, Event, Trigger};
use palimpsest_core::ids::{MessageId, Revision, Timestamp};
use palimpsest_core::json::UnknownFields;
use palimpsest_core::message::{
    Block, Message, ResultContent, Role, ToolInput, ToolResult, ToolUse,
};
use palimpsest_core::policy::{Policy, Prices};
use palimpsest_core::session::{CacheReport, Session, SessionTotals};
use palimpsest_core::tokens::PrefixTokens;
use palimpsest_core::view::{Piece, Target};
use palimpsest_histories::{Operation, SessionHarness, operation};
use proptest::prelude::*;
use uuid::Uuid;

const HOUR_MS: i64 = 60 * 60 * 1_000;

/// A conversation with long texts.
struct Talk(SessionHarness);

impl Talk {
    fn new() -> Self {
        let mut policy = Policy::default();
        policy.snip.tag_turns = false;
        Self(SessionHarness::with_policy(policy))
    }

    /// Appends this number of characters. A third of them count as tokens, plus four for the message.
    fn say(&mut self, role: Role, chars: usize) -> MessageId {
        let number = self.0.session.transcript().len() + 1;
        let words = format!("{number:-<4}").repeat(chars / 4);
        self.append(role, vec![Block::text(words)])
    }

    fn append(&mut self, role: Role, blocks: Vec<Block>) -> MessageId {
        let number = self.0.session.transcript().len() + 1;
        let id = MessageId::new(Uuid::from_u128(number as u128));
        let mut message = Message::new(id, role, blocks);
        message.at = Some(Timestamp::from_millis(0));
        self.0.run(Command::Append(Append {
            messages: vec![Arc::new(message)],
            ..Append::default()
        }));
        id
    }

    fn serve(&mut self) {
        self.0.run(Command::ServeView(ServeView {
            prefix: Some(PrefixTokens {
                system: 5_000,
                tools: 0,
            }),
            ..ServeView::default()
        }));
    }

    /// Appends user input, serves the view and appends an answer.
    fn turn(&mut self, chars: usize) -> [MessageId; 2] {
        let asked = self.say(Role::User, chars);
        self.serve();
        [asked, self.say(Role::Assistant, chars)]
    }

    fn snip(&mut self, messages: &[MessageId]) {
        self.serve();
        self.snip_now(messages);
    }

    /// Snips while messages can be pending.
    fn snip_now(&mut self, messages: &[MessageId]) {
        self.0.run(Command::Snip(Snip {
            turns: Vec::new(),
            messages: messages.to_vec(),
            blocks: Vec::new(),
            reason: "".into(),
            trigger: Trigger::Manual,
            expected_revision: None,
            request: None,
        }));
    }

    /// Returns the tokens that the last request made the provider write again.
    fn rewritten(&self) -> u64 {
        let served = self.0.log.iter().rev().find_map(|one| match &one.event {
            Event::ViewServed(served) => Some(served),
            _ => None,
        });
        served.unwrap().rewritten_tokens
    }

    fn totals(&self) -> SessionTotals {
        self.0.session.info().totals
    }

    /// Restores the view before the last view-changing event.
    fn undo(&mut self) {
        let last = self.0.session.view_changes().last().unwrap().revision;
        let past = self.0.at(Revision::new(last.get() - 1));
        self.0.run(Command::Restore(RestoreContext {
            past: Box::new(past),
            later: Vec::new(),
            force: false,
            expected_revision: None,
            request: None,
        }));
    }

    fn report(&self) -> CacheReport {
        let session = &self.0.session;
        session.cache_report(&Target::default(), Timestamp::from_millis(HOUR_MS - 1))
    }
}

#[test]
fn a_change_invalidates_later_content_and_saves_removed_content() {
    let mut talk = Talk::new();
    assert_eq!(talk.report(), CacheReport::default());
    // Tokens are a third of the characters plus four for the message: 304, 404, 1,004 and 3,004.
    let first = talk.turn(900);
    let _second = talk.turn(1_200);
    let third = talk.turn(3_000);
    talk.turn(9_000);
    let size = |talk: &Talk, id: MessageId| {
        let transcript = talk.0.session.transcript();
        let found = transcript.find(id).unwrap();
        transcript.get(found).unwrap().size.tokens
    };
    assert_eq!(size(&talk, first[0]), 304);
    assert_eq!(size(&talk, third[0]), 1_004);

    // The fourth question was sent with everything before it. Its answer was not sent.
    let sent = 2 * 304 + 2 * 404 + 2 * 1_004 + 3_004;
    let idle = CacheReport {
        reused_pieces: 7,
        reused: 5_000 + sent,
        idle_ms: Some(HOUR_MS.unsigned_abs() - 1),
        since: talk.report().since,
        ..CacheReport::default()
    };
    assert_eq!(talk.report(), idle);

    // The third turn leaves, so the fourth question must be cached again. Its answer was never cached.
    talk.snip(&third);
    let snipped = talk.report();
    assert_eq!(snipped.reused, 5_000 + 2 * 304 + 2 * 404);
    assert_eq!((snipped.invalidated, snipped.saved), (3_004, 2_008));
    assert_eq!(snipped.cause.unwrap().kind, ChangeKind::ContentSnipped);
    let even = Prices::default().break_even(snipped.invalidated, snipped.saved);
    assert!((even.unwrap() - 3_004.0 * 1.15 / 200.8).abs() < 1e-9);

    // The first question leaves and is restored. The loss from the first change remains.
    let revision = snipped.cause.unwrap().revision;
    talk.snip(&first[..1]);
    assert_eq!(talk.report().reused, 5_000);
    assert_eq!(talk.report().invalidated, 304 + 2 * 404 + 3_004);
    assert_eq!(talk.report().saved, 2_008 + 304);
    assert!(talk.report().cause.unwrap().revision > revision);
    talk.undo();
    assert_eq!(talk.report().invalidated, 3_004);
    assert_eq!(talk.report().saved, 2_008);

    // Nothing is lost if all changes are restored before the next request.
    let past = talk.0.at(Revision::new(revision.get() - 1));
    talk.0.run(Command::Restore(RestoreContext {
        past: Box::new(past),
        later: Vec::new(),
        force: false,
        expected_revision: None,
        request: None,
    }));
    assert_eq!(talk.report(), idle);
}

#[test]
fn each_token_of_a_message_with_results_only_counts_once() {
    let mut talk = Talk::new();
    talk.say(Role::User, 300);
    let call = |id: &str| {
        Block::ToolUse(ToolUse {
            id: id.into(),
            name: "Read".into(),
            input: ToolInput::parse("{}"),
            extra: UnknownFields::default(),
        })
    };
    let result = |id: &str| {
        Block::ToolResult(ToolResult {
            tool_use_id: id.into(),
            content: ResultContent::Text("a result of several words".into()),
            is_error: None,
            extra: UnknownFields::default(),
        })
    };
    talk.append(Role::Assistant, vec![call("a"), call("b")]);
    let results = talk.append(Role::User, vec![result("a"), result("b")]);
    talk.serve();
    talk.say(Role::Assistant, 300);
    // The second result becomes a marker. The first one and everything before it stay in the cache.
    talk.serve();
    talk.0.run(Command::Snip(Snip {
        turns: Vec::new(),
        messages: Vec::new(),
        blocks: vec![(results, 1)],
        reason: "".into(),
        trigger: Trigger::Manual,
        expected_revision: None,
        request: None,
    }));
    let transcript = talk.0.session.transcript();
    let sizes = transcript
        .entries()
        .map(|(_, entry)| u64::from(entry.size.tokens));
    let sent: u64 = sizes.take(3).sum();
    let report = talk.report();
    assert_eq!(report.reused + report.invalidated, 5_000 + sent);
    assert!(report.invalidated > 0);
}

#[test]
fn cache_totals_count_answered_requests_only() {
    let mut talk = Talk::new();
    let first = talk.turn(900);
    talk.turn(900);
    talk.snip(&first);
    assert_eq!(talk.report().total_invalidated, 0);
    // The second question is written once more. Two requests save the tokens of the first turn.
    talk.turn(900);
    assert_eq!(talk.report().total_invalidated, 304);
    assert_eq!(talk.report().total_saved, 608);
    talk.turn(900);
    assert_eq!(talk.report().total_invalidated, 304);
    assert_eq!(talk.report().total_saved, 2 * 608);
    assert_eq!(talk.report().saved, 0);
    // The restored turn is part of all later requests.
    talk.undo();
    talk.turn(900);
    assert_eq!(talk.report().total_invalidated, 304 + 5 * 304);
    assert_eq!(talk.report().total_saved, 2 * 608);
}

#[test]
fn a_request_counts_what_the_provider_must_write_because_the_view_changed() {
    let mut talk = Talk::new();
    let first = talk.turn(900);
    talk.turn(900);
    talk.turn(900);
    assert_eq!(talk.rewritten(), 0);
    // The next question is pending and new to the provider.
    talk.say(Role::User, 900);
    talk.snip_now(&first);
    talk.serve();
    // The second turn and the third question. No request contained the third answer yet.
    let report = talk.report();
    assert_eq!(report.invalidated, 3 * 304);
    assert_eq!(talk.rewritten(), 3 * 304);
    // The first request is dearer than without the snip, and later ones are cheaper.
    talk.say(Role::Assistant, 900);
    let dear = talk.totals();
    for _ in 0..20 {
        talk.turn(900);
    }
    assert_eq!(talk.rewritten(), 0);
    let cheap = talk.totals();
    assert!(dear.cost > dear.unmanaged_cost, "{dear:?}");
    assert!(cheap.cost < cheap.unmanaged_cost, "{cheap:?}");
}

#[test]
fn a_rewind_invalidates_and_saves_no_tokens() {
    let mut talk = Talk::new();
    let first = talk.turn(900);
    talk.turn(900);
    talk.turn(900);
    talk.0.run(Command::Rewind(Rewind {
        to: Some(first[1]),
        ..Rewind::default()
    }));
    let report = talk.report();
    assert_eq!(report.reused, 5_000 + 2 * 304);
    assert_eq!((report.invalidated, report.saved), (0, 0));
    assert_eq!(report.cause.unwrap().kind, ChangeKind::Rewound);
}

#[test]
fn a_cold_cache_or_another_model_invalidates_nothing() {
    let mut talk = Talk::new();
    let first = talk.turn(900);
    talk.turn(900);
    talk.snip(&first);
    let session = &talk.0.session;
    let warm = session.cache_report(&Target::default(), Timestamp::from_millis(HOUR_MS - 1));
    assert_eq!((warm.cold, warm.invalidated), (false, 304));
    let cold = session.cache_report(&Target::default(), Timestamp::from_millis(HOUR_MS));
    assert_eq!((cold.cold, cold.reused, cold.invalidated), (true, 0, 0));
    assert_eq!(cold.saved, 608);
    let other = Target {
        model: "another".into(),
        ..Target::default()
    };
    let other = session.cache_report(&other, Timestamp::from_millis(0));
    assert_eq!((other.reused, other.invalidated), (0, 0));
    assert_eq!(other.cause, None);
}

/// A simple ledger that keeps all pieces of the last request and its target.
#[derive(Default)]
struct Naive {
    sent: Vec<Piece>,
    target: Target,
}

impl Naive {
    /// Records the last request as sent if the event is its answer.
    fn see(&mut self, session: &Session, event: &Event) {
        let Event::MessagesAppended(event) = event else {
            return;
        };
        // A message without content has no pieces, so it never becomes pending.
        let mut said = event.messages.iter().filter(|appended| {
            let is_empty = appended.message.blocks.is_empty();
            let answers = appended.message.role == Role::Assistant && appended.replaces.is_none();
            appended.visibility.keeps_content() && (answers || !is_empty)
        });
        // A response that was recorded before has answered then.
        let answers = said
            .next()
            .is_some_and(|first| first.message.role == Role::Assistant && first.replaces.is_none());
        if answers && session.not_sendable_reason().is_none() {
            self.sent = session.sealed().pieces().to_vec();
            self.target = session.last_served().target.clone();
        }
    }

    fn check(&self, session: &Session) {
        let report = session.cache_report(&self.target, session.info().modified);
        let pieces = session.sealed().pieces();
        let same = |(a, b): &(&Piece, &Piece)| a == b;
        let shared = pieces.iter().zip(&self.sent).take_while(same).count();
        assert_eq!(report.reused_pieces, shared);
        assert_eq!(report.cause.is_some(), shared < self.sent.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn the_cache_report_equals_a_piecewise_comparison_in_any_history(
        operations in prop::collection::vec(operation(), 1..40)
    ) {
        let mut world = SessionHarness::new();
        let mut naive = Naive::default();
        for operation in &operations {
            let (before, seen) = (world.session.clone(), world.log.len());
            world.step(operation);
            if let Operation::Serve { target, interrupt } = operation {
                world.run(Command::ServeView(ServeView {
                    target: Target { thinking: *target == 0, ..Target::default() },
                    interrupt_open_calls: *interrupt,
                    ..ServeView::default()
                }));
            }
            // The next event after its deadline closes a compaction, and a response is recorded for a new array. A
            // confirmed response is pending, so messages after it answer no request.
            let mut events = world.log[seen..].iter().map(|recorded| &recorded.event);
            let is_before = |event: &&Event| match event {
                Event::CompactionFailed(_) => true,
                Event::ArraySynced(event) => event.confirmed.is_empty(),
                _ => false,
            };
            if let Some(first) = events.find(|event| !is_before(event)) {
                naive.see(&before, first);
            }
            naive.check(&world.session);
        }
    }
}
