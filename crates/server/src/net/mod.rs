//! Connections of the server's ports. The file handles of the process are divided among them. Under pressure idle
//! connections are closed, and inactive peers cannot keep a connection forever.

mod handles;
mod listener;
mod open;
mod party;
mod watched;

pub use handles::{ConnectionLimits, raise_limit};
pub(crate) use listener::{Acceptor, AdminListener};
pub(crate) use open::{Connection, ConnectionSlot, Connections};
pub(crate) use party::ShareGroup;
pub(crate) use watched::Watched;
