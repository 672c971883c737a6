//! Changes of working state. Entries are removed by key first. Then entries are added, or replace those with the same
//! key.

use std::collections::{HashMap, HashSet};

use super::{Capability, CapabilityKind, FileState, Note, Pin, Skill, Task, WorkingState};

/// The entries to remove.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkingStateRemoval {
    /// Files.
    pub files: Vec<Box<str>>,
    /// Instruction files.
    pub instruction_files: Vec<Box<str>>,
    /// The plan.
    pub plan: bool,
    /// Plan mode.
    pub plan_mode: bool,
    /// Skills.
    pub skills: Vec<Box<str>>,
    /// Tasks.
    pub tasks: Vec<Box<str>>,
    /// Tools.
    pub tools: Vec<Box<str>>,
    /// Agents.
    pub agents: Vec<Box<str>>,
    /// MCP servers.
    pub mcp_servers: Vec<Box<str>>,
    /// The permissions.
    pub permissions: bool,
    /// Notes.
    pub notes: Vec<Box<str>>,
    /// Pins.
    pub pins: Vec<Box<str>>,
}

/// A change of working state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkingStateChange {
    /// The entries to remove. Removals are applied first.
    pub remove: WorkingStateRemoval,
    /// The entries to add, or to replace entries with the same key.
    pub set: WorkingState,
}

trait KeyedEntry: Clone + PartialEq {
    fn key(&self) -> &str;
}

macro_rules! entries {
    ($($entry:ty: $field:ident),*) => {
        $(impl KeyedEntry for $entry {
            fn key(&self) -> &str {
                &self.$field
            }
        })*
    };
}

entries!(FileState: path, Skill: name, Task: id, Capability: name, Note: id, Pin: id);

/// Calls one macro for each list and another for each single value. A new part is added here once.
macro_rules! for_each_part {
    ($list:ident, $single:ident) => {
        $list!(files);
        $list!(instruction_files);
        $single!(plan);
        $single!(plan_mode);
        $list!(skills);
        $list!(tasks);
        $list!(tools);
        $list!(agents);
        $list!(mcp_servers);
        $single!(permissions);
        $list!(notes);
        $list!(pins);
    };
}

impl WorkingStateChange {
    /// Returns the change without the parts that have no effect on a state.
    #[must_use]
    pub fn effective_on(mut self, state: &WorkingState) -> Self {
        macro_rules! list {
            ($part:ident) => {
                let known = index(&state.$part);
                let removed = &mut self.remove.$part;
                removed.retain(|key| known.contains_key(&**key));
                let gone: HashSet<&str> = removed.iter().map(|key| &**key).collect();
                self.set.$part.retain(|new| {
                    let old = known.get(new.key()).map(|at| &state.$part[*at]);
                    // Removals apply first, so a removed entry is added again even if it is equal.
                    old != Some(new) || gone.contains(new.key())
                });
            };
        }
        macro_rules! single {
            ($part:ident) => {
                self.remove.$part &= state.$part.is_some();
                // After a removal, an equal value must be set again.
                if !self.remove.$part && self.set.$part == state.$part {
                    self.set.$part = None;
                }
            };
        }
        for_each_part!(list, single);
        self
    }

    /// Returns true if the change has no effect.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the names of the changed parts.
    pub fn parts(&self) -> Vec<&'static str> {
        let mut parts = Vec::new();
        macro_rules! list {
            ($part:ident) => {
                if !(self.remove.$part.is_empty() && self.set.$part.is_empty()) {
                    parts.push(stringify!($part));
                }
            };
        }
        macro_rules! single {
            ($part:ident) => {
                if self.remove.$part || self.set.$part.is_some() {
                    parts.push(stringify!($part));
                }
            };
        }
        for_each_part!(list, single);
        parts
    }

    /// Returns the capabilities that the change removes and does not add again.
    pub fn delisted(&self, kind: CapabilityKind) -> impl Iterator<Item = &str> {
        let set = self.set.capabilities(kind).iter();
        let back: HashSet<&str> = set.map(|capability| &*capability.name).collect();
        let removed = match kind {
            CapabilityKind::Tools => &self.remove.tools,
            CapabilityKind::Agents => &self.remove.agents,
            CapabilityKind::McpServers => &self.remove.mcp_servers,
        };
        let removed = removed.iter().map(|name| &**name);
        removed.filter(move |name| !back.contains(name))
    }
}

