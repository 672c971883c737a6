//! A view at a revision, beside the transcript.

use std::collections::HashMap;

use maud::{Markup, html};
use palimpsest_proto::context::v1::{
    BlockForm, EventKind, GetViewRequest, GetViewResponse, HiddenRange, ListEventsRequest,
    ListMessagesRequest, MessageFilter, MessageForm, MessageKind, TranscriptMessage, ViewBlock,
};

use super::{Query, Viewer, blocks, links, query, why_hidden};
use crate::api::Api;
use crate::chart::{PARTS, parts};
use crate::error::PageError;
use crate::event_text::range;
use crate::format::{number, time, words};
use crate::layout::Layout;
use crate::routes::{SessionName, SessionPage};

/// The number of blocks on a page.
const PAGE_SIZE: u32 = 100;
/// The maximum number of originals that are read for a page.
const MAX_ORIGINALS: u32 = 200;
/// The maximum number of events between a view and the request before it.
const MAX_DISTANCE: u32 = 200;

pub(crate) async fn page(
    api: &Api,
    name: &SessionName,
    parameters: &Query,
    viewer: Viewer,
) -> Result<Markup, PageError> {
    let revision = parameters.number("revision")?;
    let request = GetViewRequest {
        session: name.resource(),
        revision: revision.unwrap_or(0),
        page_size: PAGE_SIZE,
        page_token: parameters.get("page").unwrap_or_default().to_owned(),
        max_text_chars: u32::try_from(blocks::MAX_TEXT).unwrap_or(u32::MAX),
        ..GetViewRequest::default()
    };
    let view = api
        .sessions()
        .get_view(Api::request(request))
        .await?
        .into_inner();
    let (originals, neighbors) = futures::try_join!(
        originals(api, name, &view),
        neighbors(api, name, view.revision),
    )?;
    let title = format!("View at revision {}", number(view.revision));
    let layout = Layout::new(&title, viewer).in_session(name, SessionPage::View);
    // Messages before the first block and after the last one are shown on the first and the last page only.
    let is_first = parameters.get("page").is_none();
    let is_last = view.next_page_token.is_empty();
    Ok(layout.page(&html! {
        p {
            (number(view.tokens.into())) " tokens at " (time(view.time.as_ref())) ": " (breakdown(&view)) ". "
            a href=(links::change(name, view.revision)) { "Compare revisions" }
        }
        form.inline action=(name.path(SessionPage::View)) {
            label for="revision" { "Revision" }
            input #revision name="revision" inputmode="numeric" value=(view.revision);
            button type="submit" { "Show" }
            @if let Some(previous) = neighbors.previous {
                a rel="prev" href=(links::view(name, previous)) { "Previous request" }
            }
            @if let Some(next) = neighbors.next {
                a rel="next" href=(links::view(name, next)) { "Next request" }
            }
        }
        div.wide {
            table.view {
                thead {
                    tr {
                        th scope="col" { "Message" }
                        th scope="col" { "Form" }
                        th scope="col" { "As the model received it" }
                        th scope="col" { "Original, if it differs" }
                    }
                }
                tbody { (rows(name, &view, &originals, (is_first, is_last))) }
            }
        }
        @if !is_last {
            @let revision = view.revision.to_string();
            @let next = query(&[("revision", &revision), ("page", &view.next_page_token)]);
            nav.pager aria-label="Pages of the view" {
                a rel="next" href={ (name.path(SessionPage::View)) (next) } { "Next blocks" }
            }
        }
    }))
}

/// The revisions of the requests before and after a view.
struct Neighbors {
    previous: Option<u64>,
    next: Option<u64>,
}

/// Finds the requests before and after a revision. An earlier request is found within [`MAX_DISTANCE`] events only.
async fn neighbors(api: &Api, name: &SessionName, revision: u64) -> Result<Neighbors, PageError> {
    let request = ListEventsRequest {
        session: name.resource(),
        page_size: MAX_DISTANCE,
        // The list begins before the revision, so one call finds the requests on both sides.
        after_revision: revision.saturating_sub(MAX_DISTANCE.into()),
        kinds: vec![EventKind::ViewServed.into()],
        ..ListEventsRequest::default()
    };
    let reply = api.sessions().list_events(Api::request(request)).await?;
    let events = reply.into_inner().events;
    let mut revisions = events.iter().map(|event| event.revision);
    Ok(Neighbors {
        previous: revisions.clone().rfind(|other| *other < revision),
        next: revisions.find(|other| *other > revision),
    })
}

/// Returns the parts of a view in words.
fn breakdown(view: &GetViewResponse) -> String {
    let parts = parts(&view.breakdown.unwrap_or_default());
    let parts = PARTS.iter().zip(parts).filter(|(_, tokens)| *tokens > 0);
    let parts = parts.map(|((name, _), tokens)| format!("{name} {}", number(tokens.into())));
    parts.collect::<Vec<_>>().join(", ")
}

