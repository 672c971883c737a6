//! `palimpsest demo`: plays a long session through a private server and draws its context window.
//!
//! All figures come from replies of a real server over gRPC. A second session receives the same messages with every
//! level off, for comparison. Only the conversation is generated (`story`). No model is called, and costs use the
//! configured prices.

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

use anyhow::Context as _;
use clap::Args;

use self::play::{DemoOutcome, DemoRun};
use self::server::DemoServer;
use self::stage::Display;
use self::story::Story;
use super::client::block_on;
use super::output::print;
use super::screen::{INTERRUPTED, Interrupt};

/// The duration of the demo at speed 1.
const PLAYING: Duration = Duration::from_secs(20);

/// Play a generated session and watch its context window; needs no setup
#[derive(Debug, Args)]
#[command(
    after_help = "The demo generates a coding session and plays it through a real server in this process. It needs no \
API key and no database. A second session receives the same messages with every level off, for comparison. The data \
is in a temporary folder, which is removed at the end. With --keep, the server runs until Ctrl-C. The exit code is 1 if a view is not valid, or if a message \
cannot be read back byte for byte.

Examples:
  palimpsest demo
  palimpsest demo --fast --seed 7
  palimpsest demo --keep                    then look at the session in a browser
  palimpsest demo | cat                     plain lines, for logs"
)]
pub(super) struct Demo {
    /// Seed of the generated session; the same seed gives the same session
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Speed factor from 0.1 to 100: 2 is twice as fast
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Do not pause between requests; the default if the output is not a terminal
    #[arg(long)]
    fast: bool,
    /// Keep the server at the end, and print the address of the page that shows the session
    #[arg(long)]
    keep: bool,
    /// Write the last picture to a file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "is not a number".to_owned())?;
    if (0.1..=100.0).contains(&speed) {
        Ok(speed)
    } else {
        Err("must be between 0.1 and 100".to_owned())
    }
}

impl Demo {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let played = block_on(self.play())?;
        let Some(outcome) = played else {
            // The server is closed and its folder is removed, so the exit skips no cleanup.
            process::exit(INTERRUPTED);
        };
        outcome.check()
    }

    /// Writes the picture and the report.
    fn report(&self, outcome: &DemoOutcome) -> anyhow::Result<()> {
        if let Some(file) = &self.svg {
            std::fs::write(file, stage::svg(&outcome.picture))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        print(&report::text(outcome))
    }

    /// Plays the whole session. Returns `None` if a signal interrupted it.
    async fn play(&self) -> anyhow::Result<Option<DemoOutcome>> {
        // The handlers precede the server, because a signal in between would leave its temporary folder behind.
        let mut interrupt = Interrupt::new()?;
        let story = Story::new(self.seed);
        let stage = Display::open();
        let time = (stage.is_live() && !self.fast).then(|| PLAYING.div_f64(self.speed));
        let server = DemoServer::open().await?;
        let playing = async {
            let play = DemoRun::new(&server, stage, &story, self.seed, time).await?;
            play.run(&story).await
        };
        let played = tokio::select! {
            played = playing => played.map(Some),
            // The other branch is dropped, and the terminal with it, so the terminal is restored.
            () = interrupt.received() => Ok(None),
        };
        if let Ok(Some(outcome)) = &played {
            self.report(outcome)?;
            if self.keep {
                print(&play::keep_text(server.address()))?;
                interrupt.received().await;
            }
        }
        // This runs after a signal too, so that no folder is left behind.
        server.close().await?;
        played
    }
}
