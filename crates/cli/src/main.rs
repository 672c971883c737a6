//! The `palimpsest` binary: reads the command line, runs the command, says what went wrong.

use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::Parser as _;
use palimpsest_settings::ConfigErrors;

/// A call makes and drops many small things, on whichever thread it is: a fifth of what it takes is the system's own
/// allocator, and this one takes half as much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The command line or the configuration is wrong (`EX_USAGE` of `sysexits.h`): to start it again
/// the same way is of no use.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    without_huge_pages();
    let cli = match palimpsest_cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            // `--help` and `--version` are answers too, and no mistake. A closed pipe is nobody's.
            let _ = answer.print();
            return if answer.use_stderr() {
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

/// The allocator asks for huge pages, and sessions that come and go leave each of them half empty: together
/// a fourth of the memory, for no time that could be measured. Where this is refused, it is so.
fn without_huge_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
