//! The command line: the list of commands, and the text of their errors.

use clap::{Parser, Subcommand};

use crate::{
    backup, compact_store, completions, config, demo, export, health, import, inspect, keys,
    migrate, replay, restore, retention, schema, serve, sessions, terminal, verify, verify_store,
    view, worker,
};

/// Owns the context of LLM agents: messages go in over gRPC, the array to send comes out.
#[derive(Debug, Parser)]
#[command(name = "palimpsest", version, arg_required_else_help = true)]
#[command(after_help = "Examples:
  palimpsest demo                           a long session, live: a good place to begin
  palimpsest serve                          everything on this machine, nothing to set up
  palimpsest serve --data-dir /var/lib/palimpsest --log-format json
  palimpsest config                         every setting, its value, and where it is set")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    Serve(serve::ServeCommand),
    Worker(worker::WorkerCommand),
    Health(health::HealthCommand),
    Import(import::Import),
    Sessions(sessions::SessionsCommand),
    Inspect(inspect::Inspect),
    View(view::ViewCommand),
    Export(export::Export),
    Verify(verify::Verify),
    Replay(replay::Replay),
    Keys(keys::KeysCommand),
    Backup(backup::BackupCommand),
    Restore(restore::RestoreCommand),
    Retention(retention::RetentionCommand),
    VerifyStore(verify_store::VerifyStore),
    CompactStore(compact_store::CompactStore),
    Schema(schema::Schema),
    Migrate(migrate::Migrate),
    Config(config::ConfigCommand),
    Completions(completions::Completions),
}

impl Cli {
    /// Does what the command says.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Demo(command) => command.run(),
            Command::Serve(command) => command.run(),
            Command::Worker(command) => command.run(),
            Command::Health(command) => command.run(),
            Command::Import(command) => command.run(),
            Command::Sessions(command) => command.run(),
            Command::Inspect(command) => command.run(),
            Command::View(command) => command.run(),
            Command::Export(command) => command.run(),
            Command::Verify(command) => command.run(),
            Command::Replay(command) => command.run(),
            Command::Keys(command) => command.run(),
            Command::Backup(command) => command.run(),
            Command::Restore(command) => command.run(),
            Command::Retention(command) => command.run(),
            Command::VerifyStore(command) => command.run(),
            Command::CompactStore(command) => command.run(),
            Command::Schema(command) => command.run(),
            Command::Migrate(command) => command.run(),
            Command::Config(command) => command.run(),
            Command::Completions(command) => command.run(),
        }
    }
}

/// An error with its causes, safe for a terminal. A cause that the text before it repeats is left out.
pub fn error_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    terminal::lines(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};
    use clap::CommandFactory as _;

    #[test]
    fn an_error_has_its_causes_once_and_no_controls() {
        let error = anyhow!("permission \u{1b}[2Jdenied").context("failed to read x: permission");
        let text = super::error_text(&error.context("nothing was done"));
        assert_eq!(
            text,
            r"nothing was done: failed to read x: permission: permission \u{1b}[2Jdenied"
        );
        let repeated: anyhow::Result<()> = Err(anyhow!("denied")).context("x is denied");
        assert_eq!(super::error_text(&repeated.unwrap_err()), "x is denied");
    }

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
