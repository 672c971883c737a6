//! Normalization and classification of shell commands: directory changes, redirections and output
//! filters are removed.

mod files;
mod words;

pub(crate) use files::{FileUsage, command_files};

use super::text::{one_line, truncate};

/// Programs that only read.
const READ_ONLY_PROGRAMS: [&str; 27] = [
    "ls", "cat", "head", "tail", "grep", "egrep", "rg", "ag", "fd", "find", "wc", "pwd", "which",
    "file", "stat", "tree", "nl", "xxd", "echo", "less", "du", "ps", "jq", "awk", "sort", "diff",
    "printf",
];

/// Git subcommands that only read.
const READ_ONLY_GIT_COMMANDS: [&str; 7] =
    ["status", "diff", "log", "show", "branch", "blame", "remote"];

/// Programs that prepare the environment of another command.
const SETUP_PROGRAMS: [&str; 9] = [
    "cd", "export", "source", "set", "sleep", "pushd", "popd", "true", ".",
];

/// Programs with subcommands.
const SUBCOMMAND_PROGRAMS: [&str; 30] = [
    "apt", "apt-get", "bun", "bundle", "cargo", "composer", "docker", "dotnet", "gh", "git", "go",
    "gradle", "helm", "just", "kubectl", "make", "mise", "mix", "mvn", "npm", "npx", "pip", "pnpm",
    "poetry", "python", "python3", "rails", "terraform", "uv", "yarn",
];

/// Subcommands whose next word is significant too.
const SUBJECT_SUBCOMMANDS: [&str; 6] = ["run", "exec", "compose", "-m", "tool", "x"];

/// Splits a command line into commands in order.
fn parts(command: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let bytes = command.as_bytes();
    let (mut from, mut at, mut quote) = (0, 0, None);
    while at < bytes.len() {
        let byte = bytes[at];
        let mut width = 0;
        match (quote, byte) {
            // A backslash continues the line and escapes quotes, except within single quotes.
            (_, b'\\') if quote != Some(b'\'') => at += 1,
            (Some(open), _) if byte == open => quote = None,
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b';' | b'\n') => width = 1,
            // A single `|` does not split, because output filters belong to their command.
            (None, b'&' | b'|') if bytes.get(at + 1) == Some(&byte) => width = 2,
            // A here-document is data, so the scan stops there.
            (None, b'<') if bytes.get(at + 1) == Some(&b'<') => break,
            _ => {}
        }
        if width > 0 {
            parts.push(&command[from..at]);
            from = at + width;
            at += width;
        } else {
            at += 1;
        }
    }
    // A backslash at the end of the input advances `at` beyond the text.
    let last = command.get(from..at.min(command.len())).unwrap_or_default();
    parts.push(last);
    // The parentheses of a group are removed.
    for part in &mut parts {
        let bare = part.trim();
        *part = bare.strip_prefix('(').unwrap_or(bare);
        // A closing parenthesis is kept if the command has its own opening one, as in `$(date)`.
        if part.len() < bare.len() || !part.contains('(') {
            *part = part.strip_suffix(')').unwrap_or(part);
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Returns the words of one command without variable assignments, redirections and pipes.
fn words(part: &str) -> Vec<&str> {
    let before_pipe = unquoted_pipe(part).map_or(part, |at| &part[..at]);
    let words = before_pipe.split_whitespace();
    let words = words
        .skip_while(|word| is_assignment(word) || matches!(*word, "sudo" | "time" | "command"));
    let words = words.take_while(|word| !is_redirection(word));
    // `git commit -m "$(cat <<'E'` gets its message from a here-document, which is data.
    words
        .filter(|word| !matches!(*word, "\\" | "\"$(cat"))
        .collect()
}

fn unquoted_pipe(part: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in part.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '|') => return Some(at),
            _ => {}
        }
    }
    None
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

fn is_redirection(word: &str) -> bool {
    // The number of a stream or `&` can precede the sign, as in `2>&1` and `&>log`.
    let word = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '&');
    word.starts_with('>') || word.starts_with('<')
}

fn program<'a>(words: &[&'a str]) -> &'a str {
    let first = words.first().copied().unwrap_or_default();
    first.rsplit('/').next().unwrap_or(first)
}

fn is_setup(words: &[&str]) -> bool {
    words.is_empty() || SETUP_PROGRAMS.contains(&program(words)) || words[0].starts_with('#')
}

