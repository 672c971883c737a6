//! The steps of a turn in the worklog: the model's statements, and the actions that followed each.
//! The statements are quoted, because only the model can explain its actions.

use palimpsest_types::tokens::estimate_text;

use super::fact::{MemoryFact, Step, StepActions, StepKind, StepTarget};
use super::render::render;
use super::workflow::{is_executed, is_of_the_program};
use crate::facts::CompletedAction;
use crate::paths::relative_path;
use crate::shell;
use crate::shell::MAX_COMMAND;
use crate::text::{first_sentences, label, quote, sentences, truncate, without_label};
use crate::timeline::{TurnFacts, announces};
use crate::tool_action::ActionKind;

const MAX_SAID: usize = 220;
const MAX_PATH: usize = 160;
/// The maximum number of names in one sentence. Further names start a new step.
const MAX_NAMES: usize = 8;
/// The maximum number of files named as read before an action. The section of files lists all of
/// them.
const MAX_READS: usize = 3;
/// The token limits for the lines of the section and, as a minimum, for its steps. Half of the limit
/// belongs to the latest steps. Earlier steps are shortened, and the oldest are dropped.
const MAX_TOKENS: u32 = 1_600;
const MIN_TOKENS: u32 = 1_200;
const MAX_SAID_EARLY: usize = 70;
/// The minimum length of an announcement in characters. A shorter one adds nothing to the action
/// that follows.
const MIN_ANNOUNCED: usize = 70;
const MIN_LAST: usize = 40;

impl Step {
    fn says(text: &str) -> Option<Self> {
        let statement = quote(
            &first_sentences(without_announcement(text)?, MAX_SAID),
            MAX_SAID,
        );
        (!statement.is_empty()).then(|| Self {
            statement: statement.into(),
            actions: Vec::new(),
        })
    }

    /// Returns a shortened copy for an early step. Omits reads, and announcements without an action.
    pub(super) fn shortened(&self) -> Option<Self> {
        let mut step = Self {
            statement: truncate(&self.statement, MAX_SAID_EARLY).into(),
            actions: Vec::new(),
        };
        for group in &self.actions {
            if ![StepKind::Read, StepKind::Look].contains(&group.kind) {
                for target in &group.targets {
                    step.take(group.kind, target.clone());
                }
            }
        }
        let is_empty = self.statement.is_empty() || announces(&self.statement);
        (!step.actions.is_empty() || !is_empty).then_some(step)
    }

    /// Returns true if the step contains no action.
    pub(super) fn is_words_alone(&self) -> bool {
        self.actions.is_empty()
    }

    fn is_full(&self) -> bool {
        let targets: usize = self.actions.iter().map(|group| group.targets.len()).sum();
        targets >= MAX_NAMES
    }

    fn take(&mut self, kind: StepKind, target: StepTarget) {
        match self.actions.last_mut() {
            Some(last) if last.kind == kind => {
                let is_full = kind == StepKind::Read && last.targets.len() == MAX_READS;
                if !is_full && !last.targets.contains(&target) {
                    last.targets.push(target);
                }
            }
            _ => self.actions.push(StepActions {
                kind,
                targets: vec![target],
            }),
        }
    }
}

/// Returns the kind and the target of an action. Returns `None` if other sections cover the action.
fn target_of(action: &CompletedAction, root: Option<&str>) -> Option<(StepKind, StepTarget)> {
    let target = &action.call.target;
    let path = || label(relative_path(target, root), MAX_PATH);
    let command = || label(&shell::normalize(target, MAX_COMMAND), MAX_COMMAND);
    let (kind, name) = match action.call.kind {
        ActionKind::Edit if !action.has_failed() => (StepKind::Edit, path()),
        ActionKind::Write if !action.has_failed() => (StepKind::Write, path()),
        ActionKind::Run if !is_executed(action) => return None,
        ActionKind::Run if shell::is_read_only(target) => (StepKind::Look, command()),
        ActionKind::Read if !action.has_failed() => (StepKind::Read, path()),
        ActionKind::Run => (StepKind::Run, command()),
        ActionKind::Fetch => (StepKind::Fetch, path()),
        ActionKind::Delegate => (StepKind::Delegate, path()),
        ActionKind::Other if is_executed(action) && !is_of_the_program(action) => {
            (StepKind::Call, label(&action.call.tool, 80))
        }
        // The errors section lists failed edits and reads, and the workflow section counts searches.
        _ => return None,
    };
    let target = StepTarget {
        name: name.into(),
        failed: action.has_failed(),
    };
    (!target.name.is_empty()).then_some((kind, target))
}

