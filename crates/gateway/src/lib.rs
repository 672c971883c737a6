//! The HTTP gateway: a port that speaks the HTTP APIs of model providers.
//!
//! An agent's base URL points to the gateway. Each request is forwarded to the configured upstream of its API, and the
//! response is forwarded back, both byte for byte as far as HTTP permits. `forward` contains the steps of a request.
//! `tee` reads the response of a model beside its forwarding, and hands the assembled response to the context.
//!
//! Two principles decide about faults. An answer or a broken connection of upstream reaches the agent as it is. The
//! gateway answers itself only if upstream received no complete request.

mod answer;
mod caller;
mod client;
mod connection;
pub mod context;
mod exchange;
mod forward;
mod headers;
mod in_flight;
mod listen;
mod metrics;
mod port;
pub mod reading;
mod request_body;
mod response_body;
mod route;
mod tee;
mod upstream;

pub use port::{BindError, Gateway};
