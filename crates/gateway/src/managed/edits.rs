//! The edits of the context that a request of Anthropic's API asks for, and that its session serves.
//!
//! They are taken out of the body, so an upstream without this feature never sees them. Edits of other types stay.

use std::ops::Range;

use bytes::Bytes;
use palimpsest_core::command::{ClearAbove, ClearByRule};
use palimpsest_core::json::{ObjectFields, UnknownFields};
use palimpsest_engine::turn::{ArrayPlace, JsonParts};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::context::EditKind;

/// The field with the edits.
const FIELD: &str = "context_management";
/// The value of the header `anthropic-beta` that a compaction needs.
pub(super) const COMPACT_BETA: &str = "compact-2026-01-12";
/// The value that all other edits need. The memory tool of the provider needs it too.
pub(super) const EDITS_BETA: &str = "context-management-2025-06-27";
const MEMORY_TOOL: &str = "memory_";
/// The defaults of the provider, and the smallest trigger of a compaction that it accepts.
const COMPACT_AT: u64 = 150_000;
const LEAST_COMPACT_AT: u64 = 50_000;
const CLEAR_ABOVE: u64 = 100_000;
const KEPT_TOOL_USES: u64 = 3;

/// The edits of a request that its session serves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ServedEdits {
    pub(super) compact: Option<CompactEdit>,
    pub(super) clear: Option<ClearByRule>,
    /// True if the request keeps all thinking, as every view does.
    pub(super) keeps_thinking: bool,
    /// The edits that stay in the body. `None` if the field leaves the body.
    pub(super) remaining: Option<RemainingEdits>,
}

/// A compaction at the start of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CompactEdit {
    /// The size of the prompt at which the compaction is due, in tokens.
    pub(super) at_tokens: u64,
    pub(super) instructions: Option<Box<str>>,
    /// True if the response ends after the summary.
    pub(super) pauses: bool,
}

/// The edits that stay in the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemainingEdits {
    /// The value of the field.
    json: String,
    /// True if one of them is a compaction.
    has_compaction: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Management<'a> {
    #[serde(borrow)]
    edits: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Typed {
    r#type: String,
}