/// Returns the step at the end of a section.
pub(super) fn last_step(facts: &mut [MemoryFact]) -> Option<&mut Step> {
    match facts.last_mut() {
        Some(MemoryFact::Step(step)) => Some(step),
        _ => None,
    }
}

/// Appends the steps of a turn. Extends the last step if it is not full, because an update may end
/// within a step.
pub(super) fn append_turn(facts: &mut Vec<MemoryFact>, turn: &TurnFacts<'_>, root: Option<&str>) {
    let mut said = turn.statements.iter().peekable();
    // The additional round is for the statements after the last action.
    for at in 0..=turn.actions.len() {
        while let Some((_, text)) = said.next_if(|(before, _)| *before <= at) {
            if let Some(step) = Step::says(text) {
                drop_announcement(facts);
                facts.push(MemoryFact::Step(step));
            }
        }
        let Some(action) = turn.actions.get(at) else {
            continue;
        };
        let Some((kind, target)) = target_of(action, root) else {
            continue;
        };
        if let Some(step) = last_step(facts).filter(|step| !step.is_full()) {
            step.take(kind, target);
        } else {
            let mut step = Step::default();
            step.take(kind, target);
            facts.push(MemoryFact::Step(step));
        }
    }
}

/// Removes a trailing announcement without a recorded action, because nothing followed it.
fn drop_announcement(facts: &mut Vec<MemoryFact>) {
    let is_announcement = |step: &mut Step| step.is_words_alone() && announces(&step.statement);
    if last_step(facts).is_some_and(is_announcement) {
        facts.pop();
    }
}

fn tokens(fact: &MemoryFact) -> u32 {
    estimate_text(&render(fact))
}

/// Shortens early steps and drops the oldest to stay within the token limit.
pub(super) fn fit(facts: &mut Vec<MemoryFact>) {
    let is_other = |fact: &&MemoryFact| !matches!(fact, MemoryFact::Step(_));
    let others: u32 = facts.iter().filter(is_other).map(tokens).sum();
    // One half is for complete late steps, the other for shortened early ones.
    let max = MAX_TOKENS.saturating_sub(others).max(MIN_TOKENS) / 2;
    let (mut late, mut early) = (0, 0);
    let mut kept: Vec<MemoryFact> = Vec::with_capacity(facts.len());
    // The facts are visited from the end, because the latest steps have precedence.
    for fact in facts.drain(..).rev() {
        let MemoryFact::Step(step) = &fact else {
            kept.push(fact);
            continue;
        };
        // The sum includes steps that did not fit, so no earlier step is kept whole.
        late += tokens(&fact);
        if late <= max {
            kept.push(fact);
        } else if early < max
            && let Some(step) = step.shortened()
        {
            let fact = MemoryFact::Step(step);
            early += tokens(&fact);
            if early <= max {
                kept.push(fact);
            }
        }
    }
    kept.reverse();
    *facts = kept;
}

/// Returns the text without a closing announcement. Returns `None` if nothing else is left.
fn without_announcement(text: &str) -> Option<&str> {
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

    #[test]
    fn only_announcements_with_extra_information_are_recorded() {
        assert_eq!(without_announcement("Let me run the tests again."), None);
        assert_eq!(
            without_announcement("The tests pass."),
            Some("The tests pass.")
        );
        assert_eq!(
            without_announcement("The index is off by one. Let me fix this:"),
            Some("The index is off by one.")
        );
    }

    #[test]
    fn early_steps_are_shortened_and_the_oldest_are_dropped() {
        let step = |n: usize| {
            let said = format!(
                "Step {n} needs the parser to know where it stands, {}",
                "and so on ".repeat(12)
            );
            let mut step = Step {
                statement: said.trim().into(),
                actions: Vec::new(),
            };
            for (kind, name) in [(StepKind::Read, "r"), (StepKind::Edit, "e")] {
                let name = format!("{name}{n}").into();
                let target = StepTarget {
                    name,
                    failed: false,
                };
                step.take(kind, target);
            }
            MemoryFact::Step(step)
        };
        let own = MemoryFact::Verbatim("A person's own line.".into());
        let mut facts = vec![own.clone()];
        facts.extend((0..100).map(step));
        let whole: u32 = facts.iter().map(tokens).sum();
        fit(&mut facts);
        assert_eq!(facts[0], own);
        assert_eq!(facts.last(), Some(&step(99)));
        // The first step in the list is a shortened one, which has lost its reads.
        let early = render(&facts[1]);
        assert!(
            early.contains('…') && early.contains("It edited `e") && !early.contains("read"),
            "{early}"
        );
        let fitted: u32 = facts.iter().map(tokens).sum();
        assert!(whole > 3_000 && fitted <= MAX_TOKENS + 20);
    }
}
