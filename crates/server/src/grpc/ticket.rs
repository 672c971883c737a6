//! What a call carries from the edge to its handler, and keeps until its last byte is sent.
//!
//! The edge knows who calls and which method; only the handler knows which project it is about. The
//! ticket is where the two meet.

use std::sync::{Arc, OnceLock};

use palimpsest_core::ids::{ProjectId, SessionKey};

use super::span::CallSpan;

/// One call's. Every request carries one among its extensions.
#[derive(Debug, Clone, Default)]
pub struct Ticket(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    project: OnceLock<ProjectId>,
    span: Option<CallSpan>,
}

impl Ticket {
    /// The ticket of a call with this span.
    pub(super) fn new(span: CallSpan) -> Self {
        let project = OnceLock::new();
        let span = Some(span);
        Self(Arc::new(Inner { project, span }))
    }

    /// Says which session the call is about. It stays on the span: as a label of a metric it would be one for
    /// each session.
    pub fn about(&self, session: &SessionKey) {
        if let Some(span) = &self.0.span {
            span.about(session);
        }
    }

    /// Says which project the call is about. A call is about one.
    pub fn enter(&self, project: ProjectId) {
        let _ = self.0.project.set(project);
    }

    /// Which project the call is about, once its handler has said so.
    pub fn project(&self) -> Option<&ProjectId> {
        self.0.project.get()
    }
}
