//! Measures calls without a network: the handlers run in this process, with the log in memory or on this disk.

mod compaction;
mod delta;
mod open;

use std::path::Path;

use anyhow::Result;

use crate::row::Row;

/// The size of the measurement.
pub(crate) struct Extent {
    pub(crate) rounds: usize,
    /// Number of calls per round.
    pub(crate) calls: usize,
    /// Messages of a long session.
    pub(crate) long: usize,
}

/// Measures all rows. Calls `tell` with each row when it is complete.
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
