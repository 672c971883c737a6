//! Session memory as facts: the content of a version, its rendering as `summary.md`, and its update
//! with new facts.
//!
//! An update needs the previous content and the facts of new messages only. Verbatim lines belong to
//! a person or a model and are kept. Size limits are applied by [`MemoryContent::fit`].
//! `docs/decisions/0014-session-memory-as-facts.md` gives the reasons.

mod activity;
mod brief;
mod content;
mod errors;
pub mod fact;
mod files;
mod other_names;
mod prose;
mod render;
mod section;
mod state;
mod task;
mod workflow;
mod worklog;

pub(super) use brief::brief;
pub use content::{MemoryContent, MemoryEntry};
pub(super) use files::root_of;
pub(super) use render::{action, block_quote, render};
pub(super) use state::lines as state_lines;
pub use state::stand_in;
pub(super) use workflow::shortened_for;
pub(super) use worklog::without_answers;

use palimpsest_types::memory::SectionKind;

use self::content::RenderedSections;
use self::fact::MemoryFact;
use super::facts::Facts;
use super::timeline::Timeline;

/// Returns the content after an update with new facts.
#[must_use]
pub fn update(previous: &MemoryContent, facts: &Facts) -> MemoryContent {
    if facts.is_empty() && facts.names().is_empty() {
        return previous.clone();
    }
    // Messages without facts, such as inserted texts, can still contain names.
    if facts.is_empty() {
        return with_names(previous, previous, facts);
    }
    let section = |kind| -> Vec<MemoryFact> { previous.facts(kind).cloned().collect() };
    let (known, files) = other_names::take(section(SectionKind::Files));
    let root = files::root_for(&files, facts.root());
    let timeline = Timeline::of(facts, root.as_deref());
    let title = content::body(previous.facts(SectionKind::Title));
    let state = section(SectionKind::State);
    // The first answer in these messages can belong to a request of an earlier update.
    let asked = state::last_request(&state).filter(|words| !task::is_continuation(words));
    let results = prose::results(
        section(SectionKind::Results),
        &timeline,
        asked.or(Some(&*title)),
    );
    let errors = errors::update(section(SectionKind::Errors), &timeline);
    // The state lists the failures that the new errors section leaves open.
    let failing = errors::open_failures(&errors);
    // The elements are in the order of `SectionKind::ALL`.
    let mut sections = RenderedSections::new([
        task::title(section(SectionKind::Title), facts, &timeline),
        state::update(state, &timeline, &failing),
        task::task(section(SectionKind::Task), facts, &timeline),
        files::update(files, &timeline),
        workflow::update(section(SectionKind::Workflow), &timeline),
        errors,
        prose::documentation(section(SectionKind::Documentation), &timeline),
        prose::learnings(section(SectionKind::Learnings), facts, &timeline),
        results,
        worklog::update(section(SectionKind::Worklog), &timeline),
    ]);
    // The list shows only names that no other section contains, so it is made last.
    other_names::add(&mut sections, known.as_ref(), facts);
    MemoryContent::new(sections)
}

/// Returns content of a model or a person with the names that it lacks. `previous` is the content before it.
#[must_use]
pub fn with_names(
    content: &MemoryContent,
    previous: &MemoryContent,
    facts: &Facts,
) -> MemoryContent {
    let mut sections = SectionKind::ALL.map(|kind| content.facts(kind).cloned().collect());
    // The list is made again, because it depends on the names in the new text.
    let (_, files) = other_names::take(std::mem::take(&mut sections[SectionKind::Files.index()]));
    sections[SectionKind::Files.index()] = files;
    let (known, _) = other_names::take(previous.facts(SectionKind::Files).cloned().collect());
    let mut sections = RenderedSections::new(sections);
    other_names::add(&mut sections, known.as_ref(), facts);
    MemoryContent::new(sections)
}
