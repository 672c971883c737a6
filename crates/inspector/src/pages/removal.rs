//! The reasons why a message, or a part of it, is not in the view.

use std::collections::BTreeMap;

use maud::{Markup, html};
use palimpsest_proto::context::v1::{
    GetSessionRequest, ListMessagesRequest, MessageFilter, RecoveryReport, RemovedItem,
    RemovedItemKind, SessionEvent, TranscriptMessage, Visibility,
};

use super::{Query, Viewer, links, why_hidden};
use crate::api::Api;
use crate::error::PageError;
use crate::event_text::describe;
use crate::format::{number, time, words};
use crate::layout::Layout;
use crate::routes::{SessionName, SessionPage};
use crate::text::shown;

const NO_MESSAGE: PageError =
    PageError::Input("The address needs the parameter \"message\": the id of a message.");
/// The maximum number of events that are read for a page. A message with many results can have more.
const MAX_EVENTS: usize = 10;

/// Returns the visibility of a message. It leads to the reasons if the view lacks the message or a part of it.
pub(super) fn visibility(
    name: &SessionName,
    message_id: &str,
    visibility: Visibility,
    has_removed_parts: bool,
) -> Markup {
    let label = words(visibility.as_str_name(), "VISIBILITY_");
    if visibility == Visibility::Visible && !has_removed_parts {
        return html! { span.form { (label) } };
    }
    let path = links::removal(name, message_id);
    html! {
        a.form href=(path) {
            (label)
            @if visibility == Visibility::Visible { " in part" }
            ": why?"
        }
    }
}

pub(crate) async fn page(
    api: &Api,
    name: &SessionName,
    parameters: &Query,
    viewer: Viewer,
) -> Result<Markup, PageError> {
    let id = parameters.get("message").ok_or(NO_MESSAGE)?;
    let of_message = ListMessagesRequest {
        session: name.resource(),
        page_size: 1,
        filter: Some(MessageFilter {
            first_message_id: id.to_owned(),
            ..MessageFilter::default()
        }),
        ..ListMessagesRequest::default()
    };
    let of_report = GetSessionRequest {
        session: name.resource(),
        include_recovery: true,
        recovery_message_id: id.to_owned(),
    };
    let (mut messages, mut sessions) = (api.sessions(), api.sessions());
    let (found, report) = futures::try_join!(
        messages.list_messages(Api::request(of_message)),
        sessions.get_session(Api::request(of_report)),
    )?;
    let message = found.into_inner().messages.into_iter().next();
    let message = message.unwrap_or_default();
    let report = report.into_inner().recovery.unwrap_or_default();
    let events = causes(api, name, &report.items).await?;
    let title = format!("Why message {} left the view", number(message.ordinal));
    let layout = Layout::new(&title, viewer).in_session(name, SessionPage::Transcript);
    Ok(layout.page(&content(name, &message, &report, &events)))
}

/// Reads the events that removed the items, by revision.
async fn causes(
    api: &Api,
    name: &SessionName,
    items: &[RemovedItem],
) -> Result<BTreeMap<u64, SessionEvent>, PageError> {
    let mut events = BTreeMap::new();
    for item in items.iter().rev() {
        let revision = item.cause_revision;
        // `GetSession` gives no revision for a result that level 1 stored. Several items can have one event.
        if revision == 0 || events.contains_key(&revision) || events.len() == MAX_EVENTS {
            continue;
        }
        // `event_after` excludes its revision, so the one before is passed.
        let event = api.event_after(name, revision - 1).await?;
        events.extend(event.map(|event| (revision, event)));
    }
    Ok(events)
}

fn content(
    name: &SessionName,
    message: &TranscriptMessage,
    report: &RecoveryReport,
    events: &BTreeMap<u64, SessionEvent>,
) -> Markup {
    let is_visible = message.visibility() == Visibility::Visible;
    html! {
        p {
            @if is_visible {
                "The message is in the view" @if !report.items.is_empty() { ", apart from the parts below" } ". "
            } @else {
                "The message is not in the view: " (why_hidden(message.visibility())) ". "
            }
            a href=(links::message(name, message.ordinal)) { "Read the original" }
        }
        // The report is in the order of removal. The last removal explains the current view.
        @for item in report.items.iter().rev() {
            (reason(name, item, events.get(&item.cause_revision)))
        }
        @if report.items.is_empty() && !is_visible {
            p { "No change of the view removed it." }
        }
        @if report.incomplete {
            p.note { "Only the latest 200 changes of the view were searched." }
        }
    }
}

fn reason(name: &SessionName, item: &RemovedItem, event: Option<&SessionEvent>) -> Markup {
    let revision = item.cause_revision;
    let event = event.map(|event| (event, describe(event)));
    html! {
        section {
            h2 { (what(item)) ", " (number(item.tokens.into())) " tokens" }
            dl.facts {
                div {
                    dt { "Removed by" }
                    dd {
                        @if let Some((event, (kind, _))) = &event {
                            (kind) " at revision " (number(revision)) ", " (time(event.time.as_ref()))
                        } @else if revision > 0 {
                            (words(item.cause().as_str_name(), "EVENT_KIND_")) " at revision " (number(revision))
                        } @else {
                            "the limit for tool results, before the model received it"
                        }
                    }
                }
                @if let Some((event, (_, text))) = &event {
                    div {
                        dt { "Reason" }
                        dd {
                            @if let Some(effect) = &event.effect { (words(effect.trigger().as_str_name(), "TRIGGER_")) ": " }
                            (shown(text))
                        }
                    }
                    @if !event.credential.is_empty() {
                        div { dt { "By" } dd { (shown(&event.credential)) } }
                    }
                }
                @if let Some(tool) = &item.tool_use {
                    div {
                        dt { "The model can read it" }
                        dd { code { (shown(&tool.name)) " " (shown(&String::from_utf8_lossy(&tool.input_json))) } }
                    }
                }
                @if !item.handle.is_empty() {
                    div {
                        dt { "The view refers to it by" }
                        dd { code { (shown(&item.handle)) } }
                    }
                }
            }
            p { (ways(name, item)) }
        }
    }
}

fn ways(name: &SessionName, item: &RemovedItem) -> Markup {
    let cause = item.cause_revision;
    html! {
        @if cause > 0 {
            a href=(links::change(name, cause)) { "Everything that left with it" }
            " · "
            a href=(links::view(name, cause - 1)) { "The view before" }
        }
        @if item.restore_to_revision > 0 {
            " · "
            a href=(links::undo(name, item.restore_to_revision)) { "Undo…" }
        }
    }
}

/// Returns the content of an item in words.
fn what(item: &RemovedItem) -> Markup {
    html! {
        @match item.kind() {
            RemovedItemKind::Turn => { "A turn of " (number(item.messages.into())) " messages" },
            RemovedItemKind::Span => { (number(item.messages.into())) " messages in a row" },
            RemovedItemKind::Message => "This message",
            RemovedItemKind::ToolResult => {
                "The result of " code { (shown(item.call.as_ref().map_or("a call", |call| &call.tool_use_id))) }
            },
            RemovedItemKind::Block | RemovedItemKind::Unspecified => {
                "Block " (item.block_index.unwrap_or(0))
            },
        }
    }
}
