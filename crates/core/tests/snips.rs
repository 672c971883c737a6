//! Random sessions with snips, reloads and undos, compared with a model that consists of lines of text.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use palimpsest_core::codec;
use palimpsest_core::command::{
    Append, Command, Rejection, RestoreContext, ServeView, Snip, SnipRejection, SnipTarget,
    UpdateSession,
};
use palimpsest_core::event::Trigger;
use palimpsest_core::ids::{MessageId, Revision};
use palimpsest_core::json::UnknownFields;
use palimpsest_core::message::{
    Block, Message, MessageOrigin, ResultContent, Role, ToolInput, ToolResult, ToolUse,
};
use palimpsest_core::policy::{Overlay, Policy};
use palimpsest_core::session::Session;
use palimpsest_core::view::{Provider, Target, WireBlock, WireResult};
use palimpsest_histories::{SessionHarness, serving};
use proptest::prelude::*;
use uuid::Uuid;

#[derive(Debug, Clone)]
enum Step {
    /// A question, this number of tool calls, and an answer.
    Turn(u8),
    /// A snip of several turns by their ids. It succeeds for all or for none.
    Turns(Vec<u8>),
    /// A snip of one line by its block.
    Line(u8),
    /// An undo of one of the last view-changing events, counted from the end.
    Restore(u8),
    /// A reload from the snapshot.
    Load,
    /// A replay of the log.
    Replay,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..3_u8).prop_map(Step::Turn),
        3 => prop::collection::vec(any::<u8>(), 1..3).prop_map(Step::Turns),
        2 => any::<u8>().prop_map(Step::Line),
        2 => (0..3_u8).prop_map(Step::Restore),
        1 => Just(Step::Load),
        1 => Just(Step::Replay),
    ]
}

/// One line of the view.
#[derive(Debug)]
struct Line {
    message: MessageId,
    turn: usize,
    what: What,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Input,
    Result,
    Answer,
}

/// The visibility of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Whole,
    Marked,
    Gone,
}

struct Stage {
    world: SessionHarness,
    lines: Vec<Line>,
    shown: Vec<Shown>,
    /// The visibility of all lines after each command.
    past: BTreeMap<Revision, Vec<Shown>>,
    /// The id of each turn, as the view first showed it.
    tags: Vec<String>,
}

impl Stage {
    fn new() -> Self {
        let mut policy = Policy::default();
        policy.snip.nudge = false;
        Self {
            world: SessionHarness::with_policy(policy),
            lines: Vec::new(),
            shown: Vec::new(),
            past: BTreeMap::new(),
            tags: Vec::new(),
        }
    }

    fn say(&mut self, role: Role, block: Block, line: Option<(What, String)>) {
        let number = self.world.session.transcript().len() + 1;
        let id = MessageId::new(Uuid::from_u128(number as u128));
        let mut message = Message::new(id, role, vec![block]);
        message.origin = MessageOrigin::Anthropic;
        self.world.run(Command::Append(Append {
            messages: vec![Arc::new(message)],
            ..Append::default()
        }));
        if let Some((what, text)) = line {
            self.lines.push(Line {
                message: id,
                turn: self.tags.len(),
                what,
                text,
            });
            self.shown.push(Shown::Whole);
        }
    }

    fn turn(&mut self, calls: u8) {
        let turn = self.tags.len();
        let asks = format!("question {turn}");
        let input = Some((What::Input, asks.clone()));
        self.say(Role::User, Block::text(asks), input);
        for call in 0..calls {
            let id = format!("call_{turn}_{call}");
            let tool = ToolUse {
                id: id.clone().into(),
                name: "Read".into(),
                input: ToolInput::parse("{}"),
                extra: UnknownFields::default(),
            };
            self.say(Role::Assistant, Block::ToolUse(tool), None);
            let said = format!("of {id}");
            let result = ToolResult {
                tool_use_id: id.into(),
                content: ResultContent::Text(said.clone().into()),
                is_error: None,
                extra: UnknownFields::default(),
            };
            let line = Some((What::Result, said));
            self.say(Role::User, Block::ToolResult(result), line);
        }
        let answer = format!("answer {turn}");
        let line = Some((What::Answer, answer.clone()));
        self.say(Role::Assistant, Block::text(answer), line);
        self.serve();
        // The id is known only from the view, as for a real model.
        let tag = self.seen().into_iter().rev().find_map(|line| {
            let (said, tag) = line.split_once("\n[id:")?;
            assert_eq!(said, format!("question {turn}"));
            Some(tag.strip_suffix(']').unwrap().to_owned())
        });
        let tag = tag.unwrap();
        assert!(tag.len() == 6 && !self.tags.contains(&tag), "{tag}");
        self.tags.push(tag);
    }

