//! The body of an answer: keeps the call's place until its last byte, ends watches when the server
//! goes down, survives a panic of a stream, and logs how the call went.

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
use palimpsest_engine::clock::Clock;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::budget::{BudgetShare, SharedBudget};
use super::call_context::CallContext;
use super::call_limits::Permit;
use super::span::CallSpan;
use crate::errors::ServiceError;
use crate::metrics::{CallEnded, Metrics, RpcMethod};
use crate::net::ShareGroup;
use crate::telemetry::TraceId;

/// Parts of a stream that come one after the other before its end is looked at.
const MAX_IN_A_ROW: u32 = 16;

/// When a caller who did not take an answer may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What is known of a call from its beginning to its end.
pub(super) struct CallRecord {
    pub(super) method: String,
    /// The same among the methods of the contract.
    pub(super) known: &'static RpcMethod,
    /// Whether how long it takes is ours and not the caller's choice.
    pub(super) is_timed: bool,
    pub(super) span: CallSpan,
    pub(super) trace: TraceId,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
    pub(super) started: Duration,
    /// How it went, once that is known.
    pub(super) code: Option<Code>,
    /// Why it failed, as the caller is told.
    pub(super) reason: Option<String>,
    pub(super) request_bytes: Arc<AtomicU64>,
    pub(super) response_bytes: u64,
    pub(super) permit: Permit,
    /// The call is there until its last byte is sent.
    pub(super) present: BudgetShare,
    pub(super) replies: ReplyBudget,
    pub(super) ticket: CallContext,
}

/// What a part of a reply takes beside its bytes, as long as its caller does not take it.
const PART_BYTES: usize = 8 * 1024;

/// The memory for replies, of which a call has a part as long as its bytes are not sent.
#[derive(Debug, Default)]
pub(super) struct ReplyBudget(Option<(Arc<SharedBudget>, Arc<ShareGroup>)>);

impl ReplyBudget {
    pub(super) fn new(budget: &Arc<SharedBudget>, party: &Arc<ShareGroup>) -> Self {
        Self(Some((Arc::clone(budget), Arc::clone(party))))
    }

    /// Counts a part of a reply until its last byte is sent or dropped, wherever it is then. What finds no room is
    /// refused.
    pub(super) fn count(&self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, ServiceError> {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(other) => return Ok(other),
        };
        let Some((budget, party)) = &self.0 else {
            return Ok(Frame::data(data));
        };
        let share = BudgetShare::take(budget, party, data.len() + PART_BYTES)?;
        let counted = CountedBytes {
            data,
            _share: share,
        };
        Ok(Frame::data(Bytes::from_owner(counted)))
    }
}

/// Bytes that are counted.
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
        // Without a code, the caller went away before it was told one.
        let code = self.code.unwrap_or(Code::Cancelled);
        let _entered = self.span.span().enter();
        self.span.end(code, self.reason.as_deref());
        let request_bytes = self.request_bytes.load(Relaxed);
        tracing::debug!(
            status = ?code,
            reason = self.reason,
            request_bytes,
            response_bytes = self.response_bytes,
            duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            "call"
        );
        self.metrics.call_ended(CallEnded {
            method: self.known,
            code,
            reason: self.reason.take(),
            took: self.is_timed.then_some(duration),
            request_bytes,
            response_bytes: self.response_bytes,
        });
    }
}

impl CallRecord {
    /// Takes in what headers or trailers say of the outcome.
    pub(super) fn note(&mut self, headers: &HeaderMap) {
        let Some(code) = code_of(headers) else {
            return;
        };
        self.code = Some(code);
        if code != Code::Ok {
            let status = Status::from_header_map(headers);
            let info = status.and_then(|status| status.get_details_error_info());
            // Reasons are names of an enum of the contract; whatever else it may be is none.
            self.reason = info.map(|info| info.reason);
        }
    }
}

/// The body of an answer.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all answers are live, and a box would be one more allocation for each"
)]
pub enum ResponseBody {
    /// There is none: its headers are all.
    Rejected,
    /// What the handler says.
    Live(Live),
}

