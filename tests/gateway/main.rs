//! The gateway in front of sessions: real HTTP through the real binary to the strict provider for tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod agent;
mod collector;
mod compress;
mod context_edits;
mod faults;
mod fuzzed;
mod held_key;
mod kill;
mod litellm;
mod managed;
mod own_faults;
mod read_back;
mod served_compaction;
mod streams;
mod system_messages;
mod traced;
mod transcripts;
mod upstream_faults;
mod who;
mod world;
