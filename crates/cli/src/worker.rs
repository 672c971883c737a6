//! `palimpsest worker`: runs the worker in a process of its own, on a database that servers share.

use clap::Args;

use super::allocator::return_free_memory_at_once;
use super::serve;
use super::settings::Settings;

/// Run the worker alone, which updates session memory and answers no calls
#[derive(Debug, Args)]
#[command(
    after_help = "The same as `palimpsest serve --role worker`. `palimpsest serve` also runs the worker, unless its \
role is server. A worker of its own needs a database that several processes share (store.postgres.url). \
Health and metrics use the same listen addresses as a server.

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
