//! `palimpsest compact-store`: gives back the disk space that deleted and replaced data still takes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use palimpsest_store::sled::compact_store;

use super::output::{bytes, number, print};

/// Rewrite the embedded store so that it takes no more disk than its data needs
#[derive(Debug, Args)]
#[command(
    after_help = "The server must be stopped. The old folder is kept beside the new one, as
{data-dir}/log.before-compaction, until you delete it.

Examples:
  palimpsest compact-store --data-dir /var/lib/palimpsest"
)]
pub(super) struct CompactStore {
    /// The folder that the server keeps its data in
    #[arg(long, value_name = "FOLDER", default_value = "data")]
    data_dir: PathBuf,
}

impl CompactStore {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let from = self.data_dir.join(palimpsest_server::LOG_FOLDER);
        if !from.is_dir() {
            bail!("there is no store in {}", self.data_dir.display());
        }
        let to = sibling(&from, "compacting");
        let old = sibling(&from, "before-compaction");
        if old.exists() {
            bail!(
                "{} is left of an earlier compaction: delete it once you trust the result",
                old.display()
            );
        }
        if to.exists() {
            // An earlier run did not finish; nothing reads from there.
            fs::remove_dir_all(&to).with_context(|| format!("cannot remove {}", to.display()))?;
        }
        let compacted = compact_store(&from, &to, &old)?;
        print(&format!(
            "{} sessions, {} records: {} on disk before, {} now.\nThe old store is kept in {}; delete it when all is well.\n",
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
