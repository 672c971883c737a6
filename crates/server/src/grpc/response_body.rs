//! The body of a response. It holds the call's permits until the last byte and ends endless streams on shutdown. It
//! also converts a panic of a stream to an error, and records the outcome of the call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use palimpsest_edge::budget::{BudgetShare, SharedBudget};
use palimpsest_engine::clock::Clock;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::audit;
use super::call_context::CallContext;
use super::call_limits::Permit;
use super::span::CallSpan;
use crate::errors::ServiceError;
use crate::metrics::{CallMetrics, CallReport, RpcMethod};
use crate::net::ShareGroup;
use crate::telemetry::TraceId;

/// The number of consecutive ready frames of an endless stream before its end condition is checked.
const MAX_CONSECUTIVE_FRAMES: u32 = 16;

/// The retry delay of a caller that did not read its response.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The record of a call, from its start to its end. Dropping it logs and counts the call.
pub(super) struct CallRecord {
    pub(super) method: String,
    /// The method in the contract.
    pub(super) known: &'static RpcMethod,
    /// True if the duration depends on the server and not on the caller.
    pub(super) is_timed: bool,
    pub(super) span: CallSpan,
    pub(super) trace: TraceId,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<CallMetrics>,
    pub(super) started: Duration,
    /// The status code, once known.
    pub(super) code: Option<Code>,
    /// The reason of a failure, as sent to the caller.
    pub(super) reason: Option<String>,
    pub(super) request_bytes: Arc<AtomicU64>,
    pub(super) response_bytes: u64,
    pub(super) permit: Permit,
    /// The share of the calls in flight, held until the last byte is sent.
    pub(super) call_share: BudgetShare,
    pub(super) replies: ReplyBudget,
    pub(super) context: CallContext,
}

/// The assumed overhead of a frame of a reply that waits for its caller, in bytes.
const FRAME_OVERHEAD_BYTES: usize = 8 * 1024;

/// The budget of reply memory. A call uses a share of it until its bytes are sent.
#[derive(Debug, Default)]
pub(super) struct ReplyBudget(Option<(Arc<SharedBudget>, Arc<ShareGroup>)>);

impl ReplyBudget {
    pub(super) fn new(budget: &Arc<SharedBudget>, share_group: &Arc<ShareGroup>) -> Self {
        Self(Some((Arc::clone(budget), Arc::clone(share_group))))
    }

    /// Counts a frame until its last byte is sent or dropped, wherever it is buffered. Fails if the budget is
    /// exhausted.
    pub(super) fn count(&self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, ServiceError> {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(other) => return Ok(other),
        };
        let Some((budget, share_group)) = &self.0 else {
            return Ok(Frame::data(data));
        };
        let share = BudgetShare::take(budget, share_group, data.len() + FRAME_OVERHEAD_BYTES)?;
        let counted = CountedBytes {
            data,
            _share: share,
        };
        Ok(Frame::data(Bytes::from_owner(counted)))
    }
}

/// Bytes with their share of the budget.
struct CountedBytes {
    data: Bytes,
    _share: BudgetShare,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        let duration = self.clock.monotonic().saturating_sub(self.started);
        // Without a code, the caller disconnected before the response had a status.
        let code = self.code.unwrap_or(Code::Cancelled);
        let _entered = self.span.span().enter();
        self.span.end(code, self.reason.as_deref());
        let outcome = (code, self.reason.as_deref());
        audit::write(&self.context, &self.method, outcome, self.trace);
        let request_bytes = self.request_bytes.load(Relaxed);
        tracing::debug!(
            status = ?code,
            reason = self.reason,
            request_bytes,
            response_bytes = self.response_bytes,
            duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            "call"
        );
        self.metrics.ended(CallReport {
            method: self.known,
            project: self.context.project(),
            code,
            reason: self.reason.take(),
            took: self.is_timed.then_some(duration),
            request_bytes,
            response_bytes: self.response_bytes,
        });
    }
}

impl CallRecord {
    /// Records the status in headers or trailers.
    pub(super) fn record_outcome(&mut self, headers: &HeaderMap) {
        // A normal response has its status in the trailers, so the headers may contain none.
        let Some(code) = code_of(headers) else {
            return;
        };
        self.code = Some(code);
        if code != Code::Ok {
            let status = Status::from_header_map(headers);
            let info = status.and_then(|status| status.get_details_error_info());
            // Reasons are enum names of the contract, so they are safe as metric labels.
            self.reason = info.map(|info| info.reason);
        }
    }
}

/// The body of a response.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all answers are live, and a box would be one more allocation for each"
)]
pub enum ResponseBody {
    /// A shed call without a body. The status is in the headers.
    Rejected,
    /// A response of a handler.
    Live(LiveBody),
}

