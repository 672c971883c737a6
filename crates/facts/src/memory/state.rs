//! The section of the current state: the latest request and statement, remaining work items, and
//! open calls.

use std::fmt::Write as _;

use crate::action_outcome::ActionOutcome;
use crate::facts::Deed;
use crate::lines::{ManagedLine, between, join, quote_in, take};
use crate::notes::Timeline;
use crate::shell;
use crate::steps::{short, steps};
use crate::text::{clip, code, gist, list, quoted};
use crate::tool_action::{Act, PlanChange, WorkItem, WorkItemState};

const MAX_ASKED: usize = 500;
const MAX_SAID: usize = 600;
const MAX_STEPS: usize = 6;
const MAX_ITEMS: usize = 12;

const ASKED: &str = "The user last asked: ";
const SAID: &str = "The assistant last said: ";
const BEFORE: &str = "Before that, the assistant had said: ";
const STEPS: &str = "The last steps: it ";
const WAITING: &str = "No result has come yet for ";
const FAILING: &str = "Not passing at the moment: ";
const ANSWERED: &str = "That request has been answered.";
const ASKED_BEFORE: &str = "Before the latest request, the user had asked: ";
const ANSWERED_LATEST: &str = "The latest request has been answered.";

/// A line that this module wrote.
enum StateLine {
    Asked(String),
    Said(String),
    Before(String),
    Steps(String),
    Items(Items),
    Waiting(String),
    Failing(String),
    Answered,
}

impl ManagedLine for StateLine {
    fn read(line: &str) -> Option<Self> {
        let text = |text: &str| text.to_owned();
        if line == ANSWERED {
            return Some(Self::Answered);
        }
        let asked = quote_in(line, ASKED, "").map(text).map(Self::Asked);
        let said = || quote_in(line, SAID, "").map(text).map(Self::Said);
        let before = || quote_in(line, BEFORE, "").map(text).map(Self::Before);
        let steps = || between(line, STEPS, ".").map(text).map(Self::Steps);
        let items = || Items::read(line).map(Self::Items);
        let waiting = || between(line, WAITING, ".").map(text).map(Self::Waiting);
        let failing = || between(line, FAILING, ".").map(text).map(Self::Failing);
        asked
            .or_else(said)
            .or_else(before)
            .or_else(steps)
            .or_else(items)
            .or_else(waiting)
            .or_else(failing)
    }

    fn write(&self) -> String {
        match self {
            Self::Asked(words) => format!("{ASKED}“{words}”"),
            Self::Said(words) => format!("{SAID}“{words}”"),
            Self::Before(words) => format!("{BEFORE}“{words}”"),
            Self::Steps(steps) => format!("{STEPS}{steps}."),
            Self::Items(items) => items.write(),
            Self::Waiting(calls) => format!("{WAITING}{calls}."),
            Self::Failing(what) => format!("{FAILING}{what}."),
            Self::Answered => ANSWERED.into(),
        }
    }
}

/// The work items that are not done, and the number of those that are.
#[derive(Default)]
struct Items {
    left: Vec<WorkItem>,
    done: usize,
}

const ITEMS: &str = "Work items: ";

impl Items {
    fn read(line: &str) -> Option<Self> {
        let inner = line.strip_prefix(ITEMS)?.strip_suffix('.')?;
        let mut items = Self::default();
        for part in inner.split("; ") {
            if let Some(done) = part.strip_suffix(" done") {
                items.done = done.parse().ok()?;
                continue;
            }
            let (part, state) = match part.strip_suffix(" (under way)") {
                Some(part) => (part, WorkItemState::Doing),
                None => (part, WorkItemState::Open),
            };
            let (number, text) = part.split_once('“')?;
            let text = text
                .strip_suffix('”')
                .filter(|text| !text.contains(['“', '”']))?;
            let number = number.trim().strip_prefix('#').map(Into::into);
            items.left.push(WorkItem {
                number,
                text: text.into(),
                state,
            });
        }
        Some(items)
    }

    fn write(&self) -> String {
        let mut parts = Vec::new();
        for item in &self.left {
            let mut part = item
                .number
                .as_ref()
                .map(|number| format!("#{number} "))
                .unwrap_or_default();
            let _ = write!(part, "“{}”", item.text);
            if item.state == WorkItemState::Doing {
                part.push_str(" (under way)");
            }
            parts.push(part);
        }
        if self.done > 0 || parts.is_empty() {
            parts.push(format!("{} done", self.done));
        }
        format!("{ITEMS}{}.", parts.join("; "))
    }

