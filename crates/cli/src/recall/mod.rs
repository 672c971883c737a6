//! `palimpsest recall`: measures what summaries and views still show of what an agent used after each compaction.

mod report;
mod run;
mod summaries;
mod table;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;

use self::run::{RecallInput, recall};
use super::agent_logs::Transcripts;
use super::files::{self, Format};
use super::output::{count, print_json, show_logs};
use super::policies::{ModelChoice, PolicyChoice, choice, model, window};

/// Measure what summaries still show of what the agent used afterwards
#[derive(Debug, Args)]
#[command(
    after_help = "A need is a name that the agent uses in its next 60 tool calls after a compaction, and that the \
conversation before contained: a path, an identifier in a search, or a file in a command. The table has the share of \
needs that each text shows:

  recorded summary   the summary in the transcript, with the messages that its program kept or attached
  with names         the recorded summary, with the names of the summary of Palimpsest that it leaves out. Palimpsest
                     adds them to the summary of a model
  summary            the summary of Palimpsest, made without a model
  view               all messages that the model gets from Palimpsest after the compaction
  tail               the end of the conversation at the length of the text in the row above

`from memory` counts only needs that no result or message after the compaction had shown before their use.

If a transcript contains compactions, Palimpsest compacts at the same places. Otherwise it compacts where the policy \
does. The command runs in this process: it needs no server and calls no model.

Without a path, it measures the logs of Claude Code, Codex, the Copilot CLI, the Gemini CLI and pi on this machine. Files \
in their folders that are no sessions are listed and ignored.

Examples:
  palimpsest recall
  palimpsest recall ~/.claude/projects/my-project
  palimpsest recall session.jsonl --window 64k --worst 5
  palimpsest recall session.jsonl --text my-summary.md
  palimpsest recall conversations.jsonl --window 64k --json"
)]
pub(super) struct Recall {
    /// Format of the files
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Preset, or .toml file of policy settings
    #[arg(long, value_name = "PRESET", value_parser = choice, default_value = "claude-code")]
    preset: PolicyChoice,
    /// Context window of the model in tokens, instead of the window of the preset or of `--model`.
    /// A smaller window compacts more often
    #[arg(long, value_name = "TOKENS", value_parser = window)]
    window: Option<u32>,
    /// Model whose context window applies, as in the table of models
    #[arg(long, value_name = "NAME", value_parser = model)]
    model: Option<ModelChoice>,
    /// Measure this text at every compaction too. Can be repeated
    #[arg(long = "text", value_name = "FILE")]
    texts: Vec<PathBuf>,
    /// Show the compactions whose summaries lack the most needs, with these needs
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    worst: usize,
    /// Write the summaries of Palimpsest at all compactions
    #[arg(long, value_name = "FILE.md")]
    summaries: Option<PathBuf>,
    /// Print the figures as JSON, in total and per compaction
    #[arg(long)]
    json: bool,
    /// Transcript files, or folders with such files [default: the logs of the agents on this machine]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

impl Recall {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let transcripts = Transcripts::find(&self.paths, self.format)?;
        let mut choice = self.preset;
        choice.set_window(self.window, self.model.as_ref());
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let texts: Vec<String> = self.texts.iter().map(read).collect::<Result<_, _>>()?;
        let mut measured = recall(&RecallInput {
            transcripts: &transcripts,
            choice: &choice,
            window: self.model.map(|model| model.limits).unwrap_or_default(),
            texts: &texts,
        })?;
        transcripts.require_sessions(measured.sessions())?;
        if measured.sessions() == 0 {
            return Err(files::no_session(
                transcripts.files().len(),
                measured.unrecognized().next(),
            ));
        }
        let about_logs = transcripts.report(&measured.outcomes());
        show_logs(&about_logs, self.json)?;
        if transcripts.are_logs() {
            // The report on the folders lists these files already. In the folders of agents, they are no error.
            measured.files.retain(|file| file.unrecognized.is_none());
        }
        if measured.compactions().next().is_none() {
            let sessions = count(measured.sessions(), "session");
            let without_needs = measured.without_needs();
            if without_needs > 0 {
                bail!(
                    "nothing can be measured in {sessions} with {}: the next 60 tool calls after a compaction use no \
                     name of the conversation before it. Pass another --window to compact at other places, or \
                     transcripts with more tool calls",
                    count(without_needs, "compaction")
                );
            }
            bail!(
                "no compaction was found in {sessions}: pass a smaller --window to compact earlier"
            );
        }
        if let Some(path) = &self.summaries {
            files::write(path, &summaries::write(&measured))?;
        }
        if self.json {
            print_json(&report::json(&measured, &self.texts)?)?;
        } else {
            table::show(&measured, &self.texts)?;
            summaries::show_worst(&measured, self.worst)?;
        }
        let unrecognized = measured.unrecognized().count();
        files::require_recognized(unrecognized, transcripts.files().len(), "measured")
    }
}
