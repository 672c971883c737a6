//! The body of an answer: keeps the call's place until its last byte, ends watches when the server
//! goes down, survives a panic of a stream, and logs how the call went.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::body::Body;
use tonic::{Code, Status};
use tracing::Span;

use super::admission::Permit;
use super::ticket::Ticket;
use super::trace::TraceId;
use crate::clock::Clock;
use crate::errors::ServiceError;

/// What is known of a call from its beginning to its end.
pub(super) struct Record {
    pub(super) method: String,
    pub(super) span: Span,
    pub(super) trace: TraceId,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) started: Duration,
    /// How it went, once that is known.
    pub(super) code: Option<Code>,
    pub(super) permit: Permit,
    pub(super) ticket: Ticket,
}

impl Drop for Record {
    fn drop(&mut self) {
        let duration = self.clock.monotonic().saturating_sub(self.started);
        let _entered = self.span.enter();
        // Without a code, the caller went away before it was told one.
        tracing::debug!(
            status = ?self.code.unwrap_or(Code::Cancelled),
            duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            "call"
        );
    }
}

/// The body of an answer.
pub struct Answer {
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

impl Answer {
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
        Frame::trailers(trailers)
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Self { inner, record, .. } = self;
        let polled = record.trace.within(|| {
            let _entered = record.span.enter();
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

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let polled = self.poll_inner(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let code = frame.trailers_ref().and_then(code_of);
                self.record.code = code.or(self.record.code);
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

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The status in headers or trailers.
pub(super) fn code_of(headers: &HeaderMap) -> Option<Code> {
    let value = headers.get(Status::GRPC_STATUS)?;
    Some(Code::from_bytes(value.as_bytes()))
}
