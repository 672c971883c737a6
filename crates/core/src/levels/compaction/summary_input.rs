//! Renders the leaving messages as plain text for a summarizer, round by round. The text contains no executable calls,
//! and tool output is marked as such.

use std::collections::BTreeSet;

use crate::ids::{CallKey, Ordinal};
use crate::message::Role;
use crate::session::{ContentNotLoaded, Session};
use crate::tokens::TokenCounter;
use crate::view::{Piece, PieceForm, Target, WireBlock, WireMessage, WireResult, WireRole, wire};

/// One message as plain text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryInputMessage {
    /// The role: the model, or the user, which includes tools.
    pub role: Role,
    /// The text of the message. Never empty.
    pub text: String,
    /// True if the message contains tool results for the previous message.
    pub answers: bool,
    /// The estimated tokens of the text.
    pub tokens: u32,
    /// The transcript messages that the text represents.
    pub messages: Vec<Ordinal>,
}

/// Renders those of some messages that the view shows, in the order and form of the view. Attachments are skipped, and
/// a marker replaces the results of the `cleared` calls.
pub fn summary_input(
    session: &Session,
    messages: &[Ordinal],
    cleared: &BTreeSet<CallKey>,
) -> Result<Vec<SummaryInputMessage>, ContentNotLoaded> {
    let asked: BTreeSet<Ordinal> = messages.iter().copied().collect();
    let target = Target {
        // With thinking off, all calls and results are rendered and thinking is not.
        thinking: false,
        // A summarizer reads operator messages as texts of the user, like the rest of the input.
        system_messages: false,
        ..session.last_served().target.clone()
    };
    // Attachments are created again after the compaction. An earlier summary is part of the input.
    let is_attachment = |piece: &Piece| {
        let entry = session.transcript().get(piece.message);
        entry.is_some_and(|entry| entry.kind.is_framing()) && piece.form != PieceForm::Summary
    };
    let pieces: Vec<Piece> = session
        .sealed()
        .pieces()
        .iter()
        .filter(|piece| asked.contains(&piece.message) && !is_attachment(piece))
        .filter_map(without_annotations)
        .map(|piece| without_result(piece, cleared))
        .collect();
    let messages = wire(session, &pieces, &target)?;
    let sources = sources(&pieces, &messages);
    let told = messages.iter().zip(sources);
    Ok(told
        .filter_map(|(message, from)| render_message(session.counter(), message, from))
        .collect())
}

/// Removes turn ids, reminders and wrappers of interjected input. They address the model at work, and a summary that
/// repeats them would name content that is gone.
fn without_annotations(piece: &Piece) -> Option<Piece> {
    let form = match piece.form {
        PieceForm::Tag(_) | PieceForm::Nudge => return None,
        PieceForm::Input { .. } => PieceForm::Input {
            turn: None,
            interjected: false,
        },
        form => form,
    };
    Some(Piece { form, ..*piece })
}

/// Replaces the result of a cleared call by its marker.
fn without_result(piece: Piece, cleared: &BTreeSet<CallKey>) -> Piece {
    let form = match piece.form {
        PieceForm::Result(call) | PieceForm::ResultWithoutMedia(call)
            if cleared.contains(&call) =>
        {
            PieceForm::Cleared(call)
        }
        form => form,
    };
    Piece { form, ..piece }
}

/// Returns the transcript messages of each wire message.
fn sources(pieces: &[Piece], messages: &[WireMessage<'_>]) -> Vec<Vec<Ordinal>> {
    let mut sources: Vec<Vec<Ordinal>> = vec![Vec::new(); messages.len()];
    let (mut at, mut seen) = (0, BTreeSet::new());
    for piece in pieces {
        // A wire message records only its first transcript message. Those up to the next first one belong to it too.
        let begins = |next: &WireMessage<'_>| next.first == piece.message;
        if messages.get(at + 1).is_some_and(begins) {
            at += 1;
        }
        if let Some(source) = sources.get_mut(at)
            && seen.insert(piece.message)
        {
            source.push(piece.message);
        }
    }
    sources
}

fn render_message(
    counter: TokenCounter,
    message: &WireMessage<'_>,
    messages: Vec<Ordinal>,
) -> Option<SummaryInputMessage> {
    let role = match message.role {
        WireRole::Assistant => Role::Assistant,
        _ => Role::User,
    };
    let mut text = String::new();
    for block in &message.blocks {
        if !text.is_empty() {
            text.push('\n');
        }
        render_block(block, &mut text);
    }
    let text = text.trim().to_owned();
    (!text.is_empty()).then(|| SummaryInputMessage {
        role,
        answers: message
            .blocks
            .iter()
            .any(|block| matches!(block, WireBlock::Result { .. })),
        tokens: counter.text(&text),
        text,
        messages,
    })
}

fn render_block(block: &WireBlock<'_>, out: &mut String) {
    match block {
        WireBlock::Text { text, .. } => out.push_str(text),
        // Media cannot be summarized as text, so only their presence is mentioned.
        WireBlock::Media { media, .. } => out.push_str(match media.kind {
            crate::message::MediaKind::Image => "[image]",
            crate::message::MediaKind::Document => "[document]",
        }),
        WireBlock::Call { name, input, .. } => {
            out.push_str("[called ");
            out.push_str(name);
            out.push_str(" with ");
            out.push_str(input.as_str());
            out.push(']');
        }
        WireBlock::Result {
            content, is_error, ..
        } => {
            out.push_str(if *is_error == Some(true) {
                "[the tool failed] "
            } else {
                "[the tool returned] "
            });
            match content {
                WireResult::None => {}
                WireResult::Text(text) => out.push_str(text),
                WireResult::Blocks(blocks) => {
                    for block in blocks {
                        render_block(block, out);
                        out.push('\n');
                    }
                }
            }
        }
        WireBlock::Thinking { .. } => {}
        WireBlock::Opaque(json) => out.push_str(json.as_str()),
    }
}
