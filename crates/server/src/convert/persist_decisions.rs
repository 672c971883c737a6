//! `PersistToolResult`: decisions about results that are not appended yet.

use bytes::Bytes;
use palimpsest_core::codec;
use palimpsest_core::command::{CallRef, PersistOutcome};
use palimpsest_core::ids::CallKey;
use palimpsest_core::levels::results::{UnboundResult, Verdict};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Block, ResultContent};
use palimpsest_core::policy::ToolResultRule;
use palimpsest_core::session::{PersistDecision, Session};
use palimpsest_core::view::{Provider, WireBlock};
use palimpsest_proto::context::v1;
use v1::session_event::Event as Out;
use v1::tool_result_content::Content;
use v1::tool_result_rule::Rule;

use super::append_result::call_ref;
use super::blocks_in::result_content;
use super::levels::reference_to;
use super::scalars::call_key;
use super::{FieldError, WithFieldPath};

/// The form of a result and of its replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultForm {
    /// Plain text.
    Text,
    /// Typed blocks.
    Blocks,
    /// Blocks in the provider's JSON.
    Json,
}

/// Validates the reference to a call.
pub fn call_name(call: Option<v1::CallRef>, field: &str) -> Result<CallRef, FieldError> {
    let call = call.ok_or_else(|| FieldError::missing(field))?;
    let key = match call.call_key.as_str() {
        "" => None,
        key => Some(call_key(key, &format!("{field}.call_key"))?),
    };
    Ok(CallRef {
        key,
        id: call.tool_use_id.into(),
    })
}

/// Validates the content of a result.
pub fn offered_result_content(
    content: Option<v1::ToolResultContent>,
    limits: &Limits,
    field: &str,
) -> Result<(ResultContent, ResultForm), FieldError> {
    let content = content.ok_or_else(|| FieldError::missing(field))?;
    let form = match content.content {
        Some(Content::Blocks(_)) => ResultForm::Blocks,
        Some(Content::Json(_)) => ResultForm::Json,
        Some(Content::Text(_)) | None => ResultForm::Text,
    };
    let read = result_content(content).under(field)?;
    let blocks = match &read {
        ResultContent::Blocks(blocks) => blocks.len(),
        ResultContent::Text(_) | ResultContent::None => 0,
    };
    if blocks > limits.max_blocks {
        let what = format!(
            "must have at most {} blocks, has {blocks}",
            limits.max_blocks
        );
        return Err(FieldError::invalid(field, what));
    }
    Ok((read, form))
}

/// Validates the rule for the inline size of a result.
pub fn result_rule(
    rule: Option<v1::ToolResultRule>,
    field: &str,
) -> Result<Option<ToolResultRule>, FieldError> {
    let Some(rule) = rule else {
        return Ok(None);
    };
    match rule.rule {
        None => Err(FieldError::missing(format!("{field}.rule"))),
        Some(Rule::DeclaredChars(chars)) => Ok(Some(ToolResultRule::DeclaredChars(chars))),
        Some(Rule::FixedChars(chars)) => Ok(Some(ToolResultRule::FixedChars(chars))),
        Some(Rule::NeverPersist(true)) => Ok(Some(ToolResultRule::NeverPersist(true))),
        // `false` would be a rule without an effect.
        Some(Rule::NeverPersist(false)) => {
            let path = format!("{field}.never_persist");
            Err(FieldError::invalid(path, "must be true"))
        }
    }
}

/// Returns the reply for a decision. `tool` and `named` are the tool and the call as named in
/// the request.
pub fn persist_response(
    session: &Session,
    told: &PersistOutcome,
    form: ResultForm,
    (tool, named): (&str, &str),
) -> v1::PersistToolResultResponse {
    let call = name(session, told.call, named);
    // An inline result can still have a replacement, such as the text for an empty result.
    let text = match &told.stored {
        Some(kept) => Some(&*kept.replacement),
        None => told.verdict.fixed_replacement(),
    };
    let persisted = |kept: &UnboundResult| persisted(session, kept, call.clone(), told.call, tool);
    let failed = v1::Warning {
        code: v1::WarningCode::StoreFailed.into(),
        // The cause can name hosts and paths of the server, so only its log contains it.
        detail: "The result stays inline, because the blob store did not accept it. The log of the server has the \
                 cause. The append of its message tries to store it again."
            .into(),
        message_id: String::new(),
        call: Some(call.clone()),
    };
    v1::PersistToolResultResponse {
        decision: decision(told.verdict).into(),
        replacement: text.map(|text| replacement(text, form)),
        persisted: told.stored.as_ref().map(persisted),
        warnings: if told.verdict == Verdict::StoreFailed {
            vec![failed]
        } else {
            Vec::new()
        },
        call: Some(call),
        revision: session.revision().get(),
    }
}

/// Returns the event for a decision, or `None` if nothing was stored.
pub(super) fn persisted_event(offer: &PersistDecision, session: &Session) -> Option<Out> {
    let kept = offer.stored.as_ref()?;
    let call = call_ref_of(session, offer);
    Some(Out::ResultsPersisted(v1::ResultsPersisted {
        results: vec![persisted(session, kept, call, offer.call, &offer.tool)],
    }))
}

/// Returns the key and the provider's id of a decision's call.
pub fn call_ref_of(session: &Session, offer: &PersistDecision) -> v1::CallRef {
    name(session, offer.call, &offer.tool_use_id)
}

fn name(session: &Session, call: Option<CallKey>, named: &str) -> v1::CallRef {
    match call {
        Some(call) => call_ref(session, call),
        None => v1::CallRef {
            call_key: String::new(),
            tool_use_id: named.to_owned(),
        },
    }
}

fn persisted(
    session: &Session,
    kept: &UnboundResult,
    name: v1::CallRef,
    call: Option<CallKey>,
    tool: &str,
) -> v1::PersistedResult {
    let call = call.and_then(|call| session.calls().get(call));
    v1::PersistedResult {
        call: Some(name),
        tool_name: call.map_or(tool, |call| &call.name).to_owned(),
        reference: reference_to(session, &kept.file),
        original_bytes: kept.bytes,
        original_tokens: kept.tokens,
        replacement_bytes: kept.replacement.len() as u64,
        replacement_tokens: kept.replacement_tokens,
        sha256: Bytes::copy_from_slice(&kept.sha256),
    }
}

convert_enum! {
    fn decision(Verdict) -> v1::PersistVerdict {
        Persist = Persisted, UnderLimit = InlineUnderLimit, Never = InlineNever, Empty = InlineEmpty,
        Image = InlineImage, Replacement = InlineReplacement, Disabled = InlineDisabled,
        StoreFailed = InlineStoreFailed,
    }
}

fn replacement(text: &str, form: ResultForm) -> v1::ToolResultContent {
    let content = match form {
        ResultForm::Text => Content::Text(text.to_owned()),
        ResultForm::Blocks => Content::Blocks(v1::BlockList {
            blocks: vec![v1::Block {
                block: Some(v1::block::Block::Text(v1::TextBlock {
                    text: text.to_owned(),
                })),
                ..v1::Block::default()
            }],
        }),
        ResultForm::Json => {
            let mut json = Vec::from(*b"[");
            let block = Block::text(text);
            codec::write_block(
                Provider::Anthropic,
                &WireBlock::from_block(&block),
                &mut json,
            );
            json.push(b']');
            Content::Json(json.into())
        }
    };
    v1::ToolResultContent {
        content: Some(content),
    }
}
