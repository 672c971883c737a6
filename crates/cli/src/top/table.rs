//! The rows of the table: one session each, as text.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use clap::ValueEnum;
use palimpsest_core::ids::Timestamp;
use palimpsest_proto::context::v1::{ListSessionsResponse, Session, SessionState};

use crate::output::{align_right, count, number, one_line, table, words};

/// The columns of the table.
pub(super) const COLUMNS: [&str; 7] = [
    "session",
    "state",
    "changed",
    "messages",
    "reported",
    "model",
    "title or first prompt",
];
/// The columns that are aligned to the right.
pub(super) const NUMBERS: [usize; 3] = [2, 3, 4];
/// The maximum characters of a title in the text.
const MAX_TITLE: usize = 60;

/// The column that orders the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SortKey {
    /// Latest change first
    Changed,
    /// Most messages first
    Messages,
    /// Most reported tokens first
    Reported,
    /// By name
    Session,
    /// By state
    State,
}

/// The content of the table.
pub(super) struct TopRows<'a> {
    project: &'a str,
    rows: Vec<[String; 7]>,
    /// The number of rows by state.
    states: BTreeMap<String, usize>,
    is_cut: bool,
    /// The number of sessions of the project whose rows cannot be decoded.
    unreadable: u32,
    unavailable_nodes: u32,
    now: Timestamp,
}

impl<'a> TopRows<'a> {
    pub(super) fn new(
        project: &'a str,
        page: &'a ListSessionsResponse,
        sort: SortKey,
        now: Timestamp,
    ) -> Self {
        let mut sessions: Vec<&Session> = page.sessions.iter().collect();
        let counts = |session: &Session| session.counts.unwrap_or_default();
        match sort {
            // The server returns this order.
            SortKey::Changed => {}
            SortKey::Messages => sessions.sort_by_key(|it| Reverse(counts(it).messages)),
            SortKey::Reported => sessions.sort_by_key(|it| Reverse(counts(it).reported_tokens)),
            SortKey::Session => sessions.sort_by(|a, b| a.name.cmp(&b.name)),
            SortKey::State => sessions.sort_by_key(|it| state(it)),
        }
        let mut states = BTreeMap::new();
        for session in &sessions {
            *states.entry(state(session)).or_default() += 1;
        }
        Self {
            project,
            rows: sessions.iter().map(|session| row(session, now)).collect(),
            states,
            is_cut: !page.next_page_token.is_empty(),
            unreadable: page.unreadable_sessions,
            unavailable_nodes: page.unavailable_nodes,
            now,
        }
    }

    pub(super) fn rows(&self) -> &[[String; 7]] {
        &self.rows
    }

    /// Returns the project, the time and the number of sessions by state.
    pub(super) fn headline(&self) -> String {
        let sessions = count(self.rows.len(), "session");
        let sessions = if self.is_cut {
            format!("the latest {sessions}")
        } else {
            sessions
        };
        let states = self.states.iter();
        let states: Vec<String> = states
            .map(|(state, sessions)| format!("{} {state}", number(*sessions as u64)))
            .collect();
        let time = jiff::Timestamp::from_millisecond(self.now.as_millis()).unwrap_or_default();
        let time = time.strftime("%H:%M:%SZ");
        let states = states.join(", ");
        let end = if states.is_empty() { "" } else { ": " };
        let unreadable = match self.unreadable {
            0 => String::new(),
            more => format!(" · {} cannot be read", number(more.into())),
        };
        let nodes = match self.unavailable_nodes {
            0 => String::new(),
            more => format!(" · without {more} nodes of the database"),
        };
        format!(
            "project {} · {time} · {sessions}{end}{states}{unreadable}{nodes}",
            self.project
        )
    }

    /// Returns the whole table as text.
    pub(super) fn text(&self) -> String {
        let mut table = table(&COLUMNS);
        for row in &self.rows {
            table.add_row(row);
        }
        align_right(&mut table, &NUMBERS);
        format!("{}\n{table}\n", self.headline())
    }
}

fn state(session: &Session) -> String {
    let state = SessionState::try_from(session.state).unwrap_or_default();
    words(state.as_str_name(), "SESSION_STATE_")
}

fn row(session: &Session, now: Timestamp) -> [String; 7] {
    let counts = session.counts.unwrap_or_default();
    let id = session.name.rsplit('/').next().unwrap_or_default();
    let title = if session.title.is_empty() {
        &session.first_prompt
    } else {
        &session.title
    };
    [
        id.to_owned(),
        state(session),
        session
            .update_time
            .as_ref()
            .map_or_else(String::new, |time| age(time, now)),
        number(counts.messages),
        number(counts.reported_tokens),
        session.last_model.clone(),
        one_line(title, MAX_TITLE),
    ]
}

/// Returns the time since a change, in the largest unit.
fn age(time: &prost_types::Timestamp, now: Timestamp) -> String {
    // The clock of the server can be ahead of this one.
    let seconds = (now.as_millis() / 1_000 - time.seconds).max(0);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use palimpsest_proto::context::v1::SessionCounts;

    use super::*;

    pub(in super::super) fn page() -> ListSessionsResponse {
        let session = |id: &str, messages, at, state: SessionState| Session {
            name: format!("projects/p/sessions/{id}"),
            first_prompt: format!("Mend\n{id}."),
            update_time: Some(prost_types::Timestamp {
                seconds: at,
                nanos: 0,
            }),
            counts: Some(SessionCounts {
                messages,
                ..SessionCounts::default()
            }),
            last_model: "claude".into(),
            state: state.into(),
            ..Session::default()
        };
        ListSessionsResponse {
            sessions: vec![
                session("b", 2, 990, SessionState::Idle),
                session("a", 1_700, 400, SessionState::AwaitingModel),
                session("c", 30, -90_000, SessionState::Idle),
            ],
            ..ListSessionsResponse::default()
        }
    }

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    #[test]
    fn rows_are_ordered_by_the_chosen_column() {
        let page = page();
        let ids = |sort| {
            let rows = TopRows::new("p", &page, sort, NOW);
            rows.rows()
                .iter()
                .map(|row| row[0].clone())
                .collect::<String>()
        };
        assert_eq!(ids(SortKey::Changed), "bac");
        assert_eq!(ids(SortKey::Messages), "acb");
        assert_eq!(ids(SortKey::Session), "abc");
        // The order is stable: `b` and `c` are idle and stay in the order of their changes.
        assert_eq!(ids(SortKey::State), "abc");
    }

    #[test]
    fn the_headline_counts_the_sessions_by_state() {
        let mut page = page();
        page.unreadable_sessions = 2;
        let rows = TopRows::new("p", &page, SortKey::Changed, NOW);
        assert_eq!(
            rows.headline(),
            "project p · 00:16:40Z · 3 sessions: 1 awaiting model, 2 idle · 2 cannot be read"
        );
        let changed: Vec<_> = rows.rows().iter().map(|row| row[2].as_str()).collect();
        // The changes are at 990 s, 400 s and -90,000 s, and the time is 1,000 s.
        assert_eq!(changed, ["10 s", "10 min", "1 d"]);
        assert!(rows.text().contains("Mend a."), "{}", rows.text());
    }
}
