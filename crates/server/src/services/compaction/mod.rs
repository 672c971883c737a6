//! Level 5 in the server: a summary is got from the running one, from a model or from structure, and put
//! in the place of what it covers. Nothing holds the session while a summary is made.

mod input;
mod model;
mod patience;
mod summarise;

use palimpsest_core::command::{
    Command, CompactWithMemory, FailCompaction, FinishCompaction, Made, Scope, Skip,
    StartCompaction,
};
use palimpsest_core::event::{Asked, Event, WhyFailed};
use palimpsest_core::ids::{CompactionKey, Ordinal, Revision, SessionKey};
use palimpsest_core::message::Usage;
use palimpsest_core::session::{NotHeld, RequestStamp, Session, Strategy};
use palimpsest_store::crash_point;

use self::summarise::Summarised;
use super::Service;
use super::append::expected;
use crate::errors::ServiceError;
use crate::sessions::{Missing, Outcome, Transaction};

/// What somebody wants summarised, and how.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) asked: Asked,
    /// None leaves it to the policy.
    pub(super) strategy: Option<Strategy>,
    pub(super) scope: Scope,
    /// The model that is to write it; none leaves it to the policy.
    pub(super) model: Option<String>,
    /// For this summary alone; the running one was written without them.
    pub(super) instructions: Option<String>,
    pub(super) expected_revision: Option<Revision>,
    pub(super) request: Option<RequestStamp>,
    pub(super) dry_run: bool,
}

impl Wanted {
    /// What `PrepareContext` wants when the view has grown too large.
    pub(super) fn automatic(asked: Asked) -> Self {
        Self {
            asked,
            strategy: None,
            scope: Scope::Whole,
            model: None,
            instructions: None,
            expected_revision: None,
            request: None,
            dry_run: false,
        }
    }
}

/// What came of it: the event that ended it, or why there was none.
#[derive(Debug, Clone)]
pub(super) enum Ended {
    /// By this event, which has this revision.
    Event(Box<Event>, Revision),
    /// There was nothing to do.
    Skipped(Skip),
    /// The request was answered before, by the event with this revision.
    Before(Revision),
}

/// Compacts a session; `tell` makes what is wanted of the session after it.
pub(super) async fn compact<T>(
    service: &Service,
    key: &SessionKey,
    wanted: &Wanted,
    tell: impl Fn(&Session, &Ended) -> Result<T, NotHeld>,
) -> Result<T, ServiceError> {
    if let Some(told) = with_memory(service, key, wanted, &tell).await? {
        return Ok(told);
    }
    let begun = begin(service, key, wanted).await?;
    let job = match begun {
        Begun::Ended(ended) => {
            let look = |session: &Session| tell(session, &ended);
            let told = service.sessions.read(key, look).await?;
            if let Ok(told) = told {
                return Ok(told);
            }
            let look = |session: &Session| tell(session, &ended);
            let told = service.sessions.read_whole(key, look).await?;
            return told.map_err(|NotHeld| ServiceError::Internal {
                doing: "read a session whole",
                source: None,
            });
        }
        Begun::Job(job) => *job,
    };
    crash_point("compaction.begun");
    let begun_at = service.sessions.clock().now();
    let summarised = summarise::summarise(service, key, &job, wanted).await;
    crash_point("compaction.summarised");
    let took_ms = service.sessions.clock().now().millis_since(begun_at);
    finish(service, key, wanted, (&job, took_ms), summarised, tell).await
}

/// Compacts a session while nobody waits for it; its outcome is an event.
pub(super) fn begin_in_background(service: &Service, key: &SessionKey, asked: Asked) {
    let (inner, key) = (service.clone(), key.clone());
    service.mutations.in_background(async move {
        let wanted = Wanted::automatic(asked);
        if let Err(error) = compact(&inner, &key, &wanted, |_, _| Ok(())).await {
            let error = tonic::Status::from(error);
            let error = error.message();
            tracing::warn!(session = %key, error, "failed to compact; the next call tries again");
        }
    });
}

/// The running summary is there already: it is put in its place at once.
async fn with_memory<T>(
    service: &Service,
    key: &SessionKey,
    wanted: &Wanted,
    tell: &impl Fn(&Session, &Ended) -> Result<T, NotHeld>,
) -> Result<Option<T>, ServiceError> {
    let is_whole = wanted.scope == Scope::Whole;
    // The running summary was written without them.
    let as_is = wanted.instructions.is_none() && wanted.model.is_none();
    if !(is_whole && as_is && matches!(wanted.strategy, None | Some(Strategy::SessionMemory))) {
        return Ok(None);
    }
    if !wanted.dry_run {
        patience::for_notes(service, key).await?;
    }
    let made = made(service);
    let only = wanted.strategy.is_some();
    let decide = |transaction: &mut Transaction<'_>| {
        let first = transaction
            .session()
            .is_some_and(|session| session.policy().autocompact.session_memory_first);
        if !(first || only) {
            return Ok(None);
        }
        let compact = CompactWithMemory {
            asked: wanted.asked,
            made: made.clone(),
            expected_revision: expected(wanted.expected_revision, transaction)?,
            request: wanted.request.clone(),
        };
        let outcome = transaction.run(Command::CompactWithMemory(compact))?;
        Ok(Some(ended(outcome, transaction)))
    };
    let finish = |session: &Session, ended: &Option<Ended>| match ended {
        // Another strategy may help where the running summary cannot.
        None => Ok(None),
        Some(Ended::Skipped(Skip::NothingEligible | Skip::TooLittleGain)) if !only => Ok(None),
        Some(ended) => tell(session, ended).map(Some),
    };
    let (sessions, missing) = (&service.sessions, &Missing::Refuse);
    let told = sessions.run(key, missing, wanted.dry_run, decide, finish);
    Ok(told.await?)
}

