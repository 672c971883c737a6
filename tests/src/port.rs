//! A local port that refuses connections until a test listens on it.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// A reserved local port. The port refuses connections while no listener exists. No other process can take the port,
/// so a connection never reaches a foreign process.
#[derive(Debug)]
pub struct ReservedPort {
    address: SocketAddr,
    _reservation: TcpSocket,
}

impl ReservedPort {
    /// Reserves a free port.
    pub fn reserve() -> Self {
        let socket = bound(([127, 0, 0, 1], 0).into());
        Self {
            address: socket.local_addr().unwrap(),
            _reservation: socket,
        }
    }

    /// Returns the address of the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens on the port. The port refuses connections again after the listener is dropped.
    pub fn listen(&self) -> TcpListener {
        bound(self.address).listen(1_024).unwrap()
    }
}

/// Returns a socket that is bound but does not listen.
fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    // The reservation and the listeners share the port. Only listeners receive connections.
    socket.set_reuseport(true).unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
}
