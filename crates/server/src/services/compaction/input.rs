//! What a summary is made of: what leaves, what the user said since the session began, and what the
//! running summary says already.

use palimpsest_core::ids::{Ordinal, SessionKey};
use palimpsest_core::memory::Memory;
use palimpsest_core::message::Block;
use palimpsest_core::session::{Entry, Session, Strategy};

use super::super::Service;
use super::super::originals::contents;
use super::{Contents, Job};
use crate::errors::ServiceError;

/// No more inputs than these are told again, the latest of all.
const MAX_INPUTS: usize = 500;

/// The contents of what leaves, as far as it is shown.
pub(super) fn leaving(job: &Job) -> Contents {
    let transcript = job.session.transcript();
    let held = job.leaving.iter().filter_map(|at| transcript.content(*at));
    held.cloned().collect()
}

/// What the running summary says, and the messages that it does not cover. Where there is none, an
/// earlier summary in the view says what came before.
pub(super) fn previous(job: &Job) -> (Memory, Option<Ordinal>) {
    if let Some(version) = job.session.notes().written() {
        return (Memory::parse(&version.text), version.covers);
    }
    let boundaries = job.session.compactions().boundaries.iter().rev();
    // What was only dropped has no summary, but a note.
    let summaries = boundaries.filter(|boundary| boundary.strategy != Strategy::DropOldest);
    let mut summaries = summaries.filter_map(|boundary| boundary.summary);
    let text = summaries.find_map(|at| {
        let message = job.session.transcript().content(at)?;
        match message.blocks.first() {
            Some(Block::Text { text, .. }) => Some(text.to_string()),
            _ => None,
        }
    });
    (
        text.map_or_else(Memory::template, |text| Memory::parse(&text)),
        None,
    )
}

/// Everything that people said, across earlier compactions, from the first to the last.
pub(super) async fn inputs(
    service: &Service,
    key: &SessionKey,
    session: &Session,
) -> Result<Vec<String>, ServiceError> {
    let starts = session.turns().starts().iter();
    // What was taken back is not told again.
    let held = starts.filter_map(|at| {
        let entry = session.transcript().get(*at)?;
        entry.standing.holds().then(|| (*at, entry.clone()))
    });
    let mut entries: Vec<(Ordinal, Entry)> = held.rev().take(MAX_INPUTS).collect();
    entries.reverse();
    let originals = contents(service, key, entries).await?;
    let words = originals.iter();
    Ok(words
        .filter_map(|original| palimpsest_core::extract::user_words(&original.message))
        .collect())
}
