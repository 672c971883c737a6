//! A connection that fails when its slot is needed or when its peer makes no progress.

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

use super::ConnectionSlot;

/// The maximum number of bytes discarded after this side has closed. The flow-control windows of calls are smaller.
const MAX_DISCARDED: usize = 4 << 20;
/// The maximum silence of the peer after this side has closed.
const LINGER_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum wait for the first input of a connection that was already cut. The runtime needs less time to report
/// available input.
const FIRST_INPUT: Duration = Duration::from_millis(10);

/// A connection with its slot, which is released on drop.
#[derive(Debug)]
pub struct MonitoredConnection<T> {
    inner: T,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    stall: Duration,
    /// The end of the current write without progress.
    stalls: Option<Pin<Box<Sleep>>>,
    /// The maximum silence of the peer, and the end of the current silence.
    idle: Option<(Duration, Pin<Box<Sleep>>)>,
    last_activity: LastActivity,
    /// True after the first successful read.
    has_input: bool,
    /// The end of the wait for the first input of a cut connection.
    first_input: Option<Pin<Box<Sleep>>>,
    /// The number of bytes discarded since this side closed. `None` while it is open.
    discarded: Option<usize>,
    slot: ConnectionSlot,
    handle: OwnedSemaphorePermit,
}

/// The time of the last input from the peer.
#[derive(Debug, Clone)]
pub struct LastActivity {
    started: Instant,
    last: Arc<AtomicU64>,
}

impl LastActivity {
    fn record(&self) {
        let at = self.started.elapsed().as_millis();
        self.last
            .store(u64::try_from(at).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns the time of the last input.
    pub fn last(&self) -> Instant {
        self.started + Duration::from_millis(self.last.load(Relaxed))
    }
}

impl<T> MonitoredConnection<T> {
    /// Creates a connection that fails when it is cut, or when a write makes no progress for `stall`.
    pub fn new(
        inner: T,
        stall: Duration,
        slot: ConnectionSlot,
        handle: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            inner,
            cut: Box::pin(slot.connection().shutdown().clone().cancelled_owned()),
            stall,
            stalls: None,
            idle: None,
            last_activity: LastActivity {
                started: Instant::now(),
                last: Arc::default(),
            },
            has_input: false,
            first_input: None,
            discarded: None,
            slot,
            handle,
        }
    }

    /// Adds a limit on the silence of the peer.
    #[must_use]
    pub fn with_idle(mut self, idle: Duration) -> Self {
        self.idle = Some((idle, Box::pin(sleep(idle))));
        self
    }

    /// Returns the slot of the connection.
    pub fn slot(&self) -> &ConnectionSlot {
        &self.slot
    }

    /// Returns the inner stream.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns a handle to the time of the last input.
    pub fn last_activity(&self) -> LastActivity {
        self.last_activity.clone()
    }

    /// Replaces the inner stream by the result of a handshake on it.
    pub async fn then<U, E>(
        self,
        handshake: impl AsyncFnOnce(T) -> Result<U, E>,
    ) -> Result<MonitoredConnection<U>, E> {
        // The handshake runs on the inner stream, where nothing is checked. The caller watches `shutdown` meanwhile.
        let inner = handshake(self.inner).await?;
        Ok(MonitoredConnection {
            inner,
            cut: self.cut,
            stall: self.stall,
            stalls: None,
            idle: self.idle,
            last_activity: self.last_activity,
            has_input: self.has_input,
            first_input: self.first_input,
            discarded: None,
            slot: self.slot,
            handle: self.handle,
        })
    }

    /// Fails if the connection was cut or its peer was silent for too long.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.cut.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if let Some((idle, end)) = &mut self.idle {
            // The timer is not reset at each read. When it fires, it is moved to the end of the actual silence.
            // The timer is polled again after each reset, because only a pending timer wakes this task.
            while end.as_mut().poll(cx).is_ready() {
                let until = self.last_activity.last() + *idle;
                if until <= Instant::now() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                end.as_mut().reset(until);
            }
        }
        Ok(())
    }

    /// Tracks a write. A write without progress for `stall` is an error.
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