    fn serve(&mut self) {
        self.world.run(Command::ServeView(serving()));
        self.remember();
    }

    fn remember(&mut self) {
        self.past
            .insert(self.world.session.revision(), self.shown.clone());
    }

    fn is_gone(&self, turn: usize) -> bool {
        let inputs = self.lines.iter().zip(&self.shown);
        let mut inputs = inputs.filter(|(line, _)| line.what == What::Input && line.turn == turn);
        inputs.any(|(_, shown)| *shown == Shown::Gone)
    }

    fn snip(&mut self, turns: &[u8]) {
        if self.tags.is_empty() {
            return;
        }
        let mut seen = HashSet::new();
        let pick = turns
            .iter()
            .map(|turn| usize::from(*turn) % self.tags.len());
        let turns: Vec<usize> = pick.filter(|turn| seen.insert(*turn)).collect();
        // The rejection must name every turn that cannot be snipped.
        let refused = |turn: &usize| match *turn {
            turn if self.is_gone(turn) => Some(SnipRejection::AlreadySnipped),
            turn if turn + 1 == self.tags.len() => Some(SnipRejection::IsCurrent),
            _ => None,
        };
        let expected: Vec<SnipTarget> = turns
            .iter()
            .enumerate()
            .filter_map(|(index, turn)| {
                Some(SnipTarget {
                    field: format!("turn_ids[{index}]"),
                    name: self.tags[*turn].clone(),
                    rejection: refused(turn)?,
                    pin: None,
                })
            })
            .collect();
        let names = turns.iter().map(|turn| self.tags[*turn].as_str().into());
        let snip = snipping(names.collect(), Vec::new());
        if !expected.is_empty() {
            return self.refuses(snip, &Rejection::NotSnippable(expected));
        }
        self.world.run(Command::Snip(snip));
        for (line, shown) in self.lines.iter().zip(&mut self.shown) {
            if turns.contains(&line.turn) {
                *shown = Shown::Gone;
            }
        }
        self.remember();
    }

    fn snip_line(&mut self, line: u8) {
        if self.lines.is_empty() {
            return;
        }
        let at = usize::from(line) % self.lines.len();
        let id = self.lines[at].message;
        let snip = snipping(Vec::new(), vec![(id, 0)]);
        // A line that left with its turn is snipped too, so the reason is the same as for a marked line.
        if self.shown[at] != Shown::Whole {
            let target = SnipTarget {
                field: "blocks[0]".into(),
                name: format!("{id}#0"),
                rejection: SnipRejection::AlreadySnipped,
                pin: None,
            };
            return self.refuses(snip, &Rejection::NotSnippable(vec![target]));
        }
        self.world.run(Command::Snip(snip));
        self.shown[at] = Shown::Marked;
        self.remember();
    }

    /// Checks that a command is rejected and changes nothing.
    fn refuses(&mut self, snip: Snip, expected: &Rejection) {
        let before = self.world.session.clone();
        let refused = self.world.try_run(Command::Snip(snip));
        assert_eq!(refused.as_ref(), Err(expected));
        self.world.load_content();
        let mut filled = before;
        std::mem::swap(&mut filled, &mut self.world.session);
        self.world.load_content();
        assert_eq!(self.world.session, filled);
    }

    fn restore(&mut self, back: u8) {
        let changes = self.world.session.view_changes();
        let Some(change) = changes.iter().nth_back(usize::from(back)) else {
            return;
        };
        let to = Revision::new(change.revision.get() - 1);
        self.world.run(Command::Restore(RestoreContext {
            past: Box::new(self.world.at(to)),
            later: Vec::new(),
            force: true,
            expected_revision: None,
            request: None,
        }));
        // Later lines keep their visibility.
        if let Some((_, past)) = self.past.range(..=to).next_back() {
            self.shown[..past.len()].copy_from_slice(past);
        }
        self.serve();
    }

