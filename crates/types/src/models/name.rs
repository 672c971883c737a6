//! Names of models: their spellings at different providers, and the patterns that match them.

use serde::{Deserialize, Serialize};

/// The maximum length of a pattern, in bytes. The name of a model in a call has the same limit.
const MAX_PATTERN_BYTES: usize = 256;

/// A pattern for names of models, in lowercase. `*` stands for any text, also for none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamePattern {
    text: Box<str>,
    /// The number of bytes that are not `*`. Of two matching patterns, the one with more is more specific.
    literal_len: usize,
}

impl TryFrom<String> for NamePattern {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let text = text.trim();
        if text.is_empty() || text.len() > MAX_PATTERN_BYTES {
            return Err("a name must have 1 to 256 bytes");
        }
        let text = text.to_ascii_lowercase();
        Ok(Self {
            literal_len: text.bytes().filter(|byte| *byte != b'*').count(),
            text: text.into(),
        })
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> Self {
        pattern.text.into()
    }
}

impl NamePattern {
    /// Returns the text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the length of the pattern without `*` if it matches one of the spellings.
    pub(super) fn match_len(&self, spellings: &Spellings) -> Option<usize> {
        let is_match = spellings.0.iter().any(|name| self.matches(name));
        is_match.then_some(self.literal_len)
    }

    /// Returns true if the pattern matches the whole name.
    fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.text.as_bytes(), name.as_bytes());
        let (mut at, mut read) = (0, 0);
        // The position after the last `*`, and the first byte of the name that it does not cover yet.
        let mut star = None;
        while read < name.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    at += 1;
                    star = Some((at, read));
                }
                Some(byte) if *byte == name[read] => {
                    at += 1;
                    read += 1;
                }
                // The last `*` covers one byte more. Earlier ones need not change, because the later one can cover
                // everything that they could.
                _ => match &mut star {
                    Some((after, covered)) => {
                        *covered += 1;
                        (at, read) = (*after, *covered);
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }
}

/// The spellings of one name by which entries are found: as given, and without what providers and routers add.
#[derive(Debug)]
pub(super) struct Spellings(Vec<String>);

impl Spellings {
    pub(super) fn of(model: &str, prefixes: &[String]) -> Self {
        let given = model.trim().to_ascii_lowercase();
        let mut found = Self(Vec::new());
        // A router puts a path before the name: `openrouter/anthropic/…`, `accounts/…/models/…`.
        let mut rest = given.rsplit('/').next().unwrap_or_default();
        found.add(rest);
        // Prefixes can follow each other, as in `us.anthropic.claude-opus-4-6`.
        while let Some(shorter) = prefixes
            .iter()
            .find_map(|one| rest.strip_prefix(one.as_str()))
        {
            rest = shorter;
            found.add(rest);
        }
        found.0.push(given);
        found
    }

    /// Adds a name without its variant (`:free`, `@20250929`, `[1m]`), and also without its version.
    fn add(&mut self, name: &str) {
        let mut name = name.split([':', '@', '[']).next().unwrap_or_default();
        self.0.push(name.to_owned());
        while let Some(shorter) = without_version(name) {
            name = shorter;
            self.0.push(name.to_owned());
        }
    }
}

/// Removes one version from the end of a name: `-latest`, `-v1`, `-20250929` or `-2024-08-06`.
fn without_version(name: &str) -> Option<&str> {
    let (rest, last) = name.rsplit_once('-')?;
    let digits =
        |text: &str, count: usize| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    if last == "latest" || digits(last, 8) {
        return Some(rest);
    }
    // A `v` without digits is no version: the required length of one digit never matches an empty text.
    if let Some(number) = last.strip_prefix('v')
        && digits(number, number.len().max(1))
    {
        return Some(rest);
    }
    let (rest, month) = rest.rsplit_once('-')?;
    let (rest, year) = rest.rsplit_once('-')?;
    (digits(last, 2) && digits(month, 2) && digits(year, 4)).then_some(rest)
}
