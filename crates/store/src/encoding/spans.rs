//! Encoding of spans (level 4).

use palimpsest_core::event::{SpansCollapsed, SpansStaged};
use palimpsest_core::ids::{CallKey, Ordinal, Revision, SpanKey};
use palimpsest_core::policy::Risk;
use palimpsest_core::session::{Placeholder, Span, Spans};

use super::error::DecodeError;
use super::levels::{calls, ordinals, read_trigger, write_trigger};
use super::stamp::{read_stamp, write_stamp};
use super::v1;
use super::view::{read_change, write_change};

fn write_span(span: &Span) -> v1::Span {
    v1::Span {
        key: span.key.get(),
        messages: ordinals(&span.messages),
        summary: span.summary.to_string(),
        risk_milli: span.risk.milli().into(),
        freed: span.freed,
    }
}

fn read_span(stored: v1::Span) -> Result<Span, DecodeError> {
    let risk = u16::try_from(stored.risk_milli);
    if stored.messages.is_empty() {
        return Err(DecodeError::Damaged("a span without messages"));
    }
    Ok(Span {
        key: SpanKey::new(stored.key),
        messages: stored.messages.into_iter().map(Ordinal::new).collect(),
        summary: stored.summary.into(),
        risk: Risk::from_milli(risk.map_err(|_| DecodeError::Damaged("a risk over all"))?),
        freed: stored.freed,
    })
}

fn write_placeholder(placeholder: &Placeholder) -> v1::Placeholder {
    v1::Placeholder {
        span: Some(write_span(&placeholder.span)),
        text: placeholder.text.to_string(),
        tokens: placeholder.tokens,
    }
}

fn read_placeholder(stored: v1::Placeholder) -> Result<Placeholder, DecodeError> {
    Ok(Placeholder {
        span: read_span(stored.span.unwrap_or_default())?,
        text: stored.text.into(),
        tokens: stored.tokens,
    })
}

fn all<S, T>(
    stored: Vec<S>,
    read: impl Fn(S) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    stored.into_iter().map(read).collect()
}

pub(super) fn write_staged(event: &SpansStaged) -> v1::SpansStaged {
    v1::SpansStaged {
        spans: event.spans.iter().map(write_span).collect(),
        armed: event.armed,
        pass_tokens: event.pass_tokens,
    }
}

pub(super) fn read_staged(stored: v1::SpansStaged) -> Result<SpansStaged, DecodeError> {
    Ok(SpansStaged {
        spans: all(stored.spans, read_span)?,
        armed: stored.armed,
        pass_tokens: stored.pass_tokens,
    })
}

pub(super) fn write_collapsed(event: &SpansCollapsed) -> v1::SpansCollapsed {
    v1::SpansCollapsed {
        asked: write_trigger(event.trigger).into(),
        placeholders: event.placeholders.iter().map(write_placeholder).collect(),
        messages: ordinals(&event.messages),
        gone: calls(&event.gone),
        before_tokens: event.before_tokens,
        freed_tokens: event.freed_tokens,
        change: Some(write_change(&event.change)),
        request: event.request.as_ref().map(write_stamp),
    }
}

pub(super) fn read_collapsed(stored: v1::SpansCollapsed) -> Result<SpansCollapsed, DecodeError> {
    Ok(SpansCollapsed {
        trigger: read_trigger(stored.asked()),
        placeholders: all(stored.placeholders, read_placeholder)?,
        messages: stored.messages.into_iter().map(Ordinal::new).collect(),
        gone: stored.gone.into_iter().map(CallKey::new).collect(),
        before_tokens: stored.before_tokens,
        freed_tokens: stored.freed_tokens,
        change: read_change(stored.change)?,
        request: read_stamp(stored.request)?,
    })
}

pub(super) fn write_spans(spans: &Spans) -> v1::Spans {
    let placeholders = spans.placeholders();
    v1::Spans {
        staged: spans.staged().iter().map(write_span).collect(),
        armed: spans.armed(),
        pass_tokens: spans.pass_tokens(),
        folded_at: placeholders.map(|(at, _)| at.get()).collect(),
        placeholders: spans
            .placeholders()
            .map(|(_, one)| write_placeholder(one))
            .collect(),
        next: spans.next().get(),
    }
}

pub(super) fn read_spans(stored: Option<v1::Spans>) -> Result<Spans, DecodeError> {
    let stored = stored.unwrap_or_default();
    if stored.folded_at.len() != stored.placeholders.len() {
        return Err(DecodeError::Damaged("a list of placeholders is cut"));
    }
    let at = stored.folded_at.into_iter().map(Revision::new);
    Ok(Spans::restore(
        all(stored.staged, read_span)?,
        stored.armed,
        stored.pass_tokens,
        at.zip(all(stored.placeholders, read_placeholder)?)
            .collect(),
        stored.next,
    ))
}
