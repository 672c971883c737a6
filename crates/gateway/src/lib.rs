//! The HTTP gateway: a port that speaks the HTTP APIs of model providers.
//!
//! An agent's base URL points to the gateway. Each request is forwarded to the configured upstream of its API, and the
//! response is forwarded back, both byte for byte as far as HTTP permits. `forward` contains the steps of a request.
//! `manage` gives the conversation of a request to its session, and sends the view instead if a level has changed it.
//! `tee` reads the response of a model beside its forwarding, and hands the assembled response to the session.
//! `edits` reports edits of the context that a session has served in place of the provider.
//! `call` is the record of a request: its caller, its trace, and its line of the audit log.
//! `compress` answers the compression guardrails of other gateways, which forward requests themselves.
//!
//! Three principles decide about faults. An answer or a broken connection of upstream reaches the agent as it is. The
//! gateway answers itself only if upstream received no complete request. If a session cannot take a conversation, the
//! request is forwarded as the agent sent it.

mod answer;
mod call;
mod caller;
mod client;
mod compaction;
mod compress;
mod connection;
pub mod context;
mod edits;
mod exchange;
mod forward;
mod headers;
mod held_key;
mod in_flight;
mod listen;
mod manage;
mod managed;
mod metrics;
mod overlong;
mod port;
pub mod read_back;
pub mod reading;
mod request_body;
mod response_body;
mod route;
mod search;
mod span;
mod tee;
mod thread;
mod upstream;

pub use managed::{AddedTools, with_messages};
pub use port::{BindError, Gateway};
