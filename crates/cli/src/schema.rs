//! `palimpsest schema`: creates, checks or prints the tables of a database that servers share.

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use palimpsest_server::store;
use palimpsest_store::postgres::{self, Distribution, PostgresOptions, SchemaState};

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
  palimpsest schema apply --config palimpsest.toml
  palimpsest schema apply --distributed citus --config palimpsest.toml")]
    Apply(Apply),
    /// Print the version of the tables; the exit code is 1 if this release cannot use them
    #[command(after_help = "Examples:
  palimpsest schema check --config palimpsest.toml")]
    Check(Settings),
    /// Print the SQL statements that create the tables, for an administrator
    #[command(after_help = "Examples:
  palimpsest schema print | psql -d palimpsest")]
    Print(Settings),
}

#[derive(Debug, Args)]
struct Apply {
    /// Distribute the tables over the nodes of the database, and check their layout. Stop all servers and workers before
    #[arg(long, value_name = "EXTENSION", value_enum)]
    distributed: Option<Extension>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Extension {
    Citus,
}

impl Schema {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.action {
            SchemaAction::Print(settings) => {
                let loaded = settings.load()?;
                let text = postgres::print(loaded.config.store.postgres.schema());
                print_document(&text)
            }
            SchemaAction::Apply(apply) => block_on(async {
                let options = options(apply.settings)?;
                let distribution = apply
                    .distributed
                    .map(|Extension::Citus| Distribution::Citus);
                let state = postgres::apply(&options, distribution).await?;
                print_state(&options, state)
            }),
            SchemaAction::Check(settings) => block_on(async {
                let options = options(settings)?;
                let state = postgres::check(&options).await?;
                // The state is printed before the failure, so that the output has the version in both cases.
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
    }?;
    match state.nodes {
        Some(nodes) => print_line(&format!(
            "they are distributed with Citus: nodes with rows: {nodes}"
        )),
        None => Ok(()),
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
