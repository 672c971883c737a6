//! `palimpsest retention`: what retention would delete.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Error, anyhow, bail};
use clap::Args;
use palimpsest_core::limits::Limits;
use palimpsest_core::policy::Overlay;
use palimpsest_engine::clock::{Clock, SystemClock};
use palimpsest_engine::maintenance::day_of;
use palimpsest_engine::sessions::{DefaultPolicies, Sessions};
use palimpsest_server::maintenance::{RetentionPreview, preview};
use palimpsest_server::store;
use serde_json::json;

use super::client::block_on;
use super::output::{align_right, bytes, number, print, table};
use super::settings::Settings;

/// Sessions that the cache may keep, which no preview reads.
const CACHE_BYTES: usize = 1 << 20;

/// List the sessions that retention would delete now; nothing is deleted
#[derive(Debug, Args)]
#[command(
    after_help = "A running server or worker deletes by itself, as [retention] says. This command shows the result of these
settings before they are in force. The embedded store belongs to one process at a time, so that its server
must be stopped; a database may be in use. Beside a running server set retention.dry_run: it logs and counts
what it would delete.

Examples:
  palimpsest retention --dry-run --config palimpsest.toml
  palimpsest retention --dry-run --data-dir /var/lib/palimpsest --set retention.max_age=90d --json"
)]
pub(super) struct Retention {
    /// Delete nothing: this command does nothing else, and wants it said
    #[arg(long)]
    dry_run: bool,
    /// Print JSON: one line a session
    #[arg(long)]
    json: bool,
    /// Where the embedded store is copied to be read; as much room as it has is needed [default: the system's folder for
    /// temporary files]
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

impl Retention {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if !self.dry_run {
            bail!(
                "only a running server or worker deletes: add --dry-run to list what it would delete"
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
        let readable = store::open_existing(&config, &scratch).await;
        let readable = readable.map_err(Error::from_boxed)?;
        let log = Arc::clone(&readable.log);
        let blobs = store::blobs(&config)?;
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
            "reason": ending.over.as_str(),
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
            ending.over.as_str().to_owned(),
        ]);
    }
    if !preview.deletions.is_empty() {
        print(&format!("{rows}\n"))?;
    }
    print(&format!(
        "{} of {} sessions would be deleted, at most {percent} % of a project by age in one pass; a hold keeps {}.\n",
        number(preview.deletions.len() as u64),
        number(preview.sessions),
        number(preview.on_hold),
    ))?;
    if let Some(jump) = preview.jump {
        print(&format!(
            "Retention by age would pause: the clock shows {}, and the newest event is of {}. If the clock is right, set \
             retention.clock_trusted_until to a day after now.\n",
            day_of(jump.now),
            day_of(jump.expected),
        ))?;
    }
    Ok(())
}
