//! A session: a chart of its requests, and its events.

use maud::{Markup, html};
use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    Budget, GetSessionRequest, ListEventsRequest, Session, SessionEvent,
};

use super::{Query, Viewer, links, policy, query};
use crate::api::Api;
use crate::chart::{self, Bar, Line};
use crate::error::PageError;
use crate::event_text::{changes_view, describe};
use crate::format::{cost, number, percent, saved, short, time, words};
use crate::layout::Layout;
use crate::payback::{self, Payback};
use crate::routes::{SessionName, SessionPage};
use crate::text::{one_line, shown};

/// The number of events on a page.
const PAGE_SIZE: u32 = 300;
/// The maximum length of a title, in characters.
const TITLE_CHARS: usize = 100;

pub(crate) async fn page(
    api: &Api,
    name: &SessionName,
    parameters: &Query,
    viewer: Viewer,
) -> Result<Markup, PageError> {
    let after = parameters.number("after")?;
    let of_session = GetSessionRequest {
        session: name.resource(),
        ..GetSessionRequest::default()
    };
    let of_events = ListEventsRequest {
        session: name.resource(),
        page_size: PAGE_SIZE,
        after_revision: after.unwrap_or(0),
        // The first page has the latest events. The page of a revision has the events after it.
        descending: after.is_none(),
        ..ListEventsRequest::default()
    };
    let (mut sessions, mut events) = (api.sessions(), api.sessions());
    let (session, page) = futures::try_join!(
        sessions.get_session(Api::request(of_session)),
        events.list_events(Api::request(of_events)),
    )?;
    let session = session.into_inner().session.unwrap_or_default();
    let page = page.into_inner();
    let mut events = page.events;
    // The chart and the search for replaced requests need the events oldest first.
    if after.is_none() {
        events.reverse();
    }
    let has_more = !page.next_page_token.is_empty();
    let ends = Ends {
        has_earlier: if after.is_none() {
            has_more
        } else {
            // A page after revision 0 begins with the first event of the session.
            after != Some(0)
        },
        has_later: after.is_some() && has_more,
    };
    let title = if session.title.is_empty() {
        one_line(&session.first_prompt, TITLE_CHARS)
    } else {
        one_line(&session.title, TITLE_CHARS)
    };
    let title = if title.is_empty() {
        name.session.clone()
    } else {
        title
    };
    let mut layout = Layout::new(&title, viewer).in_session(name, SessionPage::Overview);
    // Only the page with the latest events changes.
    if after.is_none() {
        layout = layout.live(name);
    }
    let replaced = replaced(&events);
    Ok(layout.page(&html! {
        section #facts data-part {
            (facts(&session))
            (policy::section(&session))
        }
        section #requests data-part {
            h2 { "Requests" }
            (requests(name, &session, &events, &replaced))
        }
        section #events data-part {
            h2 { "Events" }
            (pager(name, &events, &ends))
            (table(name, &session, (&events, &replaced), !ends.has_later))
            (pager(name, &events, &ends))
        }
    }))
}

/// Tells whether there are events before and after those of a page.
struct Ends {
    has_earlier: bool,
    has_later: bool,
}

fn facts(session: &Session) -> Markup {
    let totals = session.totals.unwrap_or_default();
    let budget = session.budget.clone().unwrap_or_default();
    let counts = session.counts.unwrap_or_default();
    let prompt = totals.cache_read_tokens + totals.cache_write_tokens + totals.uncached_tokens;
    html! {
        dl.facts {
            (fact("State", &html! { (words(session.state().as_str_name(), "SESSION_STATE_")) }))
            (fact("View", &window(&budget)))
            (fact("Messages", &html! { (number(counts.messages)) " in the transcript, " (number(counts.visible_messages.into())) " in the view" }))
            (fact("Requests", &html! { (number(totals.requests)) ", " (short(totals.sent_tokens)) " tokens sent" }))
            (fact("Saved", &html! { (saved(totals.saved_tokens, totals.sent_tokens)) " of the tokens" }))
            (fact("Cost of prompts", &html! {
                (cost(&totals))
                @if totals.unmanaged_cost_tokens > 0 {
                    br;
                    span.note { "An unmanaged request counts as the window at most." }
                }
            }))
            (fact("Prompt cache", &html! {
                @if prompt > 0 {
                    (short(totals.cache_read_tokens)) " read (" (percent(totals.cache_read_tokens, prompt)) "), "
                    (short(totals.cache_write_tokens)) " written"
                } @else {
                    "no usage was reported"
                }
            }))
            (fact("Compactions", &html! { (number(counts.compactions.into())) }))
            (fact("Model", &html! { (shown(model(session))) }))
            (fact("Last change", &time(session.update_time.as_ref())))
            @if !session.hold.is_empty() {
                (fact("Hold", &shown(&session.hold)))
            }
            @if let Some(parent) = SessionName::of_resource(&session.parent_session) {
                (fact("Parent", &html! { a href=(parent.path(SessionPage::Overview)) { (shown(&parent.session)) } }))
            }
        }
    }
}