/// The body of a handler's response.
pub struct LiveBody {
    /// The first frame, if already read.
    first: Option<Frame<Bytes>>,
    inner: Body,
    record: CallRecord,
    /// The end condition of an endless stream.
    end: Option<StreamEnd>,
    /// The number of consecutive ready frames.
    consecutive_frames: u32,
    ended: bool,
}

/// The end of an endless stream, with the error to send.
pub(super) struct StreamEnd(Pin<Box<dyn Future<Output = ServiceError> + Send>>);

impl StreamEnd {
    /// Ends at the shutdown of the server, or when the caller's credential becomes invalid.
    pub(super) fn new(
        down: WaitForCancellationFutureOwned,
        lapsed: impl Future<Output = ServiceError> + Send + 'static,
    ) -> Self {
        Self(Box::pin(async move {
            tokio::select! {
                biased;
                () = down => ServiceError::shutting_down(Duration::ZERO),
                error = lapsed => error,
            }
        }))
    }
}

impl LiveBody {
    pub(super) fn new(
        first: Option<Frame<Bytes>>,
        inner: Body,
        record: CallRecord,
        end: Option<StreamEnd>,
    ) -> Self {
        Self {
            first,
            inner,
            record,
            end,
            consecutive_frames: 0,
            ended: false,
        }
    }

    /// Ends the stream with an error.
    fn end_with_error(&mut self, error: ServiceError) -> Frame<Bytes> {
        self.inner = Body::empty();
        self.first = None;
        self.end = None;
        self.ended = true;
        let status = Status::from(error);
        // Also set here, in case the status does not fit into the headers.
        self.record.code = Some(status.code());
        // The body and the first frame are dropped above, which releases their memory while the trailers are sent.
        let mut trailers = HeaderMap::new();
        if let Err(status) = status.add_header(&mut trailers) {
            tracing::error!(code = ?status.code(), "a status does not fit into the headers");
        }
        self.record.record_outcome(&trailers);
        Frame::trailers(trailers)
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let Self { inner, record, .. } = &mut *self;
        // A stream runs outside of the handler, so span and trace id are set for each poll.
        let polled = record.trace.within(|| {
            let _entered = record.span.span().enter();
            catch_unwind(AssertUnwindSafe(|| Pin::new(inner).poll_frame(cx)))
        });
        let polled = polled.map(|polled| match polled {
            Poll::Ready(Some(Ok(frame))) => match self.record.replies.count(frame) {
                Ok(frame) => Poll::Ready(Some(Ok(frame))),
                Err(error) => Poll::Ready(Some(Ok(self.end_with_error(error)))),
            },
            polled => polled,
        });
        polled.unwrap_or_else(|_| {
            let error = ServiceError::fault("stream the answer: its code panicked");
            let trace = self.record.trace;
            Poll::Ready(Some(Ok(trace.within(|| self.end_with_error(error)))))
        })
    }
}

impl LiveBody {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let polled = self.poll_inner(cx);
        self.consecutive_frames = if polled.is_ready() {
            self.consecutive_frames + 1
        } else {
            0
        };
        // Pending frames are sent before the end, unless the stream is never idle.
        if polled.is_pending() || self.consecutive_frames > MAX_CONSECUTIVE_FRAMES {
            let end = self.end.as_mut().map(|end| end.0.poll_unpin(cx));
            if let Some(Poll::Ready(error)) = end {
                let frame = self.end_with_error(error);
                return Poll::Ready(Some(Ok(frame)));
            }
            self.consecutive_frames = 0;
        }
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            if let Some(data) = frame.data_ref() {
                self.record.response_bytes += data.len() as u64;
            } else if let Some(trailers) = frame.trailers_ref() {
                self.record.record_outcome(trailers);
            }
        }
        polled
    }
}

impl ResponseBody {
    /// Ends a response that its caller does not read. Returns the trailers to send.
    pub(super) fn stalled(&mut self) -> Option<HeaderMap> {
        let Self::Live(live) = self else {
            return None;
        };
        let error = ServiceError::overloaded(RETRY_AFTER);
        live.end_with_error(error).into_trailers().ok()
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.get_mut() {
            Self::Rejected => Poll::Ready(None),
            Self::Live(live) => live.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Rejected => true,
            Self::Live(live) => live.ended || live.first.is_none() && live.inner.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Rejected => SizeHint::with_exact(0),
            Self::Live(_) => SizeHint::default(),
        }
    }
}

/// Returns the gRPC status code in headers or trailers.
pub(super) fn code_of(headers: &HeaderMap) -> Option<Code> {
    let value = headers.get(Status::GRPC_STATUS)?;
    Some(Code::from_bytes(value.as_bytes()))
}
