//! Transient failures, which a caller must tolerate.

use palimpsest_proto::context::v1::ReadToolResultResponse;
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt as _;

/// Returns true if a caller can handle the error by a retry.
pub fn is_passing(status: &Status) -> bool {
    let reason = status.get_details_error_info().map(|info| info.reason);
    match status.code() {
        // Aborted: another compaction of the same session is running or has ended a moment ago.
        Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted | Code::Aborted => {
            true
        }
        // A broken connection. The client reports it with various codes, and without the service's error details.
        Code::Unknown | Code::Cancelled | Code::Internal => reason.is_none(),
        _ => false,
    }
}

/// Reads a complete stored result.
pub async fn whole(mut stream: Streaming<ReadToolResultResponse>) -> String {
    let mut bytes = Vec::new();
    while let Some(part) = stream.message().await.unwrap() {
        bytes.extend_from_slice(&part.data);
    }
    String::from_utf8(bytes).unwrap()
}
