//! The sessions that an MCP client reads: all of a project, or one.

use percent_encoding::percent_decode_str;
use tonic::Status;

/// The path of the API. A project and a session can follow.
pub(crate) const PATH: &str = "/mcp";
/// The project of sessions that are named by their id alone.
const DEFAULT_PROJECT: &str = "default";
/// The id whose tools are listed if no session is fixed. `ListTools` then returns the tools of the project's policy,
/// because the session does not exist.
const NO_SESSION: &str = "mcp-without-a-session";

/// A project, and the session that all tools read, if it is fixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    project: String,
    /// The full name of the fixed session.
    session: Option<String>,
}

impl Scope {
    /// Creates the scope of a project, in which each call names its session.
    pub fn project(project: impl Into<String>) -> Self {
        Self {
            project: project.into(),
            session: None,
        }
    }

    /// Creates the scope of one session, by its full name.
    pub fn session(project: impl Into<String>, session: impl Into<String>) -> Self {
        Self {
            project: project.into(),
            session: Some(session.into()),
        }
    }

    /// Returns the scope that a path names. `None` for a path of something else.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let rest = path.strip_prefix(PATH)?.trim_end_matches('/');
        // The rest begins with a slash, so the first part is empty. `/mcpx` has no parts either, but a rest.
        let parts: Vec<&str> = rest.split('/').skip(1).collect();
        match parts[..] {
            [] if rest.is_empty() => Some(Self::project(DEFAULT_PROJECT)),
            ["projects", project] => Some(Self::project(segment(project)?)),
            ["projects", project, "sessions", session] => {
                let (project, session) = (segment(project)?, segment(session)?);
                let session = format!("projects/{project}/sessions/{session}");
                Some(Self::session(project, session))
            }
            _ => None,
        }
    }

    /// Returns the resource name of the project.
    pub(crate) fn parent(&self) -> String {
        format!("projects/{}", self.project)
    }

    /// Returns the full name of the fixed session.
    pub(crate) fn fixed(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Returns the name of the session whose tools are listed.
    pub(crate) fn listed(&self) -> String {
        self.session
            .clone()
            .unwrap_or_else(|| self.full_name(NO_SESSION))
    }

    /// Returns the full name of a session from its id or full name.
    pub(crate) fn full_name(&self, session: &str) -> String {
        if session.starts_with("projects/") {
            session.to_owned()
        } else {
            format!("projects/{}/sessions/{session}", self.project)
        }
    }
}

/// Decodes a part of a path. A slash inside of it would name another resource.
fn segment(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    (!text.is_empty() && !text.contains('/')).then(|| text.into_owned())
}

/// Returns the rejection of a path that names nothing to read.
pub(crate) fn no_such_path() -> Status {
    Status::not_found(
        "the path names nothing: use /mcp, /mcp/projects/{project} or /mcp/projects/{project}/sessions/{session}",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_project_or_a_session() {
        let one = Scope::session("p", "projects/p/sessions/s.1");
        for (path, expected) in [
            ("/mcp", Some(Scope::project("default"))),
            ("/mcp/", Some(Scope::project("default"))),
            ("/mcp/projects/p", Some(Scope::project("p"))),
            ("/mcp/projects/p/sessions/s.1", Some(one.clone())),
            ("/mcp/projects/%70/sessions/s%2E1/", Some(one)),
            ("/mcp/projects/p/sessions/a%2Fb", None),
            ("/mcp/projects", None),
            ("/mcp/projects//sessions/s", None),
            ("/mcp/projects/p/sessions/s/more", None),
            ("/mcpx", None),
            ("/mcp//", Some(Scope::project("default"))),
        ] {
            assert_eq!(Scope::of_path(path), expected, "{path}");
        }
    }

    #[test]
    fn a_session_is_named_by_its_id_or_its_full_name() {
        let scope = Scope::project("p");
        assert_eq!(scope.full_name("s"), "projects/p/sessions/s");
        assert_eq!(
            scope.full_name("projects/q/sessions/s"),
            "projects/q/sessions/s"
        );
    }
}
