//! The update of `summary.md` from its previous content and new facts.
//!
//! An update needs the facts of new messages only. Managed lines are parsed and rewritten with the
//! new facts. All other lines belong to a person or a model and are kept. Size limits are applied by
//! `Memory::fit`.

mod errors;
mod files;
mod prose;
mod state;
mod story;
mod task;
mod workflow;
mod worklog;

pub use files::root_in;
pub use state::before_latest;
pub(crate) use state::{is_ours as is_of_state, pending};
pub(super) use task::block_quote;
pub(super) use workflow::{beside, is_ours as is_of_workflow};
pub(super) use worklog::{is_ours as is_of_worklog, told as told_worklog};

use palimpsest_types::memory::{Memory, SectionKind};

use super::facts::Facts;
use super::notes::Timeline;

/// Returns the document after an update with new facts.
#[must_use]
pub fn update(previous: &Memory, facts: &Facts) -> Memory {
    if facts.is_empty() {
        return previous.clone();
    }
    let mut notes = Timeline::of(facts);
    let root = files::root_for(previous.body(SectionKind::Files), facts.root());
    notes.root = root.as_deref();
    let mut next = previous.clone();
    let mut write = |kind: SectionKind, update: &dyn Fn(&str) -> String| {
        let body = update(previous.body(kind));
        next.set(kind, &body);
    };
    write(SectionKind::Title, &|body| task::title(body, facts, &notes));
    write(SectionKind::Task, &|body| task::task(body, facts, &notes));
    write(SectionKind::Files, &|body| files::update(body, &notes));
    write(SectionKind::Workflow, &|body| {
        workflow::update(body, &notes)
    });
    write(SectionKind::Errors, &|body| errors::update(body, &notes));
    write(SectionKind::Documentation, &|body| {
        prose::documentation(body, &notes)
    });
    write(SectionKind::Learnings, &|body| {
        prose::learnings(body, facts, &notes)
    });
    let asked = state::asked(previous.body(SectionKind::State));
    let title = previous.body(SectionKind::Title);
    let named = asked.as_deref().filter(|words| !task::is_going_on(words));
    write(SectionKind::Results, &|body| {
        prose::results(body, &notes, named.or(Some(title)))
    });
    write(SectionKind::Worklog, &|body| worklog::update(body, &notes));
    // The state is written last, because it lists the failures that the new errors section leaves
    // open.
    let failing = errors::failing(next.body(SectionKind::Errors));
    next.set(
        SectionKind::State,
        &state::update(previous.body(SectionKind::State), &notes, &failing),
    );
    next
}
