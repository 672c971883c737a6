//! The journal of a migration, stored beside the embedded store: the sessions that were once identical in both
//! stores.
//!
//! A session in the journal that exists in only one store was deleted in the other. Without the journal it would look
//! like a session that was not migrated yet, and the next run would restore it. A line is added after each
//! comparison, so an interrupted run has recorded its work. The last line of a session is the valid one.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use palimpsest_core::ids::{Revision, SessionKey};
use serde::{Deserialize, Serialize};
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Mutex;

use super::MigrateError;

/// The file name in the data folder.
const FILE: &str = "migrated.jsonl";

/// A session that was the same in both stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MigratedSession {
    /// The incarnation in the store that is moved from.
    pub(super) source: u64,
    /// The incarnation in the store that is moved into.
    pub(super) target: u64,
    /// The revision up to which both were the same.
    pub(super) revision: Revision,
}

#[derive(Debug, Serialize, Deserialize)]
struct JournalEntry {
    session: String,
    embedded: u64,
    database: u64,
    revision: u64,
}

/// The journal of a data folder.
#[derive(Debug)]
pub struct MigrationJournal {
    path: PathBuf,
    from_embedded: bool,
    known: BTreeMap<SessionKey, MigratedSession>,
    file: Mutex<File>,
}

impl MigrationJournal {
    /// Opens the journal of a data folder, for a migration out of its embedded store (`from_embedded`) or into it.
    pub async fn open(data_dir: &Path, from_embedded: bool) -> Result<Self, MigrateError> {
        let path = data_dir.join(FILE);
        let failed = |error| failed(&path, error);
        let text = match tokio::fs::read(&path).await {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        let mut known = BTreeMap::new();
        let mut lines = text.split_inclusive(|byte| *byte == b'\n').peekable();
        let mut whole = 0;
        while let Some(line) = lines.next() {
            let read = serde_json::from_slice::<JournalEntry>(line).ok();
            // A line without its newline was cut by a crash, even if it parses.
            let read = read.filter(|_| line.ends_with(b"\n"));
            let read = read.and_then(|line| Some((SessionKey::parse(&line.session).ok()?, line)));
            let Some((key, line_read)) = read else {
                // The last line is incomplete after a crash. It is dropped and truncated below.
                if lines.peek().is_none() {
                    break;
                }
                let what = "a line of it is no record of a session";
                return Err(failed(io::Error::new(io::ErrorKind::InvalidData, what)));
            };
            whole += line.len() as u64;
            let (embedded, database) = (line_read.embedded, line_read.database);
            // The file names the stores by kind, so one journal serves both directions of a migration.
            let (source, target) = if from_embedded {
                (embedded, database)
            } else {
                (database, embedded)
            };
            let revision = Revision::new(line_read.revision);
            known.insert(
                key,
                MigratedSession {
                    source,
                    target,
                    revision,
                },
            );
        }
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(&path).await;
        let file = file.map_err(failed)?;
        // Without the truncation, the next line would continue an incomplete one.
        file.set_len(whole).await.map_err(failed)?;
        Ok(Self {
            path,
            from_embedded,
            known,
            file: Mutex::new(file),
        })
    }

    /// The sessions that were identical in both stores.
    pub(super) fn known(&self) -> impl Iterator<Item = (&SessionKey, MigratedSession)> {
        self.known.iter().map(|(key, known)| (key, *known))
    }

    /// Records that a session is identical in both stores.
    pub(super) async fn add(
        &self,
        key: &SessionKey,
        known: MigratedSession,
    ) -> Result<(), MigrateError> {
        // Unchanged sessions add no line, so that repeated runs do not grow the file.
        if self.known.get(key) == Some(&known) {
            return Ok(());
        }
        let (embedded, database) = if self.from_embedded {
            (known.source, known.target)
        } else {
            (known.target, known.source)
        };
        let line = JournalEntry {
            session: key.to_string(),
            embedded,
            database,
            revision: known.revision.get(),
        };
        // Serialization cannot fail: the values are numbers and strings.
        let mut line = serde_json::to_vec(&line).unwrap_or_default();
        line.push(b'\n');
        let mut file = self.file.lock().await;
        file.write_all(&line)
            .await
            .map_err(|error| failed(&self.path, error))?;
        // A tokio file writes in the background. `flush` waits for the write and returns its error.
        let flushed = file.flush().await;
        flushed.map_err(|error| failed(&self.path, error))
    }

    /// Makes the recorded lines durable.
    pub(super) async fn sync(&self) -> Result<(), MigrateError> {
        let synced = self.file.lock().await.sync_all().await;
        synced.map_err(|error| failed(&self.path, error))
    }
}

fn failed(path: &Path, error: io::Error) -> MigrateError {
    MigrateError::Record(path.display().to_string(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SessionKey {
        SessionKey::parse(&format!("projects/p/sessions/{name}")).unwrap()
    }

    const KNOWN: MigratedSession = MigratedSession {
        source: 1,
        target: 2,
        revision: Revision::new(3),
    };

    #[tokio::test]
    async fn the_journal_works_in_both_directions_and_ignores_a_torn_last_line() {
        let folder = tempfile::tempdir().unwrap();
        let there = MigrationJournal::open(folder.path(), true).await.unwrap();
        there.add(&key("a"), KNOWN).await.unwrap();
        there.add(&key("b"), KNOWN).await.unwrap();
        there.sync().await.unwrap();
        let path = folder.path().join(FILE);
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"session\":\"projects/p/ses");
        std::fs::write(&path, &text).unwrap();
        let back = MigrationJournal::open(folder.path(), false).await.unwrap();
        let turned = MigratedSession {
            source: 2,
            target: 1,
            ..KNOWN
        };
        let known: Vec<_> = back.known().collect();
        assert_eq!(known, [(&key("a"), turned), (&key("b"), turned)]);
        back.add(&key("c"), turned).await.unwrap();
        let there = MigrationJournal::open(folder.path(), true).await.unwrap();
        assert_eq!(there.known().last(), Some((&key("c"), KNOWN)));
        // A damaged line that is not the last one is an error, because it was changed by hand.
        std::fs::write(&path, b"what?\n{}\n").unwrap();
        MigrationJournal::open(folder.path(), true)
            .await
            .unwrap_err();
    }
}
