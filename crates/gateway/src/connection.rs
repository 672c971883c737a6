//! An agent's connection, whose end mirrors the end of the upstream's connection.
//!
//! hyper drops unsent bytes when a body ends with an error. A response that upstream cut would lose its last bytes, so
//! the error of a body is held back until hyper has flushed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use futures::task::AtomicWaker;
use palimpsest_edge::net::MonitoredConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The end of a connection, shared by its socket and the response on it.
#[derive(Debug, Default)]
pub(crate) struct ConnectionEnd {
    /// The number of flushes. hyper flushes the socket only after it has written all its bytes.
    flushes: AtomicU64,
    is_reset: AtomicBool,
    waiting: AtomicWaker,
}

impl ConnectionEnd {
    /// Returns the number of flushes so far.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(SeqCst)
    }

    /// Returns ready after a flush since the number of flushes was `before`.
    pub(crate) fn poll_flushed(&self, before: u64, waker: &Waker) -> Poll<()> {
        // Registered before the check, so that no flush between both is missed.
        self.waiting.register(waker);
        if self.flushes() == before {
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Makes the socket end with a reset instead of a close.
    pub(crate) fn reset(&self) {
        self.is_reset.store(true, SeqCst);
    }
}

/// The socket of an agent.
#[derive(Debug)]
pub(crate) struct AgentConnection {
    inner: MonitoredConnection<TcpStream>,
    end: Arc<ConnectionEnd>,
}

impl AgentConnection {
    pub(crate) fn new(inner: MonitoredConnection<TcpStream>, end: Arc<ConnectionEnd>) -> Self {
        Self { inner, end }
    }
}

impl Drop for AgentConnection {
    fn drop(&mut self) {
        if self.end.is_reset.load(SeqCst) {
            // With a linger of zero, the kernel discards unsent bytes and sends a reset.
            // Without the option the socket is closed, which is the better end of the two that are left.
            let _ = self.inner.get_ref().set_zero_linger();
        }
    }
}

impl AsyncRead for AgentConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for AgentConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        // A pending or failed flush can leave bytes of the response behind.
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.end.flushes.fetch_add(1, SeqCst);
            self.end.waiting.wake();
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
