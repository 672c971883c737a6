//! The command line: the list of commands and the text of their errors.

use clap::{Parser, Subcommand};

use crate::{
    backup, compact, compact_store, completions, config, demo, escapes, export, fork, health,
    import, inspect, keys, man, mcp, memory, migrate, recall, replay, restore, retention, run,
    schema, serve, sessions, snip, top, tune, undo, verify, verify_store, view, watch, worker,
};

/// A gRPC service that owns the context of LLM agents
#[derive(Debug, Parser)]
#[command(name = "palimpsest", version, arg_required_else_help = true)]
#[command(max_term_width = 100)]
#[command(after_help = "Examples:
  palimpsest demo                           play a generated session; needs no setup
  palimpsest run -- claude                  run an agent with a private gateway; needs no setup
  palimpsest serve                          run a server on 127.0.0.1:50051 with the data in ./data
  palimpsest serve --data-dir /var/lib/palimpsest --log-format json
  palimpsest config                         print every setting, its value and its origin

Environment variables:
  PALIMPSEST_URL       address of the server for commands that call a server
  PALIMPSEST_API_KEY   API key or JWT for these commands
  PALIMPSEST_PROJECT   project for these commands
  PALIMPSEST_<KEY>     any setting: limits.max_messages is PALIMPSEST_LIMITS_MAX_MESSAGES
  NO_COLOR             disables colors

Exit codes:
  0      success
  1      the command failed; the error is on standard error
  64     the command line or the configuration is invalid
  130    a signal interrupted `demo` or the screen of `top`
  128+N  a second signal N ended `serve` or `worker` during the drain
  any    `run` returns the exit code of the agent")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    Run(run::RunCommand),
    Serve(serve::ServeCommand),
    Worker(worker::WorkerCommand),
    Health(health::HealthCommand),
    Import(import::Import),
    Sessions(sessions::SessionsCommand),
    Inspect(inspect::Inspect),
    View(view::ViewCommand),
    Top(top::Top),
    Watch(watch::Watch),
    Compact(compact::Compact),
    Undo(undo::Undo),
    Snip(snip::Snip),
    Fork(fork::Fork),
    Memory(memory::MemoryCommand),
    Export(export::Export),
    Mcp(mcp::McpCommand),
    Verify(verify::Verify),
    Replay(replay::Replay),
    Recall(recall::Recall),
    Tune(tune::Tune),
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
    Man(man::Man),
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Demo(command) => command.run(),
            Command::Run(command) => command.run(),
            Command::Serve(command) => command.run(),
            Command::Worker(command) => command.run(),
            Command::Health(command) => command.run(),
            Command::Import(command) => command.run(),
            Command::Sessions(command) => command.run(),
            Command::Inspect(command) => command.run(),
            Command::View(command) => command.run(),
            Command::Top(command) => command.run(),
            Command::Watch(command) => command.run(),
            Command::Compact(command) => command.run(),
            Command::Undo(command) => command.run(),
            Command::Snip(command) => command.run(),
            Command::Fork(command) => command.run(),
            Command::Memory(command) => command.run(),
            Command::Export(command) => command.run(),
            Command::Mcp(command) => command.run(),
            Command::Verify(command) => command.run(),
            Command::Replay(command) => command.run(),
            Command::Recall(command) => command.run(),
            Command::Tune(command) => command.run(),
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
            Command::Man(command) => command.run(),
        }
    }
}

/// Returns an error and its causes, with control characters escaped. Omits a cause that the text already contains.
pub fn error_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    escapes::lines(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};
    use clap::CommandFactory as _;

    #[test]
    fn error_text_omits_repeated_causes_and_escapes_controls() {
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
