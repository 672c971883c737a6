//! Counts the tokens of a block in the form that a provider receives.

use super::{WireBlock, WireResult};
use crate::message::Thinking;
use crate::tokens::{CALL_TOKENS, TextKind, TokenCounter, TokenTally};

/// Returns the tokens of a block in the form that a provider receives.
pub fn wire_tokens(counter: TokenCounter, block: &WireBlock<'_>) -> u32 {
    let mut tally = counter.tally(wire_bytes(block));
    let tokens = add_wire(&mut tally, block, TextKind::Prose);
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

/// Adds a block to the tally. `words` is the nature of its text: text inside a result is program output.
fn add_wire(tally: &mut TokenTally, block: &WireBlock<'_>, words: TextKind) -> u64 {
    match block {
        WireBlock::Text { text, .. } => tally.text(text, words),
        WireBlock::Media { media, .. } => tally.media(media),
        WireBlock::Call { name, input, .. } => {
            let name = tally.text(name, TextKind::Prose);
            CALL_TOKENS + name + tally.text(input.as_str(), TextKind::Code)
        }
        WireBlock::Result { content, .. } => {
            let content = match content {
                WireResult::None => 0,
                WireResult::Text(text) => tally.text(text, TextKind::Code),
                WireResult::Blocks(blocks) => {
                    let inner = blocks
                        .iter()
                        .map(|block| add_wire(tally, block, TextKind::Code));
                    inner.sum()
                }
            };
            CALL_TOKENS + content
        }
        WireBlock::Thinking { thinking, .. } => tally.thinking(thinking),
        WireBlock::Opaque(json) => tally.text(json.as_str(), TextKind::Code),
    }
}

/// Returns the bytes of a block's text in the form that a provider receives.
fn wire_bytes(block: &WireBlock<'_>) -> usize {
    match block {
        WireBlock::Text { text, .. } => text.len(),
        // The bytes of an image are no text, so they do not count toward the size of the text.
        WireBlock::Media { .. } => 0,
        WireBlock::Call { input, .. } => input.as_str().len(),
        WireBlock::Result { content, .. } => match content {
            WireResult::None => 0,
            WireResult::Text(text) => text.len(),
            WireResult::Blocks(blocks) => blocks.iter().map(wire_bytes).sum(),
        },
        WireBlock::Thinking { thinking, .. } => match thinking {
            Thinking::Plain { thinking, .. } => thinking.len(),
            Thinking::Redacted { data, .. } => data.len(),
        },
        WireBlock::Opaque(json) => json.as_str().len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::UnknownFields;
    use crate::message::{Block, ResultContent, ToolResult};
    use crate::policy::{Policy, TokenEstimator};

    const ALL: [TokenEstimator; 3] = [
        TokenEstimator::Bytes,
        TokenEstimator::O200k,
        TokenEstimator::Cl100k,
    ];

    fn result(content: ResultContent) -> Block {
        Block::ToolResult(ToolResult {
            tool_use_id: "x".into(),
            content,
            is_error: None,
            extra: UnknownFields::default(),
        })
    }

    #[test]
    fn a_plain_wire_block_has_the_count_of_its_block() {
        for text in ["fn main() {}\n".repeat(40), "log line 17\n".repeat(9_000)] {
            for block in [
                Block::text(text.clone()),
                result(ResultContent::Text(text.clone().into())),
                result(ResultContent::Blocks(vec![Block::text(text.clone())])),
            ] {
                for estimator in ALL {
                    let counter = Policy::default().counter().by(estimator);
                    let wire = wire_tokens(counter, &WireBlock::from_block(&block));
                    assert_eq!(wire, counter.block(&block), "{counter:?}");
                }
            }
        }
    }
}
