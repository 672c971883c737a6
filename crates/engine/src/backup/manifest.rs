//! The manifest of a backup. The format is JSON lines, which are read and written one at a time, so memory does not
//! limit the size.

use bytes::{Buf as _, Bytes, BytesMut};
use futures::TryStreamExt as _;
use futures::stream::BoxStream;
use palimpsest_core::ids::SessionKey;
use palimpsest_store::archive::{Archive, ArchiveWriter, hex};
use palimpsest_store::blobs::BlobError;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{BackupError, damaged};

/// The version of the manifest format.
pub const FORMAT: u32 = 1;
/// The folder of the manifests in the archive.
const FOLDER: &str = "manifests";
/// Maximum bytes of one line. A line describes one session.
const MAX_LINE: usize = 256 << 20;

/// The first line of a manifest. It identifies the backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestHeader {
    /// The version of the format.
    pub format: u32,
    /// The name of the backup, which begins with the time in UTC.
    pub id: String,
    /// Start of the backup in milliseconds since the Unix epoch.
    pub started_ms: i64,
    /// The earlier backup that this one extends, if any. Data of the earlier backup was not read again.
    pub base: Option<String>,
    /// The identity of the store that was backed up. `None` in backups of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_id: Option<String>,
}

/// One session in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// The resource name of the session.
    pub session: String,
    /// The incarnation, which distinguishes sessions with the same name.
    pub incarnation: u64,
    /// The revision that was backed up.
    pub revision: u64,
    /// SHA-256 of the last record of the log, in hex.
    pub last_sha256: String,
    /// The session's row in lists, in Base64.
    pub row: String,
    /// The parts of the log, in order.
    pub logs: Vec<LogFile>,
    /// The stored results.
    pub results: Vec<ResultFile>,
    /// Stored results that the log names and whose content was lost or did not match the digest in the log when the
    /// backup was taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
}

/// One part of a session's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFile {
    /// The path in the archive.
    pub path: String,
    /// The revision before the first event of this part.
    pub after: u64,
    /// The revision of the last event of this part.
    pub revision: u64,
    /// SHA-256 of the content, in hex.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// One stored result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultFile {
    /// The file name within the session.
    pub file: String,
    /// SHA-256 of the content, in hex.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// The last line of a manifest. It proves that the manifest is complete.
#[derive(Debug, Serialize, Deserialize)]
struct ManifestTrailer {
    /// Number of session lines.
    sessions: u64,
    /// SHA-256 of all bytes before this line, in hex.
    sha256: String,
}

impl ManifestEntry {
    /// The key of the session, or `None` if the name is invalid.
    pub fn key(&self) -> Option<SessionKey> {
        SessionKey::parse(&self.session).ok()
    }
}

/// Path of a stored result in an archive. The name contains a part of the content's digest, so the content of a path
/// never changes.
pub fn result_path(key: &SessionKey, file: &str) -> String {
    format!("results/{}/{}/{file}", key.project, key.session)
}

/// Path of a part of a log in an archive. Each backup writes its own parts.
pub fn log_path(key: &SessionKey, backup: &str) -> String {
    format!("logs/{}/{}/{backup}.log", key.project, key.session)
}

fn manifest_path(id: &str) -> String {
    format!("{FOLDER}/{id}.jsonl")
}

/// Returns the names of all backups, earliest first.
pub async fn list(place: &Archive) -> Result<Vec<String>, BackupError> {
    let paths: Vec<String> = place.list(FOLDER)?.try_collect().await?;
    let id = |path: &String| {
        let name = path.rsplit('/').next()?.strip_suffix(".jsonl")?;
        Some(name.to_owned())
    };
    let mut ids: Vec<_> = paths.iter().filter_map(id).collect();
    ids.sort();
    Ok(ids)
}

/// Returns the name of the latest backup, or `None` if the archive has none.
pub async fn latest(place: &Archive) -> Result<Option<String>, BackupError> {
    Ok(list(place).await?.pop())
}

pub(super) async fn remove(place: &Archive, id: &str) -> Result<(), BackupError> {
    Ok(place.remove(&manifest_path(id)).await?)
}

/// A manifest that is being written.
pub struct ManifestWriter {
    writer: ArchiveWriter,
    sessions: u64,
}

impl ManifestWriter {
    /// Starts the manifest of a backup.
    pub async fn begin(place: &Archive, backup: &ManifestHeader) -> Result<Self, BackupError> {
        let writer = place.writer(&manifest_path(&backup.id))?;
        let mut draft = Self {
            writer,
            sessions: 0,
        };
        draft.line(backup).await?;
        Ok(draft)
    }

    /// Adds a session.
    pub async fn add(&mut self, entry: &ManifestEntry) -> Result<(), BackupError> {
        self.sessions += 1;
        self.line(entry).await
    }

