//! `palimpsest verify-store`: checks every stored session.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Error, bail};
use clap::Args;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::Session;
use palimpsest_engine::maintenance::referenced_files::{self, ReferencedFiles};
use palimpsest_server::{BLOB_FOLDER, store};
use palimpsest_store::blobs::{BlobError, Blobs, local_folder, result_path};
use palimpsest_store::encoding::{decode_frame, decode_list_row};
use palimpsest_store::{FileIntents, MAX_LIST, SessionHead, SessionLog, Store, StoreError};
use serde_json::json;

use super::client::block_on;
use super::output::{bytes, number, print, print_json, print_line};
use super::settings::Settings;

/// The maximum size of one read of a log, in bytes.
const READ_BYTES: usize = 4 << 20;

/// Check the log of every stored session, and the stored results that its events name
#[derive(Debug, Args)]
#[command(
    after_help = "Stop the server of an embedded store first. A database (store.postgres.url) can be in use. Nothing is \
changed: the embedded store is read from a copy in --scratch, and a damaged store stays in place.

A file that no event names is counted and is no fault. A file with an intent in the log is swept by a running \
server after sweep.min_age_ms. No server removes a file without an intent: it can belong to another store, or come \
from a restored backup. --json lists the first 100 of these files. Delete them if no other store uses them.

The exit code is 1 if a log or row cannot be read, or if a result that an event names is missing or damaged.

