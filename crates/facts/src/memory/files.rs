//! The section of files: changed files with their edits and defined names, and files that were only
//! read.

use super::fact::{ChangedFile, FileWrite, MemoryFact};
use super::render::render;
use super::section::{join, listed, take};
use crate::action_outcome::ActionOutcome;
use crate::facts::CompletedAction;
use crate::paths::relative_path;
use crate::shell::FileUsage;
use crate::text::label;
use crate::timeline::Timeline;
use crate::tool_action::ActionKind;

const MAX_PATH: usize = 300;
const MAX_SYMBOLS: usize = 5;
/// The maximum number of paths listed as only read. The oldest are dropped.
const MAX_READ: usize = 20;

/// Returns the directory to which the paths of a section are relative.
pub(crate) fn root_of<'a>(facts: impl IntoIterator<Item = &'a MemoryFact>) -> Option<&'a str> {
    facts.into_iter().find_map(|fact| match fact {
        MemoryFact::Root(path) => Some(&**path),
        _ => None,
    })
}

/// Returns the directory for new paths. A section that already contains absolute paths keeps them.
pub(super) fn root_for(facts: &[MemoryFact], new: Option<&str>) -> Option<String> {
    let names_path = |fact: &MemoryFact| {
        matches!(
            fact,
            MemoryFact::ChangedFile(_) | MemoryFact::FilesEditedOnce(_) | MemoryFact::FilesRead(_)
        )
    };
    root_of(facts).map(Into::into).or_else(|| {
        new.filter(|_| !facts.iter().any(names_path))
            .map(|root| label(root.trim_end_matches('/'), MAX_PATH))
    })
}

pub(super) fn update(facts: Vec<MemoryFact>, timeline: &Timeline<'_>) -> Vec<MemoryFact> {
    // The root is added again below if the section still lists a path.
    let (_, facts) = take(facts, |fact| match fact {
        MemoryFact::Root(path) => Ok(path),
        fact => Err(fact),
    });
    let (once, facts) = take(facts, |fact| match fact {
        MemoryFact::FilesEditedOnce(paths) => Ok(paths),
        fact => Err(fact),
    });
    let (known, facts) = take(facts, |fact| match fact {
        MemoryFact::ChangedFile(file) => Ok(file),
        fact => Err(fact),
    });
    let (read, mut theirs) = take(facts, |fact| match fact {
        MemoryFact::FilesRead(paths) => Ok(paths),
        fact => Err(fact),
    });
    // The files of the shared line become entries again, because a further edit gives a file its own line.
    let once = once.into_iter().flatten().map(|path| ChangedFile {
        edits: 1,
        ..ChangedFile::new(path)
    });
    let mut changed: Vec<ChangedFile> = once.chain(known).collect();
    let mut read: Vec<Box<str>> = read.into_iter().flatten().collect();
    // A call that failed or has no result may not have touched its files.
    for action in timeline
        .actions()
        .filter(|action| matches!(action.outcome, ActionOutcome::Passed(_)))
    {
        for (path, usage) in files_of(action) {
            let path: Box<str> = label(relative_path(path, timeline.root), MAX_PATH).into();
            if path.is_empty() {
                continue;
            }
            let known = changed.iter().position(|file| file.path == path);
            if usage != FileUsage::Read {
                // A changed file moves to the end, so that the latest change is listed last.
                read.retain(|other| *other != path);
                let mut file = match known {
                    Some(at) => changed.remove(at),
                    None => ChangedFile::new(path),
                };
                file.take(action, usage);
                changed.push(file);
            } else if known.is_none() {
                read.retain(|other| *other != path);
                read.push(path);
            }
        }
    }
    // The list is ordered by last use, so its front contains the oldest files.
    read.drain(..read.len().saturating_sub(MAX_READ));
    let uses_root = timeline
        .root
        .filter(|_| !changed.is_empty() || !read.is_empty());
    let root = uses_root.map(|root| MemoryFact::Root(root.into()));
    // The text of an earlier summary names the directory too.
    let line = root.as_ref().map(render);
    theirs.retain(|fact| Some(render(fact)) != line);
    // Files that were edited once without a defined name share one line, which keeps the section short.
    let (once, changed): (Vec<ChangedFile>, _) =
        changed.into_iter().partition(ChangedFile::is_plain);
    let once: Vec<Box<str>> = once.into_iter().map(|file| file.path).collect();
    // If the section is too long, its last lines are kept longest. A person's lines are therefore
    // placed last.
    join([
        root.into_iter().collect(),
        changed.into_iter().map(MemoryFact::ChangedFile).collect(),
        listed(&once, MemoryFact::FilesEditedOnce),
        listed(&read, MemoryFact::FilesRead),
        theirs,
    ])
}

