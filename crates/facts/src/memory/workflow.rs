//! The section of executed commands, ordered by their last run, with the outcome of each.

use super::fact::{CommandRuns, Exploration, MemoryFact, RunOutcome};
use super::render::render;
use super::section::{join, listed, take};
use crate::action_outcome::{ActionOutcome, DECLINED};
use crate::facts::CompletedAction;
use crate::shell;
use crate::text::{first_line, label, quote};
use crate::timeline::{SIBLING_FAILED, Timeline};
use crate::tool_action::ActionKind;

const MAX_LABEL: usize = shell::MAX_COMMAND;
const MAX_SAID: usize = 100;
/// The maximum number of other commands listed beside the last one of a kind, and the maximum length
/// of each in characters. A longer command would have to be cut to little more than its kind.
const MAX_OTHERS: usize = 6;
const MAX_OTHER: usize = 90;
/// The maximum number of read-only programs that are named.
const MAX_PROGRAMS: usize = 16;
const MAX_PROGRAM: usize = 30;

/// Tools with which an agent program manages itself or asks its user. Other sections report their
/// results.
const OF_THE_PROGRAM: [&str; 9] = [
    "AskUserQuestion", "BashOutput", "EnterPlanMode", "ExitPlanMode", "KillBash", "KillShell",
    "TaskOutput", "TaskStop", "ToolSearch",
];

impl CommandRuns {
    fn once(command: Box<str>) -> Self {
        Self {
            command,
            others: Vec::new(),
            runs: 1,
            failed: 0,
            last: RunOutcome::Passed,
            output: Box::default(),
        }
    }

    /// Returns the commands to list beside a later command of the same kind.
    fn others_than(&self, later: &str) -> Vec<Box<str>> {
        let mut others = self.others.clone();
        // A command is listed once, at its latest use.
        others.retain(|other| *other != self.command);
        if self.command.chars().count() <= MAX_OTHER {
            others.push(self.command.clone());
        }
        others.retain(|other| **other != *later);
        others.drain(..others.len().saturating_sub(MAX_OTHERS));
        others
    }

    fn is_plain(&self) -> bool {
        self.runs == 1 && self.last == RunOutcome::Passed && self.output.is_empty()
    }
}

impl Exploration {
    fn take(&mut self, command: &str) {
        self.commands += 1;
        let program: Box<str> = label(&shell::family(command), MAX_PROGRAM).into();
        if self.programs.len() < MAX_PROGRAMS && !self.programs.contains(&program) {
            self.programs.push(program);
        }
    }
}

pub(super) fn update(facts: Vec<MemoryFact>, timeline: &Timeline<'_>) -> Vec<MemoryFact> {
    let (once, facts) = take(facts, |fact| match fact {
        MemoryFact::CommandsRunOnce(commands) => Ok(commands),
        fact => Err(fact),
    });
    let (known, facts) = take(facts, |fact| match fact {
        MemoryFact::CommandRuns(runs) => Ok(runs),
        fact => Err(fact),
    });
    let (explored, theirs) = take(facts, |fact| match fact {
        MemoryFact::Exploration(exploration) => Ok(exploration),
        fact => Err(fact),
    });
    // The commands of the shared line become entries again, because a further run gives a command its own line.
    let once = once.into_iter().flatten().map(CommandRuns::once);
    let mut commands: Vec<CommandRuns> = once.chain(known).collect();
    let mut exploration = explored.into_iter().next().unwrap_or_default();
    for action in timeline.actions() {
        match action.call.kind {
            ActionKind::Search => exploration.searches += 1,
            ActionKind::Run if shell::is_read_only(&action.call.target) => {
                exploration.take(&action.call.target);
            }
            ActionKind::Other if is_of_the_program(action) => {}
            ActionKind::Run | ActionKind::Other => take_run(&mut commands, action),
            _ => {}
        }
    }
    let has_explored = exploration.commands + exploration.searches > 0;
    let exploration = has_explored.then_some(MemoryFact::Exploration(exploration));
    // Commands that passed once share one line, which keeps the section short.
    let (once, commands): (Vec<CommandRuns>, _) =
        commands.into_iter().partition(CommandRuns::is_plain);
    let once: Vec<Box<str>> = once.into_iter().map(|runs| runs.command).collect();
    join([
        commands.into_iter().map(MemoryFact::CommandRuns).collect(),
        listed(&once, MemoryFact::CommandsRunOnce),
        exploration.into_iter().collect(),
        theirs,
    ])
}

/// Returns true if a call was executed. Calls that a person declined and siblings of a failed call
/// never ran.
pub(super) fn is_executed(action: &CompletedAction) -> bool {
    let was_not_run = |why: &str| why.starts_with(DECLINED) || why.contains(SIBLING_FAILED);
    !matches!(&action.outcome, ActionOutcome::Failed(why) if was_not_run(why))
}

pub(super) fn is_of_the_program(action: &CompletedAction) -> bool {
    OF_THE_PROGRAM.contains(&&*action.call.tool)
}

/// Renders a section without the commands that the worklog contains already.
pub(crate) fn shortened_for<'a>(
    facts: impl IntoIterator<Item = &'a MemoryFact>,
    story: &str,
) -> String {
    let is_new = |name: &str| !story.contains(&format!("`{name}`"));
    let mut lines: Vec<String> = Vec::new();
    for fact in facts {
        let line = match fact.clone() {
            MemoryFact::CommandsRunOnce(mut commands) => {
                commands.retain(|name| is_new(name));
                if commands.is_empty() {
                    String::new()
                } else {
                    render(&MemoryFact::CommandsRunOnce(commands))
                }
            }
            MemoryFact::CommandRuns(mut runs) => {
                runs.others.retain(|name| is_new(name));
                render(&MemoryFact::CommandRuns(runs))
            }
            fact => render(&fact),
        };
        // A dropped line must not leave a second blank line.
        let is_gap = line.is_empty() && lines.last().is_none_or(String::is_empty);
        if !is_gap {
            lines.push(line);
        }
    }
    lines.join("\n").trim_end().to_owned()
}

fn take_run(commands: &mut Vec<CommandRuns>, action: &CompletedAction) {
    if !is_executed(action) {
        return;
    }
    let name = match action.call.kind {
        ActionKind::Run => label(&shell::normalize(&action.call.target, MAX_LABEL), MAX_LABEL),
        _ => label(&action.call.tool, MAX_LABEL),
    };
    let family = shell::family(&name);
    // Similar commands share one entry. The entry moves to the end, because the section is ordered
    // by the last run.
    let known = commands
        .iter()
        .position(|other| shell::family(&other.command) == family);
    let before = known.map(|at| commands.remove(at));
    let others = before
        .as_ref()
        .map_or_else(Vec::new, |before| before.others_than(&name));
    let (last, output) = match &action.outcome {
        ActionOutcome::Open => (RunOutcome::Open, ""),
        ActionOutcome::Passed(said) => (RunOutcome::Passed, &**said),
        ActionOutcome::Failed(why) => (RunOutcome::Failed, &**why),
    };
    commands.push(CommandRuns {
        command: name.into(),
        others,
        runs: before.as_ref().map_or(0, |before| before.runs) + 1,
        failed: before.as_ref().map_or(0, |before| before.failed)
            + u32::from(last == RunOutcome::Failed),
        last,
        output: quote(first_line(output), MAX_SAID).into(),
    });
}
