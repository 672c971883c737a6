//! A timeline of facts: turns, and failures with the actions that followed them.

use super::action_outcome::ActionOutcome;
use super::facts::{Deed, Fact, Facts, UserInput};
use super::memory::fact::{FailedAction, FailedActionKind};
use super::shell;
use super::steps::{PathStyle, short};
use super::text::{code, label, sentences, without_label};
use super::tool_action::Act;

/// The result text of a call that was skipped because a sibling call in the same response failed.
pub(super) const SIBLING_FAILED: &str = "Sibling tool call errored";

/// Facts in the order of turns.
pub(crate) struct Timeline<'a> {
    pub(crate) turns: Vec<TurnFacts<'a>>,
    pub(crate) failures: Vec<ObservedFailure<'a>>,
    /// The keys of actions whose latest run succeeded.
    pub(crate) passed: Vec<String>,
    pub(crate) root: Option<&'a str>,
}

/// The facts of one user turn. The first turn of a run of messages may lack a user input.
#[derive(Default)]
pub(crate) struct TurnFacts<'a> {
    pub(crate) asked: Option<&'a UserInput>,
    pub(crate) deeds: Vec<&'a Deed>,
    /// The statements of the model, each with the number of preceding calls.
    pub(crate) said: Vec<(usize, &'a str)>,
}

/// A failed action.
pub(crate) struct ObservedFailure<'a> {
    pub(crate) action: FailedAction,
    pub(crate) key: String,
    pub(crate) times: u32,
    /// The latest error text of the tool.
    pub(crate) why: &'a str,
    /// The action that followed the failure.
    pub(crate) next: Option<String>,
    /// The last change before the action succeeded.
    pub(crate) change: Option<String>,
    pub(crate) mended: bool,
    /// The index of the last failed call.
    position: usize,
}

impl<'a> TurnFacts<'a> {
    /// Returns the model's statement after its last call. Returns `None` if the statement announces
    /// further work.
    pub(crate) fn answer(&self) -> Option<&'a str> {
        let (done, text) = self.said.last()?;
        (*done == self.deeds.len() && !announces(text)).then_some(text)
    }

    pub(crate) fn last_words(&self) -> Option<&'a str> {
        self.said.last().map(|(_, text)| *text)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.deeds.is_empty() && self.said.is_empty()
    }
}

impl<'a> Timeline<'a> {
    /// Arranges facts in turns. `root` is the directory to which paths are relative.
    pub(crate) fn of(facts: &'a Facts, root: Option<&'a str>) -> Self {
        let mut turns = vec![TurnFacts::default()];
        for fact in facts.iter() {
            if let Fact::UserInput(asked) = fact {
                turns.push(TurnFacts {
                    asked: Some(asked),
                    ..TurnFacts::default()
                });
                continue;
            }
            let turn = turns.len() - 1;
            let turn = &mut turns[turn];
            match fact {
                Fact::AssistantText(text) => turn.said.push((turn.deeds.len(), text)),
                Fact::Action(deed) => turn.deeds.push(deed),
                Fact::UserInput(_) => {}
            }
        }
        if turns[0].is_empty() {
            turns.remove(0);
        }
        let mut notes = Self {
            turns,
            failures: Vec::new(),
            passed: Vec::new(),
            root,
        };
        notes.find_failures();
        notes
    }

