//! The worklog section: one line per turn, followed by the steps of the turn. A turn that continues
//! after an update keeps its line.

use std::fmt::Write as _;

use crate::lines::{ManagedLine, between, join};
use crate::memory::story;
use crate::memory::story::ActivityStep;
use crate::memory::task::name_of;
use crate::notes::{Timeline, TurnFacts};
use crate::shell;
use crate::steps::short;
use crate::text::{code, count, gist, list, quoted};
use crate::tool_action::Act;

const MAX_FILES: usize = 4;
const MAX_ASKED: usize = 90;
const MAX_ENDED: usize = 140;
/// The text for a turn without tool calls.
const WORDS_ALONE: &str = "no call of a tool";
/// The suffix if not all files are named.
const OTHERS: &str = " and others";
const WENT_ON: &str = "The work went on";

/// The number of actions of a turn, by kind.
#[derive(Default, PartialEq, Eq, Clone, Copy)]
struct TurnCounts {
    reads: usize,
    edits: usize,
    runs: usize,
    failed: usize,
    others: usize,
}

/// The worklog line of a turn.
struct WorklogEntry {
    /// The request in quotes, or `WENT_ON`.
    asked: String,
    tally: TurnCounts,
    /// The changed files in backticks, latest first.
    files: Vec<String>,
    /// True if the turn changed further files.
    more: bool,
    /// The final statement of the turn in quotes. `None` while the turn is in progress.
    ended: Option<String>,
}

impl ManagedLine for WorklogEntry {
    fn read(line: &str) -> Option<Self> {
        let inner = line.strip_prefix("- ")?.strip_suffix('.')?;
        let (asked, rest) = if let Some(rest) = inner.strip_prefix(WENT_ON) {
            (WENT_ON.to_owned(), rest)
        } else {
            let (asked, rest) = inner.strip_prefix('“')?.split_once('”')?;
            (format!("“{asked}”"), rest)
        };
        let rest = between(rest, ": ", "")?;
        let (rest, ended) = match rest.split_once("; it ended with ") {
            Some((rest, ended)) => (rest, Some(ended.to_owned())),
            None => (rest, None),
        };
        let (numbers, files) = rest
            .split_once(" to ")
            .map_or((rest, ""), |(numbers, after)| {
                // The list of files ends at the next number or at the end of the line.
                let end = after.find("; then ").unwrap_or(after.len());
                (numbers, &after[..end])
            });
        let after = rest.split_once("; then ").map_or("", |(_, after)| after);
        let (files, more) = match files.strip_suffix(OTHERS) {
            Some(files) => (files, true),
            None => (files, false),
        };
        let names = files.split('`').skip(1).step_by(2);
        let names = names.map(|name| format!("`{name}`")).collect();
        let mut tally = TurnCounts::default();
        for part in numbers
            .split(", ")
            .chain(after.split(", "))
            .filter(|part| !part.is_empty() && *part != WORDS_ALONE)
        {
            let (number, thing) = part.split_once(' ')?;
            let number = number.parse().ok()?;
            let thing = thing.split_once(" (").map_or(thing, |(thing, failed)| {
                tally.failed = failed
                    .split(' ')
                    .next()
                    .and_then(|n| n.parse().ok())
                    .unwrap_or(0);
                thing
            });
            match thing {
                "read" | "reads" => tally.reads = number,
                "change" | "changes" => tally.edits = number,
                "run" | "runs" => tally.runs = number,
                "other call" | "other calls" => tally.others = number,
                _ => return None,
            }
        }
        Some(Self {
            asked,
            tally,
            files: names,
            more,
            ended,
        })
    }

    fn write(&self) -> String {
        let TurnCounts {
            reads,
            edits,
            runs,
            failed,
            others,
        } = self.tally;
        let mut before = Vec::new();
        if reads > 0 {
            before.push(count(reads, "read"));
        }
        if edits > 0 {
            let to = match (self.files.is_empty(), self.more) {
                (true, _) => String::new(),
                (false, false) => format!(" to {}", list(&self.files, MAX_FILES)),
                (false, true) => format!(" to {}{OTHERS}", self.files.join(", ")),
            };
            before.push(format!("{}{to}", count(edits, "change")));
        }
        let mut after = Vec::new();
        if runs > 0 {
            let of_which = if failed > 0 {
                format!(" ({failed} failed)")
            } else {
                String::new()
            };
            after.push(format!("{}{of_which}", count(runs, "run")));
        }
        if others > 0 {
            after.push(count(others, "other call"));
        }
        // The separator depends on the list of files, so that the line can be parsed again.
        let joint = if edits > 0 && !self.files.is_empty() && !after.is_empty() {
            "; then "
        } else {
            ", "
        };
        let (before, after) = (before.join(", "), after.join(", "));
        let numbers = match (before.is_empty(), after.is_empty()) {
            (true, true) => WORDS_ALONE.to_owned(),
            (false, false) => format!("{before}{joint}{after}"),
            _ => before + &after,
        };
        let mut out = format!("- {}: {numbers}", self.asked);
        if let Some(ended) = &self.ended {
            let _ = write!(out, "; it ended with {ended}");
        }
        out.push('.');
        out
    }
}

