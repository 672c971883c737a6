//! Encoding of request stamps.

use palimpsest_core::session::{RequestMethod, RequestStamp};

use super::error::DecodeError;
use super::stored_as::StoredAs;
use super::v1;

stored_enum! {
    RequestMethod = Method {
        Append, Create, Update, Rewind, Prepare, Snip, Compact, Restore, Persist, Working, Commit,
        Delegation, Fork, Memory,
    }
    or "an unknown method"
}

stored_struct! { RequestStamp = RequestStamp { id, method, digest } }
