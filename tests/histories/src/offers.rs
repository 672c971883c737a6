//! Persist decisions in random histories: callers request them and append the replacements that they received.

use crate::{BlockDraft, SessionHarness, block};
use palimpsest_core::command::{
    CallRef, Command, DecidePersist, Decided, Rejection, current_outcome,
};
use palimpsest_core::ids::CallKey;
use palimpsest_core::message::{Block, ResultContent};
use palimpsest_core::policy::ToolResultRule;

impl SessionHarness {
    /// Creates blocks. Results whose call has a replacement contain that replacement.
    pub(super) fn blocks(&self, parts: &[BlockDraft]) -> Vec<Block> {
        let one = |part: &BlockDraft| {
            let mut made = block(part);
            if let (BlockDraft::Given { block, .. }, Block::ToolResult(result)) = (part, &mut made)
                && let Some(text) = self.given.get(&result.tool_use_id)
            {
                result.content = if *block {
                    ResultContent::Blocks(vec![Block::text(text.clone())])
                } else {
                    ResultContent::Text(text.clone())
                };
            }
            made
        };
        parts.iter().map(one).collect()
    }

    /// Requests a persist decision twice. The second decision must be the same and must record no event.
    pub(super) fn offer(&mut self, call: u8, shape: u8, rule: u8, by_key: bool) {
        let part = BlockDraft::Result {
            call,
            error: false,
            shape,
        };
        let Block::ToolResult(result) = block(&part) else {
            return;
        };
        let id = result.tool_use_id.clone();
        let name = CallRef {
            key: by_key.then(|| CallKey::new(call.into())),
            id: if by_key { "".into() } else { id.clone() },
        };
        let offering = DecidePersist {
            tool: "Read".into(),
            rule: match rule {
                0 => Some(ToolResultRule::FixedChars(5_000)),
                1 => Some(ToolResultRule::NeverPersist(true)),
                _ => None,
            },
            ..DecidePersist::new(name, result)
        };
        let decided = self.try_run(Command::DecidePersist(offering.clone()));
        // Ids collide in random histories, so some requests are ambiguous or conflict with an earlier decision.
        let is_expected = matches!(
            decided,
            Ok(_)
                | Err(Rejection::AmbiguousCall(_)
                    | Rejection::CallNotFound(_)
                    | Rejection::ResultConflict { .. })
        );
        assert!(is_expected, "{decided:?}");
        if decided.is_err() {
            return;
        }
        let first = current_outcome(&self.session, &offering).unwrap();
        let again = self
            .try_run(Command::DecidePersist(offering.clone()))
            .unwrap();
        assert_eq!(
            again,
            Decided::events(vec![]),
            "a repeated decision must record nothing"
        );
        assert_eq!(current_outcome(&self.session, &offering).unwrap(), first);
        let of_call = first.call.and_then(|call| self.session.calls().get(call));
        let id = of_call.map_or(id, |call| call.id.clone());
        if let Some(kept) = first.stored {
            self.given.insert(id, kept.replacement);
        }
    }
}
