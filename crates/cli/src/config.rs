//! `palimpsest config`: prints or checks the settings.

use clap::Args;
use palimpsest_settings::{ConfigErrors, ConfigProblem, LoadedConfig, json_schema};

use super::output::print_document;
use super::settings::Settings;

/// Print every setting as TOML, with its value and the origin of the value
#[derive(Debug, Args)]
#[command(
    after_help = "Settings are read from four layers. A later layer overrides an earlier one:
the defaults, the file (--config), environment variables (PALIMPSEST_LISTEN, \
PALIMPSEST_LIMITS_MAX_MESSAGES, …) and flags.

Examples:
  palimpsest config > palimpsest.toml                     create a configuration file
  palimpsest config --check --config palimpsest.toml
  palimpsest config --schema > palimpsest.schema.json     let an editor check and complete the file"
)]
pub(super) struct ConfigCommand {
    /// Check the configuration without printing it; the exit code is 64 if it is invalid
    #[arg(long)]
    check: bool,
    /// Print the JSON schema of the file instead: names, types, ranges and descriptions of all settings
    #[arg(long, conflicts_with = "check")]
    schema: bool,
    #[command(flatten)]
    settings: Settings,
}

/// Rejects a valid configuration that names an unset environment variable.
fn check(loaded: &LoadedConfig) -> anyhow::Result<()> {
    let is_set = |variable: &str| std::env::var_os(variable).is_some_and(|it| !it.is_empty());
    let of_models = loaded.config.summarizer.missing_keys(is_set).into_iter();
    let without_model = "Summaries would be extracted without the model";
    let of_models = of_models.map(|missing| (missing, without_model));
    let of_gateway = loaded.config.gateway.missing_keys(is_set).into_iter();
    let of_gateway = of_gateway.map(|missing| (missing, "The gateway would not start"));
    let problems = of_models
        .chain(of_gateway)
        .map(|((key, variable), effect)| ConfigProblem {
            origin: loaded.origin(key),
            key: Some(key.to_owned()),
            message: format!(
                "names the variable {variable}, which is not set. {effect}. Set the variable, or set api_key_file"
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
        if self.schema {
            let schema = serde_json::to_string_pretty(&json_schema())?;
            return print_document(&format!("{schema}\n"));
        }
        let loaded = self.settings.load()?;
        if self.check {
            return check(&loaded);
        }
        print_document(&loaded.to_toml())
    }
}
