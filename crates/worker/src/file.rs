//! `summary.md`: a copy of the text, and the place where a person may edit it.

use bytes::Bytes;
use palimpsest_core::command::{FailMemory, UpdateMemory};
use palimpsest_core::ids::{Ordinal, Revision, SessionKey};
use palimpsest_core::memory::Memory;
use palimpsest_core::session::{Author, SessionMemory, text_digest};
use palimpsest_store::blobs::{BlobError, ReplaceOutcome, SummaryFile};
use palimpsest_store::error_chain;
use tokio::time::sleep;

use crate::host::{HostError, MemoryJob};
use crate::version_mark::MarkedFile;
use crate::worker::WorkerContext;
use crate::{backoff, compose, lease, version_mark};

/// How often a file is looked at again that somebody keeps writing.
const MAX_LOOKS: usize = 5;

/// What a file is found to be.
#[derive(Debug)]
pub(crate) enum SummaryFileState {
    /// There is none.
    Missing,
    /// It holds a text of the service: of the latest version, of an earlier one, or of a history that the log does
    /// not have.
    Known(SummaryFile),
    /// A person has edited it. The text is theirs, without the mark.
    Edited(SummaryFile, Bytes),
}

/// A file and what its mark says.
fn judged(
    key: &SessionKey,
    notes: &SessionMemory,
    found: SummaryFile,
    marked: MarkedFile,
) -> SummaryFileState {
    let version = notes.version.as_ref().map_or(0, |version| version.number);
    match marked.version {
        _ if knows(notes, &marked.text) => SummaryFileState::Known(found),
        Some(written) => {
            tracing::warn!(
                session = %key,
                written,
                version,
                "summary.md was written from a history that the log does not hold: it is written anew"
            );
            SummaryFileState::Known(found)
        }
        None => SummaryFileState::Edited(found, marked.text),
    }
}

fn is_blank(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_whitespace)
}

/// Returns true for a text of this log. The file of a text that ends without a line break ends with one.
fn knows(notes: &SessionMemory, text: &[u8]) -> bool {
    let ended = text.strip_suffix(b"\n");
    notes.knows(text) || ended.is_some_and(|text| notes.knows(text))
}

/// Looks at a session's file. One that was edited a moment ago is looked at again a little later: an
/// editor may not be through with it.
pub(crate) async fn look(
    shared: &WorkerContext,
    key: &SessionKey,
    notes: &SessionMemory,
) -> Result<SummaryFileState, BlobError> {
    for _ in 0..MAX_LOOKS {
        let Some(found) = shared.blobs.summary(key).await? else {
            return Ok(SummaryFileState::Missing);
        };
        // Nothing of a person's is in an empty file: it was cut, or is about to be written.
        let is_blank = is_blank(&found.text);
        let marked = version_mark::read(key, &found.text);
        if marked.version.is_some() || knows(notes, &marked.text) {
            return Ok(judged(key, notes, found, marked));
        }
        let age = shared.clock.now().millis_since(found.written);
        if u128::from(age) >= shared.options.settle.as_millis() {
            return Ok(if is_blank {
                SummaryFileState::Known(found)
            } else {
                judged(key, notes, found, marked)
            });
        }
        sleep(shared.options.settle).await;
    }
    // It is written all the time. What there is now is better than nothing.
    Ok(match shared.blobs.summary(key).await? {
        None => SummaryFileState::Missing,
        Some(found) => {
            let marked = version_mark::read(key, &found.text);
            judged(key, notes, found, marked)
        }
    })
}

/// Takes in what a person wrote. `read` is the last message that was read for the text that they edited:
/// what was noted of later ones is noted again, upon their words.
pub(crate) async fn import(
    shared: &WorkerContext,
    key: &SessionKey,
    job: &MemoryJob,
    edited: &Bytes,
    read: Option<Ordinal>,
) -> Result<(), HostError> {
    let text = String::from_utf8_lossy(edited);
    let version = job.session_memory.version.as_ref();
    let edit = UpdateMemory {
        text: compose::edited(shared, job, &text),
        author: Author::Person,
        upon: version.map_or(0, |version| version.number),
        source: job.revision,
        read_to: read,
        file: Some(text_digest(edited)),
        took_ms: 0,
    };
    if shared.host.commit(key, None, None, edit).await? {
        shared.stats.edit();
        tracing::info!(session = %key, "took in a summary that was edited by hand");
    }
    Ok(())
}

/// Makes the file hold the latest text. `read` is as in [`import`], should it turn out that somebody has
/// edited the file meanwhile.
pub(crate) async fn write(
    shared: &WorkerContext,
    key: &SessionKey,
    read: Option<Ordinal>,
) -> Result<(), HostError> {
    let mut next = shared.host.job_cached(key).await?;
    for _ in 0..MAX_LOOKS {
        let Some(job) = next else {
            return Ok(());
        };
        match write_once(shared, key, &job, read).await {
            Ok(true) if job.session_memory.unfiled.is_some() => {
                return shared.host.filed(key).await;
            }
            Ok(true) => return Ok(()),
            Ok(false) => next = shared.host.job(key).await?,
            Err(Failed::Host(error)) => return Err(error),
            Err(Failed::Blob(error)) => {
                return failed(shared, key, &job, &error_chain(&error)).await;
            }
        }
    }
    match next {
        Some(job) => failed(shared, key, &job, "it is another one at each look").await,
        None => Ok(()),
    }
}

enum Failed {
    Host(HostError),
    Blob(BlobError),
}

impl From<HostError> for Failed {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl From<BlobError> for Failed {
    fn from(error: BlobError) -> Self {
        Self::Blob(error)
    }
}

/// False when somebody else has written.
async fn write_once(
    shared: &WorkerContext,
    key: &SessionKey,
    job: &MemoryJob,
    read: Option<Ordinal>,
) -> Result<bool, Failed> {
    let found = match look(shared, key, &job.session_memory).await? {
        // Without a version there is nothing to write, unless a lost history has left its own.
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
            import(shared, key, job, &text, read).await?;
            Some(file)
        }
    };
    // After an edit the latest version is another one.
    let Some(job) = shared.host.job_cached(key).await? else {
        return Ok(true);
    };
    let text = content(key, &job.session_memory);
    let replaced = shared.blobs.replace_summary(key, found.as_ref(), text);
    Ok(replaced.await? == ReplaceOutcome::Written)
}

/// What the file should hold: the latest version, or headings alone while there is none.
fn content(key: &SessionKey, notes: &SessionMemory) -> Bytes {
    match &notes.version {
        Some(version) => version_mark::mark(key, version.number, version.source, &version.text),
        None => version_mark::mark(key, 0, Revision::ZERO, &Memory::template().render()),
    }
}

/// The text is safe; that the file is not there is told, and tried again.
async fn failed(
    shared: &WorkerContext,
    key: &SessionKey,
    job: &MemoryJob,
    why: &str,
) -> Result<(), HostError> {
    shared.stats.file_failure();
    let attempts = job
        .session_memory
        .unfiled
        .as_ref()
        .map_or(0, |it| it.attempts)
        + 1;
    let wait = backoff::wait(&shared.options, attempts, shared.ids.jitter());
    tracing::warn!(
        session = %key,
        error = why,
        attempts,
        "failed to write summary.md; its text is safe, and the file is tried again"
    );
    let failure = FailMemory {
        of_file: true,
        detail: format!(
            "summary.md could not be written ({why}): the text is safe, and the file is tried again"
        )
        .into(),
        next: lease::later(shared.clock.now(), wait),
    };
    shared.host.fail(key, None, failure).await
}
