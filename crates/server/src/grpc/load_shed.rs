//! The response to shed calls. It is built once, because calls are shed in large numbers and every bit of work would be
//! taken from admitted calls.

use http::{HeaderMap, Response};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::call_limits::CallLimits;
use super::response_body::ResponseBody;
use crate::metrics::{CallMetrics, CallReport, RpcMethod};

#[derive(Debug)]
pub(super) struct ShedResponse {
    headers: HeaderMap,
    code: Code,
    reason: Option<String>,
}

impl ShedResponse {
    pub(super) fn new() -> Self {
        let status = Status::from(CallLimits::shed_error());
        let code = status.code();
        let reason = status.get_details_error_info().map(|info| info.reason);
        let (parts, ()) = status.into_http().into_parts();
        Self {
            headers: parts.headers,
            code,
            reason,
        }
    }

    /// Returns the response for a call by its path. The call is counted in metrics and has no span.
    pub(super) fn answer(&self, path: &str, metrics: &CallMetrics) -> Response<ResponseBody> {
        metrics.ended(CallReport {
            project: None,
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
