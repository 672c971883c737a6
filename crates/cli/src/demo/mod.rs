//! `palimpsest demo`: a long session played through a server of its own, with a picture of what becomes of
//! its context.
//!
//! What is shown is what the service said: the server is the real one, the messages go through gRPC, and a
//! second session takes the same messages with every level off, to compare. The conversation alone is
//! made up (`story`): no model is asked, and no price but the configured ones is known.

mod picture;
mod play;
mod player;
mod readback;
mod report;
mod server;
mod stage;
mod story;
mod timeline;
mod watch;

use std::path::PathBuf;
use std::process;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use self::play::{DemoOutcome, DemoRun};
use self::server::DemoServer;
use self::stage::Display;
use self::story::Story;
use super::client::block_on;
use super::output::print;

/// How long the session takes to play at the speed 1.
const PLAYING: Duration = Duration::from_secs(20);
/// What a shell calls a process that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Watch a long session stay within its window: no key, no database, nothing to set up
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest demo
  palimpsest demo --fast --seed 7
  palimpsest demo | cat                     plain lines, for logs

Everything runs in this process, on a temporary folder that is removed at the end. A coding session is
made up and played through the real services; a second session takes the same messages with every level
off. The exit code is 1 when a view is not valid, or when something cannot be read back as it was.")]
pub(super) struct Demo {
    /// Which session to make up; the same seed gives the same one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How fast to play: 2 is twice as fast
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Do not wait between requests; always so when the output is no terminal
    #[arg(long)]
    fast: bool,
    /// Write the last picture to this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "is not a number".to_owned())?;
    if (0.1..=100.0).contains(&speed) {
        Ok(speed)
    } else {
        Err("must lie between 0.1 and 100".to_owned())
    }
}

impl Demo {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let played = block_on(self.play())?;
        let Some(outcome) = played else {
            // Everything is closed and removed by now.
            process::exit(INTERRUPTED);
        };
        if let Some(file) = &self.svg {
            std::fs::write(file, stage::svg(&outcome.picture))?;
        }
        print(&report::text(&outcome))?;
        outcome.check()
    }

    /// Plays it all; nothing comes of it when somebody stopped it.
    async fn play(&self) -> anyhow::Result<Option<DemoOutcome>> {
        let mut interrupts = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        let [int, term, hup] = &mut interrupts;
        let story = Story::new(self.seed);
        let stage = Display::open();
        let time = (stage.is_live() && !self.fast).then(|| PLAYING.div_f64(self.speed));
        let house = DemoServer::open().await?;
        let playing = async {
            let play = DemoRun::new(&house, stage, &story, self.seed, time).await?;
            play.run(&story).await
        };
        let played = tokio::select! {
            played = playing => played.map(Some),
            _ = int.recv() => Ok(None),
            _ = term.recv() => Ok(None),
            _ = hup.recv() => Ok(None),
        };
        house.close().await?;
        played
    }
}
