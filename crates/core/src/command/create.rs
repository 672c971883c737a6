//! Creates a session.

use std::sync::Arc;

use super::decision::DecisionContext;
use super::reject::Rejection;
use crate::event::{Event, ForkPoint, RULES_VERSION, RequestStamp, SessionCreated};
use crate::ids::{Attributes, SessionKey};
use crate::limits::Limits;
use crate::message::Digest;
use crate::policy::{LimitPolicy, Policy};

/// Creates a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreateSession {
    /// True if the session is created implicitly by the first append.
    pub implicit: bool,
    /// The display title. May be empty.
    pub title: Box<str>,
    /// The project folder. May be empty.
    pub project_path: Box<str>,
    /// The version-control branch. May be empty.
    pub branch: Box<str>,
    /// The reason that prevents deletion. Empty if the session may be deleted.
    pub hold: Box<str>,
    /// The parent session, if this is a subagent session.
    pub parent: Option<SessionKey>,
    /// The origin, if this session is a fork of another one.
    pub forked_from: Option<Box<ForkPoint>>,
    /// The scope in which the session is found by the content of its array. `None` if it is found by its name only.
    pub scope: Option<Digest>,
    /// Name and value pairs that the caller stores with the session.
    pub attributes: Attributes,
    /// The resolved policy.
    pub policy: Arc<Policy>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

/// Decides the creation of a session. Unlike other commands, this one has no session to read.
///
/// # Errors
///
/// Returns an error if a name, the hold or the attributes exceed a limit.
pub fn create_session(
    command: CreateSession,
    context: DecisionContext<'_>,
) -> Result<Event, Rejection> {
    check_name("title", &command.title, context)?;
    check_name("project_path", &command.project_path, context)?;
    check_name("branch", &command.branch, context)?;
    check_hold(&command.hold)?;
    let own = &command.policy.limits;
    check_attributes(
        "session.attributes", &command.attributes, context.limits, own,
    )?;
    Ok(Event::SessionCreated(SessionCreated {
        rules_version: RULES_VERSION,
        policy: command.policy,
        implicit: command.implicit,
        title: command.title,
        project_path: command.project_path,
        branch: command.branch,
        hold: command.hold,
        parent: command.parent,
        forked_from: command.forked_from.map(|origin| *origin),
        scope: command.scope,
        attributes: command.attributes,
        request: command.request,
    }))
}

/// Checks the length of a title, path or branch. Every row of a session list contains these fields.
pub(super) fn check_name(
    field: &str,
    name: &str,
    context: DecisionContext<'_>,
) -> Result<(), Rejection> {
    let limit = context.limits.max_title_bytes;
    if name.len() > limit {
        return Err(Rejection::TooLarge {
            field: format!("session.{field}"),
            limit,
            actual: name.len(),
        });
    }
    Ok(())
}

/// Maximum length of the reason for a hold, in characters. Every row of a session list contains it.
const MAX_HOLD_CHARS: usize = 256;

pub(super) fn check_hold(hold: &str) -> Result<(), Rejection> {
    let chars = hold.chars().count();
    if chars > MAX_HOLD_CHARS {
        let what = format!("must have at most {MAX_HOLD_CHARS} characters, has {chars}");
        return Err(Rejection::invalid("session.hold", what));
    }
    Ok(())
}

pub(super) fn check_attributes(
    field: &str,
    attributes: &Attributes,
    limits: &Limits,
    own: &LimitPolicy,
) -> Result<(), Rejection> {
    // Both the server's limits and the policy's limit on the total size apply.
    let count = (attributes.len(), limits.max_attributes);
    Rejection::at_most(count, "entries", field)?;
    for (name, value) in attributes {
        if name.is_empty() {
            return Err(Rejection::invalid(field, "has an attribute without a name"));
        }
        let actual = name.len() + value.len();
        if actual > limits.max_attribute_bytes {
            return Err(Rejection::TooLarge {
                field: format!("{field}[\"{}\"]", truncated_name(name)),
                limit: limits.max_attribute_bytes,
                actual,
            });
        }
    }
    let sizes = attributes
        .iter()
        .map(|(name, value)| name.len() + value.len());
    let (limit, actual) = (own.max_attributes_bytes as usize, sizes.sum());
    if actual > limit {
        return Err(Rejection::TooLarge {
            field: field.into(),
            limit,
            actual,
        });
    }
    Ok(())
}

fn truncated_name(name: &str) -> &str {
    // The error repeats the name, which can be as long as the whole request. The cut is at a character boundary.
    let end = name.char_indices().nth(64).map_or(name.len(), |(at, _)| at);
    &name[..end]
}