impl<T: AsyncRead + Unpin> MonitoredConnection<T> {
    /// Discards input until the peer closes its side too.
    ///
    /// The kernel resets a socket that is closed with unread input, or that receives data after it was closed. A reset
    /// drops the part of the last replies that the peer has not received yet.
    fn poll_peer_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut discarded = self.discarded.unwrap_or_default();
        // The input is discarded, so a small buffer on the stack is enough.
        let mut scratch = [0; 4096];
        let polled = loop {
            let mut buf = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.inner).poll_read(cx, &mut buf) {
                Poll::Pending => break Poll::Pending,
                // The peer is gone, so a reset can no longer drop anything.
                Poll::Ready(Err(_)) => break Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) if buf.filled().is_empty() => break Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) => self.last_activity.record(),
            }
            discarded += buf.filled().len();
            if discarded > MAX_DISCARDED {
                break Poll::Ready(Ok(()));
            }
        };
        self.discarded = Some(discarded);
        polled
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for MonitoredConnection<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The server nearly always has a pending read, so a cut is noticed here.
        if !self.has_input && self.cut.as_mut().poll(cx).is_ready() {
            // A flood of connections can cut one before its first request was read. That request is still answered.
            let wait = || Box::pin(sleep(FIRST_INPUT));
            let end = self.first_input.get_or_insert_with(wait);
            if end.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        } else {
            self.check(cx)?;
        }
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if polled.is_ready() {
            self.last_activity.record();
            self.has_input = true;
        }
        polled
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for MonitoredConnection<T> {
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
        // First the write side is closed, then input is discarded until the peer closes. See `poll_peer_closed`.
        if self.discarded.is_none() {
            let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
            let Poll::Ready(Ok(())) = polled else {
                return self.written(polled, cx);
            };
            self.discarded = Some(0);
            self.last_activity.record();
            // Without a limit on silence, a peer that never closes its side would keep the file handle.
            let end = Box::pin(sleep(LINGER_TIMEOUT));
            self.idle.get_or_insert((LINGER_TIMEOUT, end));
        }
        let polled = self.poll_peer_closed(cx);
        self.written(polled, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::net::{Acceptor, Connections};

    #[tokio::test]
    async fn the_last_bytes_arrive_while_the_peer_still_sends() {
        // More than the buffers of both sockets hold, so that bytes are in transit at the shutdown.
        const BYTES: usize = 32 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = Acceptor::new(listener, Connections::new(1), None);
        let mut client = TcpStream::connect(address).await.unwrap();
        let accepted = door.accept().await;
        let minute = Duration::from_mins(1);
        let mut io =
            MonitoredConnection::new(accepted.stream, minute, accepted.slot, accepted.handle);
        let server = tokio::spawn(async move {
            io.write_all(&vec![1; BYTES]).await.unwrap();
            io.shutdown().await.unwrap();
        });
        let mut bytes = 0;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = client.read(&mut buffer).await.unwrap();
            if read == 0 {
                break;
            }
            bytes += read;
            // HTTP/2 clients send WINDOW_UPDATE frames while they read.
            client.write_all(&[1; 13]).await.unwrap();
        }
        assert_eq!(bytes, BYTES);
        drop(client);
        server.await.unwrap();
    }
    #[tokio::test]
    async fn a_request_sent_before_the_shutdown_is_answered() {
        const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\n\r\n";
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = Acceptor::new(listener, Connections::new(1), None);
        let minute = Duration::from_mins(1);
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(REQUEST).await.unwrap();
        let accepted = door.accept().await;
        // The port allows one connection, so this one cuts the first.
        let _newer = TcpStream::connect(address).await.unwrap();
        let _cuts = door.accept().await;
        assert!(accepted.slot.connection().shutdown().is_cancelled());
        let mut io =
            MonitoredConnection::new(accepted.stream, minute, accepted.slot, accepted.handle);
        let mut request = [0; REQUEST.len()];
        io.read_exact(&mut request).await.unwrap();
        assert_eq!(request, REQUEST);
        io.write_all(b"alive").await.unwrap();
        let mut answer = [0; 5];
        client.read_exact(&mut answer).await.unwrap();
        // No more input is expected after the cut.
        let error = io.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
