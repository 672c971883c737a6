//! Compactions that OpenAI's Responses API defines, and that the gateway answers itself: `POST /v1/responses/compact`, and
//! a request for a response whose last item is a `compaction_trigger`.
//!
//! The answer contains the summary as an item of the service's own format. No provider can read such an item, so each
//! later request gets the summary in its place, as a message of the user.

mod answer;
mod input;
mod restore;
mod trigger;

use http::Method;

pub(crate) use self::answer::answer;
pub(crate) use self::input::InputItems;
pub(crate) use self::restore::{has_summary, with_summaries};
pub(crate) use self::trigger::{has_trigger, without_trigger};

/// The form in which a client requests a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompactionForm {
    /// `POST /v1/responses/compact`. The answer contains the compacted conversation.
    Endpoint,
    /// A trigger at the end of a request for a response. The answer is a response that consists of the summary.
    Trigger,
}

/// Returns true for a request that requests a compaction by its path.
pub(crate) fn is_endpoint(method: &Method, path: &str) -> bool {
    *method == Method::POST && resource(path) == "/responses/compact"
}

/// Returns true for a request that can contain a compaction item and is no request to a model.
pub(crate) fn has_input(method: &Method, path: &str) -> bool {
    is_endpoint(method, path)
        || *method == Method::POST && resource(path) == "/responses/input_tokens"
}

fn resource(path: &str) -> &str {
    path.strip_prefix("/v1").unwrap_or(path)
}