impl WorkingState {
    /// Applies a change.
    pub fn change(&mut self, change: &WorkingStateChange) {
        macro_rules! list {
            ($part:ident) => {
                remove(&mut self.$part, &change.remove.$part);
                set(&mut self.$part, &change.set.$part);
            };
        }
        macro_rules! single {
            ($part:ident) => {
                if change.remove.$part {
                    self.$part = None;
                }
                if change.set.$part.is_some() {
                    self.$part.clone_from(&change.set.$part);
                }
            };
        }
        for_each_part!(list, single);
    }
}

fn index<T: KeyedEntry>(entries: &[T]) -> HashMap<&str, usize> {
    let numbered = entries.iter().enumerate();
    numbered.map(|(at, entry)| (entry.key(), at)).collect()
}

fn remove<T: KeyedEntry>(entries: &mut Vec<T>, keys: &[Box<str>]) {
    if !keys.is_empty() {
        let keys: HashSet<&str> = keys.iter().map(|key| &**key).collect();
        entries.retain(|entry| !keys.contains(entry.key()));
    }
}

/// Adds or replaces entries. A replaced entry keeps its position in the list.
fn set<T: KeyedEntry>(entries: &mut Vec<T>, new: &[T]) {
    if new.is_empty() {
        return;
    }
    let known = index(entries);
    // All places are looked up before the first change, because the index borrows the entries.
    let places: Vec<Option<usize>> = new
        .iter()
        .map(|entry| known.get(entry.key()).copied())
        .collect();
    for (entry, place) in new.iter().zip(places) {
        match place {
            Some(at) => entries[at] = entry.clone(),
            None => entries.push(entry.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::working::{NoteKind, PlanMode};

    fn note(id: &str, text: &str) -> Note {
        Note {
            id: id.into(),
            kind: NoteKind::Decision,
            text: text.into(),
        }
    }

    fn notes(notes: &[(&str, &str)]) -> WorkingState {
        WorkingState {
            notes: notes.iter().map(|(id, text)| note(id, text)).collect(),
            ..WorkingState::default()
        }
    }

    #[test]
    fn a_state_change_removes_replaces_in_place_and_appends_entries() {
        let mut state = notes(&[("a", "1"), ("b", "2"), ("c", "3")]);
        state.change(&WorkingStateChange {
            remove: WorkingStateRemoval {
                notes: vec!["a".into(), "none".into()],
                ..WorkingStateRemoval::default()
            },
            set: notes(&[("d", "4"), ("b", "5")]),
        });
        assert_eq!(state, notes(&[("b", "5"), ("c", "3"), ("d", "4")]));
    }

    #[test]
    fn a_state_change_without_effect_is_empty() {
        let state = notes(&[("a", "1"), ("b", "2")]);
        let same = WorkingStateChange {
            remove: WorkingStateRemoval {
                notes: vec!["none".into()],
                plan: true,
                ..WorkingStateRemoval::default()
            },
            set: notes(&[("a", "1")]),
        };
        assert!(same.effective_on(&state).is_empty());
        // An entry that is removed and set by one change moves to the end.
        let again = WorkingStateChange {
            remove: WorkingStateRemoval {
                notes: vec!["a".into()],
                ..WorkingStateRemoval::default()
            },
            set: notes(&[("a", "1")]),
        };
        let mut after = state.clone();
        let again = again.effective_on(&state);
        assert_eq!(again.parts(), ["notes"]);
        after.change(&again);
        assert_eq!(after, notes(&[("b", "2"), ("a", "1")]));
    }

    #[test]
    fn only_set_single_values_are_replaced() {
        let mode = |active| WorkingState {
            plan_mode: Some(PlanMode {
                active,
                instructions: "".into(),
            }),
            ..WorkingState::default()
        };
        let mut state = mode(true);
        let change = |set| WorkingStateChange {
            set,
            ..WorkingStateChange::default()
        };
        state.change(&change(WorkingState::default()));
        assert_eq!(state, mode(true));
        state.change(&change(mode(false)));
        assert_eq!(state, mode(false));
        assert_eq!(state.bytes(), 64);
    }
}
