//! Token counts before and after a compaction refer to the same content. This holds whatever a provider reports and
//! whatever prompt prefix the caller declares. A compaction makes the view smaller, and the next count equals the count
//! that the compaction returned.

use std::sync::Arc;

use palimpsest_core::command::{
    Append, Command, CompactionMessages, Decided, Rewind, ServeView, StartCompaction,
    SummarySource, SummarySpec,
};
use palimpsest_core::event::{CompactionFinished, Event, Trigger};
use palimpsest_core::ids::MessageId;
use palimpsest_core::json::UnknownFields;
use palimpsest_core::message::{
    Block, Message, ResultContent, Role, ToolInput, ToolResult, ToolUse, Usage,
};
use palimpsest_core::policy::{Policy, Preset};
use palimpsest_core::session::Strategy as SummaryBy;
use palimpsest_core::tokens::PrefixTokens;
use palimpsest_histories::SessionHarness;
use proptest::prelude::*;
use uuid::Uuid;

/// One step of a session.
#[derive(Debug, Clone)]
enum Step {
    /// Appends a user message with this number of words.
    Say(u16),
    /// Appends an answer with `words` words. The usage report differs from the estimate by `percent`.
    Answer { words: u16, percent: Option<u16> },
    /// Serves the view. The caller may declare the tokens of its prompt prefix.
    Serve(Option<u64>),
    /// Starts and finishes a compaction.
    Compact,
    /// Removes the last message by a rewind.
    Rewind,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..2_000_u16).prop_map(Step::Say),
        4 => (1..2_000_u16, prop::option::of(5..400_u16))
            .prop_map(|(words, percent)| Step::Answer { words, percent }),
        3 => prop::option::of(0..60_000_u64).prop_map(Step::Serve),
        3 => Just(Step::Compact),
        1 => Just(Step::Rewind),
    ]
}

struct Play {
    world: SessionHarness,
    next: u128,
}

impl Play {
    fn new(policy: Policy) -> Self {
        Self {
            world: SessionHarness::with_policy(policy),
            next: 1 << 64,
        }
    }

    fn id(&mut self) -> MessageId {
        self.next += 1;
        MessageId::new(Uuid::from_u128(self.next))
    }

    fn append(&mut self, role: Role, words: u16, usage: Option<Usage>) {
        let text = "word ".repeat(usize::from(words) * 3);
        let mut message = Message::new(self.id(), role, vec![Block::text(text)]);
        message.usage = usage;
        message.provider_message_id = Some(format!("msg_{}", self.next).into());
        self.world.run(Command::Append(Append {
            messages: vec![Arc::new(message)],
            ..Append::default()
        }));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Say(words) => self.append(Role::User, *words, None),
            Step::Answer { words, percent } => {
                let tokens = self.world.session.tokens().tokens;
                let usage = percent.map(|percent| Usage {
                    // Usage above the window of 200,000 tokens would be ignored.
                    input_tokens: (tokens * u64::from(percent) / 100).clamp(1, 190_000),
                    output_tokens: u64::from(*words),
                    ..Usage::default()
                });
                self.append(Role::Assistant, *words, usage);
            }
            Step::Serve(overhead) => self.world.run(Command::ServeView(ServeView {
                prefix: overhead.map(|system| PrefixTokens { system, tools: 0 }),
                ..ServeView::default()
            })),
            Step::Rewind => {
                let transcript = self.world.session.transcript();
                let visible = transcript
                    .entries()
                    .filter(|(at, _)| transcript.is_in_view(*at));
                let visible: Vec<MessageId> = visible.map(|(_, entry)| entry.id).collect();
                let to = visible.iter().rev().nth(1).copied();
                let rewind = Rewind {
                    to,
                    ..Rewind::default()
                };
                // The rewind is rejected if a summary represents the new last message.
                let _ = self.world.try_run(Command::Rewind(rewind));
            }
            Step::Compact => {
                self.world.run(Command::ServeView(ServeView::default()));
                self.compact();
            }
        }
    }

    /// Compacts the view and returns the event. `None` if there is nothing to compact.
    fn compact(&mut self) -> Option<CompactionFinished> {
        let before = self.world.session.tokens().tokens;
        let started = self
            .world
            .try_run(Command::StartCompaction(StartCompaction::new(
                Trigger::Manual,
                SummarySource::Write(SummarySpec::new(SummaryBy::Model)),
            )));
        let Ok(Decided::Now(_)) = started else {
            return None;
        };
        let made = CompactionMessages {
            boundary_id: self.id(),
            summary_id: self.id(),
            request_message: None,
            hook_messages: Vec::new(),
        };
        let finish = self.world.finish_by_model(made)?;
        self.world.run(Command::AdvanceCompaction(finish));
        let Event::CompactionFinished(event) = self.world.log.last()?.event.clone() else {
            return None;
        };
        // The count must be the same in the event, right after it, and after the next serving.
        assert_eq!(event.before_tokens, before);
        assert!(
            event.after_tokens < before,
            "{} → {}",
            before,
            event.after_tokens
        );
        assert_eq!(self.world.session.tokens().tokens, event.after_tokens);
        self.world.run(Command::ServeView(ServeView::default()));
        assert_eq!(self.world.session.tokens().tokens, event.after_tokens);
        Some(event)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn a_compaction_shrinks_the_view_to_the_reported_size(
        steps in prop::collection::vec(step(), 1..40)
    ) {
        let mut play = Play::new(Policy::default());
        for step in &steps {
            play.step(step);
        }
    }
}

