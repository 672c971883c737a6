//! Crash points for tests. At a crash point the process aborts without running destructors, like a
//! power failure. They exist only in debug builds and are inactive unless `CRASH_AT` contains the name
//! of one. `NAME:3` aborts when the point is reached for the third time.

#[cfg(debug_assertions)]
pub use in_debug::crash_point;

/// Does nothing in release builds.
#[cfg(not(debug_assertions))]
#[inline]
pub const fn crash_point(_name: &'static str) {}

#[cfg(debug_assertions)]
mod in_debug {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct CrashRequest {
        name: String,
        left: AtomicU64,
    }

    /// Aborts the process if `CRASH_AT` selects this point.
    pub fn crash_point(name: &'static str) {
        static WANTED: OnceLock<Option<CrashRequest>> = OnceLock::new();
        let wanted = WANTED.get_or_init(|| {
            let value = std::env::var("CRASH_AT").ok()?;
            let (name, times) = value.split_once(':').unwrap_or((&value, "1"));
            Some(CrashRequest {
                name: name.to_owned(),
                left: AtomicU64::new(times.parse().ok()?),
            })
        });
        let Some(wanted) = wanted.as_ref().filter(|wanted| wanted.name == name) else {
            return;
        };
        // `abort` runs no destructors, so nothing is flushed that a power failure would lose.
        if wanted.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            std::process::abort();
        }
    }
}
