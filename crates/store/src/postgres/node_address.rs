//! The addresses of the nodes of a distributed database.

/// A node, as the other nodes address it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeAddress {
    pub(super) host: String,
    pub(super) port: u16,
}
