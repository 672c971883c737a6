//! What a call carries from the edge to its handler, and keeps until its last byte is sent.
//!
//! The edge knows who calls and which method; only the handler knows which project it is about. The
//! ticket is where the two meet.

use std::sync::{Arc, OnceLock};

use palimpsest_core::ids::ProjectId;

use crate::access::Pass;

/// One call's. Every request carries one among its extensions.
#[derive(Debug, Clone, Default)]
pub struct Ticket(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    project: OnceLock<ProjectId>,
    pass: OnceLock<Pass>,
}

impl Ticket {
    /// Says which project the call is about. A call is about one.
    pub fn enter(&self, project: ProjectId) {
        let _ = self.0.project.set(project);
    }

    /// Which project the call is about, once its handler has said so.
    pub fn project(&self) -> Option<&ProjectId> {
        self.0.project.get()
    }

    /// Says who calls.
    pub fn identify(&self, pass: Pass) {
        let _ = self.0.pass.set(pass);
    }

    /// Who calls, where callers have to say so.
    pub fn pass(&self) -> Option<&Pass> {
        self.0.pass.get()
    }
}
