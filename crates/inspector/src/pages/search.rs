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
                // Hits are ordered by message, so those of one message are neighbors.
                @for hits in found.hits.chunk_by(|one, next| one.ordinal == next.ordinal) {
                    (item(name, hits))
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

/// Shows the hits in one message.
fn item(name: &SessionName, hits: &[SearchHit]) -> Markup {
    html! {
        @if let Some(first) = hits.first() {
            @let message_id = first.block.as_ref().map_or("", |block| &block.message_id);
            li {
                a href=(links::message(name, first.ordinal)) {
                    "message " (number(first.ordinal))
                }
                " " (blocks::role(first.role())) " "
                (removal::visibility(name, message_id, first.visibility(), false))
                @for hit in hits {
                    pre.content { (snippet(hit)) }
                }
            }
        }
    }
}

/// Returns the text around a match with the match marked.
fn snippet(hit: &SearchHit) -> Markup {
    let text = &hit.snippet;
    let begin = hit.snippet_match_offset_bytes as usize;
    // The snippet contains the beginning of a long match only.
    let end = begin
        .saturating_add(hit.match_length_bytes as usize)
        .min(text.len());
    // `get` returns `None` within a character, where an index would panic.
    match (text.get(..begin), text.get(begin..end), text.get(end..)) {
        (Some(before), Some(found), Some(after)) => html! {
            (shown(before)) mark { (shown(found)) } (shown(after))
        },
        _ => shown(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_is_marked_as_text_and_within_its_snippet() {
        let hit = |snippet: &str, begin, length| SearchHit {
            snippet: snippet.to_owned(),
            snippet_match_offset_bytes: begin,
            match_length_bytes: length,
            ..SearchHit::default()
        };
        let marked = |hit: &SearchHit| snippet(hit).into_string();
        assert_eq!(marked(&hit("a <b> c", 2, 3)), "a <mark>&lt;b&gt;</mark> c");
        assert_eq!(marked(&hit("abc", 1, 900)), "a<mark>bc</mark>");
        // An offset within a character comes from no server.
        assert_eq!(marked(&hit("é", 1, 1)), "é");
    }
}
