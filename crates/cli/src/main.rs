//! The `palimpsest` binary: parses the command line, runs the command and prints its error.

use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::Parser as _;
use palimpsest_settings::ConfigErrors;

/// mimalloc replaces the system allocator, because a call allocates and frees many small objects on several threads.
/// The system allocator takes a fifth of the time of a call. mimalloc takes half of that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exit code for an invalid command line or configuration (`EX_USAGE` of `sysexits.h`). A restart with the same input
/// fails again.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    disable_huge_pages();
    let cli = match palimpsest_cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => {
            // clap returns the output of `--help` and `--version` as an error too. A closed pipe is ignored.
            let _ = message.print();
            return if message.use_stderr() {
                USAGE.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let Err(error) = cli.run() else {
        return ExitCode::SUCCESS;
    };
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let text = palimpsest_cli::error_text(&error);
    anstream::eprintln!("{red}error{red:#}: {text}");
    if error.is::<ConfigErrors>() {
        USAGE.into()
    } else {
        ExitCode::FAILURE
    }
}

/// Disables transparent huge pages, which mimalloc requests. A failure is ignored.
///
/// Sessions that are loaded and evicted leave huge pages half empty. This wastes a fourth of the memory and saves no
/// measurable time.
fn disable_huge_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
