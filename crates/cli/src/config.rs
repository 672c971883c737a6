//! `palimpsest config`: which settings are in force, and who set them.

use clap::Args;
use palimpsest_settings::{ConfigErrors, ConfigProblem, LoadedConfig};

use super::output::print_document;
use super::settings::Settings;

/// Print the configuration in force as TOML, with the origin of each value
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest config > palimpsest.toml       a file to begin with
  palimpsest config --check --config palimpsest.toml

A value comes from the defaults, the file, the environment (PALIMPSEST_LISTEN,
PALIMPSEST_LIMITS_MAX_MESSAGES, …) or a flag; the later wins.")]
pub(super) struct ConfigCommand {
    /// Print nothing: only say whether the configuration is good (exit code 0) or not (64)
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    settings: Settings,
}

/// The configuration is good; what it needs of the environment may still be missing.
fn check(loaded: &LoadedConfig) -> anyhow::Result<()> {
    let is_set = |variable: &str| std::env::var_os(variable).is_some_and(|it| !it.is_empty());
    let missing = loaded.config.summarizer.missing_keys(is_set);
    let problems = missing.into_iter().map(|(key, variable)| ConfigProblem {
        origin: loaded.origin(key),
        key: Some(key.to_owned()),
        what: format!(
            "names the variable {variable}, which is not set: every summary would be made without the \
             model; set the variable, or name a file with api_key_file"
        ),
    });
    let problems: Vec<ConfigProblem> = problems.collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(ConfigErrors(problems).into())
}

impl ConfigCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let loaded = self.settings.load()?;
        if self.check {
            return check(&loaded);
        }
        print_document(&loaded.to_toml())
    }
}
