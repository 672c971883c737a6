//! `palimpsest completions`: so that the shell knows the commands.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::output::print_document;
use crate::Cli;

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
    pub(super) fn run(self) -> anyhow::Result<()> {
        // Into memory first: the generator panics on a closed pipe.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "palimpsest", &mut script);
        print_document(&String::from_utf8_lossy(&script))
    }
}
