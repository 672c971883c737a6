//! Who writes a summary: a model where there is one, and when it fails or there is none, it is made from
//! the structure of the messages.

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

/// Makes the summary of what leaves.
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
        // A dry run asks nobody: the summary from structure tells how large one is.
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
                // Whoever asked for a model gets one or learns why not.
                Err(_) if wanted.strategy != Some(Strategy::Model) => {}
                asked => return asked,
            }
        }
        _ => {}
    }
    from_structure(service, job, &extracted)
}

/// The summary that is there already: the running one, or the one that was written ahead.
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

/// The summary without a model.
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
    // What was apart before may be a secret together.
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

/// Takes secrets out of what is summarised, unless neither the server nor the session wants that.
pub(super) fn redactor(service: &Service, session: &Session) -> Option<Redact> {
    let redact: Redact = |text| redact(text).text.into_owned();
    service.redacts(session).then_some(redact)
}

/// What can be told from structure alone: the summary where there is no model, and what fills the gaps of
/// a model's.
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
