//! Cache breakpoints: the options of a call, and the positions in each provider's format.

use palimpsest_core::view::{Breakpoints, MAX_BREAKPOINTS, Provider, WireBlockPosition};
use palimpsest_proto::context::v1::{self, cache_breakpoint::Marker, cache_breakpoint::Place};
use serde_json::Value;

use super::blocks_in::payload_error;
use super::{FieldError, WithFieldPath};

/// The time for which a provider keeps a cached prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ttl {
    FiveMinutes,
    Hour,
}

impl Ttl {
    const fn name(self) -> &'static str {
        match self {
            Self::FiveMinutes => "5m",
            Self::Hour => "1h",
        }
    }
}

/// The breakpoint options of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakpointOptions {
    /// The maximum number of breakpoints in addition to those of the caller.
    pub most: usize,
    /// For each block of the caller's system prompt, true if it can have a breakpoint. `None` if the call does not
    /// contain the system prompt.
    pub own_system: Option<Vec<bool>>,
    ttl: Option<Ttl>,
}

/// Validates the options. Returns `None` if the call requests no breakpoints.
///
/// Breakpoints that the caller set in its system prompt and tools are counted, because providers reject requests
/// with more than four.
pub fn breakpoint_options(
    options: Option<&v1::CacheBreakpointOptions>,
    prefix: Option<&v1::PromptPrefix>,
) -> Result<Option<BreakpointOptions>, FieldError> {
    let Some(options) = options else {
        return Ok(None);
    };
    let most = match options.max_breakpoints as usize {
        // 0 means that the caller set no maximum.
        0 => MAX_BREAKPOINTS,
        most if most <= MAX_BREAKPOINTS => most,
        _ => {
            let field = "cache_breakpoints.max_breakpoints";
            return Err(FieldError::invalid(field, "must be from 1 to 4"));
        }
    };
    let ttl = match options.ttl.as_ref().map(|ttl| (ttl.seconds, ttl.nanos)) {
        None => None,
        Some((300, 0)) => Some(Ttl::FiveMinutes),
        Some((3_600, 0)) => Some(Ttl::Hour),
        Some(_) => {
            let field = "cache_breakpoints.ttl";
            return Err(FieldError::invalid(field, "must be 5 minutes or 1 hour"));
        }
    };
    let prefix = prefix.cloned().unwrap_or_default();
    let system = blocks(&prefix.system_json).under("prompt_prefix.system_json")?;
    let tools = blocks(&prefix.tools_json).under("prompt_prefix.tools_json")?;
    // The provider counts the caller's own breakpoints towards its limit.
    let placed = system.iter().chain(&tools).flatten();
    let placed = placed.filter(|block| is_marked(block)).count();
    Ok(Some(BreakpointOptions {
        // With all breakpoints of the provider in use, none is placed in the messages.
        most: most.min(MAX_BREAKPOINTS.saturating_sub(placed)),
        own_system: system.as_deref().map(accepts_breakpoint),
        ttl,
    }))
}

/// Parses the blocks of a system prompt or tool definitions. Returns `None` for no bytes.
fn blocks(bytes: &[u8]) -> Result<Option<Vec<Value>>, FieldError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let text = palimpsest_core::json::document(bytes).map_err(payload_error)?;
    let value = serde_json::from_str(&text).map_err(|error| payload_error(error.into()))?;
    Ok(Some(match value {
        Value::Array(blocks) => blocks,
        // A system prompt may be one string.
        other => vec![other],
    }))
}

/// Returns true if the block has a breakpoint or is one (Bedrock's `cachePoint`).
fn is_marked(block: &Value) -> bool {
    let is_set = |field| block.get(field).is_some_and(|value| !value.is_null());
    is_set("cache_control") || is_set("cachePoint")
}

/// Returns, for each block of a system prompt, true if it can have a breakpoint: non-blank text without one.
fn accepts_breakpoint(blocks: &[Value]) -> Vec<bool> {
    let says = |block: &Value| {
        let words = block.as_str().or_else(|| block.get("text")?.as_str());
        words.is_some_and(|words| !words.trim().is_empty())
    };
    // A `cachePoint` after a block is already the breakpoint of that block.
    let is_closed = |index: usize| {
        let next = blocks.get(index + 1);
        next.is_some_and(|next| next.get("cachePoint").is_some())
    };
    let takes = |(index, block)| says(block) && !is_marked(block) && !is_closed(index);
    blocks.iter().enumerate().map(takes).collect()
}

