//! `palimpsest compact-store`: frees the disk space of deleted and replaced data.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use palimpsest_store::sled::compact_store;

use super::output::{bytes, number, print};

/// Rewrite the embedded store to free the disk space of deleted data
#[derive(Debug, Args)]
#[command(
    after_help = "Stop the server first. The old store stays in log.before-compaction in the data folder until you \
delete it.

Examples:
  palimpsest compact-store --data-dir /var/lib/palimpsest"
)]
pub(super) struct CompactStore {
    /// Data folder of the server
    #[arg(long, value_name = "FOLDER", default_value = "data")]
    data_dir: PathBuf,
}

impl CompactStore {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let from = self.data_dir.join(palimpsest_server::LOG_FOLDER);
        // The error of the store would not name the flag with the wrong folder.
        if !from.is_dir() {
            bail!(
                "no store exists in {}: check --data-dir",
                self.data_dir.display()
            );
        }
        let to = sibling(&from, "compacting");
        let old = sibling(&from, "before-compaction");
        // The old store is the only copy until its operator has checked the new one, so it is never overwritten.
        if old.exists() {
            bail!(
                "{} exists from an earlier run: check the store, and then delete this folder",
                old.display()
            );
        }
        if to.exists() {
            // An earlier run was interrupted. Nothing reads this folder.
            fs::remove_dir_all(&to).with_context(|| format!("cannot remove {}", to.display()))?;
        }
        let compacted = compact_store(&from, &to, &old)?;
        print(&format!(
            "{} sessions, {} records: {} on disk before, {} now.\nThe old store is in {}. Delete it after you have checked the new one.\n",
            number(compacted.sessions),
            number(compacted.records),
            bytes(compacted.from_disk_bytes),
            bytes(compacted.to_disk_bytes),
            old.display()
        ))
    }
}

fn sibling(folder: &Path, ending: &str) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    folder.with_file_name(name)
}