    fn take(&mut self, change: &PlanChange) {
        match change {
            PlanChange::All(all) => {
                self.done = all
                    .iter()
                    .filter(|item| item.state == WorkItemState::Done)
                    .count();
                let left = all.iter().filter(|item| item.state != WorkItemState::Done);
                self.left = left.map(cleaned).take(MAX_ITEMS).collect();
            }
            PlanChange::Add(item) => {
                if self.left.len() < MAX_ITEMS {
                    self.left.push(cleaned(item));
                }
            }
            PlanChange::Mark(number, state) => {
                let at = self
                    .left
                    .iter()
                    .position(|item| item.number.as_ref() == Some(number));
                match (at, state) {
                    (Some(at), WorkItemState::Done) => {
                        self.left.remove(at);
                        self.done += 1;
                    }
                    (Some(at), state) => self.left[at].state = *state,
                    (None, _) => {}
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.left.is_empty() && self.done == 0
    }
}

/// Returns an item whose text contains none of the separators of the line.
fn cleaned(item: &WorkItem) -> WorkItem {
    let text = item.text.replace(['“', '”'], "\"").replace("; ", ", ");
    WorkItem {
        text: clip(&text, 120).into(),
        ..item.clone()
    }
}

/// The latest values of the section's lines.
#[derive(Default)]
struct Now {
    asked: Option<String>,
    said: Option<String>,
    /// The statement before the latest request.
    before: Option<String>,
    steps: Option<String>,
    answered: bool,
    items: Items,
}

impl Now {
    fn of(lines: Vec<StateLine>) -> Self {
        let mut now = Self::default();
        for line in lines {
            match line {
                StateLine::Asked(words) => now.asked = Some(words),
                StateLine::Said(words) => now.said = Some(words),
                StateLine::Before(words) => now.before = Some(words),
                StateLine::Steps(steps) => now.steps = Some(steps),
                StateLine::Items(items) => now.items = items,
                StateLine::Answered => now.answered = true,
                // Open calls and failures are recomputed in every update.
                StateLine::Waiting(_) | StateLine::Failing(_) => {}
            }
        }
        now
    }

    fn take(&mut self, notes: &Timeline<'_>) {
        for turn in &notes.turns {
            if let Some(asked) = turn.asked {
                self.before = self.said.take().or(self.before.take());
                // The other sections cover the steps of the previous request.
                (self.steps, self.answered) = (None, false);
                self.asked = Some(unquoted(&quoted(&asked.words, MAX_ASKED)));
            }
            if let Some(words) = turn.last_words() {
                let words = gist(words, MAX_SAID);
                self.said = Some(unquoted(&quoted(&words, MAX_SAID)))
                    .filter(|words| !words.is_empty())
                    .or(self.said.take());
            }
            if !turn.deeds.is_empty() {
                // Only the latest calls describe the current state.
                let last = &turn.deeds[turn.deeds.len().saturating_sub(12)..];
                let steps = steps(last, notes.naming(), MAX_STEPS);
                self.steps = (!steps.is_empty()).then(|| steps.join("; "));
            }
            self.answered = turn.answer().is_some() || self.answered && turn.is_empty();
        }
        for deed in notes.deeds() {
            if let Some(change) = &deed.call.plan {
                self.items.take(change);
            }
        }
    }
}

fn unquoted(quoted: &str) -> String {
    quoted
        .trim_start_matches('“')
        .trim_end_matches('”')
        .to_owned()
}

pub(super) fn update(body: &str, notes: &Timeline<'_>, failing: &[String]) -> String {
    let (ours, theirs) = take::<StateLine>(body);
    let mut now = Now::of(ours);
    now.take(notes);
    let open: Vec<_> = notes
        .deeds()
        .filter(|deed| deed.outcome == ActionOutcome::Open)
        .collect();
    let names: Vec<String> = open.iter().map(|deed| name_of(deed, notes)).collect();
    let waiting = (!names.is_empty()).then(|| list(&names, 4));
    let failing = (!failing.is_empty()).then(|| list(failing, 3));
    let is_answered = now.answered && waiting.is_none() && now.asked.is_some();
    let paragraphs = [
        now.asked.map(StateLine::Asked),
        is_answered.then_some(StateLine::Answered),
        now.before
            .filter(|_| now.said.is_none())
            .map(StateLine::Before),
        now.said.map(StateLine::Said),
        now.steps.map(StateLine::Steps),
        (!now.items.is_empty()).then_some(StateLine::Items(now.items)),
        waiting.map(StateLine::Waiting),
        failing.map(StateLine::Failing),
    ];
    let ours = paragraphs.into_iter().flatten().map(|line| line.write());
    join(ours.chain([theirs]))
}

/// Rewrites a body for a reader who receives the latest request verbatim after it.
pub fn before_latest(body: &str, latest: &str) -> String {
    let latest = unquoted(&quoted(latest, MAX_ASKED));
    let mut is_of_latest = false;
    let mut lines: Vec<String> = Vec::new();
    for line in body.lines() {
        match quote_in(line, ASKED, "") {
            Some(words) if words == latest => is_of_latest = true,
            Some(words) => lines.push(format!("{ASKED_BEFORE}“{words}”")),
            None if line == ANSWERED && is_of_latest => lines.push(ANSWERED_LATEST.into()),
            None => lines.push(line.into()),
        }
    }
    lines.join("\n").trim().to_owned()
}

/// Returns true if this module wrote a line and nobody changed it.
pub(crate) fn is_ours(line: &str) -> bool {
    StateLine::read(line).is_some_and(|read| read.write() == line)
}

/// Returns the latest request according to a body.
pub(super) fn asked(body: &str) -> Option<String> {
    Now::of(take::<StateLine>(body).0).asked
}

fn name_of(deed: &Deed, notes: &Timeline<'_>) -> String {
    match (deed.call.act, &*deed.call.target) {
        (Act::Run, command) => code(&shell::tidy(command, 100), 100),
        (Act::Read | Act::Edit | Act::Write, path) => {
            format!(
                "{} on {}",
                code(&deed.call.tool, 60),
                code(short(path, notes.root), 160)
            )
        }
        (_, "") => code(&deed.call.tool, 60),
        (_, about) => format!("{} ({})", code(&deed.call.tool, 60), quoted(about, 80)),
    }
}

/// Returns the lines of a body about unfinished work: work items, open calls and failing commands.
pub(crate) fn pending(body: &str) -> Vec<String> {
    let is_pending = |line: &&str| {
        [ITEMS, WAITING, FAILING]
            .iter()
            .any(|begin| line.starts_with(begin))
    };
    body.lines().filter(is_pending).map(Into::into).collect()
}
