//! The section of errors: failures, the actions that followed, and their final outcome.

use std::fmt::Write as _;

use crate::action_outcome::DECLINED;
use crate::lessons::{Lesson, lessons};
use crate::lines::{ManagedLine, join};
use crate::notes::{ObservedFailure, Timeline, key_of_note};
use crate::text::{first_line, outside_of_quotes, quoted, times};

const MAX_WHY: usize = 200;

/// A failure as a line of the section.
struct Failing {
    what: String,
    times: usize,
    /// The error text of the tool, in quotes.
    why: String,
    next: Option<String>,
    end: FailureState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FailureState {
    Open,
    Passed,
}

impl FailureState {
    const fn words(self) -> &'static str {
        match self {
            Self::Open => "it has not passed since.",
            Self::Passed => "it passed afterwards.",
        }
    }
}

impl ManagedLine for Failing {
    fn read(line: &str) -> Option<Self> {
        let (what, rest) = line
            .split_once(" failed ")
            .filter(|(what, _)| what.contains('`'))?;
        let (often, rest) = rest.split_once(", saying “")?;
        let times = match often {
            "once" => 1,
            "twice" => 2,
            many => many.strip_suffix(" times")?.parse().ok()?,
        };
        let (why, rest) = rest.split_once("”. ")?;
        let end = [FailureState::Open, FailureState::Passed]
            .into_iter()
            .find(|end| rest.ends_with(&end.words()[1..]))?;
        let next = rest.strip_suffix(end.words()).and_then(|rest| {
            rest.strip_prefix("The assistant then ")?
                .strip_suffix(", and ")
        });
        if next.is_none() && !rest.starts_with('I')
            || outside_of_quotes(next.unwrap_or_default())?.contains(". ")
        {
            return None;
        }
        Some(Self {
            what: what.into(),
            times,
            why: format!("“{why}”"),
            next: next.map(Into::into),
            end,
        })
    }

    fn write(&self) -> String {
        let mut out = format!(
            "{} failed {}, saying {}. ",
            self.what,
            times(self.times),
            self.why
        );
        let end = self.end.words();
        match &self.next {
            Some(next) => {
                let _ = write!(out, "The assistant then {next}, and {end}");
            }
            None => {
                let _ = write!(out, "I{}", &end[1..]);
            }
        }
        out
    }
}

impl Failing {
    fn new(failure: &ObservedFailure<'_>) -> Self {
        Self {
            what: failure.what.clone(),
            times: failure.times,
            why: quoted(first_line(failure.why), MAX_WHY),
            next: failure
                .change
                .clone()
                .filter(|_| failure.mended)
                .or_else(|| failure.next.clone()),
            end: if failure.mended {
                FailureState::Passed
            } else {
                FailureState::Open
            },
        }
    }
}

pub(super) fn update(body: &str, notes: &Timeline<'_>) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut begun: Vec<usize> = Vec::new();
    for line in body.lines() {
        let open = Failing::read(line)
            .filter(|read| read.write() == line && read.end == FailureState::Open);
        let Some(mut failing) = open else {
            lines.push(line.into());
            continue;
        };
        // An open failure of the document is continued by a new failure or success with the same
        // key.
        let key = key_of_note(&failing.what, notes.root);
        let again = notes
            .failures
            .iter()
            .enumerate()
            .find(|(_, new)| Some(&new.key) == key.as_ref());
        if let Some((at, new)) = again {
            begun.push(at);
            failing.times += new.times;
            failing.why = quoted(first_line(new.why), MAX_WHY);
            failing.next = Failing::new(new).next.or(failing.next);
            failing.end = if new.mended {
                FailureState::Passed
            } else {
                FailureState::Open
            };
        } else if key.is_some_and(|key| notes.passed.contains(&key)) {
            failing.end = FailureState::Passed;
        }
        lines.push(failing.write());
    }
    let mut parts = vec![lines.join("\n")];
    for (at, failure) in notes.failures.iter().enumerate() {
        // Failures that continue an existing line are part of that line already.
        if !begun.contains(&at) && is_worth_a_note(failure) {
            let line = line_of(failure);
            if !body.contains(&line) {
                parts.push(line);
            }
        }
    }
    for asked in notes.inputs() {
        for (lesson, sentence) in lessons(&asked.words) {
            let line = format!(
                "The user corrected the assistant: {}.",
                quoted(sentence, 300)
            );
            if lesson == Lesson::Correction && !body.contains(&line) {
                parts.push(line);
            }
        }
    }
    join(parts)
}

/// Writes the line of a failure. A rejection by the user is not reported as a failure of the work.
fn line_of(failure: &ObservedFailure<'_>) -> String {
    match failure.why.strip_prefix(DECLINED) {
        Some("") => format!("The user declined {}.", failure.what),
        Some(why) => {
            let why = quoted(why.trim_start_matches(':').trim(), MAX_WHY);
            format!("The user declined {}, saying {why}.", failure.what)
        }
        None => Failing::new(failure).write(),
    }
}

/// Returns true if a failure deserves a note. An edit that succeeded after one or two attempts does
/// not.
fn is_worth_a_note(failure: &ObservedFailure<'_>) -> bool {
    let is_command = failure.what.starts_with('`');
    is_command || !failure.mended || failure.change.is_some() || failure.times > 2
}

/// Returns the commands that failed last and have not passed since, latest first. Edits are
/// excluded, because a failed edit is usually replaced by a different one.
pub(super) fn failing(body: &str) -> Vec<String> {
    let lines = body.lines().rev().filter_map(|line| {
        let failing = Failing::read(line).filter(|read| read.write() == line)?;
        let was_run = failing.what.starts_with('`') && !failing.why[3..].starts_with(DECLINED);
        (failing.end == FailureState::Open && was_run).then_some(failing.what)
    });
    lines.collect()
}
