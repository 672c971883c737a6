//! `palimpsest worker`: the worker alone, for a store that servers share.

use std::time::Duration;

use clap::Args;
use palimpsest_server::{app, signals, telemetry};
use palimpsest_store::StoreError;

use super::settings::Settings;

/// How long tasks may take to end once everything is closed.
const RUNTIME_CLOSE: Duration = Duration::from_secs(1);

/// Keep every session's summary.md up to date, and serve nothing
#[derive(Debug, Args)]
#[command(
    after_help = "`palimpsest serve` does this too, unless worker.enabled is false. On its own it is for a store that
several servers share. The embedded store belongs to one process at a time: while a server runs on
it, this command refuses, and the server's own worker does the work.

Examples:
  palimpsest worker --data-dir /var/lib/palimpsest
  palimpsest worker --set worker.parallel=32"
)]
pub(super) struct Work {
    #[command(flatten)]
    settings: Settings,
}

impl Work {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let loaded = self.settings.load()?;
        let telemetry = telemetry::init(&loaded.config)?;
        let metrics = telemetry.metrics();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let outcome = runtime.block_on(async {
            let stop = signals::stop_on_signals()?;
            let worked = app::work(loaded.config, &metrics, stop).await;
            worked.map_err(|error| match error.downcast_ref::<StoreError>() {
                Some(StoreError::Locked { .. }) => anyhow::anyhow!(
                    "{error}: a server that runs on it keeps its summaries itself, unless its \
                     worker.enabled is false. Turn that on, or stop the server first"
                ),
                _ => anyhow::anyhow!("failed to work: {error}"),
            })
        });
        runtime.shutdown_timeout(RUNTIME_CLOSE);
        telemetry.shutdown();
        outcome
    }
}
