//! A change of the estimator during a session. Earlier counts stay, the learned calibration is discarded, and a replay
//! results in the same state.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::sync::Arc;

use palimpsest_core::command::{Append, Command, ServeView, Snip, UpdateSession};
use palimpsest_core::event::Trigger;
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::message::{Block, Message, Role, Usage};
use palimpsest_core::policy::{Overlay, Policy};
use palimpsest_core::session::Session;
use palimpsest_core::tokens::Calibration;
use palimpsest_histories::SessionHarness;
use uuid::Uuid;

/// 6 tokens with `o200k`, 8 with `cl100k` and 10 with `bytes`.
const TEXT: &str = "日本語のテキスト";

/// The tokens of the marker in place of a snipped block.
const MARKER_TOKENS: u32 = 8;

struct Talk(SessionHarness);

impl Talk {
    fn new() -> Self {
        Self(SessionHarness::with_policy(Policy::default()))
    }

    fn say(&mut self, role: Role, texts: &[&str], input_tokens: u64) -> MessageId {
        let number = self.0.session.transcript().len() + 1;
        let id = MessageId::new(Uuid::from_u128(number as u128));
        let blocks = texts.iter().map(|text| Block::text(*text)).collect();
        let mut message = Message::new(id, role, blocks);
        message.at = Some(Timestamp::from_millis(0));
        message.usage = (input_tokens > 0).then_some(Usage {
            input_tokens,
            ..Usage::default()
        });
        self.0.run(Command::Append(Append {
            messages: vec![Arc::new(message)],
            ..Append::default()
        }));
        self.0.run(Command::ServeView(ServeView::default()));
        id
    }

    fn set(&mut self, setting: &str) {
        self.0.run(Command::UpdateSession(UpdateSession {
            policy: Some(Overlay::from_toml(setting).unwrap()),
            ..UpdateSession::default()
        }));
    }

    fn tokens(&self) -> u64 {
        self.0.session.tokens().tokens
    }

    fn calibration(&self) -> u32 {
        self.0.session.ledger().calibration.milli()
    }

    /// Checks that the log and the snapshot result in the same session.
    #[track_caller]
    fn check(&mut self) {
        let session = &self.0.session;
        let replayed = Session::replay(session.key().clone(), self.0.log.clone()).unwrap();
        assert_eq!(&replayed, session);
        let mut loaded = self.0.loaded();
        loaded.load_content(
            session
                .transcript()
                .entries()
                .filter_map(|(_, entry)| entry.content.clone()),
        );
        assert_eq!(&loaded, session);
    }

    /// Reports usage that is twice the estimate.
    fn learn(&mut self) {
        let said = self.0.session.ledger().all.total();
        self.say(Role::Assistant, &["ok"], 1_000 + said);
        let before = self.0.session.ledger().anchor.as_ref().unwrap().usage;
        self.say(Role::User, &[&"word ".repeat(1_000)], 0);
        let grown = 2 * self.0.session.ledger().tail;
        self.say(Role::Assistant, &["ok"], before.total_tokens() + grown);
    }
}

#[test]
fn a_changed_estimator_does_not_recount_earlier_messages() {
    let mut talk = Talk::new();
    talk.say(Role::User, &[TEXT, TEXT], 0);
    // Two texts of 10 tokens each, and 4 for the message.
    assert_eq!(talk.tokens(), 24);
    talk.set("tokens.estimator = \"o200k\"");
    let second = talk.say(Role::User, &[TEXT, TEXT], 0);
    assert_eq!(talk.tokens(), 24 + 16);
    talk.set("tokens.estimator = \"cl100k\"");
    talk.say(Role::User, &[TEXT, TEXT], 0);
    assert_eq!(talk.tokens(), 24 + 16 + 20);
    talk.check();
    // The snipped block is subtracted with its count by `o200k`, although `cl100k` is the current estimator.
    let before = talk.tokens();
    talk.0.run(Command::Snip(Snip {
        turns: vec![],
        messages: vec![],
        blocks: vec![(second, 0)],
        reason: "".into(),
        trigger: Trigger::Manual,
        expected_revision: None,
        request: None,
    }));
    let entry = talk
        .0
        .session
        .transcript()
        .get(talk.0.session.transcript().find(second).unwrap());
    assert_eq!(entry.unwrap().size.tokens, 16 - 6 + MARKER_TOKENS);
    assert_eq!(talk.tokens(), before - 6 + u64::from(MARKER_TOKENS));
    talk.check();
}

#[test]
fn a_changed_estimator_resets_the_calibration() {
    let mut talk = Talk::new();
    talk.learn();
    // An observation has a weight of one eighth: 7/8 of 1.0 and 1/8 of 2.0.
    assert_eq!(talk.calibration(), 1_125);
    // A change of another setting keeps the calibration.
    talk.set("snip.nudge_after_messages = 9");
    assert_eq!(talk.calibration(), 1_125);
    talk.set("tokens.estimator = \"o200k\"");
    assert_eq!(talk.calibration(), Calibration::default().milli());
    // Usage for partly older content is no measure of the new estimator. The first report after a change only sets the
    // anchor.
    talk.say(Role::User, &[&"word ".repeat(1_000)], 0);
    let anchor = talk.0.session.ledger().anchor.clone().unwrap();
    talk.say(
        Role::Assistant,
        &["ok"],
        anchor.usage.total_tokens() + 9_000,
    );
    assert_eq!(talk.calibration(), 1_000);
    talk.check();
}

#[test]
fn disabled_calibration_keeps_the_default_ratio() {
    let mut talk = Talk::new();
    talk.set("tokens.calibrate = false");
    talk.learn();
    assert_eq!(talk.calibration(), 1_000);
    talk.set("tokens.calibrate = true");
    talk.learn();
    assert!(talk.calibration() > 1_000);
    talk.set("tokens.calibrate = false");
    assert_eq!(talk.calibration(), 1_000);
    talk.check();
}
