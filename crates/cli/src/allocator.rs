//! The setting of the allocator that a server runs with.

/// The environment variable that mimalloc reads: milliseconds after which memory that is free goes back to the system.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";

/// Starts this program again with an allocator that returns free memory at once, unless the environment has a delay.
///
/// With any other delay mimalloc defers the return for as long as memory comes and goes: under attack the process then
/// takes three times what it uses. mimalloc reads its settings before `main`, and only from the environment.
pub(super) fn return_free_memory_at_once() {
    #[cfg(unix)]
    if std::env::var_os(PURGE_DELAY).is_none()
        && let Ok(program) = std::env::current_exe()
    {
        use std::os::unix::process::CommandExt as _;
        let mut arguments = std::env::args_os();
        let mut command = std::process::Command::new(program);
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        // On success this does not return.
        let error = command.args(arguments).env(PURGE_DELAY, "0").exec();
        // The program works without.
        tracing::debug!(%error, "failed to start again with {PURGE_DELAY}");
    }
}
