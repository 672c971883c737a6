//! The section of executed commands, ordered by their last run, with the outcome of each.

use std::fmt::Write as _;

use crate::action_outcome::{ActionOutcome, DECLINED};
use crate::facts::Deed;
use crate::lines::{ManagedLine, join, quote_in, read_names, take, write_names};
use crate::notes::{SIBLING_FAILED, Timeline};
use crate::shell;
use crate::text::{count, first_line, label, quoted, times};
use crate::tool_action::Act;

const MAX_LABEL: usize = shell::MAX_COMMAND;
const MAX_SAID: usize = 100;
/// The maximum number of other commands listed beside the last one of a kind, and the maximum length
/// of each in characters. A longer command would have to be cut to little more than its kind.
const MAX_OTHERS: usize = 6;
const MAX_OTHER: usize = 90;
const ALSO: &str = "`, also as `";
/// The maximum number of read-only programs that are named.
const MAX_PROGRAMS: usize = 16;
const MAX_PROGRAM: usize = 30;

/// Tools with which an agent program manages itself or asks its user. Other sections report their
/// results.
const OF_THE_PROGRAM: [&str; 9] = [
    "AskUserQuestion",
    "BashOutput",
    "EnterPlanMode",
    "ExitPlanMode",
    "KillBash",
    "KillShell",
    "TaskOutput",
    "TaskStop",
    "ToolSearch",
];

/// The runs of similar commands.
struct CommandRuns {
    label: String,
    /// Other commands of the same kind, in order of use.
    others: Vec<String>,
    runs: usize,
    failed: usize,
    last: Last,
    /// The output line of the last run, with quotes.
    said: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Passed,
    Failed,
    Open,
}

impl Last {
    const ALL: [Self; 3] = [Self::Passed, Self::Failed, Self::Open];

    const fn words(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Open => "has no result yet",
        }
    }
}

impl ManagedLine for CommandRuns {
    fn read(line: &str) -> Option<Self> {
        let (label, rest) = line.strip_prefix("- `")?.split_once("`: run ")?;
        let (label, others) = label.split_once(ALSO).unwrap_or((label, ""));
        let others = others.split("`, `").filter(|other| !other.is_empty());
        let others: Vec<String> = others.map(Into::into).collect();
        let (often, rest) = rest.split_once(", ")?;
        let (often, failed) = match often.split_once(" (") {
            Some((often, failed)) => (often, failed.strip_suffix(" failed)")?.parse().ok()?),
            None => (often, 0),
        };
        let runs = match often {
            "once" => 1,
            "twice" => 2,
            many => many.strip_suffix(" times")?.parse().ok()?,
        };
        let rest = rest
            .strip_prefix("last ")
            .unwrap_or(rest)
            .strip_suffix('.')?;
        let (last, said) = rest.split_once(": ").unwrap_or((rest, ""));
        // An edited quote or label makes the line a person's own.
        let is_quote = said.is_empty() || quote_in(said, "", "").is_some();
        if !is_quote || label.contains('`') || others.iter().any(|other| other.contains('`')) {
            return None;
        }
        let last = Last::ALL.into_iter().find(|one| one.words() == last)?;
        // The line of a single run states its outcome only once, so the count of failures is
        // derived.
        let failed = if runs == 1 {
            usize::from(last == Last::Failed)
        } else {
            failed
        };
        Some(Self {
            label: label.into(),
            others,
            runs,
            failed,
            last,
            said: said.into(),
        })
    }

    fn write(&self) -> String {
        let mut out = format!("- `{}", self.label);
        if !self.others.is_empty() {
            let _ = write!(out, "{ALSO}{}", self.others.join("`, `"));
        }
        let _ = write!(out, "`: run {}", times(self.runs));
        if self.failed > 0 && self.runs > 1 {
            let _ = write!(out, " ({} failed)", self.failed);
        }
        out.push_str(if self.runs > 1 { ", last " } else { ", " });
        out.push_str(self.last.words());
        if !self.said.is_empty() {
            let _ = write!(out, ": {}", self.said);
        }
        out.push('.');
        out
    }
}

