//! The steps of a turn in the worklog: the model's statements, and the actions that followed each.
//! The statements are quoted, because only the model can explain its actions.

use std::fmt::Write as _;

use palimpsest_types::tokens::estimate_text;

use super::workflow::{is_of_the_program, was_run};
use crate::facts::Deed;
use crate::lines::ManagedLine;
use crate::notes::{TurnFacts, announces};
use crate::shell;
use crate::shell::MAX_COMMAND;
use crate::steps::short;
use crate::text::{clip, gist, label, quoted, sentences, without_label};
use crate::tool_action::Act;

const MAX_SAID: usize = 220;
const MAX_PATH: usize = 160;
/// The maximum number of names in one sentence. Further names start a new step.
const MAX_NAMES: usize = 8;
/// The maximum number of files named as read before an action. The section of files lists all of
/// them.
const MAX_READS: usize = 3;
/// The token limits for the lines of the section and, as a minimum, for its steps. Half of the limit
/// belongs to the latest steps. Earlier steps are shortened, and the oldest are dropped.
const MAX_TOKENS: u32 = 2_000;
const MIN_TOKENS: u32 = 1_500;
const MAX_SAID_EARLY: usize = 70;
/// The minimum length of an announcement in characters. A shorter one adds nothing to the action
/// that follows.
const MIN_ANNOUNCED: usize = 70;
const MIN_LAST: usize = 40;
const LEAD: &str = "The assistant";
const FAILED: &str = " (failed)";

/// A statement of the model and the actions until its next statement.
#[derive(Default)]
pub(super) struct ActivityStep {
    /// The statement without quotes.
    said: String,
    did: Vec<ActionGroup>,
}

/// Consecutive actions of the same kind.
struct ActionGroup {
    verb: &'static str,
    /// The names of the targets. The flag is true if the action failed.
    names: Vec<(String, bool)>,
}

const READ: &str = "read";
const LOOKED: &str = "looked with";
const VERBS: [&str; 8] = [
    "edited",
    "wrote",
    "ran",
    LOOKED,
    "looked up",
    "handed on",
    "called",
    READ,
];

impl ManagedLine for ActivityStep {
    fn read(line: &str) -> Option<Self> {
        let rest = line.strip_prefix(LEAD)?;
        let (said, did) = match rest.strip_prefix(": “") {
            Some(rest) => {
                let (said, rest) = rest.split_once('”')?;
                let did = if rest.is_empty() {
                    ""
                } else {
                    rest.strip_prefix(" It ")?
                };
                (said.to_owned(), did)
            }
            None => (String::new(), rest.strip_prefix(' ')?),
        };
        let mut step = Self {
            said,
            did: Vec::new(),
        };
        // Splitting at backticks yields the names at odd positions and the joining text at even
        // positions.
        let mut parts = did.split('`');
        let mut joint = parts.next().unwrap_or_default();
        while let Some(name) = parts.next() {
            if joint != ", " {
                let verb = joint.strip_prefix("; ").unwrap_or(joint);
                let verb = VERBS
                    .into_iter()
                    .find(|one| verb.strip_suffix(' ') == Some(one))?;
                step.did.push(ActionGroup {
                    verb,
                    names: Vec::new(),
                });
            }
            let after = parts.next()?;
            let failed = after.starts_with(FAILED);
            joint = after.strip_prefix(FAILED).unwrap_or(after);
            step.did.last_mut()?.names.push((name.to_owned(), failed));
        }
        Some(step)
    }

    fn write(&self) -> String {
        let mut out = LEAD.to_owned();
        if !self.said.is_empty() {
            let _ = write!(out, ": “{}”", self.said);
        }
        for (at, done) in self.did.iter().enumerate() {
            out.push_str(match (at, self.said.is_empty()) {
                (0, true) => " ",
                (0, false) => " It ",
                _ => "; ",
            });
            out.push_str(done.verb);
            for (at, (name, failed)) in done.names.iter().enumerate() {
                let joint = if at == 0 { " " } else { ", " };
                let mark = if *failed { FAILED } else { "" };
                let _ = write!(out, "{joint}`{name}`{mark}");
            }
        }
        if !self.did.is_empty() {
            out.push('.');
        }
        out
    }
}