/// Returns the normalized form of a command for summaries, with at most `max` characters.
pub(crate) fn normalize(command: &str, max: usize) -> String {
    let mut kept: Vec<String> = Vec::new();
    for part in parts(command) {
        let words = words(part);
        if !is_setup(&words) {
            kept.push(words.join(" "));
        }
    }
    // A command of setup alone, such as `cd /a`, is shown as it is.
    let tidy = if kept.is_empty() {
        one_line(command)
    } else {
        kept.join(" && ")
    };
    truncate(&tidy.replace('`', "'"), max)
}

/// Returns the file that a command shows. Returns `None` if the command does anything else.
pub(crate) fn shown_file(command: &str) -> Option<&str> {
    let mut doing = parts(command)
        .into_iter()
        .filter(|part| !is_setup(&words(part)));
    let part = doing.next()?;
    let words = words(part);
    let shows = match program(&words) {
        "cat" | "nl" | "head" | "tail" | "less" | "bat" => words.len() >= 2,
        // `sed -n '1,5p' file` shows lines. Other forms can change the text.
        "sed" => words.len() == 4 && words[1] == "-n",
        _ => false,
    };
    let path = words.last().copied().filter(|path| is_path(path))?;
    // A redirection writes another file, and a here-document is not the content of a file.
    (shows && doing.next().is_none() && !part.contains('>') && !command.contains("<<"))
        .then_some(path)
}

/// Returns the file that a command changes, and true if the command writes the whole file.
pub(crate) fn changed_file(command: &str) -> Option<(&str, bool)> {
    let mut doing = parts(command)
        .into_iter()
        .filter(|part| !is_setup(&words(part)));
    let part = doing.next()?;
    // A line with several commands is a run, because the change is only a part of it.
    if doing.next().is_some() {
        return None;
    }
    let words = words(part);
    match program(&words) {
        "sed" if words.get(1).is_some_and(|word| word.starts_with("-i")) => words
            .last()
            .copied()
            .filter(|path| is_path(path))
            .map(|path| (path, false)),
        "cat" => {
            let line = command
                .lines()
                .find(|line| line.contains("cat") && line.contains('>'))?;
            let (before, after) = line.split_once('>')?;
            let appends = after.starts_with('>');
            let path = after.trim_start_matches('>').split_whitespace().next()?;
            // A digit directly before the sign redirects another stream, as in `2>file`.
            (before.trim_end().len() < before.len()
                || !before.ends_with(|c: char| c.is_ascii_digit()))
            .then_some((path, !appends))
            .filter(|(path, _)| is_path(path) && command.contains("<<"))
        }
        _ => None,
    }
}

fn is_path(word: &str) -> bool {
    let is_named = word.contains(['/', '.']) && !word.starts_with(['-', '.', '<', '&']);
    let is_named = is_named
        || word.starts_with("./")
        || word.starts_with("../")
        // `.` and `..` name folders. A longer name can be a file such as `.env`.
        || word.starts_with('.') && word.len() > 2;
    is_named
        && !word.contains(['*', '$', '\'', '"', '`', '(', '{', '\\'])
        && !word.starts_with("/dev/")
}

/// Returns true if a redirection of a command writes to a file other than `/dev/null`.
fn writes_file(part: &str) -> bool {
    let (mut quote, mut chars) = (None, part.char_indices());
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            // A backslash escapes the next character, except within single quotes.
            (None | Some('"'), '\\') => drop(chars.next()),
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '>') if !is_harmless_target(&part[at + 1..]) => return true,
            _ => {}
        }
    }
    false
}

