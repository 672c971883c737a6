//! The Model Context Protocol (MCP): sessions for agents that read a conversation back.
//!
//! [`McpServer`] answers MCP requests with calls of the contract. It takes any gRPC channel: the connection of a command,
//! or the path of calls inside of a server ([`McpApi`]). Authentication, rights, limits and errors are therefore those of
//! gRPC. The tools of the service have one source, `ListTools`: this crate adds the tools of session memory (`memory`) and
//! of lists (`sessions`), and no second definition.
//!
//! Not in this crate: the command `palimpsest mcp`, and the settings.

mod api;
mod channel;
mod failure;
mod memory;
mod scope;
mod server;
mod sessions;
mod slots;
mod tools;

pub use api::McpApi;
pub use channel::{GrpcChannel, channel};
pub use scope::Scope;
pub use server::{HandshakeError, McpServer};
