//! The API key file: hashes of keys with their grants.

use std::collections::BTreeSet;

use jiff::Timestamp as Instant;
use palimpsest_core::ids::Timestamp;
use serde::{Deserialize, Serialize};

use super::grant::{Grant, ProjectSet, Right};
use super::key::{KeyHash, KeyId, PREFIX};

/// The comment at the beginning of the file.
const HEAD: &str = "# API keys, written by `palimpsest keys`: hashes, from which no key can be computed.\n\
                    # A running server reloads a changed file within auth.reload_ms.\n";
/// The maximum number of keys in a file. The complete file is read again after each change.
pub const MAX_KEYS: usize = 100_000;
const MAX_LABEL_CHARS: usize = 200;

/// The contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFile {
    /// The keys, in the order of their creation.
    #[serde(default)]
    pub keys: Vec<KeyEntry>,
}

/// A key as stored in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEntry {
    /// The public id.
    pub id: String,
    /// A description for people, for example the owner.
    #[serde(default)]
    pub label: String,
    /// The hash of the complete key.
    pub hash: String,
    /// The projects of the grant. `*` means all projects.
    pub projects: Vec<String>,
    /// The names of the rights in these projects.
    pub rights: Vec<String>,
    /// The creation time, in RFC 3339 format.
    pub created: String,
    /// The expiry, in RFC 3339 format. `None` means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// True if the key was revoked.
    #[serde(default)]
    pub disabled: bool,
}

/// A parsed and validated key.
#[derive(Debug)]
pub struct ParsedKey {
    /// The public id.
    pub id: KeyId,
    /// The hash of the complete key.
    pub hash: KeyHash,
    /// The projects and rights of the key.
    pub grant: Grant,
    /// The expiry. `None` means never.
    pub expires: Option<Timestamp>,
    /// True if the key was revoked.
    pub disabled: bool,
}

impl KeyFile {
    /// Parses and validates the text of a file.
    ///
    /// The error contains the position but no value of the file, because a key may have been pasted in place of its
    /// hash.
    pub fn read(text: &str) -> Result<Self, String> {
        let file: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| {
                // Only the line number is shown, because the parser's snippet would quote the file.
                let before = &text.as_bytes()[..span.start.min(text.len())];
                before.split(|byte| *byte == b'\n').count()
            });
            let line = line.map_or_else(String::new, |line| format!("line {line}: "));
            format!("{line}{}", without_values(error.message()))
        })?;
        if file.keys.len() > MAX_KEYS {
            return Err(format!("the file has more than {MAX_KEYS} keys"));
        }
        // Only an error of the check counts. The file keeps its own form, in which `palimpsest keys` writes it back.
        file.checked().map(|_| ()).map(|()| file)
    }

    /// Returns the validated keys. Fails on an invalid entry or a duplicate id.
    pub fn checked(&self) -> Result<Vec<ParsedKey>, String> {
        let mut seen = BTreeSet::new();
        let keys: Result<Vec<_>, _> = (1..)
            .zip(&self.keys)
            .map(|(n, entry)| {
                let key = entry.checked().map_err(|what| format!("key {n}: {what}"))?;
                // Keys are looked up by their id, so a duplicate would hide another key.
                if !seen.insert(key.id.clone()) {
                    return Err(format!("key {n}: an earlier key has the same id"));
                }
                Ok(key)
            })
            .collect();
        keys
    }

    /// Returns the text of the file.
    pub fn text(&self) -> Result<String, toml::ser::Error> {
        Ok(format!("{HEAD}\n{}", toml::to_string(self)?))
    }
}

impl KeyEntry {
    /// Validates the entry.
    fn checked(&self) -> Result<ParsedKey, String> {
        let names = self.projects.iter().map(String::as_str);
        Ok(ParsedKey {
            id: KeyId::parse(&self.id).ok_or("id must be 16 lowercase hexadecimal digits")?,
            hash: KeyHash::parse(&self.hash)
                .ok_or("hash must be \"sha256:\" and 64 lowercase hexadecimal digits")?,
            grant: Grant {
                projects: ProjectSet::read(names).map_err(|what| without_key("projects", &what))?,
                rights: rights(&self.rights).map_err(|what| without_key("rights", &what))?,
            },
            expires: self
                .expires
                .as_deref()
                .map(|text| {
                    parse_timestamp(text)
                        .ok_or("expires must be a time such as 2027-01-31T00:00:00Z")
                })
                .transpose()?,
            disabled: self.disabled,
        })
    }
}

