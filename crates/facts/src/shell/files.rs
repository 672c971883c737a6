//! The files and folders in a shell command, and their use.

use super::is_assignment;
use super::words::{Word, simple_commands};

/// The maximum number of files of a command. A command is untrusted input.
const MAX_FILES: usize = 24;
/// The maximum length of a command that is searched, in bytes.
const MAX_COMMAND: usize = 64 * 1024;
/// The maximum length of a path in bytes.
const MAX_PATH: usize = 300;

/// Programs that show files.
const READERS: [&str; 14] = [
    "cat", "nl", "head", "tail", "less", "more", "bat", "wc", "xxd", "od", "diff", "cmp", "sort",
    "stat",
];
/// Programs whose first argument is a pattern or a script, and whose other arguments are files to read.
const SCRIPTED_READERS: [&str; 5] = ["sed", "awk", "gawk", "jq", "yq"];
/// Programs whose first argument is a pattern.
const SEARCHERS: [&str; 5] = ["rg", "grep", "egrep", "fgrep", "ag"];
/// Programs whose arguments are text, addresses or settings.
const TEXT_PROGRAMS: [&str; 9] = [
    "echo", "printf", "export", "curl", "wget", "kill", "sleep", "exit", "alias",
];
/// Programs whose output, redirected to a file, is the content of the file.
const WRITERS: [&str; 3] = ["cat", "echo", "printf"];
/// Programs that start another program with its arguments.
const WRAPPERS: [&str; 12] = [
    "sudo", "time", "command", "env", "nohup", "do", "then", "else", "if", "while", "!", "{",
];
const SHELLS: [&str; 3] = ["bash", "sh", "zsh"];

/// A file or folder in a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommandFile<'a> {
    pub(crate) path: &'a str,
    pub(crate) usage: FileUsage,
}

/// The use of a file by a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileUsage {
    /// The command shows the file.
    Read,
    /// The command changes a part of the file.
    Changed,
    /// The command writes the whole file.
    Written,
    /// The command searches, lists, runs or moves the file or folder.
    Other,
}

/// Returns the files and folders that a command names, in order.
pub(crate) fn command_files(command: &str) -> Vec<CommandFile<'_>> {
    let mut files = Vec::new();
    let end = command.floor_char_boundary(MAX_COMMAND);
    collect(&command[..end], true, &mut files);
    // `collect` checks the limit between commands, and one command can exceed it.
    files.truncate(MAX_FILES);
    files
}

fn collect<'a>(command: &'a str, may_nest: bool, files: &mut Vec<CommandFile<'a>>) {
    for words in simple_commands(command) {
        if files.len() >= MAX_FILES {
            return;
        }
        collect_simple(&words, may_nest, files);
    }
}

/// Collects the files of a command without pipes and lists.
fn collect_simple<'a>(words: &[Word<'a>], may_nest: bool, files: &mut Vec<CommandFile<'a>>) {
    let mut arguments = Vec::with_capacity(words.len());
    let mut redirected = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let usage = match word.text {
            // A quoted sign is an argument, as in `grep '>' a.md`.
            _ if word.is_quoted => None,
            "<" => Some(FileUsage::Read),
            ">" => Some(FileUsage::Written),
            ">>" => Some(FileUsage::Changed),
            _ => None,
        };
        if let Some(usage) = usage {
            // The word after the sign is the file.
            let target = words.next().map(|word| word.text);
            let target = target.filter(|text| is_path(text, true));
            redirected.extend(target.map(|path| CommandFile { path, usage }));
        } else {
            arguments.push(word);
        }
    }
    // Assignments and wrappers precede the program, as in `RUST_LOG=1 sudo cargo test`.
    let is_prefix = |word: &&&Word<'_>| {
        !word.is_quoted && (is_assignment(word.text) || WRAPPERS.contains(&word.text))
    };
    let skipped = arguments.iter().take_while(is_prefix).count();
    let Some((first, arguments)) = arguments[skipped..].split_first() else {
        return;
    };
    let program = first.text.rsplit('/').next().unwrap_or_default();
    for mut file in redirected {
        // The log of another program is no content that the agent wrote.
        if file.usage != FileUsage::Read && !WRITERS.contains(&program) {
            file.usage = FileUsage::Other;
        }
        files.push(file);
    }
    if SHELLS.contains(&program) && may_nest {
        // The script follows the option `-c`, which can be combined with others, as in `bash -lc`.
        let is_script = |word: &&Word<'_>| word.text.starts_with('-') && word.text.ends_with('c');
        if let Some(at) = arguments.iter().position(is_script) {
            if let Some(script) = arguments.get(at + 1) {
                // Only one level of nesting is searched, so untrusted input cannot cause deep recursion.
                collect(script.text, false, files);
            }
            return;
        }
    }
    if !TEXT_PROGRAMS.contains(&program) {
        collect_arguments(program, arguments, files);
    }
}

