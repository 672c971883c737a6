//! Spans of level 4 in the form of the API.

use palimpsest_core::event::{SpansCollapsed, SpansStaged};
use palimpsest_core::ids::{Ordinal, SpanKey};
use palimpsest_core::message::Digest;
use palimpsest_core::session::{Session, Span};
use palimpsest_proto::context::v1;
use uuid::Builder;

use super::scalars::export_message_id;

/// Converts the staging of spans.
pub(super) fn staged(event: &SpansStaged, session: &Session) -> v1::SpansStaged {
    v1::SpansStaged {
        spans: event.spans.iter().map(|one| span(one, session)).collect(),
        armed: event.armed,
        pass_tokens: super::saturate_tokens(event.pass_tokens),
    }
}

pub(super) fn collapsed(event: &SpansCollapsed, session: &Session) -> v1::SpansCollapsed {
    let spans = event.placeholders.iter().map(|one| v1::Span {
        summary: one.text.to_string(),
        summary_message_id: summary_message_id(session, one.span.key),
        ..span(&one.span, session)
    });
    v1::SpansCollapsed {
        spans: spans.collect(),
        hidden_paths: event.hidden_paths.iter().map(ToString::to_string).collect(),
    }
}

fn span(span: &Span, session: &Session) -> v1::Span {
    let id = |message: Ordinal| export_message_id(session, message);
    v1::Span {
        collapse_id: span.key.to_string(),
        first_message_id: id(span.first()),
        last_message_id: id(span.last()),
        messages: u32::try_from(span.messages.len()).unwrap_or(u32::MAX),
        summary: span.summary.to_string(),
        risk: f64::from(span.risk.milli()) / 1_000.0,
        freed_tokens: span.freed_tokens,
        summary_message_id: String::new(),
        model: span.model.to_string(),
    }
}

/// Returns the id of a placeholder's message. It is derived from the span, so it is stable.
fn summary_message_id(session: &Session, span: SpanKey) -> String {
    let digest = Digest::of_bytes(format!("{}/{span}", session.key()).as_bytes());
    let mut bytes = [0; 16];
    // A digest has 16 bytes, like a UUID.
    bytes.copy_from_slice(digest.as_bytes());
    Builder::from_custom_bytes(bytes).into_uuid().to_string()
}
