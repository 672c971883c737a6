//! A simulated drive. It computes the guaranteed content of each file and folder at any time, based on
//! the system calls so far.
//!
//! The rules are the strictest that POSIX allows. A write is durable after a sync of its file that
//! began after the write. A directory entry is durable after a sync of its folder; a sync of the file
//! is not enough.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use crate::trace::{Arg, Call};
use crate::writer::Random;

const PAGE: usize = 4096;

/// The treatment of changes that are not durable.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fate {
    /// All of them are lost.
    Lost,
    /// A random part of them survives: pages in any order, and a prefix of the changes of a folder.
    Torn(u64),
}

type Inode = usize;

#[derive(Debug)]
enum Change {
    Write {
        at: usize,
        bytes: Vec<u8>,
    },
    Resize {
        len: usize,
    },
    /// In a folder: sets or removes a directory entry.
    Name {
        name: String,
        inode: Option<Inode>,
    },
}

#[derive(Debug)]
struct Timed<T> {
    what: T,
    begun: u64,
    ended: u64,
}

#[derive(Debug, Default)]
struct Node {
    is_dir: bool,
    changes: Vec<Timed<Change>>,
    syncs: Vec<Timed<()>>,
    /// For a folder: the entries that the running system sees.
    entries: BTreeMap<String, Inode>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    inode: Inode,
    position: usize,
}

pub(crate) struct Disk {
    root: PathBuf,
    nodes: Vec<Node>,
    open: HashMap<i64, Open>,
    said: Vec<(u64, String)>,
    /// The offset of the current process's clock. Clocks of successive processes do not overlap.
    base: u64,
    begun: Vec<u64>,
    last: u64,
}

impl Disk {
    /// Creates an empty drive with a durable folder `root`.
    pub(crate) fn new(root: &Path) -> Self {
        let root_node = Node {
            is_dir: true,
            ..Node::default()
        };
        Self {
            root: root.to_owned(),
            nodes: vec![root_node],
            open: HashMap::new(),
            said: Vec::new(),
            base: 0,
            begun: Vec::new(),
            last: 0,
        }
    }

    /// Returns the times of all acknowledgements. Each is the start of the write that reports it.
    pub(crate) fn acknowledgements(&self) -> Vec<u64> {
        let said = self.said.iter();
        let acknowledged = said.filter(|(_, line)| line.starts_with("ack "));
        acknowledged.map(|(moment, _)| *moment).collect()
    }

    /// Returns the times directly after each change that a process made while it opened the store.
    pub(crate) fn openings(&self) -> Vec<u64> {
        let acknowledged = self.acknowledgements();
        let mut moments = Vec::new();
        for begun in &self.begun {
            let first = acknowledged.iter().find(|moment| *moment > begun);
            let opening = *begun..*first.unwrap();
            let changes = self.nodes.iter().flat_map(|node| &node.changes);
            let ended = changes.map(|change| change.ended + 1);
            moments.extend(ended.filter(|ended| opening.contains(ended)));
        }
        moments
    }

    pub(crate) fn said_until(&self, moment: u64) -> impl Iterator<Item = &str> {
        let said = self.said.iter().filter(move |(at, _)| *at <= moment);
        said.map(|(_, line)| line.as_str())
    }

    /// Starts the calls of the next process.
    pub(crate) fn next_process(&mut self) {
        self.base = self.last + 1;
        self.begun.push(self.base);
        self.open.clear();
    }

    /// Compares the model with the real files. After a process that was killed, the files may contain
    /// effects of calls without a recorded end. The next process sees these effects, so the model adopts
    /// them.
    pub(crate) fn compare(&mut self, cut_off: bool) {
        self.compare_dir(0, &self.root.clone(), cut_off);
    }

