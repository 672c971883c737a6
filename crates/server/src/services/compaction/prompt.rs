//! What every model is asked for a summary: the conversation that leaves, and the instruction.

use palimpsest_core::levels::compaction::summary_input;
use palimpsest_core::message::{Block, MessageKind, Role};
use palimpsest_core::session::Session;
use palimpsest_core::summary::{ExtraInstructions, SYSTEM, standing_instructions, summary_request};
use palimpsest_core::tokens::Counter;

use super::CompactionJob;
use super::rounds::InputRounds;

/// What a model is asked.
#[derive(Debug)]
pub(super) struct SummaryPrompt {
    /// What leaves, in words.
    pub(super) rounds: InputRounds,
    /// What to do with it.
    pub(super) instruction: String,
    /// How its session counts.
    counter: Counter,
}

impl SummaryPrompt {
    /// Reads what leaves, and makes the instruction with what the policy, the context and the caller want
    /// of it; none when the messages could not be read.
    pub(super) async fn of(job: &CompactionJob) -> Option<Self> {
        let (session, leaving) = (job.session.clone(), job.leaving.clone());
        let (custom, hook) = (job.instructions.clone(), job.hooks.instructions.clone());
        let read = tokio::task::spawn_blocking(move || {
            let told = summary_input(&session, &leaving).ok()?;
            let standing = standing(&session);
            let extra = ExtraInstructions {
                standing: standing.as_deref(),
                hook: hook.as_deref(),
                custom: custom.as_deref(),
            };
            Some(Self {
                rounds: InputRounds::of(told),
                instruction: summary_request(session.policy().summary.style, extra),
                counter: session.counter(),
            })
        });
        read.await.ok().flatten()
    }

    /// What a request has beside the conversation, in tokens.
    pub(super) fn overhead(&self) -> u64 {
        let counter = self.counter;
        u64::from(counter.text(SYSTEM)) + u64::from(counter.text(&self.instruction))
    }

    /// How much of the conversation fits into a request.
    pub(super) fn room(&self, window: u64, output: u64) -> u64 {
        let free = window.saturating_sub(output + self.overhead());
        // A tenth as a margin: the counts are estimates.
        free - free / 10
    }
}

/// The policy's standing instructions, else those that stand under a heading of their own in what people
/// and their machinery say in the view. What tools returned is no instruction, and the latest holds.
pub(super) fn standing(session: &Session) -> Option<String> {
    if let Some(instructions) = &session.policy().summary.instructions {
        return Some(instructions.to_string());
    }
    let entries = session.transcript().entries();
    let visible = entries.filter(|(at, entry)| {
        let from_people = entry.role != Role::Assistant && entry.kind != MessageKind::Summary;
        from_people && session.transcript().is_visible(*at)
    });
    let mut found = None;
    for message in visible.filter_map(|(_, entry)| entry.content.as_ref()) {
        for block in &message.blocks {
            if let Block::Text { text, .. } = block {
                found = standing_instructions(text).or(found);
            }
        }
    }
    found
}
