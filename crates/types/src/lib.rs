//! The types of the domain: ids, messages and their token counts, policies, and documents about
//! messages.
//!
//! The crate is pure: no I/O, clock, randomness or environment. It imports no other crate of this
//! workspace. Sessions, events and views are in `palimpsest-core`, which re-exports these modules.

mod hex;
pub mod ids;
pub mod json;
pub mod limits;
pub mod memory;
pub mod message;
pub mod models;
pub mod policy;
pub mod quoting;
pub mod summary;
pub mod tokens;

pub use self::hex::hex;
