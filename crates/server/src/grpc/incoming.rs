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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

use super::tls::Tls;

/// How long to wait when no connection can be accepted, for example because there are no file
/// descriptors left: trying again at once would keep a core busy.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections whose handshakes are done, and that wait to be served: few, because serving one begins at once.
const READY: usize = 16;

/// The connections that come, each of which is cut after `cut_after`. With TLS they come when their
/// handshakes are done: a slow one keeps nobody waiting, and so many at one time that nobody else finds a
/// place is what `tls.max_handshakes` and `tls.handshake_timeout_ms` bound.
pub(super) fn connections(
    listener: TcpListener,
    tls: Option<Tls>,
    cut_after: Duration,
    max: usize,
) -> Pin<Box<dyn Stream<Item = io::Result<Mortal<Connection>>> + Send>> {
    let door = Door {
        listener,
        places: Arc::new(Semaphore::new(max)),
        max,
    };
    let mortal = move |(stream, place)| Ok(Mortal::new(stream, cut_after, place));
    match tls {
        None => Box::pin(unfold(door, move |door| async move {
            let (stream, place) = door.accept().await;
            Some((mortal((Connection::Plain(stream), place)), door))
        })),
        Some(tls) => {
            let (ready, taken) = mpsc::channel(READY);
            tokio::spawn(shake_hands(door, tls, ready));
            Box::pin(unfold(taken, move |mut taken| async move {
                let (stream, place) = taken.recv().await?;
                Some((mortal((Connection::Tls(stream), place)), taken))
            }))
        }
    }
}

/// A connection whose handshake is done, and its place.
type Shaken = (Box<TlsStream<TcpStream>>, OwnedSemaphorePermit);

/// Accepts connections, and gives on those whose handshakes come to an end, until nobody takes them.
async fn shake_hands(door: Door, tls: Tls, ready: mpsc::Sender<Shaken>) {
    loop {
        let next = async { Some((tls.slot().await?, door.accept().await)) };
        let next = tokio::select! {
            () = ready.closed() => None,
            next = next => next,
        };
        let Some((slot, (stream, place))) = next else {
            return;
        };
        let (tls, ready) = (tls.clone(), ready.clone());
        tokio::spawn(async move {
            match tls.handshake(stream).await {
                // Nobody takes it any more when the server goes down.
                Ok(stream) => drop(ready.send((Box::new(stream), place)).await),
                // Scanners and misconfigured callers make these; they are no fault of the server.
                Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
            }
            drop(slot);
        });
    }
}

/// Where connections come in.
struct Door {
    listener: TcpListener,
    places: Arc<Semaphore>,
    max: usize,
}

impl Door {
    /// The next connection that finds a place. One too many is closed rather than left to wait: its client
    /// looks for another replica.
    async fn accept(&self) -> (TcpStream, OwnedSemaphorePermit) {
        loop {
            let stream = accept(&self.listener).await;
            if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                return (stream, place);
            }
            let max = self.max;
            tracing::debug!(max, "grpc.max_connections are open: closed a new one");
        }
    }
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

/// A connection, private or not.
pub(super) enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

/// Does with whichever stream it is what is to be done.
macro_rules! either {
    ($connection:expr, $stream:ident => $done:expr) => {
        match $connection.get_mut() {
            Connection::Plain(stream) => {
                let $stream = Pin::new(stream);
                $done
            }
            Connection::Tls(stream) => {
                let $stream = Pin::new(stream.as_mut());
                $done
            }
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(cx))
    }
}

impl Connected for Mortal<Connection> {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.inner.tcp().connect_info()
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
        let tls = None;
        let incoming = connections(listener, tls, Duration::from_millis(10), 9);
        let mut incoming = std::pin::pin!(incoming);
        let _client = TcpStream::connect(address).await.unwrap();
        let mut stream = incoming.next().await.unwrap().unwrap();
        assert!(stream.inner.tcp().nodelay().unwrap());
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
