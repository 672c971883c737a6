//! Encoding of request stamps.

use palimpsest_core::message::Digest;
use palimpsest_core::session::{RequestMethod, RequestStamp};

use super::error::{DecodeError, sixteen};
use super::v1;

pub(super) fn write_stamp(stamp: &RequestStamp) -> v1::RequestStamp {
    v1::RequestStamp {
        id: stamp.id.to_string(),
        method: match stamp.method {
            RequestMethod::Append => v1::Method::Append,
            RequestMethod::Create => v1::Method::Create,
            RequestMethod::Update => v1::Method::Update,
            RequestMethod::Rewind => v1::Method::Rewind,
            RequestMethod::Prepare => v1::Method::Prepare,
            RequestMethod::Snip => v1::Method::Snip,
            RequestMethod::Compact => v1::Method::Compact,
            RequestMethod::Restore => v1::Method::Restore,
            RequestMethod::Persist => v1::Method::Persist,
            RequestMethod::Working => v1::Method::Working,
            RequestMethod::Commit => v1::Method::Commit,
            RequestMethod::Delegation => v1::Method::Delegation,
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
        v1::Method::Append => RequestMethod::Append,
        v1::Method::Create => RequestMethod::Create,
        v1::Method::Update => RequestMethod::Update,
        v1::Method::Rewind => RequestMethod::Rewind,
        v1::Method::Prepare => RequestMethod::Prepare,
        v1::Method::Snip => RequestMethod::Snip,
        v1::Method::Compact => RequestMethod::Compact,
        v1::Method::Restore => RequestMethod::Restore,
        v1::Method::Persist => RequestMethod::Persist,
        v1::Method::Working => RequestMethod::Working,
        v1::Method::Commit => RequestMethod::Commit,
        v1::Method::Delegation => RequestMethod::Delegation,
        v1::Method::Unspecified => return Err(DecodeError::Damaged("an unknown method")),
    };
    Ok(Some(RequestStamp {
        digest: Digest::from_bytes(sixteen(&stored.digest)?),
        id: stored.id.into(),
        method,
    }))
}
