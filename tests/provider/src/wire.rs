//! The connections of the provider: refused, reset, written in single bytes, and recorded as bytes.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The recorded bytes of a request's head. Longer heads are recorded in part.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The pause after a failed accept, for example without free file handles.
const RETRY: Duration = Duration::from_millis(10);

/// The listener. It refuses connections while its gate is closed.
pub(crate) struct Port {
    address: SocketAddr,
    listener: Option<TcpListener>,
    open: watch::Receiver<bool>,
}

impl Port {
    pub(crate) fn new(listener: TcpListener, open: watch::Receiver<bool>) -> io::Result<Self> {
        Ok(Self {
            address: listener.local_addr()?,
            listener: Some(listener),
            open,
        })
    }
}

impl Listener for Port {
    type Io = Wire;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Wire, SocketAddr) {
        loop {
            let Some(listener) = &self.listener else {
                // An error means that the provider has ended, and with it this task.
                let _ = self.open.wait_for(|open| *open).await;
                match TcpListener::bind(self.address).await {
                    Ok(listener) => self.listener = Some(listener),
                    Err(_) => tokio::time::sleep(RETRY).await,
                }
                continue;
            };
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => return (Wire::new(stream), peer),
                    Err(_) => tokio::time::sleep(RETRY).await,
                },
                // Only a closed socket refuses. One that does not accept lets clients wait.
                () = closed(&mut self.open) => self.listener = None,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// Waits until the gate closes.
async fn closed(open: &mut watch::Receiver<bool>) {
    if open.wait_for(|open| !*open).await.is_err() {
        // The provider has ended, and with it this task.
        std::future::pending::<()>().await;
    }
}

/// The part of a connection that its requests control.
#[derive(Default)]
pub(crate) struct Line {
    one_byte: AtomicBool,
    is_reset: AtomicBool,
    flushed: watch::Sender<u64>,
    head: Mutex<Vec<u8>>,
}

impl Line {
    /// Writes single bytes from now on, or as many as possible.
    pub(crate) fn set_one_byte(&self, one_byte: bool) {
        self.one_byte.store(one_byte, Ordering::Relaxed);
    }

    /// Ends the connection with a TCP reset when it is dropped. Nothing is written from now on.
    pub(crate) fn reset(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
    }

    /// Waits until all bytes that the server has accepted were passed to the system.
    pub(crate) async fn flushed(&self) {
        // `subscribe` marks the current count as seen, so only a later flush ends the wait.
        let mut flushed = self.flushed.subscribe();
        // The sender lives as long as this value, so the channel cannot close.
        let _ = flushed.changed().await;
    }

    /// Returns the bytes of the current request's head.
    pub(crate) fn head(&self) -> Bytes {
        let read = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let end = read.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.map_or(read.len(), |at| at + 4);
        Bytes::copy_from_slice(&read[..end])
    }

    /// Discards the recorded bytes at the end of a request.
    pub(crate) fn next_request(&self) {
        let mut read = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        read.clear();
    }

    fn record(&self, bytes: &[u8]) {
        let mut read = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let free = MAX_HEAD_BYTES.saturating_sub(read.len());
        read.extend(&bytes[..bytes.len().min(free)]);
    }
}

/// The line of a request's connection, as axum passes it to handlers.
#[derive(Clone)]
pub(crate) struct Connection(pub(crate) Arc<Line>);

impl Connected<IncomingStream<'_, Port>> for Connection {
    fn connect_info(stream: IncomingStream<'_, Port>) -> Self {
        Self(Arc::clone(&stream.io().line))
    }
}

/// A connection.
pub(crate) struct Wire {
    stream: TcpStream,
    line: Arc<Line>,
}

impl Wire {
    fn new(stream: TcpStream) -> Self {
        // Without this, the system would join the writes. A failure changes the timing only.
        let _ = stream.set_nodelay(true);
        Self {
            stream,
            line: Arc::default(),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // The buffer may already contain bytes of an earlier read.
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        this.line.record(&buffer.filled()[before..]);
        read
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.line.is_reset.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let most = if this.line.one_byte.load(Ordering::Relaxed) {
            1
        } else {
            bytes.len()
        };
        Pin::new(&mut this.stream).poll_write(context, &bytes[..most.min(bytes.len())])
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        if flushed.is_ready() {
            this.line.flushed.send_modify(|count| *count += 1);
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.line.is_reset.load(Ordering::Relaxed) {
            // A failure means that the peer has closed already.
            // With a linger time of zero, closing the socket sends RST instead of FIN.
            let _ = self.stream.set_zero_linger();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::Wire;

    async fn pair() -> (Wire, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (stream, _) = listener.accept().await.unwrap();
        (Wire::new(stream), client.unwrap())
    }

    #[tokio::test]
    async fn single_bytes_are_written() {
        let (mut wire, _client) = pair().await;
        assert_eq!(wire.write(b"hello").await.unwrap(), 5);
        wire.line.set_one_byte(true);
        assert_eq!(wire.write(b"hello").await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_reset_reaches_the_client() {
        let (mut wire, mut client) = pair().await;
        wire.line.reset();
        assert!(wire.write(b"x").await.is_err());
        drop(wire);
        let read = client.read(&mut [0]).await;
        assert_eq!(
            read.unwrap_err().kind(),
            std::io::ErrorKind::ConnectionReset
        );
    }

    #[tokio::test]
    async fn heads_are_recorded_without_bodies() {
        let (mut wire, mut client) = pair().await;
        for path in ["/a", "/b"] {
            let head = format!("POST {path} HTTP/1.1\r\nX-Case: Kept\r\n\r\n");
            client
                .write_all(format!("{head}body").as_bytes())
                .await
                .unwrap();
            let mut read = vec![0; head.len() + 4];
            wire.read_exact(&mut read).await.unwrap();
            assert_eq!(wire.line.head(), head.as_bytes());
            wire.line.next_request();
        }
    }
}
