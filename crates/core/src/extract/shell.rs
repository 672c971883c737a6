//! What a shell command is at heart: without the folder that it changes to, its redirections and the
//! pipe that shortens its output.

use super::text::{clip, one_line};

/// Programs that only look.
const LOOKING: [&str; 27] = [
    "ls", "cat", "head", "tail", "grep", "egrep", "rg", "ag", "fd", "find", "wc", "pwd", "which",
    "file", "stat", "tree", "nl", "xxd", "echo", "less", "du", "ps", "jq", "awk", "sort", "diff",
    "printf",
];

/// Subcommands that only look.
const LOOKING_GIT: [&str; 7] = ["status", "diff", "log", "show", "branch", "blame", "remote"];

/// Programs that prepare and do nothing by themselves.
const PREPARING: [&str; 9] = [
    "cd", "export", "source", "set", "sleep", "pushd", "popd", "true", ".",
];

/// Programs whose next word says what they do.
const WITH_SUBCOMMAND: [&str; 30] = [
    "apt",
    "apt-get",
    "bun",
    "bundle",
    "cargo",
    "composer",
    "docker",
    "dotnet",
    "gh",
    "git",
    "go",
    "gradle",
    "helm",
    "just",
    "kubectl",
    "make",
    "mise",
    "mix",
    "mvn",
    "npm",
    "npx",
    "pip",
    "pnpm",
    "poetry",
    "python",
    "python3",
    "rails",
    "terraform",
    "uv",
    "yarn",
];

/// Subcommands whose next word says what they do.
const WITH_SUBJECT: [&str; 6] = ["run", "exec", "compose", "-m", "tool", "x"];

/// The commands of a line, in order, each without what stands after its first pipe.
fn parts(command: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let bytes = command.as_bytes();
    let (mut from, mut at, mut quote) = (0, 0, None);
    while at < bytes.len() {
        let byte = bytes[at];
        let mut width = 0;
        match (quote, byte) {
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b';' | b'\n') => width = 1,
            (None, b'&' | b'|') if bytes.get(at + 1) == Some(&byte) => width = 2,
            // A here-document is data.
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
    parts.push(&command[from..at.min(command.len())]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// The words of one command, without its variables, redirections and pipes.
fn words(part: &str) -> Vec<&str> {
    let before_pipe = unquoted_pipe(part).map_or(part, |at| &part[..at]);
    let words = before_pipe.split_whitespace();
    let words = words.skip_while(|word| is_assignment(word) || *word == "sudo" || *word == "time");
    words.take_while(|word| !is_redirection(word)).collect()
}

fn unquoted_pipe(part: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in part.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
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
    let word = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '&');
    word.starts_with('>') || word.starts_with('<')
}

fn program<'a>(words: &[&'a str]) -> &'a str {
    let first = words.first().copied().unwrap_or_default();
    first.rsplit('/').next().unwrap_or(first)
}

fn is_preparing(words: &[&str]) -> bool {
    words.is_empty() || PREPARING.contains(&program(words)) || words[0].starts_with('#')
}

/// A command as notes name it, at most `max` characters.
pub(crate) fn tidy(command: &str, max: usize) -> String {
    let mut kept: Vec<String> = Vec::new();
    for part in parts(command) {
        let words = words(part);
        if !is_preparing(&words) {
            kept.push(words.join(" "));
        }
    }
    let tidy = if kept.is_empty() {
        one_line(command)
    } else {
        kept.join(" && ")
    };
    clip(&tidy.replace('`', "'"), max)
}

/// Whether all that a command does is look.
pub(crate) fn is_looking(command: &str) -> bool {
    let mut any = false;
    parts(command).into_iter().all(|part| {
        let writes = part.contains("> ") && !part.contains("/dev/null") && !part.contains(">&");
        let words = words(part);
        if is_preparing(&words) {
            return true;
        }
        any = true;
        let program = program(&words);
        let of_git =
            program == "git" && words.get(1).is_some_and(|word| LOOKING_GIT.contains(word));
        let reads_lines =
            program == "sed" && words.get(1).is_some_and(|word| word.starts_with("-n"));
        !writes && (LOOKING.contains(&program) || of_git || reads_lines)
    }) && any
}

/// What similar commands have in common: `cargo test -p x` and `cargo test y` are `cargo test`.
pub(crate) fn family(command: &str) -> String {
    let all: Vec<Vec<&str>> = parts(command).into_iter().map(words).collect();
    let main = all
        .iter()
        .rev()
        .find(|words| !is_preparing(words) && !LOOKING.contains(&program(words)));
    let main = main.or_else(|| all.iter().rfind(|words| !is_preparing(words)));
    let Some(words) = main else {
        return one_line(command);
    };
    let program = program(words);
    let mut named = vec![program];
    if WITH_SUBCOMMAND.contains(&program) {
        let mut rest = words[1..]
            .iter()
            .filter(|word| !word.starts_with('-') || **word == "-m");
        if let Some(second) = rest.next() {
            named.push(second);
            if WITH_SUBJECT.contains(second) {
                named.extend(rest.next());
            }
        }
    }
    named.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_what_it_does() {
        let tidy = |command| tidy(command, 80);
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
    }

    #[test]
    fn similar_commands_are_one_family() {
        assert_eq!(family("cargo test -p x -- y"), "cargo test");
        assert_eq!(family("cd a && bun run lint:fix 2>&1"), "bun run lint:fix");
        assert_eq!(family("git add . && git commit -m 'x'"), "git commit");
        assert_eq!(family("python -m pytest a.py"), "python -m pytest");
        assert_eq!(family("cargo test | grep x; echo done"), "cargo test");
    }

    #[test]
    fn looking_is_told_from_doing() {
        for command in [
            "ls -la",
            "cd a && git status",
            "cat a | wc -l",
            "sed -n '1,5p' a",
            "grep x a 2>/dev/null",
        ] {
            assert!(is_looking(command), "{command}");
        }
        for command in [
            "cat > a",
            "cargo test",
            "sed -i s/a/b/ c",
            "ls && rm a",
            "cd a",
        ] {
            assert!(!is_looking(command), "{command}");
        }
    }
}
