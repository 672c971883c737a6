//! How a summary is made: the extractive summariser (no model), a provider's API, or the caller
//! itself. Nothing here yet: session memory and compaction arrive with level 5.
