//! The writer of a summary: a model if one is configured, otherwise or after its failure the structure of the
//! messages.

use palimpsest_core::command::WrittenSummary;
use palimpsest_core::event::CompactionFailureReason;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::{RunningCompaction, Session, Strategy};
use palimpsest_core::session_summary::{stand_in, summary_of};
use palimpsest_core::summary::SummaryDocument;
use palimpsest_facts::Redact;
use palimpsest_summarize::redact;

use super::super::Service;
use super::input::inputs;
use super::{CompactionJob, CompactionRequest, NO_USAGE, model};
use crate::errors::ServiceError;

/// Writes the summary of the messages that leave.
pub(super) async fn summarise(
    service: &Service,
    key: &SessionKey,
    job: &CompactionJob,
    wanted: &CompactionRequest,
) -> Result<WrittenSummary, (CompactionFailureReason, String)> {
    let extracted = match extract(service, key, job).await {
        Ok(extracted) => extracted,
        Err(error) => {
            let error = tonic::Status::from(error);
            let error = error.message();
            tracing::warn!(session = %key, error, "failed to read what a summary is made of");
            return Err((
                CompactionFailureReason::ModelUnavailable,
                "the messages could not be read: see the server's log".into(),
            ));
        }
    };
    match (&service.models, job.asks_model()) {
        // A dry run queries no model. The extractive summary approximates the size of a model's summary.
        _ if wanted.dry_run => {
            let foreseen = from_structure(service, job, &extracted)?;
            return Ok(WrittenSummary {
                strategy: job.strategy,
                ..foreseen
            });
        }
        (Some(models), true) => {
            let asked = model::ask(service, models, (key, job), wanted, &extracted).await;
            match asked {
                // A caller that chose `MODEL` gets the model's error, not an extractive summary.
                Err(_) if wanted.strategy != Some(Strategy::Model) => {}
                asked => return asked,
            }
        }
        _ => {}
    }
    from_structure(service, job, &extracted)
}

/// Returns the existing summary: the prepared one, otherwise session memory.
pub(super) fn ready(session: &Session, running: &RunningCompaction) -> Option<WrittenSummary> {
    let prepared = session.compactions().prepared.as_ref();
    if let Some(prepared) = prepared.filter(|prepared| prepared.key == running.key) {
        return Some(WrittenSummary {
            text: prepared.text.clone(),
            strategy: prepared.strategy,
            model: prepared.model.clone(),
            usage: prepared.usage,
            dropped: prepared.dropped,
        });
    }
    Some(WrittenSummary {
        text: stand_in(session, &session.memory().written()?.text).into(),
        strategy: Strategy::SessionMemory,
        model: "".into(),
        usage: NO_USAGE,
        dropped: None,
    })
}

/// Writes the summary without a model.
fn from_structure(
    service: &Service,
    job: &CompactionJob,
    extracted: &SummaryDocument,
) -> Result<WrittenSummary, (CompactionFailureReason, String)> {
    let text = extracted.render();
    if text.trim().is_empty() {
        return Err((
            CompactionFailureReason::Empty,
            "there is nothing to tell".into(),
        ));
    }
    // Text from several messages can form a secret only when joined, so the rendered text is redacted again.
    let text = match redactor(service, &job.session) {
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
pub(super) fn redactor(service: &Service, session: &Session) -> Option<Redact> {
    let redact: Redact = |text| redact(text).text.into_owned();
    service.redacts(session).then_some(redact)
}

/// Extracts a summary from the structure of the messages. It is the summary without a model and fills the missing
/// sections of a model's summary.
pub(super) async fn extract(
    service: &Service,
    key: &SessionKey,
    job: &CompactionJob,
) -> Result<SummaryDocument, ServiceError> {
    let redact = redactor(service, &job.session);
    let words = inputs(service, key, &job.session, redact).await?;
    let (session, leaving) = (job.session.clone(), job.leaving.clone());
    let extracted =
        tokio::task::spawn_blocking(move || summary_of(&session, &leaving, &words, redact));
    extracted.await.map_err(|error| ServiceError::Internal {
        doing: "extract a summary",
        source: Some(Box::new(error)),
    })
}
