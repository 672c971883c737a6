//! `palimpsest verify-store`: whether what is stored holds together.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Error, bail};
use clap::Args;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::Session;
use palimpsest_server::maintenance::referenced_files::{self, ReferencedFiles};
use palimpsest_server::store;
use palimpsest_store::blobs::{BlobError, Blobs, result_path};
use palimpsest_store::encoding::{decode_about, decode_frame};
use palimpsest_store::{MAX_LIST, SessionHead, SessionLog, StoreError};
use serde_json::json;

use super::client::block_on;
use super::output::{bytes, number, print, print_json, print_line};
use super::settings::Settings;

/// How much of a log is read at a time.
const READ_BYTES: usize = 4 << 20;

/// Check every stored session: its log, and the stored results that its events name
#[derive(Debug, Args)]
#[command(
    after_help = "The embedded store belongs to one process at a time, so that its server must be stopped; a database, which
store.postgres.url names, may be in use. Nothing is changed: the embedded store is read from a copy in --scratch, and a
damaged one is left where it is.
Files that no event names are counted and are no fault. Those that the log has announced are swept by a running server
after sweep.min_age_ms. The others may be another store's, or were restored and never named: no server removes them. --json
lists the first hundred. Delete them yourself once you know that no other store has them.
The exit code is 1 when a log cannot be read or a result that an event names is missing.

Examples:
  palimpsest verify-store --data-dir /var/lib/palimpsest
  palimpsest verify-store --data-dir /var/lib/palimpsest --contents
  palimpsest verify-store --config palimpsest.toml"
)]
pub(super) struct VerifyStore {
    /// Read every stored result and compare it with what its event says
    #[arg(long)]
    contents: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Where the embedded store is copied to be read; as much room as it has is needed [default: the system's folder for
    /// temporary files]
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// What was found.
#[derive(Debug, Default)]
struct StoreFindings {
    sessions: u64,
    events: u64,
    results: u64,
    result_bytes: u64,
    deleting: u64,
    /// Files that no event names and that the log has announced: a server sweeps them.
    orphans: u64,
    orphan_bytes: u64,
    /// Files that no event names and that the log never announced.
    foreign: u64,
    foreign_bytes: u64,
    foreign_files: Vec<String>,
    missing: u64,
    damaged: u64,
    /// The first faults, in words.
    faults: Vec<String>,
}

/// So many faults are told one by one.
const MAX_FAULTS: usize = 100;

impl StoreFindings {
    /// Counts a file that no event names.
    fn unnamed(&mut self, path: String, bytes: u64, is_announced: bool) {
        if is_announced {
            self.orphans += 1;
            self.orphan_bytes += bytes;
            return;
        }
        self.foreign += 1;
        self.foreign_bytes += bytes;
        if self.foreign_files.len() < MAX_FAULTS {
            self.foreign_files.push(path);
        }
    }

    fn fault(&mut self, what: String) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(what);
        }
    }
}

impl VerifyStore {
    pub(super) fn run(self) -> anyhow::Result<()> {
        block_on(self.verify())
    }

    async fn verify(self) -> anyhow::Result<()> {
        let config = self.settings.load()?.config;
        let scratch = self.scratch.clone().unwrap_or_else(std::env::temp_dir);
        let readable = store::open_existing(&config, &scratch).await;
        let readable = readable.map_err(Error::from_boxed)?;
        let log = Arc::clone(&readable.log);
        let blobs = store::blobs(&config)?;
        let mut found = StoreFindings::default();
        let announced = announced(&*log, &mut found).await?;
        let mut from: Option<SessionKey> = None;
        loop {
            let page = log.rows(None, from.as_ref(), MAX_LIST).await?;
            found.damaged += page.nameless;
            if page.nameless > 0 {
                found.fault(format!("{} rows have no readable name", page.nameless));
            }
            let Some((last, _)) = page.rows.last() else {
                break;
            };
            from = Some(last.clone());
            let asked = (self.contents, &announced);
            for (key, head) in &page.rows {
                match head {
                    Ok(head) => session(&*log, &blobs, (key, head), asked, &mut found).await?,
                    Err(error) => {
                        found.sessions += 1;
                        found.damaged += 1;
                        found.fault(format!("{key}: {error}"));
                    }
                }
            }
        }
        homeless(&*log, &blobs, &announced, &mut found).await?;
        log.close().await?;
        report(&found, self.json)
    }
}

/// The paths of all files that the log has announced.
async fn announced(
    log: &dyn SessionLog,
    found: &mut StoreFindings,
) -> anyhow::Result<HashSet<String>> {
    let (mut paths, mut after) = (HashSet::new(), None::<(SessionKey, Box<str>)>);
    loop {
        let from = after.as_ref().map(|(key, file)| (key, &**file));
        let page = log.intents(from, MAX_LIST).await?;
        if page.unreadable > 0 {
            found.fault(format!("{} intents cannot be read", page.unreadable));
        }
        let Some(last) = page.intents.last() else {
            return Ok(paths);
        };
        after = Some((last.key.clone(), last.file.clone()));
        for intent in &page.intents {
            paths.insert(result_path(&intent.key, &intent.file)?);
        }
    }
}

/// Whether a session still is the one that was looked at. Of one that somebody has deleted since, nothing needs to be
/// there.
async fn is_there(
    log: &dyn SessionLog,
    key: &SessionKey,
    head: &SessionHead,
) -> anyhow::Result<bool> {
    let now = log.head(key).await?;
    Ok(now.is_some_and(|now| now.incarnation == head.incarnation))
}