/// Returns the breakpoints in the format of the provider.
pub fn cache_breakpoints(
    found: &Breakpoints,
    provider: Provider,
    asked: &BreakpointOptions,
) -> Vec<v1::CacheBreakpoint> {
    let ttl = asked.ttl.map(|ttl| format!(r#","ttl":"{}""#, ttl.name()));
    let ttl = ttl.unwrap_or_default();
    // Bedrock takes a separate block after the prefix. The other format takes a field of the last block of the
    // prefix.
    let marker = if provider == Provider::Bedrock {
        let point = format!(r#"{{"cachePoint":{{"type":"default"{ttl}}}}}"#);
        Marker::InsertJson(point.into())
    } else {
        let control = format!(r#"{{"cache_control":{{"type":"ephemeral"{ttl}}}}}"#);
        Marker::MergeJson(control.into())
    };
    let position = |spot: &WireBlockPosition| {
        Place::Position(v1::WirePosition {
            message_index: spot.message,
            block_index: Some(spot.block),
        })
    };
    let system = found.system.iter().copied().map(Place::SystemBlockIndex);
    system
        .chain(found.messages.iter().map(position))
        .map(|place| v1::CacheBreakpoint {
            place: Some(place),
            marker: Some(marker.clone()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost_types::Duration;

    use super::*;

    fn asked(
        most: u32,
        ttl: Option<(i64, i32)>,
        system: &'static str,
        tools: &'static str,
    ) -> Result<BreakpointOptions, FieldError> {
        let options = v1::CacheBreakpointOptions {
            max_breakpoints: most,
            ttl: ttl.map(|(seconds, nanos)| Duration { seconds, nanos }),
        };
        let prefix = v1::PromptPrefix {
            system_json: Bytes::from_static(system.as_bytes()),
            tools_json: Bytes::from_static(tools.as_bytes()),
            ..v1::PromptPrefix::default()
        };
        breakpoint_options(Some(&options), Some(&prefix)).map(Option::unwrap)
    }

    #[test]
    fn breakpoint_options_default_to_four_and_invalid_ones_are_rejected() {
        assert_eq!(breakpoint_options(None, None), Ok(None));
        let all = asked(0, None, "", "").unwrap();
        assert_eq!((all.most, all.own_system), (4, None));
        assert_eq!(asked(3, None, "", "").unwrap().most, 3);
        for (most, ttl, field) in [
            (5, None, "cache_breakpoints.max_breakpoints"),
            (1, Some((60, 0)), "cache_breakpoints.ttl"),
            (1, Some((300, 1)), "cache_breakpoints.ttl"),
        ] {
            assert_eq!(asked(most, ttl, "", "").unwrap_err().path, field);
        }
        let wrong = asked(1, None, "[", "").unwrap_err();
        assert_eq!(wrong.path, "prompt_prefix.system_json");
        let wrong = asked(1, None, "", "{").unwrap_err();
        assert_eq!(wrong.path, "prompt_prefix.tools_json");
    }

    #[test]
    fn breakpoints_placed_by_the_caller_count_towards_the_maximum() {
        let own = |system| asked(0, None, system, "").unwrap();
        assert_eq!(own(r#""words""#).own_system, Some(vec![true]));
        assert_eq!(own(r#"" ""#).own_system, Some(vec![false]));
        assert_eq!(own("[]").own_system, Some(vec![]));
        let marked = own(
            r#"[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":" "},{"type":"text","text":"b","cache_control":null},7]"#,
        );
        assert_eq!(marked.own_system, Some(vec![false, false, true, false]));
        assert_eq!(marked.most, 3);
        let bedrock = own(r#"[{"text":"a"},{"cachePoint":{"type":"default"}},{"text":"b"}]"#);
        assert_eq!(bedrock.own_system, Some(vec![false, false, true]));
        assert_eq!(bedrock.most, 3);
        let tools = r#"[{"name":"t","cache_control":{"type":"ephemeral"}},{"name":"u"}]"#;
        assert_eq!(asked(4, None, "", tools).unwrap().most, 3);
        assert_eq!(asked(2, None, "", tools).unwrap().most, 2);
    }

    #[test]
    fn breakpoint_markers_have_the_format_of_the_provider() {
        let found = Breakpoints {
            system: vec![1],
            messages: vec![WireBlockPosition {
                message: 4,
                block: 2,
            }],
        };
        let shown = |provider, ttl| {
            let placed = cache_breakpoints(&found, provider, &asked(0, ttl, "", "").unwrap());
            assert_eq!(placed[0].place, Some(Place::SystemBlockIndex(1)));
            let position = v1::WirePosition {
                message_index: 4,
                block_index: Some(2),
            };
            assert_eq!(placed[1].place, Some(Place::Position(position)));
            // All breakpoints of a request have the same marker.
            assert_eq!(placed[0].marker, placed[1].marker);
            match placed[0].marker.clone() {
                Some(Marker::MergeJson(json)) => {
                    format!("merge {}", String::from_utf8_lossy(&json))
                }
                Some(Marker::InsertJson(json)) => {
                    format!("insert {}", String::from_utf8_lossy(&json))
                }
                None => String::new(),
            }
        };
        assert_eq!(
            shown(Provider::Anthropic, None),
            r#"merge {"cache_control":{"type":"ephemeral"}}"#
        );
        assert_eq!(
            shown(Provider::Anthropic, Some((3_600, 0))),
            r#"merge {"cache_control":{"type":"ephemeral","ttl":"1h"}}"#
        );
        assert_eq!(
            shown(Provider::Bedrock, None),
            r#"insert {"cachePoint":{"type":"default"}}"#
        );
        assert_eq!(
            shown(Provider::Bedrock, Some((300, 0))),
            r#"insert {"cachePoint":{"type":"default","ttl":"5m"}}"#
        );
    }
}
