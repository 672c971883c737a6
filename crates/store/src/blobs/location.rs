//! Opening of a configured blob location.

use std::path::PathBuf;
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

/// A location that was parsed, and not accessed.
enum ParsedLocation {
    Folder(PathBuf),
    Bucket { name: String, root: Path },
    Memory,
}

/// Returns the folder of a location, or `None` if the location is not a local folder. Accesses nothing.
///
/// Fails with [`BlobError::Location`] if the location can never be opened.
pub fn local_folder(location: &str) -> Result<Option<PathBuf>, BlobError> {
    Ok(match parse(location)? {
        ParsedLocation::Folder(folder) => Some(folder),
        ParsedLocation::Bucket { .. } | ParsedLocation::Memory => None,
    })
}

fn parse(location: &str) -> Result<ParsedLocation, BlobError> {
    // A location without a scheme is a path, which need not be a valid URL.
    let Some((scheme, _)) = location.split_once("://") else {
        return Ok(ParsedLocation::Folder(location.into()));
    };
    let url = Url::parse(location).map_err(|e| invalid(location, e.to_string()))?;
    match scheme {
        "file" => {
            let folder = url.to_file_path().map_err(|()| {
                invalid(
                    location,
                    "it is not an absolute path on this machine, such as file:///folder",
                )
            })?;
            Ok(ParsedLocation::Folder(folder))
        }
        "memory" => Ok(ParsedLocation::Memory),
        "s3" => {
            let name = url.host_str().filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| {
                invalid(location, "it names no bucket, such as s3://bucket/prefix")
            })?;
            Ok(ParsedLocation::Bucket {
                name: name.to_owned(),
                root: Path::from_url_path(url.path())
                    .map_err(|e| invalid(location, e.to_string()))?,
            })
        }
        // `memory` is missing in the text, because it loses all data and is only for tests.
        other => Err(invalid(location, format!("{other} is neither file nor s3"))),
    }
}

pub(super) fn open(location: &str) -> Result<OpenedLocation, BlobError> {
    match parse(location)? {
        ParsedLocation::Folder(folder) => {
            open_dir(&folder).map_err(|reason| invalid(location, reason))
        }
        ParsedLocation::Memory => Ok(in_memory()),
        // The endpoint and the credentials come from the standard `AWS_*` variables.
        ParsedLocation::Bucket { name, root } => {
            let store = AmazonS3Builder::from_env()
                .with_bucket_name(name)
                .build()
                .map_err(|e| invalid(location, e.to_string()))?;
            Ok((Arc::new(store), root, None))
        }
    }
}

fn invalid(location: &str, reason: impl Into<String>) -> BlobError {
    BlobError::Location {
        location: location.to_owned(),
        reason: reason.into(),
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
