//! What a call is about, and whether its caller may do it there.

use palimpsest_core::ids::{ProjectId, SessionKey};

use super::{Authentication, Right};
use crate::errors::ServiceError;

/// What a resource name stands for, read exactly as the handlers read it.
#[derive(Debug)]
pub enum ResourceScope {
    /// A session.
    Session(SessionKey),
    /// A project.
    Project(ProjectId),
}

impl ResourceScope {
    /// Reads a resource name. One that is none leads nowhere.
    pub fn of(name: &str) -> Option<Self> {
        if let Ok(session) = SessionKey::parse(name) {
            return Some(Self::Session(session));
        }
        let project = ProjectId::new(name.strip_prefix("projects/")?).ok()?;
        Some(Self::Project(project))
    }

    /// The project that it is, or is in.
    pub fn project(&self) -> &ProjectId {
        match self {
            Self::Session(session) => &session.project,
            Self::Project(project) => project,
        }
    }

    /// The same, owned.
    pub fn into_project(self) -> ProjectId {
        match self {
            Self::Session(session) => session.project,
            Self::Project(project) => project,
        }
    }
}

/// Refuses what a credential does not allow. Another tenant's project is refused in the words that are used for what
/// does not exist: neither the answer nor its time tells which of the two it is.
pub fn authorize(pass: &Authentication, place: Option<&ResourceScope>) -> Result<(), ServiceError> {
    // A name that is none is refused by its handler.
    let (Some(right), Some(place)) = (pass.right, place) else {
        return Ok(());
    };
    if !pass.caller.grant.projects.contain(place.project()) {
        return Err(match place {
            ResourceScope::Session(session) => ServiceError::SessionNotFound {
                session: session.clone(),
            },
            ResourceScope::Project(project) => ServiceError::ProjectNotFound {
                project: project.clone(),
            },
        });
    }
    allowed(pass, right, place)
}

/// Refuses what takes a right that the credential does not have.
pub fn allowed(
    pass: &Authentication,
    right: Right,
    place: &ResourceScope,
) -> Result<(), ServiceError> {
    if pass.caller.grant.rights.contains(&right) {
        return Ok(());
    }
    Err(ServiceError::PermissionDenied {
        right,
        project: Some(place.project().clone()),
    })
}
