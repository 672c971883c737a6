//! A context that changes no body, and whose commits and records end when a test permits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_core::array::ChainHead;
use palimpsest_core::ids::SessionKey;
use palimpsest_gateway::context::{
    ContextPort, ManagedRequest, ModelBody, ModelOptions, ModelRequest, OwnCalls, PendingCommit,
    PreparedRequest, RecordError, RecordedResponse, ResponsePlace, ToolRound, Unmanaged,
};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

/// A context for tests.
#[derive(Debug)]
pub(crate) struct ScriptedContext {
    begun: mpsc::UnboundedSender<RecordedResponse>,
    /// The records that may end.
    permits: Semaphore,
    failure: Mutex<Option<String>>,
    /// The commits of requests, in order. Without one, a request is committed at once.
    commits: Mutex<VecDeque<oneshot::Receiver<Result<(), Unmanaged>>>>,
}

impl ScriptedContext {
    /// Returns a context, and the responses whose records have begun. No record ends without a permit.
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<RecordedResponse>) {
        let (begun, begins) = mpsc::unbounded_channel();
        let context = Self {
            begun,
            permits: Semaphore::new(0),
            failure: Mutex::default(),
            commits: Mutex::default(),
        };
        (Arc::new(context), begins)
    }

    /// Makes the commit of the next request wait for an outcome.
    pub(crate) fn commit_later(&self) -> oneshot::Sender<Result<(), Unmanaged>> {
        let (sender, commit) = oneshot::channel();
        self.commits.lock().unwrap().push_back(commit);
        sender
    }

    /// Permits further records to end.
    pub(crate) fn permit(&self, records: usize) {
        self.permits.add_permits(records);
    }

    /// Makes all records fail.
    pub(crate) fn fail(&self, reason: &str) {
        *self.failure.lock().unwrap() = Some(reason.to_owned());
    }
}

#[async_trait]
impl ContextPort for ScriptedContext {
    async fn prepare(&self, _: ModelRequest) -> Result<PreparedRequest, Unmanaged> {
        let request = ManagedRequest {
            body: ModelBody::Original,
            model: None,
            options: ModelOptions::default(),
            place: ResponsePlace {
                session: SessionKey::parse("projects/p/sessions/s").unwrap(),
                after: ChainHead::default(),
            },
            offered: None,
            edits: None,
        };
        let commit = self.commits.lock().unwrap().pop_front();
        let committed = request.clone();
        let commit = commit.map(|commit| {
            let task = tokio::spawn(async { commit.await.unwrap().map(|()| committed) });
            PendingCommit::new(task, Instant::now() + Duration::from_hours(1))
        });
        Ok(PreparedRequest { request, commit })
    }

    async fn record(&self, response: RecordedResponse) -> Result<(), RecordError> {
        self.begun.send(response).unwrap();
        // A forgotten permit does not return, so that each record needs one of its own.
        self.permits.acquire().await.unwrap().forget();
        let failure = self.failure.lock().unwrap().take();
        failure.map_or(Ok(()), |reason| Err(RecordError(reason)))
    }

    async fn run_tools(&self, _: OwnCalls) -> Result<ToolRound, RecordError> {
        Err(RecordError("no tool was offered".to_owned()))
    }
}
