//! The names that a tool call uses: paths, identifiers in searches, and files in commands.

use palimpsest_core::message::ToolUse;
use palimpsest_facts::tool_action::{ActionKind, command, fields, parse_fields};

/// The minimum length of a name in characters. Shorter ones occur in almost every text.
const MIN_CHARS: usize = 4;
/// The programs whose first argument is a pattern.
const SEARCH_PROGRAMS: [&str; 5] = ["grep", "egrep", "fgrep", "rg", "ag"];
/// The programs whose arguments are text.
const TEXT_PROGRAMS: [&str; 2] = ["echo", "printf"];
/// The maximum length of a file extension in characters.
const MAX_EXTENSION: usize = 5;

/// The kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NeedKind {
    /// The path of a file or folder in a tool's input.
    Path,
    /// An identifier in a search.
    Identifier,
    /// A file in a command.
    CommandFile,
}

impl NeedKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Path, Self::Identifier, Self::CommandFile];

    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Path => "paths",
            Self::Identifier => "identifiers",
            Self::CommandFile => "files in commands",
        }
    }
}

/// A name that a call uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) kind: NeedKind,
    /// The identifier, or the path relative to the working directory if it is below.
    pub(super) text: Box<str>,
    /// True if the whole path is known: another path that ends with it is another file.
    pub(super) is_complete: bool,
}

/// Returns the names that a call uses. `root` is the working directory of the session.
pub(super) fn names_of(call: &ToolUse, root: Option<&str>) -> Vec<Name> {
    let fields = fields(call);
    let mut names = Vec::new();
    if let Some(command) = command(&fields) {
        names_in_command(&command, root, &mut names);
    }
    for action in parse_fields(call, &fields) {
        match action.kind {
            ActionKind::Read | ActionKind::Edit | ActionKind::Write => {
                names.extend(path(&action.target, NeedKind::Path, root));
            }
            ActionKind::Search => {
                names_in_pattern(&action.target, root, &mut names);
                names.extend(path(action.location(), NeedKind::Path, root));
            }
            _ => {}
        }
    }
    names
}

/// Returns a path as a name. Returns `None` for the root, patterns and paths outside the file system.
fn path(text: &str, kind: NeedKind, root: Option<&str>) -> Option<Name> {
    let text = text.trim().trim_end_matches('/');
    let root = root.map(|root| root.trim_end_matches('/'));
    let below = root.and_then(|root| text.strip_prefix(root)?.strip_prefix('/'));
    let relative = below.unwrap_or(text).trim_start_matches("./");
    // A quote is part of a program, as in `node -p "require('./a.json').version"`.
    let is_pattern = relative.contains([
        '*', '?', '[', ']', '{', '}', '$', '\\', '^', '@', '%', '\n', '`', '~', '=', '\'', '"',
    ]);
    let is_other = Some(text) == root || text.starts_with("/dev/") || text.contains("://");
    let has_letters = relative.chars().filter(|c| c.is_alphabetic()).count() > 1;
    if is_pattern || is_other || !has_letters || relative.chars().count() < MIN_CHARS {
        return None;
    }
    Some(Name {
        kind,
        text: relative.into(),
        is_complete: below.is_some() || text.starts_with('/'),
    })
}

/// Finds identifiers in a pattern, and the file name at the end of a file pattern such as `**/name.rs`.
fn names_in_pattern(pattern: &str, root: Option<&str>, names: &mut Vec<Name>) {
    let last = pattern.rsplit('/').next().unwrap_or_default();
    if is_file_name(last) {
        names.extend(path(last, NeedKind::Path, root));
        return;
    }
    names.extend(identifiers(pattern).map(|text| Name {
        kind: NeedKind::Identifier,
        text: text.into(),
        is_complete: true,
    }));
}

