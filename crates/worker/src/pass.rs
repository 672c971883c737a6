//! One pass over one session: import an edit of the file, update session memory if due, and write the file. Every
//! step is idempotent, so a pass can be interrupted anywhere and repeated.

use std::time::Duration;

use palimpsest_core::command::{FailMemoryUpdate, RecordMemoryVersion};
use palimpsest_core::ids::{Ordinal, SessionKey, Timestamp};
use palimpsest_core::memory::MemoryContent;
use palimpsest_core::session::Author;
use palimpsest_store::{DueChange, crash_point, error_chain};

use crate::backoff;
use crate::compose::{self, MemoryDraft, UpdateInput};
use crate::file::{self, SummaryFileState};
use crate::host::{HostError, MemoryJob};
use crate::worker::WorkerContext;

/// Maximum number of drafts of one update. A draft is repeated after an edit of the file.
const MAX_DRAFTS: usize = 3;

/// Runs one pass and returns the time of the next one.
pub(crate) async fn run(shared: &WorkerContext, key: &SessionKey) -> Result<DueChange, HostError> {
    crash_point("memory.claimed");
    let Some(mut job) = shared.host.job(key).await? else {
        return Ok(DueChange::Clear);
    };
    if !job.is_enabled {
        return Ok(DueChange::Clear);
    }
    // Edits are imported before an update, so that the update builds on them.
    if let Some(imported) =
        import_edit(shared, key, &job, job.session_memory.edit_read_through()).await?
    {
        job = imported;
    }
    // An edit that arrives during the update is based on the text of this state.
    let read = job.session_memory.edit_read_through();
    if job.due.is_some_and(|due| due <= shared.clock.now()) {
        update(shared, key, &job).await?;
    }
    // The file is written in every pass, because an earlier pass may have ended before its write.
    file::write(shared, key, read).await?;
    crash_point("memory.filed");
    next_pass(shared, key).await
}

async fn next_pass(shared: &WorkerContext, key: &SessionKey) -> Result<DueChange, HostError> {
    // The cached state could hide a deletion by another process. The read is fresh, while the lease still blocks the
    // name.
    let Some(job) = shared.host.job(key).await? else {
        // The session was deleted during the pass, and the pass may have written the file after the deletion.
        if let Err(error) = shared.blobs.remove_summary(key).await {
            tracing::warn!(session = %key, error = %error_chain(&error), "failed to remove the summary of a deleted session");
        }
        return Ok(DueChange::Clear);
    };
    let file = job
        .session_memory
        .file_failure
        .as_ref()
        .map(|failure| failure.retry_at);
    // A failed write of the file is retried without an update of the text.
    let next = job.due.into_iter().chain(file).min();
    let now = shared.clock.now();
    Ok(next.map_or(DueChange::Clear, |next| DueChange::at(next, now)))
}

/// Imports an edit of the file and returns the state after it, or `None` without an edit. An unreadable file does not
/// prevent an update: the later write of the file reports the error.
async fn import_edit(
    shared: &WorkerContext,
    key: &SessionKey,
    job: &MemoryJob,
    read: Option<Ordinal>,
) -> Result<Option<MemoryJob>, HostError> {
    let Ok(SummaryFileState::Edited(_, found)) =
        file::read_state(shared, key, &job.session_memory).await
    else {
        return Ok(None);
    };
    // If another version was recorded first, the write of the file imports the edit on top of it.
    let _ = file::import(shared, key, job, &found, read).await?;
    shared.host.job_cached(key).await
}

/// Runs an update, or records its failure.
async fn update(
    shared: &WorkerContext,
    key: &SessionKey,
    job: &MemoryJob,
) -> Result<(), HostError> {
    let (began, done) = match shared.host.begin(key).await {
        Ok(None) => return Ok(()),
        Ok(Some(begun)) => (
            begun.session_memory.running,
            write_version(shared, key, begun).await,
        ),
        Err(error) => (None, Err(error)),
    };
    match done {
        // `next_pass` handles a deleted session.
        Ok(()) | Err(HostError::SessionNotFound) => Ok(()),
        Err(error) => record_failure(shared, key, (job, began), &error).await,
    }
}

