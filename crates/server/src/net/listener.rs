//! Accepts connections of the server's ports.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::connections::MAX_CLOSING;
use super::{ConnectionSlot, Connections, MonitoredConnection};

/// The pause after a failed accept, for example without free file handles. An immediate retry would keep a core busy.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The maximum silence of an admin connection, and the maximum time of a write without progress.
const ADMIN_IDLE: Duration = Duration::from_secs(30);

/// Accepts the connections of one port.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    connections: Connections,
    /// The permits for file handles. A closed connection keeps its permit until its socket is closed.
    handles: Arc<Semaphore>,
    max_handshakes: Option<usize>,
}

/// An accepted connection. The field order matters: the socket is dropped before its permits.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(crate) stream: TcpStream,
    pub(crate) slot: ConnectionSlot,
    pub(crate) handle: OwnedSemaphorePermit,
}

impl Acceptor {
    /// Creates the acceptor. `max_handshakes` is set for ports with TLS.
    pub(crate) fn new(
        listener: TcpListener,
        connections: Connections,
        max_handshakes: Option<usize>,
    ) -> Self {
        Self {
            listener,
            handles: Arc::new(Semaphore::new(connections.max() + MAX_CLOSING)),
            connections,
            max_handshakes,
        }
    }

    /// Returns the next connection with a slot. Without a free slot the connection is closed immediately, so that its
    /// client tries another replica.
    pub(crate) async fn accept(&self) -> AcceptedConnection {
        loop {
            // Waits for the sockets of closed connections, so that the process does not run out of file handles.
            let handle = Arc::clone(&self.handles).acquire_owned().await;
            let handle = handle.expect("it is never closed");
            let stream = accept(&self.listener).await;
            if let Some(slot) = self.connections.enter(self.max_handshakes) {
                return AcceptedConnection {
                    stream,
                    slot,
                    handle,
                };
            }
            let max = self.connections.max();
            tracing::warn!(max, "rejected a connection: all connections are in use");
        }
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        let error = match listener.accept().await {
            Ok((stream, _)) => match stream.set_nodelay(true) {
                // With Nagle's algorithm, a reply of 64 KiB would wait 40 ms for a delayed acknowledgement.
                Ok(()) => return stream,
                // The peer has already disconnected.
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
        // These errors concern one connection. Other errors persist, so the loop pauses before it retries.
        if !of_one_connection {
            tracing::warn!(%error, "failed to accept a connection; retrying");
            sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// The listener of the admin port, for `axum`.
#[derive(Debug)]
pub(crate) struct AdminListener(Acceptor);

impl AdminListener {
    pub(crate) fn new(door: Acceptor) -> Self {
        Self(door)
    }
}

impl axum::serve::Listener for AdminListener {
    type Io = MonitoredConnection<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        let accepted = self.0.accept().await;
        let from = accepted.stream.peer_addr();
        let from = from.unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
        let AcceptedConnection {
            stream,
            slot,
            handle,
        } = accepted;
        let io = MonitoredConnection::new(stream, ADMIN_IDLE, slot, handle).with_idle(ADMIN_IDLE);
        (io, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.listener.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn accepted_connections_disable_nagle_and_time_out_when_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = Acceptor::new(listener, Connections::new(1), None);
        let _client = TcpStream::connect(address).await.unwrap();
        let accepted = door.accept().await;
        assert!(accepted.stream.nodelay().unwrap());
        let AcceptedConnection {
            stream,
            slot,
            handle,
        } = accepted;
        let short = Duration::from_millis(10);
        let mut io = MonitoredConnection::new(stream, short, slot, handle).with_idle(short);
        let error = io.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_new_connection_evicts_a_silent_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = Acceptor::new(listener, Connections::new(1), None);
        let mut silent = TcpStream::connect(address).await.unwrap();
        let AcceptedConnection {
            stream,
            slot,
            handle,
        } = door.accept().await;
        let mut first = MonitoredConnection::new(stream, Duration::MAX, slot, handle);
        let _other = TcpStream::connect(address).await.unwrap();
        let _second = door.accept().await;
        assert_eq!(
            first.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        drop(first);
        assert_eq!(silent.read(&mut [0]).await.unwrap(), 0, "it was closed");
    }
}
