//! Connections of the server's ports. The file handles of the process are divided among them. Under pressure idle
//! connections are closed, and inactive peers cannot keep a connection forever.

mod connections;
mod file_limits;
mod listener;
mod monitored;
mod share_group;
mod unread;

pub use connections::{ActiveCall, Connection, ConnectionSlot, Connections};
pub use file_limits::{ConnectionLimits, raise_limit};
pub use listener::{AcceptedConnection, Acceptor};
pub use monitored::{LastActivity, MonitoredConnection};
pub use share_group::ShareGroup;
pub use unread::{TrackedBody, answer};