impl ActivityStep {
    /// Parses a line that this module wrote. Returns `None` if an edit changed its form.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        Self::read(line).filter(|step| step.write() == line)
    }

    fn says(text: &str) -> Option<Self> {
        let said = quoted(&gist(worth_telling(text)?, MAX_SAID), MAX_SAID);
        let said = said.trim_start_matches('“').trim_end_matches('”');
        (!said.is_empty()).then(|| Self {
            said: said.to_owned(),
            did: Vec::new(),
        })
    }

    /// Returns a shortened copy for an early step. Omits reads, and announcements without an action.
    fn shortened(self) -> Option<Self> {
        let mut step = Self {
            said: clip(&self.said, MAX_SAID_EARLY),
            did: Vec::new(),
        };
        for done in self.did {
            if ![READ, LOOKED].contains(&done.verb) {
                for (name, failed) in done.names {
                    step.take(done.verb, name, failed);
                }
            }
        }
        let is_empty = self.said.is_empty() || announces(&self.said);
        (!step.did.is_empty() || !is_empty).then_some(step)
    }

    /// Returns true if the step contains no action.
    pub(super) fn is_words_alone(&self) -> bool {
        self.did.is_empty()
    }

    fn is_full(&self) -> bool {
        let names: usize = self.did.iter().map(|done| done.names.len()).sum();
        names >= MAX_NAMES
    }

    fn take(&mut self, verb: &'static str, name: String, failed: bool) {
        match self.did.last_mut() {
            Some(last) if last.verb == verb => {
                let name = (name, failed);
                let is_full = verb == READ && last.names.len() == MAX_READS;
                if !is_full && !last.names.contains(&name) {
                    last.names.push(name);
                }
            }
            _ => self.did.push(ActionGroup {
                verb,
                names: vec![(name, failed)],
            }),
        }
    }
}

/// Returns the verb and the name for an action. Returns `None` if other sections cover the action.
fn told(deed: &Deed, root: Option<&str>) -> Option<(&'static str, String)> {
    let target = &deed.call.target;
    let path = || label(short(target, root), MAX_PATH);
    let command = || label(&shell::tidy(target, MAX_COMMAND), MAX_COMMAND);
    let (verb, name) = match deed.call.act {
        Act::Edit if !deed.failed() => (VERBS[0], path()),
        Act::Write if !deed.failed() => (VERBS[1], path()),
        Act::Run if !was_run(deed) => return None,
        Act::Run if shell::is_looking(target) => (LOOKED, command()),
        Act::Read if !deed.failed() => (READ, path()),
        Act::Run => (VERBS[2], command()),
        Act::Fetch => (VERBS[4], path()),
        Act::Delegate => (VERBS[5], path()),
        Act::Other if was_run(deed) && !is_of_the_program(deed) => {
            (VERBS[6], label(&deed.call.tool, 80))
        }
        _ => return None,
    };
    (!name.is_empty()).then_some((verb, name))
}

/// Appends the steps of a turn to `lines`. Extends the last step if it is not full.
pub(super) fn tell(lines: &mut Vec<String>, turn: &TurnFacts<'_>, root: Option<&str>) {
    let mut said = turn.said.iter().peekable();
    for at in 0..=turn.deeds.len() {
        while let Some((_, text)) = said.next_if(|(before, _)| *before <= at) {
            if let Some(step) = ActivityStep::says(text) {
                forget_announcement(lines);
                lines.push(step.write());
            }
        }
        let Some(deed) = turn.deeds.get(at) else {
            continue;
        };
        let Some((verb, name)) = told(deed, root) else {
            continue;
        };
        // An update may end within a step, so the last line is parsed and extended.
        let going_on = lines.last().and_then(|line| ActivityStep::of_line(line));
        let going_on = going_on.filter(|step| !step.is_full());
        let mut step = match going_on {
            Some(step) => {
                lines.pop();
                step
            }
            None => ActivityStep::default(),
        };
        step.take(verb, name, deed.failed());
        lines.push(step.write());
    }
}

