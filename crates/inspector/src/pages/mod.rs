//! The pages. Each file makes one page from the replies of calls.

pub(crate) mod difference;
pub(crate) mod memory;
pub(crate) mod projects;
pub(crate) mod removal;
pub(crate) mod search;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod sign_in;
pub(crate) mod transcript;
pub(crate) mod undo;
pub(crate) mod view;

mod blocks;
mod links;
mod policy;

use http::Response;
use maud::html;
use palimpsest_proto::context::v1::Visibility;
use tonic::body::Body;
use url::form_urlencoded;

use crate::error::PageError;
use crate::layout::Layout;
use crate::response;
use crate::routes::{self, Route, SessionPage};

/// The person who looks at a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Viewer {
    /// True if the person can sign out.
    pub(crate) is_signed_in: bool,
}

/// The parameters of a request, or the fields of a form.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn read(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes());
        Self(pairs.into_owned().collect())
    }

    /// Returns a parameter. An empty one counts as missing.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(one, _)| one == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// Returns a parameter that is a number. `None` if it is missing.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, PageError> {
        let number = self.get(name).map(str::parse).transpose();
        number.map_err(|_| PageError::Input("A parameter of the address must be a whole number."))
    }
}

/// Returns a query string with parameters.
pub(crate) fn query(parameters: &[(&str, &str)]) -> String {
    // Text from the first byte on counts as the query, so the serializer writes no `&` after the `?`.
    let mut query = form_urlencoded::Serializer::for_suffix(String::from("?"), 1);
    query.extend_pairs(parameters);
    query.finish()
}

/// Returns the reason why a message is not in the view.
const fn why_hidden(reason: Visibility) -> &'static str {
    match reason {
        Visibility::Compacted => "replaced by the summary of a compaction",
        Visibility::Collapsed => "replaced by a placeholder",
        Visibility::Snipped => "snipped",
        Visibility::Rewound => "removed by a rewind",
        Visibility::ReEmission => "repetitions of earlier messages",
        Visibility::TranscriptOnly => "for the transcript only",
        Visibility::Withdrawn => "withdrawn by an undo",
        Visibility::Unconfirmed => "responses that the caller has not sent back yet",
        Visibility::Visible | Visibility::Unspecified => "not sent yet",
    }
}

/// Returns the page for a request that failed. `here` is the address of the request.
pub(crate) fn failed(error: &PageError, here: &str, viewer: Viewer) -> Response<Body> {
    if error.needs_sign_in() {
        // Without a key, the person has not tried to sign in, so the form has no error.
        let problem = viewer.is_signed_in.then(|| error.message());
        return response::page(error.status(), sign_in::page(here, problem));
    }
    // The navigation of the session stays, so that the person can go on.
    let route = routes::find(here.split('?').next().unwrap_or_default());
    let mut layout = Layout::new("This did not work", viewer);
    layout = match &route {
        Some(Route::Session(name, page)) => layout.in_session(name, *page),
        Some(Route::Sessions(project)) => layout.in_project(project),
        _ => layout,
    };
    let back = match &route {
        Some(Route::Session(name, _)) => (name.path(SessionPage::Overview), "Back to the session"),
        _ => (routes::ROOT.to_owned(), "All projects"),
    };
    let page = layout.page(&html! {
        p.problem role="alert" { (crate::text::shown(error.message())) }
        p { a href=(back.0) { (back.1) } }
    });
    response::page(error.status(), page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_and_written() {
        let text = query(&[("q", "a b&c=ä"), ("from", "7")]);
        assert!(text.starts_with("?q="), "{text}");
        let read = Query::read(text.trim_start_matches('?'));
        assert_eq!(read.get("q"), Some("a b&c=ä"));
        assert_eq!(read.number("from").unwrap(), Some(7));
        assert_eq!(read.number("to").unwrap(), None);
        assert!(read.number("q").is_err());
    }
}