/// The provider counts 30,000 tokens of system prompt and tools that the caller did not declare.
#[test]
fn undeclared_system_and_tools_are_counted_after_a_compaction() {
    let mut play = Play::new(Policy::default());
    for _ in 0..4 {
        play.append(Role::User, 500, None);
        let messages = play.world.session.ledger().all.total();
        let usage = Usage {
            input_tokens: 30_000 + messages,
            output_tokens: 0,
            ..Usage::default()
        };
        play.append(Role::Assistant, 1, Some(usage));
        play.world.run(Command::ServeView(ServeView::default()));
    }
    play.append(Role::User, 5, None);
    play.world.run(Command::ServeView(ServeView::default()));
    let event = play.compact().unwrap();
    assert!(
        // The prefix of 30,000 tokens stays. The kept messages and the summary are small beside it.
        (29_000..33_000).contains(&event.after_tokens),
        "{}",
        event.after_tokens
    );
}

#[test]
fn the_threshold_preset_keeps_exactly_the_last_five_messages() {
    for words in [100, 4_000] {
        let mut play = Play::new(Preset::Threshold.policy());
        for _ in 0..12 {
            play.append(Role::User, words, None);
            play.append(Role::Assistant, words, None);
        }
        play.world.run(Command::ServeView(ServeView::default()));
        let first = play.compact().unwrap();
        let boundary = play.world.session.compactions().boundaries.last().unwrap();
        assert_eq!(boundary.replaced_count as usize + first.kept.len(), 24);
        let mut last = first;
        while let Some(next) = play.compact() {
            last = next;
        }
        assert_eq!(last.kept.len(), 5, "{words} words");
    }
}

/// The limit per message is checked when a view is served, so the results of this view are stored at that moment.
#[test]
fn a_served_view_counts_the_previews_of_results_that_it_stores() {
    let mut policy = Policy::default();
    policy.tool_results.max_result_chars = 20_000;
    policy.tool_results.max_message_chars = 30_000;
    let mut play = Play::new(policy);
    play.append(Role::User, 10, None);
    let id = |number: usize| format!("call-{number}").into_boxed_str();
    let calls = (0..2).map(|number| {
        Block::ToolUse(ToolUse {
            id: id(number),
            name: "Bash".into(),
            input: ToolInput::parse("{}"),
            extra: UnknownFields::default(),
        })
    });
    let results = (0..2).map(|number| {
        Block::ToolResult(ToolResult {
            tool_use_id: id(number),
            content: ResultContent::Text("line\n".repeat(3_500).into()),
            is_error: None,
            extra: UnknownFields::default(),
        })
    });
    for (role, blocks) in [
        (Role::Assistant, calls.collect()),
        (Role::User, results.collect::<Vec<_>>()),
    ] {
        let message = Message::new(play.id(), role, blocks);
        play.world.run(Command::Append(Append {
            messages: vec![Arc::new(message)],
            ..Append::default()
        }));
    }
    let before = play.world.session.tokens().tokens;
    play.world.run(Command::ServeView(ServeView::default()));
    let [.., stored, served] = &play.world.log[..] else {
        panic!("two events");
    };
    assert!(matches!(stored.event, Event::ResultsPersisted(_)));
    let Event::ViewServed(served) = &served.event else {
        panic!("{served:?}");
    };
    assert_eq!(served.tokens, play.world.session.tokens().tokens);
    assert_eq!(served.parts, play.world.session.request_parts(None));
    assert!(served.tokens < before, "{} {before}", served.tokens);
}
