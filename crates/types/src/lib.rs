//! The types of the domain: ids, messages and their token counts, policies, and the documents that are written about
//! messages.
//!
//! Pure, as the core is: no I/O, clock, randomness or environment. This crate imports no other crate of this workspace.
//! Not here: sessions, events and views (`palimpsest-core`, which re-exports these modules).

pub mod ids;
pub mod json;
pub mod limits;
pub mod memory;
pub mod message;
pub mod policy;
pub mod quoting;
pub mod summary;
pub mod tokens;
