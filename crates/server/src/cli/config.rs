//! `palimpsest config`: which settings are in force, and who set them.

use std::io::{self, Write as _};

use clap::Args;

use super::settings::Settings;

/// Print the configuration in force as TOML, with the origin of each value
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest config > palimpsest.toml       a file to begin with
  palimpsest config --check --config palimpsest.toml

A value comes from the defaults, the file, the environment (PALIMPSEST_LISTEN,
PALIMPSEST_LIMITS_MAX_MESSAGES, …) or a flag; the later wins.")]
pub(super) struct Print {
    /// Print nothing: only say whether the configuration is good (exit code 0) or not (64)
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    settings: Settings,
}

impl Print {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let loaded = self.settings.load()?;
        if self.check {
            return Ok(());
        }
        match io::stdout().write_all(loaded.to_toml().as_bytes()) {
            // Whoever reads it has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            outcome => Ok(outcome?),
        }
    }
}
