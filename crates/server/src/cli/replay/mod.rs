//! `palimpsest replay`: what would each preset make of these transcripts?

mod plot;
mod report;
mod run;
mod table;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use palimpsest_core::policy::{Policy, Preset};
use palimpsest_core::replay::{Measured, no_levels};

use self::run::{Replayed, replay};
use super::files::{self, Format};
use super::output::{number, print};

/// The name of the policy that leaves everything as it came.
const NONE: &str = "none";

/// Replay transcripts in process under presets, and compare tokens, cost and what stays in reach
#[derive(Debug, Args)]
#[command(
    after_help = "Every transcript is driven turn by turn through the whole pipeline, with its own clock
and usage, for each preset and for `none`, which leaves everything as it came. Nothing is
sent anywhere, no model is asked and no server is needed. The exit code is 1 when a view
is not valid, when one breaks the prompt cache without an event that says why, or when
something that left a view cannot be found again.

Examples:
  palimpsest replay ~/.claude/projects/my-project --format claude-code --preset claude-code,opencode
  palimpsest replay session.jsonl --format claude-code --plot tokens.svg
  palimpsest replay conversations.jsonl --format openai --json"
)]
pub(super) struct Replay {
    /// How the files are written
    #[arg(long)]
    format: Format,
    /// Presets to compare: claude-code, claude-code-2.1.19, opencode, threshold; `none` always joins
    #[arg(long = "preset", value_name = "PRESET", value_delimiter = ',', value_parser = choice)]
    #[arg(default_value = "claude-code")]
    presets: Vec<Choice>,
    /// Print the numbers as JSON, also those of each file
    #[arg(long)]
    json: bool,
    /// Draw the tokens of each request of the longest session
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Files, or folders of them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// A policy to replay under; no preset is no levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Choice(Option<Preset>);

fn choice(text: &str) -> Result<Choice, String> {
    if text == NONE {
        return Ok(Choice(None));
    }
    let preset = Preset::by_name(text).ok_or_else(|| {
        let names = Preset::ALL.map(Preset::name).join(", ");
        format!("must be one of {names}, {NONE}")
    })?;
    Ok(Choice(Some(preset)))
}

impl Choice {
    fn name(self) -> &'static str {
        self.0.map_or(NONE, Preset::name)
    }

    fn policy(self) -> Arc<Policy> {
        Arc::new(self.0.map_or_else(no_levels, Preset::policy))
    }
}

impl Replay {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let files = files::find(&self.paths)?;
        let replayed = replay(&files, self.format, &self.choices())?;
        if replayed.sessions() == 0 {
            bail!(
                "no session found in {} files: is --format right?",
                files.len()
            );
        }
        if let Some(path) = &self.plot {
            std::fs::write(path, plot::draw(&replayed))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if self.json {
            print(&format!("{}\n", report::json(&replayed)?))?;
        } else {
            table::show(&replayed)?;
        }
        conclude(&replayed, self.json)
    }

    /// The presets that were named, each once; then `none`, with which they are compared.
    fn choices(&self) -> Vec<Choice> {
        let mut choices: Vec<Choice> = Vec::new();
        for choice in &self.presets {
            if choice.0.is_some() && !choices.contains(choice) {
                choices.push(*choice);
            }
        }
        choices.push(Choice(None));
        choices
    }
}

/// The last line says whether every promise was kept.
fn conclude(replayed: &Replayed, json: bool) -> anyhow::Result<()> {
    let broken: usize = replayed.totals.iter().map(Measured::broken).sum();
    if broken > 0 {
        let broken = number(broken as u64);
        bail!(
            "{broken} promises broken: invalid views, prefix violations or lost probes, see above"
        );
    }
    if json {
        return Ok(());
    }
    print(
        "Every view that was sent is valid and continues the one before, except where an event says \
         otherwise; what left a view can be found again.\n",
    )
}
