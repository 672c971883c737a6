//! The rollout format of Codex: JSON lines with items of OpenAI's Responses API.
//!
//! A resume sends the items after the last compaction, and before them the history that the compaction records. If the
//! view shows a message in another form or not at all, the file has one compaction, which records the view up to that
//! message.

#[cfg(test)]
mod tests;

use palimpsest_core::codec;
use palimpsest_core::ids::{Ordinal, Timestamp};
use palimpsest_core::message::{Block, Message, Role};
use palimpsest_core::session::{ContentNotLoaded, Session, Visibility};
use palimpsest_core::view::{
    DropReason, Piece, PieceForm, Provider, TargetOverride, WireBlock, extend_layout, wire,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::line::line_with;
use super::messages::messages_to_continue;
use super::original::OriginalMessage;
use crate::import::{EXPORTER, is_machine_text};
use crate::utc;

/// The writer of one session.
#[derive(Debug)]
pub struct CodexWriter {
    meta: Value,
    compaction: Option<RecordedView>,
    /// The time of the previous line.
    at: Timestamp,
}

/// The beginning of a view, as a compaction records it.
#[derive(Debug)]
struct RecordedView {
    /// The last message that the record replaces.
    through: Ordinal,
    /// The record as JSON.
    json: Vec<u8>,
}

impl CodexWriter {
    /// Creates the writer for a part of a session's messages.
    pub fn new(session: &Session) -> Self {
        let about = session.info();
        let mut meta = json!({
            "id": rollout_id(session).to_string(),
            "timestamp": utc::format(about.created),
            "cwd": about.project_path,
            "originator": EXPORTER,
            "cli_version": env!("CARGO_PKG_VERSION"),
            "source": "cli",
        });
        if !about.branch.is_empty() {
            meta["git"] = json!({"branch": about.branch});
        }
        Self {
            meta,
            compaction: None,
            at: about.created,
        }
    }

    /// Creates the writer for all messages of a session.
    ///
    /// # Errors
    ///
    /// Fails if the content of a message of the view is not loaded.
    pub fn of(session: &Session) -> Result<Self, ContentNotLoaded> {
        Ok(Self {
            compaction: RecordedView::of(session)?,
            ..Self::new(session)
        })
    }

    /// Returns the first line.
    pub fn begin(&self) -> Vec<u8> {
        self.line("session_meta", self.meta.to_string().as_bytes())
    }

    /// Returns the lines of a message.
    pub fn message(&mut self, original: &OriginalMessage) -> Vec<u8> {
        self.at = original.message.at.unwrap_or(self.at);
        let mut out = Vec::new();
        // A compaction contains the messages that the service made. A provider can reject a message without content.
        let is_blank = original.message.blocks.iter().all(Block::is_blank);
        // The compaction follows each response of this kind. A file of a part of the messages has no compaction.
        let is_superseded = original.is_superseded_response() && self.compaction.is_some();
        if !original.entry.kind.is_framing() && !is_blank && !is_superseded {
            for item in messages_to_continue(&original.message, Provider::OpenAiResponses) {
                out.extend(self.line("response_item", &item));
            }
            if let Some(event) = shown_event(&original.message) {
                out.extend(self.line("event_msg", event.to_string().as_bytes()));
            }
        }
        let is_end = |view: &RecordedView| original.ordinal >= view.through;
        if self.compaction.as_ref().is_some_and(is_end) {
            out.extend(self.end());
        }
        out
    }

    /// Returns the lines after all messages.
    pub fn end(&mut self) -> Vec<u8> {
        let view = self.compaction.take();
        view.map(|view| self.line("compacted", &view.json))
            .unwrap_or_default()
    }

    fn line(&self, kind: &str, payload: &[u8]) -> Vec<u8> {
        let head = json!({"timestamp": utc::format(self.at), "type": kind});
        line_with(&head, "payload", payload)
    }
}

impl RecordedView {
    /// Returns `None` if the view shows all messages in their own form.
    fn of(session: &Session) -> Result<Option<Self>, ContentNotLoaded> {
        let mut pieces = session.sealed().pieces().to_vec();
        pieces.extend(extend_layout(session, false, None)?.pieces);
        let changed = pieces
            .iter()
            .filter(|piece| is_changed(piece.form) || is_repaired(session, piece));
        let changed = changed.map(|piece| piece.message);
        let entries = session.transcript().entries();
        let hidden = entries.filter(|(_, entry)| {
            let visibility = entry.visibility;
            entry.kind.is_framing()
                || !matches!(visibility, Visibility::Visible | Visibility::Unconfirmed)
        });
        let Some(mut through) = changed.chain(hidden.map(|(at, _)| at)).max() else {
            return Ok(None);
        };
        // The view can show a message after later ones. The record then extends to these.
        let mut shown = 0;
        while let Some(last) = pieces.iter().rposition(|piece| piece.message <= through)
            && shown <= last
        {
            shown = last + 1;
            let messages = pieces[..shown].iter().map(|piece| piece.message);
            through = messages.max().unwrap_or(through).max(through);
        }
        let texts = service_texts(session, &pieces[..shown])?;
        // The object stays open for the items, which are written in their own bytes.
        let mut json = json!({"message": texts}).to_string().into_bytes();
        json.pop();
        json.extend_from_slice(b",\"replacement_history\":[");
        for (index, item) in items(session, &pieces[..shown])?.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            json.extend_from_slice(item);
        }
        json.extend_from_slice(b"]}");
        Ok(Some(Self { through, json }))
    }
}

