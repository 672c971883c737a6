//! Transcripts of other programs and of Palimpsest. `import` reads them, `export` writes them, and
//! `replay` measures the service on them.
//!
//! The crate is pure: no I/O, clock, randomness or environment. It imports `palimpsest-core` and
//! `palimpsest-facts` of this workspace. Files are opened by `palimpsest-cli`.

pub mod export;
pub mod import;
pub mod replay;
mod utc;