    /// Returns the texts in the view, block by block.
    fn seen(&mut self) -> Vec<String> {
        self.world.load_content();
        let view = self.world.session.view(&target(Provider::Anthropic), None);
        let mut seen = Vec::new();
        for block in view.unwrap().messages.iter().flat_map(|it| &it.blocks) {
            match block {
                WireBlock::Text { text, .. } => seen.push(text.to_string()),
                WireBlock::Result { content, .. } => match content {
                    WireResult::Text(text) => seen.push(text.to_string()),
                    other => panic!("{other:?}"),
                },
                WireBlock::Call { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        seen
    }

    fn expected(&self) -> Vec<String> {
        let lines = self.lines.iter().zip(&self.shown);
        lines
            .filter_map(|(line, shown)| match (shown, line.what) {
                (Shown::Gone, _) => None,
                (Shown::Marked, What::Result) => Some("[This tool result was removed.]".into()),
                (Shown::Marked, _) => Some("[text removed]".into()),
                (Shown::Whole, What::Input) => {
                    Some(format!("{}\n[id:{}]", line.text, self.tags[line.turn]))
                }
                (Shown::Whole, _) => Some(line.text.clone()),
            })
            .collect()
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Turn(calls) => self.turn(*calls),
            Step::Turns(turns) => self.snip(turns),
            Step::Line(line) => self.snip_line(*line),
            Step::Restore(back) => self.restore(*back),
            Step::Load => {
                let before = bytes(&self.world.session);
                self.world.session = self.world.loaded();
                self.world.load_content();
                assert_eq!(bytes(&self.world.session), before, "loaded");
            }
            Step::Replay => {
                let before = bytes(&self.world.session);
                self.world.session = self.world.at(self.world.session.revision());
                assert_eq!(bytes(&self.world.session), before, "replayed");
            }
        }
        assert_eq!(self.seen(), self.expected(), "after {step:?}");
    }
}

fn snipping(turns: Vec<Box<str>>, blocks: Vec<(MessageId, u16)>) -> Snip {
    Snip {
        turns,
        messages: Vec::new(),
        blocks,
        reason: "".into(),
        trigger: Trigger::Manual,
        expected_revision: None,
        request: None,
    }
}

fn target(provider: Provider) -> Target {
    Target {
        provider,
        ..Target::default()
    }
}

/// Returns the views of both providers as bytes.
fn bytes(session: &Session) -> HashMap<&'static str, Vec<u8>> {
    let view = |provider| {
        let target = target(provider);
        let mut out = Vec::new();
        for message in session.view(&target, None).unwrap().messages {
            codec::write(provider, &message, &mut out);
        }
        out
    };
    HashMap::from([
        ("anthropic", view(Provider::Anthropic)),
        ("openai", view(Provider::OpenAi)),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn p13_p19_snips_loads_and_undos_match_the_model_and_keep_turn_names(
        steps in prop::collection::vec(step(), 1..20)
    ) {
        let mut stage = Stage::new();
        for step in &steps {
            stage.run(step);
        }
    }
}

#[test]
fn an_undo_lays_out_later_messages_with_the_current_policy() {
    let mut policy = Policy::default();
    (policy.snip.nudge, policy.snip.tag_turns) = (false, false);
    let mut stage = Stage {
        world: SessionHarness::with_policy(policy),
        ..Stage::new()
    };
    stage.say(Role::User, Block::text("before the change"), None);
    stage.say(Role::Assistant, Block::text("an answer"), None);
    stage.serve();
    // The view of this revision has no turn ids. An undo keeps the policy, so the later input keeps its id.
    let before = stage.world.session.revision();
    let answer = MessageId::new(Uuid::from_u128(2));
    let tagging = UpdateSession {
        policy: Some(Overlay::from_toml("snip.tag_turns = true").unwrap()),
        ..UpdateSession::default()
    };
    stage.world.run(Command::UpdateSession(tagging));
    stage.turn(0);
    let shown = stage.seen();
    stage
        .world
        .run(Command::Snip(snipping(Vec::new(), vec![(answer, 0)])));
    assert_ne!(stage.seen(), shown);
    stage.world.run(Command::Restore(RestoreContext {
        past: Box::new(stage.world.at(before)),
        later: Vec::new(),
        force: true,
        expected_revision: None,
        request: None,
    }));
    stage.serve();
    assert_eq!(stage.seen(), shown);
    assert!(shown[2].starts_with("question 0\n[id:"), "{shown:?}");
}

#[test]
fn only_a_model_with_the_tool_that_snips_gets_ids_and_reminders() {
    let mut policy = Policy::default();
    // A reminder is due with each request, so ids and reminders appear together.
    (policy.snip.nudge, policy.snip.nudge_after_messages) = (true, 1);
    let mut stage = Stage {
        world: SessionHarness::with_policy(policy),
        ..Stage::new()
    };
    // If a call names no tools, new inputs get ids if the last input has one.
    let calls = [None, Some(true), None, Some(false), None];
    let tagged = [false, true, true, false, false];
    for (number, (offers_snip, tagged)) in calls.into_iter().zip(tagged).enumerate() {
        let before = stage.seen().len();
        stage.say(Role::User, Block::text(format!("question {number}")), None);
        stage.world.run(Command::ServeView(ServeView {
            offers_snip,
            ..ServeView::default()
        }));
        let new = stage.seen().split_off(before).concat();
        let shown = [new.contains("\n[id:"), new.contains("Snip tool")];
        assert_eq!(shown, [tagged; 2], "{number}: {new}");
        stage.say(Role::Assistant, Block::text("an answer"), None);
        stage.world.run(Command::ServeView(ServeView::default()));
    }
}