/// Collects the files in the arguments of a program.
fn collect_arguments<'a>(program: &str, arguments: &[&Word<'a>], files: &mut Vec<CommandFile<'a>>) {
    let is_git_search =
        program == "git" && arguments.first().is_some_and(|word| word.text == "grep");
    let has = |option: &str| arguments.iter().any(|word| word.text == option);
    let edits_in_place = matches!(program, "sed" | "perl")
        && arguments.iter().any(|word| is_in_place(word.text, program));
    // `rg --files` lists files and has no pattern.
    let mut is_script_next = SCRIPTED_READERS.contains(&program)
        || edits_in_place
        || is_git_search
        || SEARCHERS.contains(&program) && !has("--files");
    let usage = if edits_in_place {
        FileUsage::Changed
    } else if READERS.contains(&program) || SCRIPTED_READERS.contains(&program) {
        FileUsage::Read
    } else if program == "tee" {
        FileUsage::Written
    } else {
        FileUsage::Other
    };
    // A bare name is often a branch, a package or a subcommand there, as in `git show v1.x`.
    let is_plain_argument = !matches!(program, "git" | "gh" | "npm" | "docker" | "kubectl");
    let mut rest = arguments.iter().skip(usize::from(is_git_search));
    while let Some(word) = rest.next() {
        if word.text.starts_with('-') && !word.is_quoted {
            // The value of these options is a pattern, which replaces the first argument.
            if matches!(word.text, "-e" | "--regexp" | "--expression") {
                rest.next();
                is_script_next = false;
            } else if has_value(program, word.text) {
                rest.next();
            }
        } else if edits_in_place && word.is_quoted && word.text.is_empty() {
            // The empty suffix of `sed -i ''` precedes the script.
        } else if std::mem::take(&mut is_script_next) {
            // The pattern or script is no file, even if it looks like a path.
        } else if is_path(word.text, is_plain_argument) {
            files.push(CommandFile {
                path: word.text,
                usage,
            });
        }
    }
}

/// Returns true if the next word is the value of an option and no file.
fn has_value(program: &str, option: &str) -> bool {
    match program {
        "rg" | "grep" | "egrep" | "fgrep" | "ag" => matches!(
            option,
            "-g" | "--glob"
                | "--iglob"
                | "-A"
                | "-B"
                | "-C"
                | "-m"
                | "-t"
                | "-T"
                | "--type"
                | "--max-count"
                | "--include"
                | "--exclude"
                | "--context"
        ),
        "head" | "tail" => matches!(option, "-n" | "-c"),
        // Most tests of `find` have a value, as `-name '*.rs'` has.
        "find" => !matches!(
            option,
            "-o" | "-a" | "-not" | "-print" | "-prune" | "-delete"
        ),
        "git" | "gh" => matches!(
            option,
            "-m" | "--message" | "-b" | "--body" | "--title" | "-t" | "--repo" | "-R"
        ),
        "jq" => option == "--arg",
        _ => false,
    }
}

/// Returns true for the option with which a program changes its files.
fn is_in_place(option: &str, program: &str) -> bool {
    match program {
        "sed" => option.starts_with("-i") || option.starts_with("--in-place"),
        // Single letters can be combined, as in `-pi`. The name of a module follows `-M` and `-m`.
        _ => option.strip_prefix('-').is_some_and(|letters| {
            let is_flag = |c: char| matches!(c, 'p' | 'n' | 'l' | 'w' | '0' | 'a' | 'e');
            letters.trim_start_matches(is_flag).starts_with('i')
        }),
    }
}