/// The body of an answer that a handler gives.
pub struct Live {
    /// The first part, where it was made before.
    first: Option<Frame<Bytes>>,
    inner: Body,
    record: CallRecord,
    /// When to end, for a stream that would go on for ever.
    end: Option<StreamEnd>,
    /// Parts since there was none to say last.
    in_a_row: u32,
    ended: bool,
}

/// When a stream that would go on for ever ends, and with what.
pub(super) struct StreamEnd(Pin<Box<dyn Future<Output = ServiceError> + Send>>);

impl StreamEnd {
    /// When the server goes down, or when its caller may not call any more.
    pub(super) fn new(
        down: WaitForCancellationFutureOwned,
        lapsed: impl Future<Output = ServiceError> + Send + 'static,
    ) -> Self {
        Self(Box::pin(async move {
            tokio::select! {
                biased;
                () = down => ServiceError::ShuttingDown { retry_after: Duration::ZERO },
                error = lapsed => error,
            }
        }))
    }
}

impl Live {
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
            in_a_row: 0,
            ended: false,
        }
    }

    /// Ends the stream here, with an error.
    fn cut(&mut self, error: ServiceError) -> Frame<Bytes> {
        self.inner = Body::empty();
        self.first = None;
        self.end = None;
        self.ended = true;
        let status = Status::from(error);
        self.record.code = Some(status.code());
        let mut trailers = HeaderMap::new();
        if let Err(status) = status.add_header(&mut trailers) {
            tracing::error!(code = ?status.code(), "a status does not fit into headers");
        }
        self.record.note(&trailers);
        Frame::trailers(trailers)
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let Self { inner, record, .. } = &mut *self;
        let polled = record.trace.within(|| {
            let _entered = record.span.span().enter();
            catch_unwind(AssertUnwindSafe(|| Pin::new(inner).poll_frame(cx)))
        });
        let polled = polled.map(|polled| match polled {
            Poll::Ready(Some(Ok(frame))) => match self.record.replies.count(frame) {
                Ok(frame) => Poll::Ready(Some(Ok(frame))),
                Err(error) => Poll::Ready(Some(Ok(self.cut(error)))),
            },
            polled => polled,
        });
        polled.unwrap_or_else(|_| {
            let error = ServiceError::Internal {
                doing: "stream the answer: its code panicked",
                source: None,
            };
            let trace = self.record.trace;
            Poll::Ready(Some(Ok(trace.within(|| self.cut(error)))))
        })
    }
}

impl Live {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let polled = self.poll_inner(cx);
        self.in_a_row = if polled.is_ready() {
            self.in_a_row + 1
        } else {
            0
        };
        // What there is to say comes first, unless there is always something.
        if polled.is_pending() || self.in_a_row > MAX_IN_A_ROW {
            let end = self.end.as_mut().map(|end| end.0.poll_unpin(cx));
            if let Some(Poll::Ready(error)) = end {
                let frame = self.cut(error);
                return Poll::Ready(Some(Ok(frame)));
            }
            self.in_a_row = 0;
        }
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            if let Some(data) = frame.data_ref() {
                self.record.response_bytes += data.len() as u64;
            } else if let Some(trailers) = frame.trailers_ref() {
                self.record.note(trailers);
            }
        }
        polled
    }
}

impl ResponseBody {
    /// Ends an answer that its caller does not take. Returns what is still to be sent.
    pub(super) fn stalled(&mut self) -> Option<HeaderMap> {
        let Self::Live(live) = self else {
            return None;
        };
        let error = ServiceError::Overloaded {
            retry_after: RETRY_AFTER,
        };
        live.cut(error).into_trailers().ok()
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

/// The status in headers or trailers.
pub(super) fn code_of(headers: &HeaderMap) -> Option<Code> {
    let value = headers.get(Status::GRPC_STATUS)?;
    Some(Code::from_bytes(value.as_bytes()))
}
