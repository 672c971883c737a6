//! Lists of sessions: filters and rows.

use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::session::SessionInfo;
use palimpsest_proto::context::v1;

use super::filter::known;
use super::scalars::{optional_timestamp, session_key};
use super::{FieldError, SessionListEntry, check_count, check_length, session_state};

/// A session filter. A session must match all conditions.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    parent: Option<SessionKey>,
    main_only: bool,
    states: Vec<v1::SessionState>,
    project_path: String,
    branch: String,
    from: Option<Timestamp>,
    before: Option<Timestamp>,
    text: String,
    attributes: Vec<(String, String)>,
    over_threshold: bool,
}

/// Validates a session filter.
pub fn session_filter(
    filter: Option<v1::SessionFilter>,
    limits: &Limits,
) -> Result<SessionFilter, FieldError> {
    let filter = filter.unwrap_or_default();
    let texts = [
        (&filter.project_path, "filter.project_path"),
        (&filter.branch, "filter.branch"),
        (&filter.text, "filter.text"),
    ];
    // Each row is compared with all values, so their number and size are limited.
    for (text, field) in texts {
        check_length(text, limits.max_title_bytes, field)?;
    }
    check_count(
        filter.attributes.len(),
        limits.max_attributes,
        "filter.attributes",
    )?;
    let attributes = filter.attributes.iter();
    let longest = attributes
        .map(|(name, value)| name.len() + value.len())
        .max();
    if longest.is_some_and(|bytes| bytes > limits.max_attribute_bytes) {
        let what = format!(
            "has an attribute of more than {} bytes",
            limits.max_attribute_bytes
        );
        return Err(FieldError::invalid("filter.attributes", what));
    }
    let states = known(&filter.states, "filter.states")?;
    // The rows of lists do not record compactions, so this filter would never match.
    if states.contains(&v1::SessionState::Compacting) {
        let problem =
            "must not contain SESSION_STATE_COMPACTING, which lists do not record: call GetSession";
        return Err(FieldError::invalid("filter.states", problem));
    }
    let parent = match filter.parent_session.as_str() {
        "" => None,
        name => Some(session_key(name, "filter.parent_session")?),
    };
    Ok(SessionFilter {
        parent,
        states,
        main_only: filter.main_only,
        project_path: filter.project_path,
        branch: filter.branch,
        from: optional_timestamp(filter.updated_from_time, "filter.updated_from_time")?,
        before: optional_timestamp(filter.updated_before_time, "filter.updated_before_time")?,
        // The comparison ignores case. The text is converted once, not for each row.
        text: filter.text.to_lowercase(),
        attributes: filter.attributes.into_iter().collect(),
        over_threshold: filter.over_threshold,
    })
}

impl SessionFilter {
    /// Returns true if a session matches.
    pub fn matches(&self, about: &SessionInfo) -> bool {
        // An empty condition matches all sessions, as an unset string of proto3 is empty.
        let same = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
        let holds = |text: &str| text.to_lowercase().contains(&self.text);
        (self.parent.is_none() || self.parent == about.parent)
            && (self.states.is_empty() || self.states.contains(&session_state(about)))
            && !(self.main_only && about.parent.is_some())
            && (!self.over_threshold || about.totals.is_over_threshold())
            && same(&self.project_path, &about.project_path)
            && same(&self.branch, &about.branch)
            && self.from.is_none_or(|from| about.modified >= from)
            && self.before.is_none_or(|before| about.modified < before)
            && (self.text.is_empty() || holds(&about.title) || holds(&about.first_prompt))
            && self.attributes.iter().all(|(name, value)| {
                let mut named = about.attributes.iter();
                named.any(|(has, is)| **has == **name && **is == **value)
            })
    }
}

impl<'a> SessionListEntry<'a> {
    /// Creates an entry from a stored row. The counts contain only messages and reported tokens.
    pub fn of(key: &'a SessionKey, revision: Revision, about: &'a SessionInfo) -> Self {
        let messages = about.user_messages.saturating_add(about.assistant_messages);
        Self {
            key,
            about,
            revision,
            epoch: about.epoch,
            counts: v1::SessionCounts {
                messages: messages.into(),
                reported_tokens: about.reported_tokens,
                ..v1::SessionCounts::default()
            },
            state: session_state(about),
            last_model: &about.last_model,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_can_never_match_is_rejected() {
        let filter = |state: v1::SessionState| {
            let filter = v1::SessionFilter {
                states: vec![state.into()],
                ..v1::SessionFilter::default()
            };
            session_filter(Some(filter), &Limits::default())
        };
        assert!(filter(v1::SessionState::Idle).is_ok());
        let rejected = filter(v1::SessionState::Compacting).unwrap_err();
        assert!(rejected.to_string().contains("GetSession"), "{rejected}");
    }
}