/// A tool of the request. A tool of the client has no type.
#[derive(Deserialize)]
struct Tool {
    r#type: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
enum Edit {
    #[serde(rename = "compact_20260112")]
    Compact {
        trigger: Option<Amount>,
        instructions: Option<Box<str>>,
        pause_after_compaction: Option<bool>,
    },
    #[serde(rename = "clear_tool_uses_20250919")]
    ClearToolUses {
        trigger: Option<Amount>,
        keep: Option<Amount>,
        clear_at_least: Option<Amount>,
        exclude_tools: Option<Vec<Box<str>>>,
        #[expect(dead_code, reason = "level 3 keeps the calls of cleared results")]
        clear_tool_inputs: Option<ToolInputs>,
    },
    #[serde(rename = "clear_thinking_20251015")]
    ClearThinking { keep: Option<KeptThinking> },
}

#[derive(Deserialize, Clone, Copy)]
#[serde(
    tag = "type",
    content = "value",
    rename_all = "snake_case",
    deny_unknown_fields
)]
enum Amount {
    InputTokens(u64),
    ToolUses(u64),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ToolInputs {
    All(#[expect(dead_code, reason = "only its type is checked")] bool),
    OfTools(#[expect(dead_code, reason = "only its type is checked")] Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum KeptThinking {
    Name(String),
    Turns(Typed),
}

impl ServedEdits {
    /// Reads the edits of a request. Returns `None` if none of them is served. An edit with a value that the provider does
    /// not define leaves the request as it came, so that upstream rejects it in its own words.
    pub(super) fn of(options: &UnknownFields) -> Option<Self> {
        let management: Management<'_> = serde_json::from_str(options.get(FIELD)?.as_str()).ok()?;
        let mut served = Self::default();
        let mut remaining = Vec::new();
        let mut has_compaction = false;
        for raw in &management.edits {
            let kind: Typed = serde_json::from_str(raw.get()).ok()?;
            let is_served = EditKind::of(&kind.r#type).is_some()
                && served.add(serde_json::from_str(raw.get()).ok()?)?;
            if !is_served {
                // A later version, such as `compact_20991231`, needs the beta of compactions as well.
                has_compaction |= kind.r#type.starts_with("compact_");
                remaining.push(raw.get());
            }
        }
        if remaining.len() == management.edits.len() {
            return None;
        }
        served.remaining = (!remaining.is_empty()).then(|| RemainingEdits {
            json: format!(r#"{{"edits":[{}]}}"#, remaining.join(",")),
            has_compaction,
        });
        Some(served)
    }

    /// Adds an edit. Returns false if it is not served, and `None` if it is not valid.
    fn add(&mut self, edit: Edit) -> Option<bool> {
        match edit {
            Edit::Compact {
                trigger,
                instructions,
                pause_after_compaction,
            } => {
                let compact = CompactEdit {
                    at_tokens: tokens(trigger, COMPACT_AT)?,
                    instructions,
                    pauses: pause_after_compaction.unwrap_or_default(),
                };
                // The provider rejects a smaller trigger and a second compaction, so such a request must reach it
                // unchanged.
                let is_valid = compact.at_tokens >= LEAST_COMPACT_AT && self.compact.is_none();
                self.compact = Some(compact);
                is_valid.then_some(true)
            }
            Edit::ClearToolUses {
                trigger,
                keep,
                clear_at_least,
                exclude_tools,
                ..
            } => {
                let clear = ClearByRule {
                    above: match trigger {
                        None => ClearAbove::Tokens(CLEAR_ABOVE),
                        Some(Amount::InputTokens(tokens)) => ClearAbove::Tokens(tokens),
                        Some(Amount::ToolUses(uses)) => ClearAbove::Results(uses),
                    },
                    keep_results: match keep {
                        None => KEPT_TOOL_USES,
                        Some(Amount::ToolUses(uses)) => uses,
                        Some(Amount::InputTokens(_)) => return None,
                    },
                    min_freed_tokens: tokens(clear_at_least, 0)?,
                    excluded_tools: exclude_tools.unwrap_or_default().into(),
                };
                let is_first = self.clear.replace(clear).is_none();
                is_first.then_some(true)
            }
            // No level removes thinking, so only a request that keeps all of it can be served.
            Edit::ClearThinking { keep } => {
                let keeps_all = keep.is_some_and(|keep| match keep {
                    KeptThinking::Name(name) => name == "all",
                    KeptThinking::Turns(keep) => keep.r#type == "all",
                });
                self.keeps_thinking |= keeps_all;
                Some(keeps_all)
            }
        }
    }

    /// Returns the values of the header `anthropic-beta` that the rest of the request does not need. `tools` are the
    /// definitions of its tools.
    pub(super) fn unused_betas(served: Option<&Self>, tools: Option<&str>) -> Vec<&'static str> {
        let remaining = served.and_then(|served| served.remaining.as_ref());
        let tools = tools.and_then(|tools| serde_json::from_str::<Vec<Tool>>(tools).ok());
        let has_memory = tools.iter().flatten().any(|tool| {
            let kind = tool.r#type.as_deref();
            kind.is_some_and(|kind| kind.starts_with(MEMORY_TOOL))
        });
        let mut unused = Vec::new();
        if !remaining.is_some_and(|remaining| remaining.has_compaction) {
            unused.push(COMPACT_BETA);
        }
        if remaining.is_none() && !has_memory {
            unused.push(EDITS_BETA);
        }
        unused
    }

    /// Returns the body without the served edits, and the new position of its array. `None` if the position of the field
    /// is not certain.
    pub(super) fn take_out(
        &self,
        body: &JsonParts,
        place: ArrayPlace,
    ) -> Option<(JsonParts, ArrayPlace)> {
        let begin = place.open + 1;
        // The conversation can be long, and it is not searched.
        let around = [
            body.section(0..begin).whole(),
            body.section(place.close..body.len()).whole(),
        ];
        let text = around.concat();
        let text = std::str::from_utf8(&text).ok()?;
        let range = range_of(text, self.remaining.is_none())?;
        let new = self.remaining.as_ref();
        let new = new.map_or(Bytes::new(), |remaining| remaining.json.clone().into());
        let is_before = range.start < begin;
        // `range` is a position in the text without the conversation. For a field behind the conversation, the length
        // of the conversation is added.
        let shift = if is_before { 0 } else { place.close - begin };
        let mut parts = body.section(0..range.start + shift).parts().to_vec();
        parts.extend((!new.is_empty()).then(|| new.clone()));
        parts.extend_from_slice(body.section(range.end + shift..body.len()).parts());
        // Only a field before the array moves the brackets of the array.
        let moved = |position: usize| {
            if is_before {
                position - range.len() + new.len()
            } else {
                position
            }
        };
        let place = ArrayPlace {
            open: moved(place.open),
            lead_end: moved(place.lead_end),
            close: moved(place.close),
        };
        Some((JsonParts::new(parts), place))
    }

    /// Returns the kinds of the served edits.
    pub(super) fn kinds(&self) -> impl Iterator<Item = EditKind> + use<> {
        let kinds = [
            (EditKind::Compact, self.compact.is_some()),
            (EditKind::ClearToolUses, self.clear.is_some()),
            (EditKind::ClearThinking, self.keeps_thinking),
        ];
        kinds
            .into_iter()
            .filter_map(|(kind, is_served)| is_served.then_some(kind))
    }
}

/// Returns the tokens of an amount. `None` if the amount has another unit.
const fn tokens(amount: Option<Amount>, default: u64) -> Option<u64> {
    match amount {
        None => Some(default),
        Some(Amount::InputTokens(tokens)) => Some(tokens),
        Some(Amount::ToolUses(_)) => None,
    }
}

/// Returns the position of the value of the field in a body, or of the whole field and one comma.
fn range_of(text: &str, with_name: bool) -> Option<Range<usize>> {
    let value = ObjectFields::read_str(text).ok()?.take(FIELD).ok()??;
    let begin = value.get().as_ptr().addr() - text.as_ptr().addr();
    let end = begin + value.get().len();
    if !with_name {
        return Some(begin..end);
    }
    let name = text[..begin].trim_end().strip_suffix(':')?.trim_end();
    // A name with another spelling, such as an escaped letter, is not searched for.
    let before = name.strip_suffix(&format!("\"{FIELD}\""))?;
    // The field leaves with one comma: the one behind it, or the one before it if it is the last field.
    let after = text[end..].trim_start();
    if let Some(rest) = after.strip_prefix(',') {
        return Some(before.len()..text.len() - rest.len());
    }
    let before = before.trim_end();
    Some(before.strip_suffix(',').unwrap_or(before).len()..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(edits: &str) -> Option<ServedEdits> {
        let body = format!(r#"{{"context_management":{{"edits":{edits}}}}}"#);
        ServedEdits::of(&UnknownFields::from_object(&body).unwrap())
    }

    #[test]
    fn edits_have_the_defaults_of_the_provider() {
        let edits = served(
            r#"[{"type":"clear_thinking_20251015","keep":"all"},{"type":"clear_tool_uses_20250919"},
                {"type":"compact_20260112"}]"#,
        );
        let edits = edits.unwrap();
        let compact = edits.compact.as_ref().unwrap();
        assert_eq!((compact.at_tokens, compact.pauses), (150_000, false));
        let clear = edits.clear.as_ref().unwrap();
        assert_eq!(clear.above, ClearAbove::Tokens(100_000));
        assert_eq!((clear.keep_results, clear.min_freed_tokens), (3, 0));
        assert_eq!(edits.kinds().count(), 3);
        assert_eq!(edits.remaining, None);
        let edits = served(
            r#"[{"type":"clear_tool_uses_20250919","trigger":{"type":"tool_uses","value":9},
                "keep":{"type":"tool_uses","value":1},"clear_at_least":{"type":"input_tokens","value":7},
                "exclude_tools":["a"],"clear_tool_inputs":["b"]},
                {"type":"compact_20260112","trigger":{"type":"input_tokens","value":50000},
                "pause_after_compaction":true,"instructions":"Briefly."}]"#,
        );
        let edits = edits.unwrap();
        let clear = edits.clear.unwrap();
        assert_eq!(clear.above, ClearAbove::Results(9));
        assert_eq!((clear.keep_results, clear.min_freed_tokens), (1, 7));
        assert_eq!(&*clear.excluded_tools, [Box::from("a")]);
        let compact = edits.compact.unwrap();
        assert_eq!((compact.at_tokens, compact.pauses), (50_000, true));
        assert_eq!(compact.instructions.as_deref(), Some("Briefly."));
    }

    #[test]
    fn a_request_with_an_invalid_edit_stays_as_it_came() {
        for edits in [
            r#"[{"type":"compact_20260112","trigger":{"type":"input_tokens","value":49999}}]"#,
            r#"[{"type":"compact_20260112","trigger":{"type":"tool_uses","value":60000}}]"#,
            r#"[{"type":"compact_20260112","later":1}]"#,
            r#"[{"type":"compact_20260112"},{"type":"compact_20260112"}]"#,
            r#"[{"type":"compact_20260112"},{"type":"clear_tool_uses_20250919","keep":3}]"#,
            // These two would remove thinking, which no level does.
            r#"[{"type":"clear_thinking_20251015","keep":{"type":"thinking_turns","value":2}}]"#,
            r#"[{"type":"clear_thinking_20251015"}]"#,
            r#"[{"type":"another"}]"#,
            "[]",
            "3",
        ] {
            assert_eq!(served(edits), None, "{edits}");
        }
    }

    #[track_caller]
    fn check(body: &str, expected: &str) {
        let options = UnknownFields::from_object(body).unwrap();
        let edits = ServedEdits::of(&options).unwrap();
        let open = body.find(r#""messages":"#).unwrap();
        let open = open + body[open..].find('[').unwrap();
        let close = open + body[open..].find(']').unwrap();
        let place = ArrayPlace {
            open,
            lead_end: open + 1,
            close,
        };
        let parts = JsonParts::from(Bytes::copy_from_slice(body.as_bytes()));
        let (written, place) = edits.take_out(&parts, place).unwrap();
        let text = String::from_utf8(written.whole().to_vec()).unwrap();
        assert_eq!(text, expected);
        assert_eq!(&text[place.open..=place.open], "[");
        assert_eq!(place.lead_end, place.open + 1);
        assert_eq!(&text[place.close..=place.close], "]");
    }

    #[test]
    fn only_the_served_edits_leave_the_body() {
        let edits = r#""context_management" : {"edits":[{"type":"compact_20260112"}]}"#;
        check(
            &format!(r#"{{"a":1, {edits}, "messages":[{{"x":1}}],"b":2}}"#),
            r#"{"a":1,  "messages":[{"x":1}],"b":2}"#,
        );
        check(
            &format!(r#"{{{edits},"messages":[{{}}]}}"#),
            r#"{"messages":[{}]}"#,
        );
        check(
            &format!(r#"{{"messages":[{{}}], {edits} }}"#),
            r#"{"messages":[{}] }"#,
        );
        check(
            &format!(r#"{{"messages":[{{}}],{edits},"b":2}}"#),
            r#"{"messages":[{}],"b":2}"#,
        );
        let mixed = r#""context_management":{"edits":[{"type":"other","n":1.0},{"type":"compact_20260112"}]}"#;
        check(
            &format!(r#"{{{mixed},"messages":[{{}}]}}"#),
            r#"{"context_management":{"edits":[{"type":"other","n":1.0}]},"messages":[{}]}"#,
        );
        check(
            &format!(r#"{{"messages":[{{}}],{mixed}}}"#),
            r#"{"messages":[{}],"context_management":{"edits":[{"type":"other","n":1.0}]}}"#,
        );
    }

    #[test]
    fn a_beta_that_the_rest_needs_stays() {
        let edits = served(r#"[{"type":"compact_20260112"}]"#);
        let unused = |edits: Option<&ServedEdits>, tools| ServedEdits::unused_betas(edits, tools);
        let all = [COMPACT_BETA, EDITS_BETA];
        assert_eq!(unused(edits.as_ref(), Some(r#"[{"name":"a"}]"#)), all);
        assert_eq!(unused(None, None), all);
        let memory = r#"[{"type":"memory_20250818","name":"memory"}]"#;
        assert_eq!(unused(edits.as_ref(), Some(memory)), [COMPACT_BETA]);
        let newer = served(r#"[{"type":"compact_20260112"},{"type":"compact_20991231"}]"#);
        assert!(unused(newer.as_ref(), None).is_empty());
        let other = served(r#"[{"type":"compact_20260112"},{"type":"clear_other"}]"#);
        assert_eq!(unused(other.as_ref(), None), [COMPACT_BETA]);
    }
}
