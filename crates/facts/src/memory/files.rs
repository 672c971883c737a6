//! The section of files: changed files with their edits and defined names, and files that were only
//! read.

use std::fmt::Write as _;

use crate::action_outcome::ActionOutcome;
use crate::facts::Deed;
use crate::lines::{ManagedLine, join, read_names, take, write_names};
use crate::notes::Timeline;
use crate::steps::short;
use crate::text::{label, times};
use crate::tool_action::Act;

const MAX_PATH: usize = 300;
const MAX_SYMBOLS: usize = 5;
/// The maximum number of paths listed as only read. The oldest are dropped.
const MAX_READ: usize = 20;

/// The directory to which paths are relative.
struct Root(String);

impl ManagedLine for Root {
    fn read(line: &str) -> Option<Self> {
        let path = line
            .strip_prefix("Paths are relative to `")?
            .strip_suffix("`.")?;
        // A line with further backticks was edited by a person and is not parsed.
        (!path.contains('`')).then(|| Self(path.into()))
    }

    fn write(&self) -> String {
        format!("Paths are relative to `{}`.", self.0)
    }
}

/// Returns the directory to which the paths of a body are relative, according to the body.
pub fn root_in(body: &str) -> Option<String> {
    let (roots, _) = take::<Root>(body);
    roots.into_iter().next().map(|root| root.0)
}

/// Returns the directory for new paths. A body that already contains absolute paths keeps them.
pub(super) fn root_for(body: &str, new: Option<&str>) -> Option<String> {
    root_in(body).or_else(|| {
        let begun = !take_changed(body).0.is_empty() || !take::<ReadFiles>(body).0.is_empty();
        new.filter(|_| !begun)
            .map(|root| label(root.trim_end_matches('/'), MAX_PATH))
    })
}

/// A changed file.
#[derive(Clone)]
struct Changed {
    path: String,
    /// The way in which this session wrote the whole file, if it did.
    born: Option<Born>,
    edits: usize,
    symbols: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Born {
    Created,
    Written,
}

impl ManagedLine for Changed {
    fn read(line: &str) -> Option<Self> {
        let (path, rest) = line.strip_prefix("- `")?.split_once("` was ")?;
        let rest = rest.strip_suffix('.')?;
        let (verbs, symbols) = match rest.split_once(" (") {
            Some((verbs, symbols)) => (verbs, symbols.strip_suffix(')')?),
            None => (rest, ""),
        };
        let (born, edited) = if let Some(rest) = verbs.strip_prefix("created") {
            (Some(Born::Created), rest)
        } else if let Some(rest) = verbs.strip_prefix("written anew") {
            (Some(Born::Written), rest)
        } else {
            (None, verbs)
        };
        // A file that this session wrote may have been edited as well.
        let edited = edited.strip_prefix(" and ").unwrap_or(edited);
        let edits = match edited.strip_prefix("edited ") {
            None if edited.is_empty() => 0,
            None => return None,
            Some("once") => 1,
            Some("twice") => 2,
            Some(many) => many.strip_suffix(" times")?.parse().ok()?,
        };
        let symbols = symbols.split(", ").filter(|name| !name.is_empty());
        let symbols = symbols.map(|name| name.strip_prefix('`')?.strip_suffix('`'));
        let symbols: Vec<&str> = symbols.collect::<Option<_>>()?;
        // A backtick inside a name means that a person changed the line.
        if symbols.iter().chain([&path]).any(|name| name.contains('`')) {
            return None;
        }
        Some(Self {
            path: path.into(),
            born,
            edits,
            symbols: symbols.into_iter().map(Into::into).collect(),
        })
    }

    fn write(&self) -> String {
        let mut out = format!("- `{}` was ", self.path);
        out.push_str(match self.born {
            Some(Born::Created) => "created",
            Some(Born::Written) => "written anew",
            None => "",
        });
        if self.edits > 0 {
            let and = if self.born.is_some() { " and " } else { "" };
            let _ = write!(out, "{and}edited {}", times(self.edits));
        }
        if !self.symbols.is_empty() {
            let names: Vec<String> = self
                .symbols
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            let _ = write!(out, " ({})", names.join(", "));
        }
        out.push('.');
        out
    }
}

/// The files that were only read.
struct ReadFiles(Vec<String>);

const READ_BEGIN: &str = "Read, and left as they are: ";

impl ManagedLine for ReadFiles {
    fn read(line: &str) -> Option<Self> {
        read_names(line, READ_BEGIN).map(Self)
    }

