//! Transcripts of other programs, and our own exports, read into messages and the order in which they came.
//!
//! An importer loses nothing that it can read and says, line by line, what it could not. It decides
//! nothing about the view, except that a branch which its program had abandoned is left by a rewind.
//! Not here: opening files, and bringing the messages into a session.

mod boundaries;
mod claude_code;
mod conversations;
mod imported;
pub mod palimpsest;
mod recognise;

use palimpsest_core::view::Provider;

pub use self::imported::{
    ImportDefect, ImportFormat, ImportStep, Imported, ImportedCompaction, ImportedMessage,
    ImportedSession,
};
pub use self::recognise::binary;

/// Reads a file.
pub fn read(format: ImportFormat, bytes: &[u8]) -> Imported<'_> {
    // Before the lines: a program of megabytes would give a defect for each of them.
    if let Some(what) = binary(bytes) {
        return Imported {
            unrecognised: Some(what),
            ..Imported::default()
        };
    }
    let mut imported = match format {
        ImportFormat::ClaudeCode => claude_code::read(bytes),
        ImportFormat::OpenAi => conversations::read(Provider::OpenAi, bytes),
        ImportFormat::Anthropic => conversations::read(Provider::Anthropic, bytes),
        ImportFormat::Palimpsest => palimpsest::read(bytes),
    };
    imported.unrecognised = recognise::problem(format, bytes, &imported);
    if imported.unrecognised.is_some() {
        imported.sessions.clear();
    }
    imported
}
