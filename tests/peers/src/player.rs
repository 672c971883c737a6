//! How a participant is asked to play: a line of JSON in, a line of JSON out. The first line out says who
//! it is. Everybody speaks this, in whatever language it is written.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

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

/// Now, for a measurement.
#[expect(
    clippy::disallowed_methods,
    reason = "what is measured here is real time"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A time as it is told.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
