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
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::admission::Permit;
use super::span::CallSpan;
use super::ticket::Ticket;
use super::trace::TraceId;
use crate::clock::Clock;
use crate::errors::ServiceError;
use crate::metrics::{CallEnded, Method, Metrics};

/// What is known of a call from its beginning to its end.
pub(super) struct Record {
    pub(super) method: String,
    /// The same among the methods of the contract.
    pub(super) known: &'static Method,
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
    pub(super) ticket: Ticket,
}

impl Drop for Record {
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

impl Record {
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
pub enum Answer {
    /// There is none: its headers are all.
    Refused,
    /// What the handler says.
    Live(Live),
}

/// The body of an answer that a handler gives.
pub struct Live {
    inner: Body,
    record: Record,
    /// When to end, for a stream that would go on for ever.
    end: Option<End>,
    ended: bool,
}

/// When a stream that would go on for ever ends, and with what.
pub(super) struct End(Pin<Box<dyn Future<Output = ServiceError> + Send>>);

impl End {
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
    pub(super) fn new(inner: Body, record: Record, end: Option<End>) -> Self {
        Self {
            inner,
            record,
            end,
            ended: false,
        }
    }

    /// Ends the stream here, with an error.
    fn cut(&mut self, error: ServiceError) -> Frame<Bytes> {
        self.inner = Body::empty();
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
        let Self { inner, record, .. } = self;
        let polled = record.trace.within(|| {
            let _entered = record.span.span().enter();
            catch_unwind(AssertUnwindSafe(|| Pin::new(inner).poll_frame(cx)))
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
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.record.response_bytes += data.len() as u64;
                } else if let Some(trailers) = frame.trailers_ref() {
                    self.record.note(trailers);
                }
            }
            Poll::Pending => {
                let end = self.end.as_mut().map(|end| end.0.poll_unpin(cx));
                if let Some(Poll::Ready(error)) = end {
                    let frame = self.cut(error);
                    return Poll::Ready(Some(Ok(frame)));
                }
            }
            Poll::Ready(_) => {}
        }
        polled
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.get_mut() {
            Self::Refused => Poll::Ready(None),
            Self::Live(live) => live.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Refused => true,
            Self::Live(live) => live.ended || live.inner.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Refused => SizeHint::with_exact(0),
            Self::Live(live) => live.inner.size_hint(),
        }
    }
}

/// The status in headers or trailers.
pub(super) fn code_of(headers: &HeaderMap) -> Option<Code> {
    let value = headers.get(Status::GRPC_STATUS)?;
    Some(Code::from_bytes(value.as_bytes()))
}
