//! Outcomes of tool calls, derived from their results: success or failure, and the line that
//! explains it.

use palimpsest_types::message::{Block, ResultContent, ToolResult};

use super::shell;
use super::symbols::titles_in;
use super::text::{count, one_line, truncate};
use super::tool_action::ActionKind;

/// The outcome of a tool call. The text is quoted from the tool's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ActionOutcome {
    /// The result has not arrived.
    Open,
    /// The call succeeded. Contains the line that states the result, if any.
    Passed(Box<str>),
    /// The call failed. Contains the line that states the reason.
    Failed(Box<str>),
}

/// The number of bytes inspected at the beginning of a result. [`TAIL_BYTES`] applies to its end.
const HEAD_BYTES: usize = 6 * 1024;
const TAIL_BYTES: usize = 8 * 1024;
const MAX_LINE: usize = 200;
/// The maximum length of a person's answer through a tool, in characters. Answers deserve more space
/// than output.
const MAX_ANSWER_CHARS: usize = 500;

/// Returns the first text of a result, or an empty string.
pub(super) fn text_of(result: &ToolResult) -> &str {
    match &result.content {
        ResultContent::None => "",
        ResultContent::Text(text) => text,
        ResultContent::Blocks(blocks) => {
            let texts = blocks.iter().filter_map(|block| match block {
                Block::Text { text, .. } => Some(&**text),
                _ => None,
            });
            texts.into_iter().next().unwrap_or_default()
        }
    }
}

/// Determines the outcome of a call from the text of its result.
pub(super) fn parse_outcome(
    act: ActionKind,
    target: &str,
    text: &str,
    is_error: Option<bool>,
) -> ActionOutcome {
    // Headers and exit codes are at the beginning of a result, and programs summarize at the end. The middle of a
    // result of megabytes adds nothing.
    let (head, tail) = head_and_tail(text);
    let output = without_header(head);
    let failed = match (is_error, act) {
        (Some(true), _) => true,
        (flag, ActionKind::Run) => run_failed(head, tail, flag, target),
        // Shell commands can read and write files too, so their exit code is evaluated here.
        (_, ActionKind::Read | ActionKind::Edit | ActionKind::Write)
            if head.starts_with("<returncode>") =>
        {
            exit_code(head) != Some(0)
        }
        // The flag of the agent program outweighs the text, so the text decides only without a flag.
        (flag, _) => flag.is_none() && begins_with_error(output),
    };
    if failed {
        return ActionOutcome::Failed(failure_line(head, tail).into());
    }
    ActionOutcome::Passed(
        match act {
            ActionKind::Search => matches(text),
            ActionKind::Run => summary_line(output, tail).unwrap_or_default(),
            ActionKind::Read if is_document(target) => titles_in(text, 6).join("; "),
            ActionKind::Fetch | ActionKind::Delegate => {
                truncate(&one_line(first_line(output)), MAX_LINE)
            }
            ActionKind::Other => truncate(&one_line(first_line(output)), MAX_ANSWER_CHARS),
            _ => String::new(),
        }
        .into(),
    )
}

/// Returns true if the result of a write states that the file is new.
pub(super) fn reports_created_file(text: &str) -> bool {
    let (head, _) = head_and_tail(text);
    head.contains("created successfully") || head.contains("File created")
}

fn head_and_tail(text: &str) -> (&str, &str) {
    let mut head = text.len().min(HEAD_BYTES);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    // The tail begins after the head, so no line of a short text is searched twice.
    let mut tail = text.len().saturating_sub(TAIL_BYTES).max(head);
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    (&text[..head], &text[tail..])
}

fn is_document(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name
        .rsplit_once('.')
        .map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| matches!(&*ending, "md" | "mdx" | "markdown"))
}

fn run_failed(head: &str, tail: &str, flag: Option<bool>, command: &str) -> bool {
    if let Some(code) = exit_code(head).or_else(|| exit_code(tail)) {
        return code != 0;
    }
    // The output of a read-only command is content, which may mention errors without a failure.
    if shell::is_read_only(command) {
        return flag.is_none() && head.trim_end().ends_with("command not found");
    }
    // Programs print their summary last, so lines are searched from the end.
    // The tail of a short text is empty, so the head follows it.
    let mut last = tail
        .lines()
        .rev()
        .chain(head.lines().rev())
        .map(str::trim)
        .filter(|line| !line.is_empty());
    if let Some(failed) = last.by_ref().take(30).find_map(verdict_of) {
        return failed;
    }
    // The error flag reflects only the last command of a pipeline or list.
    let is_sure = flag == Some(false) && !command.contains('|') && !command.contains(';');
    !is_sure
        && (head.lines().chain(tail.lines()).any(is_failing)
            || flag.is_none() && begins_with_error(head))
}

