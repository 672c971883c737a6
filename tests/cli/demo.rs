//! Tests of `palimpsest demo`: exit code, consistent figures, and no remaining files.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use palimpsest_tests::binary;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// A hang ends a test after this time.
const LIMIT: Duration = Duration::from_mins(10);

pub(super) const ENTER_SCREEN: &str = "\u{1b}[?1049h";
pub(super) const LEAVE_SCREEN: &str = "\u{1b}[?1049l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";

fn demo(temporary: &Path) -> Command {
    demo_by(Command::new(binary()), temporary)
}

/// Returns the demo as a command that is killed if it hangs.
fn demo_that_ends(temporary: &Path) -> Command {
    let mut command = Command::new("timeout");
    let seconds = LIMIT.as_secs().to_string();
    command.args(["--signal=KILL", &seconds]).arg(binary());
    demo_by(command, temporary)
}

fn demo_by(mut command: Command, temporary: &Path) -> Command {
    command
        .arg("demo")
        .env_clear()
        .env("TMPDIR", temporary)
        .current_dir(temporary)
        .stdin(Stdio::null());
    command
}

/// Returns the names of all entries of a folder.
fn left_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// Returns the numbers of a row of the final table: with and without Palimpsest.
#[track_caller]
fn row(said: &str, name: &str) -> (u64, u64) {
    let line = said
        .lines()
        .find(|line| line.trim_start().starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no row {name}:\n{said}"));
    let cells = line
        .trim_start()
        .trim_start_matches(name)
        .split_whitespace();
    let mut numbers = cells.map(|cell| cell.replace(',', "").parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Returns the two numbers of a text such as `7 of 8 messages`.
#[track_caller]
fn share(said: &str, name: &str) -> (u64, u64) {
    let line = said.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no line {name}:\n{said}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let of = words.iter().position(|word| *word == "of").unwrap();
    (
        words[of - 1].parse().unwrap(),
        words[of + 1].parse().unwrap(),
    )
}

#[test]
fn the_demo_succeeds_and_its_figures_are_consistent() {
    let temporary = tempfile::tempdir().unwrap();
    let output = demo_that_ends(temporary.path())
        .args(["--seed", "3", "--svg", "demo.svg"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}\n{said}");
    assert_eq!(complained, "");
    assert!(!said.contains('\u{1b}'), "escape codes in a pipe: {said}");

    let (sent, read, written) = (
        row(&said, "tokens sent"),
        row(&said, "read from the cache"),
        row(&said, "written to the cache"),
    );
    assert_eq!(sent, (read.0 + written.0, read.1 + written.1));
    // The default prices, in thousandths.
    let cost = |read: u64, written: u64| (read * 100 + written * 1_250) / 1_000;
    let costs = (cost(read.0, written.0), cost(read.1, written.1));
    assert_eq!(row(&said, "cost"), costs);
    let percent = format!(
        "{}.{} %",
        costs.0 * 100 / costs.1,
        costs.0 * 1_000 / costs.1 % 10
    );
    assert!(said.contains(&percent), "{percent}:\n{said}");

    let requests = row(&said, "requests");
    let largest = row(&said, "largest request, tokens");
    assert!(
        largest.0 < 200_000 && largest.1 > 2 * 200_000,
        "{largest:?}"
    );
    assert!(sent.0 < requests.0 * largest.0 && costs.0 < costs.1 / 2);
    let over = row(&said, "larger than the window");
    assert!(over.0 == 0 && over.1 > 0 && over.1 < requests.1, "{over:?}");
    let checked = format!("checked    {} views", requests.0 + requests.1);
    assert!(said.contains(&checked), "{checked}:\n{said}");

    for level in ["level 1", "level 2", "level 3", "level 5"] {
        let acted = |line: &&str| line.starts_with("request") && line.contains(level);
        let times = said.lines().filter(acted).count();
        let sum = said.lines().find(|line| line.starts_with(level)).unwrap();
        assert!(sum.contains(&format!(" {times} time")), "{times}: {sum}");
    }
    // Nearly all content left the view, and all of it can be restored.
    let (same, all) = share(&said, "read back");
    assert!(same == all && all > 200, "{same} of {all}");
    let (same, all) = share(&said, "undone");
    assert!(same == all && all > 50, "{same} of {all}");

    let svg = fs::read_to_string(temporary.path().join("demo.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert_eq!(left_in(temporary.path()), ["demo.svg"]);
}

#[test]
fn a_stopped_demo_leaves_no_files() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child = demo(temporary.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("turn  1"), "{line}");
    assert_eq!(
        left_in(temporary.path()).len(),
        1,
        "the running demo must have a folder"
    );
    let pid = child.id().to_string();
    let kill = Command::new("kill").args(["-s", "INT", &pid]).status();
    assert!(kill.unwrap().success());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    // 128 + 2, the number of SIGINT.
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(!rest.contains("read back"), "{rest}");
    assert_eq!(left_in(temporary.path()), [""; 0]);
}

#[test]
fn a_closed_output_ends_the_demo_without_leftover_files() {
    let temporary = tempfile::tempdir().unwrap();
    let mut child = demo(temporary.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    drop(said);
    // A reader such as `head` closes the pipe when it has enough, so this is no error.
    assert!(child.wait().unwrap().success());
    assert_eq!(left_in(temporary.path()), [""; 0]);
}

/// Returns both ends of a pseudo terminal: the end that reads the screen and the end that a process writes to.
pub(super) fn terminal(columns: u16, rows: u16) -> (File, File) {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap();
    let process = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&process, size).unwrap();
    (File::from(screen), process)
}

#[test]
fn the_terminal_is_restored_after_the_demo() {
    let temporary = tempfile::tempdir().unwrap();
    let (mut screen, process) = terminal(80, 24);
    let before = tcgetattr(&process).unwrap();
    assert!(before.local_modes.contains(LocalModes::ECHO));
    let mut child = demo(temporary.path())
        .env("TERM", "xterm-256color")
        .stdin(process.try_clone().unwrap())
        .stdout(process.try_clone().unwrap())
        .spawn()
        .unwrap();
    let mut shown = Vec::new();
    let mut chunk = [0; 4_096];
    let mut read_until = |shown: &mut Vec<u8>, wanted: &str| {
        let began = Instant::now();
        while !String::from_utf8_lossy(shown).contains(wanted) {
            assert!(began.elapsed() < LIMIT, "no {wanted} came");
            let read = screen.read(&mut chunk).unwrap();
            shown.extend_from_slice(&chunk[..read]);
        }
    };
    read_until(&mut shown, "request 2 of");
    // With echo, typed keys would appear within the picture.
    let silent = tcgetattr(&process).unwrap();
    assert!(!silent.local_modes.contains(LocalModes::ECHO));
    let pid = child.id().to_string();
    let kill = Command::new("kill").args(["-s", "INT", &pid]).status();
    assert!(kill.unwrap().success());
    read_until(&mut shown, LEAVE_SCREEN);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let after = tcgetattr(&process).unwrap();
    assert_eq!(after.local_modes, before.local_modes);
    assert_eq!(after.input_modes, before.input_modes);
    let shown = String::from_utf8_lossy(&shown);
    assert!(
        shown.contains(ENTER_SCREEN) && shown.contains(SHOW_CURSOR),
        "{shown}"
    );
    assert_eq!(left_in(temporary.path()), [""; 0]);
}

/// Returns the texts of an SVG image, in order.
fn texts(svg: &str) -> Vec<String> {
    let parts = svg.split('>').filter_map(|part| part.split('<').next());
    let texts = parts.map(str::trim).filter(|text| !text.is_empty());
    texts.map(str::to_owned).collect()
}

#[test]
fn without_a_terminal_the_demo_prints_the_text_of_the_readme() {
    let temporary = tempfile::tempdir().unwrap();
    let output = demo_that_ends(temporary.path())
        .args(["--svg", "demo.svg"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    // Session memory keeps up with the conversation, so that the first compaction uses it and frees nearly all tokens.
    let memory = said.lines().find(|line| line.starts_with("memory"));
    let versions = memory.and_then(|line| line.split_whitespace().nth(2));
    let versions: u64 = versions.unwrap().parse().unwrap();
    assert!(versions >= 20, "{versions} versions:\n{said}");
    let compacted = |line: &&str| line.starts_with("request") && line.contains("level 5");
    let first = said.lines().find(compacted).unwrap();
    let freed = first.split_whitespace().rev().find_map(|word| {
        let digits: String = word.chars().filter(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    });
    assert!(freed.unwrap() >= 100, "{first}");
    let shown = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/images/demo.svg");
    let shown = fs::read_to_string(shown).unwrap();
    let played = fs::read_to_string(temporary.path().join("demo.svg")).unwrap();
    assert_eq!(texts(&played), texts(&shown));
}
