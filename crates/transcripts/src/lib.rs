//! Transcripts of other programs and of this one: read, written, and replayed to measure what would have become of them.
//! Not here: where the bytes come from and go to (`cli`, `engine`).

pub mod import;
pub mod replay;
