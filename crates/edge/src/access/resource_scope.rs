//! The resource of a call, and the authorization of a principal for it.

use palimpsest_core::ids::{ProjectId, SessionKey};

use super::{Authentication, Right};
use crate::refusal::Refusal;

/// A parsed resource name. The handlers use the same syntax.
#[derive(Debug)]
pub enum ResourceScope {
    /// A session.
    Session(SessionKey),
    /// A project.
    Project(ProjectId),
}

impl ResourceScope {
    /// Parses a resource name. Returns `None` for an invalid name.
    pub fn of(name: &str) -> Option<Self> {
        if let Ok(session) = SessionKey::parse(name) {
            return Some(Self::Session(session));
        }
        let project = ProjectId::new(name.strip_prefix("projects/")?).ok()?;
        Some(Self::Project(project))
    }

    /// Returns the project itself, or the project of the session.
    pub fn project(&self) -> &ProjectId {
        match self {
            Self::Session(session) => &session.project,
            Self::Project(project) => project,
        }
    }

    /// Converts the scope into its project.
    pub fn into_project(self) -> ProjectId {
        match self {
            Self::Session(session) => session.project,
            Self::Project(project) => project,
        }
    }
}

/// Authorizes a call for the project of its resource.
///
/// A project of another tenant gives the same error as a missing resource, so that neither the response nor its
/// timing reveals its existence.
pub fn authorize(
    authentication: &Authentication,
    scope: Option<&ResourceScope>,
) -> Result<(), Refusal> {
    // The handler rejects an invalid name.
    let (Some(right), Some(scope)) = (authentication.right, scope) else {
        return Ok(());
    };
    // Checked before the right: an error about the right would confirm that the project exists.
    if !authentication
        .principal
        .grant
        .projects
        .contains(scope.project())
    {
        return Err(match scope {
            ResourceScope::Session(session) => Refusal::SessionNotFound(session.clone()),
            ResourceScope::Project(project) => Refusal::ProjectNotFound(project.clone()),
        });
    }
    check_right(authentication, right, scope)
}

/// Fails unless the credential has the right. Does not check the project.
pub fn check_right(
    authentication: &Authentication,
    right: Right,
    scope: &ResourceScope,
) -> Result<(), Refusal> {
    if authentication.principal.grant.rights.contains(&right) {
        return Ok(());
    }
    Err(Refusal::Forbidden {
        right,
        project: scope.project().clone(),
    })
}
