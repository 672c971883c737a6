//! The estimators `o200k` and `cl100k`, which count tokens with a byte-pair encoding.
//!
//! Encoding takes about a hundred times as long as the `bytes` estimator. One count therefore
//! encodes at most [`MAX_READ_BYTES`] bytes. Longer input is sampled, and the result is extrapolated
//! in proportion to the `bytes` estimate.

use std::sync::OnceLock;

use tiktoken::CoreBpe;

use super::bytes::{self, TextKind};

/// The maximum number of bytes that one count encodes.
pub(super) const MAX_READ_BYTES: usize = 16 * 1024;
/// The length of a sample in bytes. Each cut splits a token in two, so shorter samples overestimate.
const SAMPLE_BYTES: usize = 512;
/// The maximum length of a text passed to the encoder, in bytes. The encoder needs O(n log n) for a
/// word of n bytes.
const PIECE_BYTES: usize = 1024;
/// The distance from the end of a piece within which a space is preferred as its boundary. A cut
/// there splits no token.
const SPACE_WITHIN_BYTES: usize = 64;
/// The minimum sample of a text in bytes. A smaller sample is not representative.
const MIN_READ_BYTES: usize = 256;

/// A byte-pair encoding. The vocabulary is compiled into the binary and loaded on first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    O200k,
    Cl100k,
}

impl Encoding {
    /// Loads the vocabulary if necessary. The first call takes about 100 ms.
    pub(super) fn load(self) -> &'static CoreBpe {
        let (encoder, name) = self.cell_and_name();
        encoder.get_or_init(|| {
            tiktoken::get_encoding(name).expect("its vocabulary is a feature of the dependency")
        })
    }

    /// Returns true if the vocabulary is loaded.
    pub(super) fn is_ready(self) -> bool {
        self.cell_and_name().0.get().is_some()
    }

    fn cell_and_name(self) -> (&'static OnceLock<&'static CoreBpe>, &'static str) {
        static O200K: OnceLock<&CoreBpe> = OnceLock::new();
        static CL100K: OnceLock<&CoreBpe> = OnceLock::new();
        match self {
            Self::O200k => (&O200K, "o200k_base"),
            Self::Cl100k => (&CL100K, "cl100k_base"),
        }
    }

    /// Counts the tokens of a text. The time is linear in the length of the text, whatever its
    /// content.
    fn count(self, mut text: &str) -> u64 {
        let (encoder, mut tokens) = (self.load(), 0);
        while !text.is_empty() {
            let (piece, rest) = text.split_at(piece_end(text));
            tokens += encoder.count(piece) as u64;
            text = rest;
        }
        tokens
    }
}

/// A combined count of several texts.
#[derive(Debug)]
pub(super) struct SampledCount {
    encoding: Encoding,
    /// The bytes of the texts that follow.
    remaining_bytes: usize,
    /// The number of bytes that may still be encoded.
    encodable_bytes: usize,
    /// The unused sampling allowance of earlier texts that were too short to sample, in bytes.
    sampling_allowance: usize,
    /// The tokens of everything encoded so far.
    tokens: u64,
    /// The `bytes` estimate of everything encoded so far.
    by_bytes: u64,
}

impl SampledCount {
    /// Starts a count of texts with a total of `bytes` bytes.
    pub(super) const fn new(encoding: Encoding, bytes: usize) -> Self {
        Self {
            encoding,
            remaining_bytes: bytes,
            encodable_bytes: MAX_READ_BYTES,
            sampling_allowance: MIN_READ_BYTES,
            tokens: 0,
            by_bytes: 0,
        }
    }

    /// Counts the next text. Each text is sampled in proportion to its length. Allowances that are
    /// too small for a sample accumulate until a text can be sampled.
    pub(super) fn text(&mut self, text: &str, nature: TextKind) -> u64 {
        let ahead = self.remaining_bytes.max(text.len());
        self.remaining_bytes = ahead - text.len();
        // If all remaining texts fit into the limit, each is encoded whole.
        let share = if ahead <= self.encodable_bytes {
            text.len()
        } else {
            // Both factors are lengths of data in memory, so the product fits into 128 bits.
            usize::try_from(text.len() as u128 * self.encodable_bytes as u128 / ahead as u128)
                .unwrap_or(0)
        };
        // `ahead` is at least the length of the text, so the share is at most the rest of the limit.
        self.encodable_bytes -= share;
        self.sampling_allowance += share;
        let part = self.sampling_allowance.min(text.len());
        let (mut tokens, mut by_bytes) = (0, 0);
        if part == text.len() {
            self.sampling_allowance -= part;
            return self.read(text, nature).0;
        }
        if part >= MIN_READ_BYTES {
            self.sampling_allowance -= part;
            for sample in samples(text, part) {
                let (has, by) = self.read(sample, nature);
                tokens += has;
                by_bytes += by;
            }
        }
        let whole = bytes::count(text, nature);
        // The ratio is taken from this text if it was sampled, from earlier texts if not, and from a
        // constant if nothing was.
        match (by_bytes, self.by_bytes) {
            (0, 0) => whole * UNREAD.0 / UNREAD.1,
            (0, all) => scale(whole, self.tokens, all),
            (part, _) => scale(whole, tokens, part),
        }
    }

    /// Skips `bytes` bytes of media, which contain no text.
    pub(super) fn skip_bytes(&mut self, bytes: usize) {
        self.remaining_bytes = self.remaining_bytes.saturating_sub(bytes);
    }

    fn read(&mut self, text: &str, nature: TextKind) -> (u64, u64) {
        let tokens = self.encoding.count(text);
        let by_bytes = bytes::count(text, nature);
        self.tokens += tokens;
        self.by_bytes += by_bytes;
        (tokens, by_bytes)
    }
}

/// Returns the end of the first piece of a text.
fn piece_end(text: &str) -> usize {
    let end = text.floor_char_boundary(PIECE_BYTES);
    if end == text.len() {
        return end;
    }
    // A cut piece has more than 1,020 bytes, so the subtraction cannot underflow.
    let near = &text.as_bytes()[end - SPACE_WITHIN_BYTES..end];
    let space = near.iter().rposition(|byte| *byte == b' ');
    // Both encodings attach a space to the word after it, so the cut is before the space.
    space.map_or(end, |at| end - SPACE_WITHIN_BYTES + at)
}

/// The ratio for texts without any sample. It removes the padding of the `bytes` estimate.
const UNREAD: (u64, u64) = (3, 4);

fn scale(whole: u64, tokens: u64, by_bytes: u64) -> u64 {
    let scaled = u128::from(whole) * u128::from(tokens) / u128::from(by_bytes);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Returns evenly distributed samples of a text with a total of about `bytes` bytes.
fn samples(text: &str, bytes: usize) -> impl Iterator<Item = &str> {
    let count = (bytes / SAMPLE_BYTES).max(1);
    let length = bytes / count;
    // `bytes` is below the length of the text, so a stride is at least as long as a sample.
    let stride = text.len() / count;
    (0..count).map(move |index| {
        // The sample is taken from the middle of its part of the text.
        let start = index * stride + (stride - length) / 2;
        let start = text.floor_char_boundary(start);
        &text[start..text.floor_char_boundary(start + length)]
    })
}
