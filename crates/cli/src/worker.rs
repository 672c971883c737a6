//! `palimpsest worker`: the worker alone, for a store that servers share.

use clap::Args;

use super::allocator::return_free_memory_at_once;
use super::serve;
use super::settings::Settings;

/// Keep every session's summary.md up to date, and answer no calls
#[derive(Debug, Args)]
#[command(
    after_help = "The same as `palimpsest serve --role worker`. `palimpsest serve` does this too, unless its role is
server; on its own it is for a store that several processes share, which store.postgres.url names.
Health and metrics are at the same addresses as a server's.

Examples:
  palimpsest worker --config palimpsest.toml
  palimpsest worker --config palimpsest.toml --set worker.concurrency=32"
)]
pub(super) struct WorkerCommand {
    #[command(flatten)]
    settings: Settings,
}

impl WorkerCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        return_free_memory_at_once();
        serve::run(
            self.settings
                .with_role("palimpsest worker", "worker")
                .load()?,
        )
    }
}
