//! How a participant is asked to play: a line of JSON in, a line of JSON out. The first line out says who
//! it is. Everybody speaks this, in whatever language it is written.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What is asked: one work on one conversation, from its beginning to its end.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    pub(crate) work: String,
    pub(crate) conversation: PathBuf,
    /// Where to write down every view; none when time is measured.
    pub(crate) views: Option<PathBuf>,
}

/// What it took.
#[derive(Debug, Serialize)]
pub(crate) struct Played {
    /// Nanoseconds of each model call.
    pub(crate) call_ns: Vec<u64>,
}

/// Answers one line after the other until there are no more.
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
        out.flush()?;
    }
    Ok(())
}

/// Takes the time of a call.
pub(crate) struct Watch {
    real: Instant,
    busy: Duration,
}

impl Watch {
    /// Begins.
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

    /// The time that went by.
    pub(crate) fn real_ns(&self) -> u64 {
        nanos(self.real.elapsed())
    }

    /// The same without the time in which somebody else had the processor: no more than this process was
    /// busy. Who works with several threads at once is told the time that went by.
    pub(crate) fn own_ns(&self) -> u64 {
        let busy = busy().saturating_sub(self.busy);
        nanos(busy.min(self.real.elapsed()))
    }
}

/// How long this process has been busy.
fn busy() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
