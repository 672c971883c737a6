//! Opening of a configured blob location.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use url::Url;

use super::error::BlobError;
use super::folders::Folders;

/// The store, the root path in it, and the folders of a local store.
pub(super) type OpenedLocation = (Arc<dyn ObjectStore>, Path, Option<Arc<Folders>>);

pub(super) fn open(location: &str) -> Result<OpenedLocation, BlobError> {
    let refuse = |reason: String| BlobError::Location {
        location: location.to_owned(),
        reason,
    };
    // A location without a scheme is a path, which need not be a valid URL.
    let Some((scheme, _)) = location.split_once("://") else {
        return open_dir(std::path::Path::new(location)).map_err(refuse);
    };
    let url = Url::parse(location).map_err(|e| refuse(e.to_string()))?;
    match scheme {
        "file" => {
            let dir = url
                .to_file_path()
                .map_err(|()| refuse("it is not a path on this machine".into()))?;
            open_dir(&dir).map_err(refuse)
        }
        "memory" => Ok(in_memory()),
        // The endpoint and the credentials come from the standard `AWS_*` variables.
        "s3" => {
            let bucket = url
                .host_str()
                .ok_or_else(|| refuse("it names no bucket".into()))?;
            let store = AmazonS3Builder::from_env()
                .with_bucket_name(bucket)
                .build()
                .map_err(|e| refuse(e.to_string()))?;
            let root = Path::from_url_path(url.path()).map_err(|e| refuse(e.to_string()))?;
            Ok((Arc::new(store), root, None))
        }
        other => Err(refuse(format!("{other} is not one of file, s3 and memory"))),
    }
}

/// Returns a store that is lost when the process ends.
pub(super) fn in_memory() -> OpenedLocation {
    (Arc::new(InMemory::new()), Path::default(), None)
}

/// Opens or creates a folder. With `with_fsync`, a write syncs a temporary file, renames or links it,
/// and syncs the folders. Otherwise a power loss could remove a blob that an event names.
fn open_dir(dir: &std::path::Path) -> Result<OpenedLocation, String> {
    crate::fs::create_dir(dir).map_err(|e| e.to_string())?;
    let store = LocalFileSystem::new_with_prefix(dir).map_err(|e| e.to_string())?;
    Ok((
        // Without the cleanup, removed sessions would leave empty folders, which listings return as projects and
        // sessions.
        Arc::new(store.with_fsync(true).with_automatic_cleanup(true)),
        Path::default(),
        Some(Arc::new(Folders::new(dir.to_owned()))),
    ))
}
