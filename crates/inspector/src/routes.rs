//! The paths of the pages.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// The path of the first page, and the beginning of all others.
pub(crate) const ROOT: &str = "/inspector";

/// The characters of an id that are escaped in a path.
const ID: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// A page or another answer of the inspector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// All projects.
    Projects,
    /// The sessions of a project.
    Sessions(String),
    /// A part of a session.
    Session(SessionName, SessionPage),
    SignIn,
    SignOut,
    Style,
    Script,
    Icon,
}

/// A part of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionPage {
    /// The requests and events.
    Overview,
    /// The view at a revision.
    View,
    /// The difference between the views of two revisions.
    Difference,
    /// The transcript.
    Transcript,
    Search,
    Memory,
    /// The reasons why a message is not in the view.
    Removal,
    /// A dry run of an undo, and the undo.
    Undo,
    /// A stream with a line for each change.
    Changes,
}

impl SessionPage {
    const ALL: [(Self, &'static str); 9] = [
        (Self::Overview, ""),
        (Self::View, "/view"),
        (Self::Difference, "/difference"),
        (Self::Transcript, "/transcript"),
        (Self::Search, "/search"),
        (Self::Memory, "/memory"),
        (Self::Removal, "/removal"),
        (Self::Undo, "/undo"),
        (Self::Changes, "/changes"),
    ];

    fn path(self) -> &'static str {
        let found = Self::ALL.iter().find(|(page, _)| *page == self);
        found.map_or("", |(_, path)| path)
    }
}

/// The name of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionName {
    pub(crate) project: String,
    pub(crate) session: String,
}

impl SessionName {
    /// Reads a resource name.
    pub(crate) fn of_resource(name: &str) -> Option<Self> {
        let (project, session) = name.strip_prefix("projects/")?.split_once("/sessions/")?;
        Some(Self {
            project: project.to_owned(),
            session: session.to_owned(),
        })
    }

    /// Returns the resource name.
    pub(crate) fn resource(&self) -> String {
        format!("projects/{}/sessions/{}", self.project, self.session)
    }

    /// Returns the path of a page.
    pub(crate) fn path(&self, page: SessionPage) -> String {
        format!(
            "{}/sessions/{}{}",
            project_path(&self.project),
            utf8_percent_encode(&self.session, ID),
            page.path()
        )
    }
}

/// Returns the path of the page of a session. `None` if the text is no resource name of a session.
pub fn session_path(resource: &str) -> Option<String> {
    SessionName::of_resource(resource).map(|name| name.path(SessionPage::Overview))
}

/// Returns the path of the page of a project.
pub(crate) fn project_path(project: &str) -> String {
    format!("{ROOT}/projects/{}", utf8_percent_encode(project, ID))
}

/// Returns true if a path belongs to the inspector.
pub(crate) fn is_own(path: &str) -> bool {
    path.strip_prefix(ROOT)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Finds the route of a path.
pub(crate) fn find(path: &str) -> Option<Route> {
    let rest = path.strip_prefix(ROOT)?;
    match rest {
        "" | "/" => return Some(Route::Projects),
        "/sign-in" => return Some(Route::SignIn),
        "/sign-out" => return Some(Route::SignOut),
        "/style.css" => return Some(Route::Style),
        "/script.js" => return Some(Route::Script),
        "/icon.svg" => return Some(Route::Icon),
        _ => {}
    }
    // The parts of `p/sessions/s/view`. The last one keeps further slashes, so `view/x` matches no page.
    let mut parts = rest.strip_prefix("/projects/")?.splitn(4, '/');
    let project = id(parts.next()?)?;
    match parts.next() {
        None => return Some(Route::Sessions(project)),
        Some("sessions") => {}
        Some(_) => return None,
    }
    let session = id(parts.next()?)?;
    let page = parts.next();
    let is_of = |path: &str| path.strip_prefix('/') == page || (path.is_empty() && page.is_none());
    let (page, _) = SessionPage::ALL.iter().find(|(_, path)| is_of(path))?;
    Some(Route::Session(SessionName { project, session }, *page))
}

fn id(text: &str) -> Option<String> {
    let id = percent_decode_str(text).decode_utf8().ok()?;
    // A slash inside of an id would name another resource.
    (!id.is_empty() && !id.contains('/')).then(|| id.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_path() {
        let name = SessionName {
            // Both ids have characters that a path must escape.
            project: "p 1".to_owned(),
            session: "s?".to_owned(),
        };
        for (page, _) in SessionPage::ALL {
            let path = name.path(page);
            assert_eq!(
                find(&path),
                Some(Route::Session(name.clone(), page)),
                "{path}"
            );
        }
        assert_eq!(
            find(&project_path("p 1")),
            Some(Route::Sessions("p 1".to_owned()))
        );
        assert_eq!(find("/inspector"), Some(Route::Projects));
    }

    #[test]
    fn other_paths_have_no_page() {
        for path in [
            "/inspectors",
            "/inspector/x",
            "/inspector/projects/",
            "/inspector/projects/p/x",
            "/inspector/projects/p/sessions/s/x",
            "/inspector/projects/p%2Fq",
        ] {
            assert_eq!(find(path), None, "{path}");
        }
        assert!(!is_own("/inspectors"));
        assert!(is_own("/inspector/x"));
    }
}
