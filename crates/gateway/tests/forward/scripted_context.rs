//! A context that changes no body and whose records end when a test permits.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use palimpsest_core::array::ChainHead;
use palimpsest_core::ids::SessionKey;
use palimpsest_gateway::context::{
    ContextPort, ManagedRequest, ModelBody, ModelRequest, OwnCalls, RecordError, RecordedResponse,
    ResponsePlace, ToolRound, Unmanaged,
};
use tokio::sync::{Semaphore, mpsc};

/// A context for tests.
#[derive(Debug)]
pub(crate) struct ScriptedContext {
    begun: mpsc::UnboundedSender<RecordedResponse>,
    /// The records that may end.
    permits: Semaphore,
    failure: Mutex<Option<String>>,
}

impl ScriptedContext {
    /// Returns a context, and the responses whose records have begun. No record ends without a permit.
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<RecordedResponse>) {
        let (begun, begins) = mpsc::unbounded_channel();
        let context = Self {
            begun,
            permits: Semaphore::new(0),
            failure: Mutex::default(),
        };
        (Arc::new(context), begins)
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
    async fn prepare(&self, _: ModelRequest) -> Result<ManagedRequest, Unmanaged> {
        Ok(ManagedRequest {
            body: ModelBody::Original,
            model: None,
            place: ResponsePlace {
                session: SessionKey::parse("projects/p/sessions/s").unwrap(),
                after: ChainHead::default(),
            },
            offered: None,
        })
    }

    async fn record(&self, response: RecordedResponse) -> Result<(), RecordError> {
        self.begun.send(response).unwrap();
        self.permits.acquire().await.unwrap().forget();
        let failure = self.failure.lock().unwrap().take();
        failure.map_or(Ok(()), |reason| Err(RecordError(reason)))
    }

    async fn run_tools(&self, _: OwnCalls) -> Result<ToolRound, RecordError> {
        Err(RecordError("no tool was offered".to_owned()))
    }
}
