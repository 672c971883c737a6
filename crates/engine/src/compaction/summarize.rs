//! The writer of a summary: a model if one is configured, otherwise or after its failure the structure of the
//! messages.

use std::sync::Arc;

use palimpsest_core::command::WrittenSummary;
use palimpsest_core::compaction::{StartedCompaction, SummaryFailure, SummaryTask};
use palimpsest_core::event::CompactionFailureReason;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::{Session, Strategy};
use palimpsest_core::session_summary::summary_of;
use palimpsest_core::summary::SummaryDocument;
use palimpsest_facts::Redact;
use palimpsest_store::error_chain;
use palimpsest_summarize::redact;

use super::user_inputs::user_inputs;
use super::{NO_USAGE, model};
use crate::{Engine, EngineError};

/// Writes the summary of the messages that leave.
pub(super) async fn summarize(
    engine: &Engine,
    key: &SessionKey,
    task: &SummaryTask,
) -> Result<WrittenSummary, SummaryFailure> {
    let extracted = match extract_document(engine, key, &task.started).await {
        Ok(extracted) => extracted,
        Err(error) => {
            let error = error_chain(&error);
            tracing::warn!(session = %key, error, "failed to read the messages for a summary");
            return Err(SummaryFailure {
                why: CompactionFailureReason::InputUnreadable,
                detail:
                    "the messages for the summary could not be read from the store; try again, \
                         and see the server's log for the cause"
                        .into(),
            });
        }
    };
    // A dry run queries no model. The extractive summary approximates the size of a model's summary.
    if task.is_estimate {
        return Ok(WrittenSummary {
            strategy: task.strategy,
            ..from_structure(engine, task, &extracted)?
        });
    }
    if let (Some(models), Strategy::Model) = (&engine.models, task.strategy) {
        let written = model::summarize_by_model(engine, models, key, task, &extracted).await;
        // A call that names this strategy gets the error of its model. Another kind of summary would replace its choice
        // silently.
        if written.is_ok() || !task.falls_back {
            return written;
        }
    }
    from_structure(engine, task, &extracted)
}

/// Writes the summary without a model.
fn from_structure(
    engine: &Engine,
    task: &SummaryTask,
    extracted: &SummaryDocument,
) -> Result<WrittenSummary, SummaryFailure> {
    let text = extracted.render();
    if text.trim().is_empty() {
        return Err(SummaryFailure {
            why: CompactionFailureReason::Empty,
            detail: "the messages contain no fact for a summary".into(),
        });
    }
    // Text from several messages can form a secret only when joined, so the rendered text is redacted again.
    let text = match redactor(engine, &task.started.session) {
        Some(redact) => redact(&text),
        None => text,
    };
    Ok(WrittenSummary {
        text: text.into(),
        strategy: Strategy::Extractive,
        model: "".into(),
        usage: NO_USAGE,
        dropped: None,
    })
}

/// Returns the function that redacts secrets, or `None` if redaction is off for the session.
pub(super) fn redactor(engine: &Engine, session: &Session) -> Option<Redact> {
    let redact: Redact = |text| redact(text).text.into_owned();
    engine.redacts(session).then_some(redact)
}

/// Extracts a summary from the structure of the messages. It is the summary without a model and fills the missing
/// sections of a model's summary.
pub(super) async fn extract_document(
    engine: &Engine,
    key: &SessionKey,
    started: &StartedCompaction,
) -> Result<SummaryDocument, EngineError> {
    let redact = redactor(engine, &started.session);
    let words = user_inputs(engine, key, started, redact).await?;
    let (session, part, leaving) = (
        Arc::clone(&started.session),
        started.running.part,
        started.running.leaving.clone(),
    );
    let extracted =
        tokio::task::spawn_blocking(move || summary_of(&session, part, &leaving, &words, redact));
    extracted
        .await
        .map_err(|error| EngineError::internal("extract a summary", error))
}
