//! Session memory: its document, and the facts from which the document is rendered.

pub use palimpsest_facts::memory::{MemoryContent, MemoryEntry, fact};
pub use palimpsest_types::memory::*;
