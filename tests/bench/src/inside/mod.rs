//! What calls take without the wire: the handlers run in this process, on a log that is in memory or on this disk.

mod compaction;
mod delta;
mod open;

use std::path::Path;

use anyhow::Result;

use crate::row::Row;

/// How far it goes.
pub(crate) struct Extent {
    pub(crate) rounds: usize,
    /// Calls of a round.
    pub(crate) calls: usize,
    /// Messages of a long session.
    pub(crate) long: usize,
}

/// All rows; tells of each as it comes.
pub(crate) fn rows(folder: &Path, extent: &Extent, mut tell: impl FnMut(&Row)) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir_in(folder)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut rows = Vec::new();
        let mut take = |row: Row| {
            tell(&row);
            rows.push(row);
        };
        take(delta::of_long_view(extent).await?);
        take(delta::after_many_messages(extent).await?);
        take(compaction::from_memory(extent, folder.path()).await?);
        for row in open::rows(extent, folder.path()).await? {
            take(row);
        }
        Ok(rows)
    })
}
