//! The user inputs that a summary contains in addition to the facts of the messages that leave.

use palimpsest_core::compaction::StartedCompaction;
use palimpsest_core::ids::{Ordinal, SessionKey};
use palimpsest_core::session::TranscriptEntry;
use palimpsest_core::session_summary::summary_inputs;
use palimpsest_facts::{Redact, redact_message, user_text};

use crate::originals::{OriginalMessage, contents};
use crate::{Engine, EngineError};

/// The maximum number of user inputs in a summary. The latest are kept.
const MAX_INPUTS: usize = 500;

/// Returns the texts of the user inputs of a summary, oldest first, including those that earlier compactions removed
/// from the view.
pub(super) async fn user_inputs(
    engine: &Engine,
    key: &SessionKey,
    started: &StartedCompaction,
    redact: Option<Redact>,
) -> Result<Vec<String>, EngineError> {
    let (session, running) = (&started.session, &started.running);
    let inputs = summary_inputs(session, running.part, &running.leaving);
    let latest = inputs.len().saturating_sub(MAX_INPUTS);
    let entries: Vec<(Ordinal, TranscriptEntry)> = inputs[latest..]
        .iter()
        .filter_map(|at| Some((*at, session.transcript().get(*at)?.clone())))
        .collect();
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