    /// Writes the trailer. From here on the backup exists.
    pub async fn finish(mut self) -> Result<(), BackupError> {
        let end = ManifestTrailer {
            sessions: self.sessions,
            sha256: self.writer.sum().sha256,
        };
        self.line(&end).await?;
        self.writer.finish().await?;
        Ok(())
    }

    async fn line(&mut self, line: &impl Serialize) -> Result<(), BackupError> {
        // Serialization cannot fail: the values are numbers and strings.
        let mut json = serde_json::to_vec(line).unwrap_or_default();
        json.push(b'\n');
        Ok(self.writer.write(&json).await?)
    }
}

/// A manifest that is being read.
pub struct ManifestReader {
    /// The header of the backup.
    pub backup: ManifestHeader,
    path: String,
    parts: BoxStream<'static, Result<Bytes, BlobError>>,
    buffer: BytesMut,
    digest: Sha256,
    sessions: u64,
    is_done: bool,
}

impl std::fmt::Debug for ManifestReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest")
            .field("backup", &self.backup)
            .finish_non_exhaustive()
    }
}

impl ManifestReader {
    /// Opens the manifest of a backup. Returns [`BackupError::Missing`] if it does not exist, and
    /// [`BackupError::Newer`] if its format is not supported.
    pub async fn open(place: &Archive, id: &str) -> Result<Self, BackupError> {
        let path = manifest_path(id);
        let parts = match place.read(&path).await {
            Ok(parts) => parts,
            Err(BlobError::NotFound(_)) => return Err(BackupError::Missing(id.to_owned())),
            Err(error) => return Err(error.into()),
        };
        // The empty header is a placeholder: the first line replaces it, and reading this line needs the reader.
        let mut manifest = Self {
            backup: ManifestHeader {
                format: 0,
                id: String::new(),
                started_ms: 0,
                base: None,
                store_id: None,
            },
            path,
            parts,
            buffer: BytesMut::new(),
            digest: Sha256::new(),
            sessions: 0,
            is_done: false,
        };
        // The digest starts with the header line, so the trailer covers every line before it.
        let first = manifest.line().await?;
        let first = first.ok_or_else(|| manifest.damaged("it is empty"))?;
        manifest.backup = serde_json::from_slice(&first)
            .map_err(|_| manifest.damaged("its first line is not the header of a manifest"))?;
        manifest.digest.update(&first);
        // Older formats stay readable. A newer format may contain fields with another meaning.
        if manifest.backup.format > FORMAT {
            return Err(BackupError::Newer(manifest.backup.format));
        }
        Ok(manifest)
    }

    /// Reads a manifest to its end, which verifies that it is complete and undamaged.
    pub async fn check(place: &Archive, id: &str) -> Result<ManifestHeader, BackupError> {
        let mut manifest = Self::open(place, id).await?;
        while manifest.next().await?.is_some() {}
        Ok(manifest.backup)
    }

    /// Returns the next session. Returns `None` after the last one, once the trailer was verified.
    pub async fn next(&mut self) -> Result<Option<ManifestEntry>, BackupError> {
        // A stream that was verified once has no lines left to read.
        if self.is_done {
            return Ok(None);
        }
        let cut = "it ends before its last line";
        let line = self.line().await?.ok_or_else(|| self.damaged(cut))?;
        // A line that parses as a trailer must be the last one. Session lines lack its fields, so the order of the
        // two attempts is safe.
        if let Ok(end) = serde_json::from_slice::<ManifestTrailer>(&line) {
            let found = hex(&self.digest.clone().finalize());
            let is_last = self.buffer.is_empty() && self.line().await?.is_none();
            if end.sha256 != found || end.sessions != self.sessions || !is_last {
                return Err(self.damaged("its last line does not fit the others"));
            }
            self.is_done = true;
            return Ok(None);
        }
        self.digest.update(&line);
        self.sessions += 1;
        let entry: ManifestEntry = serde_json::from_slice(&line)
            .map_err(|_| self.damaged("a line of it is no session"))?;
        if entry.key().is_none() {
            return Err(self.damaged("a line of it names no session"));
        }
        Ok(Some(entry))
    }

    /// Returns the next line with its line break, or `None` at the end.
    async fn line(&mut self) -> Result<Option<Bytes>, BackupError> {
        let mut looked = 0;
        loop {
            let end = self.buffer[looked..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end {
                return Ok(Some(self.buffer.split_to(looked + end + 1).freeze()));
            }
            // The next search starts behind the bytes that were already searched.
            looked = self.buffer.len();
            // A damaged file without line breaks would otherwise be read into memory as a whole.
            if looked > MAX_LINE {
                return Err(self.damaged("a line of it is too long to be true"));
            }
            match self.parts.try_next().await? {
                Some(part) => self.buffer.extend_from_slice(part.chunk()),
                None => return Ok(None),
            }
        }
    }

    fn damaged(&self, what: &str) -> BackupError {
        damaged(&self.path, what)
    }
}