    pub(crate) fn deeds(&self) -> impl DoubleEndedIterator<Item = &'a Deed> {
        self.turns
            .iter()
            .flat_map(|turn| turn.deeds.iter().copied())
    }

    pub(crate) fn naming(&self) -> PathStyle<'a> {
        PathStyle {
            root: self.root,
            brief: false,
        }
    }

    pub(crate) fn inputs(&self) -> impl DoubleEndedIterator<Item = &'a UserInput> {
        self.turns.iter().filter_map(|turn| turn.asked)
    }

    /// Finds all failures and the actions that followed them.
    fn find_failures(&mut self) {
        let deeds: Vec<&Deed> = self.deeds().collect();
        let mut open: Vec<usize> = Vec::new();
        // A change counts as the fix only if its index is greater than that of the last failure.
        let mut change: Option<(usize, String)> = None;
        for (place, deed) in deeds.into_iter().enumerate() {
            let Some(key) = failure_key(deed) else {
                continue;
            };
            let known = open.iter().position(|at| self.failures[*at].key == key);
            let doing = describe_change(deed, self.root);
            // The first action with another key after a failure is recorded as the reaction to it.
            for at in &open {
                let failure = &mut self.failures[*at];
                if failure.next.is_none() && failure.key != key {
                    failure.next.clone_from(&doing);
                }
            }
            match &deed.outcome {
                // The call was skipped, so it says nothing about the action.
                ActionOutcome::Failed(why) if why.contains(SIBLING_FAILED) => {}
                ActionOutcome::Failed(why) => {
                    self.passed.retain(|passed| *passed != key);
                    if let Some(at) = known {
                        let failure = &mut self.failures[open[at]];
                        failure.times += 1;
                        failure.position = place;
                        failure.why = why;
                    } else {
                        open.push(self.failures.len());
                        self.failures.push(ObservedFailure {
                            action: failed_action(deed, self.root),
                            key,
                            times: 1,
                            position: place,
                            why,
                            next: None,
                            change: None,
                            mended: false,
                        });
                    }
                }
                ActionOutcome::Passed(_) => {
                    if let Some(at) = known {
                        let failure = &mut self.failures[open.remove(at)];
                        failure.mended = true;
                        let later = change.as_ref().filter(|(at, _)| *at > failure.position);
                        failure.change = later.map(|(_, change)| change.clone());
                    }
                    if !self.passed.contains(&key) {
                        self.passed.push(key);
                    }
                }
                ActionOutcome::Open => {}
            }
            if matches!(deed.call.act, Act::Edit | Act::Write) && !deed.failed() {
                change = doing.map(|doing| (place, doing));
            }
        }
    }
}

/// The beginnings of sentences in which the model announces its next action, in lower case.
const ANNOUNCEMENT_STARTS: [&str; 16] = [
    "let me", "let's", "now ", "next i", "now, let", "now, i", "i'll", "i’ll", "i will",
    "i need to", "i should", "next, i", "next, let", "first, i", "first, let", "good, now",
];

/// Returns true if a text begins or ends with an announcement.
pub(super) fn announces(text: &str) -> bool {
    let text = without_label(text).trim();
    let mut all = sentences(text);
    let first = all.next();
    let last = all.last().or(first);
    let is_plan = |sentence: &str| {
        let lower = sentence.to_lowercase();
        ANNOUNCEMENT_STARTS
            .iter()
            .any(|begin| lower.starts_with(begin))
            || lower.contains(", let me ")
    };
    text.ends_with(':') || first.is_some_and(is_plan) || last.is_some_and(is_plan)
}

/// Returns the key by which a later success is matched with a failure. Read-only actions have none,
/// because their failures need no note.
fn failure_key(deed: &Deed) -> Option<String> {
    match deed.call.act {
        Act::Run if shell::is_looking(&deed.call.target) => None,
        Act::Run => Some(shell::family(&deed.call.target)),
        Act::Edit | Act::Write => Some(format!("edit {}", deed.call.target)),
        Act::Read => Some(format!("read {}", deed.call.target)),
        Act::Search | Act::Plan | Act::Delegate => None,
        Act::Fetch => Some(format!("fetch {}", deed.call.target)),
        Act::Other => Some(format!("tool {}", deed.call.tool)),
    }
}

fn failed_action(deed: &Deed, root: Option<&str>) -> FailedAction {
    let target = &deed.call.target;
    let (kind, name) = match deed.call.act {
        Act::Run => (FailedActionKind::Run, label(&shell::tidy(target, 100), 100)),
        Act::Edit | Act::Write => (FailedActionKind::Edit, label(short(target, root), 160)),
        Act::Read => (FailedActionKind::Read, label(short(target, root), 160)),
        Act::Fetch => (FailedActionKind::Fetch, label(target, 160)),
        _ => (FailedActionKind::Tool, label(&deed.call.tool, 80)),
    };
    let name = name.into();
    FailedAction { kind, name }
}

/// Describes the effect of a call on the work. Returns `None` for calls without an effect.
fn describe_change(deed: &Deed, root: Option<&str>) -> Option<String> {
    let target = &deed.call.target;
    match deed.call.act {
        Act::Edit => Some(format!("edited {}", code(short(target, root), 160))),
        Act::Write => Some(format!("wrote {}", code(short(target, root), 160))),
        Act::Run if !shell::is_looking(target) => {
            Some(format!("ran {}", code(&shell::tidy(target, 80), 80)))
        }
        _ => None,
    }
}
