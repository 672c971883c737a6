//! `palimpsest retention`: lists the sessions that retention would delete.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Error, anyhow, bail};
use clap::Args;
use palimpsest_core::limits::Limits;
use palimpsest_core::policy::Overlay;
use palimpsest_engine::clock::{Clock, SystemClock};
use palimpsest_engine::maintenance::{RetentionPreview, day_of, preview};
use palimpsest_engine::sessions::{DefaultPolicies, Sessions};
use palimpsest_server::store;
use serde_json::json;

use super::client::block_on;
use super::output::{align_right, bytes, number, print, table};
use super::settings::Settings;

/// The size of the session cache, in bytes. A preview does not use the cache.
const CACHE_BYTES: usize = 1 << 20;

/// List the sessions that retention would delete now, without deleting them
#[derive(Debug, Args)]
#[command(
    after_help = "A running server or worker deletes sessions according to [retention]. This command shows the effect of \
these settings before you use them.

Stop the server of an embedded store first. A database (store.postgres.url) can be in use. To observe a \
running server instead, set retention.dry_run: each pass logs and counts the sessions that it would delete.

Examples:
  palimpsest retention --dry-run --config palimpsest.toml
  palimpsest retention --dry-run --data-dir /var/lib/palimpsest --set retention.max_age=90d --json"
)]
pub(super) struct RetentionCommand {
    /// Confirm that nothing is deleted; required, because the command has no other mode
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object per session
    #[arg(long)]
    json: bool,
    /// Folder for a copy of the embedded store, which needs the space of the store [default: the folder of
    /// the system for temporary files]
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

impl RetentionCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if !self.dry_run {
            bail!(
                "this command deletes nothing: pass --dry-run to list the sessions that a server would delete"
            );
        }
        block_on(self.list())
    }

    async fn list(self) -> anyhow::Result<()> {
        let config = self.settings.load()?.config;
        if !config.retention.is_on() {
            bail!(
                "retention is off: set retention.max_age, retention.max_sessions or retention.max_bytes"
            );
        }
        let scratch = self.scratch.clone().unwrap_or_else(std::env::temp_dir);
        // The embedded store is read from a copy, because opening a store writes files.
        let readable = store::open_existing(&config, &scratch).await;
        let readable = readable.map_err(Error::from_boxed)?;
        let log = Arc::clone(&readable.log);
        let blobs = store::blobs(&config)?;
        // Retention depends on ages and sizes, not on policies, so the defaults are enough.
        let policies = DefaultPolicies::new(&Overlay::default(), &BTreeMap::new());
        let policies = policies.map_err(|error| anyhow!("{error}"))?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let limits = Arc::new(Limits::default());
        let sessions = Sessions::new(Arc::clone(&log), clock, limits, policies, CACHE_BYTES);
        let preview = preview(&sessions, &blobs, &config.retention).await?;
        drop(sessions);
        log.close().await?;
        if self.json {
            return as_json(&preview);
        }
        let percent = config.retention.max_percent_per_pass;
        as_table(&preview, percent)
    }
}

fn as_json(preview: &RetentionPreview) -> anyhow::Result<()> {
    for ending in &preview.deletions {
        let line = json!({
            "session": ending.session.to_string(),
            "modified": day_of(ending.modified),
            "bytes": ending.bytes,
            "reason": ending.reason.as_str(),
            "paused": preview.jump.is_some(),
        });
        print(&format!("{line}\n"))?;
    }
    Ok(())
}

fn as_table(preview: &RetentionPreview, percent: u32) -> anyhow::Result<()> {
    let mut rows = table(&["session", "last event", "bytes", "reason"]);
    align_right(&mut rows, &[2]);
    for ending in &preview.deletions {
        rows.add_row([
            ending.session.to_string(),
            day_of(ending.modified),
            bytes(ending.bytes),
            ending.reason.as_str().to_owned(),
        ]);
    }
    if !preview.deletions.is_empty() {
        print(&format!("{rows}\n"))?;
    }
    print(&format!(
        "{} of {} sessions would be deleted, at most {percent} % of a project by age in one pass. Due sessions on hold: {}.\n",
        number(preview.deletions.len() as u64),
        number(preview.sessions),
        number(preview.on_hold),
    ))?;
    if let Some(jump) = preview.jump {
        print(&format!(
            "Retention by age would pause: the clock shows {}, and the newest event is from {}. If the clock is right, \
             set retention.clock_trusted_until to a later day.\n",
            day_of(jump.now),
            day_of(jump.expected),
        ))?;
    }
    Ok(())
}
