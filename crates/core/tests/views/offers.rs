//! Persist decisions: a caller requests the decision about a result before it appends the result.

use std::sync::Arc;

use palimpsest_core::command::{
    Append, CallRef, Command, DecidePersist, Decided, PersistOutcome, Rejection, Rewind, ServeView,
    current_outcome,
};
use palimpsest_core::event::Event;
use palimpsest_core::ids::{CallKey, MessageId, Ordinal};
use palimpsest_core::json::UnknownFields;
use palimpsest_core::levels::results::Verdict;
use palimpsest_core::message::{
    Block, Message, ResultContent, Role, ToolInput, ToolResult, ToolUse,
};
use palimpsest_core::policy::{Policy, ToolResultRule};
use palimpsest_core::session::MAX_PENDING_DECISIONS;
use palimpsest_core::view::{PieceForm, WireBlock, WireResult};
use palimpsest_histories::SessionHarness;
use uuid::Uuid;

/// A length in characters that exceeds the limit of the policies in this file.
const LARGE: usize = 1_000;

struct Desk {
    world: SessionHarness,
    next: u128,
}

fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.snip.tag_turns = false;
    policy.tool_results.max_result_chars = 500;
    policy.tool_results.preview_chars = 100;
    policy
}

fn said(text: &str) -> ToolResult {
    ToolResult {
        tool_use_id: "a".into(),
        content: ResultContent::Text(text.into()),
        is_error: None,
        extra: UnknownFields::default(),
    }
}

fn offering(id: &str, text: &str) -> DecidePersist {
    let name = CallRef {
        key: None,
        id: id.into(),
    };
    let mut result = said(text);
    result.tool_use_id = id.into();
    DecidePersist::new(name, result)
}

impl Desk {
    fn new() -> Self {
        Self::with(policy())
    }

    fn with(policy: Policy) -> Self {
        Self {
            world: SessionHarness::with_policy(policy),
            next: 1,
        }
    }

    /// Requests a persist decision and returns it. Panics if the request is rejected.
    #[track_caller]
    fn ask(&mut self, offering: &DecidePersist) -> PersistOutcome {
        self.world.run(Command::DecidePersist(offering.clone()));
        current_outcome(&self.world.session, offering).unwrap()
    }

    fn append(&mut self, role: Role, blocks: Vec<Block>) {
        let id = MessageId::new(Uuid::from_u128(self.next));
        self.next += 1;
        let append = Command::Append(Append {
            messages: vec![Arc::new(Message::new(id, role, blocks))],
            ..Append::default()
        });
        let then = append.then(&self.world.session);
        self.world.run(append);
        self.world.run(then.unwrap());
    }

    fn call(&mut self, id: &str) {
        let call = ToolUse {
            id: id.into(),
            name: "Read".into(),
            input: ToolInput::parse("{}"),
            extra: UnknownFields::default(),
        };
        self.append(Role::Assistant, vec![Block::ToolUse(call)]);
    }

    fn result(&mut self, id: &str, text: &str) {
        let mut result = said(text);
        result.tool_use_id = id.into();
        self.append(Role::User, vec![Block::ToolResult(result)]);
    }

    /// Returns the forms and texts of the results in the view.
    fn results(&mut self) -> Vec<(PieceForm, String)> {
        self.world.run(Command::ServeView(ServeView::default()));
        let session = &self.world.session;
        let target = session.last_served().target.clone();
        let view = session.view(&target, None).unwrap();
        let blocks = view.messages.iter().flat_map(|message| &message.blocks);
        let words = blocks.filter_map(|block| match block {
            WireBlock::Result {
                content: WireResult::Text(text),
                ..
            } => Some(text.to_string()),
            _ => None,
        });
        let pieces = session.sealed().pieces().iter();
        let forms = pieces.filter(|piece| piece.form.answered_call_key().is_some());
        forms.map(|piece| piece.form).zip(words).collect()
    }
}

const C0: CallKey = CallKey::new(0);

#[test]
fn a_persist_decision_is_bound_when_its_call_is_appended() {
    let mut desk = Desk::new();
    let large = "x".repeat(LARGE);
    let asked = offering("a", &large);
    let first = desk.ask(&asked);
    assert_eq!((first.call, first.verdict), (None, Verdict::Persist));
    let file = first.stored.clone().unwrap().file;
    // The call is unknown, so the file is named after the decision.
    assert!(file.starts_with("o0-"), "{file}");
    // A call with another id does not bind the decision.
    desk.call("b");
    assert_eq!(desk.ask(&asked), first);
    desk.call("a");
    let bound = desk.ask(&asked);
    assert_eq!(bound.call, Some(CallKey::new(1)));
    assert_eq!(bound.stored, first.stored);
    assert_eq!(desk.world.session.persist_decisions().iter().len(), 1);
}