    fn write(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|path| &**path).collect();
        write_names(READ_BEGIN, &names).join("\n")
    }
}

/// Files that were edited once without a defined name. They share one line, which keeps the section
/// short.
struct FilesEditedOnce(Vec<String>);

const ONCE_BEGIN: &str = "Edited once: ";

impl ManagedLine for FilesEditedOnce {
    fn read(line: &str) -> Option<Self> {
        read_names(line, ONCE_BEGIN).map(Self)
    }

    fn write(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|path| &**path).collect();
        write_names(ONCE_BEGIN, &names).join("\n")
    }
}

/// Splits a body into the changed files and the remaining text.
fn take_changed(body: &str) -> (Vec<Changed>, String) {
    let (once, body) = take::<FilesEditedOnce>(body);
    let once = once
        .into_iter()
        .flat_map(|once| once.0)
        .map(|path| Changed {
            edits: 1,
            ..Changed::new(path)
        });
    let (changed, theirs) = take::<Changed>(&body);
    (once.chain(changed).collect(), theirs)
}

pub(super) fn update(body: &str, notes: &Timeline<'_>) -> String {
    let (_, body) = take::<Root>(body);
    let (mut changed, body) = take_changed(&body);
    let (reads, theirs) = take::<ReadFiles>(&body);
    let mut read: Vec<String> = reads.into_iter().flat_map(|read| read.0).collect();
    for deed in notes
        .deeds()
        .filter(|deed| matches!(deed.outcome, ActionOutcome::Passed(_)))
    {
        let path = label(short(&deed.call.target, notes.root), MAX_PATH);
        if path.is_empty() {
            continue;
        }
        match deed.call.act {
            // A changed file moves to the end, so that the latest change is listed last.
            Act::Edit | Act::Write => {
                read.retain(|other| *other != path);
                let known = changed.iter().position(|file| file.path == path);
                let mut file = match known {
                    Some(at) => changed.remove(at),
                    None => Changed::new(path),
                };
                file.take(deed);
                changed.push(file);
            }
            Act::Read if changed.iter().all(|file| file.path != path) => {
                read.retain(|other| *other != path);
                read.push(path);
            }
            _ => {}
        }
    }
    // The list is ordered by last use, so its front contains the oldest files.
    read.drain(..read.len().saturating_sub(MAX_READ));
    let uses_root = notes
        .root
        .filter(|_| !changed.is_empty() || !read.is_empty());
    let root = uses_root.map(|root| Root(root.into()).write());
    let (once, changed): (Vec<Changed>, _) = changed.into_iter().partition(Changed::is_plain);
    let once = FilesEditedOnce(once.into_iter().map(|file| file.path).collect()).write();
    let changed: Vec<String> = changed.iter().map(ManagedLine::write).collect();
    let read = if read.is_empty() {
        String::new()
    } else {
        ReadFiles(read).write()
    };
    // If the section is too long, its last lines are kept longest. A person's lines are therefore
    // placed last.
    join([
        root.unwrap_or_default(),
        changed.join("\n"),
        once,
        read,
        theirs,
    ])
}

/// Returns true if a name repeats the file name, as `Shop.OrderLine` does in `order_line.ex`.
fn says_the_path(path: &str, name: &str) -> bool {
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

impl Changed {
    fn new(path: String) -> Self {
        Self {
            path,
            born: None,
            edits: 0,
            symbols: Vec::new(),
        }
    }

    fn is_plain(&self) -> bool {
        self.born.is_none() && self.edits == 1 && self.symbols.is_empty()
    }

    fn take(&mut self, deed: &Deed) {
        if deed.call.act == Act::Write {
            self.born = Some(match self.born {
                // A file that was created once stays listed as created, however often it is
                // rewritten.
                Some(Born::Created) => Born::Created,
                _ if deed.created => Born::Created,
                _ => Born::Written,
            });
        } else {
            self.edits += 1;
        }
        for name in &deed.call.symbols {
            let name = name.replace(['`', ',', '(', ')'], "");
            let is_new = !name.is_empty() && !self.symbols.contains(&name);
            if is_new && !says_the_path(&self.path, &name) {
                self.symbols.push(name);
            }
        }
        let over = self.symbols.len().saturating_sub(MAX_SYMBOLS);
        self.symbols.drain(..over);
    }
}
