//! What is said to calls of which nothing is looked at. There are many of them when there are any, and what
//! each takes is missing to the others: it is made once.

use http::{HeaderMap, Response};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::call_limits::CallLimits;
use super::response_body::ResponseBody;
use crate::metrics::{CallEnded, Metrics, RpcMethod};

/// The refusal.
#[derive(Debug)]
pub(super) struct Shed {
    headers: HeaderMap,
    code: Code,
    reason: Option<String>,
}

impl Shed {
    pub(super) fn new() -> Self {
        let status = Status::from(CallLimits::refusal());
        let code = status.code();
        let reason = status.get_details_error_info().map(|info| info.reason);
        let (parts, ()) = status.into_http().into_parts();
        Self {
            headers: parts.headers,
            code,
            reason,
        }
    }

    /// Refuses a call, by its path. It is counted, and has no span.
    pub(super) fn answer(&self, path: &str, metrics: &Metrics) -> Response<ResponseBody> {
        metrics.call_ended(CallEnded {
            method: RpcMethod::of(path.trim_start_matches('/')),
            code: self.code,
            reason: self.reason.clone(),
            took: None,
            request_bytes: 0,
            response_bytes: 0,
        });
        let mut response = Response::new(ResponseBody::Rejected);
        response.headers_mut().clone_from(&self.headers);
        response
    }
}
