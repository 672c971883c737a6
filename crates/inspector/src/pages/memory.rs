//! Session memory: the running summary, the history of its versions, and an editor.

use maud::{Markup, html};
use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    EventKind, GetSessionMemoryRequest, ListEventsRequest, MemoryState, SessionEvent,
    SessionMemory, UpdateSessionMemoryRequest,
};

use super::{Query, Viewer, query};
use crate::api::Api;
use crate::error::PageError;
use crate::event_text::describe;
use crate::format::{number, time, words};
use crate::layout::Layout;
use crate::routes::{SessionName, SessionPage};
use crate::text::shown;

/// The number of versions in the history.
const MAX_VERSIONS: u32 = 100;

pub(crate) async fn page(
    api: &Api,
    name: &SessionName,
    parameters: &Query,
    viewer: Viewer,
) -> Result<Markup, PageError> {
    let revision = parameters.number("revision")?;
    let of_memory = GetSessionMemoryRequest {
        session: name.resource(),
        revision: revision.unwrap_or(0),
        ..GetSessionMemoryRequest::default()
    };
    let of_versions = ListEventsRequest {
        session: name.resource(),
        page_size: MAX_VERSIONS,
        kinds: vec![
            EventKind::MemoryUpdated.into(),
            EventKind::MemoryUpdateFailed.into(),
        ],
        descending: true,
        ..ListEventsRequest::default()
    };
    let (mut context, mut sessions) = (api.context(), api.sessions());
    let (memory, versions) = futures::try_join!(
        context.get_session_memory(Api::request(of_memory)),
        sessions.list_events(Api::request(of_versions)),
    )?;
    let memory = memory.into_inner().memory.unwrap_or_default();
    // Failed updates are listed as well, because they explain why a version is old.
    let versions = versions.into_inner().events;
    let title = match revision {
        None => "Session memory".to_owned(),
        Some(revision) => format!("Session memory at revision {}", number(revision)),
    };
    let mut layout = Layout::new(&title, viewer).in_session(name, SessionPage::Memory);
    // An earlier version does not change, and only the current one can be edited.
    if revision.is_none() {
        layout = layout.live(name);
    }
    Ok(layout.page(&html! {
        section #memory data-part {
            @if revision.is_some() {
                p { a href=(name.path(SessionPage::Memory)) { "Current version" } }
            }
            (content(&memory, revision.is_some()))
        }
        @if revision.is_none() && !memory.text.is_empty() { (editor(name, &memory)) }
        section #versions data-part {
            h2 { "Versions" }
            @if versions.is_empty() { p { "None yet." } }
            ol.versions reversed {
                @for version in &versions { (item(name, version)) }
            }
        }
    }))
}

fn content(memory: &SessionMemory, is_past: bool) -> Markup {
    let state = words(memory.state().as_str_name(), "MEMORY_STATE_");
    html! {
        p {
            span.form { (state) } " "
            @if memory.version > 0 {
                "Version " (number(memory.version)) " by "
                (words(memory.source().as_str_name(), "MEMORY_SOURCE_")) ", " (number(memory.tokens.into())) " tokens, "
                (time(memory.update_time.as_ref())) ". "
                @if memory.state() == MemoryState::Stale {
                    "The last message that it covers left the view, so the next update begins there."
                } @else {
                    (number(memory.behind_messages.into())) " messages (" (number(memory.behind_tokens.into()))
                    " tokens) of the view " (if is_past { "were" } else { "are" }) " newer."
                }
            } @else {
                "No text exists yet."
            }
        }
        @if let Some(failure) = &memory.last_failure {
            p.problem { "The last update failed at " (time(failure.time.as_ref())) ": " (shown(&failure.detail)) }
        }
        @if !memory.text.is_empty() {
            pre.content.memory { (shown(&memory.text)) }
            p.note { "The file is " code { (shown(&memory.reference)) } "." }
        }
    }
}

/// Returns the form that changes the text. It is no part of the page that changes of the session replace.
fn editor(name: &SessionName, memory: &SessionMemory) -> Markup {
    html! {
        details {
            summary { "Edit" }
            form.stacked.wide-form method="post" action=(name.path(SessionPage::Memory)) {
                label for="text" { "Text of " code { "summary.md" } }
                // Browsers drop a first line break in a text area. The added one protects a text that begins with an
                // empty line.
                textarea #text name="text" rows="24" spellcheck="true" { "\n" (memory.text) }
                // If a later version is written meanwhile, the edit fails instead of replacing it.
                input type="hidden" name="version" value=(memory.version);
                button type="submit" { "Save as a new version" }
                p.note { "The headings stay as they are. The next update of the worker continues from your text." }
            }
        }
    }
}

/// Saves an edit, and returns the path of the page to show next.
pub(crate) async fn edit(api: &Api, name: &SessionName, form: &Query) -> Result<String, PageError> {
    let text = form
        .get("text")
        .ok_or(PageError::Input("The form has no text."))?;
    let request = UpdateSessionMemoryRequest {
        session: name.resource(),
        // Browsers send two characters for the end of a line.
        text: text.replace("\r\n", "\n"),
        expected_version: form.number("version")?.unwrap_or(0),
        ..UpdateSessionMemoryRequest::default()
    };
    api.context()
        .update_session_memory(Api::request(request))
        .await?;
    Ok(name.path(SessionPage::Memory))
}

fn item(name: &SessionName, event: &SessionEvent) -> Markup {
    let (kind, text) = describe(event);
    let is_failure = matches!(event.event, Some(Event::MemoryUpdateFailed(_)));
    let path =
        name.path(SessionPage::Memory) + &query(&[("revision", &event.revision.to_string())]);
    html! {
        li.problem[is_failure] {
            (time(event.time.as_ref())) ": "
            @if is_failure { (kind) ", " (shown(&text)) } @else { a href=(path) { (shown(&text)) } }
        }
    }
}
