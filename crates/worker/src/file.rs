//! `summary.md`: a copy of session memory that a person may edit.

use bytes::Bytes;
use palimpsest_core::command::FailMemoryUpdate;
use palimpsest_core::ids::{Ordinal, Revision, SessionKey};
use palimpsest_core::memory::MemoryContent;
use palimpsest_core::session::SessionMemory;
use palimpsest_store::blobs::{BlobError, Blobs, ReplaceOutcome, SummaryFile};
use palimpsest_store::error_chain;
use tokio::time::sleep;

use crate::host::{HostError, MemoryJob};
use crate::version_mark::MarkedFile;
use crate::worker::WorkerContext;
use crate::{backoff, compose, edit, version_mark};

/// Maximum number of reads of a file that keeps changing.
const MAX_READS: usize = 5;

#[derive(Debug)]
pub(crate) enum SummaryFileState {
    /// The file does not exist.
    Missing,
    /// The file contains a text of the service: of the latest version, of an earlier version, or of a history that
    /// the log has lost.
    Known(SummaryFile),
    /// A person has edited the file. Contains the text without the mark.
    Edited(SummaryFile, Bytes),
}

/// Classifies a file by its text and its mark.
fn classify(
    key: &SessionKey,
    notes: &SessionMemory,
    found: SummaryFile,
    marked: MarkedFile,
) -> SummaryFileState {
    let version = notes.version.as_ref().map_or(0, |version| version.number);
    match marked.version {
        // The text is compared first: a known text without a mark is no edit.
        _ if is_own_text(notes, &marked.text) => SummaryFileState::Known(found),
        Some(written) => {
            tracing::warn!(
                session = %key,
                written,
                version,
                "summary.md is from a history that is not in the log; it is overwritten"
            );
            SummaryFileState::Known(found)
        }
        None => SummaryFileState::Edited(found, marked.text),
    }
}

fn is_blank(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_whitespace)
}

/// Returns true if the text belongs to this log. A text without a final line break gets one in the file, so both
/// forms are compared.
fn is_own_text(notes: &SessionMemory, text: &[u8]) -> bool {
    let ended = text.strip_suffix(b"\n");
    notes.is_known_text(text) || ended.is_some_and(|text| notes.is_known_text(text))
}

fn is_edit(notes: &SessionMemory, marked: &MarkedFile) -> bool {
    marked.version.is_none() && !is_own_text(notes, &marked.text)
}

/// Reads the file once, and returns its text if a person has edited it since the latest version. An unreadable file
/// contains no edit here: the next write of the file reports the error.
pub(crate) async fn unrecorded_edit(
    blobs: &Blobs,
    key: &SessionKey,
    notes: &SessionMemory,
) -> Option<Bytes> {
    let found = blobs.summary(key).await.ok()??;
    let marked = version_mark::read(key, &found.text);
    (!is_blank(&found.text) && is_edit(notes, &marked)).then_some(marked.text)
}

/// Reads and classifies a session's file. A recent edit is read again after a delay, because the editor may still be
/// writing.
pub(crate) async fn read_state(
    shared: &WorkerContext,
    key: &SessionKey,
    notes: &SessionMemory,
) -> Result<SummaryFileState, BlobError> {
    let mut reads = 0;
    loop {
        let Some(found) = shared.blobs.summary(key).await? else {
            return Ok(SummaryFileState::Missing);
        };
        reads += 1;
        // An empty file contains nothing of a person: it was truncated, or its content is about to be written.
        let is_blank = is_blank(&found.text);
        let marked = version_mark::read(key, &found.text);
        if !is_edit(notes, &marked) {
            return Ok(classify(key, notes, found, marked));
        }
        let age = shared.clock.now().millis_since(found.written);
        // A file that changes all the time is used as it is after the last read, although it may be incomplete.
        if u128::from(age) >= shared.options.settle.as_millis() || reads >= MAX_READS {
            return Ok(if is_blank {
                SummaryFileState::Known(found)
            } else {
                classify(key, notes, found, marked)
            });
        }
        sleep(shared.options.settle).await;
    }
}

/// Imports an edit. Returns false if another version was recorded first. `read` is the last message that the edited text
/// covers. Later messages are read again by the next update, on top of the edit.
pub(crate) async fn import(
    shared: &WorkerContext,
    key: &SessionKey,
    job: &MemoryJob,
    edited: &Bytes,
    read_through: Option<Ordinal>,
) -> Result<bool, HostError> {
    let redact = compose::redactor(shared, &job.summary);
    let edit = edit::of_file(job, edited, redact, read_through);
    let is_imported = shared.host.commit(key, None, None, edit).await?;
    if is_imported {
        shared.stats.edit();
        tracing::info!(session = %key, "imported a manual edit of summary.md");
    }
    Ok(is_imported)
}

