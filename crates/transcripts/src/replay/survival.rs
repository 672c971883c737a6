//! Measurement of the facts that a compaction preserves: facts of the replaced messages that the new
//! messages still contain.
//!
//! A path is preserved if the new text contains the whole path, or the part below the root that the
//! text names. A directory is also preserved if a path inside it is. A command is compared in its
//! normalized form: without directory changes, redirections and output filters. A command also
//! counts as preserved if the text contains another command of its kind, for example ten runs of
//! `cargo test` in one line. Such matches are counted separately from verbatim ones.

use std::collections::{BTreeMap, BTreeSet};

use palimpsest_core::message::{Block, Message};
use palimpsest_facts::{command_family, display_command};

use super::needles::facts;
use super::probe_kind::ProbeKind;

/// The number of facts and of those that were preserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FactRetention {
    /// The number of preserved facts.
    pub kept: usize,
    /// The number of facts that were preserved verbatim.
    pub kept_verbatim: usize,
    /// The number of all facts.
    pub total: usize,
}

impl FactRetention {
    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        self.kept += other.kept;
        self.kept_verbatim += other.kept_verbatim;
        self.total += other.total;
    }
}

/// The preserved facts by kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Survival(pub BTreeMap<ProbeKind, FactRetention>);

impl Survival {
    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        for (kind, share) in &other.0 {
            self.0.entry(*kind).or_default().add(*share);
        }
    }

    /// Returns the sum over paths, commands and user sentences. Errors are excluded, because most
    /// are fixed later. They are reported separately.
    pub fn combined(&self) -> FactRetention {
        let mut sum = FactRetention::default();
        for (kind, share) in &self.0 {
            if *kind != ProbeKind::Error {
                sum.add(*share);
            }
        }
        sum
    }
}

/// Compares the facts of the replaced messages with the text of the messages that replaced them.
/// `root` is the working directory of the session.
pub(super) fn survival<'m>(
    left: impl IntoIterator<Item = &'m Message>,
    added: &[&Message],
    root: Option<&str>,
) -> Survival {
    let texts: Vec<&str> = added
        .iter()
        .flat_map(|message| &message.blocks)
        .filter_map(|block| match block {
            Block::Text { text, .. } => Some(&**text),
            _ => None,
        })
        .collect();
    let told = FlattenedText::new(&texts.join("\n"), root);
    let mut seen: BTreeSet<(ProbeKind, Box<str>)> = BTreeSet::new();
    let mut survival = Survival::default();
    for message in left {
        for (_, kind, needle) in facts(message) {
            if seen.insert((kind, needle.text.clone())) {
                let share = survival.0.entry(kind).or_default();
                share.total += 1;
                let exact = told.mentions(kind, &needle.text);
                share.kept_verbatim += usize::from(exact);
                share.kept += usize::from(exact || told.mentions_family(kind, &needle.text));
            }
        }
    }
    survival
}

/// A text on one line, because notes put their quotes on one line.
struct FlattenedText {
    line: String,
    /// The directory to which the text declares its paths relative.
    root: Option<String>,
    /// The kinds of the commands in the text.
    families: BTreeSet<String>,
}

impl FlattenedText {
    fn new(text: &str, root: Option<&str>) -> Self {
        let root = root.map(|root| root.trim_end_matches('/'));
        // A text names its root in backticks if its paths are relative to it.
        let root = root.filter(|root| text.contains(&format!("`{root}`")));
        Self {
            line: flatten(text),
            root: root.map(Into::into),
            families: text
                // Every second part is enclosed by backticks, which notes use for commands.
                .split('`')
                .skip(1)
                .step_by(2)
                .map(command_family)
                .collect(),
        }
    }

    fn mentions(&self, kind: ProbeKind, fact: &str) -> bool {
        match kind {
            ProbeKind::Path => self.names(fact),
            ProbeKind::Command => self.line.contains(&flatten(&display_command(fact))),
            ProbeKind::Error | ProbeKind::Sentence => self.line.contains(&flatten(fact)),
        }
    }

    /// Returns true if the text contains a command of the same kind.
    fn mentions_family(&self, kind: ProbeKind, fact: &str) -> bool {
        kind == ProbeKind::Command && self.families.contains(&command_family(fact))
    }

    /// Returns true if the text names a path. The part below the root must be enclosed by characters
    /// that do not occur at the ends of a path.
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
                // Flattening has replaced backticks by single quotes.
                let named = |end| self.line.contains(&format!("'{below}{end}"));
                named('\'') || named('/')
            })
    }
}

/// Joins a text into one line and replaces quotes and backticks as notes do.
fn flatten(text: &str) -> String {
    let words: Vec<&str> = text
        .split_whitespace()
        // Notes quote texts in lines that begin with this sign.
        .filter(|word| *word != ">")
        .collect();
    words.join(" ").replace(['“', '”'], "\"").replace('`', "'")
}
