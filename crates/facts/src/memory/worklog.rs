//! The worklog section: one line per turn, followed by the steps of the turn. A turn that continues
//! after an update keeps its line.

use super::fact::{MemoryFact, Turn, TurnCounts};
use super::render::{MAX_TURN_FILES, render};
use super::section::{is_blank, join};
use super::story;
use super::task::name_of;
use crate::notes::{Timeline, TurnFacts};
use crate::shell;
use crate::steps::short;
use crate::text::{gist, label, quote};
use crate::tool_action::Act;

const MAX_ASKED: usize = 90;
const MAX_ENDED: usize = 140;

impl Turn {
    fn of(turn: &TurnFacts<'_>, root: Option<&str>) -> Self {
        let mut counts = TurnCounts::default();
        let mut files: Vec<Box<str>> = Vec::new();
        for deed in &turn.deeds {
            match deed.call.act {
                Act::Read | Act::Search | Act::Fetch => counts.reads += 1,
                Act::Run if shell::is_looking(&deed.call.target) => counts.reads += 1,
                Act::Edit | Act::Write if !deed.failed() => {
                    counts.edits += 1;
                    let name: Box<str> = label(short(&deed.call.target, root), 80).into();
                    files.retain(|other| *other != name);
                    files.push(name);
                }
                Act::Run => {
                    counts.runs += 1;
                    counts.failed += u32::from(deed.failed());
                }
                Act::Delegate | Act::Other => counts.others += 1,
                Act::Edit | Act::Write | Act::Plan => {}
            }
        }
        // The latest file comes first, because only the first few are named.
        files.reverse();
        let has_more_files = files.len() > MAX_TURN_FILES;
        files.truncate(MAX_TURN_FILES);
        let request = turn
            .asked
            .map(|asked| quote(&name_of(&asked.words), MAX_ASKED));
        let answer = turn.answer();
        let ended = answer.map(|answer| quote(&gist(answer, MAX_ENDED), MAX_ENDED));
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
        let before = std::mem::replace(&mut self.files, later.files);
        let earlier = before.into_iter().filter(|name| !self.files.contains(name));
        self.files.extend(earlier.collect::<Vec<_>>());
        self.has_more_files |= later.has_more_files || self.files.len() > MAX_TURN_FILES;
        self.files.truncate(MAX_TURN_FILES);
        self.ended = later.ended;
    }
}

pub(super) fn update(mut facts: Vec<MemoryFact>, notes: &Timeline<'_>) -> Vec<MemoryFact> {
    for turn in &notes.turns {
        let next = Turn::of(turn, notes.root);
        match going_on(&mut facts) {
            Some(last) if turn.asked.is_none() => last.go_on(next),
            _ => {
                // A trailing statement is either the answer of its turn or was not followed by any
                // action.
                if story::last_step(&mut facts).is_some_and(|step| step.is_words_alone()) {
                    facts.pop();
                }
                facts.push(MemoryFact::Turn(next));
            }
        }
        story::tell(&mut facts, turn, notes.root);
    }
    story::fit(&mut facts);
    join([facts])
}

/// Returns the last turn if only its steps follow.
fn going_on(facts: &mut [MemoryFact]) -> Option<&mut Turn> {
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
