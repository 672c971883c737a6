//! The protocol of participants: one JSON request per line of input, and one JSON reply per line of output. The first
//! line of output identifies the participant. All participants use this protocol, in any language.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A request: one work on one complete conversation.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    pub(crate) work: String,
    pub(crate) conversation: PathBuf,
    /// The file for all views. Absent in measurements of time.
    pub(crate) views: Option<PathBuf>,
}

/// The result of a request.
#[derive(Debug, Serialize)]
pub(crate) struct Played {
    /// Duration of each model call, in nanoseconds.
    pub(crate) call_ns: Vec<u64>,
}

/// Answers requests until the input ends.
pub(crate) fn serve(
    hello: &Value,
    mut answer: impl FnMut(&str) -> anyhow::Result<Value>,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{hello}")?;
    out.flush()?;
    for line in std::io::stdin().lock().lines() {
        let answered = answer(&line?);
        let answered = answered.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        writeln!(out, "{answered}")?;
        // The other side waits for each line.
        out.flush()?;
    }
    Ok(())
}

/// A timer for one call.
pub(crate) struct Watch {
    real: Instant,
    busy: Duration,
}

impl Watch {
    /// Starts the timer.
    #[expect(
        clippy::disallowed_methods,
        reason = "what is measured here is real time"
    )]
    pub(crate) fn start() -> Self {
        Self {
            real: Instant::now(),
            busy: busy(),
        }
    }

    /// Returns the elapsed time.
    pub(crate) fn real_ns(&self) -> u64 {
        nanos(self.real.elapsed())
    }

    /// Returns the elapsed time without the time in which other processes used the processor. The result is at most the
    /// processor time of this process. For several busy threads, the result is the elapsed time.
    pub(crate) fn own_ns(&self) -> u64 {
        let busy = busy().saturating_sub(self.busy);
        nanos(busy.min(self.real.elapsed()))
    }
}

/// Returns the processor time of this process.
fn busy() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
