//! The section of errors: failures, the actions that followed, and their final outcome.

use super::content::body;
use super::fact::{Declined, FailedActionKind, Failure, MemoryFact};
use super::render::{action, render};
use super::section::join;
use crate::action_outcome::DECLINED;
use crate::text::{first_line, quote};
use crate::timeline::{ObservedFailure, Timeline};
use crate::user_guidance::{GuidanceKind, find_guidance};

const MAX_WHY: usize = 200;

impl Failure {
    fn of(failure: &ObservedFailure<'_>) -> Self {
        // The change that fixed a failure explains more than the first reaction to it.
        let next = failure
            .change
            .as_ref()
            .filter(|_| failure.resolved)
            .or(failure.next.as_ref());
        Self {
            action: failure.action.clone(),
            key: failure.key.as_str().into(),
            times: failure.times,
            why: quote(first_line(failure.reason), MAX_WHY).into(),
            next: next.map(|next| next.as_str().into()),
            is_fixed: failure.resolved,
        }
    }

    /// Continues an open failure with a later failure or success of the same action.
    fn go_on(&mut self, later: Self) {
        self.times += later.times;
        self.why = later.why;
        self.next = later.next.or(self.next.take());
        self.is_fixed = later.is_fixed;
    }
}

pub(super) fn update(facts: Vec<MemoryFact>, timeline: &Timeline<'_>) -> Vec<MemoryFact> {
    let known = body(&facts);
    let mut begun: Vec<usize> = Vec::new();
    let mut facts = facts;
    for fact in &mut facts {
        let MemoryFact::Failure(failure) = fact else {
            continue;
        };
        // A failure that returns after its fix is listed as a new one.
        if failure.is_fixed {
            continue;
        }
        let again = timeline
            .failures
            .iter()
            .enumerate()
            .find(|(_, new)| *new.key == *failure.key);
        if let Some((at, new)) = again {
            begun.push(at);
            failure.go_on(Failure::of(new));
        } else if timeline.passed.iter().any(|key| **key == *failure.key) {
            // An earlier update recorded the failure, and the action passed in these messages.
            failure.is_fixed = true;
        }
    }
    let mut new: Vec<MemoryFact> = Vec::new();
    for (at, failure) in timeline.failures.iter().enumerate() {
        // Failures that continue an existing line are part of that line already.
        if !begun.contains(&at) && is_worth_a_note(failure) {
            new.push(fact_of(failure));
        }
    }
    for asked in timeline.inputs() {
        for (lesson, sentence) in find_guidance(&asked.words) {
            if lesson == GuidanceKind::Correction {
                new.push(MemoryFact::Correction(quote(sentence, 300).into()));
            }
        }
    }
    // The section may already contain the same line, as a fact or as text.
    new.retain(|fact| !known.contains(&render(fact)));
    join(std::iter::once(facts).chain(new.into_iter().map(|fact| vec![fact])))
}

/// Converts a failure. A rejection by the user is not reported as a failure of the work.
fn fact_of(failure: &ObservedFailure<'_>) -> MemoryFact {
    match failure.reason.strip_prefix(DECLINED) {
        Some(why) => MemoryFact::Declined(Declined {
            action: failure.action.clone(),
            why: quote(why.trim_start_matches(':'), MAX_WHY).into(),
        }),
        None => MemoryFact::Failure(Failure::of(failure)),
    }
}

/// Returns true if a failure deserves a note. An edit that succeeded after one or two attempts does
/// not.
fn is_worth_a_note(failure: &ObservedFailure<'_>) -> bool {
    let is_command = failure.action.kind == FailedActionKind::Run;
    is_command || !failure.resolved || failure.change.is_some() || failure.times > 2
}

/// Returns the commands that failed last and have not passed since, latest first. Edits are
/// excluded, because a failed edit is usually replaced by a different one.
pub(super) fn open_failures(facts: &[MemoryFact]) -> Vec<String> {
    let commands = facts.iter().rev().filter_map(|fact| match fact {
        MemoryFact::Failure(failure) => Some(failure).filter(|failure| {
            let was_run =
                failure.action.kind == FailedActionKind::Run && !failure.why.starts_with(DECLINED);
            was_run && !failure.is_fixed
        }),
        _ => None,
    });
    commands.map(|failure| action(&failure.action)).collect()
}
