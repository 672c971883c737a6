//! `ListProjects`: the projects of a credential, with totals over their sessions.

use std::collections::BTreeSet;

use palimpsest_core::ids::{ProjectId, Timestamp};
use palimpsest_core::message::Digest;
use palimpsest_engine::projects::ProjectTotals;
use palimpsest_proto::context::v1::{ListProjectsRequest, ListProjectsResponse, Project};

use super::Service;
use crate::convert::{self, PageCursor};
use crate::errors::ServiceError;

const DEFAULT_PAGE: u32 = 100;

/// Lists projects. `granted` contains the projects of the credential, or is `None` if these are all projects.
pub(super) async fn list(
    service: &Service,
    request: ListProjectsRequest,
    granted: Option<BTreeSet<ProjectId>>,
) -> Result<ListProjectsResponse, ServiceError> {
    let limits = service.limits();
    let size = convert::page_size(request.page_size, DEFAULT_PAGE, limits.max_page_size);
    // No field of the request must stay equal between pages, so a token is bound to the method alone.
    let digest = Digest::of_bytes(b"ListProjects");
    let after = match convert::page_token(&request.page_token, digest)? {
        Some(PageCursor::Named(_, name)) => Some(name),
        Some(_) => return Err(ServiceError::invalid_page_token()),
        None => None,
    };
    let is_later = |project: &ProjectId| {
        let after = after.as_deref();
        after.is_none_or(|after| project.as_str() > after)
    };
    let mut page: Vec<ProjectTotals> = Vec::new();
    let mut counted = None::<Timestamp>;
    // One project more than the page holds shows that another page follows.
    match granted {
        None => {
            let counts = service.count_sessions(None).await?;
            counted = Some(counts.at);
            let later = counts.projects.iter().filter(|one| is_later(&one.project));
            page.extend(later.take(size + 1).cloned());
        }
        Some(granted) => {
            for project in granted.iter().filter(|project| is_later(project)) {
                if page.len() > size {
                    break;
                }
                let counts = service.count_sessions(Some(project)).await?;
                // The counts can be of different times. The reply states the oldest one.
                counted = Some(counted.map_or(counts.at, |earlier| earlier.min(counts.at)));
                page.extend(counts.projects.iter().cloned());
            }
        }
    }
    let has_more = page.len() > size;
    page.truncate(size);
    let next_page_token = match page.last() {
        Some(last) if has_more => {
            let cursor = PageCursor::Named(0, last.project.as_str().to_owned());
            convert::page_token_text(&cursor, digest)
        }
        _ => String::new(),
    };
    Ok(ListProjectsResponse {
        projects: page.iter().map(project).collect(),
        next_page_token,
        count_time: counted.map(convert::export_timestamp),
    })
}

fn project(totals: &ProjectTotals) -> Project {
    Project {
        name: format!("projects/{}", totals.project.as_str()),
        sessions: totals.sessions,
        recent_sessions: totals.recent,
        sessions_over_threshold: totals.over_threshold,
        update_time: Some(convert::export_timestamp(totals.modified)),
        totals: Some(convert::totals(&totals.totals)),
    }
}