    fn compare_dir(&mut self, dir: Inode, at: &Path, cut_off: bool) {
        self.compare_names(dir, at, cut_off);
        for (name, inode) in self.nodes[dir].entries.clone() {
            let path = at.join(name);
            if self.nodes[inode].is_dir {
                self.compare_dir(inode, &path, cut_off);
                continue;
            }
            let (real, model) = (fs::read(&path).unwrap(), self.nodes[inode].latest());
            if real == model {
                continue;
            }
            assert!(cut_off, "the model of {} is wrong", path.display());
            self.last += 1;
            let (begun, ended) = (self.last, self.last);
            let changes = &mut self.nodes[inode].changes;
            let len = real.len();
            for what in [Change::Write { at: 0, bytes: real }, Change::Resize { len }] {
                changes.push(Timed { what, begun, ended });
            }
        }
    }

    fn compare_names(&mut self, dir: Inode, at: &Path, cut_off: bool) {
        let mut gone = self.nodes[dir].entries.clone();
        for entry in fs::read_dir(at).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if gone.remove(&name).is_none() {
                assert!(cut_off, "the model lacks {}", entry.path().display());
                self.last += 1;
                let is_dir = entry.file_type().unwrap().is_dir();
                self.make(entry.path().to_str().unwrap(), is_dir, self.last, self.last);
            }
        }
        for name in gone.into_keys() {
            assert!(cut_off, "{name} is not in {}", at.display());
            self.last += 1;
            self.name(at.join(name).to_str().unwrap(), None, self.last, self.last);
        }
    }

    /// Applies a system call to the model.
    pub(crate) fn take(&mut self, call: &Call) {
        let (begun, ended) = (self.base + call.begun, self.base + call.ended);
        self.last = self.last.max(ended);
        let timed = |what| Timed { what, begun, ended };
        match call.name.as_str() {
            "openat" => self.open(call, 1, 2, begun, ended),
            "open" => self.open(call, 0, 1, begun, ended),
            "close" => drop(self.open.remove(&call.number(0))),
            "write" if call.number(0) == 1 => {
                let line = String::from_utf8_lossy(call.text(1)).into_owned();
                self.said.push((begun, line));
            }
            "write" => {
                let Some(open) = self.open.get_mut(&call.number(0)) else {
                    return;
                };
                let bytes = call.text(1).to_vec();
                assert_eq!(i64::try_from(bytes.len()).unwrap(), call.result);
                let at = open.position;
                open.position += bytes.len();
                let inode = open.inode;
                self.nodes[inode]
                    .changes
                    .push(timed(Change::Write { at, bytes }));
            }
            "pwrite64" => {
                let Some(open) = self.open.get(&call.number(0)) else {
                    return;
                };
                let bytes = call.text(1).to_vec();
                assert_eq!(i64::try_from(bytes.len()).unwrap(), call.result);
                let at = usize::try_from(call.number(3)).unwrap();
                self.nodes[open.inode]
                    .changes
                    .push(timed(Change::Write { at, bytes }));
            }
            "lseek" => {
                if let Some(open) = self.open.get_mut(&call.number(0)) {
                    open.position = usize::try_from(call.result).unwrap();
                }
            }
            "ftruncate" => {
                let Some(open) = self.open.get(&call.number(0)) else {
                    return;
                };
                let len = usize::try_from(call.number(1)).unwrap();
                self.nodes[open.inode]
                    .changes
                    .push(timed(Change::Resize { len }));
            }
            "fsync" | "fdatasync" => {
                let Some(open) = self.open.get(&call.number(0)) else {
                    return;
                };
                self.nodes[open.inode].syncs.push(Timed {
                    what: (),
                    begun,
                    ended,
                });
            }
            "mkdir" => self.make(&call.path(0), true, begun, ended),
            "rename" => self.rename(&call.path(0), &call.path(1), begun, ended),
            "linkat" => {
                let (from, to) = (call.path(1), call.path(3));
                if let Some((dir, name)) = self.find(&from) {
                    let inode = self.nodes[dir].entries[&name];
                    self.name(&to, Some(inode), begun, ended);
                }
            }
            "unlink" => self.name(&call.path(0), None, begun, ended),
            "fallocate" if call.number(1) == 0 => {
                // Preallocation: the file grows and contains zeros.
                let Some(open) = self.open.get(&call.number(0)) else {
                    return;
                };
                let len = usize::try_from(call.number(2) + call.number(3)).unwrap();
                self.nodes[open.inode]
                    .changes
                    .push(timed(Change::Resize { len }));
            }
            // Fail instead of ignoring a call that would make the model wrong.
            "writev" | "pwritev" | "fallocate" | "dup" | "dup2" | "dup3" => {
                let fd = call.number(0);
                assert!(
                    !self.open.contains_key(&fd),
                    "{} is not modelled",
                    call.name
                );
            }
            other => {
                let here = self.root.as_os_str().as_encoded_bytes();
                // Unknown calls are harmless unless they name a path of the store.
                let touches = call.args.iter().any(|arg| match arg {
                    Arg::Text(text) => text.starts_with(here),
                    Arg::Word(_) => false,
                });
                assert!(!touches, "{other} is not modelled");
            }
        }
    }

    /// Returns the folder and the name of a path, or `None` outside the drive.
    fn find(&self, path: &str) -> Option<(Inode, String)> {
        let path = Path::new(path).strip_prefix(&self.root).ok()?;
        let name = path.file_name()?.to_str().unwrap().to_owned();
        let mut dir = 0;
        for part in path.parent().unwrap() {
            dir = *self.nodes[dir].entries.get(part.to_str().unwrap())?;
        }
        Some((dir, name))
    }

    fn name(&mut self, path: &str, inode: Option<Inode>, begun: u64, ended: u64) {
        let Some((dir, name)) = self.find(path) else {
            return;
        };
        let node = &mut self.nodes[dir];
        match inode {
            Some(inode) => drop(node.entries.insert(name.clone(), inode)),
            None => drop(node.entries.remove(&name)),
        }
        let what = Change::Name { name, inode };
        node.changes.push(Timed { what, begun, ended });
    }

    fn make(&mut self, path: &str, is_dir: bool, begun: u64, ended: u64) {
        // Calls are ordered by their ends. A folder can be made inside another one before the call that made the other one
        // ends.
        let parent = Path::new(path).parent().unwrap();
        if parent.starts_with(&self.root) && parent != self.root {
            let parent = parent.to_str().unwrap();
            let is_known = self
                .find(parent)
                .is_some_and(|(dir, name)| self.nodes[dir].entries.contains_key(&name));
            if !is_known {
                self.make(parent, true, begun, ended);
            }
        }
        if let Some((dir, name)) = self.find(path)
            && is_dir
            && self.nodes[dir].entries.contains_key(&name)
        {
            return;
        }
        self.nodes.push(Node {
            is_dir,
            ..Node::default()
        });
        self.name(path, Some(self.nodes.len() - 1), begun, ended);
    }

    fn rename(&mut self, from: &str, to: &str, begun: u64, ended: u64) {
        let Some((dir, name)) = self.find(from) else {
            return;
        };
        let inode = self.nodes[dir].entries[&name];
        self.name(to, Some(inode), begun, ended);
        self.name(from, None, begun, ended);
    }

    fn open(&mut self, call: &Call, path: usize, flags: usize, begun: u64, ended: u64) {
        let path = call.path(path);
        let flags = call.word(flags).to_owned();
        let fd = call.result;
        self.open.remove(&fd);
        if Path::new(&path) == self.root {
            self.open.insert(
                fd,
                Open {
                    inode: 0,
                    position: 0,
                },
            );
            return;
        }
        let Some((dir, name)) = self.find(&path) else {
            return;
        };
        if !self.nodes[dir].entries.contains_key(&name) {
            assert!(flags.contains("O_CREAT"), "{path} appeared from nowhere");
            self.make(&path, false, begun, ended);
        }
        let inode = self.nodes[dir].entries[&name];
        if flags.contains("O_TRUNC") {
            let what = Change::Resize { len: 0 };
            self.nodes[inode].changes.push(Timed { what, begun, ended });
        }
        self.open.insert(fd, Open { inode, position: 0 });
    }

    /// Writes the content of the drive at `moment` into a folder.
    pub(crate) fn rebuild(&self, moment: u64, fate: Fate, into: &Path) {
        let mut chance = match fate {
            Fate::Lost => None,
            Fate::Torn(seed) => Some(Random(seed | 1)),
        };
        self.rebuild_dir(0, moment, &mut chance, into);
    }

    fn rebuild_dir(&self, dir: Inode, moment: u64, chance: &mut Option<Random>, into: &Path) {
        let node = &self.nodes[dir];
        let mut entries = BTreeMap::new();
        // A file system journal preserves the order of changes in a folder, so a prefix of them survives.
        let mut kept = true;
        for change in node.changes.iter().filter(|change| change.begun < moment) {
            let Change::Name { name, inode } = &change.what else {
                panic!("a folder was written to")
            };
            let luck = chance.as_mut().is_some_and(|random| random.below(3) > 0);
            kept = node.is_certain(change, moment) || (kept && luck);
            if kept {
                match inode {
                    Some(inode) => drop(entries.insert(name.clone(), *inode)),
                    None => drop(entries.remove(name)),
                }
            }
        }
        for (name, inode) in entries {
            let path = into.join(name);
            if self.nodes[inode].is_dir {
                fs::create_dir(&path).unwrap();
                self.rebuild_dir(inode, moment, chance, &path);
            } else {
                fs::write(&path, self.nodes[inode].bytes(moment, chance)).unwrap();
            }
        }
    }
}

