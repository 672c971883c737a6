//! An undo: first what it would bring back, then the undo itself.

use maud::{Markup, html};
use palimpsest_proto::context::v1::{
    GetSessionRequest, RemovedItem, RestoreContextRequest, RestoreContextResponse,
};

use super::{Query, Viewer, links, query};
use crate::api::Api;
use crate::error::PageError;
use crate::format::{number, words};
use crate::layout::Layout;
use crate::routes::{SessionName, SessionPage};

const NO_REVISION: PageError =
    PageError::Input("The address needs the parameter \"to\": the revision whose view comes back.");

pub(crate) async fn page(
    api: &Api,
    name: &SessionName,
    parameters: &Query,
    viewer: Viewer,
) -> Result<Markup, PageError> {
    let to = parameters.number("to")?.ok_or(NO_REVISION)?;
    let request = RestoreContextRequest {
        session: name.resource(),
        to_revision: to,
        dry_run: true,
        // The effect is shown even if the undo itself needs `force`.
        force: true,
        ..RestoreContextRequest::default()
    };
    let of_session = GetSessionRequest {
        session: name.resource(),
        ..GetSessionRequest::default()
    };
    // The session is read first. If it changes afterwards, the undo fails instead of undoing something else.
    let session = api
        .sessions()
        .get_session(Api::request(of_session))
        .await?
        .into_inner();
    let revision = session.session.map_or(0, |session| session.revision);
    let reply = api.context().restore_context(Api::request(request)).await?;
    let reply = reply.into_inner();
    let title = format!("Undo to revision {}", number(to));
    let layout = Layout::new(&title, viewer).in_session(name, SessionPage::Overview);
    Ok(layout.page(&content(name, (to, revision), &reply)))
}

fn content(
    name: &SessionName,
    (to, revision): (u64, u64),
    reply: &RestoreContextResponse,
) -> Markup {
    let undone = reply
        .restored
        .as_ref()
        .map_or(&[][..], |restored| &restored.undone);
    if undone.is_empty() {
        return html! { p { "No change of the view followed this revision, so there is nothing to undo." } };
    }
    let effect = reply.effect.clone().unwrap_or_default();
    let recovery = reply.recovery.clone().unwrap_or_default();
    let block_at = reply.budget.as_ref().map_or(0, |one| one.block_at_tokens);
    let is_blocked = block_at > 0 && effect.after_tokens >= block_at;
    html! {
        p {
            "The view would change from " (number(effect.before_tokens.into())) " to "
            strong { (number(effect.after_tokens.into())) } " tokens. The transcript does not change."
        }
        @if is_blocked {
            p.problem role="alert" {
                "From " (number(block_at.into())) " tokens on, no request can be sent. Compact the session after the undo."
            }
        }
        h2 { "Changes that would be undone" }
        ul {
            @for event in undone {
                li {
                    a href=(links::change(name, event.revision)) { "revision " (number(event.revision)) }
                    ": " (words(event.kind().as_str_name(), "EVENT_KIND_"))
                }
            }
        }
        @if recovery.total_returned_items > 0 {
            h2 { "Content that would come back" }
            p { (number(recovery.total_returned_items.into())) " items" }
            ul {
                @for item in &recovery.returned_items { (self::item(name, item)) }
            }
        }
        @if recovery.total_items > 0 {
            h2 { "Content that would leave" }
            p { (number(recovery.total_items.into())) " items" }
            ul {
                @for item in &recovery.items { (self::item(name, item)) }
            }
        }
        form method="post" action=(name.path(SessionPage::Undo)) {
            input type="hidden" name="to" value=(to);
            input type="hidden" name="expected" value=(revision);
            @if is_blocked { input type="hidden" name="force" value="1"; }
            button type="submit" { (if is_blocked { "Undo anyway" } else { "Undo" }) }
            " "
            a href=(name.path(SessionPage::Overview)) { "Cancel" }
        }
    }
}

fn item(name: &SessionName, item: &RemovedItem) -> Markup {
    let message = query(&[("message", &item.first_message_id)]);
    html! {
        li {
            @if item.messages > 1 { (number(item.messages.into())) " messages" }
            @else { (words(item.kind().as_str_name(), "REMOVED_ITEM_KIND_")) }
            ", " (number(item.tokens.into())) " tokens "
            a href={ (name.path(SessionPage::Transcript)) (message) } { "Read" }
        }
    }
}

/// Undoes, and returns the path of the page to show next.
pub(crate) async fn undo(api: &Api, name: &SessionName, form: &Query) -> Result<String, PageError> {
    let request = RestoreContextRequest {
        session: name.resource(),
        to_revision: form.number("to")?.ok_or(NO_REVISION)?,
        expected_revision: form.number("expected")?,
        force: form.get("force").is_some(),
        ..RestoreContextRequest::default()
    };
    api.context().restore_context(Api::request(request)).await?;
    Ok(name.path(SessionPage::Overview))
}
