//! `palimpsest export`: writes a transcript to a file.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use palimpsest_proto::context::v1::{ExportTranscriptRequest, Format};

use super::client::{Remote, block_on, next_message, reply_of};
use super::escapes::TerminalDocument;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// One JSON object per line, with all data; `import` reads it
    Palimpsest,
    /// JSON lines of Claude Code, which `claude --resume` continues
    ClaudeCode,
    /// Rollout file of Codex, which `codex resume` continues
    Codex,
    /// Array of Anthropic messages
    Anthropic,
    /// Array of OpenAI messages
    #[value(name = "openai")]
    OpenAi,
    /// Array of items of OpenAI's Responses API
    #[value(name = "openai-responses")]
    OpenAiResponses,
}

/// Write the transcript of a session to a file or to standard output
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest export my-session > my-session.jsonl
  palimpsest export my-session --format openai --output my-session.json")]
pub(super) struct Export {
    /// Id or full name of the session
    session: String,
    /// Format of the file
    #[arg(long, value_enum, default_value = "palimpsest")]
    format: ExportFormat,
    /// File to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

impl Export {
    pub(super) fn run(self) -> anyhow::Result<()> {
        block_on(self.stream())
    }

    async fn stream(&self) -> anyhow::Result<()> {
        let session = self.remote.session(&self.session)?;
        let mut clients = self.remote.connect().await?;
        let format = match self.format {
            ExportFormat::Palimpsest => Format::PalimpsestJsonl,
            ExportFormat::ClaudeCode => Format::ClaudeCodeJsonl,
            ExportFormat::Codex => Format::CodexJsonl,
            ExportFormat::Anthropic => Format::AnthropicMessages,
            ExportFormat::OpenAi => Format::OpenaiChat,
            ExportFormat::OpenAiResponses => Format::OpenaiResponses,
        };
        let request = ExportTranscriptRequest {
            session,
            format: format.into(),
            ..ExportTranscriptRequest::default()
        };
        let mut stream = reply_of(clients.sessions.export_transcript(request).await)?;
        // The file is created after the server accepted the call, so a rejected export empties no existing file.
        let mut out: Box<dyn std::io::Write> = match &self.output {
            Some(path) => Box::new(
                std::fs::File::create(path)
                    .with_context(|| format!("cannot write {}", path.display()))?,
            ),
            None => Box::new(TerminalDocument::stdout()),
        };
        // A lost result does not end the export: its replacement is exported, and the exit code reports it.
        let mut lost = Vec::new();
        while let Some(chunk) = next_message(&mut stream).await? {
            // A reader such as `head` closes the pipe early, which is no error.
            match out.write_all(&chunk.data) {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                outcome => outcome?,
            }
            lost.extend(chunk.unreadable_results.into_iter().map(|lost| lost.file));
            // Only the last chunk proves that the export is complete.
            if chunk.last {
                out.flush()?;
                return check_complete(&lost);
            }
        }
        bail!(
            "the server ended the stream early, so the export is incomplete: run the command again"
        )
    }
}

/// Fails if stored results are missing from a written export.
fn check_complete(lost: &[String]) -> anyhow::Result<()> {
    let Some(first) = lost.first() else {
        return Ok(());
    };
    bail!(
        "the export is written, but {} stored results are lost (the first is {first}). The export contains their \
         replacements instead. Restore these files from a backup and export again",
        lost.len()
    )
}