/// Returns true if a word is the path of a file or folder. A name without a slash needs an extension.
fn is_path(word: &str, may_be_bare: bool) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-@+".contains(c);
    let has_letter = word.contains(char::is_alphabetic);
    let is_address = word.contains("//") || word.starts_with('@') || word.starts_with("/dev/");
    if !has_letter || is_address || word.len() > MAX_PATH || !word.chars().all(is_plain) {
        return false;
    }
    let name = word
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let is_file = has_extension(name) && may_be_bare;
    !name.is_empty() && (is_file || word.trim_end_matches('/').contains('/') || word.ends_with('/'))
}

/// Returns true if a name ends with an extension, as `README.md` does. Numbers such as `1.5` have none.
pub(crate) fn has_extension(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(stem, extension)| {
        !stem.is_empty()
            && (1..=6).contains(&extension.len())
            && extension.starts_with(|c: char| c.is_ascii_alphabetic())
            && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::FileUsage::{Changed, Other, Read, Written};
    use super::*;

    #[track_caller]
    fn check(command: &str, expected: &[(&str, FileUsage)]) {
        let found: Vec<(&str, FileUsage)> = command_files(command)
            .into_iter()
            .map(|file| (file.path, file.usage))
            .collect();
        assert_eq!(found, expected, "{command}");
    }

    #[test]
    fn compound_commands_read_several_files() {
        check(
            "cd app && sed -n '1,20p' src/a.rs; nl -ba README.md | sed -n 1,5p && cat b.txt c.txt",
            &[
                ("src/a.rs", Read),
                ("README.md", Read),
                ("b.txt", Read),
                ("c.txt", Read),
            ],
        );
        check(
            "bash -lc \"cat src/a.rs && head -n 5 src/b.rs\"",
            &[("src/a.rs", Read), ("src/b.rs", Read)],
        );
        check(
            "jq '.scripts' package.json < in.json",
            &[("in.json", Read), ("package.json", Read)],
        );
    }

    #[test]
    fn searches_and_programs_name_files() {
        check(
            "rg -n \"a/b|c.d\" -g '*.ts' packages/core src/ | head -50",
            &[("packages/core", Other), ("src/", Other)],
        );
        check("rg --files docs/api", &[("docs/api", Other)]);
        check(
            "git grep -n load_state crates/core",
            &[("crates/core", Other)],
        );
        check(
            "find examples/features -name '*.yaml' -maxdepth 2",
            &[("examples/features", Other)],
        );
        check(
            "RUST_LOG=1 python3 scripts/run.py 2>&1 > out/run.log",
            &[("out/run.log", Other), ("scripts/run.py", Other)],
        );
    }

    #[test]
    fn edits_in_place_and_here_documents_change_files() {
        // The option `-e` has the script as its value, so no argument is skipped for it.
        check("sed -i -e 's/a.b/c/' src/a.rs", &[("src/a.rs", Changed)]);
        check("perl -0pi -e 's/a.b/c/' src/a.rs", &[("src/a.rs", Changed)]);
        check(
            "cat > src/a.rs <<'EOF'\ncat src/other.rs; echo 'x\nEOF\ncat <<E >> b.md\nx\nE\ncat c.md",
            &[("src/a.rs", Written), ("b.md", Changed), ("c.md", Read)],
        );
        check("echo x | tee out/a.txt", &[("out/a.txt", Written)]);
    }

    #[test]
    fn other_words_are_no_files() {
        for command in [
            "",
            "echo src/main.rs",
            "git commit -m \"see src/lib.rs for it\"",
            "cat *.rs $HOME/x.rs",
            "curl https://a.org/b.json",
            "awk '$1 > 1.5' ",
            "sleep 1.5 && cat /dev/null",
            "cat <<EOF\nsrc/a.rs",
            "cat 'unclosed.rs and more",
            "<<",
            "bash -c",
        ] {
            check(command, &[]);
        }
    }

    #[test]
    fn programs_that_edit_in_place_change_their_files_only() {
        check("sed -i '' 's/foo/bar/' src/a.rs", &[("src/a.rs", Changed)]);
        check("perl -0pi -e 's/a/b/' src/a.rs", &[("src/a.rs", Changed)]);
        check("perl -Mstrict -ne print src/b.rs", &[("src/b.rs", Other)]);
    }

    #[test]
    fn the_number_of_files_is_limited() {
        let names: Vec<String> = (0..100).map(|n| format!("src/{n}.rs")).collect();
        let command = format!("cat {}", names.join(" "));
        assert_eq!(command_files(&command).len(), MAX_FILES);
    }
}
