//! The levels that reduce a view on request, except compaction.

use palimpsest_core::command::{
    ClearResults, ClearTrigger, CollapseSpans, CollapseTrigger, Command, Snip,
};
use palimpsest_core::ids::Revision;
use palimpsest_core::session::{ContentNotLoaded, RequestStamp, Session};
use palimpsest_core::view::TargetOverride;

use super::{ChangeCall, ChangeOutcome};
use crate::EngineError;

/// A level that reduces the view without a summary, with its mode.
#[derive(Debug, Clone, Copy)]
pub enum Reduction {
    /// Clears old results (level 3).
    Clear(ClearTrigger),
    /// Replaces spans by placeholders (level 4).
    Collapse(CollapseTrigger),
}

impl ChangeCall<'_> {
    /// Removes turns, messages or blocks from the view (level 2).
    pub async fn snip<T>(
        &self,
        snip: &Snip,
        answer: impl Fn(&Session, &ChangeOutcome, bool) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, EngineError> {
        let command = |expected_revision| {
            Command::Snip(Snip {
                expected_revision,
                ..snip.clone()
            })
        };
        let view = TargetOverride::default();
        // Pending messages are served first, so that every block has a piece to remove.
        self.run(
            |transaction| transaction.run_served(&view, snip.expected_revision, command),
            answer,
        )
        .await
    }

    /// Reduces the view that would be served now for a target.
    pub async fn reduce<T>(
        &self,
        reduction: Reduction,
        target: &TargetOverride,
        (expected_revision, request): (Option<Revision>, Option<RequestStamp>),
        answer: impl Fn(&Session, &ChangeOutcome, bool) -> Result<T, ContentNotLoaded>,
    ) -> Result<T, EngineError> {
        let command = |revision| reduction.command(revision, request.clone());
        // The levels act on the pieces of a view. Pending messages have none until they are served.
        self.run(
            |transaction| transaction.run_served(target, expected_revision, command),
            answer,
        )
        .await
    }
}

impl Reduction {
    fn command(
        self,
        expected_revision: Option<Revision>,
        request: Option<RequestStamp>,
    ) -> Command {
        match self {
            Self::Clear(trigger) => Command::ClearResults(ClearResults {
                trigger,
                expected_revision,
                request,
            }),
            Self::Collapse(trigger) => Command::CollapseSpans(CollapseSpans {
                trigger,
                expected_revision,
                request,
            }),
        }
    }
}
