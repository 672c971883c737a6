//! What of the facts in messages that a compaction replaced is still told by what it put in their place.
//!
//! A path is told when the whole of it stands there, or the part below the folder that the text names as
//! the root of its paths; a folder also where a path in it does. A command is told as what it is at heart:
//! without the folder that it changes to, its redirections and the pipe that shortens its output. It is
//! also told where it was folded into one of its kind, as ten runs of `cargo test` are told by the last;
//! that is counted apart from what is told word for word.

use std::collections::{BTreeMap, BTreeSet};

use palimpsest_core::message::{Block, Message};
use palimpsest_facts::{command_kind, told_command, told_root};

use super::facts::facts;
use super::kinds::ProbeKind;

/// How many facts there were, and how many are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FactRetention {
    /// Those that are told.
    pub told: usize,
    /// Those of them that are told word for word.
    pub exact: usize,
    /// All.
    pub all: usize,
}

impl FactRetention {
    /// Counts others in.
    pub fn add(&mut self, other: Self) {
        self.told += other.told;
        self.exact += other.exact;
        self.all += other.all;
    }
}

/// What survived, by kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survival(pub BTreeMap<ProbeKind, FactRetention>);

impl Survival {
    /// Counts others in.
    pub fn add(&mut self, other: &Self) {
        for (kind, share) in &other.0 {
            self.0.entry(*kind).or_default().add(*share);
        }
    }

    /// Paths, commands and sentences of people, taken together. What failed is often mended since, and is
    /// told by its own number alone.
    pub fn together(&self) -> FactRetention {
        let mut sum = FactRetention::default();
        for (kind, share) in &self.0 {
            if *kind != ProbeKind::Error {
                sum.add(*share);
            }
        }
        sum
    }
}

/// What of the messages that left is told by those that came for them.
pub(super) fn survived<'m>(
    left: impl IntoIterator<Item = &'m Message>,
    added: &[&Message],
) -> Survival {
    let texts: Vec<&str> = added
        .iter()
        .flat_map(|message| &message.blocks)
        .filter_map(|block| match block {
            Block::Text { text, .. } => Some(&**text),
            _ => None,
        })
        .collect();
    let told = FlattenedText::new(&texts.join("\n"));
    let mut seen: BTreeSet<(ProbeKind, Box<str>)> = BTreeSet::new();
    let mut survival = Survival::default();
    for message in left {
        for (_, kind, needle) in facts(message) {
            if seen.insert((kind, needle.text.clone())) {
                let share = survival.0.entry(kind).or_default();
                share.all += 1;
                let exact = told.tells(kind, &needle.text);
                share.exact += usize::from(exact);
                share.told += usize::from(exact || told.folds(kind, &needle.text));
            }
        }
    }
    survival
}

/// A text, and the same on one line, because notes put what they quote on one.
struct FlattenedText {
    line: String,
    root: Option<String>,
    /// The kinds of commands that stand in it.
    families: BTreeSet<String>,
}

impl FlattenedText {
    fn new(text: &str) -> Self {
        Self {
            line: flat(text),
            root: told_root(text),
            families: text
                .split('`')
                .skip(1)
                .step_by(2)
                .map(command_kind)
                .collect(),
        }
    }

    fn tells(&self, kind: ProbeKind, fact: &str) -> bool {
        match kind {
            ProbeKind::Path => self.names(fact),
            ProbeKind::Command => self.line.contains(&flat(&told_command(fact))),
            ProbeKind::Error | ProbeKind::Sentence => self.line.contains(&flat(fact)),
        }
    }

    /// Whether a command is told as one of its kind.
    fn folds(&self, kind: ProbeKind, fact: &str) -> bool {
        kind == ProbeKind::Command && self.families.contains(&command_kind(fact))
    }

    /// A path is named between marks that no path has at its ends.
    fn names(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let below = self.root.as_deref().and_then(|root| {
            let below = path.strip_prefix(root.trim_end_matches('/'))?;
            below.strip_prefix('/')
        });
        let is_root = self.root.as_deref().map(|root| root.trim_end_matches('/')) == Some(path);
        is_root
            || self.line.contains(path)
            || below.is_some_and(|below| {
                let named = |end| self.line.contains(&format!("'{below}{end}"));
                named('\'') || named('/')
            })
    }
}

/// On one line, with the quotes and marks that notes put in place of those that they need.
fn flat(text: &str) -> String {
    let words: Vec<&str> = text
        .split_whitespace()
        .filter(|word| *word != ">")
        .collect();
    words.join(" ").replace(['“', '”'], "\"").replace('`', "'")
}
