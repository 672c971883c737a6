//! The event stream of a session.

use std::time::Duration;

use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{SessionEvent, WatchSessionRequest, WatchSessionResponse};
use tokio::time::timeout;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::client::{reply_of, status_error};

/// The time-out of an event. After it, the demo continues without the event, which is then missing from the picture and
/// from the sums of the report.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Events {
    stream: Streaming<WatchSessionResponse>,
    /// The revision of the last received event.
    seen: u64,
}

impl Events {
    pub(super) async fn of(
        sessions: &mut SessionServiceClient<Channel>,
        session: &str,
    ) -> anyhow::Result<Self> {
        let request = WatchSessionRequest {
            session: session.to_owned(),
            ..WatchSessionRequest::default()
        };
        let stream = reply_of(sessions.watch_session(request).await)?;
        Ok(Self { stream, seen: 0 })
    }

    /// Returns the new events up to a revision.
    pub(super) async fn until(&mut self, revision: u64) -> anyhow::Result<Vec<SessionEvent>> {
        let mut events = Vec::new();
        // Events arrive after the reply that caused them. Without the wait, they would be shown with a later request.
        while self.seen < revision {
            // After a timeout, the late events are part of the next call.
            let Ok(element) = timeout(EVENT_TIMEOUT, self.stream.message()).await else {
                break;
            };
            let Some(element) = element.map_err(|status| status_error(&status))? else {
                break;
            };
            // Elements without an event advance the revision too, and keep the stream alive.
            self.seen = self.seen.max(element.revision);
            events.extend(element.event);
        }
        Ok(events)
    }
}
