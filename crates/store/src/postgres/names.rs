//! Encoding of session names as table keys: `project!session`. `!` sorts before every legal character,
//! so the keys sort like the pairs of names. The sessions of a project form a key range.

use palimpsest_core::ids::{ProjectId, SessionId, SessionKey};

use crate::StoreError;

const BETWEEN: char = '!';
// The next character after `BETWEEN`, so no key of the project sorts at or after it.
const JUST_BEHIND: char = '"';
/// An upper bound of all keys.
const LAST: &str = "\u{7f}";

pub(super) fn key(key: &SessionKey) -> String {
    format!("{}{BETWEEN}{}", key.project, key.session)
}

pub(super) fn parse(stored: &str) -> Result<SessionKey, StoreError> {
    let unreadable = || StoreError::Read("a row has no readable name".into());
    let (project, session) = stored.split_once(BETWEEN).ok_or_else(unreadable)?;
    Ok(SessionKey::new(
        ProjectId::new(project).map_err(|_| unreadable())?,
        SessionId::new(session).map_err(|_| unreadable())?,
    ))
}

/// Returns exclusive bounds of the keys of a project, or of all keys.
pub(super) fn range(project: Option<&ProjectId>) -> (String, String) {
    match project {
        Some(project) => (
            format!("{project}{BETWEEN}"),
            format!("{project}{JUST_BEHIND}"),
        ),
        // Keys are not empty and contain ASCII only, so these bounds enclose all of them.
        None => (String::new(), LAST.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_like_names_and_are_parsed_back() {
        let mut names: Vec<_> = [
            "a/x", "a/x.y", "a-b/x", "a.b/x", "ab/x", "A/x", "a_/x", "a/-",
        ]
        .into_iter()
        .filter_map(|name| name.split_once('/'))
        .filter_map(|(project, session)| {
            let project = ProjectId::new(project).ok()?;
            Some(SessionKey::new(project, SessionId::new(session).ok()?))
        })
        .collect();
        names.sort();
        let keys: Vec<_> = names.iter().map(key).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        for (name, key) in names.iter().zip(&keys) {
            assert_eq!(&parse(key).unwrap(), name);
            let (from, to) = range(Some(&name.project));
            assert!(from < *key && *key < to);
            let within = keys.iter().filter(|key| from < **key && **key < to);
            let of_project = names.iter().filter(|it| it.project == name.project);
            assert_eq!(within.count(), of_project.count());
            let (from, to) = range(None);
            assert!(from < *key && *key < to);
        }
    }
}
