//! Replays a transcript up to each of its compactions, compacts there, and compares the texts with what the agent used
//! afterwards.

use std::collections::HashSet;
use std::sync::Arc;

use palimpsest_core::event::Trigger;
use palimpsest_core::ids::MessageId;
use palimpsest_core::message::{Block, Role};
use palimpsest_core::policy::{Percent, Policy, WindowHint};
use palimpsest_core::view::Provider;
use palimpsest_facts::names::{expand, omitted_names};

use super::conversation::Conversation;
use super::needs::{Name, names_of};
use super::shown::shows;
use super::texts::{push_message, tail, view_text};
use super::{HORIZONS, MeasuredCompaction, MeasuredText, Need, SessionRecall, TextSource};
use crate::replay::RecordedSession;
use crate::replay::driver::{Driver, agent_options};
use crate::replay::recorded_session::{RecordedCompaction, RecordedStep};

/// The number of calls after a compaction whose names are needs.
const CALLS: usize = HORIZONS[HORIZONS.len() - 1];

/// The settings of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct RecallOptions<'a> {
    /// The provider of the messages.
    pub provider: Provider,
    /// The policy of the session.
    pub policy: &'a Policy,
    /// The sizes of the model.
    pub window: WindowHint,
    /// Further texts to measure at each compaction.
    pub texts: &'a [String],
}

/// Measures each compaction of a session: those that the transcript contains, otherwise those of the policy.
/// Compactions after which the agent needed nothing are only counted.
pub fn recall(tape: &RecordedSession, options: RecallOptions<'_>) -> SessionRecall {
    let is_recorded = |step: &RecordedStep| matches!(step, RecordedStep::Compacted(_));
    let has_recorded = tape.steps.iter().any(is_recorded);
    let mut policy = options.policy.clone();
    if has_recorded {
        // The session compacts where the other program did, and nowhere else.
        policy.autocompact.reactive_only = true;
        // With a share of 0 %, a compaction is due at any size, so `compact_now` is never below the threshold.
        policy.autocompact.proactive_percent = Some(Percent::new(0));
    }
    let setup = agent_options(tape, options.provider, Arc::new(policy), options.window);
    let mut measuring = Measuring {
        tape,
        options,
        driver: Driver::new(tape, setup),
        conversation: Conversation::default(),
        found: SessionRecall::default(),
    };
    for (at, step) in tape.steps.iter().enumerate() {
        measuring.step(at, step, !has_recorded);
    }
    measuring.found
}

struct Measuring<'a> {
    tape: &'a RecordedSession,
    options: RecallOptions<'a>,
    driver: Driver,
    conversation: Conversation,
    found: SessionRecall,
}