impl WorklogEntry {
    fn of(turn: &TurnFacts<'_>, root: Option<&str>) -> Self {
        let mut tally = TurnCounts::default();
        let mut files: Vec<String> = Vec::new();
        for deed in &turn.deeds {
            match deed.call.act {
                Act::Read | Act::Search | Act::Fetch => tally.reads += 1,
                Act::Run if shell::is_looking(&deed.call.target) => tally.reads += 1,
                Act::Edit | Act::Write if !deed.failed() => {
                    tally.edits += 1;
                    // The word ` to ` separates numbers and files in the line, so a name must not
                    // contain it.
                    let name = code(short(&deed.call.target, root), 80).replace(" to ", " ");
                    files.retain(|other| *other != name);
                    files.push(name);
                }
                Act::Run => {
                    tally.runs += 1;
                    tally.failed += usize::from(deed.failed());
                }
                Act::Delegate | Act::Other => tally.others += 1,
                Act::Edit | Act::Write | Act::Plan => {}
            }
        }
        // The latest file comes first, because only the first few are named.
        files.reverse();
        let more = files.len() > MAX_FILES;
        files.truncate(MAX_FILES);
        Self {
            asked: turn.asked.map_or_else(
                || WENT_ON.into(),
                |asked| quoted(&name_of(&asked.words), MAX_ASKED),
            ),
            tally,
            files,
            more,
            ended: turn
                .answer()
                .map(|answer| quoted(&gist(answer, MAX_ENDED), MAX_ENDED)),
        }
    }

    fn go_on(&mut self, later: Self) {
        let (a, b) = (&mut self.tally, later.tally);
        a.reads += b.reads;
        a.edits += b.edits;
        a.runs += b.runs;
        a.failed += b.failed;
        a.others += b.others;
        let before = std::mem::replace(&mut self.files, later.files);
        let earlier = before.into_iter().filter(|name| !self.files.contains(name));
        self.files.extend(earlier.collect::<Vec<_>>());
        self.more |= later.more || self.files.len() > MAX_FILES;
        self.files.truncate(MAX_FILES);
        self.ended = later.ended;
    }
}

pub(super) fn update(body: &str, notes: &Timeline<'_>) -> String {
    let mut lines: Vec<String> = body.lines().map(Into::into).collect();
    for turn in &notes.turns {
        let entry = WorklogEntry::of(turn, notes.root);
        match going_on(&lines) {
            Some((at, mut last)) if turn.asked.is_none() => {
                last.go_on(entry);
                lines[at] = last.write();
            }
            _ => {
                // A trailing statement is either the answer of its turn or was not followed by any
                // action.
                if lines
                    .last()
                    .and_then(|line| ActivityStep::of_line(line))
                    .is_some_and(|step| step.is_words_alone())
                {
                    lines.pop();
                }
                lines.push(entry.write());
            }
        }
        story::tell(&mut lines, turn, notes.root);
    }
    story::fit(&mut lines);
    join([lines.join("\n")])
}

fn entry(line: &str) -> Option<WorklogEntry> {
    WorklogEntry::read(line).filter(|entry| entry.write() == line)
}

/// Returns the last turn and its line index if only its steps follow.
fn going_on(lines: &[String]) -> Option<(usize, WorklogEntry)> {
    let at = lines
        .iter()
        .rposition(|line| ActivityStep::of_line(line).is_none())?;
    Some((at, entry(&lines[at])?))
}

/// Returns true if this module wrote a line and nobody changed it.
pub(crate) fn is_ours(line: &str) -> bool {
    entry(line).is_some() || ActivityStep::of_line(line).is_some()
}

/// Returns the turns with steps or actions, without their final statements. The results section
/// contains the final statements.
pub(crate) fn told(body: &str) -> String {
    let lines: Vec<&str> = body
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let mut out: Vec<String> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let next = lines.get(at + 1).map(|next| ActivityStep::of_line(next));
        match entry(line) {
            Some(mut entry) => {
                entry.ended = None;
                if matches!(next, Some(Some(_))) || entry.tally != TurnCounts::default() {
                    out.push(entry.write());
                }
            }
            // A trailing statement is the answer, which the results section contains.
            None if next.is_none()
                && ActivityStep::of_line(line).is_some_and(|step| step.is_words_alone()) => {}
            None => out.push((*line).to_owned()),
        }
    }
    out.join("\n")
}