/// Commands that ran once and passed without a notable output.
struct CommandsRunOnce(Vec<String>);

const ONCE_BEGIN: &str = "Run once, without a failure: ";

impl ManagedLine for CommandsRunOnce {
    fn read(line: &str) -> Option<Self> {
        read_names(line, ONCE_BEGIN).map(Self)
    }

    fn write(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|label| &**label).collect();
        write_names(ONCE_BEGIN, &names).join("\n")
    }
}

impl CommandRuns {
    fn once(label: String) -> Self {
        Self {
            label,
            others: Vec::new(),
            runs: 1,
            failed: 0,
            last: Last::Passed,
            said: String::new(),
        }
    }

    /// Returns the commands to list beside a later command of the same kind.
    fn others_than(&self, later: &str) -> Vec<String> {
        let mut others = self.others.clone();
        others.retain(|other| *other != self.label);
        if self.label.chars().count() <= MAX_OTHER {
            others.push(self.label.clone());
        }
        others.retain(|other| other != later);
        others.drain(..others.len().saturating_sub(MAX_OTHERS));
        others
    }

    fn is_plain(&self) -> bool {
        self.runs == 1 && self.last == Last::Passed && self.said.is_empty()
    }
}

/// The number of read-only commands and searches, and the programs used for them.
struct Looking {
    commands: usize,
    searches: usize,
    programs: Vec<String>,
}

impl ManagedLine for Looking {
    fn read(line: &str) -> Option<Self> {
        let numbers = line
            .strip_prefix("Looking around has taken ")?
            .strip_suffix(" so far.")?;
        let (commands, searches) = match numbers.rsplit_once(" and ") {
            Some((commands, searches)) => (commands, searches),
            None if numbers.ends_with(')') => (numbers, "0"),
            None if numbers.contains("search") => ("0", numbers),
            None => (numbers, "0"),
        };
        let (commands, programs) = match commands.split_once(" (`") {
            Some((commands, programs)) => (commands, programs.strip_suffix("`)")?),
            None => (commands, ""),
        };
        let programs = programs.split("`, `").filter(|name| !name.is_empty());
        let number = |text: &str| text.split(' ').next()?.parse().ok();
        Some(Self {
            commands: number(commands)?,
            searches: number(searches)?,
            programs: programs.map(Into::into).collect(),
        })
    }

    fn write(&self) -> String {
        let (commands, searches) = (
            count(self.commands, "command"),
            count(self.searches, "search"),
        );
        let programs = if self.programs.is_empty() {
            String::new()
        } else {
            format!(" (`{}`)", self.programs.join("`, `"))
        };
        let parts = [
            (self.commands, format!("{commands}{programs}")),
            (self.searches, searches),
        ];
        let parts = parts.into_iter().filter(|(number, _)| *number > 0);
        let parts: Vec<String> = parts.map(|(_, part)| part).collect();
        format!("Looking around has taken {} so far.", parts.join(" and "))
    }
}

impl Looking {
    fn take(&mut self, command: &str) {
        self.commands += 1;
        let program = label(&shell::family(command), MAX_PROGRAM);
        if self.programs.len() < MAX_PROGRAMS && !self.programs.contains(&program) {
            self.programs.push(program);
        }
    }
}