/// Writes the next version of an update that has started.
async fn write_version(
    shared: &WorkerContext,
    key: &SessionKey,
    mut job: MemoryJob,
) -> Result<(), HostError> {
    crash_point("memory.begun");
    let began = UpdateStart {
        at: job.session_memory.running,
        by_clock: shared.clock.monotonic(),
    };
    let mut base = UpdateBase::of(&job);
    let notebook = compose::read_new_messages(shared, key, &job, base.read).await?;
    crash_point("memory.noted");
    for _ in 0..MAX_DRAFTS {
        let draft = compose::write(shared, (key, &job), &base.content, &notebook).await;
        crash_point("memory.drafted");
        // The last check for an edit that this version can include. Without a model the update takes only a moment,
        // and a later edit is found when the file is written.
        let edited = if draft.used_model() {
            import_edit(shared, key, &job, base.read).await?
        } else {
            None
        };
        if let Some(edited_job) = edited {
            // The edit is a new base for the same messages, so the range of the update stays.
            let readable_through = job.readable_through;
            job = MemoryJob {
                readable_through,
                ..edited_job
            };
            base.content = UpdateBase::of(&job).content;
            continue;
        }
        if commit(shared, key, &job, draft, &began).await? {
            crash_point("memory.committed");
            shared.stats.update();
            return Ok(());
        }
        return Err(lost_race());
    }
    drop::<UpdateInput>(notebook);
    Err(lost_race())
}

fn lost_race() -> HostError {
    HostError::Refused(
        "another process wrote the summary during this update, or the start of the update was lost: the update is repeated".into(),
    )
}

struct UpdateStart {
    /// The start according to the session, which identifies the update.
    at: Option<Timestamp>,
    by_clock: Duration,
}

/// The content and the last read message on which an update is based.
struct UpdateBase {
    content: MemoryContent,
    read: Option<Ordinal>,
}

impl UpdateBase {
    /// Returns the base of the next version. Content of the service that mentions removed messages is derived again
    /// from the start. Content with contributions of others is kept as the base, because it cannot be derived again.
    fn of(job: &MemoryJob) -> Self {
        match &job.session_memory.version {
            Some(version) if !job.is_invalidated || job.session_memory.has_foreign_text => Self {
                content: version.content.clone(),
                read: version.read_through,
            },
            _ => Self {
                content: MemoryContent::default(),
                read: None,
            },
        }
    }
}

async fn commit(
    shared: &WorkerContext,
    key: &SessionKey,
    job: &MemoryJob,
    draft: MemoryDraft,
    began: &UpdateStart,
) -> Result<bool, HostError> {
    let retry_at = shared.clock.now();
    // The failure of the model is committed together with the version that replaces its text.
    let model_failed = draft.model_failed.map(|why| {
        shared.stats.failure();
        tracing::warn!(session = %key, error = %why, "a model failed to update session memory; it was updated without a model");
        FailMemoryUpdate {
            is_file_failure: false,
            detail: format!("the model failed, and the summary is kept without one: {why}").into(),
            retry_at,
        }
    });
    // The duration is measured by the monotonic clock, because the wall clock may be set during a long model call.
    let took = shared.clock.monotonic().saturating_sub(began.by_clock);
    let update = RecordMemoryVersion {
        content: draft.content,
        author: draft.author,
        base_version: job.version_number(),
        source: job.revision,
        read_through: job.readable_through,
        edited_file: None,
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    };
    debug_assert!(update.author != Author::Person, "a person is no draft");
    let commit = shared.host.commit(key, began.at, model_failed, update);
    commit.await
}

/// Records the failure of an update and the time of the next attempt.
pub(crate) async fn record_failure(
    shared: &WorkerContext,
    key: &SessionKey,
    (job, began): (&MemoryJob, Option<Timestamp>),
    error: &HostError,
) -> Result<(), HostError> {
    shared.stats.failure();
    // A successful update clears the failure, so this counts failures in a row.
    let attempts = job
        .session_memory
        .failure
        .as_ref()
        .map_or(0, |it| it.attempts)
        + 1;
    let wait = backoff::delay(&shared.options, attempts, shared.ids.jitter());
    tracing::warn!(session = %key, error = %error_chain(error), attempts, "failed to update session memory; retrying");
    let failure = FailMemoryUpdate {
        is_file_failure: false,
        detail: error_chain(error).into(),
        retry_at: shared.clock.now().plus(wait),
    };
    shared.host.fail(key, began, failure).await
}
