//! The reading of one response: its reader, its outcome and its record.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use http::response::Parts;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::task::TaskTracker;

use super::context::{ContextPort, RecordedResponse, ResponsePlace};
use super::metrics::{Outcome, ResponseMetrics};
use super::reading::{FinishedResponse, ReadMemory, Reader, ResponseApi, ResponseEnd, Unread};
use super::span::ModelSpan;

/// The maximum content that is parsed on an async thread, in bytes. Parsing takes about one millisecond per MiB.
const MAX_INLINE_BYTES: usize = 256 * 1024;

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
    span: Option<ModelSpan>,
    reader: Reader,
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
        (place, span): (Option<ResponsePlace>, Option<ModelSpan>),
        head: &Parts,
    ) -> Option<Self> {
        if let Some(span) = &span {
            span.responded(head.status);
        }
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
                reader,
                shared: Arc::clone(shared),
            }),
            Err(reason) => {
                shared.unread(api, reason);
                None
            }
        }
    }

    /// Reads a frame, as [`Reader::read`] does.
    pub(crate) fn read(&mut self, frame: &[u8]) -> Result<Option<usize>, Unread> {
        // The agent must get its response even if the reader has a defect.
        let read = catch_unwind(AssertUnwindSafe(|| self.reader.read(frame)));
        read.unwrap_or(Err(Unread::Panic))
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
        Some(tasks.spawn_on(self.record(end), &runtime))
    }

    async fn record(self, end: BodyEnd) {
        let Self {
            api,
            place,
            span,
            reader,
            shared,
        } = self;
        let is_large = reader.content_bytes() > MAX_INLINE_BYTES;
        let finish = move || {
            let finished = catch_unwind(AssertUnwindSafe(|| reader.finish(end == BodyEnd::Whole)));
            finished.unwrap_or(Err(Unread::Panic))
        };
        let finished = if is_large {
            let finished = spawn_blocking(finish).await;
            finished.unwrap_or(Err(Unread::Panic))
        } else {
            finish()
        };
        let finished = match finished {
            Ok(finished) => finished,
            Err(reason) => return shared.unread(api, reason),
        };
        let outcome = match finished.end {
            ResponseEnd::Complete => Outcome::Complete,
            ResponseEnd::Failed => Outcome::Failed,
            ResponseEnd::Cut if end == BodyEnd::Cancelled => Outcome::Cancelled,
            ResponseEnd::Cut => Outcome::Cut,
        };
        shared.ended(api, outcome, &finished);
        if let Some(span) = &span {
            span.ended(finished.end, &finished.summary);
        }
        let (Some(json), Some(place), Some(context)) = (finished.json, place, &shared.context)
        else {
            return;
        };
        let response = RecordedResponse {
            place,
            api,
            end: finished.end,
            json: json.into(),
            summary: finished.summary,
        };
        if let Err(error) = context.record(response).await {
            tracing::warn!(
                api = api.name(), %error,
                "cannot record a response. The next request of its conversation contains the response"
            );
        }
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

impl Readings {
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
