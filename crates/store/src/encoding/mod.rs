//! Events, snapshots and list rows as bytes, and back.
//!
//! A byte for the version of the envelope, a byte that says whether zstd was worth it, then the
//! storage proto. What was written once is read for ever: golden bytes of every version are in the
//! tests. Not here: where the bytes go (`log`), and what an event means (the core).

mod compaction;
mod event;
mod hooks;
mod levels;
mod message;
mod notes;
mod offers;
mod prompt_cache;
mod snapshot;
mod spans;
mod state;
mod view;
mod working;

use std::cell::RefCell;
use std::io;

use bytes::Bytes;
use palimpsest_core::event::Recorded;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::{About, Snapshot};
use prost::Message as _;
use zstd::bulk::{Compressor, Decompressor};

/// The storage proto's types.
#[expect(
    unreachable_pub,
    clippy::pedantic,
    reason = "the code is generated; its style is prost's"
)]
mod v1 {
    include!(concat!(env!("OUT_DIR"), "/palimpsest.storage.v1.rs"));
}

/// The version that is written. All earlier ones are read.
pub const VERSION: u8 = 1;

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
/// Measured on agent messages: level 3 takes 35 % of the bytes at over 200 MB/s; higher levels win a
/// few percent and cost several times as much.
const ZSTD_LEVEL: i32 = 3;
/// Below this, a compressed frame is rarely smaller.
const MIN_COMPRESSED_BYTES: usize = 256;
/// No envelope holds more: a call brings at most 32 MiB, and a snapshot is an index.
const MAX_DECODED_BYTES: usize = 1024 * 1024 * 1024;

/// Why bytes cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A later version of this software wrote them.
    #[error(
        "was written by a newer version (format {found}, this one reads up to {VERSION}): upgrade before opening this store"
    )]
    Newer {
        /// The version found.
        found: u8,
    },
    /// They are not what was written.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
}

/// The events of one append.
pub fn encode_frame(events: &[Recorded]) -> Bytes {
    let frame = v1::Frame {
        events: events.iter().map(event::write).collect(),
    };
    seal(&frame.encode_to_vec())
}

/// The events of one append again.
pub fn decode_frame(bytes: &[u8]) -> Result<Vec<Recorded>, DecodeError> {
    let frame = v1::Frame::decode(open(bytes)?).map_err(|_| DecodeError::Damaged("not a frame"))?;
    frame.events.into_iter().map(event::read).collect()
}

/// A session without its contents.
pub fn encode_snapshot(snapshot: &Snapshot) -> Bytes {
    seal(&snapshot::write(snapshot).encode_to_vec())
}

/// A session without its contents again.
pub fn decode_snapshot(key: SessionKey, bytes: &[u8]) -> Result<Snapshot, DecodeError> {
    let stored =
        v1::Snapshot::decode(open(bytes)?).map_err(|_| DecodeError::Damaged("not a snapshot"))?;
    snapshot::read(key, stored)
}

/// What a list shows of a session.
pub fn encode_about(about: &About) -> Bytes {
    seal(&snapshot::write_about(about).encode_to_vec())
}

/// What a list shows of a session again.
pub fn decode_about(bytes: &[u8]) -> Result<About, DecodeError> {
    let stored =
        v1::About::decode(open(bytes)?).map_err(|_| DecodeError::Damaged("not a list row"))?;
    snapshot::read_about(stored)
}

fn seal(body: &[u8]) -> Bytes {
    if body.len() >= MIN_COMPRESSED_BYTES
        && let Ok(small) = COMPRESSOR.with_borrow_mut(|kept| compress(kept, body))
        && small.len() < body.len()
    {
        return envelope(ZSTD, &small);
    }
    envelope(PLAIN, body)
}

// Making a compressor or a decompressor costs more than a small frame does.
thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = RefCell::default();
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = RefCell::default();
}

fn compress(kept: &mut Option<Compressor<'static>>, body: &[u8]) -> io::Result<Vec<u8>> {
    let compressor = match kept {
        Some(compressor) => compressor,
        None => kept.insert(Compressor::new(ZSTD_LEVEL)?),
    };
    compressor.compress(body)
}

fn envelope(codec: u8, body: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(body.len() + 2);
    bytes.extend_from_slice(&[VERSION, codec]);
    bytes.extend_from_slice(body);
    bytes.into()
}

fn open(bytes: &[u8]) -> Result<Bytes, DecodeError> {
    match bytes {
        [version, ..] if *version > VERSION => Err(DecodeError::Newer { found: *version }),
        [VERSION, PLAIN, body @ ..] => Ok(Bytes::copy_from_slice(body)),
        [VERSION, ZSTD, body @ ..] => decompress(body).map(Bytes::from),
        _ => Err(DecodeError::Damaged("no envelope")),
    }
}

fn decompress(body: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let size = zstd::zstd_safe::get_frame_content_size(body)
        .ok()
        .flatten()
        .and_then(|size| usize::try_from(size).ok())
        .filter(|size| *size <= MAX_DECODED_BYTES)
        .ok_or(DecodeError::Damaged("no length"))?;
    let damaged = |_| DecodeError::Damaged("not zstd");
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(Decompressor::new().map_err(damaged)?),
        };
        decompressor.decompress(body, size).map_err(damaged)
    })
}

/// Sixteen bytes at a time.
fn sixteens(bytes: &[u8]) -> Result<Vec<[u8; 16]>, DecodeError> {
    let (chunks, rest) = bytes.as_chunks::<16>();
    if rest.is_empty() {
        Ok(chunks.to_vec())
    } else {
        Err(DecodeError::Damaged("a list of ids is cut"))
    }
}

fn sixteen(bytes: &[u8]) -> Result<[u8; 16], DecodeError> {
    bytes
        .try_into()
        .map_err(|_| DecodeError::Damaged("an id is cut"))
}
