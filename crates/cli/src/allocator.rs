//! The allocator setting of servers and workers.

/// The environment variable that mimalloc reads: the delay in milliseconds before it returns free memory to the system.
const PURGE_DELAY: &str = "MIMALLOC_PURGE_DELAY";

/// Restarts this program with an allocator that returns free memory immediately. A delay in the environment stays.
///
/// With a delay, mimalloc defers the return while memory is allocated and freed. Under attack, the process then takes
/// three times the memory in use. mimalloc reads its settings before `main`, and only from the environment.
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
        // `exec` returns only if it fails.
        let error = command.args(arguments).env(PURGE_DELAY, "0").exec();
        // The program works without the setting.
        tracing::debug!(%error, "failed to restart with {PURGE_DELAY}");
    }
}