pub(super) fn update(body: &str, notes: &Timeline<'_>) -> String {
    // The section's own lines are parsed and removed first. The remaining lines belong to a person
    // or a model.
    let (once, body) = take::<CommandsRunOnce>(body);
    let (commands, body) = take::<CommandRuns>(&body);
    let once = once
        .into_iter()
        .flat_map(|once| once.0)
        .map(CommandRuns::once);
    let mut commands: Vec<CommandRuns> = once.chain(commands).collect();
    let (looked, theirs) = take::<Looking>(&body);
    let mut looking = Looking {
        commands: looked.iter().map(|looked| looked.commands).sum(),
        searches: looked.iter().map(|looked| looked.searches).sum(),
        programs: looked
            .into_iter()
            .flat_map(|looked| looked.programs)
            .collect(),
    };
    for deed in notes.deeds() {
        match deed.call.act {
            Act::Search => looking.searches += 1,
            Act::Run if shell::is_looking(&deed.call.target) => looking.take(&deed.call.target),
            Act::Other if is_of_the_program(deed) => {}
            Act::Run | Act::Other => take_run(&mut commands, deed),
            _ => {}
        }
    }
    let looked = looking.commands + looking.searches > 0;
    let looking = if looked {
        looking.write()
    } else {
        String::new()
    };
    // Commands that passed once share one line, which keeps the section short.
    let (once, commands): (Vec<CommandRuns>, _) =
        commands.into_iter().partition(CommandRuns::is_plain);
    let once = CommandsRunOnce(once.into_iter().map(|command| command.label).collect()).write();
    let commands: Vec<String> = commands.iter().map(ManagedLine::write).collect();
    join([commands.join("\n"), once, looking, theirs])
}

/// Returns true if a call was executed. Calls that a person declined and siblings of a failed call
/// never ran.
pub(super) fn was_run(deed: &Deed) -> bool {
    let was_not_run = |why: &str| why.starts_with(DECLINED) || why.contains(SIBLING_FAILED);
    !matches!(&deed.outcome, ActionOutcome::Failed(why) if was_not_run(why))
}

pub(super) fn is_of_the_program(deed: &Deed) -> bool {
    OF_THE_PROGRAM.contains(&&*deed.call.tool)
}

/// Returns a body without the names that the worklog contains already.
pub(crate) fn beside(body: &str, story: &str) -> String {
    let is_new = |name: &String| !story.contains(&format!("`{name}`"));
    let mut lines: Vec<String> = Vec::new();
    for line in body.lines() {
        let line = if let Some(mut once) = ours::<CommandsRunOnce>(line) {
            once.0.retain(is_new);
            once.write()
        } else if let Some(mut command) = ours::<CommandRuns>(line) {
            command.others.retain(is_new);
            command.write()
        } else {
            line.to_owned()
        };
        // A dropped line must not leave a second blank line.
        let is_gap = line.is_empty() && lines.last().is_none_or(String::is_empty);
        if !is_gap {
            lines.push(line);
        }
    }
    lines.join("\n").trim_end().to_owned()
}

fn ours<T: ManagedLine>(line: &str) -> Option<T> {
    T::read(line).filter(|read| read.write() == line)
}

/// Returns true if this module wrote a line and nobody changed it.
pub(crate) fn is_ours(line: &str) -> bool {
    ours::<CommandRuns>(line).is_some()
        || ours::<CommandsRunOnce>(line).is_some()
        || ours::<Looking>(line).is_some()
}

fn take_run(commands: &mut Vec<CommandRuns>, deed: &Deed) {
    if !was_run(deed) {
        return;
    }
    let name = match deed.call.act {
        Act::Run => label(&shell::tidy(&deed.call.target, MAX_LABEL), MAX_LABEL),
        _ => label(&deed.call.tool, MAX_LABEL),
    };
    let family = shell::family(&name);
    // Similar commands share one entry. The entry moves to the end, because the section is ordered
    // by the last run.
    let known = commands
        .iter()
        .position(|other| shell::family(&other.label) == family);
    let before = known.map(|at| commands.remove(at));
    let others = before
        .as_ref()
        .map_or_else(Vec::new, |before| before.others_than(&name));
    let (last, said) = match &deed.outcome {
        ActionOutcome::Open => (Last::Open, ""),
        ActionOutcome::Passed(said) => (Last::Passed, &**said),
        ActionOutcome::Failed(why) => (Last::Failed, &**why),
    };
    commands.push(CommandRuns {
        label: name,
        others,
        runs: before.as_ref().map_or(0, |before| before.runs) + 1,
        failed: before.as_ref().map_or(0, |before| before.failed)
            + usize::from(last == Last::Failed),
        last,
        said: if said.is_empty() {
            String::new()
        } else {
            quoted(first_line(said), MAX_SAID)
        },
    });
}
