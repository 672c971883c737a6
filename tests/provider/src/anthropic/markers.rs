//! Cache markers: their validation and their lifetimes.

use serde_json::Value;

use super::array;
use crate::billing::Lifetime;
use crate::refusal::Refusal;

const MAX_MARKERS: usize = 4;

/// Returns the lifetime that a marked value has.
pub(super) fn lifetime(marked: &Value) -> Option<Lifetime> {
    let control = &marked["cache_control"];
    match control["ttl"].as_str() {
        _ if control.is_null() => None,
        Some("1h") => Some(Lifetime::Hour),
        _ => Some(Lifetime::FiveMinutes),
    }
}

/// Removes the markers of a block and of the blocks inside, because they do not change the cached prefix.
pub(super) fn remove(block: &mut Value) {
    if let Some(object) = block.as_object_mut() {
        object.remove("cache_control");
        if let Some(Value::Array(inner)) = object.get_mut("content") {
            inner.iter_mut().for_each(remove);
        }
    }
}

/// Checks all markers: at most four, of a known kind, on blocks that allow one, and the long ones first.
pub(super) fn check(body: &Value) -> Result<(), Refusal> {
    let mut found = Found::default();
    for (index, tool) in array(&body["tools"]).iter().enumerate() {
        found.add(tool, &format!("tools.{index}"))?;
    }
    found.add_all(&body["system"], "system")?;
    for (index, message) in array(&body["messages"]).iter().enumerate() {
        let at = format!("messages.{index}.content");
        found.add_all(&message["content"], &at)?;
    }
    // A marker of the request stands for one at its last block.
    found.add_top(body)?;
    if found.count > MAX_MARKERS {
        return Err(Refusal::invalid(format!(
            "A maximum of {MAX_MARKERS} blocks with cache_control may be provided. Found {}.",
            found.count
        )));
    }
    Ok(())
}

/// The markers so far, in the order of the prompt.
#[derive(Default)]
struct Found {
    count: usize,
    last: Option<Lifetime>,
    /// The marker of the latest block.
    of_last_block: Option<Lifetime>,
}

impl Found {
    fn add_all(&mut self, blocks: &Value, at: &str) -> Result<(), Refusal> {
        if blocks.is_string() {
            // A string is one text block without a marker.
            self.of_last_block = None;
        }
        for (index, block) in array(blocks).iter().enumerate() {
            let at = format!("{at}.{index}");
            for (index, inner) in array(&block["content"]).iter().enumerate() {
                self.add(inner, &format!("{at}.content.{index}"))?;
            }
            self.add(block, &at)?;
        }
        Ok(())
    }

    fn add(&mut self, block: &Value, at: &str) -> Result<(), Refusal> {
        self.of_last_block = lifetime(block);
        let Some(lifetime) = self.of_last_block else {
            return Ok(());
        };
        let control = &block["cache_control"];
        if control["type"] != "ephemeral" {
            return Err(Refusal::invalid(
                "cache_control.type: Input should be 'ephemeral'",
            ));
        }
        if !matches!(control["ttl"].as_str(), None | Some("5m" | "1h")) {
            return Err(Refusal::invalid(
                "cache_control.ttl: Input should be '5m' or '1h'",
            ));
        }
        if matches!(
            block["type"].as_str(),
            Some("thinking" | "redacted_thinking")
        ) {
            return Err(Refusal::invalid(
                "cache_control: Extra inputs are not permitted",
            ));
        }
        // `Lifetime` orders five minutes before an hour.
        if self.last.is_some_and(|last| last < lifetime) {
            return Err(Refusal::invalid(format!(
                "{at}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`."
            )));
        }
        self.last = Some(lifetime);
        self.count += 1;
        Ok(())
    }

    fn add_top(&mut self, body: &Value) -> Result<(), Refusal> {
        match (lifetime(body), self.of_last_block) {
            (Some(top), Some(last)) if top != last => {
                let name = |lifetime| match lifetime {
                    Lifetime::FiveMinutes => "5m",
                    Lifetime::Hour => "1h",
                };
                Err(Refusal::invalid(format!(
                    "Top-level cache_control has ttl='{}' but the target block already has cache_control with ttl='{}'",
                    name(top),
                    name(last)
                )))
            }
            // The marker that the last block has already.
            (Some(_), Some(_)) => Ok(()),
            _ => self.add(body, "request"),
        }
    }
}
