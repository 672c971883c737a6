//! The grant of a credential: a set of projects and the rights in them.

use std::collections::BTreeSet;
use std::fmt;

use palimpsest_core::ids::{ProjectId, Timestamp};
use tokio_util::sync::CancellationToken;

/// A permission for a group of rpcs. Rights do not imply each other, so full access needs all four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// Reading sessions.
    Read,
    /// Appending messages, and all other calls of an agent's turn.
    Write,
    /// Changing the view of appended messages.
    Compact,
    /// Irreversible operations and access to the complete store.
    Admin,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Compact, Self::Admin];

    /// Returns the name of the right in key files, claims and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Compact => "compact",
            Self::Admin => "admin",
        }
    }

    /// Returns the right with the given name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.name() == name)
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectSet {
    /// All projects, including future ones.
    All,
    /// The listed projects.
    Of(BTreeSet<ProjectId>),
}

impl ProjectSet {
    /// The name that represents all projects.
    pub const ALL: &'static str = "*";

    /// Parses project names. [`Self::ALL`] among them selects all projects.
    ///
    /// Fails if a name is invalid or if the list is empty. The error contains the invalid name.
    pub fn read<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut projects = BTreeSet::new();
        for name in names {
            if name == Self::ALL {
                return Ok(Self::All);
            }
            let project = ProjectId::new(name).map_err(|error| format!("{name:?} {error}"))?;
            projects.insert(project);
        }
        if projects.is_empty() {
            return Err("must name a project, or \"*\" for every one".to_owned());
        }
        Ok(Self::Of(projects))
    }

    /// Returns true for [`Self::All`].
    pub fn is_all(&self) -> bool {
        *self == Self::All
    }

    /// Returns true if the set contains the project.
    pub fn contains(&self, project: &ProjectId) -> bool {
        match self {
            Self::All => true,
            Self::Of(projects) => projects.contains(project),
        }
    }
}

/// A set of projects with the rights that apply to each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The projects.
    pub projects: ProjectSet,
    /// The rights in these projects.
    pub rights: BTreeSet<Right>,
}

/// The authenticated caller.
#[derive(Debug, Clone)]
pub struct Principal {
    /// The name for the log: the id of a key, never the key, or the subject of a token.
    pub name: Box<str>,
    /// The grant of the credential.
    pub grant: Grant,
    /// The expiry of the credential. `None` means never.
    pub expires: Option<Timestamp>,
    /// Cancelled when the credential is revoked, which ends the principal's endless streams.
    pub revoked: CancellationToken,
}

impl Principal {
    /// Returns the tenant for fair shares: the principal's projects, or its name if it has access to all projects.
    pub fn tenant(&self) -> String {
        match &self.grant.projects {
            ProjectSet::All => self.name.to_string(),
            ProjectSet::Of(projects) => {
                // The set is ordered, so all credentials for the same projects have the same tenant.
                let names: Vec<_> = projects.iter().map(ProjectId::as_str).collect();
                names.join(" ")
            }
        }
    }

    /// Returns true if the credential has expired at `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}
