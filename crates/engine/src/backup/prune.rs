//! Removes old backups and the files that only they reference.

use std::collections::HashSet;

use futures::TryStreamExt as _;
use palimpsest_store::archive::Archive;

use super::BackupError;
use super::manifest::{self, ManifestReader, list, result_path};

/// The number of removed items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Removed backups.
    pub backups: u64,
    /// Removed files that no kept backup references, including files of unfinished backups.
    pub files: u64,
}

/// Keeps the latest `keep` backups, at least one. Files that they reference stay. No backup may be taken at the same
/// time.
pub async fn prune(place: &Archive, keep: usize) -> Result<Pruned, BackupError> {
    let mut ids = list(place).await?;
    // Ids begin with the time, so the sorted list ends with the latest backups.
    let kept = ids.split_off(ids.len().saturating_sub(keep.max(1)));
    let mut named = HashSet::new();
    // Backups share files with their base, so a file is only removed if no kept manifest references it.
    for id in &kept {
        let mut manifest = ManifestReader::open(place, id).await?;
        while let Some(entry) = manifest.next().await? {
            named.extend(entry.logs.iter().map(|log| log.path.clone()));
            if let Some(key) = entry.key() {
                let results = entry.results.iter();
                named.extend(results.map(|result| result_path(&key, &result.file)));
            }
        }
    }
    let mut pruned = Pruned::default();
    // Manifests are removed first, because a backup must not outlive its files.
    for id in &ids {
        manifest::remove(place, id).await?;
        pruned.backups += 1;
    }
    for folder in ["logs", "results"] {
        let mut paths = place.list(folder)?;
        while let Some(path) = paths.try_next().await? {
            if !named.contains(&path) {
                place.remove(&path).await?;
                pruned.files += 1;
            }
        }
    }
    Ok(pruned)
}