impl Node {
    fn is_certain(&self, change: &Timed<Change>, moment: u64) -> bool {
        let mut syncs = self.syncs.iter();
        // A sync that overlaps the change may have missed it.
        syncs.any(|sync| sync.begun > change.ended && sync.ended < moment)
    }

    /// Returns the content that the running system sees.
    fn latest(&self) -> Vec<u8> {
        let mut out: Vec<u8> = Vec::new();
        for change in &self.changes {
            match &change.what {
                Change::Write { at, bytes } => put(&mut out, *at, bytes),
                Change::Resize { len } => out.resize(*len, 0),
                Change::Name { .. } => panic!("a file is no folder"),
            }
        }
        out
    }

    fn bytes(&self, moment: u64, chance: &mut Option<Random>) -> Vec<u8> {
        let mut out: Vec<u8> = Vec::new();
        let certain = |change: &Timed<Change>| self.is_certain(change, moment);
        for change in self.changes.iter().filter(|change| change.begun < moment) {
            let certain = certain(change);
            match &change.what {
                Change::Write { at, bytes } => {
                    // Some writes survive or are lost as a whole, others by pages.
                    let mood = chance.as_mut().map_or(0, |random| random.below(4));
                    let pages = pages(*at, bytes);
                    for (at, page) in pages {
                        let luck = match mood {
                            0 => false,
                            1 => true,
                            _ => chance.as_mut().is_some_and(|r| r.below(2) == 0),
                        };
                        if certain || luck {
                            put(&mut out, at, page);
                        }
                    }
                }
                Change::Resize { len } => {
                    if certain || chance.as_mut().is_some_and(|r| r.below(2) == 0) {
                        out.resize(*len, 0);
                    }
                }
                Change::Name { .. } => panic!("a file is no folder"),
            }
        }
        out
    }
}

fn put(out: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    out.resize(out.len().max(at + bytes.len()), 0);
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Splits a write at the page boundaries of its file.
fn pages(at: usize, bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let mut pages = Vec::new();
    let (mut at, mut rest) = (at, bytes);
    while !rest.is_empty() {
        let (page, left) = rest.split_at(rest.len().min(PAGE - at % PAGE));
        pages.push((at, page));
        at += page.len();
        rest = left;
    }
    pages
}