/// Returns true if a line summarizes failures, false if it summarizes success, and `None` otherwise.
fn verdict_of(line: &str) -> Option<bool> {
    if matches!(line, "FAILED" | "FAIL")
        || line.starts_with("test result: FAILED")
        || line.starts_with("BUILD FAILED")
    {
        return Some(true);
    }
    failures_in(line).map(|failures| failures > 0)
}

/// Parses an exit code such as `Exit code 1`, `exit code: 1`, `exited with code 1` or
/// `<returncode>1</returncode>`.
fn exit_code(text: &str) -> Option<i32> {
    let marks = [
        "Exit code ", "exit code: ", "Exit code: ", "exited with code ", "<returncode>",
        "exit status ",
    ];
    // The first mark counts, because a shell tool prints its header before the output of the program.
    let (at, mark) = marks
        .iter()
        .filter_map(|mark| Some((text.find(mark)?, mark)))
        .min()?;
    // A mark in the middle of a longer line is content.
    let line_start = text[..at].rfind('\n').map_or(0, |at| at + 1);
    if text[line_start..at].len() > 24 {
        return None;
    }
    let digits = &text[at + mark.len()..];
    let end = digits
        .find(|c: char| !(c.is_ascii_digit() || c == '-'))
        .unwrap_or(digits.len());
    digits[..end].parse().ok()
}

fn begins_with_error(head: &str) -> bool {
    let head = head.trim_start();
    // Bytes are compared, because the cut can be inside a character.
    let begin = head.as_bytes();
    let begin = &begin[..begin.len().min(20)];
    let is =
        |word: &[u8]| begin.len() >= word.len() && begin[..word.len()].eq_ignore_ascii_case(word);
    is(b"error:")
        || is(b"error ")
        || is(b"<tool_use_error>")
        || is(b"fatal:")
        || is(b"traceback (most")
}

/// The beginnings of lines with which programs report failures.
const FAILURE_WORDS: [&str; 19] = [
    "test result: FAILED",
    "Traceback (most recent call last)",
    "error[E",
    "error: ",
    "Error: ",
    "ERROR: ",
    "fatal: ",
    "FAILED ",
    "--- FAIL",
    "FAIL\t",
    "FAIL ",
    "npm ERR!",
    "npm error",
    "panic: ",
    "thread '",
    "TypeError: ",
    "SyntaxError: ",
    "AssertionError",
    "BUILD FAILED",
];

fn is_failing(line: &str) -> bool {
    let line = line.trim();
    if line.ends_with(": command not found") || verdict_of(line) == Some(true) {
        return true;
    }
    // Rust reports a panic as `thread 'main' panicked at src/a.rs:1:2`. `thread '` alone is no failure.
    let begin = FAILURE_WORDS.iter().find(|begin| line.starts_with(**begin));
    begin.is_some_and(|begin| *begin != "thread '" || line.contains("panicked at"))
}

/// Returns the number of failures in a summary line such as `3 failed` or `2 errors`. Returns `None`
/// for ordinary text.
fn failures_in(line: &str) -> Option<u64> {
    const MAX_WORDS: usize = 24;
    if line.len() > MAX_LINE {
        return None;
    }
    let words: Vec<&str> = line
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    if words.len() > MAX_WORDS || line.starts_with('[') {
        return None;
    }
    let mut found: Option<u64> = None;
    for pair in words.windows(2) {
        if let Ok(number) = pair[0].parse::<u64>()
            && matches!(
                pair[1],
                "failed" | "failures" | "failing" | "fail" | "errors" | "error"
            )
        {
            // A summary can have several numbers, as `1 failed, 2 errors`.
            found = Some(found.unwrap_or(0).saturating_add(number));
        }
    }
    let passed = || {
        words
            .windows(2)
            .any(|pair| pair[0].parse::<u64>().is_ok() && matches!(pair[1], "passed" | "passing"))
    };
    // `5 passed` without a number of failures is a success.
    found.or_else(|| passed().then_some(0))
}

