//! Judges the views of all participants: validity for the provider, number of tokens, and lost content of the previous
//! view.
//!
//! The rules are the core's `validate`, which the product's tests also use. They are stricter than Anthropic in two
//! cases, which are normalized first: a text without a block, and adjacent messages of one role. Tokens are the core's
//! `bytes` estimate for all participants. A prompt cache keeps the prefix of a request. A view that does not begin with
//! all blocks of the previous one therefore loses the cache for the changed blocks and all later ones.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};

use palimpsest_core::codec;
use palimpsest_core::ids::MessageId;
use palimpsest_core::tokens::TokenCounter;
use palimpsest_core::validate::{ParsedMessage, Violation, validate_parsed};
use palimpsest_core::view::{Provider, Target};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::player::serve;
use crate::views::{Head, Line, provider};

/// A request to the judge.
#[derive(Debug, Deserialize)]
struct Asked {
    views: PathBuf,
}

/// The result of a file of views.
#[derive(Debug, Default, Serialize, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) views: usize,
    /// Number of views that the provider would reject.
    pub(crate) invalid: usize,
    /// The violated rules, with the number of views.
    pub(crate) rules: BTreeMap<&'static str, usize>,
    /// The tokens of each view.
    pub(crate) tokens: Vec<u64>,
    /// Number of views that do not begin with the previous view.
    pub(crate) breaks: usize,
    /// Bytes of earlier views after the first difference.
    pub(crate) lost_bytes: u64,
}

/// A message of a view, parsed once.
struct Seen {
    value: Value,
    parsed: ParsedMessage,
    tokens: u64,
    blocks: Vec<String>,
}

/// Answers the requests from standard input.
pub(crate) fn run() -> anyhow::Result<()> {
    serve(&json!({ "peer": "judge" }), |line| {
        let asked: Asked = serde_json::from_str(line)?;
        Ok(serde_json::to_value(judge(&asked.views)?)?)
    })
}

fn judge(path: &Path) -> anyhow::Result<Verdict> {
    let file = std::fs::File::open(path)?;
    let mut lines = std::io::BufReader::new(file).lines();
    let head = lines.next().transpose()?.unwrap_or_default();
    let head: Head = serde_json::from_str(&head)?;
    let target = Target {
        provider: provider(&head.provider)?,
        ..Target::default()
    };
    let mut verdict = Verdict::default();
    let mut array: Vec<Seen> = Vec::new();
    for line in lines {
        let line: Line = serde_json::from_str(&line?)?;
        let new = line.messages.iter();
        let new = new.map(|message| Seen::new(target.provider, message.get()));
        // Other participants write these files, so the number can be too large.
        let gone = array.split_off(line.keep.min(array.len()));
        let from = array.len();
        array.extend(new);
        verdict.lose(&gone, &array[from..]);
        verdict.look(&target, &array);
    }
    Ok(verdict)
}

impl Verdict {
    fn look(&mut self, target: &Target, array: &[Seen]) {
        self.views += 1;
        self.tokens
            .push(array.iter().map(|message| message.tokens).sum());
        let found = match as_one(target.provider, array) {
            Some(merged) => validate_parsed(target, merged.iter()),
            None => validate_parsed(target, array.iter().map(|message| &message.parsed)),
        };
        self.invalid += usize::from(!found.is_empty());
        let rules: std::collections::BTreeSet<_> = found
            .iter()
            .map(|violation: &Violation| violation.rule)
            .collect();
        for rule in rules {
            *self.rules.entry(rule).or_default() += 1;
        }
    }

    /// Counts the lost bytes between the removed end of an array and its new end.
    fn lose(&mut self, gone: &[Seen], new: &[Seen]) {
        let before: Vec<&String> = gone.iter().flat_map(|message| &message.blocks).collect();
        let after = new.iter().flat_map(|message| &message.blocks);
        let same = before
            .iter()
            .zip(after)
            .take_while(|(a, b)| *a == b)
            .count();
        let lost: usize = before[same..].iter().map(|block| block.len()).sum();
        // A view that only extends the previous one loses nothing.
        self.breaks += usize::from(lost > 0);
        self.lost_bytes += lost as u64;
    }
}

impl Seen {
    fn new(provider: Provider, json: &str) -> Self {
        let mut id = || MessageId::new(Uuid::nil());
        let read = codec::read(provider, json.as_bytes(), &mut id);
        // An unreadable message costs tokens too.
        let tokens = read.map_or_else(
            |_| TokenCounter::BYTES.text(json).into(),
            |messages| {
                let sizes = messages
                    .iter()
                    .map(|message| TokenCounter::BYTES.message(message));
                sizes.map(|size| u64::from(size.tokens)).sum()
            },
        );
        let mut value: Value = serde_json::from_str(json).unwrap_or_default();
        // For the provider, a string equals one text block.
        if let (Provider::Anthropic, Value::String(text)) = (provider, &value["content"]) {
            value["content"] = json!([{ "type": "text", "text": text }]);
        }
        Self {
            parsed: ParsedMessage::new(value.to_string().as_bytes()),
            tokens,
            blocks: blocks(&value),
            value,
        }
    }
}

