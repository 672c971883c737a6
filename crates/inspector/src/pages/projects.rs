//! The first page: all projects of the credential.

use maud::{Markup, html};
use palimpsest_proto::context::v1::{ListProjectsRequest, Project};

use super::{Viewer, query};
use crate::api::Api;
use crate::error::PageError;
use crate::format::{cost, number, percent, saved, short, time};
use crate::layout::Layout;
use crate::routes::project_path;
use crate::text::shown;

/// The maximum number of projects on the page.
const MAX_PROJECTS: u32 = 1_000;
/// The seconds after which the page is read again.
const REFRESH_SECONDS: u32 = 10;

pub(crate) async fn page(api: &Api, viewer: Viewer) -> Result<Markup, PageError> {
    let request = ListProjectsRequest {
        page_size: MAX_PROJECTS,
        ..ListProjectsRequest::default()
    };
    let reply = api.admin().list_projects(Api::request(request)).await?;
    let reply = reply.into_inner();
    let layout = Layout::new("Projects", viewer).every(REFRESH_SECONDS);
    Ok(layout.page(&html! {
        section #projects data-part {
            @if reply.projects.is_empty() {
                p { "No project has a session yet. The first message that an agent appends creates one." }
            } @else {
                (table(&reply.projects))
                @if !reply.next_page_token.is_empty() {
                    p.note { "The first " (MAX_PROJECTS) " projects are listed." }
                }
                p.note { "Counted at " (time(reply.count_time.as_ref())) "." }
            }
        }
    }))
}

fn table(projects: &[Project]) -> Markup {
    html! {
        div.wide {
            table {
                thead {
                    tr {
                        th scope="col" { "Project" }
                        th.number scope="col" { "Sessions" }
                        th.number scope="col" { "In the last hour" }
                        th.number scope="col" { "Over threshold" }
                        th.number scope="col" { "Requests" }
                        th.number scope="col" { "Tokens sent" }
                        th.number scope="col" { "Tokens saved" }
                        th.number scope="col" { "Cost of prompts" }
                        th.number scope="col" { "Cache read" }
                        th.number scope="col" { "Cache written" }
                        th.number scope="col" { "Compactions" }
                        th scope="col" { "Last change" }
                    }
                }
                tbody {
                    @for project in projects {
                        (row(project))
                    }
                }
            }
        }
    }
}

fn row(project: &Project) -> Markup {
    let totals = project.totals.unwrap_or_default();
    let id = project.name.trim_start_matches("projects/");
    let prompt = totals.cache_read_tokens + totals.cache_write_tokens + totals.uncached_tokens;
    html! {
        tr {
            th scope="row" { a href=(project_path(id)) { (shown(id)) } }
            td.number { (number(project.sessions)) }
            td.number { (number(project.recent_sessions)) }
            td.number {
                @let over = project.sessions_over_threshold;
                @if over > 0 {
                    a href={ (project_path(id)) (query(&[("over", "1")])) } { (number(over)) }
                } @else { "0" }
            }
            td.number { (number(totals.requests)) }
            td.number { (short(totals.sent_tokens)) }
            td.number { (saved(totals.saved_tokens, totals.sent_tokens)) }
            td.number { (cost(&totals)) }
            td.number { (short(totals.cache_read_tokens)) " (" (percent(totals.cache_read_tokens, prompt)) ")" }
            td.number { (short(totals.cache_write_tokens)) }
            td.number { (number(totals.compactions.into())) }
            td { (time(project.update_time.as_ref())) }
        }
    }
}