/// Returns the identifiers in a regular expression. Plain words are none.
fn identifiers(pattern: &str) -> impl Iterator<Item = &str> {
    let mut rest = pattern;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(|c: char| is_word(c) || c == '\\')?;
            rest = &rest[start..];
            // The letter after a backslash is a class, such as `\b`, or an escaped sign.
            if let Some(escaped) = rest.strip_prefix('\\') {
                let width = escaped.chars().next().map_or(0, char::len_utf8);
                rest = &escaped[width..];
                continue;
            }
            let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            if is_identifier(word) {
                return Some(word);
            }
        }
    })
}

/// Returns true for a character of identifiers.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns true if a word is the name of something in a program: with an inner underscore, or with a capital letter
/// after a small one.
fn is_identifier(word: &str) -> bool {
    let inner = word.trim_matches('_');
    let chars = inner.chars().zip(inner.chars().skip(1));
    let mut pairs = chars.map(|(a, b)| b == '_' || (a.is_lowercase() && b.is_uppercase()));
    inner.chars().count() >= MIN_CHARS && pairs.any(|is_joint| is_joint)
}

/// Returns true if a text is a file name with an extension.
fn is_file_name(text: &str) -> bool {
    let Some((stem, extension)) = text.rsplit_once('.') else {
        return false;
    };
    let is_extension = (1..=MAX_EXTENSION).contains(&extension.len())
        && extension.starts_with(|c: char| c.is_ascii_alphabetic())
        && extension.chars().all(|c| c.is_ascii_alphanumeric());
    let is_stem = stem.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ')'));
    is_extension && is_stem && !text.contains(['*', '(', '|', '^', '\\', '+', '?', ' '])
}

/// Finds the files and search patterns of a shell command.
fn names_in_command(command: &str, root: Option<&str>, names: &mut Vec<Name>) {
    for words in commands(command) {
        let is_assignment = |word: &&Word<'_>| word.text.contains('=') && !word.is_quoted;
        let mut words = words.iter().skip_while(is_assignment);
        let Some(first) = words.next() else {
            continue;
        };
        let program = first.text.rsplit('/').next().unwrap_or_default();
        if TEXT_PROGRAMS.contains(&program) {
            continue;
        }
        let mut is_pattern_next = SEARCH_PROGRAMS.contains(&program);
        let mut is_option_value = false;
        for word in words {
            if program == "git" && word.text == "grep" {
                is_pattern_next = true;
            } else if word.text.starts_with('-') {
                // The value of such an option is a number.
                is_option_value = matches!(word.text, "-A" | "-B" | "-C" | "-m");
            } else if std::mem::take(&mut is_option_value) {
                // The value of an option is neither a pattern nor a file.
            } else if std::mem::take(&mut is_pattern_next) {
                names_in_pattern(word.text, root, names);
            } else if is_file_argument(word.text) {
                names.extend(path(word.text, NeedKind::CommandFile, root));
            }
        }
    }
}

/// Returns true if an argument of a command looks like a file or a folder.
fn is_file_argument(word: &str) -> bool {
    !word.contains(char::is_whitespace) && (word.contains('/') || is_file_name(word))
}

/// A word of a command.
#[derive(Debug)]
struct Word<'a> {
    text: &'a str,
    is_quoted: bool,
}

