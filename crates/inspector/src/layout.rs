//! The frame of every page: head, navigation and content.

use maud::{DOCTYPE, Markup, html};

use crate::pages::Viewer;
use crate::routes::{ROOT, SessionName, SessionPage, project_path};
use crate::text::{plain, shown};

/// The frame of a page.
pub(crate) struct Layout<'a> {
    title: &'a str,
    viewer: Viewer,
    project: Option<&'a str>,
    /// The session of the page, and the part of it that the page shows.
    session: Option<(&'a SessionName, SessionPage)>,
    /// The path of a stream that reports changes. The page is then kept up to date.
    changes: Option<String>,
    /// The seconds after which the page is read again.
    every: Option<u32>,
}

const PARTS: [(SessionPage, &str); 5] = [
    (SessionPage::Overview, "Requests"),
    (SessionPage::View, "View"),
    (SessionPage::Transcript, "Transcript"),
    (SessionPage::Search, "Search"),
    (SessionPage::Memory, "Memory"),
];

impl<'a> Layout<'a> {
    /// Creates the frame of a page with a title.
    pub(crate) const fn new(title: &'a str, viewer: Viewer) -> Self {
        Self {
            title,
            viewer,
            project: None,
            session: None,
            changes: None,
            every: None,
        }
    }

    /// Adds the project of the page to the path.
    pub(crate) fn in_project(self, project: &'a str) -> Self {
        Self {
            project: Some(project),
            ..self
        }
    }

    /// Adds the session of the page, of which it shows a part, to the path.
    pub(crate) fn in_session(self, name: &'a SessionName, part: SessionPage) -> Self {
        Self {
            session: Some((name, part)),
            ..self.in_project(&name.project)
        }
    }

    /// Keeps a page of a session up to date.
    pub(crate) fn live(self, name: &SessionName) -> Self {
        Self {
            changes: Some(name.path(SessionPage::Changes)),
            ..self
        }
    }

    /// Reads the page again at an interval.
    pub(crate) fn every(self, seconds: u32) -> Self {
        Self {
            every: Some(seconds),
            ..self
        }
    }

    /// Returns the page with a content.
    pub(crate) fn page(&self, content: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (plain(self.title)) " · Palimpsest" }
                    link rel="stylesheet" href={ (ROOT) "/style.css" };
                    link rel="icon" type="image/svg+xml" href={ (ROOT) "/icon.svg" };
                    script src={ (ROOT) "/script.js" } defer {}
                }
                body data-changes=[self.changes.as_deref()] data-every=[self.every] {
                    a.skip href="#content" { "Skip to the content" }
                    header {
                        nav aria-label="Path" {
                            ol.path {
                                li { a href=(ROOT) { "Palimpsest" } }
                                @if let Some(project) = self.project {
                                    li { a href=(project_path(project)) { (shown(project)) } }
                                }
                                @if let Some((name, _)) = self.session {
                                    li { a href=(name.path(SessionPage::Overview)) { (shown(&name.session)) } }
                                }
                            }
                        }
                        @if self.changes.is_some() || self.every.is_some() {
                            span #state role="status" {}
                        }
                        @if self.viewer.is_signed_in {
                            form method="post" action={ (ROOT) "/sign-out" } {
                                button.quiet type="submit" { "Sign out" }
                            }
                        }
                    }
                    @if let Some((name, here)) = self.session {
                        nav.parts aria-label="Parts of the session" {
                            @for (page, label) in PARTS {
                                a href=(name.path(page)) aria-current=[(page == here).then_some("page")] { (label) }
                            }
                        }
                    }
                    main #content {
                        h1 { (shown(self.title)) }
                        (content)
                    }
                }
            }
        }
    }
}