#[test]
fn an_appended_replacement_is_linked_to_its_stored_file() {
    let mut desk = Desk::new();
    let kept = desk.ask(&offering("a", &"x".repeat(LARGE))).stored.unwrap();
    desk.call("a");
    desk.result("a", &kept.replacement);
    let words = kept.replacement.to_string();
    assert_eq!(desk.results(), [(PieceForm::Stored(C0), words)]);
    let session = &desk.world.session;
    let stored = session.stored_results().get(C0).unwrap();
    assert!(stored.original_only_in_file);
    assert_eq!((&stored.file, stored.sha256), (&kept.file, kept.sha256));
    assert_eq!(
        session.stored_results().position_of_file(&kept.file),
        Some((Ordinal::new(1), 0))
    );
    assert_eq!(session.persist_decisions().iter().len(), 0);
}

#[test]
fn an_appended_original_is_shown_as_the_decided_replacement() {
    let mut desk = Desk::new();
    desk.call("a");
    let large = "x".repeat(LARGE);
    let kept = desk.ask(&offering("a", &large)).stored.unwrap();
    assert!(kept.file.starts_with("c0-"), "{}", kept.file);
    desk.result("a", &large);
    assert_eq!(
        desk.results(),
        [(PieceForm::Stored(C0), kept.replacement.to_string())]
    );
    assert!(
        !desk
            .world
            .session
            .stored_results()
            .get(C0)
            .unwrap()
            .original_only_in_file
    );
    // The size of the message is that of its shown form.
    let entry = desk
        .world
        .session
        .transcript()
        .get(Ordinal::new(1))
        .unwrap();
    assert!(
        entry.size.result_tokens <= kept.replacement_tokens + 1,
        "{entry:?}"
    );
}

#[test]
fn an_inline_decision_holds_when_the_result_is_appended() {
    let large = "x".repeat(LARGE);
    for (rule, verdict) in [
        (ToolResultRule::FixedChars(5_000), Verdict::UnderLimit),
        (ToolResultRule::NeverPersist(true), Verdict::Never),
    ] {
        let mut desk = Desk::new();
        let asked = DecidePersist {
            rule: Some(rule),
            ..offering("a", &large)
        };
        assert_eq!(desk.ask(&asked).verdict, verdict);
        desk.call("a");
        desk.result("a", &large);
        assert_eq!(desk.results(), [(PieceForm::Result(C0), large.clone())]);
        assert_eq!(desk.world.session.persist_decisions().iter().len(), 0);
    }
    // Without a persist decision the same result is stored.
    let mut desk = Desk::new();
    desk.call("a");
    desk.result("a", &large);
    assert_eq!(desk.results()[0].0, PieceForm::Stored(C0));
}

#[test]
fn other_content_conflicts_with_a_decision_but_can_be_appended() {
    let mut desk = Desk::new();
    desk.call("a");
    let kept = desk.ask(&offering("a", &"x".repeat(LARGE))).stored.unwrap();
    let other = Command::DecidePersist(offering("a", "other"));
    let refused = desk.world.try_run(other);
    let Err(Rejection::ResultConflict {
        call,
        stored,
        given,
    }) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!(call, Some(C0));
    assert_ne!(stored, given);
    // The transcript records the result that was appended. The returned reference still leads to its file.
    desk.result("a", "other");
    assert_eq!(desk.results(), [(PieceForm::Result(C0), "other".into())]);
    assert!(
        desk.world
            .session
            .persist_decisions()
            .find_by_file(&kept.file)
            .is_some()
    );
    let asked = desk.ask(&offering("a", "other"));
    assert_eq!((asked.call, asked.verdict), (Some(C0), Verdict::UnderLimit));
}

