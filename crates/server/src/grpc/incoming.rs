//! Accepts connections.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::stream::unfold;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// How long to wait when no connection can be accepted, for example because there are no file
/// descriptors left: trying again at once would keep a core busy.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The connections that come, each of which is cut after `cut_after`.
pub(super) fn connections(
    listener: TcpListener,
    cut_after: Duration,
    max: usize,
) -> impl Stream<Item = io::Result<Mortal<TcpStream>>> {
    let places = Arc::new(Semaphore::new(max));
    unfold((listener, places), move |(listener, places)| async move {
        loop {
            let stream = accept(&listener).await;
            // One too many is closed rather than left to wait: its client looks for another replica.
            if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                let stream = Mortal::new(stream, cut_after, place);
                return Some((Ok(stream), (listener, places)));
            }
            tracing::debug!(max, "grpc.max_connections are open: closed a new one");
        }
    })
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        let error = match listener.accept().await {
            Ok((stream, _)) => match stream.set_nodelay(true) {
                // Without it a reply of 64 KiB waits 40 ms for an acknowledgement.
                Ok(()) => return stream,
                // It is gone already.
                Err(_) => continue,
            },
            Err(error) => error,
        };
        let of_one_connection = matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
        );
        if !of_one_connection {
            tracing::warn!(%error, "no connection can be accepted: trying again");
            sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// How long a connection may take to say anything.
const FIRST_WORD: Duration = Duration::from_secs(10);

/// A connection that breaks after a time, so that a caller who ignores the request to close, or a
/// call that never ends, cannot keep it for ever.
pub(super) struct Mortal<T> {
    inner: T,
    end: Pin<Box<Sleep>>,
    cut_after: Duration,
    /// Whether anything has come. Who says nothing is cut soon, and cannot keep a place.
    heard: bool,
    _place: OwnedSemaphorePermit,
}

impl<T> Mortal<T> {
    fn new(inner: T, cut_after: Duration, place: OwnedSemaphorePermit) -> Self {
        Self {
            inner,
            end: Box::pin(sleep(cut_after.min(FIRST_WORD))),
            cut_after,
            heard: false,
            _place: place,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Mortal<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The server always waits for the next frame, so that the end is noticed here.
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if !self.heard && matches!(polled, Poll::Ready(Ok(()))) {
            self.heard = true;
            let end = Instant::now() + self.cut_after;
            self.end.as_mut().reset(end);
            // The time that was awaited so far is not the one that matters now.
            let _ = self.end.as_mut().poll(cx);
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Mortal<T> {
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
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl Connected for Mortal<TcpStream> {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.inner.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn accepted_connections_do_not_delay_and_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut incoming = std::pin::pin!(connections(listener, Duration::from_millis(10), 9));
        let _client = TcpStream::connect(address).await.unwrap();
        let mut stream = incoming.next().await.unwrap().unwrap();
        assert!(stream.inner.nodelay().unwrap());
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
