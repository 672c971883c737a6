//! The edge of the process: the parts that every port needs, whatever its protocol.
//!
//! These are access control, connections and TLS, admission, memory budgets, metrics and telemetry. The crate contains no
//! rpc, route or handler. A rejected call is a [`refusal::Refusal`], which each port maps to an error of its protocol.

pub mod access;
pub mod admission;
pub mod budget;
pub mod metrics;
pub mod net;
pub mod port;
pub mod refusal;
pub mod telemetry;
pub mod tls;
