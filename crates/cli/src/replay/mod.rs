//! `palimpsest replay`: what would each preset make of these transcripts?

mod plot;
mod report;
mod run;
mod summaries;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use palimpsest_core::policy::{Overlay, Policy, Preset};
use palimpsest_transcripts::replay::{ReplayMetrics, no_levels};

use self::run::{ReplayResults, replay};
use super::files::{self, Format};
use super::output::{number, print, print_json};

/// The name of the policy that leaves everything as it came.
const NONE: &str = "none";

/// Replay transcripts in process under presets, and compare tokens, cost and what stays in reach
#[derive(Debug, Args)]
#[command(
    after_help = "Every transcript is driven turn by turn through the whole pipeline, with its own clock
and usage, for each preset and for `none`, which leaves everything as it came. A view that
grows too large is compacted with session memory, else with a summary from structure.
Nothing is sent anywhere, no model is asked and no server is needed. The exit code is 1
when a view is not valid, when one breaks the prompt cache without an event that says why,
when something that left a view cannot be found again, or when the user's latest message
did not stay word for word in a view that was compacted.

Examples:
  palimpsest replay ~/.claude/projects/my-project --format claude-code --preset claude-code,opencode
  palimpsest replay session.jsonl --format claude-code --preset claude-code,mine.toml --plot tokens.svg
  palimpsest replay session.jsonl --format claude-code --window 64000 --summaries summaries.md
  palimpsest replay conversations.jsonl --format openai --json"
)]
pub(super) struct Replay {
    /// How the files are written
    #[arg(long)]
    format: Format,
    /// Presets to compare: claude-code, claude-code-2.1.19, opencode, threshold, or files of settings
    /// (.toml) over a preset; `none` always joins
    #[arg(long = "preset", value_name = "PRESET", value_delimiter = ',', value_parser = choice)]
    #[arg(default_value = "claude-code")]
    presets: Vec<PolicyChoice>,
    /// The model's window in tokens, in place of what each preset takes it for. An eighth of it, but no
    /// more than the preset says, is set aside for the answer
    #[arg(long, value_name = "TOKENS", value_parser = window)]
    window: Option<u32>,
    /// Print the numbers as JSON, also those of each file
    #[arg(long)]
    json: bool,
    /// Draw the tokens of each request of the longest session
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Write the summaries of all compactions down
    #[arg(long, value_name = "FILE.md")]
    summaries: Option<PathBuf>,
    /// Files, or folders of them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// A policy to replay under.
#[derive(Debug, Clone)]
struct PolicyChoice {
    name: String,
    policy: Arc<Policy>,
}

/// A number of tokens, such as `64000`, `64_000`, `64k` or `1m`.
fn window(text: &str) -> Result<u32, String> {
    let lower = text.trim().to_ascii_lowercase().replace(['_', ','], "");
    let (digits, unit) = match (lower.strip_suffix('k'), lower.strip_suffix('m')) {
        (Some(digits), _) => (digits, 1_000),
        (None, Some(digits)) => (digits, 1_000_000),
        (None, None) => (lower.as_str(), 1),
    };
    let tokens = digits
        .parse::<u32>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    tokens
        .filter(|tokens| (8_000..=10_000_000).contains(tokens))
        .ok_or_else(|| "must be from 8000 to 10000000 tokens, such as 64000 or 64k".to_owned())
}

fn choice(text: &str) -> Result<PolicyChoice, String> {
    if text == NONE {
        return Ok(none());
    }
    let is_file = Path::new(text).extension().is_some_and(|it| it == "toml");
    if is_file {
        return of_file(Path::new(text));
    }
    let preset = Preset::by_name(text).ok_or_else(|| {
        let names = Preset::ALL.map(Preset::name).join(", ");
        format!("must be one of {names}, {NONE}, or a file that ends with .toml")
    })?;
    Ok(PolicyChoice {
        name: preset.name().into(),
        policy: Arc::new(preset.policy()),
    })
}

fn none() -> PolicyChoice {
    PolicyChoice {
        name: NONE.into(),
        policy: Arc::new(no_levels()),
    }
}

/// A policy for a model with another window.
fn with_window(policy: &Policy, window: u32) -> Policy {
    let mut policy = policy.clone();
    policy.tokens.default_window_tokens = window;
    let reserve = &mut policy.autocompact.output_reserve_tokens;
    *reserve = (*reserve).min(window / 8);
    policy
}

/// Settings over a preset, as `[policy]` has them in the server's configuration.
fn of_file(path: &Path) -> Result<PolicyChoice, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("cannot be read: {error}"))?;
    let policy = Overlay::from_toml(&text).and_then(|overlay| overlay.resolve(Preset::default()));
    let policy = policy.map_err(|error| format!("has a bad setting: {error}"))?;
    let stem = path.file_stem().unwrap_or_default();
    Ok(PolicyChoice {
        name: stem.to_string_lossy().into_owned(),
        policy: Arc::new(policy),
    })
}

impl Replay {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let files = files::find(&self.paths)?;
        let replayed = replay(&files, self.format, &self.choices())?;
        if replayed.sessions() == 0 {
            let mut reasons = replayed.files.iter().filter_map(|file| {
                let what = file.unrecognised.as_ref()?;
                Some(format!("{} {what}", file.file))
            });
            let reason = reasons
                .next()
                .map_or_else(String::new, |what| format!("; {what}"));
            bail!(
                "no session found in {} files: is --format right?{reason}",
                files.len()
            );
        }
        if let Some(path) = &self.plot {
            std::fs::write(path, plot::draw(&replayed))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(path) = &self.summaries {
            std::fs::write(path, summaries::write(&replayed))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if self.json {
            print_json(&report::json(&replayed)?)?;
        } else {
            table::show(&replayed)?;
        }
        conclude(&replayed, self.json)
    }

    /// The policies that were named, each once; then `none`, with which they are compared.
    fn choices(&self) -> Vec<PolicyChoice> {
        let mut choices: Vec<PolicyChoice> = Vec::new();
        for choice in &self.presets {
            let is_new = choices.iter().all(|known| known.name != choice.name);
            if choice.name != NONE && is_new {
                choices.push(choice.clone());
            }
        }
        choices.push(none());
        if let Some(window) = self.window {
            for choice in &mut choices {
                choice.policy = Arc::new(with_window(&choice.policy, window));
            }
        }
        choices
    }
}

/// The last line says whether every promise was kept.
fn conclude(replayed: &ReplayResults, json: bool) -> anyhow::Result<()> {
    let broken: usize = replayed
        .totals
        .iter()
        .map(ReplayMetrics::violation_count)
        .sum();
    if broken > 0 {
        let broken = number(broken as u64);
        bail!(
            "{broken} promises broken: invalid views, prefix violations, lost probes or lost requests, see above"
        );
    }
    let foreign = replayed
        .files
        .iter()
        .filter(|it| it.unrecognised.is_some())
        .count();
    if foreign > 0 {
        bail!(
            "{foreign} of {} files were not recognised, and nothing of them was replayed",
            replayed.files.len()
        );
    }
    if json {
        return Ok(());
    }
    print(
        "Every view that was sent is valid and continues the one before, except where an event says \
         otherwise; what left a view can be found again, and what the user said last is in it.\n",
    )
}
