//! The transcript: the originals of all messages.

use maud::{Markup, html};
use palimpsest_proto::context::v1::{
    ListMessagesRequest, MessageFilter, MessageForm, TranscriptMessage,
};

use super::{Query, Viewer, blocks, links, query, removal};
use crate::api::Api;
use crate::error::PageError;
use crate::format::{number, time};
use crate::layout::Layout;
use crate::routes::{SessionName, SessionPage};

/// The number of messages on a page.
const PAGE_SIZE: u32 = 50;

pub(crate) async fn page(
    api: &Api,
    name: &SessionName,
    parameters: &Query,
    viewer: Viewer,
) -> Result<Markup, PageError> {
    let from = parameters.number("from")?.unwrap_or(1).max(1);
    let message = parameters.get("message").unwrap_or_default();
    let request = ListMessagesRequest {
        session: name.resource(),
        page_size: PAGE_SIZE,
        filter: Some(MessageFilter {
            first_ordinal: from,
            first_message_id: message.to_owned(),
            ..MessageFilter::default()
        }),
        form: MessageForm::Typed.into(),
        ..ListMessagesRequest::default()
    };
    let reply = api.sessions().list_messages(Api::request(request)).await?;
    let reply = reply.into_inner();
    let from = reply.messages.first().map_or(from, |first| first.ordinal);
    let layout = Layout::new("Transcript", viewer).in_session(name, SessionPage::Transcript);
    let path = name.path(SessionPage::Transcript);
    let earlier = from.saturating_sub(PAGE_SIZE.into()).max(1).to_string();
    let next = reply
        .messages
        .last()
        .map_or(from, |last| last.ordinal + 1)
        .to_string();
    let pager = html! {
        nav.pager aria-label="Pages of the transcript" {
            @if from > 1 {
                a rel="prev" href={ (path) (query(&[("from", &earlier)])) } { "Earlier messages" }
            }
            @if !reply.next_page_token.is_empty() {
                a rel="next" href={ (path) (query(&[("from", &next)])) } { "Later messages" }
            }
        }
    };
    Ok(layout.page(&html! {
        form.inline action=(path) {
            label for="from" { "From message number" }
            input #from name="from" inputmode="numeric" value=(from);
            button type="submit" { "Show" }
        }
        (pager)
        @if reply.messages.is_empty() {
            p { "No message has this number." }
        }
        @for message in &reply.messages {
            (article(name, message))
        }
        (pager)
    }))
}

fn article(name: &SessionName, message: &TranscriptMessage) -> Markup {
    let has_removed_parts = !message.block_statuses.is_empty();
    let visibility = message.visibility();
    let metadata = message.metadata.clone().unwrap_or_default();
    let of_message = message.message.as_ref();
    html! {
        article.message #{ "m" (message.ordinal) } {
            h2 {
                a href=(links::message(name, message.ordinal)) { (number(message.ordinal)) } " " (of_message.map_or("", |one| blocks::role(one.role())))
                " " (removal::visibility(name, &message.id, visibility, has_removed_parts))
                @if message.pinned { " " span.form { "pinned" } }
            }
            p.note {
                (number(message.tokens.into())) " tokens"
                @if has_removed_parts { " of the original" }
                @if metadata.create_time.is_some() { ", " (time(metadata.create_time.as_ref())) }
            }
            @if let Some(content) = of_message {
                (blocks::message(content))
            }
        }
    }
}
