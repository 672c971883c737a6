//! Connections of the server's ports: the process's file handles are shared out among them, one that keeps another
//! from its place is closed, and none is kept for ever by a peer that does nothing.

mod handles;
mod listener;
mod open;
mod party;
mod watched;

pub use handles::{Share, raise_limit};
pub(crate) use listener::{AdminListener, Door};
pub(crate) use open::{Connection, Connections, Place};
pub(crate) use party::Party;
pub(crate) use watched::Watched;
