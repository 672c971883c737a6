//! The sessions of a project.

use maud::{Markup, html};
use palimpsest_proto::context::v1::{ListSessionsRequest, Session, SessionFilter};

use super::{Query, Viewer, query};
use crate::api::Api;
use crate::error::PageError;
use crate::format::{cost, number, saved, short, time, words};
use crate::layout::Layout;
use crate::routes::{SessionName, SessionPage, project_path};
use crate::text::{one_line, shown};

/// The number of sessions on a page.
const PAGE_SIZE: u32 = 50;
/// The seconds after which the page is read again.
const REFRESH_SECONDS: u32 = 5;
/// The maximum length of a title, in characters.
const TITLE_CHARS: usize = 80;

pub(crate) async fn page(
    api: &Api,
    project: &str,
    parameters: &Query,
    viewer: Viewer,
) -> Result<Markup, PageError> {
    let text = parameters.get("q").unwrap_or_default();
    let over_threshold = parameters.get("over").is_some();
    let request = ListSessionsRequest {
        parent: format!("projects/{project}"),
        page_size: PAGE_SIZE,
        page_token: parameters.get("page").unwrap_or_default().to_owned(),
        filter: Some(SessionFilter {
            text: text.to_owned(),
            over_threshold,
            ..SessionFilter::default()
        }),
        ..ListSessionsRequest::default()
    };
    let reply = api.sessions().list_sessions(Api::request(request)).await?;
    let reply = reply.into_inner();
    let path = project_path(project);
    let layout = Layout::new(project, viewer)
        .in_project(project)
        .every(REFRESH_SECONDS);
    Ok(layout.page(&html! {
        form.inline role="search" action=(path) {
            label for="q" { "Title or first prompt contains" }
            input #q name="q" type="search" value=(text);
            label { input name="over" type="checkbox" value="1" checked[over_threshold]; " over threshold" }
            button type="submit" { "Filter" }
        }
        section #sessions data-part {
            @if reply.sessions.is_empty() {
                p { "No session matches." }
            } @else {
                (table(&reply.sessions))
            }
            @if !reply.next_page_token.is_empty() {
                @let mut next = vec![("q", text), ("page", reply.next_page_token.as_str())];
                @let () = if over_threshold { next.push(("over", "1")) };
                @let next = query(&next);
                p { a rel="next" href={ (path) (next) } { "Earlier sessions" } }
            }
            @if reply.unreadable_sessions > 0 {
                p.problem { (number(reply.unreadable_sessions.into()))
                    " sessions are not listed, because their rows are damaged. The log of the server names them." }
            }
            @if reply.unavailable_nodes > 0 {
                p.problem { "Sessions are missing: " (number(reply.unavailable_nodes.into()))
                    " of the nodes of the database do not answer. The log of the server names them." }
            }
        }
    }))
}

fn table(sessions: &[Session]) -> Markup {
    html! {
        div.wide {
            table.sessions {
                thead {
                    tr {
                        th scope="col" { "Session" }
                        th scope="col" { "State" }
                        th scope="col" { "Last change" }
                        th.number scope="col" { "Messages" }
                        th scope="col" { "View" }
                        th.number scope="col" { "Requests" }
                        th.number scope="col" { "Tokens sent" }
                        th.number scope="col" { "Tokens saved" }
                        th.number scope="col" { "Cost of prompts" }
                        th.number scope="col" { "Compactions" }
                        th scope="col" { "Model" }
                    }
                }
                tbody {
                    @for session in sessions {
                        (row(session))
                    }
                }
            }
        }
    }
}

fn row(session: &Session) -> Markup {
    let totals = session.totals.unwrap_or_default();
    let counts = session.counts.unwrap_or_default();
    let name = SessionName::of_resource(&session.name);
    let title = if session.title.is_empty() {
        &session.first_prompt
    } else {
        &session.title
    };
    html! {
        tr {
            th scope="row" {
                @if let Some(name) = &name {
                    a href=(name.path(SessionPage::Overview)) { (shown(&name.session)) }
                }
                @if !title.is_empty() {
                    br;
                    span.note { (shown(&one_line(title, TITLE_CHARS))) }
                }
            }
            td { (words(session.state().as_str_name(), "SESSION_STATE_")) }
            td { (time(session.update_time.as_ref())) }
            td.number { (number(counts.messages)) }
            td { (gauge(totals.view_tokens, totals.compact_at_tokens, totals.window_tokens)) }
            td.number { (number(totals.requests)) }
            td.number { (short(totals.sent_tokens)) }
            td.number { (saved(totals.saved_tokens, totals.sent_tokens)) }
            td.number { (cost(&totals)) }
            td.number { (number(totals.compactions.into())) }
            td { (shown(&session.last_model)) }
        }
    }
}

/// Draws the size of a view within its window.
fn gauge(tokens: u32, compact_at: u32, window: u32) -> Markup {
    let is_over = compact_at > 0 && tokens >= compact_at;
    html! {
        @if window > 0 {
            // With the optimum at 0, browsers color values above `high` as bad. Larger values than `max` are not
            // allowed.
            meter min="0" max=(window) low=(compact_at) high=(compact_at) optimum="0" value=(tokens.min(window)) {
                (short(tokens.into())) " of " (short(window.into()))
            }
            " "
        }
        (short(tokens.into()))
        @if window > 0 { " of " (short(window.into())) }
        @if is_over { " " strong.over { "over threshold" } }
    }
}
