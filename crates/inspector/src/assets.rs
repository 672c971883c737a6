//! The style, the script and the icon of the pages.

use http::{Response, StatusCode};
use tonic::body::Body;

use crate::response::whole;

/// Returns the style.
pub(crate) fn style() -> Response<Body> {
    let text = include_str!("../assets/style.css");
    whole(StatusCode::OK, "text/css; charset=utf-8", text)
}

/// Returns the script. It replaces the parts of a page that have changed. All pages work without it.
pub(crate) fn script() -> Response<Body> {
    let text = include_str!("../assets/script.js");
    whole(StatusCode::OK, "text/javascript; charset=utf-8", text)
}

/// Returns the icon.
pub(crate) fn icon() -> Response<Body> {
    let text = include_str!("../assets/icon.svg");
    whole(StatusCode::OK, "image/svg+xml", text)
}