impl Measuring<'_> {
    fn step(&mut self, at: usize, step: &RecordedStep, follows_policy: bool) {
        match step {
            RecordedStep::Rewind(to) => self.driver.rewind(*to),
            RecordedStep::Compacted(compacted) => {
                self.driver.adopt(compacted);
                self.driver.serve();
                if self.driver.compact_now(Trigger::Auto) {
                    self.measure(at + 1, Some(compacted));
                }
                // The summary is no part of the measured conversation, but of later ones.
                self.conversation.push(compacted.line, &compacted.summary);
            }
            RecordedStep::Removed { line, messages } => self.driver.remove(*line, messages),
            RecordedStep::Message { line, message } => {
                self.driver.set_time(message);
                if self.driver.begins_response(message) {
                    let before = self.driver.counters.compactions.len();
                    if follows_policy {
                        self.driver.prepare();
                    } else {
                        self.driver.prepare_without_compaction();
                    }
                    if self.driver.counters.compactions.len() > before {
                        self.measure(at, None);
                    }
                }
                self.driver.append(*line, message);
                self.conversation.push(*line, message);
            }
        }
    }

    /// Measures the latest compaction. `next` is the first step after it.
    fn measure(&mut self, next: usize, recorded: Option<&RecordedCompaction>) {
        let root = self.driver.root().map(ToOwned::to_owned);
        let root = root.as_deref();
        let used = UsedNames::of(&self.tape.steps[next..], root);
        let mut needs = Vec::new();
        let mut names = Vec::new();
        for (name, call, is_from_memory) in used.names {
            if let Some(last_mention) = self.conversation.last_mention(&name, root) {
                needs.push(Need {
                    kind: name.kind,
                    text: name.text.clone(),
                    call,
                    is_from_memory,
                    last_mention,
                });
                names.push(name);
            }
        }
        if needs.is_empty() {
            self.found.without_needs += 1;
            return;
        }
        let before = &self.conversation.text;
        let mut texts = Vec::new();
        let mut add = |source: TextSource, text: &str| {
            // A text names the paths `src/a.rs` and `src/b.rs` by `src/{a.rs,b.rs}`.
            let expanded = expand(text);
            let all_text = expanded.as_deref().unwrap_or(text);
            texts.push(MeasuredText {
                source,
                chars: text.chars().count(),
                shows: names
                    .iter()
                    .map(|name| shows(all_text, name, root))
                    .collect(),
            });
            texts.last().map_or(0, |text| text.chars)
        };
        let compaction = self.driver.counters.compactions.last();
        let summary = compaction.map_or("", |compaction| &*compaction.summary);
        if let Some(recorded) = recorded {
            let mut text = self.recorded_text(recorded, next);
            let chars = add(TextSource::Recorded, &text);
            add(TextSource::TailOfRecorded, tail(before, chars));
            let names = omitted_names(&[section_of_files(summary), summary], &text);
            text.push_str(&names.unwrap_or_default());
            add(TextSource::RecordedWithNames, &text);
        }
        let chars = add(TextSource::Summary, summary);
        add(TextSource::TailOfSummary, tail(before, chars));
        let view = self.driver.session.view(self.driver.caller.target(), None);
        let view = view.expect("a session that was never unloaded holds its messages");
        let chars = add(TextSource::View, &view_text(&view));
        add(TextSource::TailOfView, tail(before, chars));
        for (at, text) in self.options.texts.iter().enumerate() {
            add(TextSource::Given(at), text);
        }
        self.found.compactions.push(MeasuredCompaction {
            line: self.driver.line,
            is_recorded: recorded.is_some(),
            calls: used.calls,
            summary: summary.into(),
            root: root.map(Into::into),
            needs,
            texts,
        });
    }

    /// Returns the summary of the other program, the messages that it kept, and those that it attached.
    fn recorded_text(&self, recorded: &RecordedCompaction, next: usize) -> String {
        let mut text = String::new();
        push_message(&recorded.summary, &mut text);
        let kept: HashSet<MessageId> = recorded.kept.iter().copied().collect();
        for (_, message) in &self.driver.log {
            if kept.contains(&message.id) {
                push_message(message, &mut text);
            }
        }
        // Generated messages before the next response are those that the program attached.
        for step in &self.tape.steps[next..] {
            let RecordedStep::Message { message, .. } = step else {
                break;
            };
            if message.role == Role::Assistant {
                break;
            }
            if !message.is_real_user_input() {
                push_message(message, &mut text);
            }
        }
        text
    }
}

/// Returns the section of files of a summary or of session memory.
fn section_of_files(summary: &str) -> &str {
    let mut sections = summary.split("\n## ");
    let is_of_files = |section: &&str| {
        let heading = section.lines().next().unwrap_or_default();
        heading.contains("Files")
    };
    sections.find(is_of_files).unwrap_or_default()
}

/// The names that an agent uses after a compaction, until the next one.
struct UsedNames {
    /// Each name with the number of its call, and true if nothing had shown it before.
    names: Vec<(Name, usize, bool)>,
    calls: usize,
}

impl UsedNames {
    fn of(steps: &[RecordedStep], root: Option<&str>) -> Self {
        let mut used = Self {
            names: Vec::new(),
            calls: 0,
        };
        let mut known: HashSet<Box<str>> = HashSet::new();
        let mut shown = String::new();
        for step in steps {
            let RecordedStep::Message { message, .. } = step else {
                break;
            };
            if message.role != Role::Assistant {
                push_message(message, &mut shown);
                continue;
            }
            for block in &message.blocks {
                let Block::ToolUse(call) = block else {
                    continue;
                };
                if used.calls == CALLS {
                    return used;
                }
                used.calls += 1;
                for name in names_of(call, root) {
                    // A name is one need, of the call that uses it first.
                    if known.insert(name.text.clone()) {
                        let is_from_memory = !shows(&shown, &name, root);
                        used.names.push((name, used.calls, is_from_memory));
                    }
                }
            }
        }
        used
    }
}
