//! What a summary tells beside what leaves: what the user said since the session began.

use palimpsest_core::ids::{Ordinal, SessionKey};
use palimpsest_core::session::{Entry, Session};

use super::super::Service;
use super::super::originals::contents;
use crate::errors::ServiceError;

/// No more inputs than these are told again, the latest of all.
const MAX_INPUTS: usize = 500;

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
