//! The prompt for a summary: the messages that leave, and the instruction. All models receive the same prompt.

use std::sync::Arc;

use palimpsest_core::command::cleared_for_summary;
use palimpsest_core::compaction::StartedCompaction;
use palimpsest_core::levels::compaction::summary_input;
use palimpsest_core::message::{Block, MessageKind, Role};
use palimpsest_core::session::Session;
use palimpsest_core::summary::{ExtraInstructions, SYSTEM, standing_instructions, summary_request};
use palimpsest_core::tokens::TokenCounter;

use super::rounds::InputRounds;

/// The prompt for a summary.
#[derive(Debug)]
pub(super) struct SummaryPrompt {
    /// The messages that leave, as text.
    pub(super) rounds: InputRounds,
    /// The instruction at the end of the request.
    pub(super) instruction: String,
    /// The session's estimator.
    counter: TokenCounter,
}

impl SummaryPrompt {
    /// Builds the prompt with the instructions of the policy, the hook and the caller. Returns `None` if the
    /// messages could not be read.
    pub(super) async fn of(started: &StartedCompaction) -> Option<Self> {
        let (session, running) = (Arc::clone(&started.session), started.running.clone());
        // Rendering and counting a whole conversation would block the async runtime.
        let read = tokio::task::spawn_blocking(move || {
            // The start time keeps the input of a repeated request the same.
            let cleared = cleared_for_summary(&session, running.trigger, running.started_at);
            let told = summary_input(&session, &running.leaving, &cleared).ok()?;
            let standing = instructions_for(&session);
            let extra = ExtraInstructions {
                standing: standing.as_deref(),
                hook: running.hooks.instructions.as_deref(),
                custom: running.instructions.as_deref(),
            };
            Some(Self {
                rounds: InputRounds::of(told),
                instruction: summary_request(session.policy().summary.style, running.part, extra),
                counter: session.counter(),
            })
        });
        read.await.ok().flatten()
    }

    /// Returns the tokens of the request without the conversation.
    pub(super) fn overhead(&self) -> u64 {
        let counter = self.counter;
        u64::from(counter.text(SYSTEM)) + u64::from(counter.text(&self.instruction))
    }

    /// Returns the tokens of conversation that fit into a request.
    pub(super) fn max_input_tokens(&self, window: u64, output: u64) -> u64 {
        let free = window.saturating_sub(output + self.overhead());
        // Counts are estimates, so a tenth is kept as a margin.
        free - free / 10
    }
}

/// Returns the instructions for the summary before any hook: the standing ones and those of the request.
pub fn instructions_of(started: &StartedCompaction) -> String {
    let own = started.running.instructions.as_deref().map(str::to_owned);
    let all: Vec<String> = instructions_for(&started.session)
        .into_iter()
        .chain(own)
        .collect();
    all.join("\n\n")
}

/// Returns the standing instructions: those of the policy, otherwise the latest under a heading of their own in
/// visible messages, otherwise those of an instruction file. Assistant messages and summaries are ignored. Tool results
/// contain no instructions.
fn instructions_for(session: &Session) -> Option<String> {
    if let Some(instructions) = &session.policy().summary.instructions {
        return Some(instructions.to_string());
    }
    let entries = session.transcript().entries();
    let visible = entries.filter(|(at, entry)| {
        let from_people = entry.role != Role::Assistant && entry.kind != MessageKind::Summary;
        from_people && session.transcript().is_in_view(*at)
    });
    let files = session.working().state.instruction_files.iter();
    let contents = files.filter_map(|file| file.content.as_deref());
    let mut found = contents.rev().find_map(standing_instructions);
    // Later instructions override earlier ones, so the loop reads all messages.
    for message in visible.filter_map(|(_, entry)| entry.content.as_ref()) {
        for block in &message.blocks {
            // Tool results are left out, because the output of a tool must not steer the summary.
            if let Block::Text { text, .. } = block {
                found = standing_instructions(text).or(found);
            }
        }
    }
    found
}
