//! The boundary between the contract's types (proto) and the domain's types.
//!
//! Requests are validated once, and errors name the path of the field. Conversions for replies cannot fail.
//! `errors` maps errors to gRPC status codes, and `services` finds the session of a request.

#[macro_use]
mod enums;

mod append_result;
mod blocks_in;
mod blocks_out;
mod breakpoints;
mod budget_warnings;
mod cache_ledger;
mod compaction;
mod detect;
mod digest;
mod events;
mod filter;
mod hooks;
mod levels;
mod memory;
mod message_input;
mod messages_in;
mod own_fields;
mod page;
mod pattern;
mod persist_decisions;
mod policy;
mod recovery;
mod repairs;
mod scalars;
mod session_in;
mod session_list;
mod session_out;
mod spans;
mod target;
#[cfg(test)]
mod tests;
mod tokens;
mod transcript;
mod view_blocks;
mod whole_array;
mod working_state;

pub use append_result::{
    append_result, call_ref, keyed_call, not_sendable, open_calls, tool_call, warnings,
};
pub use blocks_out::view_message;
pub use breakpoints::{BreakpointOptions, breakpoint_options, cache_breakpoints};
pub use budget_warnings::{CompactionResult, budget_warnings};
pub use cache_ledger::cache_ledger;
pub use compaction::{compaction, failure_reason, running_compaction, turns};
pub use digest::{CanonicalRequest, body_digest, request_stamp};
pub use events::{event_kind, event_kinds, events, rewind_effect, rewound};
pub use filter::message_filter;
pub use hooks::{
    hook_kind, post_compact, post_compact_decision, pre_compact, pre_compact_decision,
    session_start, session_start_decision,
};
pub use levels::{
    cache_edit, edited_tokens, level_effect, persisted_result, reference_of, reference_to,
    restored, skip_reason, skipped, snip_rejection_reason, snipped, stage, trigger_from_proto,
};
pub use memory::MemoryView;
pub use message_input::message_input;
pub use messages_in::{InputMessage, last_format, messages, usage};
pub use page::{
    EntryPosition, InvalidPageToken, PageCursor, page_size, page_token, page_token_text,
};
pub use pattern::{PatternError, search_pattern, text_pattern};
pub use persist_decisions::{
    ResultForm, call_name, call_ref_of, offered_result_content, persist_response, result_rule,
};
pub use policy::{PolicyChange, changed_paths, in_overrides, invalid_overrides, overlay, policy};
pub use recovery::{model_tool, recovery_report, returned};
pub use repairs::{repair_warnings, repairs};
pub use scalars::{
    MessageForm, call_key, duration_up_to, export_kind, export_role, export_timestamp, form,
    message_id, optional_timestamp, payload_format, project, session_key, timestamp,
};
pub use session_in::{ChangedSession, NewSession, create, fork, recovery_message, update};
pub use session_list::{SessionFilter, session_filter};
pub use session_out::{SessionListEntry, listed_session, session, session_state, totals};
pub use target::{
    BodyOptions, MAX_MODEL_BYTES, export_target, prompt_prefix, target_override, with_body_options,
};
pub use tokens::{breakdown, budget, token_report};
pub use transcript::{
    BlockStatuses, ContentForm, export_usage, json_messages, transcript_message, visibility,
};
pub use view_blocks::{ViewReader, hidden_ranges};
pub use whole_array::{body_prefix, last_response, whole_array};
pub use working_state::{working_change, working_state};

use std::fmt;

use palimpsest_core::json::JsonError;

/// An invalid field of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field, such as `messages[3].metadata.parent_id`.
    pub path: String,
    /// The problem with the field.
    pub problem: FieldProblem,
}

/// The problem with a field. Problems never contain the field's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldProblem {
    /// The field is required and missing.
    Missing,
    /// The field is invalid. The text completes a sentence that starts with the path.
    Invalid(String),
    /// A message or a payload exceeds the size limit.
    TooLarge {
        /// The limit in bytes.
        limit: usize,
        /// The given size in bytes.
        actual: usize,
    },
    /// The JSON cannot be parsed or does not match its format.
    Payload {
        /// The path inside the JSON. Empty for the whole document.
        path: String,
        /// The error at this path.
        error: JsonError,
    },
}

impl FieldError {
    /// Creates the error for a missing field.
    pub fn missing(path: impl Into<String>) -> Self {
        Self::new(path, FieldProblem::Missing)
    }

    /// Creates the error for an invalid field. `what` completes a sentence that starts with the path.
    pub fn invalid(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(path, FieldProblem::Invalid(what.into()))
    }

    fn new(path: impl Into<String>, problem: FieldProblem) -> Self {
        Self {
            path: path.into(),
            problem,
        }
    }

    /// Returns the same error with `field` as a prefix of its path.
    #[must_use]
    pub fn under(mut self, field: &str) -> Self {
        self.path = match self.path.as_str() {
            "" => field.to_owned(),
            // An index follows its list without a dot.
            rest if rest.starts_with('[') => format!("{field}{rest}"),
            rest => format!("{field}.{rest}"),
        };
        self
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match &self.problem {
            FieldProblem::Missing => write!(f, "{path} must be set"),
            FieldProblem::Invalid(what) => write!(f, "{path} {what}"),
            FieldProblem::TooLarge { limit, actual } => write!(
                f,
                "{path} has {actual} bytes, and the limit is {limit} bytes"
            ),
            FieldProblem::Payload { path: at, error } if at.is_empty() => {
                write!(f, "{path} {error}")
            }
            FieldProblem::Payload { path: at, error } => write!(f, "{path}: {at} {error}"),
        }
    }
}

impl std::error::Error for FieldError {}

/// Adds the path of the enclosing field to an error, from the inside out.
trait WithFieldPath<T> {
    fn under(self, field: &str) -> Result<T, FieldError>;
    fn at(self, field: &str, index: usize) -> Result<T, FieldError>;
}

impl<T> WithFieldPath<T> for Result<T, FieldError> {
    fn under(self, field: &str) -> Self {
        self.map_err(|error| error.under(field))
    }

    fn at(self, field: &str, index: usize) -> Self {
        self.map_err(|error| error.under(&format!("{field}[{index}]")))
    }
}

/// Rejects a list with more entries than a limit, before any entry is converted.
pub fn check_count(entries: usize, limit: usize, field: &str) -> Result<(), FieldError> {
    if entries > limit {
        let what = format!("must have at most {limit} entries, has {entries}");
        return Err(FieldError::invalid(field, what));
    }
    Ok(())
}

/// Rejects a text with more bytes than a limit.
fn check_length<'a>(text: &'a str, limit: usize, field: &str) -> Result<&'a str, FieldError> {
    if text.len() > limit {
        let actual = text.len();
        return Err(FieldError::new(
            field,
            FieldProblem::TooLarge { limit, actual },
        ));
    }
    Ok(text)
}

/// Rejects an empty text.
fn required<'a>(text: &'a str, field: &str) -> Result<&'a str, FieldError> {
    if text.is_empty() {
        Err(FieldError::missing(field))
    } else {
        Ok(text)
    }
}

/// Converts a token count to 32 bits, as in the contract. Larger values are clamped.
pub fn saturate_tokens(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
