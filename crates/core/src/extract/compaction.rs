//! The summary of what a compaction replaces, from a session: what leaves, upon what earlier notes say.

use super::facts::Facts;
use super::summary::summary;
use crate::ids::Ordinal;
use crate::memory::Memory;
use crate::message::{Block, Message};
use crate::session::Session;
use crate::summary::Document;

/// What the user's own messages may have in a summary.
const MAX_INPUT_TOKENS: u32 = 4_000;

/// The summary of messages that leave a session's view. `inputs` is everything that people said in it,
/// across earlier compactions, from the first to the last.
pub fn summary_of(session: &Session, leaving: &[Ordinal], inputs: &[String]) -> Document {
    let (memory, covers) = previous(session);
    let transcript = session.transcript();
    let new = leaving.iter().filter(|at| Some(**at) > covers);
    let new = new.filter_map(|at| transcript.content(*at));
    let facts = Facts::of(new.map(|message| -> &Message { message }));
    let inputs = inputs.iter().map(String::as_str);
    let style = session.policy().summary.style;
    summary(style, &memory, &facts, inputs, MAX_INPUT_TOKENS)
}

/// What the running summary says, and the last message that it covers. Where there is none, an earlier
/// summary in the view says what came before.
fn previous(session: &Session) -> (Memory, Option<Ordinal>) {
    if let Some(version) = session.notes().written() {
        return (Memory::parse(&version.text), version.covers);
    }
    let boundaries = session.compactions().boundaries.iter().rev();
    let mut summaries = boundaries.filter_map(|boundary| boundary.summary);
    let text = summaries.find_map(|at| {
        let message = session.transcript().content(at)?;
        match message.blocks.first() {
            Some(Block::Text { text, .. }) => Some(Memory::parse(text)),
            _ => None,
        }
    });
    (text.unwrap_or_else(Memory::template), None)
}
