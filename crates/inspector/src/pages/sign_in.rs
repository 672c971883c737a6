//! The page that asks for a key.

use maud::{Markup, html};

use super::Viewer;
use crate::layout::Layout;
use crate::routes::ROOT;
use crate::text::shown;

/// Returns the page. `next` is the address to which it leads, and `problem` says why an earlier key was rejected.
pub(crate) fn page(next: &str, problem: Option<&str>) -> Markup {
    let layout = Layout::new(
        "Sign in",
        Viewer {
            is_signed_in: false,
        },
    );
    layout.page(&html! {
        @if let Some(problem) = problem {
            p.problem role="alert" { (shown(problem)) }
        }
        p { "This server requires an API key or a token with the right " code { "read" } "." }
        form.stacked method="post" action={ (ROOT) "/sign-in" } {
            label for="key" { "Key" }
            input #key name="key" type="password" autocomplete="current-password" required autofocus;
            input type="hidden" name="next" value=(next);
            button type="submit" { "Sign in" }
        }
        p.note { "The browser keeps the key for 12 hours, in a cookie that only the inspector receives." }
    })
}
