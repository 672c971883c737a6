//! Edits of session memory by a person: the command for an edited file, and the command for a text that a call gives.
//! Both texts become versions under the same rules.

use bytes::Bytes;
use palimpsest_core::command::{
    Command, EditSessionMemory, RecordMemoryVersion, Rejection, check_memory_size,
};
use palimpsest_core::ids::{Ordinal, SessionKey};
use palimpsest_core::memory::{MemoryContent, MemoryDocument};
use palimpsest_core::session::{Author, RequestStamp, Session, text_digest};
use palimpsest_engine::EngineError;
use palimpsest_engine::sessions::{
    CommandOutcome, MissingSession, ReadMode, Sessions, Transaction,
};
use palimpsest_facts::Redact;
use palimpsest_store::blobs::Blobs;

use crate::compose::{finalize, run_blocking};
use crate::file;
use crate::host::MemoryJob;
use crate::sessions::{read_job, redact_text};

/// A text that a person gives in a call.
#[derive(Debug, Clone)]
pub struct MemoryEdit {
    /// The complete text.
    pub text: String,
    /// The number of the version that the person edited. 0 if there is none.
    pub expected_version: u64,
    /// Identifies a repeat.
    pub request: Option<RequestStamp>,
}

/// Returns the command that records the edited text of the file. `read_through` is the last message that the text
/// covers.
pub(crate) fn of_file(
    job: &MemoryJob,
    edited: &Bytes,
    redact: Option<Redact>,
    read_through: Option<Ordinal>,
) -> RecordMemoryVersion {
    // Invalid UTF-8 is replaced, so that every edit can be imported.
    let text = String::from_utf8_lossy(edited);
    RecordMemoryVersion {
        content: edited_content(job, &text, redact),
        author: Author::Person,
        base_version: job.version_number(),
        source: job.revision,
        read_through,
        edited_file: Some(text_digest(edited)),
        duration_ms: 0,
    }
}

/// Returns the command that records the text of a call.
///
/// Reads the file first, except in a dry run. The worker would take an edit of the file that is not recorded yet for a
/// later one, and would replace the text of the call. Such an edit is therefore recorded here, which makes the text of
/// the call outdated.
pub async fn prepare_edit(
    sessions: &Sessions,
    blobs: &Blobs,
    key: &SessionKey,
    edit: MemoryEdit,
    dry_run: bool,
) -> Result<EditSessionMemory, EngineError> {
    let job = read_job(sessions, ReadMode::Fresh, key).await?;
    check_memory_size(&job.memory, "text", &edit.text)?;
    if !MemoryDocument::has_heading(&edit.text) {
        let what = "contains no heading of a section, such as `# Current State`";
        return Err(Rejection::invalid("text", what).into());
    }
    let redact: Option<Redact> = job.summary.redact_secrets.then_some(redact_text);
    let mut same_file = None;
    if !dry_run
        && job.is_enabled
        && let Some(edited) = file::unrecorded_edit(blobs, key, &job.session_memory).await
    {
        let digest = text_digest(&edited);
        let recorded = record_file(sessions, key, job.clone(), edited, redact).await?;
        // An edit that changes nothing makes no version, so the command records its digest. Otherwise the worker would
        // import the file later.
        same_file = (!recorded).then_some(digest);
    }
    let MemoryEdit {
        text,
        expected_version,
        request,
    } = edit;
    Ok(EditSessionMemory {
        content: run_blocking(move || edited_content(&job, &text, redact)).await,
        expected_version,
        same_file,
        request,
    })
}

/// Records an edit of the file. Returns false if the edit changes nothing.
async fn record_file(
    sessions: &Sessions,
    key: &SessionKey,
    job: MemoryJob,
    edited: Bytes,
    redact: Option<Redact>,
) -> Result<bool, EngineError> {
    let read_through = job.session_memory.edit_read_through();
    let record = run_blocking(move || of_file(&job, &edited, redact, read_through)).await;
    let decide = |transaction: &mut Transaction<'_>| {
        transaction.run(Command::RecordMemoryVersion(record.clone()))
    };
    let finish = |_: &Session, outcome: &CommandOutcome| {
        Ok(matches!(outcome, CommandOutcome::Done(Some(_))))
    };
    let recorded = sessions
        .write(key, &MissingSession::Reject, decide, finish)
        .await?;
    if recorded {
        tracing::info!(session = %key, "imported a manual edit of summary.md");
    }
    Ok(recorded)
}

/// Returns the content of an edited text: without secrets and within the limits of the policy. Lines that the person
/// left unchanged stay facts.
fn edited_content(job: &MemoryJob, text: &str, redact: Option<Redact>) -> MemoryContent {
    let version = job.session_memory.version.as_ref();
    let template = MemoryContent::default();
    let before = version.map_or(&template, |version| &version.content);
    let edited = before.aligned(&MemoryDocument::parse(text));
    finalize(&edited, redact, &job.memory)
}
