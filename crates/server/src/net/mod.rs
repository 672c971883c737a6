//! Connections of the server's ports: the process's file handles are shared out among them, one that keeps another
//! from its place is closed, and none is kept for ever by a peer that does nothing.

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