async fn session(
    log: &dyn SessionLog,
    blobs: &Blobs,
    (key, head): (&SessionKey, &SessionHead),
    (contents, announced): (bool, &HashSet<String>),
    found: &mut StoreFindings,
) -> anyhow::Result<()> {
    let named = match events(log, key, head).await {
        Ok(named) => named,
        Err(error) => {
            if !is_there(log, key, head).await? {
                return Ok(());
            }
            found.sessions += 1;
            found.damaged += 1;
            found.fault(format!("{key}: {error}"));
            return Ok(());
        }
    };
    if let Err(error) = decode_about(&head.summary) {
        found.damaged += 1;
        found.fault(format!("{key}: its row {error}"));
    }
    let stored = blobs.results(key).await?;
    let mut missing = named.clone();
    for (file, _) in &stored {
        missing.remove(&**file);
    }
    if !missing.is_empty() && !is_there(log, key, head).await? {
        return Ok(());
    }
    found.sessions += 1;
    found.events += head.revision.get();
    for (file, size) in stored {
        if named.contains_key(&*file) {
            found.results += 1;
            found.result_bytes += size;
        } else {
            let path = result_path(key, &file)?;
            let is_announced = announced.contains(&path);
            found.unnamed(path, size, is_announced);
        }
    }
    for file in missing.keys() {
        found.missing += 1;
        found.fault(format!("{key}: the stored result {file} is missing"));
    }
    for (file, sha256) in named.iter().filter(|_| contents) {
        match blobs.get_result(key, file, sha256).await {
            Ok(_) | Err(BlobError::NotFound(_)) => {}
            Err(BlobError::Damaged(_)) => {
                found.damaged += 1;
                found.fault(format!(
                    "{key}: the stored result {file} is not what its event says"
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn report(found: &StoreFindings, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        let line = json!({
            "sessions": found.sessions,
            "events": found.events,
            "results": found.results,
            "result_bytes": found.result_bytes,
            "deleting": found.deleting,
            "orphans": found.orphans,
            "orphan_bytes": found.orphan_bytes,
            "foreign": found.foreign,
            "foreign_bytes": found.foreign_bytes,
            "foreign_files": found.foreign_files,
            "missing": found.missing,
            "damaged": found.damaged,
            "faults": found.faults,
        });
        print_json(&line.to_string())?;
    } else {
        for fault in &found.faults {
            print_line(fault)?;
        }
        print(&format!(
            "{} sessions with {} events and {} stored results ({}); {} deleted ones are being removed.\n\
                 {} files ({}) are named by no event and will be swept; {} more ({}) are named by no event and were never\n\
                 announced. {} results are missing, {} things are damaged.\n",
            number(found.sessions),
            number(found.events),
            number(found.results),
            bytes(found.result_bytes),
            number(found.deleting),
            number(found.orphans),
            bytes(found.orphan_bytes),
            number(found.foreign),
            bytes(found.foreign_bytes),
            number(found.missing),
            number(found.damaged)
        ))?;
    }
    if found.missing + found.damaged > 0 {
        bail!("the store does not hold together: restore what is missing from a backup");
    }
    Ok(())
}

/// Reads a log from its beginning to its end and folds it, and says what its events name.
async fn events(
    log: &dyn SessionLog,
    key: &SessionKey,
    head: &SessionHead,
) -> anyhow::Result<ReferencedFiles> {
    let (mut names, mut after) = (ReferencedFiles::new(), Revision::ZERO);
    let mut session: Option<Session> = None;
    while after < head.revision {
        let frames = log.read(key, head.position().at(after), READ_BYTES).await?;
        if frames.is_empty() {
            bail!(
                "its log ends at revision {after} instead of {}",
                head.revision
            );
        }
        for frame in frames {
            after = frame.last();
            let mut recorded = decode_frame(&frame.bytes)?;
            if recorded.len() != frame.events as usize {
                bail!(
                    "the record at revision {} holds other events than it says",
                    frame.first
                );
            }
            for recorded in &recorded {
                referenced_files::add(&recorded.event, &mut names);
            }
            if session.is_none() && !recorded.is_empty() {
                let first = recorded.remove(0);
                session = Some(Session::replay(key.clone(), [first])?);
            }
            if let Some(session) = &mut session {
                for recorded in &recorded {
                    session.apply(recorded)?;
                }
            }
        }
    }
    Ok(names)
}

/// Files of sessions that do not exist, and deletions that are not through.
async fn homeless(
    log: &dyn SessionLog,
    blobs: &Blobs,
    announced: &HashSet<String>,
    found: &mut StoreFindings,
) -> anyhow::Result<()> {
    let mut from = None;
    loop {
        let page = log.tombstones(from.as_ref(), MAX_LIST).await?;
        let Some(last) = page.last() else { break };
        from = Some(last.key.clone());
        found.deleting += page.len() as u64;
    }
    for project in blobs.projects().await? {
        for key in blobs.sessions(&project).await? {
            // What cannot be read is there all the same, and counted as damaged already.
            let is_known = match log.head(&key).await {
                Ok(head) => head.is_some(),
                Err(StoreError::Damaged { .. }) => true,
                Err(error) => return Err(error.into()),
            };
            if is_known || log.tombstone(&key).await?.is_some() {
                continue;
            }
            for entry in blobs.list(&key).await? {
                let is_announced = announced.contains(&entry.path);
                found.unnamed(entry.path, entry.bytes, is_announced);
            }
        }
    }
    Ok(())
}
