//! The extractive summary of the messages that a compaction replaces. It extends session memory or an earlier summary.

use std::borrow::Cow;

use palimpsest_facts::memory::before_latest;
use palimpsest_facts::{
    Facts, Redact, UserInputs, build_summary, parse_earlier_summary, redact_message, user_text,
};

use crate::event::Strategy;
use crate::ids::Ordinal;
use crate::memory::{Memory, SectionKind};
use crate::message::{Block, Message};
use crate::session::Session;
use crate::summary::SummaryDocument;

/// Maximum tokens of user inputs in a summary.
const MAX_INPUT_TOKENS: u32 = 4_000;

/// Builds the summary of messages that leave the view. `inputs` contains all user inputs of the session, including
/// those before earlier compactions, in order. With `redact`, secrets are removed; `inputs` must be redacted already.
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
        // Messages that session memory covers are described already.
    }
    let transcript = session.transcript();
    let new = leaving.iter().filter(|at| Some(**at) > covers);
    let new = new.filter_map(|at| transcript.content(*at));
    // Quotations are cut to length, which could split a secret. Secrets are therefore removed first.
    let clean = new.map(|message| match redact {
        Some(redact) => Cow::Owned(redact_message(message, redact)),
        None => Cow::Borrowed(&**message),
    });
    let clean: Vec<Cow<'_, Message>> = clean.collect();
    let facts = Facts::of(clean.iter().map(|message| -> &Message { message }));
    let said: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let inputs = UserInputs {
        all: &said,
        is_last_visible: session
            .latest_request()
            .is_some_and(|at| leaving.binary_search(&at).is_err()),
        max_tokens: MAX_INPUT_TOKENS,
    };
    build_summary(session.policy().summary.style, &memory, &facts, inputs)
}

/// Returns the text of session memory in the form in which it replaces messages.
pub fn stand_in(session: &Session, text: &str) -> String {
    let mut memory = Memory::parse(text);
    let latest = session.latest_request();
    let latest = latest.and_then(|at| session.transcript().content(at));
    if let Some(words) = latest.and_then(|message| user_text(message)) {
        let state = before_latest(memory.body(SectionKind::State), &words);
        memory.set(SectionKind::State, &state);
    }
    memory.without_guidance()
}

/// Returns session memory and the last message that it covers. Without session memory, the latest visible summary of
/// an earlier compaction is used.
fn previous(session: &Session) -> (Memory, Option<Ordinal>) {
    if let Some(version) = session.memory().written() {
        return (Memory::parse(&version.text), version.covers);
    }
    let boundaries = session.compactions().boundaries.iter().rev();
    // A compaction without a summary left only a note.
    let summaries = boundaries.filter(|boundary| boundary.strategy != Strategy::DropOldest);
    let mut summaries = summaries.filter_map(|boundary| boundary.summary);
    let text = summaries.find_map(|at| {
        if !session.transcript().is_visible(at) {
            return None;
        }
        let message = session.transcript().content(at)?;
        match message.blocks.first() {
            Some(Block::Text { text, .. }) => Some(parse_earlier_summary(text)),
            _ => None,
        }
    });
    (text.unwrap_or_else(Memory::template), None)
}