/// Returns the files that an action reads and changes.
fn files_of(action: &CompletedAction) -> impl Iterator<Item = (&str, FileUsage)> {
    let call = &action.call;
    let usage = match call.kind {
        ActionKind::Read => Some(FileUsage::Read),
        ActionKind::Edit => Some(FileUsage::Changed),
        ActionKind::Write => Some(FileUsage::Written),
        _ => None,
    };
    let target = usage.map(|usage| (&*call.target, usage));
    let files = call.files.iter().map(|file| (&*file.path, file.usage));
    target.into_iter().chain(files)
}

/// Returns true if a name repeats the file name, as `Shop.OrderLine` does in `order_line.ex`.
fn repeats_path(path: &str, name: &str) -> bool {
    let folded = |text: &str| -> String {
        let letters = text.chars().filter(|c| c.is_alphanumeric());
        letters.flat_map(char::to_lowercase).collect()
    };
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let is_compound = name.contains('.') || name.contains("::");
    let last = name.rsplit(['.', ':']).next().unwrap_or(name);
    is_compound && !last.is_empty() && folded(stem).ends_with(&folded(last))
}

impl ChangedFile {
    fn new(path: Box<str>) -> Self {
        Self {
            path,
            written: None,
            edits: 0,
            symbols: Vec::new(),
        }
    }

    fn is_plain(&self) -> bool {
        self.written.is_none() && self.edits == 1 && self.symbols.is_empty()
    }

    fn take(&mut self, action: &CompletedAction, usage: FileUsage) {
        if usage == FileUsage::Written {
            self.written = Some(match self.written {
                // A file that was created once stays listed as created, however often it is
                // rewritten.
                Some(FileWrite::Created) => FileWrite::Created,
                _ if action.created => FileWrite::Created,
                _ => FileWrite::Replaced,
            });
        } else {
            self.edits += 1;
        }
        for name in &action.call.symbols {
            // Names are rendered in backticks, with commas, in parentheses, so they must not contain these signs.
            let name: Box<str> = name.replace(['`', ',', '(', ')'], "").into();
            let is_new = !name.is_empty() && !self.symbols.contains(&name);
            if is_new && !repeats_path(&self.path, &name) {
                self.symbols.push(name);
            }
        }
        let over = self.symbols.len().saturating_sub(MAX_SYMBOLS);
        self.symbols.drain(..over);
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_types::memory::SectionKind;

    use crate::Facts;
    use crate::memory::{MemoryContent, update};
    use crate::tests::{body, does};

    #[track_caller]
    fn check(tool: &str, input: &serde_json::Value, output: &str, expected: &str) {
        let messages = does(tool, &input.to_string(), output, None);
        let memory = update(&MemoryContent::default(), &Facts::of(&messages));
        let body = body(&memory, SectionKind::Files);
        let lines: Vec<&str> = body
            .lines()
            .filter(|line| !line.starts_with("Other names"))
            .collect();
        assert_eq!(lines.join("\n").trim(), expected);
    }

    #[test]
    fn files_of_compound_commands_are_listed() {
        check(
            "exec_command",
            &serde_json::json!({"cmd": "rg -n parse src; sed -n 1,9p src/a.rs && nl -ba docs/b.md | head"}),
            "fn parse()",
            "Read, and left as they are: `src/a.rs`, `docs/b.md`.",
        );
        check(
            "shell",
            &serde_json::json!({"command": ["bash", "-lc", "cat a.rs b.rs && sed -i s/x/y/ b.rs c.rs"]}),
            "ok",
            "Edited once: `b.rs`, `c.rs`.\n\nRead, and left as they are: `a.rs`.",
        );
        // The exit code is that of the whole line, so `cat` may not have read the file.
        check(
            "shell",
            &serde_json::json!({"command": "cargo test; cat a.rs"}),
            "Exit code 1\nerror: no such file",
            "",
        );
    }

    #[test]
    fn patches_in_argument_lists_are_edits() {
        let patch = "*** Begin Patch\n*** Update File: src/a.rs\n+x\n*** End Patch";
        check(
            "shell",
            &serde_json::json!({"command": ["apply_patch", patch]}),
            "ok",
            "Edited once: `src/a.rs`.",
        );
        check(
            "exec_command",
            &serde_json::json!({"cmd": format!("apply_patch <<'EOF'\n{patch}\nEOF")}),
            "ok",
            "Edited once: `src/a.rs`.",
        );
    }
}
