//! Places at which a test ends the process, as a power failure or the kernel might: at once, without a
//! destructor. They are there in debug builds alone, and do nothing unless `CRASH_AT` names
//! one, as `NAME` or, for its third passing, `NAME:3`.

#[cfg(debug_assertions)]
pub use in_debug::crash_point;

/// Nothing, in a release.
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

    /// Ends the process here if a test wants that.
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
        if wanted.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            std::process::abort();
        }
    }
}
