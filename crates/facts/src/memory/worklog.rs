//! The worklog section: one line per turn, followed by the steps of the turn. A turn that continues
//! after an update keeps its line.

use super::activity;
use super::fact::{MemoryFact, Turn, TurnCounts};
use super::render::{MAX_TURN_FILES, render};
use super::section::{is_blank, join};
use super::task::short_name;
use crate::paths::relative_path;
use crate::shell;
use crate::text::{first_sentences, label, quote};
use crate::timeline::{Timeline, TurnFacts};
use crate::tool_action::ActionKind;

const MAX_ASKED: usize = 90;
const MAX_ENDED: usize = 140;

impl Turn {
    fn of(turn: &TurnFacts<'_>, root: Option<&str>) -> Self {
        let mut counts = TurnCounts::default();
        let mut files: Vec<Box<str>> = Vec::new();
        for action in &turn.actions {
            match action.call.kind {
                ActionKind::Read | ActionKind::Search | ActionKind::Fetch => counts.reads += 1,
                ActionKind::Run if shell::is_read_only(&action.call.target) => counts.reads += 1,
                ActionKind::Edit | ActionKind::Write if !action.has_failed() => {
                    counts.edits += 1;
                    let name: Box<str> = label(relative_path(&action.call.target, root), 80).into();
                    files.retain(|other| *other != name);
                    files.push(name);
                }
                ActionKind::Run => {
                    counts.runs += 1;
                    counts.failed += u32::from(action.has_failed());
                }
                ActionKind::Delegate | ActionKind::Other => counts.others += 1,
                // A failed change left its file as it was, and the section of the state contains the plan.
                ActionKind::Edit | ActionKind::Write | ActionKind::Plan => {}
            }
        }
        // The latest file comes first, because only the first few are named.
        files.reverse();
        let has_more_files = files.len() > MAX_TURN_FILES;
        files.truncate(MAX_TURN_FILES);
        let request = turn
            .asked
            .map(|asked| quote(&short_name(&asked.words), MAX_ASKED));
        let answer = turn.answer();
        let ended = answer.map(|answer| quote(&first_sentences(answer, MAX_ENDED), MAX_ENDED));
        Self {
            request: request.map(Into::into),
            counts,
            files,
            has_more_files,
            ended: ended.map(Into::into),
        }
    }

    fn go_on(&mut self, later: Self) {
        let (a, b) = (&mut self.counts, later.counts);
        a.reads += b.reads;
        a.edits += b.edits;
        a.runs += b.runs;
        a.failed += b.failed;
        a.others += b.others;
        // The later files precede the earlier ones, because only the first few are named.
        let before = std::mem::replace(&mut self.files, later.files);
        let earlier = before.into_iter().filter(|name| !self.files.contains(name));
        self.files.extend(earlier.collect::<Vec<_>>());
        self.has_more_files |= later.has_more_files || self.files.len() > MAX_TURN_FILES;
        self.files.truncate(MAX_TURN_FILES);
        // The turn continued, so the earlier statement did not end it.
        self.ended = later.ended;
    }
}

pub(super) fn update(mut facts: Vec<MemoryFact>, timeline: &Timeline<'_>) -> Vec<MemoryFact> {
    for turn in &timeline.turns {
        let next = Turn::of(turn, timeline.root);
        match unfinished_entry(&mut facts) {
            // Messages without a request at their beginning continue the last turn of the update before.
            Some(last) if turn.asked.is_none() => last.go_on(next),
            _ => {
                // A trailing statement is either the answer of its turn or was not followed by any
                // action.
                if activity::last_step(&mut facts).is_some_and(|step| step.is_words_alone()) {
                    facts.pop();
                }
                facts.push(MemoryFact::Turn(next));
            }
        }
        activity::append_turn(&mut facts, turn, timeline.root);
    }
    activity::fit(&mut facts);
    join([facts])
}

/// Returns the last turn if only its steps follow.
fn unfinished_entry(facts: &mut [MemoryFact]) -> Option<&mut Turn> {
    let mut facts = facts.iter_mut().rev();
    match facts.find(|fact| !matches!(fact, MemoryFact::Step(_))) {
        Some(MemoryFact::Turn(turn)) => Some(turn),
        _ => None,
    }
}

/// Renders the turns with steps or actions, without their final statements. The results section
/// contains the final statements.
pub(crate) fn without_answers<'a>(facts: impl IntoIterator<Item = &'a MemoryFact>) -> String {
    let facts: Vec<&MemoryFact> = facts.into_iter().filter(|fact| !is_blank(fact)).collect();
    let mut lines: Vec<String> = Vec::new();
    for (at, fact) in facts.iter().enumerate() {
        let next = facts.get(at + 1);
        match fact {
            MemoryFact::Turn(turn) => {
                let is_told = matches!(next, Some(MemoryFact::Step(_)));
                if is_told || turn.counts != TurnCounts::default() {
                    lines.push(render(&MemoryFact::Turn(Turn {
                        ended: None,
                        ..turn.clone()
                    })));
                }
            }
            // A trailing statement is the answer, which the results section contains.
            MemoryFact::Step(step) if next.is_none() && step.is_words_alone() => {}
            fact => lines.push(render(fact)),
        }
    }
    lines.join("\n")
}
