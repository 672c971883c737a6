//! `palimpsest memory edit`: replaces the text of session memory by an edited one.

use std::fs;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use palimpsest_core::memory::MemoryDocument;
use palimpsest_proto::context::v1::{
    MemoryState, SessionMemory, UpdateSessionMemoryRequest, UpdateSessionMemoryResponse,
};

use super::diff::{self, SectionChange};
use super::editor::EditedFile;
use super::{about, fetch};
use crate::client::{Remote, block_on, reply_of};
use crate::output::{note, print_line, print_styled};
use crate::reply_json::ReplyJson;

/// The maximum bytes of standard input that are read. The server accepts far less.
const MAX_INPUT: u64 = 16 * 1024 * 1024;

/// Edit the running summary of a session
#[derive(Debug, Args)]
#[command(
    after_help = "Without a file, the command opens the text in the editor of $VISUAL or $EDITOR, and sends it when the editor ends. \
The edit fails if session memory has a new version meanwhile. A text without a heading of a section is rejected. \
With --json, the output is the reply of the rpc `UpdateSessionMemory` in the form of the REST API.

Examples:
  palimpsest memory edit my-session
  palimpsest memory edit my-session --file summary.md --dry-run
  sed 's/staging/production/' summary.md | palimpsest memory edit my-session --version 4"
)]
pub(super) struct Edit {
    /// Id or full name of the session
    session: String,
    /// File with the complete new text; `-` is standard input [default: standard input, unless it is a terminal]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Version that the text is based on [default: the current one]
    #[arg(long, value_name = "NUMBER")]
    version: Option<u64>,
    /// Print the difference by section and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the reply as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Edit {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let session = self.remote.session(&self.session)?;
        let before = block_on(async {
            let mut clients = self.remote.connect().await?;
            fetch(&mut clients, &session).await
        })?;
        let (text, edited) = if let Some(text) = self.given()? {
            (text, None)
        } else {
            let opened = text_to_open(&before)?;
            let edited = EditedFile::open(&opened)?;
            let text = edited.text()?;
            // A person who leaves the editor without a change expects no new version.
            if text == opened {
                return print_line(&format!("{session}: nothing was edited"));
            }
            (text, Some(edited))
        };
        // The version that the editor showed. If a later one is written meanwhile, the edit fails instead of replacing
        // it.
        let version = self.version.unwrap_or(before.version);
        match block_on(self.call(&session, text, version)) {
            Ok(reply) => self.print(&session, &before, &reply),
            // The text of the editor must not be lost with the temporary file.
            Err(error) => match edited {
                Some(edited) => Err(error.context(edited.keep()?)),
                None => Err(error),
            },
        }
    }

    /// Returns the text of the file or of standard input, or `None` if a person must edit the text.
    fn given(&self) -> anyhow::Result<Option<String>> {
        match &self.file {
            Some(file) if file.as_path() != Path::new("-") => {
                let text = fs::read_to_string(file);
                let text = text.with_context(|| format!("cannot read {}", file.display()))?;
                Ok(Some(text))
            }
            None if io::stdin().is_terminal() => Ok(None),
            _ => {
                let mut text = String::new();
                // One byte above the limit is enough to detect a longer input.
                let mut input = io::stdin().take(MAX_INPUT + 1);
                let read = input.read_to_string(&mut text);
                read.context("cannot read the text from standard input")?;
                if text.len() as u64 > MAX_INPUT {
                    bail!("standard input has more than {MAX_INPUT} bytes: send less text");
                }
                Ok(Some(text))
            }
        }
    }

    async fn call(
        &self,
        session: &str,
        text: String,
        expected_version: u64,
    ) -> anyhow::Result<UpdateSessionMemoryResponse> {
        // A person can edit for hours, so no connection stays open meanwhile.
        let mut clients = self.remote.connect().await?;
        let request = UpdateSessionMemoryRequest {
            session: session.to_owned(),
            text,
            expected_version,
            dry_run: self.dry_run,
            ..UpdateSessionMemoryRequest::default()
        };
        reply_of(clients.context.update_session_memory(request).await)
    }

    fn print(
        &self,
        session: &str,
        before: &SessionMemory,
        reply: &UpdateSessionMemoryResponse,
    ) -> anyhow::Result<()> {
        if self.json {
            return ReplyJson::of("UpdateSessionMemoryResponse")?.print(reply);
        }
        let after = reply.memory.clone().unwrap_or_default();
        let changes = diff::changes(before, &after);
        if changes.is_empty() {
            return print_line(&format!("{session}: the text is the same"));
        }
        for title in after
            .sections
            .iter()
            .filter(|it| it.truncated)
            .map(|it| &it.title)
        {
            note(&format!(
                "warning: the section {title} is cut to the limits of the policy"
            ));
        }
        if self.dry_run {
            let shown: String = changes.iter().map(SectionChange::styled).collect();
            return print_styled(&shown);
        }
        let titles: Vec<&str> = changes.iter().map(SectionChange::title).collect();
        print_line(&format!("{session}: changed {}", titles.join(", ")))?;
        print_line(&format!("{}, revision {}", about(&after), reply.revision))
    }
}

/// Returns the text for the editor: the current one, or the headings of a first text.
fn text_to_open(before: &SessionMemory) -> anyhow::Result<String> {
    // The server would reject the text only after the person has written it.
    if before.state() == MemoryState::Disabled {
        bail!(
            "the policy of the session disables session memory: set session_memory.enabled, and \
             session_memory.include_subagents for a subagent session, with UpdateSession"
        );
    }
    if before.version == 0 {
        return Ok(MemoryDocument::template().render());
    }
    Ok(before.text.clone())
}
