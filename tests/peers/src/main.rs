//! Palimpsest's part of the comparison with other libraries: the conversations, Palimpsest as a participant, and the
//! judge of all views.
//!
//! The other libraries are in `python/` and `ai-agent/`. `python/compare.py` runs all participants.

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
    /// Writes the conversations for all participants, one file each
    Conversations {
        /// The target folder.
        #[arg(long)]
        to: PathBuf,
        /// A folder of Claude Code transcripts. Default: synthetic conversations from a seed
        #[arg(long)]
        transcripts: Option<PathBuf>,
        /// Number of synthetic conversations.
        #[arg(long, default_value_t = 8)]
        made: u64,
        /// Minimum number of model calls. Shorter conversations are left out.
        #[arg(long, default_value_t = 20)]
        min_calls: usize,
    },
    /// Plays conversations in this process, by requests from standard input
    Core {
        /// The variant in which Palimpsest plays
        #[arg(long, value_enum, default_value = "delta")]
        way: core_session::Way,
    },
    /// Plays conversations through a server over gRPC, by requests from standard input
    Wire,
    /// Judges files of views, by requests from standard input
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