#[test]
fn each_persist_verdict_follows_from_content_limit_and_rules() {
    let large = "x".repeat(LARGE);
    let verdict = |policy: Policy, asked: DecidePersist| Desk::with(policy).ask(&asked).verdict;
    assert_eq!(verdict(policy(), offering("a", "x")), Verdict::UnderLimit);
    assert_eq!(verdict(policy(), offering("a", &large)), Verdict::Persist);
    assert_eq!(verdict(policy(), offering("a", " \n")), Verdict::Empty);
    let tagged = "<persisted-output>\nx\n</persisted-output>";
    assert_eq!(
        verdict(policy(), offering("a", tagged)),
        Verdict::Replacement
    );
    // The limit counts characters, not bytes.
    let wide = "字".repeat(500);
    assert_eq!(verdict(policy(), offering("a", &wide)), Verdict::UnderLimit);
    let mut off = policy();
    off.tool_results.enabled = false;
    assert_eq!(verdict(off, offering("a", &large)), Verdict::Disabled);
    // The rule of the tool applies, whether the tool is known from its call or named by the caller.
    let mut ruled = policy();
    let never = ToolResultRule::NeverPersist(true);
    ruled.tool_results.rules.insert("Read".into(), never);
    let mut told = offering("a", &large);
    assert_eq!(verdict(ruled.clone(), told.clone()), Verdict::Persist);
    told.tool = "Read".into();
    assert_eq!(verdict(ruled.clone(), told), Verdict::Never);
    let mut desk = Desk::with(ruled);
    desk.call("a");
    assert_eq!(desk.ask(&offering("a", &large)).verdict, Verdict::Never);
}

#[test]
fn the_text_for_an_empty_result_is_recognized_as_that_result() {
    let mut desk = Desk::new();
    let asked = offering("a", "");
    assert_eq!(desk.ask(&asked).verdict, Verdict::Empty);
    desk.call("a");
    let line = Verdict::Empty.fixed_replacement().unwrap();
    desk.result("a", line);
    assert_eq!(desk.results(), [(PieceForm::Result(C0), line.to_owned())]);
    assert_eq!(desk.ask(&asked).verdict, Verdict::Empty);
}

#[test]
fn a_call_reopened_by_a_rewind_gets_a_new_decision() {
    let mut desk = Desk::new();
    let large = "x".repeat(LARGE);
    desk.call("a");
    desk.result("a", &large);
    let before = desk.results();
    assert_eq!(before[0].0, PieceForm::Stored(C0));
    desk.world.run(Command::Rewind(Rewind {
        to: Some(MessageId::new(Uuid::from_u128(1))),
        ..Rewind::default()
    }));
    assert_eq!(
        desk.ask(&offering("a", "short")).verdict,
        Verdict::UnderLimit
    );
    desk.result("a", "short");
    assert_eq!(desk.results(), [(PieceForm::Result(C0), "short".into())]);
    // The stored form of the first result is kept for an undo.
    let place = (Ordinal::new(1), 0);
    let stored = desk
        .world
        .session
        .stored_results()
        .at(place.0, place.1)
        .unwrap();
    assert_eq!(*stored.replacement, *before[0].1);
}

#[test]
fn the_file_of_a_late_result_is_kept() {
    let mut desk = Desk::new();
    let large = "x".repeat(LARGE);
    desk.call("a");
    desk.world.run(Command::ServeView(ServeView {
        interrupt_open_calls: true,
        ..ServeView::default()
    }));
    let kept = desk.ask(&offering("a", &large)).stored.unwrap();
    desk.result("a", &kept.replacement);
    desk.world.run(Command::ServeView(ServeView::default()));
    let stored = desk
        .world
        .session
        .stored_results()
        .find_by_file(&kept.file)
        .unwrap();
    assert!(stored.original_only_in_file && stored.call == C0);
}

#[test]
fn pending_decisions_are_bounded_and_stored_results_not_evicted() {
    let mut desk = Desk::new();
    let large = |n: usize| format!("{n} {}", "x".repeat(LARGE));
    let id = |n: usize| format!("call_{n}");
    desk.ask(&offering("inline", "x"));
    for n in 0..MAX_PENDING_DECISIONS {
        desk.ask(&offering(&id(n), &large(n)));
    }
    assert_eq!(
        desk.world.session.persist_decisions().iter().len(),
        MAX_PENDING_DECISIONS
    );
    assert!(
        desk.world
            .session
            .persist_decisions()
            .find_unbound("inline")
            .is_none()
    );
    let more = Command::DecidePersist(offering("more", &large(0)));
    let refused = desk.world.try_run(more.clone());
    assert_eq!(
        refused,
        Err(Rejection::TooManyPendingResults(MAX_PENDING_DECISIONS))
    );
    // The decision to keep a result inline is returned and not recorded.
    let inline = desk
        .world
        .try_run(Command::DecidePersist(offering("b", "x")));
    assert_eq!(inline, Ok(Decided::events(vec![])));
    desk.call(&id(7));
    desk.result(&id(7), &large(7));
    let taken = desk.world.try_run(more).unwrap();
    assert!(
        matches!(&taken, Decided::Now(decision) if matches!(decision.events[..], [Event::PersistDecided(_)]))
    );
    assert_eq!(
        desk.world.loaded().persist_decisions(),
        desk.world.session.persist_decisions()
    );
}
