//! The background worker that keeps every session's `summary.md` up to date. Nothing here yet: it
//! arrives with session memory; the queue it will read lives in the store.
