//! The answer of a hook that was asked before anything is summarised.

use super::finish::under_way;
use crate::command::decision::{Context, Decision};
use crate::command::reject::Rejection;
use crate::event::{Event, HookCall, HookCalled};
use crate::ids::CompactionKey;
use crate::session::Session;

/// Record what the hook wants of a compaction that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerHook {
    /// Which compaction.
    pub key: CompactionKey,
    /// The call.
    pub call: HookCall,
    /// What is added to the instructions of the summary.
    pub instructions: Option<Box<str>>,
    /// Texts that stand word for word beside the summary.
    pub must_keep: Vec<Box<str>>,
}

impl AnswerHook {
    pub(in crate::command) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        let running = session.compactions().running.as_ref();
        let attempt = running.map_or(0, |running| running.attempt);
        let running = match under_way(session, context, (self.key, attempt), [&None, &None])? {
            Ok(running) => running,
            Err(decided) => return Ok(decided),
        };
        // Two callers may have asked it at one time: the first answer holds for both.
        if running.hooks.is_asked() {
            return Ok(Decision::Events(Vec::new()));
        }
        Ok(Decision::Events(vec![Event::HookCalled(HookCalled {
            key: self.key,
            call: self.call,
            instructions: self.instructions,
            must_keep: self.must_keep,
        })]))
    }
}

/// The calls that a compaction ends with, as events of their own.
pub(super) fn called(key: CompactionKey, calls: &[HookCall]) -> impl Iterator<Item = Event> {
    calls.iter().map(move |call| {
        Event::HookCalled(HookCalled {
            key,
            call: call.clone(),
            instructions: None,
            must_keep: Vec::new(),
        })
    })
}
