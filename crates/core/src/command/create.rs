//! A session begins.

use std::sync::Arc;

use super::decision::DecisionContext;
use super::reject::Rejection;
use crate::event::{Event, RULES_VERSION, RequestStamp, SessionCreated};
use crate::ids::{Attributes, SessionKey};
use crate::limits::Limits;
use crate::policy::{LimitPolicy, Policy};

/// Begin a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Create {
    /// Whether a first write makes it, and nobody asks for it by itself.
    pub implicit: bool,
    /// A name for people.
    pub title: Box<str>,
    /// The folder that the work is in.
    pub project_path: Box<str>,
    /// The branch that the work is on.
    pub branch: Box<str>,
    /// Why it must be kept; empty when it may go.
    pub hold: Box<str>,
    /// The session that this one is a subagent of.
    pub parent: Option<SessionKey>,
    /// The caller's own notes.
    pub attributes: Attributes,
    /// The resolved policy.
    pub policy: Arc<Policy>,
    /// So that a retry is recognised.
    pub request: Option<RequestStamp>,
}

/// Decides how a session begins; there is none yet to decide upon.
pub fn create(command: Create, context: DecisionContext<'_>) -> Result<Event, Rejection> {
    check_name("title", &command.title, context)?;
    check_name("project_path", &command.project_path, context)?;
    check_name("branch", &command.branch, context)?;
    check_hold(&command.hold)?;
    let own = &command.policy.limits;
    check_attributes(
        "session.attributes",
        &command.attributes,
        context.limits,
        own,
    )?;
    Ok(Event::SessionCreated(SessionCreated {
        rules: RULES_VERSION,
        policy: command.policy,
        implicit: command.implicit,
        title: command.title,
        project_path: command.project_path,
        branch: command.branch,
        hold: command.hold,
        parent: command.parent,
        attributes: command.attributes,
        request: command.request,
    }))
}

/// A title, a path or a branch: rows of lists hold them, so they stay short.
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

/// The most characters of the reason for a hold: a number or a sentence, kept in every row of a list.
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
    if attributes.len() > limits.max_attributes {
        return Err(Rejection::TooLarge {
            field: field.into(),
            limit: limits.max_attributes,
            actual: attributes.len(),
        });
    }
    for (name, value) in attributes {
        if name.is_empty() {
            return Err(Rejection::invalid(
                field,
                "holds an attribute without a name",
            ));
        }
        let actual = name.len() + value.len();
        if actual > limits.max_attribute_bytes {
            return Err(Rejection::TooLarge {
                field: format!("{field}[\"{}\"]", shortened(name)),
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

fn shortened(name: &str) -> &str {
    let end = name.char_indices().nth(64).map_or(name.len(), |(at, _)| at);
    &name[..end]
}
