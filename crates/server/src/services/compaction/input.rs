//! What a summary tells beside what leaves: what the user said since the session began.

use palimpsest_core::ids::{Ordinal, SessionKey};
use palimpsest_core::session::{Session, TranscriptEntry};
use palimpsest_facts::{Redact, redacted, user_words};

use super::super::Service;
use super::super::originals::{OriginalMessage, contents};
use crate::errors::ServiceError;

/// No more inputs than these are told again, the latest of all.
const MAX_INPUTS: usize = 500;

/// Everything that people said, across earlier compactions, from the first to the last.
pub(super) async fn inputs(
    service: &Service,
    key: &SessionKey,
    session: &Session,
    redact: Option<Redact>,
) -> Result<Vec<String>, ServiceError> {
    let starts = session.turns().starts().iter();
    // What was taken back is not told again.
    let held = starts.filter_map(|at| {
        let entry = session.transcript().get(*at)?;
        entry.standing.holds().then(|| (*at, entry.clone()))
    });
    let mut entries: Vec<(Ordinal, TranscriptEntry)> = held.rev().take(MAX_INPUTS).collect();
    entries.reverse();
    let originals = contents(service, key, entries).await?;
    let words = move |original: &OriginalMessage| match redact {
        Some(redact) => user_words(&redacted(&original.message, redact)),
        None => user_words(&original.message),
    };
    let said = tokio::task::spawn_blocking(move || originals.iter().filter_map(words).collect());
    said.await
        .map_err(|error| ServiceError::internal("read what was said", error))
}
