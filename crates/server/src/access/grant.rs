//! What a credential allows: projects, and what may be done in them.

use std::collections::BTreeSet;
use std::fmt;

use palimpsest_core::ids::{ProjectId, Timestamp};
use tokio_util::sync::CancellationToken;

/// What may be done. No right holds another: who may do everything has all four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// Read sessions.
    Read,
    /// Append, and all that an agent does in a turn.
    Write,
    /// Change what the view shows of what was appended.
    Compact,
    /// What cannot be taken back.
    Admin,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Compact, Self::Admin];

    /// Its name, in key files, claims and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Compact => "compact",
            Self::Admin => "admin",
        }
    }

    /// The right of a name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.name() == name)
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Projects {
    /// Every one, also those that come later.
    All,
    /// These.
    Of(BTreeSet<ProjectId>),
}

impl Projects {
    /// What stands for every project.
    pub const ALL: &'static str = "*";

    /// Reads the names of projects. An error says which is none.
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

    /// Whether it is every one.
    pub fn are_all(&self) -> bool {
        *self == Self::All
    }

    /// Whether a project is among them.
    pub fn contain(&self, project: &ProjectId) -> bool {
        match self {
            Self::All => true,
            Self::Of(projects) => projects.contains(project),
        }
    }
}

/// Projects, and what may be done in each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Which projects.
    pub projects: Projects,
    /// What may be done.
    pub rights: BTreeSet<Right>,
}

/// Who calls, as far as a credential says.
#[derive(Debug, Clone)]
pub struct Principal {
    /// A name for the log: a key's id, never the key.
    pub name: Box<str>,
    /// What it allows.
    pub grant: Grant,
    /// When it ends.
    pub expires: Option<Timestamp>,
    /// Cancelled when it is revoked: a stream that goes on for ever ends then.
    pub revoked: CancellationToken,
}

impl Principal {
    /// The tenant that it counts for: its projects, or itself where it has all of them.
    pub fn tenant(&self) -> String {
        match &self.grant.projects {
            Projects::All => self.name.to_string(),
            Projects::Of(projects) => {
                let names: Vec<_> = projects.iter().map(ProjectId::as_str).collect();
                names.join(" ")
            }
        }
    }

    /// Whether its time is over.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}
