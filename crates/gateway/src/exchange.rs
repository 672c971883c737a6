//! The reading of one response: its reader, its outcome and its record.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::response::Parts;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::call::GatewayCall;
use super::context::{ContextPort, RecordedResponse, ResponsePlace, ResponseRound};
use super::metrics::{Outcome, ResponseMetrics};
use super::reading::{FinishedResponse, ReadMemory, Reader, ResponseApi, ResponseEnd, Unread};
use super::span::ModelSpan;
use super::thread::{MAX_INLINE_BYTES, on_fitting_thread};

/// The parts that all readings share.
#[derive(Debug)]
pub(crate) struct Readings {
    /// The context that records responses. `None` if nothing is recorded.
    pub(crate) context: Option<Arc<dyn ContextPort>>,
    pub(crate) metrics: ResponseMetrics,
    pub(crate) memory: ReadMemory,
    /// The maximum content of one response, in bytes.
    pub(crate) max_bytes: usize,
    /// The maximum time that the last event of a response waits for its record.
    pub(crate) hold_timeout: Duration,
    /// The requests in flight. A record in progress delays the drain as they do.
    pub(crate) tasks: TaskTracker,
}

/// The reading of a response that is in flight.
#[derive(Debug)]
pub(crate) struct Exchange {
    api: ResponseApi,
    /// The place for the record. `None` if the response is not recorded.
    place: Option<ResponsePlace>,
    span: ModelSpan,
    /// True if a part of the response has arrived.
    has_begun: bool,
    reader: Reader,
    shared: Arc<Readings>,
    /// The earlier responses of the provider within this one.
    rounds: Vec<ResponseRound>,
    /// The names of the offered tools.
    offered: Arc<[String]>,
}

/// A response that has been read and not recorded yet. It is recorded when it is dropped.
#[derive(Debug)]
pub(crate) struct Unrecorded {
    api: ResponseApi,
    /// The agent's request, on behalf of which the response is recorded.
    call: GatewayCall,
    /// `None` if the response is not recorded.
    record: Option<RecordedResponse>,
    json: Option<Bytes>,
    shared: Arc<Readings>,
}

/// The end of a response, as the body of the response observed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// The last event, or the end of the body.
    Whole,
    /// An error of the connection to upstream.
    Broken,
    /// The agent disconnected.
    Cancelled,
}

impl Exchange {
    /// Begins to read a response. Returns `None` if the response cannot be read.
    pub(crate) fn begin(
        shared: &Arc<Readings>,
        api: ResponseApi,
        (place, span): (Option<ResponsePlace>, ModelSpan),
        head: &Parts,
    ) -> Option<Self> {
        span.responded(head.status);
        // An error response contains no message of a model that could be recorded.
        if !head.status.is_success() {
            shared.metrics.ended(api, Outcome::Failed, None);
            tracing::debug!(
                api = api.name(),
                status = head.status.as_u16(),
                "a provider rejected a request"
            );
            return None;
        }
        let memory = shared.memory.clone();
        match Reader::new(api, &head.headers, shared.max_bytes, memory) {
            Ok(reader) => Some(Self {
                api,
                place,
                span,
                has_begun: false,
                reader,
                shared: Arc::clone(shared),
                rounds: Vec::new(),
                offered: Arc::default(),
            }),
            Err(reason) => {
                shared.unread(api, reason);
                None
            }
        }
    }

    /// Reads a frame, as [`Reader::read`] does.
    pub(crate) fn read(&mut self, frame: &[u8]) -> Result<Option<usize>, Unread> {
        if !self.has_begun {
            self.has_begun = true;
            if self.is_stream() {
                self.span.first_chunk();
            }
        }
        // The agent must get its response even if the reader has a defect.
        let read = catch_unwind(AssertUnwindSafe(|| self.reader.read(frame)));
        read.unwrap_or(Err(Unread::Panic))
    }

    /// Returns true if the response is a stream of events.
    pub(crate) fn is_stream(&self) -> bool {
        self.reader.is_stream()
    }

    /// Ends a reading that failed.
    pub(crate) fn give_up(self, reason: Unread) {
        self.shared.unread(self.api, reason);
    }

    /// Ends the reading, and records the response in a task. The task continues if the handle is dropped, because an
    /// agent that disconnects must not stop the record.
    pub(crate) fn end(self, end: BodyEnd) -> Option<JoinHandle<()>> {
        // A runtime that shuts down drops bodies outside of itself.
        let runtime = Handle::try_current().ok()?;
        let tasks = self.shared.tasks.clone();
        let call = self.span.call().clone();
        Some(tasks.spawn_on(call.scope(self.record(end)), &runtime))
    }

    /// Adds the earlier responses of the provider, and the names of the tools that were offered.
    pub(crate) fn with_rounds(
        mut self,
        offered: Arc<[String]>,
        rounds: Vec<ResponseRound>,
    ) -> Self {
        self.offered = offered;
        self.rounds = rounds;
        self
    }

