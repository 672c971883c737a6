//! `palimpsest completions`: so that the shell knows the commands.

use std::io;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Cli;

/// Print a script that teaches a shell to complete the commands and flags
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest completions bash > ~/.local/share/bash-completion/completions/palimpsest
  palimpsest completions fish > ~/.config/fish/completions/palimpsest.fish")]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    #[expect(clippy::unnecessary_wraps, reason = "every command runs the same way")]
    pub(super) fn run(self) -> anyhow::Result<()> {
        clap_complete::generate(
            self.shell,
            &mut Cli::command(),
            "palimpsest",
            &mut io::stdout(),
        );
        Ok(())
    }
}