/// The beginning of the failure text if a person rejected the tool call.
pub(crate) const DECLINED: &str = "declined";

/// The maximum number of lines before the output in the text of a shell tool.
const MAX_HEADER_LINES: usize = 8;

/// The beginnings of the lines before the output in the text of a shell tool.
const HEADER_LINES: [&str; 7] = [
    "Chunk ID:",
    "Wall time:",
    "Process exited with",
    "Process running with",
    "Exit code",
    "Original token count:",
    "Total output lines:",
];

/// Returns the output of a program without the header of the shell tool: lines such as `Wall time: 1 second`, and a line
/// `Output:` at their end. Returns the whole text if it has no such header.
fn without_header(text: &str) -> &str {
    let mut rest = text;
    for _ in 0..MAX_HEADER_LINES {
        let Some((line, after)) = rest.split_once('\n') else {
            break;
        };
        rest = after;
        let line = line.trim_end();
        if line == "Output:" {
            return rest;
        }
        if !line.is_empty() && !HEADER_LINES.iter().any(|begin| line.starts_with(begin)) {
            break;
        }
    }
    text
}

fn failure_line(head: &str, tail: &str) -> String {
    let output = without_header(head);
    // Without an output, the header explains the failure.
    let is_silent = output.trim().is_empty() && tail.trim().is_empty();
    let exit_line = || head.lines().find(|line| exit_code(line).is_some());
    if is_silent && let Some(line) = exit_line() {
        return truncate(&one_line(line), MAX_LINE);
    }
    let head = output;
    // Claude Code returns this sentence for a call that the user rejected. The user's reason follows one of the
    // marks.
    if head.trim_start().starts_with("The user doesn't want to") {
        let marks = ["the user said:", "reason for the rejection:"];
        let why = marks
            .iter()
            .find_map(|mark| head.split_once(mark))
            .map(|(_, why)| one_line(why));
        return why.map_or_else(
            || DECLINED.into(),
            |why| truncate(&format!("{DECLINED}: {why}"), MAX_LINE),
        );
    }
    // Claude Code encloses the errors of its own tools in `<tool_use_error>` tags.
    let head = head.trim_start().trim_start_matches("<tool_use_error>");
    let lines = || {
        head.lines()
            .chain(tail.lines())
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    // Exit codes, prompts and echoed commands explain nothing. They are used only if the result has no other line.
    let is_code = |line: &str| {
        line.starts_with("Exit code")
            || line.starts_with("<returncode>")
            || matches!(line, "<output>" | "</output>")
            || line.contains("] $ ")
            || line.starts_with("# ")
            || line.starts_with("$ ")
    };
    let named = lines().find(|line| is_failing(line) && !line.starts_with("Traceback"));
    // A line with a file position is more precise than a summary line.
    let named = match named {
        Some(line) if line.starts_with("FAIL") || !line.contains(": ") => {
            lines().find(|line| names_source_position(line)).or(named)
        }
        named => named,
    };
    // Python prints the exception at the end of a traceback.
    let last = || {
        let traced = head.contains("Traceback (most") || tail.contains("Traceback (most");
        lines()
            .rfind(|line| line.contains("Error") && !line.starts_with("File "))
            .filter(|_| traced)
    };
    let line = last()
        .or(named)
        .or_else(|| lines().find(|line| !is_code(line)))
        .or_else(|| lines().next_back());
    let line = line
        .unwrap_or("it said nothing")
        .replace("</tool_use_error>", "");
    truncate(&one_line(&line), MAX_LINE)
}

/// Returns true for a line with a file position, such as `src/a.go:141:21: undefined: x`.
fn names_source_position(line: &str) -> bool {
    let mut parts = line.split(':');
    let file = parts.next().unwrap_or_default();
    let is_file = file
        .rsplit_once('.')
        .is_some_and(|(name, ending)| !name.is_empty() && (1..=5).contains(&ending.len()));
    is_file
        && !file.contains(' ')
        && parts
            .next()
            .is_some_and(|number| number.parse::<u32>().is_ok())
        && line.contains(": ")
}

/// Returns the line in which a program summarizes its success.
fn summary_line(head: &str, tail: &str) -> Option<String> {
    let sums_up = |line: &&str| {
        let lower = line.to_ascii_lowercase();
        let has_number = line.bytes().any(|byte| byte.is_ascii_digit());
        line.len() <= MAX_LINE
            && (has_number
                && ["passed", " pass", "tests ", "warnings", "0 errors"]
                    .iter()
                    .any(|word| lower.contains(word))
                || [
                    "test result: ok",
                    "build succeeded",
                    "all checks passed",
                    "no issues",
                    "compiled successfully",
                    "finished `",
                ]
                .iter()
                .any(|word| lower.contains(word)))
    };
    let line = tail.lines().rev().map(str::trim).find(sums_up);
    let line = line.or_else(|| head.lines().rev().map(str::trim).find(sums_up))?;
    // pytest draws a rule around its summary: `== 5 passed in 1s ==`.
    Some(truncate(&one_line(line.trim_matches(['=', ' ', '-'])), 120))
}

/// Returns the number of matches of a search.
fn matches(text: &str) -> String {
    let first = first_line(text);
    let lower = first.to_ascii_lowercase();
    // A sentence such as `No matches found` is short. A longer line can be a match that begins with `no `.
    if text.trim().is_empty() || lower.starts_with("no ") && lower.len() < 60 {
        return "none".into();
    }
    // Some search tools print a total such as `Found 12 files` before the matches.
    if lower.starts_with("found ")
        && let Some(number) = first
            .split_whitespace()
            .nth(1)
            .and_then(|n| n.parse::<usize>().ok())
    {
        return count(
            number,
            if lower.contains("file") {
                "file"
            } else {
                "match"
            },
        );
    }
    count(
        text.lines().filter(|line| !line.trim().is_empty()).count(),
        "match",
    )
}

fn first_line(text: &str) -> &str {
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, text: &str, flag: Option<bool>, expected: &str) {
        let said = match parse_outcome(ActionKind::Run, command, text, flag) {
            ActionOutcome::Open => "open".into(),
            ActionOutcome::Passed(said) => format!("+{said}"),
            ActionOutcome::Failed(said) => format!("-{said}"),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn outcomes_of_many_programs_are_recognized() {
        check(
            "cargo test",
            "running\ntest result: ok. 12 passed; 0 failed; 0 ignored",
            Some(false),
            "+test result: ok. 12 passed; 0 failed; 0 ignored",
        );
        check(
            "cargo test",
            "test result: FAILED. 1 passed; 2 failed",
            Some(false),
            "-test result: FAILED. 1 passed; 2 failed",
        );
        check(
            "cargo build",
            "error[E0308]: mismatched types\n more",
            None,
            "-error[E0308]: mismatched types",
        );
        check(
            "bun lint",
            "Exit code 1\n$ biome check",
            Some(true),
            "-$ biome check",
        );
        check(
            "x",
            "<returncode>2</returncode>\n<output>\ngone\n</output>",
            None,
            "-gone",
        );
        check(
            "bd show x",
            "Chunk ID: 9ac387\nWall time: 1 seconds\nProcess exited with code 1\nOutput:\nno such issue\n",
            None,
            "-no such issue",
        );
        check(
            "test -f x",
            "Wall time: 1 seconds\nProcess exited with code 1\nOutput:\n",
            None,
            "-Process exited with code 1",
        );
        // Lines that are no header precede `Output:`, so it belongs to the output of the program.
        check(
            "make",
            "a\nb\nc\nd\ne\nf\ng\nh\ni\nOutput:\nerror: gone",
            None,
            "-error: gone",
        );
        check(
            "python a.py",
            "Traceback (most recent call last):\n  File \"a\"\nValueError: no",
            None,
            "-ValueError: no",
        );
        // `grep` prints the content of a file, so words for failures in it do not count.
        check(
            "grep error a",
            "error: this is content\n3 failed",
            Some(false),
            "+",
        );
        check("rm a", "", Some(true), "-it said nothing");
        check(
            "pytest",
            "===== 3 failed, 2 passed in 1s =====",
            None,
            "-===== 3 failed, 2 passed in 1s =====",
        );
        check("pytest", "== 5 passed in 1s ==", None, "+5 passed in 1s");
    }

    #[test]
    fn search_results_are_counted() {
        for (text, expected) in [
            ("No matches found", "none"),
            ("Found 12 files\na\nb", "12 files"),
            ("a:1:x\nb:2:x\n", "2 matches"),
        ] {
            assert_eq!(
                parse_outcome(ActionKind::Search, "x", text, None),
                ActionOutcome::Passed(expected.into())
            );
        }
    }
}
