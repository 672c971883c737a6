//! A search over the transcript and the stored results.

use maud::{Markup, html};
use palimpsest_proto::context::v1::text_pattern::Pattern;
use palimpsest_proto::context::v1::{SearchHit, SearchMessagesRequest, TextPattern};

use super::{Query, Viewer, blocks, links, query, removal};
use crate::api::Api;
use crate::error::PageError;
use crate::format::number;
use crate::layout::Layout;
use crate::routes::{SessionName, SessionPage};
use crate::text::shown;

/// The number of hits on a page.
const PAGE_SIZE: u32 = 50;

pub(crate) async fn page(
    api: &Api,
    name: &SessionName,
    parameters: &Query,
    viewer: Viewer,
) -> Result<Markup, PageError> {
    let text = parameters.get("q");
    let is_regex = parameters.get("regex").is_some();
    let found = match text {
        None => None,
        Some(text) => {
            let pattern = if is_regex {
                Pattern::Regex(text.to_owned())
            } else {
                Pattern::Literal(text.to_owned())
            };
            let request = SearchMessagesRequest {
                session: name.resource(),
                pattern: Some(TextPattern {
                    pattern: Some(pattern),
                    ..TextPattern::default()
                }),
                page_size: PAGE_SIZE,
                page_token: parameters.get("page").unwrap_or_default().to_owned(),
                descending: true,
                ..SearchMessagesRequest::default()
            };
            let reply = api
                .sessions()
                .search_messages(Api::request(request))
                .await?;
            Some(reply.into_inner())
        }
    };
    let path = name.path(SessionPage::Search);
    let layout = Layout::new("Search", viewer).in_session(name, SessionPage::Search);
    Ok(layout.page(&html! {
        form.inline role="search" action=(path) {
            label for="q" { "Text in messages and stored results" }
            input #q name="q" type="search" value=[text] required autofocus[text.is_none()];
            label { input name="regex" type="checkbox" value="1" checked[is_regex]; " regular expression" }
            button type="submit" { "Search" }
        }
        @if let Some(found) = &found {
            @if found.hits.is_empty() {
                p role="status" { "Nothing was found" @if found.ended_early { " so far" } "." }
            }
            ol.hits {
                @for hit in &found.hits {
                    (item(name, hit))
                }
            }
            @if !found.next_page_token.is_empty() {
                @let mut next = vec![("q", text.unwrap_or_default()), ("page", found.next_page_token.as_str())];
                @let () = if is_regex { next.push(("regex", "1")) };
                p { a rel="next" href={ (path) (query(&next)) } { "Continue the search" } }
            }
        }
    }))
}

fn item(name: &SessionName, hit: &SearchHit) -> Markup {
    let message_id = hit.block.as_ref().map_or("", |block| &block.message_id);
    html! {
        li {
            a href=(links::message(name, hit.ordinal)) {
                "message " (number(hit.ordinal))
            }
            " " (blocks::role(hit.role())) " "
            (removal::visibility(name, message_id, hit.visibility(), false))
            pre.content { (shown(&hit.snippet)) }
        }
    }
}
