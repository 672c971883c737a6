//! A connection that breaks when it has to: because another takes its place, or its peer takes nothing.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::Place;

/// A connection with its place, which is given back with it.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    inner: T,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    stall: Duration,
    /// The end of a write that stands still.
    stalls: Option<Pin<Box<Sleep>>>,
    /// The end of a silence, where there is one.
    idle: Option<(Duration, Pin<Box<Sleep>>)>,
    heard: Heard,
    place: Place,
    handle: OwnedSemaphorePermit,
}

/// When something last came.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    began: Instant,
    at: Arc<AtomicU64>,
}

impl Heard {
    fn note(&self) {
        let at = self.began.elapsed().as_millis();
        self.at
            .store(u64::try_from(at).unwrap_or(u64::MAX), Relaxed);
    }

    /// When something last came.
    pub(crate) fn last(&self) -> Instant {
        self.began + Duration::from_millis(self.at.load(Relaxed))
    }
}

impl<T> Watched<T> {
    /// A connection that breaks when it is cut, or a write stands still for `stall`.
    pub(crate) fn new(
        inner: T,
        stall: Duration,
        place: Place,
        handle: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            inner,
            cut: Box::pin(place.connection().cut().clone().cancelled_owned()),
            stall,
            stalls: None,
            idle: None,
            heard: Heard {
                began: Instant::now(),
                at: Arc::default(),
            },
            place,
            handle,
        }
    }

    /// The same that breaks after a silence too.
    #[must_use]
    pub(crate) fn with_idle(mut self, idle: Duration) -> Self {
        self.idle = Some((idle, Box::pin(sleep(idle))));
        self
    }

    /// Its place.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// When something last came.
    pub(crate) fn heard(&self) -> Heard {
        self.heard.clone()
    }

    /// The same connection after a handshake on it.
    pub(crate) async fn then<U, E>(
        self,
        handshake: impl AsyncFnOnce(T) -> Result<U, E>,
    ) -> Result<Watched<U>, E> {
        let inner = handshake(self.inner).await?;
        Ok(Watched {
            inner,
            cut: self.cut,
            stall: self.stall,
            stalls: None,
            idle: self.idle,
            heard: self.heard,
            place: self.place,
            handle: self.handle,
        })
    }

    /// Whether the connection has to break now.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.cut.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if let Some((idle, end)) = &mut self.idle {
            while end.as_mut().poll(cx).is_ready() {
                let until = self.heard.last() + *idle;
                if until <= Instant::now() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                end.as_mut().reset(until);
            }
        }
        Ok(())
    }

    /// Watches over a write: one that stands still for too long is an error.
    fn written<R>(
        &mut self,
        polled: Poll<io::Result<R>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<R>> {
        if polled.is_ready() {
            self.stalls = None;
            return polled;
        }
        self.check(cx)?;
        let stall = self.stall;
        let stalls = self.stalls.get_or_insert_with(|| Box::pin(sleep(stall)));
        if stalls.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The server nearly always waits for the next frame, so that the end is noticed here.
        self.check(cx)?;
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if polled.is_ready() {
            self.heard.note();
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.written(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.written(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.written(polled, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.written(polled, cx)
    }
}