/// A compaction that has begun, and what its summary is to be made of.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) key: CompactionKey,
    pub(super) leaving: Vec<Ordinal>,
    /// The session as it was then.
    pub(super) session: Session,
    /// What a dry run began, to be begun again upon a copy.
    start: StartCompaction,
}

impl Job {
    /// Whether a model is to write the summary.
    fn asks_model(&self) -> bool {
        self.start.strategy == Strategy::Model
    }
}

enum Begun {
    Job(Box<Job>),
    Ended(Ended),
}

async fn begin(
    service: &Service,
    key: &SessionKey,
    wanted: &Wanted,
) -> Result<Begun, ServiceError> {
    let start = StartCompaction {
        asked: wanted.asked,
        strategy: wanted.strategy.unwrap_or(if service.models.is_some() {
            Strategy::Model
        } else {
            Strategy::Extractive
        }),
        scope: wanted.scope,
        expected_revision: wanted.expected_revision,
        request: wanted.request.clone(),
    };
    let decide = |transaction: &mut Transaction<'_>| {
        let mut start = start.clone();
        start.expected_revision = expected(start.expected_revision, transaction)?;
        let outcome = transaction.run(Command::StartCompaction(start))?;
        Ok(ended(outcome, transaction))
    };
    let finish = |session: &Session, ended: &Ended| {
        if !session.transcript().is_whole() {
            return Err(NotHeld);
        }
        let Ended::Event(_, _) = ended else {
            return Ok(Begun::Ended(ended.clone()));
        };
        let Some(running) = &session.compactions().running else {
            return Ok(Begun::Ended(Ended::Skipped(Skip::NothingEligible)));
        };
        Ok(Begun::Job(Box::new(Job {
            key: running.key,
            leaving: running.leaving.clone(),
            session: session.clone(),
            start: start.clone(),
        })))
    };
    let (sessions, missing) = (&service.sessions, &Missing::Refuse);
    let begun = sessions.run(key, missing, wanted.dry_run, decide, finish);
    Ok(begun.await?)
}

async fn finish<T>(
    service: &Service,
    key: &SessionKey,
    wanted: &Wanted,
    (job, took_ms): (&Job, u64),
    summarised: Result<Summarised, (WhyFailed, String)>,
    tell: impl Fn(&Session, &Ended) -> Result<T, NotHeld>,
) -> Result<T, ServiceError> {
    let made = made(service);
    let end = match summarised {
        Ok(summarised) => Command::FinishCompaction(FinishCompaction {
            key: job.key,
            strategy: summarised.strategy,
            summary: summarised.text.into(),
            made,
            model: summarised.model.into(),
            usage: summarised.usage,
            took_ms,
        }),
        Err((why, detail)) => Command::FailCompaction(FailCompaction {
            key: job.key,
            why,
            detail: detail.into(),
            took_ms,
        }),
    };
    let decide = |transaction: &mut Transaction<'_>| {
        if wanted.dry_run {
            // Nothing was begun: the copy begins it now.
            transaction.run(Command::StartCompaction(job.start.clone()))?;
        }
        let outcome = transaction.run(end.clone())?;
        Ok(ended(outcome, transaction))
    };
    let (sessions, missing) = (&service.sessions, &Missing::Refuse);
    let told = sessions.run(key, missing, wanted.dry_run, decide, tell);
    Ok(told.await?)
}

fn ended(outcome: Outcome, transaction: &Transaction<'_>) -> Ended {
    match outcome {
        Outcome::Answered(revision) => Ended::Before(revision),
        Outcome::Skipped(skip) => Ended::Skipped(skip),
        Outcome::Done(None) => Ended::Skipped(Skip::NothingEligible),
        Outcome::Done(Some(revision)) => match transaction.events().last() {
            Some(recorded) => Ended::Event(Box::new(recorded.event.clone()), revision),
            None => Ended::Skipped(Skip::NothingEligible),
        },
    }
}

/// What a compaction adds to the transcript beside its summary.
fn made(service: &Service) -> Made {
    let mut id = service.next_id();
    Made {
        mark: id(),
        summary: id(),
        attached: Vec::new(),
    }
}

/// What no model has reported.
const NO_USAGE: Usage = Usage {
    input_tokens: 0,
    cache_read_tokens: 0,
    cache_write_tokens: 0,
    output_tokens: 0,
};
