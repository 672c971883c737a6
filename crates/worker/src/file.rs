//! `summary.md`: a copy of the text, and the place where a person may edit it.

use bytes::Bytes;
use palimpsest_core::command::{FailMemory, UpdateMemory};
use palimpsest_core::ids::{Ordinal, Revision, SessionKey};
use palimpsest_core::memory::Memory;
use palimpsest_core::session::{Author, Notes, text_digest};
use palimpsest_store::blobs::{BlobError, Replaced, SummaryFile};
use palimpsest_store::told;
use tokio::time::sleep;

use crate::host::{HostError, Job};
use crate::mark::Marked;
use crate::worker::Shared;
use crate::{backoff, compose, lease, mark};

/// How often a file is looked at again that somebody keeps writing.
const MAX_LOOKS: usize = 5;

/// What a file is found to be.
#[derive(Debug)]
pub(crate) enum Look {
    /// There is none.
    Missing,
    /// It holds a text of the service: of the latest version, of an earlier one, or of a history that the log does
    /// not have.
    Known(SummaryFile),
    /// A person has edited it. The text is theirs, without the mark.
    Edited(SummaryFile, Bytes),
}

/// A file and what its mark says.
fn judged(key: &SessionKey, notes: &Notes, found: SummaryFile, marked: Marked) -> Look {
    let version = notes.version.as_ref().map_or(0, |version| version.number);
    match marked.version {
        _ if knows(notes, &marked.text) => Look::Known(found),
        Some(written) => {
            tracing::warn!(
                session = %key,
                written,
                version,
                "summary.md was written from a history that the log does not hold: it is written anew"
            );
            Look::Known(found)
        }
        None => Look::Edited(found, marked.text),
    }
}

fn is_blank(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_whitespace)
}

/// Returns true for a text of this log. The file of a text that ends without a line break ends with one.
fn knows(notes: &Notes, text: &[u8]) -> bool {
    let ended = text.strip_suffix(b"\n");
    notes.knows(text) || ended.is_some_and(|text| notes.knows(text))
}

/// Looks at a session's file. One that was edited a moment ago is looked at again a little later: an
/// editor may not be through with it.
pub(crate) async fn look(
    shared: &Shared,
    key: &SessionKey,
    notes: &Notes,
) -> Result<Look, BlobError> {
    for _ in 0..MAX_LOOKS {
        let Some(found) = shared.blobs.summary(key).await? else {
            return Ok(Look::Missing);
        };
        // Nothing of a person's is in an empty file: it was cut, or is about to be written.
        let is_blank = is_blank(&found.text);
        let marked = mark::read(key, &found.text);
        if marked.version.is_some() || knows(notes, &marked.text) {
            return Ok(judged(key, notes, found, marked));
        }
        let age = shared.clock.now().millis_since(found.written);
        if u128::from(age) >= shared.options.settle.as_millis() {
            return Ok(if is_blank {
                Look::Known(found)
            } else {
                judged(key, notes, found, marked)
            });
        }
        sleep(shared.options.settle).await;
    }
    // It is written all the time. What there is now is better than nothing.
    Ok(match shared.blobs.summary(key).await? {
        None => Look::Missing,
        Some(found) => {
            let marked = mark::read(key, &found.text);
            judged(key, notes, found, marked)
        }
    })
}

/// Takes in what a person wrote. `read` is the last message that was read for the text that they edited:
/// what was noted of later ones is noted again, upon their words.
pub(crate) async fn import(
    shared: &Shared,
    key: &SessionKey,
    job: &Job,
    edited: &Bytes,
    read: Option<Ordinal>,
) -> Result<(), HostError> {
    let text = String::from_utf8_lossy(edited);
    let version = job.notes.version.as_ref();
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
    shared: &Shared,
    key: &SessionKey,
    read: Option<Ordinal>,
) -> Result<(), HostError> {
    let mut next = shared.host.job_as_left(key).await?;
    for _ in 0..MAX_LOOKS {
        let Some(job) = next else {
            return Ok(());
        };
        match write_once(shared, key, &job, read).await {
            Ok(true) if job.notes.unfiled.is_some() => return shared.host.filed(key).await,
            Ok(true) => return Ok(()),
            Ok(false) => next = shared.host.job(key).await?,
            Err(Failed::Host(error)) => return Err(error),
            Err(Failed::Blob(error)) => return failed(shared, key, &job, &told(&error)).await,
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
    shared: &Shared,
    key: &SessionKey,
    job: &Job,
    read: Option<Ordinal>,
) -> Result<bool, Failed> {
    let found = match look(shared, key, &job.notes).await? {
        // Without a version there is nothing to write, unless a lost history has left its own.
        Look::Missing if job.notes.version.is_none() => return Ok(true),
        Look::Known(file) if job.notes.version.is_none() && is_blank(&file.text) => {
            return Ok(true);
        }
        Look::Missing => None,
        Look::Known(file) if file.text == content(key, &job.notes) => return Ok(true),
        Look::Known(file) => Some(file),
        Look::Edited(file, text) => {
            import(shared, key, job, &text, read).await?;
            Some(file)
        }
    };
    // After an edit the latest version is another one.
    let Some(job) = shared.host.job_as_left(key).await? else {
        return Ok(true);
    };
    let text = content(key, &job.notes);
    let replaced = shared.blobs.replace_summary(key, found.as_ref(), text);
    Ok(replaced.await? == Replaced::Written)
}

/// What the file should hold: the latest version, or headings alone while there is none.
fn content(key: &SessionKey, notes: &Notes) -> Bytes {
    match &notes.version {
        Some(version) => mark::mark(key, version.number, version.source, &version.text),
        None => mark::mark(key, 0, Revision::ZERO, &Memory::template().render()),
    }
}

/// The text is safe; that the file is not there is told, and tried again.
async fn failed(shared: &Shared, key: &SessionKey, job: &Job, why: &str) -> Result<(), HostError> {
    shared.stats.file_failure();
    let attempts = job.notes.unfiled.as_ref().map_or(0, |it| it.attempts) + 1;
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
