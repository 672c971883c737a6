//! The addresses of pages with parameters.

use super::query;
use crate::routes::{SessionName, SessionPage};

fn path(name: &SessionName, page: SessionPage, parameters: &[(&str, &str)]) -> String {
    name.path(page) + &query(parameters)
}

/// The view at a revision.
pub(super) fn view(name: &SessionName, revision: u64) -> String {
    path(
        name,
        SessionPage::View,
        &[("revision", &revision.to_string())],
    )
}

/// The transcript from a message on.
pub(super) fn message(name: &SessionName, ordinal: u64) -> String {
    path(
        name,
        SessionPage::Transcript,
        &[("from", &ordinal.to_string())],
    )
}

/// The difference that the event at a revision made.
pub(super) fn change(name: &SessionName, revision: u64) -> String {
    let before = revision.saturating_sub(1).to_string();
    let parameters = [("from", &*before), ("to", &revision.to_string())];
    path(name, SessionPage::Difference, &parameters)
}

/// The dry run of an undo. `to` is the revision whose view comes back.
pub(super) fn undo(name: &SessionName, to: u64) -> String {
    path(name, SessionPage::Undo, &[("to", &to.to_string())])
}

/// The reasons why a message, or a part of it, is not in the view.
pub(super) fn removal(name: &SessionName, message_id: &str) -> String {
    path(name, SessionPage::Removal, &[("message", message_id)])
}
