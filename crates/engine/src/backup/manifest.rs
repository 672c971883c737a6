//! The manifest of a backup: JSON lines, read and written one at a time, so that its size is no matter.

use bytes::{Buf as _, Bytes, BytesMut};
use futures::TryStreamExt as _;
use futures::stream::BoxStream;
use palimpsest_core::ids::SessionKey;
use palimpsest_store::archive::{Archive, ArchiveWriter, hex};
use palimpsest_store::blobs::BlobError;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{BackupError, damaged};

/// The version of the format.
pub const FORMAT: u32 = 1;
/// Where manifests are.
const FOLDER: &str = "manifests";
/// No line of a manifest is longer: it is one session.
const MAX_LINE: usize = 256 << 20;

/// The first line: which backup this is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestHeader {
    /// The version of the format.
    pub format: u32,
    /// The name, which begins with the time in UTC.
    pub id: String,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_ms: i64,
    /// The backup that it was made upon: what that one has was not read again.
    pub base: Option<String>,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestEntry {
    /// Its resource name.
    pub session: String,
    /// Tells it from others of its name.
    pub incarnation: u64,
    /// The revision that was backed up.
    pub revision: u64,
    /// The SHA-256 of the last record of its log.
    pub last_sha256: String,
    /// Its row in lists, in Base64.
    pub row: String,
    /// Its log, in order.
    pub logs: Vec<LogFile>,
    /// Its stored results.
    pub results: Vec<ResultFile>,
    /// Stored results that the server had, and that did not hold what their names say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
}

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFile {
    /// Where it is.
    pub path: String,
    /// The revision before its first event.
    pub after: u64,
    /// The revision of its last event.
    pub revision: u64,
    /// What it holds.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
}

/// A stored result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultFile {
    /// Its name within the session.
    pub file: String,
    /// What it holds.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
}

/// The last line: that nothing is missing.
#[derive(Debug, Serialize, Deserialize)]
struct ManifestTrailer {
    /// How many lines of sessions there are.
    sessions: u64,
    /// The SHA-256 of all bytes before this line.
    sha256: String,
}

impl ManifestEntry {
    /// The session.
    pub fn key(&self) -> Option<SessionKey> {
        SessionKey::parse(&self.session).ok()
    }
}

/// Where a stored result is in a backup. Its name holds a part of its digest, so it never changes.
pub fn result_path(key: &SessionKey, file: &str) -> String {
    format!("results/{}/{}/{file}", key.project, key.session)
}

/// Where a part of a log is; each backup writes its own.
pub fn log_path(key: &SessionKey, backup: &str) -> String {
    format!("logs/{}/{}/{backup}.log", key.project, key.session)
}

fn manifest_path(id: &str) -> String {
    format!("{FOLDER}/{id}.jsonl")
}

/// The names of all backups, earliest first.
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

/// The name of the latest backup.
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
    /// Begins the manifest of a backup.
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

    /// Completes the manifest. From here on the backup exists.
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
        // Numbers and texts always have a JSON.
        let mut json = serde_json::to_vec(line).unwrap_or_default();
        json.push(b'\n');
        Ok(self.writer.write(&json).await?)
    }
}

/// A manifest that is read.
pub struct Manifest {
    /// Which backup it is of.
    pub backup: ManifestHeader,
    path: String,
    parts: BoxStream<'static, Result<Bytes, BlobError>>,
    held: BytesMut,
    digest: Sha256,
    sessions: u64,
    is_done: bool,
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest")
            .field("backup", &self.backup)
            .finish_non_exhaustive()
    }
}

impl Manifest {
    /// Opens the manifest of a backup.
    pub async fn open(place: &Archive, id: &str) -> Result<Self, BackupError> {
        let path = manifest_path(id);
        let parts = match place.read(&path).await {
            Ok(parts) => parts,
            Err(BlobError::NotFound(_)) => return Err(BackupError::Missing(id.to_owned())),
            Err(error) => return Err(error.into()),
        };
        let mut manifest = Self {
            backup: ManifestHeader {
                format: 0,
                id: String::new(),
                started_ms: 0,
                base: None,
            },
            path,
            parts,
            held: BytesMut::new(),
            digest: Sha256::new(),
            sessions: 0,
            is_done: false,
        };
        let first = manifest.line().await?;
        let first = first.ok_or_else(|| manifest.damaged("it is empty"))?;
        manifest.backup = serde_json::from_slice(&first)
            .map_err(|_| manifest.damaged("its first line does not say what it is"))?;
        manifest.digest.update(&first);
        if manifest.backup.format > FORMAT {
            return Err(BackupError::Newer(manifest.backup.format));
        }
        Ok(manifest)
    }

    /// Reads a manifest to its end, which proves that it is whole.
    pub async fn check(place: &Archive, id: &str) -> Result<ManifestHeader, BackupError> {
        let mut manifest = Self::open(place, id).await?;
        while manifest.next().await?.is_some() {}
        Ok(manifest.backup)
    }

    /// The next session. None after the last, when the manifest was found to be whole.
    pub async fn next(&mut self) -> Result<Option<ManifestEntry>, BackupError> {
        if self.is_done {
            return Ok(None);
        }
        let cut = "it ends before its last line";
        let line = self.line().await?.ok_or_else(|| self.damaged(cut))?;
        if let Ok(end) = serde_json::from_slice::<ManifestTrailer>(&line) {
            let found = hex(&self.digest.clone().finalize());
            let is_last = self.held.is_empty() && self.line().await?.is_none();
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

    /// The next line with its break.
    async fn line(&mut self) -> Result<Option<Bytes>, BackupError> {
        let mut looked = 0;
        loop {
            let end = self.held[looked..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end {
                return Ok(Some(self.held.split_to(looked + end + 1).freeze()));
            }
            looked = self.held.len();
            if looked > MAX_LINE {
                return Err(self.damaged("a line of it is too long to be true"));
            }
            match self.parts.try_next().await? {
                Some(part) => self.held.extend_from_slice(part.chunk()),
                None => return Ok(None),
            }
        }
    }

    fn damaged(&self, what: &str) -> BackupError {
        damaged(&self.path, what)
    }
}
