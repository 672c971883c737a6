//! `palimpsest man`: prints or writes the manual pages.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};

use super::output::print_document;
use crate::Cli;

/// Print the manual page, or write the manual pages of all commands to a folder
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest man > palimpsest.1 && man ./palimpsest.1
  palimpsest man --output ~/.local/share/man/man1")]
pub(super) struct Man {
    /// Folder for the pages of all commands, such as palimpsest-serve.1
    #[arg(long, short, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let Some(folder) = &self.output else {
            let mut page = Vec::new();
            // A closed pipe is no error for `print_document`, so the page is rendered in memory first.
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            return print_document(&String::from_utf8_lossy(&page));
        };
        let write_failed = || format!("cannot write manual pages to {}", folder.display());
        fs::create_dir_all(folder).with_context(write_failed)?;
        clap_mangen::generate_to(Cli::command(), folder).with_context(write_failed)
    }
}
