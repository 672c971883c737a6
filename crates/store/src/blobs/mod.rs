//! Tool results and summaries, in a local folder or a bucket.
//!
//! A file of a tool result has a name that no other command uses, and its bytes never change, so that an event that names
//! it can be trusted for ever and a late removal meets no other file. The files belong to one log: nothing is written or
//! removed before the `owner_marker` module has seen that. Not here: which results are worth a blob, and what an event says of it.

mod doubt;
mod error;
mod folders;
mod location;
mod owner_marker;
mod paths;
mod removal;
mod store;
mod summary_file;

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path;

pub use self::error::BlobError;
pub(crate) use self::error::lost;
pub use self::owner_marker::Owner;
pub use self::paths::{hex, result_path};
pub use self::removal::{RemovalCount, SessionFiles};
pub use self::store::{BlobEntry, Blobs};
pub(crate) use self::store::{PART_BYTES, PARTS};
pub use self::summary_file::{ReplaceOutcome, SummaryFile, summary_path};

/// The store that a location means, and the path in it below which everything is.
pub(crate) fn open_location(location: &str) -> Result<(Arc<dyn ObjectStore>, Path), BlobError> {
    let (store, root, _) = location::open(location)?;
    Ok((store, root))
}
