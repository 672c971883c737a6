//! The summary of what a compaction replaces, from a session: what leaves, upon what earlier notes say.

use std::borrow::Cow;

use palimpsest_facts::memory::before_latest;
use palimpsest_facts::{Facts, Inputs, Redact, earlier, redacted, summary, user_words};

use crate::event::Strategy;
use crate::ids::Ordinal;
use crate::memory::{Memory, SectionKind};
use crate::message::{Block, Message};
use crate::session::Session;
use crate::summary::SummaryDocument;

/// What the user's own messages may have in a summary.
const MAX_INPUT_TOKENS: u32 = 4_000;

/// The summary of messages that leave a session's view. `inputs` is everything that people said in it,
/// across earlier compactions, from the first to the last, without secrets where `redact` takes them out.
pub fn summary_of(
    session: &Session,
    leaving: &[Ordinal],
    inputs: &[String],
    redact: Option<Redact>,
) -> SummaryDocument {
    let (mut memory, covers) = previous(session);
    if let Some(redact) = redact {
        let text = memory.render();
        let clean = redact(&text);
        if clean != text {
            memory = Memory::parse(&clean);
        }
    }
    let transcript = session.transcript();
    let new = leaving.iter().filter(|at| Some(**at) > covers);
    let new = new.filter_map(|at| transcript.content(*at));
    // What is quoted is cut, so secrets leave before.
    let clean = new.map(|message| match redact {
        Some(redact) => Cow::Owned(redacted(message, redact)),
        None => Cow::Borrowed(&**message),
    });
    let clean: Vec<Cow<'_, Message>> = clean.collect();
    let facts = Facts::of(clean.iter().map(|message| -> &Message { message }));
    let said: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let inputs = Inputs {
        said: &said,
        last_follows: session
            .latest_request()
            .is_some_and(|at| leaving.binary_search(&at).is_err()),
        max_tokens: MAX_INPUT_TOKENS,
    };
    summary(session.policy().summary.style, &memory, &facts, inputs)
}

/// The running summary, told to whoever reads it in the place of the messages that it covers.
pub fn stand_in(session: &Session, text: &str) -> String {
    let mut memory = Memory::parse(text);
    let latest = session.latest_request();
    let latest = latest.and_then(|at| session.transcript().content(at));
    if let Some(words) = latest.and_then(|message| user_words(message)) {
        let state = before_latest(memory.body(SectionKind::State), &words);
        memory.set(SectionKind::State, &state);
    }
    memory.told()
}

/// What the running summary says, and the last message that it covers. Where there is none, an earlier
/// summary in the view says what came before.
fn previous(session: &Session) -> (Memory, Option<Ordinal>) {
    if let Some(version) = session.memory().written() {
        return (Memory::parse(&version.text), version.covers);
    }
    let boundaries = session.compactions().boundaries.iter().rev();
    // What was only dropped has no summary, but a note.
    let summaries = boundaries.filter(|boundary| boundary.strategy != Strategy::DropOldest);
    let mut summaries = summaries.filter_map(|boundary| boundary.summary);
    let text = summaries.find_map(|at| {
        if !session.transcript().is_visible(at) {
            return None;
        }
        let message = session.transcript().content(at)?;
        match message.blocks.first() {
            Some(Block::Text { text, .. }) => Some(earlier(text)),
            _ => None,
        }
    });
    (text.unwrap_or_else(Memory::template), None)
}
