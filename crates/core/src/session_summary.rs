//! The extractive summary of the messages that a compaction replaces, and its use in the summary of a model. It extends
//! session memory or an earlier summary.

use std::borrow::Cow;

use palimpsest_facts::names::omitted_names;
use palimpsest_facts::{
    Facts, Redact, SummaryWriter, UserInputs, build_summary, parse_earlier_summary, redact_message,
};

use crate::event::Strategy;
use crate::ids::Ordinal;
use crate::memory::MemoryContent;
use crate::message::{Block, Message};
use crate::session::Session;
use crate::summary::{
    SummaryDocument, SummaryPart, SummaryRejection, SummarySection, parse_summary,
};

/// Maximum tokens of user inputs in a summary.
const MAX_INPUT_TOKENS: u32 = 4_000;

/// Returns the user inputs that the summary of `part` contains, in order. For the whole conversation these are all
/// inputs of the session, including those before earlier compactions. Inputs that a rewind removed are left out.
pub fn summary_inputs(session: &Session, part: SummaryPart, leaving: &[Ordinal]) -> Vec<Ordinal> {
    let transcript = session.transcript();
    let leaves = |at: &Ordinal| leaving.binary_search(at).is_ok();
    let latest = session.latest_request();
    // The latest request is named if the reader finds it after the summary.
    let follows =
        |at: &Ordinal| Some(*at) == latest && leaving.first().is_none_or(|first| first < at);
    let inputs = session.turns().starts().iter().copied();
    let inputs = inputs.filter(|at| {
        let entry = transcript.get(*at);
        entry.is_some_and(|entry| entry.visibility.is_in_effect())
    });
    let inputs = inputs.filter(|at| match part {
        SummaryPart::Whole => true,
        // Earlier compactions removed the other inputs, which the earlier summary in this part contains.
        SummaryPart::Beginning => leaves(at) || follows(at) || !transcript.is_in_view(*at),
        SummaryPart::End => leaves(at) || follows(at),
    });
    inputs.collect()
}

/// Builds the summary of messages that leave the view. `inputs` contains the texts of [`summary_inputs`]. With
/// `redact`, secrets are removed; `inputs` must be redacted already.
pub fn summary_of(
    session: &Session,
    part: SummaryPart,
    leaving: &[Ordinal],
    inputs: &[String],
    redact: Option<Redact>,
) -> SummaryDocument {
    let (mut memory, covers) = previous_memory(session, part, leaving);
    if let Some(redact) = redact {
        memory = memory.redacted(redact);
    }
    let transcript = session.transcript();
    // Messages that session memory covers are described already.
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
    let latest = summary_inputs(session, part, leaving).pop();
    let inputs = UserInputs {
        all: &said,
        is_last_visible: latest.is_some_and(|at| {
            session.latest_request() == Some(at) && leaving.binary_search(&at).is_err()
        }),
        max_tokens: MAX_INPUT_TOKENS,
    };
    build_summary(session.policy().summary.style, &memory, &facts, inputs)
}

/// Validates a model's answer and returns the summary in it, with the names that it leaves out.
///
/// # Errors
///
/// Returns the reason if the answer is no summary. See [`parse_summary`].
pub fn accept_summary(
    answer: &str,
    truncated: bool,
    extracted: &SummaryDocument,
) -> Result<String, SummaryRejection> {
    let mut accepted = parse_summary(answer, truncated, extracted)?;
    let files = SummarySection::files_of(extracted.style());
    let sources = [
        extracted.body(files).unwrap_or_default(),
        &extracted.render(),
    ];
    // An exact name cannot be derived from prose, so names that the answer lacks are added to the section of files.
    let Some(names) = omitted_names(&sources, &accepted.text) else {
        return Ok(accepted.text);
    };
    let body = accepted.document.body(files).unwrap_or_default();
    let body = format!("{body}\n\n{names}");
    accepted.document.set(files, &body);
    Ok(accepted.document.render())
}

/// Returns session memory and the last message that it covers. Without session memory, the latest visible summary of
/// an earlier compaction is used. Session memory also describes the messages around a part, so the summary of a part
/// extends only an earlier summary that leaves.
fn previous_memory(
    session: &Session,
    part: SummaryPart,
    leaving: &[Ordinal],
) -> (MemoryContent, Option<Ordinal>) {
    let is_whole = part == SummaryPart::Whole;
    if is_whole && let Some(version) = session.memory().latest_written() {
        return (version.content.clone(), version.covered_through);
    }
    let boundaries = session.compactions().boundaries.iter().rev();
    // A compaction without a summary left only a note.
    let summaries = boundaries.filter(|boundary| boundary.strategy != Strategy::DropOldest);
    let mut summaries =
        summaries.filter_map(|boundary| Some((boundary.summary?, boundary.strategy)));
    let content = summaries.find_map(|(at, strategy)| {
        if !session.transcript().is_in_view(at) || !(is_whole || leaving.binary_search(&at).is_ok())
        {
            return None;
        }
        let message = session.transcript().content(at)?;
        match message.blocks.first() {
            Some(Block::Text { text, .. }) => {
                Some(parse_earlier_summary(text, writer_of(strategy)))
            }
            _ => None,
        }
    });
    (content.unwrap_or_default(), None)
}

fn writer_of(strategy: Strategy) -> SummaryWriter {
    match strategy {
        Strategy::Extractive => SummaryWriter::Service,
        // A summary from session memory has other sections, for which the writer makes no difference.
        _ => SummaryWriter::Other,
    }
}
