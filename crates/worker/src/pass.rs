//! One look at one session: what a person wrote is taken in, an update is made when one is due, and the
//! file is made to hold the text. Every step can be repeated, so it does not matter where the last one
//! was cut off.

use std::time::Duration;

use palimpsest_core::command::{FailMemory, UpdateMemory};
use palimpsest_core::ids::{Ordinal, SessionKey, Timestamp};
use palimpsest_core::memory::Memory;
use palimpsest_core::session::Author;
use palimpsest_store::{DueChange, crash_point, error_chain};

use crate::backoff;
use crate::compose::{self, MemoryDraft, UpdateInput};
use crate::file::{self, SummaryFileState};
use crate::host::{HostError, MemoryJob};
use crate::lease::later;
use crate::worker::WorkerContext;

/// How often a text is written again because somebody else wrote meanwhile.
const MAX_DRAFTS: usize = 3;

/// Does what there is to do, and says when to look again.
pub(crate) async fn run(shared: &WorkerContext, key: &SessionKey) -> Result<DueChange, HostError> {
    crash_point("memory.claimed");
    let Some(mut job) = shared.host.job(key).await? else {
        return Ok(DueChange::Clear);
    };
    if !job.wanted {
        return Ok(DueChange::Clear);
    }
    if let Some(next) = take_in_edit(shared, key, &job, job.session_memory.read_for_edit()).await? {
        job = next;
    }
    // What an edit is based on that comes while this goes on.
    let read = job.session_memory.read_for_edit();
    if job.due.is_some_and(|due| due <= shared.clock.now()) {
        update(shared, key, &job).await?;
    }
    file::write(shared, key, read).await?;
    crash_point("memory.filed");
    next(shared, key).await
}

/// When to look again.
async fn next(shared: &WorkerContext, key: &SessionKey) -> Result<DueChange, HostError> {
    let Some(job) = shared.host.job(key).await? else {
        // It was deleted meanwhile, and the file may have been written after that.
        if let Err(error) = shared.blobs.remove_summary(key).await {
            tracing::warn!(session = %key, error = %error_chain(&error), "failed to remove the summary of a deleted session");
        }
        return Ok(DueChange::Clear);
    };
    let file = job
        .session_memory
        .unfiled
        .as_ref()
        .map(|failure| failure.next);
    let next = job.due.into_iter().chain(file).min();
    let now = shared.clock.now();
    Ok(next.map_or(DueChange::Clear, |next| DueChange::at(next, now)))
}

/// Takes in what a person wrote into the file, if anybody did. A file that cannot be read keeps nothing
/// from being noted: that is told when it is written.
async fn take_in_edit(
    shared: &WorkerContext,
    key: &SessionKey,
    job: &MemoryJob,
    read: Option<Ordinal>,
) -> Result<Option<MemoryJob>, HostError> {
    let Ok(SummaryFileState::Edited(_, found)) = file::look(shared, key, &job.session_memory).await
    else {
        return Ok(None);
    };
    file::import(shared, key, job, &found, read).await?;
    shared.host.job_cached(key).await
}

/// Makes an update, or records that it came to nothing.
async fn update(
    shared: &WorkerContext,
    key: &SessionKey,
    job: &MemoryJob,
) -> Result<(), HostError> {
    let template = Memory::template().render();
    let (began, done) = match shared.host.begin(key, &template).await {
        Ok(None) => return Ok(()),
        Ok(Some(begun)) => (begun.session_memory.running, note(shared, key, begun).await),
        Err(error) => (None, Err(error)),
    };
    match done {
        Ok(()) | Err(HostError::Gone) => Ok(()),
        Err(error) => failed(shared, key, (job, began), &error).await,
    }
}

/// Writes the next version of an update that has begun.
async fn note(
    shared: &WorkerContext,
    key: &SessionKey,
    mut job: MemoryJob,
) -> Result<(), HostError> {
    crash_point("memory.begun");
    let began = Began {
        at: job.session_memory.running,
        by_clock: shared.clock.monotonic(),
    };
    let mut base = Base::of(&job);
    let notebook = compose::take_notes(shared, key, &job, base.read).await?;
    crash_point("memory.noted");
    for _ in 0..MAX_DRAFTS {
        let draft = compose::write(shared, &job, &base.text, &notebook).await;
        crash_point("memory.drafted");
        // The last moment at which an edit can still be built upon. Who asked no model began a moment ago, and an
        // edit since is found when the file is written.
        let edited = if draft.asked_a_model() {
            take_in_edit(shared, key, &job, base.read).await?
        } else {
            None
        };
        if let Some(next) = edited {
            let reach = job.reach;
            job = MemoryJob { reach, ..next };
            base.text = Base::of(&job).text;
            continue;
        }
        if commit(shared, key, &job, draft, &began).await? {
            crash_point("memory.committed");
            shared.stats.update();
            return Ok(());
        }
        return Err(outrun());
    }
    drop::<UpdateInput>(notebook);
    Err(outrun())
}

fn outrun() -> HostError {
    HostError::Refused(
        "somebody else wrote the summary meanwhile, or the store has lost that this was begun: it is tried again".into(),
    )
}

/// When an update began.
struct Began {
    /// As the session knows it.
    at: Option<Timestamp>,
    by_clock: Duration,
}

/// What an update is built upon.
struct Base {
    text: Memory,
    read: Option<Ordinal>,
}

impl Base {
    /// A text of our own that speaks of what was taken back is written anew. One that others had a
    /// part in is built upon, because their words cannot be made again.
    fn of(job: &MemoryJob) -> Self {
        match &job.session_memory.version {
            Some(version) if !job.is_false || job.session_memory.by_others => Self {
                text: Memory::parse(&version.text),
                read: version.read,
            },
            _ => Self {
                text: Memory::template(),
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
    began: &Began,
) -> Result<bool, HostError> {
    let now = shared.clock.now();
    let model_failed = draft.model_failed.map(|why| {
        shared.stats.failure();
        tracing::warn!(session = %key, error = %why, "a model did not keep the summary; it is kept without one");
        FailMemory {
            of_file: false,
            detail: format!("the model failed, and the summary is kept without one: {why}").into(),
            next: now,
        }
    });
    let took = shared.clock.monotonic().saturating_sub(began.by_clock);
    let version = job.session_memory.version.as_ref();
    let update = UpdateMemory {
        text: draft.text,
        author: draft.author,
        upon: version.map_or(0, |version| version.number),
        source: job.revision,
        read_to: job.reach,
        file: None,
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    };
    debug_assert!(update.author != Author::Person, "a person is no draft");
    let commit = shared.host.commit(key, began.at, model_failed, update);
    commit.await
}

/// Records that an update came to nothing, and when it is tried again.
pub(crate) async fn failed(
    shared: &WorkerContext,
    key: &SessionKey,
    (job, began): (&MemoryJob, Option<Timestamp>),
    error: &HostError,
) -> Result<(), HostError> {
    shared.stats.failure();
    let attempts = job
        .session_memory
        .failure
        .as_ref()
        .map_or(0, |it| it.attempts)
        + 1;
    let wait = backoff::wait(&shared.options, attempts, shared.ids.jitter());
    tracing::warn!(session = %key, error = %error_chain(error), attempts, "failed to update a summary; it is tried again");
    let failure = FailMemory {
        of_file: false,
        detail: error_chain(error).into(),
        next: later(shared.clock.now(), wait),
    };
    shared.host.fail(key, began, failure).await
}
