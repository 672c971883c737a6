//! Groups the sessions of a project with their subagents. A group is kept or deleted as a whole.

use std::collections::HashMap;

use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_store::Position;

/// The data of a session that retention needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RetentionRow {
    pub(super) key: SessionKey,
    pub(super) parent: Option<SessionKey>,
    pub(super) modified: Timestamp,
    pub(super) position: Position,
    pub(super) bytes: u64,
    pub(super) is_held: bool,
}

/// A session with its subagents, the session first and the deepest last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionFamily {
    pub(super) members: Vec<RetentionRow>,
}

impl SessionFamily {
    /// Returns the time of the last event in any member.
    pub(super) fn modified(&self) -> Timestamp {
        let all = self.members.iter().map(|row| row.modified);
        all.max().unwrap_or_default()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.members.iter().map(|row| row.bytes).sum()
    }

    pub(super) fn is_held(&self) -> bool {
        self.members.iter().any(|row| row.is_held)
    }
}

/// Returns the families of a project, the least recently modified first. With `alone`, every session is its own family.
pub(super) fn families(rows: Vec<RetentionRow>, alone: bool) -> Vec<SessionFamily> {
    let mut families: Vec<SessionFamily> = if alone {
        let single = |row| SessionFamily { members: vec![row] };
        rows.into_iter().map(single).collect()
    } else {
        grouped(rows)
    };
    // Grouping leaves the families in random order. The name decides between equal times, so every pass has one order.
    families.sort_by_cached_key(|family| {
        let name = family.members.first().map(|row| row.key.clone());
        (family.modified(), name)
    });
    families
}

fn grouped(rows: Vec<RetentionRow>) -> Vec<SessionFamily> {
    let parents: HashMap<SessionKey, Option<SessionKey>> = rows
        .iter()
        .map(|row| (row.key.clone(), row.parent.clone()))
        .collect();
    let mut families: HashMap<SessionKey, Vec<(usize, RetentionRow)>> = HashMap::new();
    for row in rows {
        let (root, depth) = root(&row.key, &parents);
        families.entry(root).or_default().push((depth, row));
    }
    let family = |mut members: Vec<(usize, RetentionRow)>| {
        members.sort_by(|a, b| (a.0, &a.1.key).cmp(&(b.0, &b.1.key)));
        SessionFamily {
            members: members.into_iter().map(|(_, row)| row).collect(),
        }
    };
    families.into_values().map(family).collect()
}

/// Returns the main session above a session, and the distance to it. A missing parent is ignored.
fn root(
    key: &SessionKey,
    parents: &HashMap<SessionKey, Option<SessionKey>>,
) -> (SessionKey, usize) {
    let (mut at, mut depth) = (key, 0);
    while let Some(Some(parent)) = parents.get(at) {
        // A cycle of parents has no root. The depth limit ends the search at an arbitrary member.
        if !parents.contains_key(parent) || depth > parents.len() {
            break;
        }
        at = parent;
        depth += 1;
    }
    (at.clone(), depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SessionKey {
        SessionKey::parse(&format!("projects/p/sessions/{name}")).unwrap()
    }

    fn row(name: &str, parent: &str, modified: i64) -> RetentionRow {
        RetentionRow {
            key: key(name),
            parent: (!parent.is_empty()).then(|| key(parent)),
            modified: Timestamp::from_millis(modified),
            position: Position::START,
            bytes: 1,
            is_held: name.starts_with("held"),
        }
    }

    #[track_caller]
    fn check(rows: &[RetentionRow], alone: bool, expected: &[&str]) {
        let found: Vec<String> = families(rows.to_vec(), alone)
            .iter()
            .map(|family| {
                let names = family.members.iter().map(|row| row.key.session.as_str());
                names.collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn families_are_sorted_by_age_with_the_parent_first() {
        let rows = [
            row("a", "", 1),
            row("sub-of-a", "a", 50),
            row("deep", "sub-of-a", 2),
            row("b", "", 10),
            row("orphan", "gone", 3),
            row("held", "b", 4),
        ];
        check(&rows, false, &["orphan", "b held", "a sub-of-a deep"]);
        check(
            &rows,
            true,
            &["a", "deep", "orphan", "held", "b", "sub-of-a"],
        );
        assert!(families(rows.to_vec(), false)[1].is_held());
    }

    #[test]
    fn a_cycle_of_parents_terminates() {
        let rows = [row("x", "y", 1), row("y", "x", 2), row("self", "self", 3)];
        assert_eq!(
            families(rows.to_vec(), false)
                .iter()
                .map(|it| it.members.len())
                .sum::<usize>(),
            3
        );
    }
}
