//! The report at the end of a run: requests, tokens and sessions.

use std::collections::HashMap;

use palimpsest_core::ids::Timestamp;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{ListSessionsRequest, Session, SessionOrder};
use tonic::transport::Channel;

use super::folder::RunFolder;
use crate::client::reply_of;
use crate::output::{number, one_line};

/// The project of requests without a project in their path.
const PROJECT: &str = "projects/default";
/// The maximum number of sessions in the report.
const MAX_SESSIONS: usize = 10;
const MAX_TITLE_CHARS: usize = 60;

/// The requests of a run, as the metrics of the gateway count them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) requests: u64,
    /// Requests that reached the gateway, also those that no provider answered.
    pub(super) received: u64,
    /// Input tokens that are neither read from a cache nor written to one.
    uncached: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
}

impl Traffic {
    /// Reads metrics in the Prometheus text format.
    pub(super) fn of(exposition: &str) -> Self {
        let sum = |name: &str, label: &str| -> u64 {
            let values = exposition.lines().filter_map(|line| {
                // A line has the form `name{label="value"} 12`. Comments begin with `#` and have no such name.
                let (series, value) = line.rsplit_once(' ')?;
                let labels = series.strip_prefix(name)?.strip_prefix('{')?;
                let value: u64 = value.parse().ok()?;
                labels.contains(label).then_some(value)
            });
            values.sum()
        };
        let tokens = |kind: &str| {
            let label = format!("kind=\"{kind}\"");
            sum("palimpsest_gateway_tokens_total", &label)
        };
        Self {
            // An empty label is in every series, so all outcomes count.
            requests: sum("palimpsest_gateway_responses_total", ""),
            received: sum("palimpsest_gateway_requests_total", ""),
            uncached: tokens("uncached"),
            cache_read: tokens("cache_read"),
            cache_write: tokens("cache_write"),
            output: tokens("output"),
        }
    }

    fn line(&self) -> String {
        let input = self.uncached + self.cache_read + self.cache_write;
        format!(
            "{}; {} input tokens ({} read from the cache, {} written to it), {} output tokens",
            counted(self.requests, "model request"),
            number(input),
            number(self.cache_read),
            number(self.cache_write),
            number(self.output),
        )
    }
}

/// The number of messages of each session, by name.
pub(super) type MessageCounts = HashMap<String, u64>;

/// Returns the number of messages of each session.
pub(super) async fn message_counts(channel: Channel) -> anyhow::Result<MessageCounts> {
    let mut client = SessionServiceClient::new(channel);
    let (mut counts, mut page_token) = (MessageCounts::new(), String::new());
    loop {
        let request = ListSessionsRequest {
            parent: PROJECT.to_owned(),
            // The server lowers it to its own limit.
            page_size: 1_000,
            page_token,
            // An update of session memory can change the order of updates between two pages.
            order: SessionOrder::CreatedDesc.into(),
            ..ListSessionsRequest::default()
        };
        let page = reply_of(client.list_sessions(request).await)?;
        let of_page = page.sessions.into_iter().map(|session| {
            let count = messages(&session);
            (session.name, count)
        });
        counts.extend(of_page);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(counts);
        }
    }
}

/// Returns the sessions that received messages since `start`, latest first. `before` has the counts at that time.
pub(super) async fn sessions_since(
    channel: Channel,
    start: Timestamp,
    before: &MessageCounts,
) -> anyhow::Result<Vec<Session>> {
    let mut client = SessionServiceClient::new(channel);
    let (mut sessions, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListSessionsRequest {
            parent: PROJECT.to_owned(),
            page_token,
            ..ListSessionsRequest::default()
        };
        let page = reply_of(client.list_sessions(request).await)?;
        let listed = page.sessions.len();
        let changed = page.sessions.into_iter().take_while(|session| {
            let changed = session.update_time.unwrap_or_default();
            let changed_ms = changed.seconds * 1_000 + i64::from(changed.nanos / 1_000_000);
            changed_ms >= start.as_millis()
        });
        let changed: Vec<Session> = changed.collect();
        page_token = page.next_page_token;
        // The order is that of the changes, so the first older session ends the list.
        let is_last = changed.len() < listed || page_token.is_empty();
        // The service also updates the session memory of earlier runs, which adds no message.
        let has_more = |session: &Session| {
            let known = before.get(&session.name).copied();
            messages(session) > known.unwrap_or(0)
        };
        sessions.extend(changed.into_iter().filter(has_more));
        if is_last {
            return Ok(sessions);
        }
    }
}

/// Returns the lines of the report.
pub(super) fn lines(traffic: &Traffic, sessions: &[Session], folder: &RunFolder) -> Vec<String> {
    let mut lines = vec![traffic.line()];
    if sessions.is_empty() {
        return lines;
    }
    lines.push(format!("{}:", counted(sessions.len() as u64, "session")));
    for session in sessions.iter().take(MAX_SESSIONS) {
        let title = if session.title.is_empty() {
            &session.first_prompt
        } else {
            &session.title
        };
        lines.push(format!(
            "  {}  {}  {}",
            id(session),
            counted(messages(session), "message"),
            one_line(title, MAX_TITLE_CHARS)
        ));
    }
    if let (Some(option), Some(latest)) = (folder.option(), sessions.first()) {
        lines.push(format!(
            "print the latest one: palimpsest run {option}-- palimpsest inspect {}",
            id(latest)
        ));
    }
    lines
}

fn messages(session: &Session) -> u64 {
    session.counts.unwrap_or_default().messages
}

fn id(session: &Session) -> &str {
    let name = session.name.rsplit_once('/');
    name.map_or(session.name.as_str(), |(_, id)| id)
}

fn counted(count: u64, name: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {name}{plural}", number(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_the_sum_over_apis_and_outcomes() {
        let exposition = "\
# HELP palimpsest_gateway_responses_total Responses.
palimpsest_gateway_responses_total{api=\"chat\",outcome=\"complete\"} 1200
palimpsest_gateway_responses_total{api=\"messages\",outcome=\"failed\"} 2
palimpsest_gateway_responses_total_other{api=\"messages\"} 9
palimpsest_gateway_tokens_total{api=\"chat\",kind=\"uncached\"} 10
palimpsest_gateway_tokens_total{api=\"messages\",kind=\"uncached\"} 1
palimpsest_gateway_tokens_total{api=\"messages\",kind=\"cache_read\"} 4000
palimpsest_gateway_tokens_total{api=\"messages\",kind=\"cache_write\"} 300
palimpsest_gateway_tokens_total{api=\"messages\",kind=\"output\"} 7
";
        // The name with the suffix `_other` is another metric, so its 9 does not count.
        let traffic = Traffic::of(exposition);
        assert_eq!(
            traffic.line(),
            "1,202 model requests; 4,311 input tokens (4,000 read from the cache, 300 written to it), 7 output tokens"
        );
        assert_eq!(Traffic::of(""), Traffic::default());
    }
}
