//! A copy of one session for a backup: its log, then the names and digests of its files.
//!
//! Each copy is a durable prefix of the session's log. The log is read directly, so the session's handle and the cache
//! are not involved, and other calls continue meanwhile.

use std::collections::BTreeMap;

use bytes::{BufMut as _, Bytes, BytesMut};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_store::blobs::BlobError;
use palimpsest_store::{Frame, SessionHead, crash_point, error_chain};
use sha2::{Digest as _, Sha256};

use crate::maintenance::referenced_files::{self, ReferencedFiles};
use crate::{Engine, EngineError};

/// Bytes of a log that one read requests: 1 MiB.
const READ_BYTES: usize = 1 << 20;
/// The maximum size of one part of a frame: 1 MiB, which is below the default message limit of gRPC clients.
pub const PART_BYTES: usize = 1 << 20;

/// A stored file of a session.
#[derive(Debug)]
pub struct StoredFile {
    /// The name of the file.
    pub file: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The digest that the log records. `None` if no readable event names the file.
    pub sha256: Option<[u8; 32]>,
    /// True if an event names the file and the blob store does not contain it.
    pub lost: bool,
}

/// A copy that is being read.
#[derive(Debug)]
pub struct SessionCopy {
    engine: Engine,
    key: SessionKey,
    /// Fixes the end of the copy. Later commits are not part of it.
    head: SessionHead,
    from: Revision,
    read: Revision,
    last_sha256: Vec<u8>,
}

/// The end of a copy.
#[derive(Debug)]
pub struct SessionCopyEnd {
    /// The head of the session at the beginning of the copy.
    pub head: SessionHead,
    /// The revision after which the copy begins. Zero for the whole log.
    pub from: Revision,
    /// The digest of the last frame.
    pub last_sha256: Vec<u8>,
}

impl SessionCopy {
    /// Begins a copy. `known` is the revision up to which the caller has the log, with the digest of the frame that
    /// ends there. If this frame is not in the log, the copy contains the whole log.
    pub async fn begin(
        engine: &Engine,
        key: SessionKey,
        (known, sha256): (Revision, &[u8]),
    ) -> Result<Self, EngineError> {
        let head = engine.sessions.log().head(&key).await?;
        let head = head.ok_or_else(|| EngineError::SessionNotFound(key.clone()))?;
        let mut copy = Self {
            engine: engine.clone(),
            key,
            head,
            from: Revision::ZERO,
            read: Revision::ZERO,
            last_sha256: Vec::new(),
        };
        if known > Revision::ZERO
            && known <= copy.head.revision
            && let Some(frame) = copy.frame_at(known).await?
            && digest(&frame) == sha256
        {
            (copy.from, copy.read) = (known, known);
            copy.last_sha256 = sha256.to_vec();
        }
        Ok(copy)
    }

    /// Returns the next parts of the log, or none at the end of the copy.
    pub async fn next(&mut self) -> Result<Vec<Bytes>, EngineError> {
        let to = self.head.revision;
        if self.read >= to {
            return Ok(Vec::new());
        }
        let sessions = &self.engine.sessions;
        // This read checks the incarnation only. `end` confirms the whole position once, after the last read.
        let after = self.head.position().at(self.read);
        let frames = sessions.log().read(&self.key, after, READ_BYTES).await?;
        if frames.is_empty() {
            // The session was deleted meanwhile, or the store was restored to an earlier state.
            sessions.confirm(&self.key, self.head.position()).await?;
            return Err(EngineError::Contended);
        }
        let mut parts = Vec::new();
        // A commit may follow while the copy is read. Frames past the head belong to the next backup.
        for frame in frames.iter().take_while(|frame| frame.last() <= to) {
            self.read = frame.last();
            self.last_sha256 = digest(frame);
            parts.extend(record(frame));
        }
        Ok(parts)
    }

