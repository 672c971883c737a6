//! `palimpsest schema`: the tables of a database that many machines share.

use std::io::{self, Write as _};

use anyhow::bail;
use clap::{Args, Subcommand};
use palimpsest_server::store;
use palimpsest_store::postgres::{self, PostgresOptions, SchemaState};

use super::client::block_on;
use super::settings::Settings;

/// Make the tables in the database that servers share, or bring them up to this release
#[derive(Debug, Args)]
#[command(
    after_help = "store.postgres.url says where the database is. A server does this at its start, unless
store.postgres.auto_migrate is false; apart from it, servers need no right to make or change tables. While
servers of the release before are still at work, they go on on the tables of this one.

Examples:
  palimpsest schema apply --set store.postgres.url=postgres://owner@db/palimpsest --blobs s3://bucket
  palimpsest schema check --config palimpsest.toml
  palimpsest schema print | psql -d palimpsest"
)]
pub(super) struct Schema {
    #[command(subcommand)]
    what: SchemaAction,
}

#[derive(Debug, Subcommand)]
enum SchemaAction {
    /// Make or change the tables, if that is needed; several may do it at once
    Apply(Settings),
    /// Say what the tables are; the exit code is 1 unless this release works on them
    Check(Settings),
    /// Print the statements that make the tables, for somebody else to run
    Print(Settings),
}

impl Schema {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.what {
            SchemaAction::Print(settings) => {
                let loaded = settings.load()?;
                let text = postgres::print(loaded.config.store.postgres.schema());
                Ok(io::stdout().write_all(text.as_bytes())?)
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
                    bail!(
                        "this release does not work on them: it needs version {}",
                        state.supported
                    );
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
    let mut out = io::stdout();
    match state.version {
        0 => writeln!(out, "there are no tables in the schema {}", options.schema)?,
        version => writeln!(
            out,
            "the tables in the schema {} have version {version}; releases that bring version {} or later work on them",
            options.schema, state.oldest
        )?,
    }
    Ok(())
}