/// Splits a command line into commands and their words, without quotes. Here-documents are data and end the scan.
fn commands(line: &str) -> Vec<Vec<Word<'_>>> {
    let mut commands = vec![Vec::new()];
    let mut rest = line;
    loop {
        // A break of the line ends a command. Any other space must be skipped, because no word begins with it.
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() && !matches!(c, '\n' | '\r'));
        let Some(next) = rest.chars().next() else {
            return commands;
        };
        if rest.starts_with("<<") {
            return commands;
        }
        if matches!(next, ';' | '|' | '&' | '\n' | '\r' | '(' | ')') {
            commands.push(Vec::new());
            rest = &rest[1..];
            continue;
        }
        // The file of a redirection counts like an argument.
        if matches!(next, '<' | '>') {
            rest = &rest[1..];
            continue;
        }
        let is_quoted = matches!(next, '\'' | '"');
        let end = if is_quoted {
            let inner = rest[1..].find(next).map_or(rest.len(), |at| at + 1);
            let word = rest.get(1..inner).unwrap_or_default();
            if let Some(words) = commands.last_mut() {
                words.push(Word {
                    text: word,
                    is_quoted,
                });
            }
            // Without a closing quote, the word extends to the end of the line.
            (inner + 1).min(rest.len())
        } else {
            let is_end = |c: char| c.is_whitespace() || ";|&()<>'\"".contains(c);
            let end = rest.find(is_end).unwrap_or(rest.len());
            if let Some(words) = commands.last_mut() {
                words.push(Word {
                    text: &rest[..end],
                    is_quoted,
                });
            }
            end
        };
        rest = &rest[end..];
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::json::UnknownFields;
    use palimpsest_core::message::ToolInput;

    use super::*;

    #[track_caller]
    fn check(tool: &str, input: &str, expected: &[(NeedKind, &str, bool)]) {
        let call = ToolUse {
            id: "x".into(),
            name: tool.into(),
            input: ToolInput::parse(input),
            extra: UnknownFields::default(),
        };
        let found = names_of(&call, Some("/work/app"));
        let found: Vec<_> = found
            .iter()
            .map(|name| (name.kind, &*name.text, name.is_complete))
            .collect();
        assert_eq!(found, expected);
    }

    use NeedKind::{CommandFile, Identifier, Path};

    #[test]
    fn tools_use_paths_relative_to_the_working_directory() {
        let read = r#"{"file_path":"/work/app/src/main.rs"}"#;
        check("Read", read, &[(Path, "src/main.rs", true)]);
        let other = r#"{"file_path":"/etc/hosts.conf"}"#;
        check("Read", other, &[(Path, "/etc/hosts.conf", true)]);
        check("Read", r#"{"file_path":"/work/app"}"#, &[]);
        let patch = r#"{"input":"*** Begin Patch\n*** Update File: src/a.ts\n+x\n*** End Patch"}"#;
        check("apply_patch", patch, &[(Path, "src/a.ts", false)]);
    }

    #[test]
    fn searches_use_identifiers_and_folders() {
        let grep = r#"{"pattern":"\\bparseHeader\\(|fn read_frame|error","path":"/work/app/src"}"#;
        let expected = [
            (Identifier, "parseHeader", true),
            (Identifier, "read_frame", true),
        ];
        check("Grep", grep, &expected);
        let glob = r#"{"pattern":"**/session_store.rs"}"#;
        check("Glob", glob, &[(Path, "session_store.rs", false)]);
        check("Glob", r#"{"pattern":"**/*.rs"}"#, &[]);
    }

    #[test]
    fn commands_use_files_and_patterns() {
        let check = |command: &str, expected: &[(NeedKind, &str, bool)]| {
            let input = serde_json::json!({ "command": command });
            check("Bash", &input.to_string(), expected);
        };
        check(
            "cd /work/app && RUST_LOG=1 python3 scripts/run.py --fast 2>&1 | head -5",
            &[(CommandFile, "scripts/run.py", false)],
        );
        check(
            "grep -rn -A 3 \"load_state\" crates/core/src | grep -v test_case",
            &[
                (Identifier, "load_state", true),
                (CommandFile, "crates/core/src", false),
                (Identifier, "test_case", true),
            ],
        );
        check(
            "echo src/main.rs; git log -3 origin/main",
            &[(CommandFile, "origin/main", false)],
        );
        // The words of the command name the file, and the whole command is a write of it.
        check(
            "cat > /work/app/a.txt <<'EOF'\nsrc/lib.rs\nEOF",
            &[(CommandFile, "a.txt", true), (Path, "a.txt", true)],
        );
        // Any white space separates words, also a non-breaking space and a form feed.
        check(
            "ls\u{a0}src/lib.rs\u{c}",
            &[(CommandFile, "src/lib.rs", false)],
        );
        check("node -p \"require('./a.json').version\"", &[]);
        check(
            "git commit -m \"see src/lib.rs for it\" && ls *.rs $HOME/x.rs",
            &[],
        );
    }
}
