//! Transcripts of other programs and of this one: `import` reads them, and `replay` measures the service on them.
//!
//! Pure, as the core is: no I/O, clock, randomness or environment. Imports `palimpsest-core` and `palimpsest-facts` of
//! this workspace. Not here: the files that transcripts come from (`palimpsest-cli`).

pub mod import;
pub mod replay;
