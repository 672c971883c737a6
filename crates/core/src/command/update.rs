//! Changes the metadata or the policy of a session.

use std::sync::Arc;

use super::create::{check_attributes, check_hold, check_name};
use super::decision::{Decided, DecisionContext};
use super::reject::Rejection;
use crate::event::{Event, PolicyChanged, RequestStamp, SessionUpdated};
use crate::ids::{Attributes, Revision};
use crate::policy::Overlay;
use crate::session::Session;

/// Changes metadata or policy. Fields that are `None` stay unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpdateSession {
    /// The new title.
    pub title: Option<Box<str>>,
    /// The new project folder.
    pub project_path: Option<Box<str>>,
    /// The new branch.
    pub branch: Option<Box<str>>,
    /// The new reason that prevents deletion. An empty text removes the hold.
    pub hold: Option<Box<str>>,
    /// The complete new attributes.
    pub attributes: Option<Attributes>,
    /// Policy fields that override the current ones.
    pub policy: Option<Overlay>,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

impl UpdateSession {
    pub(super) fn decide(
        self,
        session: &Session,
        context: DecisionContext<'_>,
    ) -> Result<Decided, Rejection> {
        let names = [
            ("title", &self.title),
            ("project_path", &self.project_path),
            ("branch", &self.branch),
        ];
        for (field, name) in names {
            check_name(field, name.as_deref().unwrap_or_default(), context)?;
        }
        check_hold(self.hold.as_deref().unwrap_or_default())?;
        if let Some(attributes) = &self.attributes {
            let own = &session.policy().limits;
            check_attributes("session.attributes", attributes, context.limits, own)?;
        }
        // Values that equal the current ones are removed, so that an update without effect writes no event.
        let about = session.info();
        let new = |name: Option<Box<str>>, old: &str| name.filter(|name| **name != *old);
        let event = SessionUpdated {
            title: new(self.title, &about.title),
            project_path: new(self.project_path, &about.project_path),
            branch: new(self.branch, &about.branch),
            hold: new(self.hold, &about.hold),
            attributes: self.attributes.filter(|new| *new != about.attributes),
            request: self.request,
        };
        let mut events = Vec::new();
        if event != SessionUpdated::default() {
            events.push(Event::SessionUpdated(event));
        }
        // The policy has an event of its own, because that event is view-changing.
        if let Some(overlay) = self.policy {
            let policy = overlay.apply_to(session.policy())?;
            if policy != *session.policy() {
                events.push(Event::PolicyChanged(PolicyChanged {
                    policy: Arc::new(policy),
                }));
            }
        }
        Ok(Decided::events(events))
    }
}
