//! `palimpsest schema`: creates, checks or prints the tables of a database that servers share.

use anyhow::bail;
use clap::{Args, Subcommand};
use palimpsest_server::store;
use palimpsest_store::postgres::{self, PostgresOptions, SchemaState};

use super::client::block_on;
use super::output::{print_document, print_line};
use super::settings::Settings;

/// Create or update the tables in the database that servers share
#[derive(Debug, Args)]
#[command(
    after_help = "store.postgres.url is the address of the database. A server applies the schema when it starts, unless \
store.postgres.auto_migrate is false. If it is false, servers need no right to create or change tables. \
Servers of the previous release continue to work on the tables of this release.

Examples:
  palimpsest schema apply --config palimpsest.toml
  palimpsest schema check --config palimpsest.toml
  palimpsest schema print | psql -d palimpsest"
)]
pub(super) struct Schema {
    #[command(subcommand)]
    action: SchemaAction,
}

#[derive(Debug, Subcommand)]
enum SchemaAction {
    /// Create or update the tables if necessary; safe to run on several machines at once
    #[command(after_help = "Examples:
  palimpsest schema apply --config palimpsest.toml")]
    Apply(Settings),
    /// Print the version of the tables; the exit code is 1 if this release cannot use them
    #[command(after_help = "Examples:
  palimpsest schema check --config palimpsest.toml")]
    Check(Settings),
    /// Print the SQL statements that create the tables, for an administrator
    #[command(after_help = "Examples:
  palimpsest schema print | psql -d palimpsest")]
    Print(Settings),
}

impl Schema {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.action {
            SchemaAction::Print(settings) => {
                let loaded = settings.load()?;
                let text = postgres::print(loaded.config.store.postgres.schema());
                print_document(&text)
            }
            SchemaAction::Apply(settings) => block_on(async {
                let options = options(settings)?;
                let state = postgres::apply(&options).await?;
                print_state(&options, state)
            }),
            SchemaAction::Check(settings) => block_on(async {
                let options = options(settings)?;
                let state = postgres::state(&options).await?;
                print_state(&options, state)?;
                if !state.is_usable() {
                    bail!("{}", unusable(&state));
                }
                Ok(())
            }),
        }
    }
}

fn options(settings: Settings) -> anyhow::Result<PostgresOptions> {
    let loaded = settings.load()?;
    let options = store::database(&loaded.config);
    options.map_err(anyhow::Error::from_boxed)
}

fn print_state(options: &PostgresOptions, state: SchemaState) -> anyhow::Result<()> {
    let schema = &options.schema;
    match state.version {
        0 => print_line(&format!("the schema {schema} has no tables")),
        version => print_line(&format!(
            "the tables in the schema {schema} have version {version}; releases with version {} or later can use them",
            state.oldest
        )),
    }
}

/// Returns the reason why this release cannot use the tables, and the next step.
fn unusable(state: &SchemaState) -> String {
    let supported = state.supported;
    if state.version < supported {
        return format!(
            "this release needs version {supported} of the tables: run `palimpsest schema apply`"
        );
    }
    format!("this release has version {supported} of the tables: use a newer release")
}
