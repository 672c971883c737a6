//! The messages that rewinds and snips have removed from a session, read from its events.
//!
//! The server forgets a `request_id` after a day, and its events stay. With them, a later import of the same file repeats
//! no rewind and no removal.

use std::collections::HashSet;

use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{EventKind, ListEventsRequest};
use tonic::Status;

use crate::client::Clients;

/// The messages by their ids.
#[derive(Debug, Default)]
pub(super) struct RemovedMessages {
    rewound: HashSet<String>,
    snipped: HashSet<String>,
}

impl RemovedMessages {
    /// Reads the events of a session.
    pub(super) async fn read(clients: &mut Clients, session: &str) -> Result<Self, Status> {
        let mut removed = Self::default();
        let mut request = ListEventsRequest {
            session: session.to_owned(),
            kinds: vec![
                EventKind::SessionRewound.into(),
                EventKind::ContentSnipped.into(),
            ],
            ..ListEventsRequest::default()
        };
        loop {
            let page = clients.sessions.list_events(request.clone()).await?;
            let page = page.into_inner();
            for event in page.events.into_iter().filter_map(|event| event.event) {
                match event {
                    Event::SessionRewound(event) => removed.rewound.extend(event.message_ids),
                    Event::ContentSnipped(event) => removed.snipped.extend(event.message_ids),
                    _ => {}
                }
            }
            if page.next_page_token.is_empty() {
                return Ok(removed);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Returns true if a rewind removed one of the messages.
    pub(super) fn were_rewound(&self, messages: &[String]) -> bool {
        messages.iter().any(|id| self.rewound.contains(id))
    }

    /// Returns true if a snip removed the message.
    pub(super) fn was_snipped(&self, message: &str) -> bool {
        self.snipped.contains(message)
    }
}
