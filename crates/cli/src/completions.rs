//! `palimpsest completions`: prints completion scripts for shells.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::output::print_document;
use crate::Cli;

/// Print a shell completion script for the commands and flags
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest completions bash > ~/.local/share/bash-completion/completions/palimpsest
  palimpsest completions fish > ~/.config/fish/completions/palimpsest.fish
  palimpsest completions zsh > \"${fpath[1]}/_palimpsest\"")]
pub(super) struct Completions {
    /// Name of the shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> anyhow::Result<()> {
        // The generator panics on a closed pipe, so it writes to memory first.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "palimpsest", &mut script);
        print_document(&String::from_utf8_lossy(&script))
    }
}
