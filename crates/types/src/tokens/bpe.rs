//! The estimators `o200k` and `cl100k`: tokens as a byte-pair encoding makes them.
//!
//! Reading takes some hundred times as long as looking at bytes alone, and nobody may be held up by it. So
//! one count reads so many bytes at most: of what is longer it reads samples, and the `bytes` estimator, which
//! looks at everything, says how much the rest has in proportion.

use std::sync::OnceLock;

use tiktoken::CoreBpe;

use super::bytes::{self, Nature};

/// How much of one count is read, in bytes. All of it when it has no more.
pub(super) const MAX_READ_BYTES: usize = 16 * 1024;
/// How long a sample is. A cut makes a token two, so short samples count too high.
const SAMPLE_BYTES: usize = 512;
/// The encoder needs n log n for a word of n bytes, so no longer text is put to it at once.
const PIECE_BYTES: usize = 1024;
/// A piece ends before a space, where one is so near to its end: nothing is cut there.
const SPACE_WITHIN_BYTES: usize = 64;
/// A part of a text that is shorter than this says too little about it.
const MIN_READ_BYTES: usize = 256;

/// An encoding. Its vocabulary is in the binary, and is made ready when it is used first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    O200k,
    Cl100k,
}

impl Encoding {
    /// Makes it ready, which takes a tenth of a second the first time.
    pub(super) fn ready(self) -> &'static CoreBpe {
        let (encoder, name) = self.place();
        encoder.get_or_init(|| {
            tiktoken::get_encoding(name).expect("its vocabulary is a feature of the dependency")
        })
    }

    /// Whether that was done.
    pub(super) fn is_ready(self) -> bool {
        self.place().0.get().is_some()
    }

    fn place(self) -> (&'static OnceLock<&'static CoreBpe>, &'static str) {
        static O200K: OnceLock<&CoreBpe> = OnceLock::new();
        static CL100K: OnceLock<&CoreBpe> = OnceLock::new();
        match self {
            Self::O200k => (&O200K, "o200k_base"),
            Self::Cl100k => (&CL100K, "cl100k_base"),
        }
    }

    /// The tokens of a text. Linear in its length, whatever it says.
    fn count(self, mut text: &str) -> u64 {
        let (encoder, mut tokens) = (self.ready(), 0);
        while !text.is_empty() {
            let (piece, rest) = text.split_at(piece_end(text));
            tokens += encoder.count(piece) as u64;
            text = rest;
        }
        tokens
    }
}

/// One count of several texts.
#[derive(Debug)]
pub(super) struct Reading {
    encoding: Encoding,
    /// The bytes of the texts that are to come.
    ahead: usize,
    /// How many bytes may be read of them.
    left: usize,
    /// How many may be read besides, because texts so far were too short.
    due: usize,
    /// What was read has so many tokens.
    tokens: u64,
    /// And has so many by its bytes.
    by_bytes: u64,
}

impl Reading {
    /// A count of texts that have so many bytes together.
    pub(super) const fn new(encoding: Encoding, bytes: usize) -> Self {
        Self {
            encoding,
            ahead: bytes,
            left: MAX_READ_BYTES,
            due: MIN_READ_BYTES,
            tokens: 0,
            by_bytes: 0,
        }
    }

    /// The next text. Each is read in proportion to its length; what is too short for that is read now and
    /// then, for those that are not.
    pub(super) fn text(&mut self, text: &str, nature: Nature) -> u64 {
        let ahead = self.ahead.max(text.len());
        self.ahead = ahead - text.len();
        let share = if ahead <= self.left {
            text.len()
        } else {
            // Both are lengths of what is in memory, so this does not overflow 128 bits.
            usize::try_from(text.len() as u128 * self.left as u128 / ahead as u128).unwrap_or(0)
        };
        self.left -= share;
        self.due += share;
        let part = self.due.min(text.len());
        let (mut tokens, mut by_bytes) = (0, 0);
        if part == text.len() {
            self.due -= part;
            return self.read(text, nature).0;
        }
        if part >= MIN_READ_BYTES {
            self.due -= part;
            for sample in samples(text, part) {
                let (has, by) = self.read(sample, nature);
                tokens += has;
                by_bytes += by;
            }
        }
        let whole = bytes::count(text, nature);
        match (by_bytes, self.by_bytes) {
            (0, 0) => whole * UNREAD.0 / UNREAD.1,
            (0, all) => in_proportion(whole, self.tokens, all),
            (part, _) => in_proportion(whole, tokens, part),
        }
    }

    /// A media's bytes are no text, and are not read.
    pub(super) fn pass_over(&mut self, bytes: usize) {
        self.ahead = self.ahead.saturating_sub(bytes);
    }

    fn read(&mut self, text: &str, nature: Nature) -> (u64, u64) {
        let tokens = self.encoding.count(text);
        let by_bytes = bytes::count(text, nature);
        self.tokens += tokens;
        self.by_bytes += by_bytes;
        (tokens, by_bytes)
    }
}

/// Where the first piece of a text ends.
fn piece_end(text: &str) -> usize {
    let end = text.floor_char_boundary(PIECE_BYTES);
    if end == text.len() {
        return end;
    }
    let near = &text.as_bytes()[end - SPACE_WITHIN_BYTES..end];
    let space = near.iter().rposition(|byte| *byte == b' ');
    space.map_or(end, |at| end - SPACE_WITHIN_BYTES + at)
}

/// What `bytes` counts, without its padding, for texts of which nothing was read.
const UNREAD: (u64, u64) = (3, 4);

fn in_proportion(whole: u64, tokens: u64, by_bytes: u64) -> u64 {
    let scaled = u128::from(whole) * u128::from(tokens) / u128::from(by_bytes);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Parts of a text with `bytes` together, evenly spread over it.
fn samples(text: &str, bytes: usize) -> impl Iterator<Item = &str> {
    let count = (bytes / SAMPLE_BYTES).max(1);
    let length = bytes / count;
    let stride = text.len() / count;
    (0..count).map(move |index| {
        // In the middle of its share of the text.
        let start = index * stride + (stride - length) / 2;
        let start = text.floor_char_boundary(start);
        &text[start..text.floor_char_boundary(start + length)]
    })
}
