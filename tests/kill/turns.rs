//! Callers that take complete turns (one call appends and prepares) and sometimes rewind. They record the acknowledged
//! changes and the one that is not acknowledged.

use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{ListMessagesRequest, RewindSessionRequest, Visibility};
use palimpsest_tests::array::flat;
use palimpsest_tests::say::{assistant, prepare, user, uuid, with_id};
use palimpsest_tests::server::{Context, Server};
use palimpsest_tests::{Array, name, refused};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::rounds::Caller;

/// Number of sessions under load.
const SESSIONS: u64 = 30;
/// Changes per session and round.
const CHANGES: u64 = 40;
/// Number of changes between two rewinds.
const REWIND_EVERY: u64 = 5;

/// A change, in a form that can be repeated.
#[derive(Debug, Clone)]
enum Change {
    /// A turn that appends the messages with these numbers.
    Turn(Vec<u64>),
    /// A rewind to this message.
    Rewind(u64),
}

impl Change {
    /// Returns the numbers of the messages that the view shows after the change.
    fn apply(&self, shown: &[u64]) -> Vec<u64> {
        match self {
            Self::Turn(numbers) => [shown, numbers].concat(),
            Self::Rewind(to) => {
                let kept = shown.iter().position(|number| number == to).unwrap() + 1;
                shown[..kept].to_vec()
            }
        }
    }
}

/// A caller and the expected state of its session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    session: String,
    /// Number of attempted messages and of attempted changes.
    messages: u64,
    changes: u64,
    /// The numbers of all messages in the transcript, and of those in the view.
    there: Vec<u64>,
    shown: Vec<u64>,
    /// The array, built from the replies.
    array: Array,
    /// The last received revision.
    revision: u64,
    /// The change that is not acknowledged.
    pending: Option<Change>,
    acknowledged: usize,
    failed: bool,
}

/// Returns the message with this number. The model's messages have odd numbers, so that roles alternate.
fn said(number: u64) -> palimpsest_proto::context::v1::MessageInput {
    let text = format!("message {number}");
    let said = if number % 2 == 1 {
        assistant(&text)
    } else {
        user(&text)
    };
    with_id(&uuid(number), said)
}

impl Turns {
    /// Creates all callers, with new sessions.
    pub(crate) fn all() -> Vec<Self> {
        let one = |number| Self {
            session: name(&format!("t{number}")),
            ..Self::default()
        };
        (0..SESSIONS).map(one).collect()
    }

    fn next(&mut self) -> Change {
        self.changes += 1;
        if self.changes.is_multiple_of(REWIND_EVERY) {
            // Rewinds to a user message in the later half. Every second message is one.
            let users = self.shown.len().div_ceil(2);
            let back = usize::try_from(self.changes).unwrap() % (users / 2 + 1);
            return Change::Rewind(self.shown[2 * (users - 1 - back)]);
        }
        let from = self.messages;
        // The first turn is a question. Every other turn is a response and the next question.
        self.messages += if from == 0 { 1 } else { 2 };
        Change::Turn((from..self.messages).collect())
    }

    /// Makes a change, which may have taken effect before.
    async fn make(&mut self, client: &mut Context, change: &Change) -> Result<(), Status> {
        let revision = match change {
            Change::Turn(numbers) => {
                let messages = numbers.iter().copied().map(said).collect();
                let mut request = prepare(&self.session, messages);
                request.known_etag = self.array.etag.clone();
                let reply = client.prepare_context(request).await?.into_inner();
                self.array.take(&reply);
                self.there.extend(numbers);
                reply.revision
            }
            Change::Rewind(to) => {
                let request = RewindSessionRequest {
                    session: self.session.clone(),
                    // A repeat after a crash must be the same call.
                    request_id: format!("rewind {}", self.changes),
                    target_message: Some(TargetMessage::ToMessageId(uuid(*to))),
                    ..Default::default()
                };
                let reply = client.rewind_session(request).await?.into_inner();
                reply.revision
            }
        };
        assert!(revision >= self.revision, "{self:?}");
        self.revision = revision;
        self.shown = change.apply(&self.shown);
        Ok(())
    }

