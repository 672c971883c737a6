//! The domain: what a session is, how it changes, and which `messages` array it becomes.
//!
//! Everything here is pure: no I/O, no clock, no randomness, no environment. Time and ids come in
//! as arguments; what must happen outside comes out as effects.

pub mod ids;
