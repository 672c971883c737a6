//! The blob store: tool results and summaries in a local folder or a bucket.
//!
//! The file of a tool result has a unique name, and its content never changes. An event can therefore
//! refer to it for ever, and a late removal affects no other file. All files belong to one log.
//! `owner_marker` verifies the owner before anything is written or removed.

mod clock_doubt;
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
pub(crate) use self::error::not_found_or;
pub use self::location::local_folder;
pub use self::owner_marker::BlobOwner;
pub use self::paths::result_path;
pub use self::removal::{RemovalCount, SessionFiles};
pub use self::store::{BlobEntry, Blobs};
pub(crate) use self::store::{PART_BYTES, PARTS, aborted};
pub use self::summary_file::{ReplaceOutcome, SummaryFile, summary_path};

/// Opens a location and returns its store and root path.
pub(crate) fn open_location(location: &str) -> Result<(Arc<dyn ObjectStore>, Path), BlobError> {
    let (store, root, _) = location::open(location)?;
    Ok((store, root))
}
