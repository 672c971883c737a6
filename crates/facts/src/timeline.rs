//! A timeline of facts: turns, and failures with the actions that followed them.

use super::action_outcome::ActionOutcome;
use super::facts::{CompletedAction, Fact, Facts, UserInput};
use super::memory::fact::{FailedAction, FailedActionKind};
use super::paths::relative_path;
use super::phrases::PathStyle;
use super::shell;
use super::text::{code, label, sentences, without_label};
use super::tool_action::ActionKind;

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
    pub(crate) actions: Vec<&'a CompletedAction>,
    /// The statements of the model, each with the number of preceding calls.
    pub(crate) statements: Vec<(usize, &'a str)>,
}

/// A failed action.
pub(crate) struct ObservedFailure<'a> {
    pub(crate) action: FailedAction,
    pub(crate) key: String,
    pub(crate) times: u32,
    /// The latest error text of the tool.
    pub(crate) reason: &'a str,
    /// The action that followed the failure.
    pub(crate) next: Option<String>,
    /// The last change before the action succeeded.
    pub(crate) change: Option<String>,
    pub(crate) resolved: bool,
    /// The index of the last failed call.
    position: usize,
}

impl<'a> TurnFacts<'a> {
    /// Returns the model's statement after its last call. Returns `None` if the statement announces
    /// further work.
    pub(crate) fn answer(&self) -> Option<&'a str> {
        let (done, text) = self.statements.last()?;
        (*done == self.actions.len() && !announces(text)).then_some(text)
    }

    pub(crate) fn last_words(&self) -> Option<&'a str> {
        self.statements.last().map(|(_, text)| *text)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.statements.is_empty()
    }
}

impl<'a> Timeline<'a> {
    /// Arranges facts in turns. `root` is the directory to which paths are relative.
    pub(crate) fn of(facts: &'a Facts, root: Option<&'a str>) -> Self {
        // The facts before the first input belong to a turn that an earlier update began.
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
                Fact::AssistantText(text) => turn.statements.push((turn.actions.len(), text)),
                Fact::Action(action) => turn.actions.push(action),
                Fact::UserInput(_) => {}
            }
        }
        if turns[0].is_empty() {
            turns.remove(0);
        }
        let mut timeline = Self {
            turns,
            failures: Vec::new(),
            passed: Vec::new(),
            root,
        };
        timeline.find_failures();
        timeline
    }

    pub(crate) fn actions(&self) -> impl DoubleEndedIterator<Item = &'a CompletedAction> {
        self.turns
            .iter()
            .flat_map(|turn| turn.actions.iter().copied())
    }

    pub(crate) fn path_style(&self) -> PathStyle<'a> {
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
        let actions: Vec<&CompletedAction> = self.actions().collect();
        let mut open: Vec<usize> = Vec::new();
        // A change counts as the fix only if its index is greater than that of the last failure.
        let mut change: Option<(usize, String)> = None;
        for (position, action) in actions.into_iter().enumerate() {
            let Some(key) = failure_key(action) else {
                continue;
            };
            let known = open.iter().position(|at| self.failures[*at].key == key);
            let doing = describe_change(action, self.root);
            // The first action with another key after a failure is recorded as the reaction to it.
            for at in &open {
                let failure = &mut self.failures[*at];
                if failure.next.is_none() && failure.key != key {
                    failure.next.clone_from(&doing);
                }
            }
            match &action.outcome {
                // The call was skipped, so it says nothing about the action.
                ActionOutcome::Failed(reason) if reason.contains(SIBLING_FAILED) => {}
                ActionOutcome::Failed(reason) => {
                    // Only the outcome of the latest run counts.
                    self.passed.retain(|passed| *passed != key);
                    if let Some(at) = known {
                        let failure = &mut self.failures[open[at]];
                        failure.times += 1;
                        failure.position = position;
                        failure.reason = reason;
                    } else {
                        open.push(self.failures.len());
                        self.failures.push(ObservedFailure {
                            action: failed_action(action, self.root),
                            key,
                            times: 1,
                            position,
                            reason,
                            next: None,
                            change: None,
                            resolved: false,
                        });
                    }
                }
                ActionOutcome::Passed(_) => {
                    if let Some(at) = known {
                        let failure = &mut self.failures[open.remove(at)];
                        failure.resolved = true;
                        let later = change.as_ref().filter(|(at, _)| *at > failure.position);
                        failure.change = later.map(|(_, change)| change.clone());
                    }
                    if !self.passed.contains(&key) {
                        self.passed.push(key);
                    }
                }
                ActionOutcome::Open => {}
            }
            if matches!(action.call.kind, ActionKind::Edit | ActionKind::Write)
                && !action.has_failed()
            {
                change = doing.map(|doing| (position, doing));
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
fn failure_key(action: &CompletedAction) -> Option<String> {
    match action.call.kind {
        ActionKind::Run if shell::is_read_only(&action.call.target) => None,
        ActionKind::Run => Some(shell::family(&action.call.target)),
        // The key has the path of the call, because the root can change before a later update finds the success.
        ActionKind::Edit | ActionKind::Write => Some(format!("edit {}", action.call.target)),
        ActionKind::Read => Some(format!("read {}", action.call.target)),
        ActionKind::Search | ActionKind::Plan | ActionKind::Delegate => None,
        ActionKind::Fetch => Some(format!("fetch {}", action.call.target)),
        ActionKind::Other => Some(format!("tool {}", action.call.tool)),
    }
}

fn failed_action(action: &CompletedAction, root: Option<&str>) -> FailedAction {
    let target = &action.call.target;
    let (kind, name) = match action.call.kind {
        ActionKind::Run => (
            FailedActionKind::Run,
            label(&shell::normalize(target, 100), 100),
        ),
        ActionKind::Edit | ActionKind::Write => (
            FailedActionKind::Edit,
            label(relative_path(target, root), 160),
        ),
        ActionKind::Read => (
            FailedActionKind::Read,
            label(relative_path(target, root), 160),
        ),
        ActionKind::Fetch => (FailedActionKind::Fetch, label(target, 160)),
        _ => (FailedActionKind::Tool, label(&action.call.tool, 80)),
    };
    let name = name.into();
    FailedAction { kind, name }
}

/// Describes the effect of a call on the work. Returns `None` for calls without an effect.
fn describe_change(action: &CompletedAction, root: Option<&str>) -> Option<String> {
    let target = &action.call.target;
    match action.call.kind {
        ActionKind::Edit => Some(format!("edited {}", code(relative_path(target, root), 160))),
        ActionKind::Write => Some(format!("wrote {}", code(relative_path(target, root), 160))),
        ActionKind::Run if !shell::is_read_only(target) => {
            Some(format!("ran {}", code(&shell::normalize(target, 80), 80)))
        }
        _ => None,
    }
}