/// Writes the latest text to the file. If the file was edited meanwhile, the edit is imported with `read` as in
/// [`import`].
pub(crate) async fn write(
    shared: &WorkerContext,
    key: &SessionKey,
    read: Option<Ordinal>,
) -> Result<(), HostError> {
    let mut next = shared.host.job_cached(key).await?;
    for _ in 0..MAX_READS {
        let Some(job) = next else {
            return Ok(());
        };
        match write_once(shared, key, &job, read).await {
            Ok(true) if job.session_memory.file_failure.is_some() => {
                return shared.host.file_written(key).await;
            }
            Ok(true) => return Ok(()),
            // The file or session changed between read and write, so the next attempt uses fresh state.
            Ok(false) => next = shared.host.job(key).await?,
            Err(WriteFailure::Host(error)) => return Err(error),
            Err(WriteFailure::Blob(error)) => {
                return record_failure(shared, key, &job, &error_chain(&error)).await;
            }
        }
    }
    match next {
        Some(job) => {
            record_failure(
                shared,
                key,
                &job,
                "the file changed during each attempt to write it",
            )
            .await
        }
        None => Ok(()),
    }
}

enum WriteFailure {
    Host(HostError),
    Blob(BlobError),
}

impl From<HostError> for WriteFailure {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl From<BlobError> for WriteFailure {
    fn from(error: BlobError) -> Self {
        Self::Blob(error)
    }
}

/// Attempts the write once. Returns false if the file changed between read and write.
async fn write_once(
    shared: &WorkerContext,
    key: &SessionKey,
    job: &MemoryJob,
    read: Option<Ordinal>,
) -> Result<bool, WriteFailure> {
    let found = match read_state(shared, key, &job.session_memory).await? {
        // Without a version the file is only written if a lost history left a text of the service there.
        SummaryFileState::Missing if job.session_memory.version.is_none() => return Ok(true),
        SummaryFileState::Known(file)
            if job.session_memory.version.is_none() && is_blank(&file.text) =>
        {
            return Ok(true);
        }
        SummaryFileState::Missing => None,
        SummaryFileState::Known(file) if file.text == content(key, &job.session_memory) => {
            return Ok(true);
        }
        SummaryFileState::Known(file) => Some(file),
        SummaryFileState::Edited(file, text) => {
            // If another version was recorded first, the next attempt imports the edit on top of it.
            if !import(shared, key, job, &text, read).await? {
                return Ok(false);
            }
            Some(file)
        }
    };
    // An imported edit is a new version, so the state is read again.
    let Some(job) = shared.host.job_cached(key).await? else {
        return Ok(true);
    };
    let text = content(key, &job.session_memory);
    // The file is replaced only if it is still the one that was read, so an edit in between is kept.
    let replaced = shared.blobs.replace_summary(key, found.as_ref(), text);
    Ok(replaced.await? == ReplaceOutcome::Written)
}

/// The expected content of the file: the latest version, or the template if no version exists.
fn content(key: &SessionKey, notes: &SessionMemory) -> Bytes {
    match &notes.version {
        Some(version) => {
            version_mark::render_file(key, version.number, version.source, version.text())
        }
        None => version_mark::render_file(key, 0, Revision::ZERO, MemoryContent::default().text()),
    }
}

/// Records that the file could not be written, and the time of the next attempt. The text is safe in the log.
async fn record_failure(
    shared: &WorkerContext,
    key: &SessionKey,
    job: &MemoryJob,
    why: &str,
) -> Result<(), HostError> {
    shared.stats.file_failure();
    let attempts = job
        .session_memory
        .file_failure
        .as_ref()
        .map_or(0, |it| it.attempts)
        + 1;
    let wait = backoff::delay(&shared.options, attempts, shared.ids.jitter());
    tracing::warn!(
        session = %key,
        error = why,
        attempts,
        "failed to write summary.md; the text is stored, and the write is retried"
    );
    let failure = FailMemoryUpdate {
        is_file_failure: true,
        detail: format!(
            "summary.md could not be written ({why}): the text is safe, and the file is tried again"
        )
        .into(),
        retry_at: shared.clock.now().plus(wait),
    };
    shared.host.fail(key, None, failure).await
}
