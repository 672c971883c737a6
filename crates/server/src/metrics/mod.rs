//! The metrics of gRPC calls and of the server around them. `palimpsest_edge::metrics` contains the registry and all
//! other metrics.

mod calls;
mod observers;

pub(crate) use self::calls::{CallMetrics, CallReport, RpcMethod};
pub(crate) use self::observers::observe_server;
