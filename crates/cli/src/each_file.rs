//! Parallel work on the files of a command, with a progress bar.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

use super::escapes;

/// Runs the work for each file, with one thread per processor. The results are in the order of the paths.
pub(super) fn each_file<T: Send>(
    files: &[PathBuf],
    work: impl Fn(&Path) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let style = ProgressStyle::with_template("{bar:40.cyan} {pos}/{len} files  {wide_msg}")?;
    let progress = ProgressBar::new(files.len() as u64).with_style(style);
    // The largest files are first, so that no thread works alone on a large file at the end.
    let mut order: Vec<&PathBuf> = files.iter().collect();
    order.sort_by_key(|file| std::cmp::Reverse(file.metadata().map_or(0, |about| about.len())));
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(files.len()) {
            scope.spawn(|| {
                // The counter only distributes indexes, and the mutex publishes the results, so no stronger ordering is
                // needed.
                while let Some(file) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    progress.set_message(escapes::line(&file_name(file)).into_owned());
                    let outcome = work(file);
                    progress.inc(1);
                    // The lock is poisoned only if another thread panicked. The scope passes that panic on.
                    if let Ok(mut done) = done.lock() {
                        // The map sorts by path, so reports do not depend on the order in which files end.
                        done.insert(*file, outcome);
                    }
                }
            });
        }
    });
    progress.finish_and_clear();
    // Poisoning is unreachable here: the scope has passed on the panic of any thread.
    let done = done.into_inner().unwrap_or_default();
    done.into_values().collect()
}

/// Returns the name of a file in reports.
pub(super) fn file_name(file: &Path) -> String {
    file.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