/// Returns the model of the last response. Callers need not report it, so the model of the last request is the fallback.
fn model(session: &Session) -> &str {
    if session.last_model.is_empty() {
        let target = session.last_target.as_ref();
        return target.map_or("", |target| &target.model);
    }
    &session.last_model
}

fn fact(name: &str, value: &Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

fn window(budget: &Budget) -> Markup {
    if budget.window_tokens == 0 {
        return html! { "no message yet" };
    }
    html! {
        (number(budget.used_tokens.into())) " of " (number(budget.window_tokens.into())) " tokens, "
        (words(budget.state().as_str_name(), "BUDGET_STATE_")) "; a compaction is due at "
        (number(budget.compact_at_tokens.into()))
    }
}

/// Draws the requests among some events. `replaced` has an entry for each event.
fn requests(
    name: &SessionName,
    session: &Session,
    events: &[SessionEvent],
    replaced: &[bool],
) -> Markup {
    let mut bars = Vec::new();
    let mut changes = Vec::new();
    for (event, is_replaced) in events.iter().zip(replaced) {
        if changes_view(event) {
            changes.push(describe(event).0);
        }
        let Some(Event::ViewServed(served)) = &event.event else {
            continue;
        };
        // The bars before and after such a request are of requests that were sent.
        if *is_replaced {
            continue;
        }
        bars.push(Bar {
            revision: event.revision,
            tokens: served.tokens,
            // Without a breakdown, the whole request counts as messages.
            parts: served
                .breakdown
                .as_ref()
                .map_or([0, 0, 0, served.tokens, 0, 0], chart::parts),
            saved: served.saved_tokens,
            changes: std::mem::take(&mut changes),
            path: links::view(name, event.revision),
        });
    }
    if bars.is_empty() {
        return html! { p { "None of the events below is a request." } };
    }
    let budget = session.budget.clone().unwrap_or_default();
    let lines = [
        Line {
            label: "context window",
            class: "window",
            tokens: budget.window_tokens,
        },
        Line {
            label: "a compaction is due at",
            class: "compact",
            tokens: budget.compact_at_tokens,
        },
    ];
    chart::requests(&bars, &lines)
}

/// Returns for each event whether it is a request that the next one replaced: no message was appended between them, so
/// the model has not answered it. A compaction within a call leaves such a request.
fn replaced(events: &[SessionEvent]) -> Vec<bool> {
    let mut all = vec![false; events.len()];
    let mut open = None;
    for (index, event) in events.iter().enumerate() {
        match &event.event {
            Some(Event::ViewServed(_)) => {
                // Two requests without a message in between: the model has answered only the second one.
                if let Some(earlier) = open.replace(index) {
                    all[earlier] = true;
                }
            }
            Some(Event::MessagesAppended(_)) => open = None,
            _ => {}
        }
    }
    all
}

/// `is_latest` is true if no event follows.
fn table(
    name: &SessionName,
    session: &Session,
    (events, replaced): (&[SessionEvent], &[bool]),
    is_latest: bool,
) -> Markup {
    let policy = session.policy.as_ref();
    let prices = policy.and_then(|policy| policy.economy.as_ref());
    // Prices come from the policy of the session, which also decides about compactions by cost.
    let paybacks = payback::of_changes(events, prices);
    html! {
        div.wide {
            table.events {
                thead {
                    tr {
                        th.number scope="col" { "Revision" }
                        th scope="col" { "Time" }
                        th scope="col" { "Event" }
                        th scope="col" { "Details" }
                        th.number scope="col" { "Tokens freed" }
                        th scope="col" { "Prompt cache" }
                        th scope="col" { "Reason" }
                        th scope="col" { "By" }
                        th scope="col" { "Look" }
                    }
                }
                tbody {
                    @for ((event, payback), is_replaced) in events.iter().zip(&paybacks).zip(replaced).rev() {
                        @let payback = payback.as_ref().map(|payback| paid(payback, is_latest));
                        (row(name, event, payback.as_ref(), *is_replaced))
                    }
                }
            }
        }
    }
}

fn row(
    name: &SessionName,
    event: &SessionEvent,
    payback: Option<&Markup>,
    is_replaced: bool,
) -> Markup {
    let (kind, text) = describe(event);
    let effect = event.effect.clone().unwrap_or_default();
    let changes = changes_view(event);
    let is_request = matches!(event.event, Some(Event::ViewServed(_)));
    html! {
        tr.change[changes].request[is_request] {
            td.number { (number(event.revision)) }
            td { (time(event.time.as_ref())) }
            th scope="row" { (kind) }
            td {
                (shown(&text))
                @if is_replaced { "; replaced by the next request before an answer" }
            }
            td.number {
                @if effect.freed_tokens > 0 {
                    (number(effect.freed_tokens.into()))
                }
            }
            td { @if let Some(payback) = payback { (payback) } }
            td {
                @if event.effect.is_some() {
                    (words(effect.trigger().as_str_name(), "TRIGGER_"))
                }
            }
            td { (shown(&event.credential)) }
            td {
                @if is_request {
                    a href=(links::view(name, event.revision)) { "View" }
                }
                @if changes {
                    a href=(links::change(name, event.revision)) { "Difference" }
                    " "
                    a href=(links::undo(name, event.revision.saturating_sub(1))) { "Undo…" }
                }
            }
        }
    }
}

/// Returns the cost of changes in words. If later requests are on another page, their number is unknown.
fn paid(payback: &Payback, is_latest: bool) -> Markup {
    let requests = payback.requests;
    html! {
        (number(payback.rewritten.into())) " tokens to write"
        @if payback.changes > 1 { ", with the " (number((payback.changes - 1).into())) " changes before" }
        br;
        span.note {
            @match payback.needed {
                None => "no request is smaller",
                Some(0 | 1) => "paid by the first request",
                Some(needed) if requests >= needed => {
                    "paid after " (number(needed)) " requests"
                    @if is_latest { " of " (number(requests)) }
                }
                Some(needed) => {
                    "paid after " (number(needed)) " requests"
                    @if is_latest { "; so far " (number(requests)) }
                }
            }
        }
    }
}

fn pager(name: &SessionName, events: &[SessionEvent], ends: &Ends) -> Markup {
    let path = name.path(SessionPage::Overview);
    let first = events.first().map_or(0, |event| event.revision);
    let last = events.last().map_or(0, |event| event.revision);
    // Revisions have no gap, apart from internal events, so this is about one page.
    let earlier = first.saturating_sub(u64::from(PAGE_SIZE) + 1).to_string();
    html! {
        @if ends.has_earlier || ends.has_later {
            nav.pager aria-label="Pages of events" {
                @if ends.has_earlier {
                    a rel="prev" href={ (path) (query(&[("after", &earlier)])) } { "Earlier" }
                }
                @if ends.has_later {
                    a rel="next" href={ (path) (query(&[("after", &last.to_string())])) } { "Later" }
                    a href=(path) { "Latest" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_proto::context::v1::{MessagesAppended, ViewServed};

    use super::*;

    #[test]
    fn a_request_without_a_message_before_the_next_one_is_replaced() {
        let request = || Event::ViewServed(ViewServed::default());
        let appended = || Event::MessagesAppended(MessagesAppended::default());
        let compacted = || Event::Compacted(Box::default());
        let events = [
            appended(),
            request(),
            compacted(),
            request(),
            appended(),
            request(),
        ];
        let events = events.map(|event| SessionEvent {
            event: Some(event),
            ..SessionEvent::default()
        });
        let expected = [false, true, false, false, false, false];
        assert_eq!(replaced(&events), expected);
    }
}