/// Merges adjacent messages of one role. Returns `None` if there are none or the provider does not accept them.
fn as_one(provider: Provider, array: &[Seen]) -> Option<Vec<ParsedMessage>> {
    let alike = |pair: &[Seen]| pair[0].value["role"] == pair[1].value["role"];
    if provider != Provider::Anthropic || !array.windows(2).any(alike) {
        return None;
    }
    let mut merged: Vec<Value> = Vec::new();
    for message in array.iter().map(|message| &message.value) {
        match merged.last_mut() {
            Some(last) if last["role"] == message["role"] => {
                let more = message["content"].as_array().cloned().unwrap_or_default();
                if let Some(content) = last["content"].as_array_mut() {
                    content.extend(more);
                }
            }
            _ => merged.push(message.clone()),
        }
    }
    let parsed = merged
        .iter()
        .map(|message| ParsedMessage::new(message.to_string().as_bytes()));
    Some(parsed.collect())
}

/// Returns the sequence that a prompt cache compares: the blocks, each with the role of its message.
fn blocks(message: &Value) -> Vec<String> {
    let role = message["role"].as_str().unwrap_or_default();
    let mut blocks = Vec::new();
    for (field, value) in message.as_object().into_iter().flatten() {
        match (field.as_str(), value) {
            ("role", _) => {}
            (_, Value::Array(parts)) => {
                blocks.extend(parts.iter().map(|part| format!("{role} {field} {part}")));
            }
            ("content", Value::String(text)) => {
                // A prompt cache treats a string like one text block.
                let part = json!({ "type": "text", "text": text });
                blocks.push(format!("{role} content {part}"));
            }
            (_, value) => blocks.push(format!("{role} {field} {value}")),
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn judged(lines: &[Value]) -> Verdict {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for line in lines {
            writeln!(file, "{line}").unwrap();
        }
        judge(file.path()).unwrap()
    }

    fn head() -> Value {
        json!({ "provider": "anthropic" })
    }

    fn user(text: &str) -> Value {
        json!({ "role": "user", "content": text })
    }

    fn assistant(text: &str) -> Value {
        json!({ "role": "assistant", "content": text })
    }

    #[test]
    fn an_extended_view_invalidates_no_bytes() {
        let verdict = judged(&[
            head(),
            json!({ "keep": 0, "messages": [user("one")] }),
            json!({ "keep": 1, "messages": [assistant("two"), user("three")] }),
        ]);
        assert_eq!((verdict.views, verdict.invalid), (2, 0));
        assert_eq!((verdict.breaks, verdict.lost_bytes), (0, 0));
    }

    #[test]
    fn a_change_invalidates_all_following_bytes() {
        let verdict = judged(&[
            head(),
            json!({ "keep": 0, "messages": [user("one"), assistant("two"), user("three")] }),
            json!({ "keep": 0, "messages": [user("ONE"), assistant("two"), user("three")] }),
        ]);
        let all: usize = [user("one"), assistant("two"), user("three")]
            .iter()
            .flat_map(blocks)
            .map(|block| block.len())
            .sum();
        assert_eq!((verdict.breaks, verdict.lost_bytes), (1, all as u64));
    }

    #[test]
    fn a_message_extended_at_its_end_is_not_a_break() {
        let part = |text: &str| json!({ "type": "text", "text": text });
        let verdict = judged(&[
            head(),
            json!({ "keep": 0, "messages": [user("one")] }),
            json!({ "keep": 0, "messages": [
                { "role": "user", "content": [part("one"), part("more")] },
            ] }),
        ]);
        assert_eq!(verdict.breaks, 0);
    }

    #[test]
    fn accepted_requests_are_not_rejected() {
        let verdict = judged(&[
            head(),
            json!({ "keep": 0, "messages": [user("one"), user("two"), assistant("three"), user("four")] }),
        ]);
        assert_eq!((verdict.views, verdict.invalid), (1, 0));
        let verdict = judged(&[
            head(),
            json!({ "keep": 0, "messages": [assistant("one"), user("two")] }),
        ]);
        assert_eq!(verdict.invalid, 1);
    }

    #[test]
    fn a_result_without_its_call_is_rejected() {
        let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": "x" });
        let verdict = judged(&[
            head(),
            json!({ "keep": 0, "messages": [{ "role": "user", "content": [result] }] }),
        ]);
        assert_eq!(verdict.invalid, 1);
        assert_eq!(verdict.rules.len(), 1);
    }
}