/// Returns the id of the rollout: that of the session, if it is a UUID, or else one that depends on its name.
fn rollout_id(session: &Session) -> Uuid {
    let name = session.key();
    let named = Uuid::try_parse(&name.session.to_string());
    named.unwrap_or_else(|_| {
        // The id depends on the name alone, so each export of a session has the same one.
        let digest = Sha256::digest(name.to_string().as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        uuid::Builder::from_custom_bytes(bytes).into_uuid()
    })
}

/// Returns the items of a part of the view. The ids of turns are left out, because the agent offers no tool to snip them.
fn items(session: &Session, pieces: &[Piece]) -> Result<Vec<Vec<u8>>, ContentNotLoaded> {
    let provider = Provider::OpenAiResponses;
    let (target, _) = session.target_of(&TargetOverride {
        provider: Some(provider),
        ..TargetOverride::default()
    });
    let untagged = pieces.iter().filter_map(|piece| {
        let form = match piece.form {
            PieceForm::Tag(_) | PieceForm::Nudge => return None,
            PieceForm::Input { interjected, .. } => PieceForm::Input {
                turn: None,
                interjected,
            },
            form => form,
        };
        Some(Piece { form, ..*piece })
    });
    let untagged: Vec<Piece> = untagged.collect();
    let messages = wire(session, &untagged, &target)?;
    let item = messages.iter().map(|message| {
        let mut item = Vec::new();
        codec::write(provider, message, &mut item);
        item
    });
    Ok(item.collect())
}

/// Returns the summaries and placeholders of a part of the view, which an import of the file takes for the summary.
fn service_texts(session: &Session, pieces: &[Piece]) -> Result<String, ContentNotLoaded> {
    let of_service = pieces.iter().filter(|piece| {
        let entry = session.transcript().get(piece.message);
        matches!(piece.form, PieceForm::Placeholder(_))
            || piece.form.is_shown() && entry.is_some_and(|entry| entry.kind.is_framing())
    });
    let of_service: Vec<Piece> = of_service.copied().collect();
    let (target, _) = session.target_of(&TargetOverride::default());
    let mut texts: Vec<String> = Vec::new();
    for message in wire(session, &of_service, &target)? {
        for block in message.blocks {
            if let WireBlock::Text { text, .. } = block {
                texts.push(text.into_owned());
            }
        }
    }
    Ok(texts.join("\n\n"))
}

/// Returns true if the view shows something else than a block of the transcript.
const fn is_changed(form: PieceForm) -> bool {
    match form {
        PieceForm::SnippedCall(_)
        | PieceForm::ResultWithoutMedia(_)
        | PieceForm::Stored(_)
        | PieceForm::Cleared(_)
        | PieceForm::SnippedResult(_)
        | PieceForm::Text(_)
        | PieceForm::Marker(_)
        | PieceForm::Summary
        | PieceForm::Placeholder(_)
        | PieceForm::Interrupted(_)
        | PieceForm::Opening
        | PieceForm::Gap
        | PieceForm::Input {
            interjected: true, ..
        } => true,
        PieceForm::Dropped(reason) => !matches!(
            reason,
            DropReason::Blank | DropReason::TrailingThinking | DropReason::UnsignedThinking
        ),
        PieceForm::Block
        | PieceForm::Input { .. }
        | PieceForm::Call(_)
        | PieceForm::Result(_)
        | PieceForm::Tag(_)
        | PieceForm::Nudge
        | PieceForm::Operator => false,
    }
}

/// Returns true if the view shows a call or a result with another id or of another kind, because a provider would
/// reject the own one.
fn is_repaired(session: &Session, piece: &Piece) -> bool {
    let key = piece.form.call_key();
    let Some(key) = key.or_else(|| piece.form.answered_call_key()) else {
        return false;
    };
    let Some(call) = session.calls().get(key) else {
        return false;
    };
    let entry = session.transcript().get(piece.message);
    let message = entry.and_then(|entry| entry.content.as_ref());
    let block = message.and_then(|message| message.blocks.get(usize::from(piece.block)));
    call.uses_service_id
        || matches!(block, Some(Block::ToolResult(result)) if result.kind() != call.kind)
}

/// Returns the event by which Codex shows a message to the user.
fn shown_event(message: &Message) -> Option<Value> {
    let texts = message.blocks.iter().filter_map(|block| match block {
        Block::Text { text, .. } if !block.is_blank() => Some(&**text),
        _ => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n\n");
    match message.role {
        _ if text.is_empty() || message.machine_generated || is_machine_text(&text) => None,
        Role::User => Some(json!({"type": "user_message", "message": text, "images": []})),
        Role::Assistant => Some(json!({"type": "agent_message", "message": text})),
        Role::System | Role::Developer => None,
    }
}
