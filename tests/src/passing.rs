//! Failures that a caller is told to bear, whatever happens to the servers that it calls.

use palimpsest_proto::context::v1::ReadToolResultResponse;
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt as _;

/// Whether a call failed as a caller can act on: by trying again.
pub fn is_passing(status: &Status) -> bool {
    let reason = status.get_details_error_info().map(|info| info.reason);
    match status.code() {
        // Aborted: another compaction of the same session is under way, or has just ended.
        Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted | Code::Aborted => {
            true
        }
        // The connection broke: the client says so in various ways, and without our details.
        Code::Unknown | Code::Cancelled | Code::Internal => reason.is_none(),
        _ => false,
    }
}

/// A result that is read back, all of it.
pub async fn whole(mut stream: Streaming<ReadToolResultResponse>) -> String {
    let mut bytes = Vec::new();
    while let Some(part) = stream.message().await.unwrap() {
        bytes.extend_from_slice(&part.data);
    }
    String::from_utf8(bytes).unwrap()
}
