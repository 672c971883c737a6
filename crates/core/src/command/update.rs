//! The title or the attributes of a session change.

use super::create::{check_attributes, check_title};
use super::{Context, Decision, Rejection, answered, check_revision};
use crate::event::{Attributes, Event, SessionUpdated};
use crate::ids::Revision;
use crate::session::{RequestStamp, Session};

/// Change title or attributes; what is left out stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Update {
    /// The new title.
    pub title: Option<Box<str>>,
    /// The new attributes, all of them.
    pub attributes: Option<Attributes>,
    /// The revision that the caller decided upon.
    pub expected_revision: Option<Revision>,
    /// So that a retry is recognised.
    pub request: Option<RequestStamp>,
}

impl Update {
    pub(super) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        if let Some(revision) = answered(session, self.request.as_ref(), context)? {
            return Ok(Decision::Answered(revision));
        }
        check_revision(session, self.expected_revision)?;
        if let Some(title) = &self.title {
            check_title(title, context)?;
        }
        if let Some(attributes) = &self.attributes {
            check_attributes("session.attributes", attributes, context)?;
        }
        let about = session.about();
        let title = self.title.filter(|title| *title != about.title);
        let attributes = self.attributes.filter(|new| *new != about.attributes);
        if title.is_none() && attributes.is_none() && self.request.is_none() {
            return Ok(Decision::Events(Vec::new()));
        }
        Ok(Decision::Events(vec![Event::SessionUpdated(
            SessionUpdated {
                title,
                attributes,
                request: self.request,
            },
        )]))
    }
}
