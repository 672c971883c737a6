//! The user inputs of the whole session, which a summary contains in addition to the messages that leave.

use palimpsest_core::ids::{Ordinal, SessionKey};
use palimpsest_core::session::{Session, TranscriptEntry};
use palimpsest_facts::{Redact, redact_message, user_text};

use crate::originals::{OriginalMessage, contents};
use crate::{Engine, EngineError};

/// The maximum number of user inputs in a summary. The latest are kept.
const MAX_INPUTS: usize = 500;

/// Returns the texts of all user inputs, oldest first, including those that earlier compactions removed from the
/// view.
pub(super) async fn user_inputs(
    engine: &Engine,
    key: &SessionKey,
    session: &Session,
    redact: Option<Redact>,
) -> Result<Vec<String>, EngineError> {
    let starts = session.turns().starts().iter();
    // Inputs that a rewind removed are left out.
    let held = starts.filter_map(|at| {
        let entry = session.transcript().get(*at)?;
        entry
            .visibility
            .is_in_effect()
            .then(|| (*at, entry.clone()))
    });
    let mut entries: Vec<(Ordinal, TranscriptEntry)> = held.rev().take(MAX_INPUTS).collect();
    entries.reverse();
    let originals = contents(engine, key, entries).await?;
    let words = move |original: &OriginalMessage| match redact {
        Some(redact) => user_text(&redact_message(&original.message, redact)),
        None => user_text(&original.message),
    };
    // Redaction of up to 500 messages is CPU work and would block the async runtime.
    let said = tokio::task::spawn_blocking(move || originals.iter().filter_map(words).collect());
    said.await
        .map_err(|error| EngineError::internal("read what was said", error))
}
