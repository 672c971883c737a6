//! The HTTP API: the services of the contract for callers without gRPC.
//!
//! [`HttpApi`] is a layer around the path of every gRPC call. It leaves gRPC calls as they are, and turns requests of the
//! other protocols into gRPC calls: REST with plain JSON (`rest`), Connect (`connect`) and gRPC-Web. Authentication,
//! rights, limits and errors are therefore those of gRPC. A body is turned into a message ([`BodyDecoder`]) after its
//! caller was authenticated and its bytes were counted.
//!
//! [`Mount`] adds a protocol of another crate, such as MCP and the pages of the inspector.
//!
//! `json` reads and writes messages as JSON, without decoding them. `openapi` describes the REST API. [`PlainJson`] writes
//! replies for commands.

mod body;
mod call;
mod connect;
mod cors;
mod decoder;
mod error;
mod json;
mod mount;
mod openapi;
mod plain;
mod rest;
mod service;
mod thread;

pub use body::ApiBody;
pub use cors::{AllowedOrigins, OpenTo, names_this_machine};
pub use decoder::{BodyDecoder, BodyProblem};
pub use error::code_name;
pub use mount::{CREDENTIALS, GrpcPath, Mount, selected_headers, with_caller};
pub use openapi::document as openapi_document;
pub use plain::PlainJson;
pub use service::{ApiService, BuildError, HttpApi};
pub use thread::on_fitting_thread;