/// Removes a trailing announcement without a recorded action, because nothing followed it.
pub(super) fn forget_announcement(lines: &mut Vec<String>) {
    let last = lines.last().and_then(|line| ActivityStep::of_line(line));
    if last.is_some_and(|step| step.is_words_alone() && announces(&step.said)) {
        lines.pop();
    }
}

/// Shortens early steps and drops the oldest to stay within the token limit.
pub(super) fn fit(lines: &mut Vec<String>) {
    let is_step = |line: &&String| ActivityStep::of_line(line).is_some();
    let others = lines.iter().filter(|line| !is_step(line));
    let others: u32 = others.map(|line| estimate_text(line)).sum();
    // One half is for complete late steps, the other for shortened early ones.
    let max = MAX_TOKENS.saturating_sub(others).max(MIN_TOKENS) / 2;
    let (mut late, mut early) = (0, 0);
    let mut kept: Vec<String> = Vec::with_capacity(lines.len());
    // The lines are visited from the end, because the latest steps have precedence.
    for line in lines.drain(..).rev() {
        let Some(step) = ActivityStep::of_line(&line) else {
            kept.push(line);
            continue;
        };
        late += estimate_text(&line);
        if late <= max {
            kept.push(line);
        } else if early < max
            && let Some(step) = step.shortened()
        {
            let line = step.write();
            early += estimate_text(&line);
            if early <= max {
                kept.push(line);
            }
        }
    }
    kept.reverse();
    *lines = kept;
}

/// Returns the text without a closing announcement. Returns `None` if nothing else is left.
fn worth_telling(text: &str) -> Option<&str> {
    let text = without_label(text).trim();
    let chars = text.chars().count();
    let last = sentences(text).last()?;
    let before = text.strip_suffix(last).unwrap_or_default().trim();
    if before.is_empty() {
        return (chars >= MIN_ANNOUNCED || !announces(text)).then_some(text);
    }
    let is_empty_talk = last.chars().count() < MIN_LAST && announces(last);
    Some(if is_empty_talk { before } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(line: &str) -> ActivityStep {
        ActivityStep::of_line(line).unwrap_or_else(|| panic!("{line}"))
    }

    #[test]
    fn a_step_is_read_back_as_it_was_written() {
        for line in [
            "The assistant: “Now the parser.” It edited `a.rs`, `b.rs`; ran `make` (failed), `make x; y, z`.",
            "The assistant: “It fails because of `x`.”",
            "The assistant ran `make`; looked with `git log`; edited `a`.",
        ] {
            assert_eq!(step(line).write(), line);
        }
        for line in [
            "The assistant",
            "The assistant ate `a`.",
            "The assistant: “Now.” It ran `make`. And so on.",
            "The assistant: “Now.” Really.",
            "The assistant ran `make",
        ] {
            assert!(ActivityStep::of_line(line).is_none(), "{line}");
        }
    }

    #[test]
    fn an_announcement_is_told_when_it_says_more_than_the_deed() {
        assert_eq!(worth_telling("Let me run the tests again."), None);
        assert_eq!(worth_telling("The tests pass."), Some("The tests pass."));
        assert_eq!(
            worth_telling("The index is off by one. Let me fix this:"),
            Some("The index is off by one.")
        );
    }

    #[test]
    fn early_steps_are_shortened_and_the_oldest_go() {
        let line = |n: usize| {
            let said = format!(
                "Step {n} needs the parser to know where it stands, {}",
                "and so on ".repeat(12)
            );
            format!(
                "The assistant: “{}” It read `r{n}`; edited `e{n}`.",
                said.trim()
            )
        };
        let mut lines: Vec<String> = (0..100).map(line).collect();
        lines.insert(0, "A person's own line.".into());
        let whole: u32 = lines.iter().map(|line| estimate_text(line)).sum();
        fit(&mut lines);
        assert_eq!(lines[0], "A person's own line.");
        assert_eq!(lines.last(), Some(&line(99)));
        let early = step(&lines[1]).write();
        assert!(
            early.contains('…') && early.contains("It edited `e") && !early.contains("read"),
            "{early}"
        );
        let fitted: u32 = lines.iter().map(|line| estimate_text(line)).sum();
        assert!(whole > 3_000 && fitted <= MAX_TOKENS + 20);
    }
}
