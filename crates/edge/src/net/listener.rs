//! Accepts connections of the server's ports.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::connections::MAX_CLOSING;
use super::{ConnectionSlot, Connections};

/// The pause after a failed accept, for example without free file handles. An immediate retry would keep a core busy.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts the connections of one port.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    connections: Connections,
    /// The permits for file handles. A closed connection keeps its permit until its socket is closed.
    handles: Arc<Semaphore>,
    max_handshakes: Option<usize>,
}

/// An accepted connection. The field order matters: the socket is dropped before its permits.
#[derive(Debug)]
pub struct AcceptedConnection {
    /// The socket.
    pub stream: TcpStream,
    /// The slot among the connections of the port.
    pub slot: ConnectionSlot,
    /// The permit for the file handle.
    pub handle: OwnedSemaphorePermit,
}

impl Acceptor {
    /// Creates the acceptor. `max_handshakes` is set for ports with TLS.
    pub fn new(
        listener: TcpListener,
        connections: Connections,
        max_handshakes: Option<usize>,
    ) -> Self {
        Self {
            listener,
            // An evicted connection has no slot, but keeps its handle until its socket is closed.
            handles: Arc::new(Semaphore::new(connections.max() + MAX_CLOSING)),
            connections,
            max_handshakes,
        }
    }

    /// Returns the address of the port. Port 0 is replaced by the assigned port.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the next connection with a slot. Without a free slot the connection is closed immediately, so that its
    /// client tries another replica.
    pub async fn accept(&self) -> AcceptedConnection {
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::super::MonitoredConnection;
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
        assert_eq!(
            silent.read(&mut [0]).await.unwrap(),
            0,
            "the evicted connection is still open"
        );
    }
}