    /// Runs a task that ends the reading and records the response. It delays the drain.
    pub(crate) fn spawn<F>(self, task: impl FnOnce(Self) -> F) -> Option<JoinHandle<()>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = Handle::try_current().ok()?;
        let tasks = self.shared.tasks.clone();
        let call = self.span.call().clone();
        Some(tasks.spawn_on(call.scope(task(self)), &runtime))
    }

    async fn record(self, end: BodyEnd) {
        if let Some(unrecorded) = self.finish(end).await {
            unrecorded.record(Bytes::new()).await;
        }
    }

    /// Ends the reading. Returns `None` if the response cannot be read.
    pub(crate) async fn finish(self, end: BodyEnd) -> Option<Unrecorded> {
        let Self {
            api,
            place,
            span,
            reader,
            shared,
            rounds,
            offered,
            has_begun: _,
        } = self;
        let is_large = reader.content_bytes() > MAX_INLINE_BYTES;
        let finish = move || reader.finish(end == BodyEnd::Whole);
        let finished = on_fitting_thread(is_large, finish).await;
        let finished = match finished.unwrap_or(Err(Unread::Panic)) {
            Ok(finished) => finished,
            Err(reason) => {
                shared.unread(api, reason);
                return None;
            }
        };
        // The reader sees a cut in both cases. Only `end` shows that the agent disconnected.
        let outcome = match finished.end {
            ResponseEnd::Complete => Outcome::Complete,
            ResponseEnd::Failed => Outcome::Failed,
            ResponseEnd::Cut if end == BodyEnd::Cancelled => Outcome::Cancelled,
            ResponseEnd::Cut => Outcome::Cut,
        };
        shared.ended(api, outcome, &finished);
        span.ended(finished.end, &finished.summary);
        let json: Option<Bytes> = finished.json.map(Into::into);
        let record = json
            .clone()
            .zip(place)
            .map(|(json, place)| RecordedResponse {
                place,
                api,
                end: finished.end,
                rounds,
                json,
                results: Bytes::new(),
                offered,
                summary: finished.summary,
            });
        Some(Unrecorded {
            api,
            call: span.call().clone(),
            record,
            json,
            shared,
        })
    }

    /// Returns the maximum time that the last event waits for its record.
    pub(crate) fn hold_timeout(&self) -> Duration {
        self.shared.hold_timeout
    }

    /// Returns the tasks that delay a drain.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.shared.tasks
    }
}

impl Unrecorded {
    /// Returns the JSON of the response, if the response has begun.
    pub(crate) fn json(&self) -> Option<&Bytes> {
        self.json.as_ref()
    }

    pub(crate) fn place(&self) -> Option<ResponsePlace> {
        self.record.as_ref().map(|record| record.place.clone())
    }

    /// Records the response, with the results of its calls of offered tools.
    pub(crate) async fn record(mut self, results: Bytes) {
        let (api, shared) = (self.api, Arc::clone(&self.shared));
        if let Some(record) = self.record.take() {
            shared.record(api, record, results).await;
        }
    }

    /// Records the response in a task.
    pub(crate) fn spawn(mut self, results: Bytes) -> impl Future<Output = ()> {
        let task = self.begin_record(results);
        async move {
            if let Some(task) = task {
                // A panic is reported by the runtime.
                let _ = task.await;
            }
        }
    }

    fn begin_record(&mut self, results: Bytes) -> Option<JoinHandle<()>> {
        let runtime = Handle::try_current().ok()?;
        let (api, shared) = (self.api, Arc::clone(&self.shared));
        let record = self.record.take()?;
        let tasks = self.shared.tasks.clone();
        let recording = async move { shared.record(api, record, results).await };
        Some(tasks.spawn_on(self.call.scope(recording), &runtime))
    }

    /// Returns the rounds so far, of which this response is the last one. The response is recorded with the next one.
    pub(crate) fn into_rounds(mut self, results: Bytes) -> Vec<ResponseRound> {
        // Taken, so that `drop` does not record this part as a response of its own.
        let Some(record) = self.record.take() else {
            return Vec::new();
        };
        let mut rounds = record.rounds;
        let json = record.json;
        rounds.push(ResponseRound { json, results });
        rounds
    }
}

impl Drop for Unrecorded {
    fn drop(&mut self) {
        // The agent is gone, or the next request failed. The agent got the response so far.
        drop(self.begin_record(Bytes::new()));
    }
}

impl Readings {
    async fn record(&self, api: ResponseApi, record: RecordedResponse, results: Bytes) {
        let Some(context) = &self.context else {
            return;
        };
        let response = RecordedResponse { results, ..record };
        if let Err(error) = context.record(response).await {
            self.metrics.record_failed();
            tracing::warn!(
                api = api.name(), %error,
                "cannot record a response. The next request of its conversation contains the response"
            );
        }
    }

    fn unread(&self, api: ResponseApi, reason: Unread) {
        self.metrics.unread(api, reason);
        tracing::debug!(api = api.name(), %reason, "cannot read a response, which is forwarded all the same");
    }

    fn ended(&self, api: ResponseApi, outcome: Outcome, finished: &FinishedResponse) {
        let usage = finished.summary.usage;
        self.metrics.ended(api, outcome, usage);
        let usage = usage.unwrap_or_default();
        tracing::debug!(
            api = api.name(),
            outcome = outcome.name(),
            uncached = usage.input_tokens,
            cache_read = usage.cache_read_tokens,
            cache_write = usage.cache_write_tokens,
            output = usage.output_tokens,
            stop_reason = finished.summary.stop_reason,
            "a response ended"
        );
    }
}
