//! The handlers in this process, on a log that is given: what a call takes without the wire.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use palimpsest_core::command::memory_due;
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
use palimpsest_store::SessionLog;
use palimpsest_store::blobs::Blobs;
use palimpsest_tests::say::{anthropic, assistant, user};
use palimpsest_worker::{WorkerConfig, sessions};
use tokio_util::sync::CancellationToken;
use tonic::Request;

/// More than any session here has, so that nothing is due by itself.
const WINDOW_TOKENS: u32 = 100_000_000;
/// A view that is long.
pub const TOKENS: u32 = 200_000;
/// It is reached long before.
const MAX_TURNS: usize = 1_000;
/// What a person asks, and what a tool returns, in the turns of a long view.
const QUESTION_BYTES: usize = 200;
const RESULT_BYTES: usize = 7_000;
/// How many bytes a message says.
pub const MESSAGE_BYTES: usize = 1_000;

/// A process that was just started, as far as sessions know.
pub struct House {
    /// The sessions.
    pub sessions: Arc<Sessions>,
    handlers: ContextHandlers,
    clock: Arc<dyn Clock>,
    ids: Arc<IdSource>,
    blobs: Arc<Blobs>,
    end: CancellationToken,
}

impl House {
    /// How often a house in which nothing goes on holds its sessions.
    pub const HOLDS: usize = 2;

    /// One that lets no session go.
    pub fn new(log: Arc<dyn SessionLog>) -> Result<Self> {
        Self::with_cache(log, 1 << 30)
    }

    /// One with room for so many bytes of sessions.
    pub fn with_cache(log: Arc<dyn SessionLog>, cache_bytes: usize) -> Result<Self> {
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

    /// Starts a worker, which writes summaries by itself, without a model.
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

    /// The log beneath.
    pub fn log(&self) -> &Arc<dyn SessionLog> {
        self.sessions.log()
    }

    /// Messages in, and out what the caller does not know; with how long it took.
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

    /// A compaction, with how long it took.
    pub async fn compact(&self, request: CompactRequest) -> Result<(CompactResponse, Duration)> {
        let began = Instant::now();
        let reply = self.handlers.compact(Request::new(request)).await;
        let took = began.elapsed();
        Ok((reply?.into_inner(), took))
    }

    /// Says so many messages, a few hundred at one time; the view's last reply.
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

    /// Says messages until the view has [`TOKENS`]; its last reply.
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

    /// Until no summary of a session is due or being written.
    pub async fn settled(&self, session: &str) -> Result<()> {
        let key = SessionKey::parse(&name(session))?;
        let until = async {
            loop {
                let settled = self.sessions.read(&key, |session| {
                    let now = self.clock.now();
                    let is_due = memory_due(session, now).is_some_and(|due| due <= now);
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

impl Drop for House {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// A message of a thousand bytes, the user's and the model's in turn.
pub fn message(number: usize) -> MessageInput {
    let said = text(number as u64, MESSAGE_BYTES);
    if number.is_multiple_of(2) {
        user(&said)
    } else {
        assistant(&said)
    }
}

/// A person asks, a tool is called and returns, and the model answers.
fn turn_of_agent(number: usize) -> Vec<MessageInput> {
    let asked = user(&text(number as u64, QUESTION_BYTES));
    let [called, returned] = round(number, RESULT_BYTES);
    let answered = assistant(&format!("Part {number} returns an error now."));
    vec![asked, anthropic(&called), anthropic(&returned), answered]
}

/// The name of a session.
pub fn name(session: &str) -> String {
    format!("projects/bench/sessions/{session}")
}

/// The middle of some times.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// A time in microseconds.
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