Examples:
  palimpsest verify-store --data-dir /var/lib/palimpsest
  palimpsest verify-store --data-dir /var/lib/palimpsest --contents
  palimpsest verify-store --config palimpsest.toml"
)]
pub(super) struct VerifyStore {
    /// Read every stored result and compare its checksum with its event
    #[arg(long)]
    contents: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Folder for a copy of the embedded store, which needs the space of the store [default: the folder of
    /// the system for temporary files]
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// The counts and faults of all sessions.
#[derive(Debug, Default)]
struct StoreFindings {
    sessions: u64,
    events: u64,
    results: u64,
    result_bytes: u64,
    deleting: u64,
    /// Files that no event names and that have an intent in the log. A server sweeps them.
    orphans: u64,
    orphan_bytes: u64,
    /// Files that no event names and that have no intent.
    foreign: u64,
    foreign_bytes: u64,
    foreign_files: Vec<String>,
    missing: u64,
    damaged: u64,
    /// The first faults, at most `MAX_FAULTS`.
    faults: Vec<String>,
    /// The reason why results may be missing only because the command looked for them in a wrong place.
    wrong_place: Option<String>,
}

/// The maximum number of listed faults, and of listed files without an intent.
const MAX_FAULTS: usize = 100;

impl StoreFindings {
    /// Counts a file that no event names.
    fn add_unreferenced(&mut self, path: String, bytes: u64, has_intent: bool) {
        if has_intent {
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

    fn add_fault(&mut self, what: String) {
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
        // The embedded store is read from a copy, because opening a store writes files.
        let readable = store::open_existing(&config, &scratch).await;
        let readable = readable.map_err(Error::from_boxed)?;
        let log = Arc::clone(&readable.log);
        let location = match &config.blobs.url {
            Some(url) => url.clone(),
            None => config.data_dir.join(BLOB_FOLDER).display().to_string(),
        };
        // Opening a folder creates it. A server creates the folder at its start, so a missing one is a wrong name.
        if let Some(folder) = local_folder(&location)?
            && !folder.is_dir()
        {
            bail!(
                "the folder {} of stored results does not exist: pass the place of this store's results with --blobs",
                folder.display()
            );
        }
        let blobs = store::blobs(&config)?;
        let mut found = StoreFindings::default();
        // Intents are read before the logs. An intent that a commit completes meanwhile then still counts.
        let intended = intended_files(&*log, &mut found).await?;
        let mut from: Option<SessionKey> = None;
        loop {
            let page = log.list_rows(None, from.as_ref(), MAX_LIST).await?;
            // An incomplete list would make a damaged store look sound.
            if let Some(node) = page.left_out.first() {
                bail!(
                    "the node {node} of the database does not answer: repeat the command when it does"
                );
            }
            found.damaged += page.nameless;
            if page.nameless > 0 {
                found.add_fault(format!("{} rows have no readable name", page.nameless));
            }
            let Some((last, _)) = page.rows.last() else {
                break;
            };
            from = Some(last.clone());
            let options = (self.contents, &intended);
            for (key, head) in &page.rows {
                match head {
                    Ok(head) => session(&*log, &blobs, (key, head), options, &mut found).await?,
                    Err(error) => {
                        found.sessions += 1;
                        found.damaged += 1;
                        found.add_fault(format!("{key}: {error}"));
                    }
                }
            }
        }
        check_orphans(&*log, &blobs, &intended, &mut found).await?;
        if found.missing > 0 {
            found.wrong_place = wrong_place(&*log, &blobs, &location).await?;
        }
        log.close().await?;
        report(&found, self.json)
    }
}

/// Returns the reason why the place of stored results is probably that of another store, or `None`.
///
/// A server writes an owner marker before its first result, so a place without its marker has no result of its store.
async fn wrong_place(
    log: &dyn Store,
    blobs: &Blobs,
    location: &str,
) -> anyhow::Result<Option<String>> {
    let store = log.store_id().await?;
    let reason = match blobs.read_owner().await {
        Ok(None) => "has no owner marker (_palimpsest/store.json)".to_owned(),
        Ok(Some(owner)) if owner != store => format!("belongs to the store {owner}"),
        // An unreadable marker is reported when a server starts.
        Ok(Some(_)) | Err(_) => return Ok(None),
    };
    Ok(Some(format!("{location} {reason}")))
}

/// Returns the paths of all files with an intent in the log.
async fn intended_files(
    log: &dyn FileIntents,
    found: &mut StoreFindings,
) -> anyhow::Result<HashSet<String>> {
    let (mut paths, mut after) = (HashSet::new(), None::<(SessionKey, Box<str>)>);
    loop {
        let from = after.as_ref().map(|(key, file)| (key, &**file));
        let page = log.list_intents(from, MAX_LIST).await?;
        if page.unreadable > 0 {
            found.add_fault(format!("{} intents cannot be read", page.unreadable));
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

/// Returns true if a session was not deleted since its row was read. A deleted session needs no log and no results.
async fn still_exists(
    log: &dyn SessionLog,
    key: &SessionKey,
    head: &SessionHead,
) -> anyhow::Result<bool> {
    let now = log.head(key).await?;
    Ok(now.is_some_and(|now| now.incarnation == head.incarnation))
}

async fn session(
    log: &dyn Store,
    blobs: &Blobs,
    (key, head): (&SessionKey, &SessionHead),
    (contents, intended): (bool, &HashSet<String>),
    found: &mut StoreFindings,
) -> anyhow::Result<()> {
    let named = match events(log, key, head).await {
        Ok(named) => named,
        Err(error) => {
            // A deletion during the check removes the log, which is no fault.
            if !still_exists(log, key, head).await? {
                return Ok(());
            }
            found.sessions += 1;
            found.damaged += 1;
            found.add_fault(format!("{key}: {error}"));
            return Ok(());
        }
    };
    if let Err(error) = decode_list_row(&head.list_row) {
        found.damaged += 1;
        found.add_fault(format!("{key}: its row {error}"));
    }
    // A result is stored before the event that names it, and results are listed after the events were read. A missing
    // result is therefore a fault, unless the session was deleted since.
    let stored = blobs.results(key).await?;
    let mut missing = named.clone();
    for (file, _) in &stored {
        missing.remove(&**file);
    }
    if !missing.is_empty() && !still_exists(log, key, head).await? {
        return Ok(());
    }
    found.sessions += 1;
    found.events += head.revision.get();
    let (results, others): (Vec<_>, Vec<_>) = stored
        .into_iter()
        .partition(|(file, _)| named.contains_key(&**file));
    found.results += results.len() as u64;
    found.result_bytes += results.iter().map(|(_, size)| size).sum::<u64>();
    let mut unknown = Vec::new();
    for (file, size) in others {
        let path = result_path(key, &file)?;
        if intended.contains(&path) {
            found.add_unreferenced(path, size, true);
        } else {
            unknown.push((file, path, size));
        }
    }
    // The intents were read at the beginning. A result that was stored since has a later intent, or an event.
    if !unknown.is_empty() {
        let new = ReferencesNow::read(log, key, head).await?;
        for (file, path, size) in unknown {
            if new.intents.contains(&*file) {
                found.add_unreferenced(path, size, true);
            } else if !new.named.contains_key(&*file) {
                found.add_unreferenced(path, size, false);
            }
        }
    }
    for file in missing.keys() {
        found.missing += 1;
        found.add_fault(format!("{key}: the stored result {file} is missing"));
    }
    for (file, sha256) in named.iter().filter(|_| contents) {
        match blobs.get_result(key, file, sha256).await {
            // Missing results are counted above.
            Ok(_) | Err(BlobError::NotFound(_)) => {}
            Err(BlobError::Damaged(_)) => {
                found.damaged += 1;
                found.add_fault(format!(
                    "{key}: the stored result {file} differs from the checksum in its event"
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The references to the files of one session, read after its files were listed. A database in use receives results
/// during the check.
struct ReferencesNow {
    intents: HashSet<Box<str>>,
    named: ReferencedFiles,
}

impl ReferencesNow {
    async fn read(log: &dyn Store, key: &SessionKey, before: &SessionHead) -> anyhow::Result<Self> {
        // The commit of an event completes the intents of its files, so the intents are read before the events.
        let intents = session_intents(log, key).await?;
        let named = match log.head(key).await? {
            Some(head) if head.position() != before.position() => events(log, key, &head).await?,
            _ => ReferencedFiles::new(),
        };
        Ok(Self { intents, named })
    }
}

/// Returns the files of one session with an intent in the log.
async fn session_intents(
    log: &dyn FileIntents,
    key: &SessionKey,
) -> anyhow::Result<HashSet<Box<str>>> {
    let (mut files, mut after) = (HashSet::new(), Box::<str>::from(""));
    loop {
        let page = log.list_intents(Some((key, &after)), MAX_LIST).await?;
        // Intents are ordered by session and file, so those of the next session end the list.
        let own = page.intents.iter().take_while(|intent| intent.key == *key);
        // A page without a new file ends the loop, even if a defective store repeats a page.
        let before = files.len();
        files.extend(own.map(|intent| intent.file.clone()));
        match page.intents.last() {
            Some(last) if last.key == *key && files.len() > before => after.clone_from(&last.file),
            _ => return Ok(files),
        }
    }
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
            "{} sessions with {} events and {} stored results ({}). {} deleted sessions are being removed.\n\
             {} files ({}) without an event will be swept. {} files ({}) have no event and no intent.\n\
             {} results are missing, {} items are damaged.\n",
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
    if let Some(reason) = &found.wrong_place {
        bail!(
            "results are missing, and {reason}: it is probably not the place of this store's results. Pass their place \
             with --blobs. If the place is right, restore the missing data from a backup"
        );
    }
    if found.missing + found.damaged > 0 {
        bail!("the store is damaged: restore the missing or damaged data from a backup");
    }
    Ok(())
}

/// Reads and replays a whole log. Returns the files that its events name.
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
            // `frame.last()` is computed from the header, so a wrong number would shift all later revisions.
            if recorded.len() != frame.events as usize {
                bail!(
                    "the frame at revision {} has another number of events than its header",
                    frame.first
                );
            }
            for recorded in &recorded {
                referenced_files::add(&recorded.event, &mut names);
            }
            // The first event creates the session. The replay proves that events can be applied, not only decoded.
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

/// Counts files of sessions that do not exist, and deleted sessions whose data is not removed yet.
async fn check_orphans(
    log: &dyn Store,
    blobs: &Blobs,
    intended: &HashSet<String>,
    found: &mut StoreFindings,
) -> anyhow::Result<()> {
    let mut from = None;
    loop {
        let page = log.tombstones(from.as_ref(), MAX_LIST).await?;
        // The list has no end marker, so it ends at an empty page.
        let Some(last) = page.last() else { break };
        from = Some(last.key.clone());
        found.deleting += page.len() as u64;
    }
    for project in blobs.projects().await? {
        for key in blobs.sessions(&project).await? {
            // An unreadable row is a session too. It is counted as damaged already.
            let is_known = match log.head(&key).await {
                Ok(head) => head.is_some(),
                Err(StoreError::Damaged { .. }) => true,
                Err(error) => return Err(error.into()),
            };
            // A running server removes the files of a deleted session.
            if is_known || log.tombstone(&key).await?.is_some() {
                continue;
            }
            for entry in blobs.list(&key).await? {
                let has_intent = intended.contains(&entry.path);
                found.add_unreferenced(entry.path, entry.bytes, has_intent);
            }
        }
    }
    Ok(())
}