/// Returns true if the text after a `>` names another stream, as in `2>&1`, or `/dev/null`.
fn is_harmless_target(after: &str) -> bool {
    // The second sign of `>>` has the same target as the first one.
    let target = after.strip_prefix('>').unwrap_or(after);
    let (target, is_stream) = match target.strip_prefix('&') {
        Some(stream) => (stream, true),
        None => (target, false),
    };
    let ends = |c: char| c.is_whitespace() || ";|&()<>".contains(c);
    let target = target.trim_start();
    let target = target.split(ends).next().unwrap_or_default();
    target == "/dev/null"
        || is_stream && (target == "-" || target.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns true if a command only reads.
pub(crate) fn is_read_only(command: &str) -> bool {
    // A line of setup alone, such as `cd a`, reads nothing.
    let mut any = false;
    parts(command).into_iter().all(|part| {
        let words = words(part);
        if is_setup(&words) {
            return true;
        }
        any = true;
        let program = program(&words);
        let of_git = program == "git"
            && words
                .get(1)
                .is_some_and(|word| READ_ONLY_GIT_COMMANDS.contains(word));
        let reads_lines =
            program == "sed" && words.get(1).is_some_and(|word| word.starts_with("-n"));
        !writes_file(part) && (READ_ONLY_PROGRAMS.contains(&program) || of_git || reads_lines)
    }) && any
}

/// Returns the common name of similar commands: `cargo test -p x` and `cargo test y` yield `cargo
/// test`.
pub(crate) fn family(command: &str) -> String {
    let all: Vec<Vec<&str>> = parts(command).into_iter().map(words).collect();
    // Commands that only read usually prepare or check the main one.
    let main = all
        .iter()
        .rev()
        .find(|words| !is_setup(words) && !READ_ONLY_PROGRAMS.contains(&program(words)));
    let main = main.or_else(|| all.iter().rfind(|words| !is_setup(words)));
    let Some(words) = main else {
        return one_line(command);
    };
    let program = program(words);
    let mut named = vec![program];
    if SUBCOMMAND_PROGRAMS.contains(&program) {
        // `-m` is followed by the module, as in `python -m pytest`.
        let mut rest = words[1..]
            .iter()
            .filter(|word| !word.starts_with('-') || **word == "-m");
        if let Some(second) = rest.next() {
            named.push(second);
            if SUBJECT_SUBCOMMANDS.contains(second) {
                named.extend(rest.next());
            }
        }
    }
    named.join(" ")
}

/// The maximum length of a command in a summary, in characters.
pub(crate) const MAX_COMMAND: usize = 120;

/// Returns the normalized form of a command, as summaries show it.
pub fn display_command(command: &str) -> String {
    normalize(command, MAX_COMMAND)
}

/// Returns the kind of a command. Notes combine commands of one kind into one line.
pub fn command_family(command: &str) -> String {
    family(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shortened_to_their_main_part() {
        let tidy = |command| normalize(command, 80);
        assert_eq!(
            tidy("cd /a/b && RUST_LOG=x cargo test -p core 2>&1 | tail -50"),
            "cargo test -p core"
        );
        assert_eq!(
            tidy("git add -A && git commit -m \"a; b | c\""),
            "git add -A && git commit -m \"a; b | c\""
        );
        assert_eq!(tidy("python3 - <<'E'\nimport os\nE"), "python3 -");
        assert_eq!(tidy("cd /a"), "cd /a");
        assert_eq!(tidy("cargo a && \\\n cargo b"), "cargo a && cargo b");
        assert_eq!(
            tidy("git commit -m \"$(cat <<'E'\nx\nE\n)\""),
            "git commit -m"
        );
    }

    #[test]
    fn similar_commands_belong_to_one_family() {
        assert_eq!(family("cargo test -p x -- y"), "cargo test");
        assert_eq!(family("cd a && bun run lint:fix 2>&1"), "bun run lint:fix");
        assert_eq!(family("git add . && git commit -m 'x'"), "git commit");
        assert_eq!(family("python -m pytest a.py"), "python -m pytest");
        assert_eq!(family("cargo test | grep x; echo done"), "cargo test");
    }

    #[test]
    fn commands_name_the_files_that_they_read_and_write() {
        assert_eq!(
            shown_file("cd /a && cat src/b.rs | head -5"),
            Some("src/b.rs")
        );
        assert_eq!(shown_file("sed -n '1,5p' b.rs"), Some("b.rs"));
        for command in [
            "cat a.rs b > c.rs",
            "cat a.rs && rm a.rs",
            "cat <<E\na.rs\nE",
            "cat *.rs",
            "ls a.rs",
        ] {
            assert_eq!(shown_file(command), None, "{command}");
        }
        assert_eq!(changed_file("sed -i 's/a/b/' c.py"), Some(("c.py", false)));
        assert_eq!(
            changed_file("cat <<'E' > c.py\nx > y\nE"),
            Some(("c.py", true))
        );
        assert_eq!(
            changed_file("cat > c.py << 'E'\nx\nE"),
            Some(("c.py", true))
        );
        assert_eq!(changed_file("cat c.py"), None);
    }

    #[test]
    fn read_only_commands_are_recognized() {
        for command in [
            "ls -la",
            "cd a && git status",
            "cat a | wc -l",
            "sed -n '1,5p' a",
            "grep x a 2>/dev/null",
            "ls > /dev/null 2>&1",
            "awk '$1 > 5' a",
            "grep \"->\" a",
            "echo a \\> b",
        ] {
            assert!(is_read_only(command), "{command}");
        }
        for command in [
            "cat > a",
            "cargo test",
            "sed -i s/a/b/ c",
            "ls && rm a",
            "cd a",
            "echo x >file",
            "echo x>file",
            "cat a >>b",
            "ls > out 2>/dev/null",
            "ls &>out",
            "ls >& out",
            "ls > /dev/nullx",
        ] {
            assert!(!is_read_only(command), "{command}");
        }
    }
}
