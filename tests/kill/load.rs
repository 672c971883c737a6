//! Callers that append and prepare until the server stops, and record the acknowledged calls.

use bytes::Bytes;
use palimpsest_proto::context::v1::ListMessagesRequest;
use palimpsest_tests::array::{check_prefix, flat, values};
use palimpsest_tests::say::{append, prepare, user, uuid, with_id};
use palimpsest_tests::server::{Context, Server};
use palimpsest_tests::{name, refused};
use tonic::Code;

use crate::rounds::Caller;

/// Number of sessions under load.
const SESSIONS: u64 = 50;
/// Appends per session and round.
const APPENDS: u64 = 20;

/// A caller and the expected state of its session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    session: String,
    /// Number of attempted appends in all rounds. Each one has one message.
    tried: u64,
    /// The numbers of the acknowledged messages.
    acknowledged: Vec<u64>,
    /// The epoch and the array of the last received view.
    view: (u64, Vec<Bytes>),
    /// The last received revision.
    revision: u64,
    /// Number of failed calls.
    failed: u64,
}

impl Known {
    /// Creates all callers, with new sessions.
    pub(crate) fn all() -> Vec<Self> {
        let one = |number| Self {
            session: name(&format!("k{number}")),
            ..Self::default()
        };
        (0..SESSIONS).map(one).collect()
    }
}

impl Caller for Known {
    /// Appends and prepares until all appends are done or the server does not answer.
    async fn run(mut self, mut client: Context) -> Self {
        for _ in 0..APPENDS {
            let number = self.tried;
            self.tried += 1;
            let said = with_id(&uuid(number), user(&format!("message {number}")));
            let request = append(&self.session, vec![said]);
            let Ok(reply) = client.append_messages(request).await else {
                self.failed += 1;
                return self;
            };
            self.acknowledged.push(number);
            self.revision = reply.into_inner().revision;
            if number % 4 == 3 {
                match client
                    .prepare_context(prepare(&self.session, Vec::new()))
                    .await
                {
                    Ok(reply) => {
                        let reply = reply.into_inner();
                        self.view = (reply.epoch, reply.messages_json);
                        self.revision = reply.revision;
                    }
                    Err(_) => return self,
                }
            }
        }
        self
    }

    fn has_failed(&self) -> bool {
        self.failed > 0
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    async fn check(&mut self, server: &Server) {
        let mut sessions = server.sessions().await;
        let mut client = server.context().await;
        let request = ListMessagesRequest {
            session: self.session.clone(),
            page_size: 1_000,
            ..Default::default()
        };
        let listed = match sessions.list_messages(request).await {
            Ok(listed) => listed.into_inner(),
            Err(status) => {
                refused(&status, Code::NotFound, "SESSION_NOT_FOUND");
                assert!(self.acknowledged.is_empty(), "{self:?}");
                return;
            }
        };
        assert!(listed.revision >= self.revision, "{self:?}");
        let text = |json| values(json)[0]["content"].to_string();
        let mut found = Vec::new();
        for (ordinal, message) in (1..).zip(&listed.messages) {
            assert_eq!(message.ordinal, ordinal);
            let number = (0..self.tried)
                .find(|number| uuid(*number) == message.id)
                .unwrap();
            // The quotation mark after the number distinguishes message 1 from message 10.
            assert!(text(&message.messages_json).contains(&format!("message {number}\"")));
            found.push(number);
        }
        assert!(
            found.is_sorted_by(|a, b| a < b),
            "messages are duplicated or out of order: {found:?}"
        );
        let missing: Vec<_> = self
            .acknowledged
            .iter()
            .filter(|number| !found.contains(number))
            .collect();
        assert!(missing.is_empty(), "{}: lost {missing:?}", self.session);
        // An unacknowledged append that was found is durable, so later checks expect it.
        self.acknowledged = found;

        // A wrong expected revision makes the server report the current one without a change.
        let mut wrong = append(&self.session, vec![user("never")]);
        wrong.expected_revision = Some(listed.revision + 1);
        let status = client.append_messages(wrong).await.unwrap_err();
        let metadata = refused(&status, Code::Aborted, "REVISION_MISMATCH");
        assert_eq!(metadata["current_revision"], listed.revision.to_string());

        let mut request = prepare(&self.session, Vec::new());
        // If the rejected append had changed the session, this revision would not match.
        request.expected_revision = Some(listed.revision);
        let reply = client.prepare_context(request).await.unwrap().into_inner();
        assert_eq!(reply.epoch, self.view.0);
        check_prefix(&flat(&self.view.1), &flat(&reply.messages_json));
        self.revision = reply.revision;
    }
}
