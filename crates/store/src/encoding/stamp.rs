//! The stamps of requests.

use palimpsest_core::message::Digest;
use palimpsest_core::session::{Method, RequestStamp};

use super::error::{DecodeError, sixteen};
use super::v1;

pub(super) fn write_stamp(stamp: &RequestStamp) -> v1::RequestStamp {
    v1::RequestStamp {
        id: stamp.id.to_string(),
        method: match stamp.method {
            Method::Append => v1::Method::Append,
            Method::Create => v1::Method::Create,
            Method::Update => v1::Method::Update,
            Method::Rewind => v1::Method::Rewind,
            Method::Prepare => v1::Method::Prepare,
            Method::Snip => v1::Method::Snip,
            Method::Compact => v1::Method::Compact,
            Method::Restore => v1::Method::Restore,
            Method::Persist => v1::Method::Persist,
            Method::Working => v1::Method::Working,
            Method::Commit => v1::Method::Commit,
            Method::Delegation => v1::Method::Delegation,
        }
        .into(),
        digest: bytes::Bytes::copy_from_slice(stamp.digest.as_bytes()),
    }
}

pub(super) fn read_stamp(
    stored: Option<v1::RequestStamp>,
) -> Result<Option<RequestStamp>, DecodeError> {
    let Some(stored) = stored else {
        return Ok(None);
    };
    let method = match stored.method() {
        v1::Method::Append => Method::Append,
        v1::Method::Create => Method::Create,
        v1::Method::Update => Method::Update,
        v1::Method::Rewind => Method::Rewind,
        v1::Method::Prepare => Method::Prepare,
        v1::Method::Snip => Method::Snip,
        v1::Method::Compact => Method::Compact,
        v1::Method::Restore => Method::Restore,
        v1::Method::Persist => Method::Persist,
        v1::Method::Working => Method::Working,
        v1::Method::Commit => Method::Commit,
        v1::Method::Delegation => Method::Delegation,
        v1::Method::Unspecified => return Err(DecodeError::Damaged("an unknown method")),
    };
    Ok(Some(RequestStamp {
        digest: Digest::from_bytes(sixteen(&stored.digest)?),
        id: stored.id.into(),
        method,
    }))
}
