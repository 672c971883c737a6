//! The handlers in this process on a given log. Measures calls without a network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use palimpsest_core::command::memory_due_at;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::limits::Limits;
use palimpsest_engine::clock::{Clock, IdSource, SystemClock};
use palimpsest_engine::sessions::{DefaultPolicies, Sessions};
use palimpsest_load::data::{round, text};
use palimpsest_proto::context::v1::context_service_server::ContextService as _;
use palimpsest_proto::context::v1::{
    CompactRequest, CompactResponse, MessageInput, PrepareContextRequest, PrepareContextResponse,
    Target,
};
use palimpsest_server::grpc::Mutations;
use palimpsest_server::services::{ContextHandlers, Service};
use palimpsest_store::Store;
use palimpsest_store::blobs::Blobs;
use palimpsest_tests::say::{anthropic, assistant, user};
use palimpsest_worker::{WorkerConfig, sessions};
use tokio_util::sync::CancellationToken;
use tonic::Request;

/// Larger than any view of the bench, so that no level acts by itself.
const WINDOW_TOKENS: u32 = 100_000_000;
/// Tokens of a long view.
pub const TOKENS: u32 = 200_000;
/// Upper limit of the loop. A view of [`TOKENS`] needs fewer turns.
const MAX_TURNS: usize = 1_000;
/// Bytes of a user input and of a tool result in the turns of a long view.
const QUESTION_BYTES: usize = 200;
const RESULT_BYTES: usize = 7_000;
/// Bytes of text in a message.
pub const MESSAGE_BYTES: usize = 1_000;

/// Handlers of a process that has just started: no session is loaded.
pub struct InProcessServer {
    /// The sessions in memory.
    pub sessions: Arc<Sessions>,
    handlers: ContextHandlers,
    clock: Arc<dyn Clock>,
    ids: Arc<IdSource>,
    blobs: Arc<Blobs>,
    end: CancellationToken,
}

impl InProcessServer {
    /// Number of references to the sessions in an idle server.
    pub const HOLDS: usize = 2;

    /// Creates a server whose cache evicts no session.
    pub fn new(log: Arc<dyn Store>) -> Result<Self> {
        Self::with_cache(log, 1 << 30)
    }

    /// Creates a server with a cache of `cache_bytes`.
    pub fn with_cache(log: Arc<dyn Store>, cache_bytes: usize) -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let blobs = Arc::new(Blobs::in_memory());
        let sessions = Sessions::new(
            log,
            Arc::clone(&clock),
            Arc::new(Limits::default()),
            DefaultPolicies::default(),
            cache_bytes,
        );
        let sessions = Arc::new(sessions.with_blobs(Arc::clone(&blobs)));
        let ids = Arc::new(IdSource::random(Arc::clone(&clock)));
        let end = CancellationToken::new();
        let service = Service::new(
            Arc::clone(&sessions),
            Arc::clone(&blobs),
            Arc::clone(&ids),
            Mutations::default(),
            end.clone(),
        );
        Ok(Self {
            sessions,
            handlers: ContextHandlers(service),
            clock,
            ids,
            blobs,
            end,
        })
    }

    /// Starts a worker, which updates session memory without a model.
    pub fn start_worker(&self) {
        let worker = sessions::worker(
            &self.sessions,
            &self.blobs,
            &self.clock,
            &self.ids,
            &WorkerConfig::default(),
            None,
        );
        tokio::spawn(worker.run(self.end.clone()));
    }

    /// Returns the log.
    pub fn log(&self) -> &Arc<dyn Store> {
        self.sessions.log()
    }

    /// Calls `PrepareContext` with new messages. Returns the reply and the duration.
    pub async fn prepare(
        &self,
        session: &str,
        messages: Vec<MessageInput>,
        etag: &[u8],
    ) -> Result<(PrepareContextResponse, Duration)> {
        let request = PrepareContextRequest {
            session: session.into(),
            messages,
            known_etag: etag.to_vec().into(),
            target: Some(Target {
                window_tokens: Some(WINDOW_TOKENS),
                ..Target::default()
            }),
            ..PrepareContextRequest::default()
        };
        let began = Instant::now();
        let reply = self.handlers.prepare_context(Request::new(request)).await;
        let took = began.elapsed();
        Ok((reply?.into_inner(), took))
    }

    /// Runs a compaction. Returns the reply and the duration.
    pub async fn compact(&self, request: CompactRequest) -> Result<(CompactResponse, Duration)> {
        let began = Instant::now();
        let reply = self.handlers.compact(Request::new(request)).await;
        let took = began.elapsed();
        Ok((reply?.into_inner(), took))
    }

    /// Appends `messages` messages in calls of up to 500. Returns the last reply.
    pub async fn grow(&self, session: &str, messages: usize) -> Result<PrepareContextResponse> {
        let session = name(session);
        let mut last = PrepareContextResponse::default();
        let all: Vec<_> = (0..messages).collect();
        for some in all.chunks(500) {
            let said = some.iter().map(|number| message(*number)).collect();
            last = self.prepare(&session, said, &last.etag).await?.0;
        }
        Ok(last)
    }

    /// Appends turns until the view has [`TOKENS`] tokens. Returns the last reply.
    pub async fn grow_to_tokens(&self, session: &str) -> Result<PrepareContextResponse> {
        let mut last = PrepareContextResponse::default();
        for turn in 0..MAX_TURNS {
            last = self
                .prepare(&name(session), turn_of_agent(turn), &last.etag)
                .await?
                .0;
            if last
                .tokens
                .as_ref()
                .is_some_and(|tokens| tokens.total_tokens >= TOKENS)
            {
                return Ok(last);
            }
        }
        bail!("the view does not grow to {TOKENS} tokens")
    }

    /// Waits until no update of session memory is due or running.
    pub async fn settled(&self, session: &str) -> Result<()> {
        let key = SessionKey::parse(&name(session))?;
        let until = async {
            loop {
                let settled = self.sessions.read(&key, |session| {
                    let now = self.clock.now();
                    let is_due = memory_due_at(session, now).is_some_and(|due| due <= now);
                    !is_due && session.memory().running.is_none()
                });
                if settled.await? {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_mins(1), until).await;
        waited.context("the worker does not come to an end")?
    }
}

impl Drop for InProcessServer {
    fn drop(&mut self) {
        // Ends the worker, which also holds the sessions.
        self.end.cancel();
    }
}

/// Returns a message of [`MESSAGE_BYTES`] bytes. User and model alternate.
pub fn message(number: usize) -> MessageInput {
    let said = text(number as u64, MESSAGE_BYTES);
    if number.is_multiple_of(2) {
        user(&said)
    } else {
        assistant(&said)
    }
}

/// Returns one user turn: a user input, a tool call, its result and the response.
fn turn_of_agent(number: usize) -> Vec<MessageInput> {
    let asked = user(&text(number as u64, QUESTION_BYTES));
    let [called, returned] = round(number, RESULT_BYTES);
    let answered = assistant(&format!("Part {number} returns an error now."));
    vec![asked, anthropic(&called), anthropic(&returned), answered]
}

/// Returns the resource name of a session.
pub fn name(session: &str) -> String {
    format!("projects/bench/sessions/{session}")
}

/// Returns the median.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Converts a duration to microseconds.
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
