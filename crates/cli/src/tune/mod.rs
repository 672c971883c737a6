//! `palimpsest tune`: compares the cost and the recall of policies on transcripts and recommends one.

mod candidates;
mod plot;
mod recommend;
mod report;
mod run;
mod table;

use std::path::PathBuf;

use clap::Args;

use self::candidates::{Candidate, ModelSettings, candidates};
use self::recommend::recommend;
use self::run::{TuneInput, TuneResults, tune};
use self::table::percent;
use super::agent_logs::Transcripts;
use super::files::{self, Format};
use super::output::{print, print_json, print_line, show_logs};
use super::policies::{ModelChoice, PolicyChoice, choice, model, window};

/// Compare the cost and the recall of policies on transcripts, and recommend one
#[derive(Debug, Args)]
#[command(
    after_help = "Every transcript runs turn by turn under each policy, as `replay` does. The columns:

  cost              cost of the input, compared with `none`, the conversation without any change
  optimum           the lowest cost in hindsight, with compactions to the same size from the same view size on.
                    Only for policies that compact to reduce the cost
  dearest session   the highest cost of a session, compared with the same session under `none`
  recall            the share of what tool calls used that the view showed at the time of the call
  names             its first part: paths, identifiers in searches, and files in commands that the conversation
                    before contained
  edits             its second part: the texts that edits replaced, word for word
  frontier          marks policies for which no other one costs less and has the same recall

The recommended policy is the cheapest one with the recall of `--min-recall`, without the policies of `--preset`. Its \
settings follow the table. The calls of a transcript stay the same under every policy. A real agent that misses a file \
would read it again, so the real cost of a policy with a low recall is higher.

Without a path, it reads the logs of Claude Code, Codex, the Copilot CLI, the Gemini CLI and pi on this machine. The \
command runs in this process: it needs no server and calls no model.

Examples:
  palimpsest tune
  palimpsest tune ~/.claude/projects/my-project
  palimpsest tune ~/.claude/projects/my-project --plot frontier.svg --output policy.toml
  palimpsest tune conversations.jsonl --model claude-opus-4-8 --min-recall 98
  palimpsest tune session.jsonl --preset mine.toml --json"
)]
pub(super) struct Tune {
    /// Format of the files
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Further policies to compare: .toml files of policy settings
    #[arg(long = "preset", value_name = "PRESET", value_delimiter = ',', value_parser = choice)]
    presets: Vec<PolicyChoice>,
    /// Minimum recall of the recommended policy, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 97.0, value_parser = share)]
    min_recall: f64,
    /// Context window of the model in tokens, instead of the window of the preset or of `--model`
    #[arg(long, value_name = "TOKENS", value_parser = window)]
    window: Option<u32>,
    /// Model whose context window and prices apply, as in the table of models
    #[arg(long, value_name = "NAME", value_parser = model)]
    model: Option<ModelChoice>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Write a chart of cost against recall
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Write the settings of the recommended policy, as a policy for `--preset` and for the section `[policy]`
    #[arg(long, value_name = "FILE.toml")]
    output: Option<PathBuf>,
    /// Transcript files, or folders with such files [default: the logs of the agents on this machine]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

fn share(text: &str) -> Result<f64, String> {
    let percent: Option<f64> = text.trim().trim_end_matches('%').trim_end().parse().ok();
    // `contains` is false for NaN, which `parse` accepts.
    percent
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| "must be a number from 0 to 100".to_owned())
}

impl Tune {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let transcripts = Transcripts::find(&self.paths, self.format)?;
        let prices = self.model.and_then(|model| model.relative_prices());
        let settings = ModelSettings {
            window: self.window.or(self.model.map(|model| model.window)),
            prices,
        };
        let candidates = candidates(settings, self.presets)?;
        let mut tuned = tune(&TuneInput {
            transcripts: &transcripts,
            candidates: &candidates,
            window: self.model.map(|model| model.limits).unwrap_or_default(),
            prices: prices.unwrap_or_default(),
        })?;
        transcripts.require_sessions(tuned.sessions)?;
        if tuned.sessions == 0 {
            let reason = tuned.unrecognized.first().cloned();
            return Err(files::no_session(transcripts.files().len(), reason));
        }
        show_logs(&transcripts.report(&tuned.outcomes), self.json)?;
        if transcripts.are_logs() {
            // The report on the folders lists these files already. In the folders of agents, they are no error.
            tuned.unrecognized.clear();
        }
        // The flag is in percent, and recalls are shares.
        let best = recommend(&candidates, &tuned.results, self.min_recall / 100.0);
        if let Some(path) = &self.plot {
            files::write(path, &plot::draw(&tuned, best))?;
        }
        let settings = best.and_then(|best| candidates[best].settings.as_deref());
        if let (Some(path), Some(settings)) = (&self.output, settings) {
            files::write(path, settings)?;
        }
        if self.json {
            print_json(&report::json(&tuned, &candidates, best)?)?;
        } else {
            table::show(&tuned)?;
            show_recommendation(&candidates, &tuned, best, self.min_recall)?;
        }
        files::require_recognized(
            tuned.unrecognized.len(),
            transcripts.files().len(),
            "replayed",
        )
    }
}

fn show_recommendation(
    candidates: &[Candidate],
    tuned: &TuneResults,
    best: Option<usize>,
    min_recall: f64,
) -> anyhow::Result<()> {
    let Some(best) = best else {
        return print_line(&format!(
            "No policy has a recall of {min_recall} %: pass a lower --min-recall."
        ));
    };
    let (candidate, result) = (&candidates[best], &tuned.results[best]);
    print_line(&format!(
        "Recommended: {}, the cheapest policy with a recall of at least {min_recall} % (it has {}). Its settings:",
        result.name,
        percent(result.recall()),
    ))?;
    let settings = candidate.settings.as_deref().unwrap_or_default();
    print(&format!("\n[policy]\n{settings}"))
}
