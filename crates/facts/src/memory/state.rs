//! The section of the current state: the latest request and statement, remaining work items, and
//! open calls.

use palimpsest_types::memory::SectionKind;

use super::brief::brief;
use super::content::MemoryContent;
use super::fact::{MemoryFact, OpenWorkItem, WorkItems};
use super::render::{latest_answered, render, request_before};
use super::section::{join, take};
use crate::action_outcome::ActionOutcome;
use crate::facts::CompletedAction;
use crate::paths::relative_path;
use crate::phrases::phrases;
use crate::shell;
use crate::text::{code, first_sentences, list, quote, quoted, truncate};
use crate::timeline::Timeline;
use crate::tool_action::{ActionKind, PlanChange, WorkItem, WorkItemState};

const MAX_ASKED: usize = 500;
const MAX_SAID: usize = 600;
const MAX_STEPS: usize = 6;
const MAX_ITEMS: usize = 12;

impl WorkItems {
    fn take(&mut self, change: &PlanChange) {
        match change {
            PlanChange::All(all) => {
                let (done, left): (Vec<&WorkItem>, Vec<&WorkItem>) = all
                    .iter()
                    .partition(|item| item.state == WorkItemState::Done);
                self.done = u32::try_from(done.len()).unwrap_or(u32::MAX);
                self.left = left.into_iter().map(open_item).take(MAX_ITEMS).collect();
            }
            PlanChange::Add(item) => {
                if self.left.len() < MAX_ITEMS {
                    self.left.push(open_item(item));
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
                    (Some(at), state) => {
                        self.left[at].is_started = *state == WorkItemState::Doing;
                    }
                    // The full list has left the item out, or it is done already.
                    (None, _) => {}
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.left.is_empty() && self.done == 0
    }
}

/// Converts a work item. Its text loses the separators of the rendered list.
fn open_item(item: &WorkItem) -> OpenWorkItem {
    let text = item.text.replace(['“', '”'], "\"").replace("; ", ", ");
    OpenWorkItem {
        number: item.number.clone(),
        text: truncate(&text, 120).into(),
        is_started: item.state == WorkItemState::Doing,
    }
}

/// The latest values of the section.
#[derive(Default)]
struct CurrentState {
    asked: Option<Box<str>>,
    statement: Option<Box<str>>,
    /// The statement before the latest request.
    before: Option<Box<str>>,
    steps: Option<Box<str>>,
    answered: bool,
    items: WorkItems,
}

impl CurrentState {
    /// Splits a section into its values and the facts of others.
    fn of(facts: Vec<MemoryFact>) -> (Self, Vec<MemoryFact>) {
        let (ours, theirs) = take(facts, |fact| match fact {
            MemoryFact::Verbatim(_) => Err(fact),
            fact => Ok(fact),
        });
        let mut now = Self::default();
        for fact in ours {
            match fact {
                MemoryFact::LatestRequest(words) => now.asked = Some(words),
                MemoryFact::LatestStatement(words) => now.statement = Some(words),
                MemoryFact::EarlierStatement(words) => now.before = Some(words),
                MemoryFact::LatestSteps(steps) => now.steps = Some(steps),
                MemoryFact::WorkItems(items) => now.items = items,
                MemoryFact::LatestRequestAnswered => now.answered = true,
                // Open calls and failures are recomputed in every update.
                _ => {}
            }
        }
        (now, theirs)
    }

    fn take(&mut self, timeline: &Timeline<'_>) {
        for turn in &timeline.turns {
            if let Some(asked) = turn.asked {
                // The earlier statement is needed until the model says something about the new request.
                self.before = self.statement.take().or(self.before.take());
                // The other sections cover the steps of the previous request.
                (self.steps, self.answered) = (None, false);
                self.asked = Some(quote(&asked.words, MAX_ASKED).into());
            }
            if let Some(words) = turn.last_words() {
                let words = quote(&first_sentences(words, MAX_SAID), MAX_SAID);
                if !words.is_empty() {
                    self.statement = Some(words.into());
                }
            }
            if !turn.actions.is_empty() {
                // Only the latest calls describe the current state.
                let last = &turn.actions[turn.actions.len().saturating_sub(12)..];
                let steps = phrases(last, timeline.path_style(), MAX_STEPS);
                self.steps = (!steps.is_empty()).then(|| steps.join("; ").into());
            }
            // A turn without content changes nothing, so an earlier answer still counts.
            self.answered = turn.answer().is_some() || self.answered && turn.is_empty();
        }
        for action in timeline.actions() {
            if let Some(change) = &action.call.plan {
                self.items.take(change);
            }
        }
    }
}

/// Updates the section. `failing` contains the commands that failed last, latest first.
pub(super) fn update(
    facts: Vec<MemoryFact>,
    timeline: &Timeline<'_>,
    failing: &[String],
) -> Vec<MemoryFact> {
    let (mut now, theirs) = CurrentState::of(facts);
    now.take(timeline);
    let open: Vec<_> = timeline
        .actions()
        .filter(|action| action.outcome == ActionOutcome::Open)
        .collect();
    let names: Vec<String> = open
        .iter()
        .map(|action| name_of(action, timeline))
        .collect();
    let waiting = (!names.is_empty()).then(|| list(&names, 4).into());
    let failing = (!failing.is_empty()).then(|| list(failing, 3).into());
    // An open call means that the work on the request continues after the statement.
    let is_answered = now.answered && waiting.is_none() && now.asked.is_some();
    let paragraphs = [
        now.asked.map(MemoryFact::LatestRequest),
        is_answered.then_some(MemoryFact::LatestRequestAnswered),
        now.before
            .filter(|_| now.statement.is_none())
            .map(MemoryFact::EarlierStatement),
        now.statement.map(MemoryFact::LatestStatement),
        now.steps.map(MemoryFact::LatestSteps),
        (!now.items.is_empty()).then_some(MemoryFact::WorkItems(now.items)),
        waiting.map(MemoryFact::OpenCalls),
        failing.map(MemoryFact::FailingCommands),
    ];
    let ours = paragraphs.into_iter().flatten().map(|fact| vec![fact]);
    join(ours.chain([theirs]))
}

/// A line of the section for a reader who receives the latest request verbatim after it.
pub(crate) struct StateLine {
    pub(crate) text: String,
    /// True for unfinished work: work items, open calls and failing commands.
    pub(crate) is_pending: bool,
}

/// Renders the section. `latest` is the latest request if the reader receives it after the text.
pub(crate) fn lines(content: &MemoryContent, latest: Option<&str>) -> Vec<StateLine> {
    // The section contains the shortened request, so the latest one is shortened for the comparison.
    let latest = latest.map(|latest| quote(latest, MAX_ASKED));
    let mut is_of_latest = false;
    let mut lines: Vec<StateLine> = Vec::new();
    for fact in content.facts(SectionKind::State) {
        let text = match (fact, &latest) {
            (MemoryFact::LatestRequest(words), Some(latest)) if **words == **latest => {
                is_of_latest = true;
                continue;
            }
            (MemoryFact::LatestRequest(words), Some(_)) => request_before(words),
            // `That request` would refer to a line that is left out here.
            (MemoryFact::LatestRequestAnswered, _) if is_of_latest => latest_answered(),
            _ => render(fact),
        };
        let is_pending = matches!(
            fact,
            MemoryFact::WorkItems(_) | MemoryFact::OpenCalls(_) | MemoryFact::FailingCommands(_)
        );
        lines.push(StateLine { text, is_pending });
    }
    lines
}

/// Renders session memory as a summary for a reader who receives the latest request verbatim after it.
pub fn stand_in(content: &MemoryContent, latest: Option<&str>) -> String {
    let content = brief(content);
    let mut document = content.document();
    if latest.is_some() {
        let lines: Vec<String> = lines(&content, latest)
            .into_iter()
            .map(|line| line.text)
            .collect();
        document.set(SectionKind::State, lines.join("\n").trim());
    }
    document.without_guidance()
}

/// Returns the latest request according to a section.
pub(super) fn last_request(facts: &[MemoryFact]) -> Option<&str> {
    facts.iter().find_map(|fact| match fact {
        MemoryFact::LatestRequest(words) => Some(&**words),
        _ => None,
    })
}

fn name_of(action: &CompletedAction, timeline: &Timeline<'_>) -> String {
    match (action.call.kind, &*action.call.target) {
        (ActionKind::Run, command) => code(&shell::normalize(command, 100), 100),
        (ActionKind::Read | ActionKind::Edit | ActionKind::Write, path) => {
            format!(
                "{} on {}",
                code(&action.call.tool, 60),
                code(relative_path(path, timeline.root), 160)
            )
        }
        (_, "") => code(&action.call.tool, 60),
        (_, about) => format!("{} ({})", code(&action.call.tool, 60), quoted(about, 80)),
    }
}
