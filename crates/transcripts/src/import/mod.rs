//! Importers for transcripts of other programs and for Palimpsest's exports. They return messages in
//! the order of arrival.
//!
//! An importer loses nothing that it can read, and reports by line what it could not. It does not
//! change views, except that a rewind leaves a branch that the other program abandoned. Opening
//! files and appending messages to sessions are done elsewhere.

mod boundaries;
mod claude_code;
mod codex;
mod conversations;
mod copilot_cli;
mod detect;
mod gemini_cli;
mod imported;
mod line_reader;
mod opencode;
pub mod palimpsest;
mod payload;
mod pi;
#[cfg(test)]
mod testing;

pub(crate) use self::claude_code::is_user_input;
pub(crate) use self::codex::{EXPORTER, is_machine_text};
pub use self::detect::detect_binary;
pub use self::imported::{
    ImportDefect, ImportFormat, ImportStep, Imported, ImportedCompaction, ImportedMessage,
    ImportedSession,
};

/// Reads a file of the given format. Without one, the content of the file determines it.
pub fn read(format: Option<ImportFormat>, bytes: &[u8]) -> Imported<'_> {
    // Binary files are detected first, because each of their lines would yield a defect.
    if let Some(what) = detect_binary(bytes) {
        return Imported {
            unrecognized: Some(what),
            ..Imported::default()
        };
    }
    let Some(format) = format.or_else(|| detect::detect_format(bytes)) else {
        return Imported {
            unrecognized: Some(detect::describe_unknown(bytes)),
            ..Imported::default()
        };
    };
    let mut imported = match format {
        ImportFormat::ClaudeCode => claude_code::read(bytes),
        ImportFormat::OpenAi | ImportFormat::OpenAiResponses | ImportFormat::Anthropic => {
            conversations::read(format.provider(), bytes)
        }
        ImportFormat::Palimpsest => palimpsest::read(bytes),
        ImportFormat::Codex => codex::read(bytes),
        ImportFormat::CopilotCli => copilot_cli::read(bytes),
        ImportFormat::GeminiCli => gemini_cli::read(bytes),
        ImportFormat::OpenCode => opencode::read(bytes),
        ImportFormat::Pi => pi::read(bytes),
    };
    imported.format = Some(format);
    imported.unrecognized = detect::format_mismatch(format, bytes, &imported);
    if imported.unrecognized.is_some() {
        imported.sessions.clear();
    }
    imported
}