/// Parses the names of rights. Fails on an unknown name and on an empty list.
pub fn rights(names: &[String]) -> Result<BTreeSet<Right>, String> {
    let right = |name: &String| {
        Right::by_name(name).ok_or_else(|| format!("{name:?} is not a right: write {}", all()))
    };
    let rights: BTreeSet<_> = names.iter().map(right).collect::<Result<_, _>>()?;
    if rights.is_empty() {
        return Err(format!("must have at least one right: {}", all()));
    }
    Ok(rights)
}

fn all() -> String {
    Right::ALL.map(Right::name).join(", ")
}

/// Returns true if a label has at most 200 characters and no control characters.
pub fn is_label(text: &str) -> bool {
    text.chars().count() <= MAX_LABEL_CHARS && !text.chars().any(char::is_control)
}

fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let at: Instant = text.parse().ok()?;
    Some(Timestamp::from_millis(at.as_millisecond()))
}

/// Names the field of a mistake. Removes the mistake itself if it quotes a key, which may be pasted in any field.
fn without_key(field: &str, what: &str) -> String {
    if what.contains(PREFIX) {
        return format!("{field}: a value is a key; a key belongs in no field of this file");
    }
    format!("{field}: {what}")
}

/// Removes quoted values from a message of the TOML parser. Names of fields stay.
fn without_values(message: &str) -> String {
    const FIELDS: [&str; 9] = [
        "keys", "id", "label", "hash", "projects", "rights", "created", "expires", "disabled",
    ];
    // Further lines of the message may quote the file.
    let first = message.lines().next().unwrap_or_default();
    // Parts with an odd index were between quotes.
    let parts = first.split(['"', '`']).enumerate();
    let shown = parts.map(|(n, part)| match n % 2 {
        1 if !FIELDS.contains(&part) => "…",
        _ => part,
    });
    shown.collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::super::key::NewKey;
    use super::*;

    fn entry() -> KeyEntry {
        let key = NewKey::random().unwrap();
        KeyEntry {
            id: key.id.to_string(),
            label: "agents".into(),
            hash: key.hash().text(),
            projects: vec!["p".into()],
            rights: vec!["read".into()],
            created: "2026-01-01T00:00:00Z".into(),
            expires: Some("2027-01-01T00:00:00Z".into()),
            disabled: false,
        }
    }

    #[test]
    fn a_key_file_survives_a_round_trip() {
        let keys = vec![entry(), entry()];
        let file = KeyFile { keys };
        assert_eq!(KeyFile::read(&file.text().unwrap()), Ok(file));
        assert_eq!(KeyFile::read(""), Ok(KeyFile::default()));
    }

    #[test]
    fn an_error_names_the_mistake_and_no_value() {
        #[track_caller]
        fn check(change: impl FnOnce(&mut KeyEntry), expected: &str) {
            let mut entry = entry();
            change(&mut entry);
            let file = KeyFile { keys: vec![entry] };
            let error = KeyFile::read(&file.text().unwrap()).unwrap_err();
            assert_eq!(error, expected);
        }
        // A key may have been pasted in place of a hash or an id, so the error must not repeat the value.
        let secret = "plk_0000";
        check(
            |key| key.hash = secret.into(),
            "key 1: hash must be \"sha256:\" and 64 lowercase hexadecimal digits",
        );
        check(
            |key| key.id = secret.into(),
            "key 1: id must be 16 lowercase hexadecimal digits",
        );
        check(
            |key| key.rights = vec![],
            "key 1: rights: must have at least one right: read, write, compact, admin",
        );
        check(
            |key| key.rights = vec![secret.into()],
            "key 1: rights: a value is a key; a key belongs in no field of this file",
        );
        check(
            |key| key.projects = vec![format!("{secret}!")],
            "key 1: projects: a value is a key; a key belongs in no field of this file",
        );
        check(
            |key| key.projects = vec![],
            "key 1: projects: must name a project, or \"*\" for every one",
        );
        check(
            |key| key.expires = Some("soon".into()),
            "key 1: expires must be a time such as 2027-01-31T00:00:00Z",
        );
        let twice = entry();
        let file = KeyFile {
            keys: vec![twice.clone(), twice],
        };
        assert!(KeyFile::read(&file.text().unwrap()).is_err());
        for text in [
            "keys = \"plk_0000\"",
            "[[keys]]\nplk_0000 = 1",
            "plk_0000",
            "hash = plk_0000",
        ] {
            let error = KeyFile::read(text).unwrap_err();
            assert!(error.starts_with("line "), "{error}");
            assert!(!error.contains(secret), "{error}");
        }
    }
}
