//! Callers that take whole turns, each an append and a view in one call, and now and then rewind;
//! they remember what was acknowledged, and the one change that was not.

use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{ListMessagesRequest, RewindSessionRequest, Visibility};
use palimpsest_tests::array::{flat, untagged};
use palimpsest_tests::say::{assistant, prepare, user, uuid, with_id};
use palimpsest_tests::server::{Context, Server};
use palimpsest_tests::{Array, name, refused};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::rounds::Caller;

/// Sessions under load.
const SESSIONS: u64 = 30;
/// Changes to each of them in one round.
const CHANGES: u64 = 40;
/// Every so many changes a rewind.
const REWIND_EVERY: u64 = 5;

/// A change, as it can be made again.
#[derive(Debug, Clone)]
enum Change {
    /// A turn that brings the messages of these numbers.
    Turn(Vec<u64>),
    /// All after this message leaves the view.
    Rewind(u64),
}

impl Change {
    /// The numbers of the messages that are shown after it.
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

/// What one caller knows of its session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    session: String,
    /// How many messages it tried to append, and how many changes it tried to make.
    messages: u64,
    changes: u64,
    /// The numbers of all messages that are there, and of those that are shown.
    there: Vec<u64>,
    shown: Vec<u64>,
    /// The array as it was made of the last reply.
    array: Array,
    /// The last revision that it heard of.
    revision: u64,
    /// The change that was not acknowledged.
    pending: Option<Change>,
    acknowledged: usize,
    failed: bool,
}

/// The model's messages have odd numbers, so that turns always alternate.
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
    /// Callers that know nothing yet.
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
            // To a user's message, every second one, somewhere in the later half.
            let users = self.shown.len().div_ceil(2);
            let back = usize::try_from(self.changes).unwrap() % (users / 2 + 1);
            return Change::Rewind(self.shown[2 * (users - 1 - back)]);
        }
        let from = self.messages;
        // The first turn is a question, all others are an answer and the next one.
        self.messages += if from == 0 { 1 } else { 2 };
        Change::Turn((from..self.messages).collect())
    }

    /// Makes a change, which may be one that was made already.
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

    /// What the transcript has, and what of it takes part in the view.
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

    /// Takes the delta to the array that was acknowledged, and compares with the whole view.
    async fn refresh(&mut self, client: &mut Context) {
        let mut request = prepare(&self.session, Vec::new());
        request.known_etag = self.array.etag.clone();
        let reply = client.prepare_context(request).await.unwrap().into_inner();
        let kept = common(&texts(&self.array), &self.shown);
        // Where a rewind cut the array, the message before the cut comes again.
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
    blocks.map(|(_, block)| untagged(&block)).collect()
}

/// How many messages at the beginning are those that are shown.
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
                // The server is gone; it refused nothing.
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
        // What was not acknowledged happened wholly, or not at all.
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
        // Made again, it happens if it had not, and does nothing if it had.
        if let Some(change) = self.pending.take() {
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
