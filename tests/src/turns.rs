//! The turns of an agent whose calls may fail: the acknowledged turns, and one turn whose outcome is unknown.

use palimpsest_proto::context::v1::ListMessagesRequest;
use tonic::{Code, Request};

use crate::say::uuid;
use crate::tenant::with;
use crate::{Sessions, refused};

/// The turns of one session. Each turn has the same number of messages.
#[derive(Debug)]
pub struct Turns {
    session: String,
    parts: u64,
    /// The acknowledged turns, in order.
    there: Vec<u64>,
    /// The turn whose outcome is unknown.
    pending: Option<u64>,
    next: u64,
}

impl Turns {
    /// Creates a session without turns. `parts` is the number of messages per turn.
    pub fn new(session: &str, parts: u64) -> Self {
        Self {
            session: session.to_owned(),
            parts,
            there: Vec::new(),
            pending: None,
            next: 0,
        }
    }

    /// Returns the name of the session.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Returns the ids of a turn's messages.
    pub fn ids(&self, turn: u64) -> impl Iterator<Item = String> + use<> {
        let first = turn * self.parts;
        (first..first + self.parts).map(uuid)
    }

    /// Returns the turn to take: the previous one if its outcome is unknown, otherwise the next one.
    pub fn begin(&mut self) -> u64 {
        *self.pending.get_or_insert(self.next)
    }

    /// Records that a turn was acknowledged.
    pub fn done(&mut self, turn: u64) {
        self.there.push(turn);
        (self.pending, self.next) = (None, turn + 1);
    }

    /// Returns the acknowledged turns.
    pub fn there(&self) -> &[u64] {
        &self.there
    }

    /// Returns true if the outcome of a turn is unknown.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns true if a turn was ever sent.
    pub fn has_begun(&self) -> bool {
        self.next > 0 || self.pending.is_some()
    }

    /// Asserts that the transcript contains all acknowledged turns, and all messages or none of the unacknowledged one.
    /// Records whether that turn took effect. Returns false if the session does not exist, which is allowed only before
    /// the first turn.
    pub async fn check(&mut self, sessions: &mut Sessions, key: Option<&str>) -> bool {
        let Some(found) = self.listed(sessions, key).await else {
            return false;
        };
        // The turn whose call failed may have been committed before the failure.
        if found != self.there {
            let pending = self.pending.take().unwrap_or_else(|| {
                panic!("{}: {found:?} instead of {:?}", self.session, self.there)
            });
            self.done(pending);
            assert_eq!(found, self.there, "{}", self.session);
        }
        true
    }

    /// Returns the turns in the transcript. Asserts that each one is complete.
    async fn listed(&self, sessions: &mut Sessions, key: Option<&str>) -> Option<Vec<u64>> {
        let mut request = ListMessagesRequest {
            session: self.session.clone(),
            page_size: 500,
            ..ListMessagesRequest::default()
        };
        let mut ids = Vec::new();
        loop {
            let asked = request.clone();
            let asked = match key {
                Some(key) => with(key, asked),
                None => Request::new(asked),
            };
            let page = match sessions.list_messages(asked).await {
                Ok(page) => page.into_inner(),
                Err(status) => {
                    refused(&status, Code::NotFound, "SESSION_NOT_FOUND");
                    assert!(self.there.is_empty(), "{} is lost", self.session);
                    return None;
                }
            };
            // Messages of compactions belong to no turn.
            let ours = page.messages.into_iter().map(|message| message.id);
            ids.extend(ours.filter(|id| id.starts_with(&uuid(0)[..20])));
            if page.next_page_token.is_empty() {
                break;
            }
            request.page_token = page.next_page_token;
        }
        let ends = self.next.max(self.pending.map_or(0, |turn| turn + 1));
        let turns: Vec<u64> = (0..ends)
            .filter(|turn| self.ids(*turn).next().is_some_and(|id| ids.contains(&id)))
            .collect();
        // An append is atomic: a turn has all its messages, in order, or none.
        let whole = turns.iter().flat_map(|turn| self.ids(*turn));
        assert!(ids.iter().cloned().eq(whole), "{}: {ids:?}", self.session);
        Some(turns)
    }
}