    /// Returns the files of the session.
    ///
    /// Files are listed after the log is read. A file is stored before the event that names it, so the list contains
    /// all files that the copied events name.
    pub async fn files(&self) -> Result<Vec<StoredFile>, EngineError> {
        crash_point("backup.log_read");
        let files = self.engine.blobs.results(&self.key).await;
        let files = files.map_err(listing_failed)?;
        // Digests need a read of all events, which sessions that never stored a file can skip.
        let digests = if files.is_empty() && self.head.blob_bytes == 0 {
            ReferencedFiles::new()
        } else {
            self.digests().await?
        };
        let lost = self.lost_files(&files, &digests).await;
        let lost = lost.map_err(listing_failed)?;
        let stored = |(file, bytes): (String, u64)| StoredFile {
            sha256: digests.get(&*file).copied(),
            file,
            bytes,
            lost: false,
        };
        Ok(files.into_iter().map(stored).chain(lost).collect())
    }

    /// Returns the files that events name and that the blob store does not contain.
    async fn lost_files(
        &self,
        files: &[(String, u64)],
        digests: &ReferencedFiles,
    ) -> Result<Vec<StoredFile>, BlobError> {
        let digests = digests.iter().map(|(file, digest)| (&**file, digest));
        let mut missing: BTreeMap<&str, _> = digests.collect();
        for (file, _) in files {
            missing.remove(file.as_str());
        }
        // An event that was committed after the list was read can name a newer file. A second list contains that file.
        if !missing.is_empty() {
            for (file, _) in self.engine.blobs.results(&self.key).await? {
                missing.remove(file.as_str());
            }
        }
        let lost = missing.into_iter().map(|(file, digest)| StoredFile {
            file: file.to_owned(),
            bytes: 0,
            sha256: Some(*digest),
            lost: true,
        });
        Ok(lost.collect())
    }

    /// Ends the copy. Fails if another history has replaced the session meanwhile, so a copy never mixes two
    /// histories.
    pub async fn end(self) -> Result<SessionCopyEnd, EngineError> {
        let sessions = &self.engine.sessions;
        sessions.confirm(&self.key, self.head.position()).await?;
        Ok(SessionCopyEnd {
            head: self.head,
            from: self.from,
            last_sha256: self.last_sha256,
        })
    }

    /// Returns the digests of the files as recorded in the log. A log whose events cannot be decoded is still copied,
    /// and its files are copied without a check.
    async fn digests(&self) -> Result<ReferencedFiles, EngineError> {
        let (sessions, key) = (&self.engine.sessions, &self.key);
        match referenced_files::read_referenced_files(sessions, key).await {
            Err(error @ EngineError::Unreadable { .. }) => {
                tracing::warn!(session = %key, error = %error_chain(&error), "failed to read the events of a session that is backed up; its files are copied unchecked");
                Ok(ReferencedFiles::new())
            }
            read => read,
        }
    }

    /// Returns the frame that ends exactly at a revision, or `None`.
    async fn frame_at(&self, revision: Revision) -> Result<Option<Frame>, EngineError> {
        let before = Revision::new(revision.get() - 1);
        let before = self.head.position().at(before);
        // A read returns at least one frame, so a limit of one byte is sufficient.
        let frames = self
            .engine
            .sessions
            .log()
            .read(&self.key, before, 1)
            .await?;
        let first = frames.into_iter().next();
        Ok(first.filter(|frame| frame.last() == revision))
    }
}

fn listing_failed(error: BlobError) -> EngineError {
    EngineError::internal("list stored results", error)
}

fn digest(frame: &Frame) -> Vec<u8> {
    Sha256::digest(&frame.bytes).to_vec()
}

/// Returns a frame in parts: a header of 16 bytes, then its bytes in parts of at most [`PART_BYTES`].
fn record(frame: &Frame) -> Vec<Bytes> {
    // The header contains the first revision, the number of events and the number of bytes. The reader finds the
    // end of the frame with them.
    let mut head = BytesMut::with_capacity(16);
    head.put_u64(frame.first.get());
    head.put_u32(frame.events);
    head.put_u32(u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX));
    let mut parts = vec![head.freeze()];
    let mut rest = frame.bytes.clone();
    while !rest.is_empty() {
        parts.push(rest.split_to(rest.len().min(PART_BYTES)));
    }
    parts
}