/// Returns true if the original of a block is shown beside it.
fn differs(block: &ViewBlock) -> bool {
    matches!(
        block.form(),
        BlockForm::Stored
            | BlockForm::Snipped
            | BlockForm::Cleared
            | BlockForm::Repaired
            | BlockForm::Omitted
    )
}

/// Reads the originals of the blocks on a page that differ from them, by ordinal.
async fn originals(
    api: &Api,
    name: &SessionName,
    view: &GetViewResponse,
) -> Result<HashMap<u64, TranscriptMessage>, PageError> {
    let ordinals = || {
        view.blocks
            .iter()
            .filter(|block| differs(block))
            .map(|block| block.ordinal)
    };
    let (Some(first), Some(last)) = (ordinals().min(), ordinals().max()) else {
        return Ok(HashMap::new());
    };
    // One call for the whole range is cheaper than a call for each block.
    let request = ListMessagesRequest {
        session: name.resource(),
        page_size: MAX_ORIGINALS,
        filter: Some(MessageFilter {
            first_ordinal: first,
            last_ordinal: Some(last),
            ..MessageFilter::default()
        }),
        form: MessageForm::Typed.into(),
        ..ListMessagesRequest::default()
    };
    let reply = api.sessions().list_messages(Api::request(request)).await?;
    let messages = reply.into_inner().messages.into_iter();
    Ok(messages.map(|message| (message.ordinal, message)).collect())
}

/// Returns the rows: the blocks, and between them the messages that the view does not show.
fn rows(
    name: &SessionName,
    view: &GetViewResponse,
    originals: &HashMap<u64, TranscriptMessage>,
    (is_first, is_last): (bool, bool),
) -> Markup {
    let begins = view
        .blocks
        .iter()
        .map(|block| block.ordinal)
        .min()
        .unwrap_or(0);
    let mut hidden = view
        .hidden
        .iter()
        // Each page of a view has all ranges. Those before its first message are on earlier pages.
        .filter(|range| is_first || range.last_ordinal >= begins)
        .peekable();
    let mut rows = Vec::new();
    for block in &view.blocks {
        // A summary stands before the messages that it replaced, so only messages before it are already passed.
        while let Some(range) = hidden.next_if(|range| range.last_ordinal < block.ordinal) {
            rows.push(hidden_row(name, range));
        }
        rows.push(block_row(name, block, originals.get(&block.ordinal)));
    }
    if is_last {
        rows.extend(hidden.map(|range| hidden_row(name, range)));
    }
    html! { @for row in rows { (row) } }
}

fn hidden_row(name: &SessionName, hidden: &HiddenRange) -> Markup {
    html! {
        tr.hidden {
            td colspan="4" {
                (if hidden.first_ordinal == hidden.last_ordinal { "Message " } else { "Messages " }) (range(hidden.first_ordinal, hidden.last_ordinal)) ", " (number(hidden.tokens.into())) " tokens: "
                (why_hidden(hidden.reason())) ". "
                a href=(links::message(name, hidden.first_ordinal)) { "Read them" }
            }
        }
    }
}

fn block_row(
    name: &SessionName,
    block: &ViewBlock,
    original: Option<&TranscriptMessage>,
) -> Markup {
    let form = words(block.form().as_str_name(), "BLOCK_FORM_");
    let of_block = original
        .and_then(|original| original.message.as_ref())
        .and_then(|message| message.blocks.get(block.block_index as usize))
        .filter(|_| differs(block));
    let message = links::message(name, block.ordinal);
    html! {
        tr.{ "form-" (form) } {
            th scope="row" {
                a href=(message) { (number(block.ordinal)) }
                " " (blocks::role(block.role()))
                @if let Some(index) = block.message_index {
                    br;
                    span.note { "messages[" (index) "]" }
                }
            }
            td {
                @if differs(block) {
                    a.form href=(links::removal(name, &block.message_id)) { (form) ": why?" }
                } @else {
                    span.form { (form) }
                }
                @if block.is_pinned { " " span.form { "pinned" } }
                @if is_of_service(block.kind()) {
                    " " span.form { (words(block.kind().as_str_name(), "MESSAGE_KIND_")) }
                }
                br;
                span.note {
                    (number(block.tokens.into()))
                    @if block.original_tokens > block.tokens {
                        " of " (number(block.original_tokens.into()))
                    }
                    " tokens"
                }
            }
            td {
                @match &block.content {
                    Some(content) => {
                        (blocks::block(content))
                        @if block.is_cut {
                            p.note {
                                "The first " (number(blocks::MAX_TEXT as u64)) " characters. "
                                a href=(message) { "Read all" }
                            }
                        }
                    },
                    None => span.note { "not shown" },
                }
            }
            td {
                @match of_block {
                    Some(original) => (blocks::block(original)),
                    None => span.note { @if differs(block) { "not on this page" } @else if block.form() == BlockForm::Annotated { "the same, without the added id" } @else { "the same" } },
                }
            }
        }
    }
}

/// Returns true for messages that the service or a hook made.
const fn is_of_service(kind: MessageKind) -> bool {
    !matches!(
        kind,
        MessageKind::Unspecified | MessageKind::Ordinary | MessageKind::Summary
    )
}
