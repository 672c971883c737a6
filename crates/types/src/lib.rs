//! The words of the domain: ids, messages and what they weigh, policies, and the documents that are written about
//! messages. Not here: sessions, events and views (the core), and what a run of messages did (`facts`).

pub mod ids;
pub mod json;
pub mod limits;
pub mod memory;
pub mod message;
pub mod policy;
pub mod quoting;
pub mod summary;
pub mod tokens;
