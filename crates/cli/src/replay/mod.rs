//! `palimpsest replay`: replays transcripts under several policies and compares the results.

mod plot;
mod report;
mod run;
mod summaries;
mod table;

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use palimpsest_transcripts::replay::ReplayMetrics;

use self::run::{ReplayInput, ReplayResults, replay};
use super::agent_logs::Transcripts;
use super::files::{self, Format};
use super::output::{number, print, print_json, show_logs};
use super::policies::{ModelChoice, NONE, PolicyChoice, choice, model, no_levels_choice, window};

/// Replay transcripts under presets, and compare tokens, cost and recoverable content
#[derive(Debug, Args)]
#[command(
    after_help = "Every transcript runs turn by turn through the complete pipeline, with its own times and usage. \
It runs once per preset, and once with `none`, the policy without levels. A view that reaches \
the compaction threshold is compacted with session memory, or else with an extractive summary. \
The replay runs in this process: it needs no server and calls no model.

Without a path, it replays the logs of Claude Code, Codex, the Copilot CLI, the Gemini CLI and pi on this machine. Files \
in their folders that are no sessions are listed and ignored.

The exit code is 1 if
  - a view is not valid,
  - a view breaks the prompt cache without a recorded event,
  - removed content cannot be read back, or
  - a compacted view lacks the exact text of the latest user message.

Examples:
  palimpsest replay
  palimpsest replay ~/.claude/projects/my-project --preset claude-code,opencode
  palimpsest replay session.jsonl --preset mine.toml --plot tokens.svg
  palimpsest replay session.jsonl --window 64000 --summaries summaries.md
  palimpsest replay session.jsonl --model claude-opus-4-8
  palimpsest replay conversations.jsonl --json"
)]
pub(super) struct Replay {
    /// Format of the files
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Presets to compare: claude-code, claude-code-2.1.19, opencode, threshold, economy, or .toml
    /// files of policy settings; `none` is always added
    #[arg(long = "preset", value_name = "PRESET", value_delimiter = ',', value_parser = choice)]
    #[arg(default_value = "claude-code")]
    presets: Vec<PolicyChoice>,
    /// Context window of the model in tokens, instead of the window of the preset or of `--model`.
    /// At most an eighth of it is reserved for the response
    #[arg(long, value_name = "TOKENS", value_parser = window)]
    window: Option<u32>,
    /// Model whose context window and prices apply, as in the table of models. Without it, costs are
    /// relative to uncached input. The higher prices of a long input are left out
    #[arg(long, value_name = "NAME", value_parser = model)]
    model: Option<ModelChoice>,
    /// Print the figures as JSON, in total and per file
    #[arg(long)]
    json: bool,
    /// Write a chart of the tokens of each request in the longest session
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Write the summaries of all compactions
    #[arg(long, value_name = "FILE.md")]
    summaries: Option<PathBuf>,
    /// Transcript files, or folders with such files [default: the logs of the agents on this machine]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

impl Replay {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let transcripts = Transcripts::find(&self.paths, self.format)?;
        let choices = self.choices();
        let mut replayed = replay(&ReplayInput {
            transcripts: &transcripts,
            choices: &choices,
            model: self.model,
        })?;
        transcripts.require_sessions(replayed.sessions())?;
        if replayed.sessions() == 0 {
            let reason = replayed.files.iter().find_map(|file| {
                let reason = file.unrecognized.as_ref()?;
                Some(format!("{} {reason}", file.file))
            });
            return Err(files::no_session(transcripts.files().len(), reason));
        }
        let about_logs = transcripts.report(&replayed.outcomes());
        show_logs(&about_logs, self.json)?;
        if transcripts.are_logs() {
            // The report on the folders lists these files already. In the folders of agents, they are no error.
            replayed.files.retain(|file| file.unrecognized.is_none());
        }
        if let Some(path) = &self.plot {
            files::write(path, &plot::draw(&replayed))?;
        }
        if let Some(path) = &self.summaries {
            files::write(path, &summaries::write(&replayed))?;
        }
        if self.json {
            print_json(&report::json(&replayed)?)?;
        } else {
            table::show(&replayed)?;
        }
        print_verdict(&replayed, self.json)
    }

    /// Returns the distinct policies of the command line, followed by `none`, the policy to compare with.
    fn choices(&self) -> Vec<PolicyChoice> {
        let mut choices: Vec<PolicyChoice> = Vec::new();
        for choice in &self.presets {
            let is_new = choices.iter().all(|known| known.name != choice.name);
            if choice.name != NONE && is_new {
                choices.push(choice.clone());
            }
        }
        // `none` is last, because `relative_cost` compares with the last policy.
        choices.push(no_levels_choice());
        for choice in &mut choices {
            choice.set_window(self.window, self.model.as_ref());
        }
        choices
    }
}

/// Prints the last line, or fails if a check failed or a file was not recognized.
fn print_verdict(replayed: &ReplayResults, json: bool) -> anyhow::Result<()> {
    let broken: usize = replayed
        .totals
        .iter()
        .map(ReplayMetrics::violation_count)
        .sum();
    if broken > 0 {
        let broken = number(broken as u64);
        bail!(
            "{broken} checks failed: see the invalid views, prefix violations, lost probes and lost requests above"
        );
    }
    let foreign = replayed
        .files
        .iter()
        .filter(|it| it.unrecognized.is_some())
        .count();
    files::require_recognized(foreign, replayed.files.len(), "replayed")?;
    if json {
        return Ok(());
    }
    print(
        "Every sent view is valid. It extends the view before it, except after a recorded view change. All removed \
         content can be read back, and every compacted view contains the latest user message.\n",
    )
}