    /// Returns the numbers of the messages in the transcript, and of those in the view. `None` if the session does not
    /// exist.
    async fn listed(&self, server: &Server) -> Option<(Vec<u64>, Vec<u64>)> {
        let request = ListMessagesRequest {
            session: self.session.clone(),
            page_size: 1_000,
            ..Default::default()
        };
        let listed = match server.sessions().await.list_messages(request).await {
            Ok(listed) => listed.into_inner(),
            Err(status) => {
                refused(&status, Code::NotFound, "SESSION_NOT_FOUND");
                return None;
            }
        };
        assert!(listed.revision >= self.revision, "{self:?}");
        let (mut there, mut shown) = (Vec::new(), Vec::new());
        for message in listed.messages {
            let mut numbers = 0..self.messages;
            let number = numbers.find(|number| uuid(*number) == message.id).unwrap();
            there.push(number);
            match message.visibility() {
                Visibility::Visible => shown.push(number),
                visibility => assert_eq!(visibility, Visibility::Rewound),
            }
        }
        Some((there, shown))
    }

    /// Applies the delta to the acknowledged array, and compares the result with the complete view.
    async fn refresh(&mut self, client: &mut Context) {
        let mut request = prepare(&self.session, Vec::new());
        request.known_etag = self.array.etag.clone();
        let reply = client.prepare_context(request).await.unwrap().into_inner();
        let kept = common(&texts(&self.array), &self.shown);
        // After a rewind within the array, the delta begins with the message before the cut.
        let is_cut = kept < self.array.messages.len();
        let kept = kept - usize::from(is_cut);
        assert_eq!(reply.keep_messages as usize, kept, "{self:?}");
        self.array.take(&reply);
        let request = prepare(&self.session, Vec::new());
        let whole = client.prepare_context(request).await.unwrap().into_inner();
        assert_eq!(whole.keep_messages, 0);
        assert_eq!(self.array.messages, whole.messages_json, "{self:?}");
        let expected: Vec<_> = self.shown.iter().map(|number| text(*number)).collect();
        assert_eq!(texts(&self.array), expected, "{}", self.session);
        self.revision = whole.revision;
    }
}

fn text(number: u64) -> String {
    format!(r#"{{"type":"text","text":"message {number}"}}"#)
}

fn texts(array: &Array) -> Vec<String> {
    let blocks = flat(&array.messages).into_iter();
    blocks.map(|(_, block)| block).collect()
}

/// Returns the number of leading messages that equal the shown ones.
fn common(texts: &[String], shown: &[u64]) -> usize {
    let pairs = texts.iter().zip(shown);
    pairs
        .take_while(|(found, number)| **found == text(**number))
        .count()
}

impl Caller for Turns {
    async fn run(mut self, mut client: Context) -> Self {
        for _ in 0..CHANGES {
            let change = self.next();
            if let Err(status) = self.make(&mut client, &change).await {
                // A call that failed because the server stopped has no error details.
                let refusal = status.get_details_error_info();
                assert!(refusal.is_none(), "{change:?}: {status:?}");
                self.pending = Some(change);
                self.failed = true;
                return self;
            }
            self.acknowledged += 1;
        }
        self
    }

    async fn check(&mut self, server: &Server) {
        let mut client = server.context().await;
        let before = (self.there.clone(), self.shown.clone());
        let found = self.listed(server).await.unwrap_or_default();
        // An unacknowledged change took effect completely or not at all.
        if found != before {
            let Some(change) = &self.pending else {
                panic!("{self:?}: found {found:?}")
            };
            self.shown = change.apply(&self.shown);
            if let Change::Turn(numbers) = change {
                self.there.extend(numbers);
            }
            let after = (self.there.clone(), self.shown.clone());
            assert_eq!(found, after, "{before:?} and {:?}", self.pending);
        }
        if !self.shown.is_empty() {
            self.refresh(&mut client).await;
        }
        // A repeat takes effect if the change had not, and otherwise changes nothing.
        if let Some(change) = self.pending.take() {
            // `make` records the effect of the change, so it begins with the state before the change.
            (self.there, self.shown) = before;
            self.make(&mut client, &change).await.unwrap();
            let found = self.listed(server).await.unwrap();
            assert_eq!(
                found,
                (self.there.clone(), self.shown.clone()),
                "{change:?}"
            );
            self.refresh(&mut client).await;
        }
    }

    fn has_failed(&self) -> bool {
        self.failed
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged
    }
}
