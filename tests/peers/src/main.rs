//! Palimpsest's side of the comparison with other libraries: the conversations that all of them play,
//! Palimpsest as one of those who play them, and the judge of every view that comes out.
//!
//! Not here: the other libraries (`python/`, `ai-agent/`), and who plays when (`python/compare.py`).

mod conversation;
mod core_session;
mod generate;
mod judge;
mod player;
mod transcripts;
mod views;
mod wire;
mod works;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "palimpsest-peers",
    about = "Palimpsest's side of the comparison with other libraries"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Writes down the conversations that everybody plays, one file each
    Conversations {
        /// Where to.
        #[arg(long)]
        to: PathBuf,
        /// A folder of Claude Code's transcripts; without it conversations are made up from a seed
        #[arg(long)]
        transcripts: Option<PathBuf>,
        /// How many are made up.
        #[arg(long, default_value_t = 8)]
        made: u64,
        /// Conversations with fewer model calls are left out.
        #[arg(long, default_value_t = 20)]
        min_calls: usize,
    },
    /// Plays conversations in this process, as asked on standard input
    Core {
        /// How Palimpsest plays
        #[arg(long, value_enum, default_value = "delta")]
        way: core_session::Way,
    },
    /// Plays conversations through a server over gRPC, as asked on standard input
    Wire,
    /// Judges files of views, as asked on standard input
    Judge,
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Conversations {
            to,
            transcripts,
            made,
            min_calls,
        } => {
            let conversations = match transcripts {
                Some(folder) => transcripts::read(&folder)?,
                None => generate::make(made),
            };
            conversation::write(&to, conversations, min_calls)
        }
        Command::Core { way } => core_session::play(way),
        Command::Wire => wire::play(),
        Command::Judge => judge::run(),
    }
}
