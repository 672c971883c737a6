//! An agent that, now and then, asks for what is another tenant's while the server is in trouble: whatever it
//! asks, it has to be told just what it is told of a session that is not there.

use std::time::Duration;

use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{ListMessagesRequest, ListMessagesResponse};
use palimpsest_tests::calls::{Rpc, all};
use palimpsest_tests::chance::next;
use palimpsest_tests::say::{append, prepare, user, uuid, with_id};
use palimpsest_tests::server::Context;
use palimpsest_tests::tenant::{told, with};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// How long it waits for an answer.
const PATIENCE: Duration = Duration::from_millis(800);
/// A number that no turn has: a message with it would be found among those of an agent.
const FOREIGN: u64 = 0xFFFF_FFFF;
/// The end of a name that nobody has, as long as that of an agent's session.
const NOBODY: &str = "nobod-y";

/// What intruders did together.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Intrusions {
    /// Calls about what is another tenant's.
    pub(crate) calls: u64,
    /// Those that were answered as calls about nothing are, compared in all that a caller is told.
    pub(crate) as_missing: u64,
    /// Those that met trouble instead, so that nothing was told.
    pub(crate) unanswered: u64,
    /// Pages that were asked for with a token of another tenant's.
    pub(crate) tokens: u64,
}

impl std::ops::AddAssign for Intrusions {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.as_missing += other.as_missing;
        self.unanswered += other.unanswered;
        self.tokens += other.tokens;
    }
}

/// Whose key it has, and whose session it asks for.
#[derive(Debug)]
pub(crate) struct Intruder {
    key: String,
    theirs: String,
    /// The key of who may read that session, for what only a leak could give away.
    owners: String,
    /// A place in the other tenant's transcript, as the server gave it to its owner.
    token: String,
    rpcs: Vec<Rpc>,
    random: u64,
    pub(crate) done: Intrusions,
}

impl Intruder {
    pub(crate) fn new(key: &str, (theirs, owners): (String, String), seed: u64) -> Self {
        Self {
            key: key.to_owned(),
            theirs,
            owners,
            token: String::new(),
            rpcs: all(),
            random: seed | 1,
            done: Intrusions::default(),
        }
    }

    /// Gets a page token as the owner of the session would.
    pub(crate) async fn steal(&mut self, channel: &Channel) {
        let mut client = SessionServiceClient::new(channel.clone());
        let request = Self::page(&self.theirs, String::new());
        if let Ok(page) = client.list_messages(with(&self.owners, request)).await {
            self.token = page.into_inner().next_page_token;
        }
    }

    /// One call of any kind, about a session of another's and about one that nobody has.
    pub(crate) async fn intrude(&mut self, context: &mut Context, channel: &Channel) {
        let kinds = self.rpcs.len() + 3;
        let kind = usize::try_from(next(&mut self.random)).unwrap_or(0) % kinds;
        let project = self.theirs.split("/sessions/").next().unwrap_or_default();
        let (there, gone) = match self.rpcs.get(kind) {
            Some(rpc) if rpc.of_project => (project.to_owned(), "projects/nob".to_owned()),
            _ => {
                let gone = &self.theirs[..self.theirs.len() - NOBODY.len()];
                (self.theirs.clone(), format!("{gone}{NOBODY}"))
            }
        };
        assert_eq!(there.len(), gone.len());
        self.done.calls += 1;
        let ours = self.ask(kind, context, channel, &there).await;
        let nobodys = self.ask(kind, context, channel, &gone).await;
        let (Some(ours), Some(nobodys)) = (ours, nobodys) else {
            self.done.unanswered += 1;
            return;
        };
        let swap = [(gone.as_str(), there.as_str())];
        assert_eq!(
            told(&ours, &[]),
            told(&nobodys, &swap),
            "kind {kind} of {there}"
        );
        self.done.as_missing += 1;
        self.done.tokens += u64::from(kind == self.rpcs.len() && !self.token.is_empty());
    }

    /// The refusal; none when the server was in trouble. An answer ends the test.
    async fn ask(
        &self,
        kind: usize,
        context: &mut Context,
        channel: &Channel,
        name: &str,
    ) -> Option<Status> {
        let foreign = || vec![with_id(&uuid(FOREIGN), user("what does not belong here"))];
        let asked = async {
            match (self.rpcs.get(kind), kind - self.rpcs.len().min(kind)) {
                (Some(rpc), _) => answered(rpc, channel, &self.key, name).await,
                (None, 0) => {
                    let request = Self::page(name, self.token.clone());
                    let mut client = SessionServiceClient::new(channel.clone());
                    let page = client.list_messages(with(&self.key, request)).await;
                    page.map(drop::<tonic::Response<ListMessagesResponse>>)
                }
                (None, 1) => {
                    let request = with(&self.key, append(name, foreign()));
                    context.append_messages(request).await.map(drop)
                }
                (None, _) => {
                    let request = with(&self.key, prepare(name, foreign()));
                    context.prepare_context(request).await.map(drop)
                }
            }
        };
        let status = match tokio::time::timeout(PATIENCE, asked).await {
            Err(_) => return None,
            Ok(Ok(())) => panic!("kind {kind}: {name} was answered to another tenant"),
            Ok(Err(status)) => status,
        };
        let reason = status.get_details_error_info().map(|info| info.reason);
        match (status.code(), reason.as_deref()) {
            (Code::NotFound, Some("SESSION_NOT_FOUND" | "PROJECT_NOT_FOUND")) => Some(status),
            (Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted, _)
            | (Code::Unknown | Code::Cancelled | Code::Internal, None) => None,
            _ => panic!("kind {kind} of {name}: {status:?}"),
        }
    }

    fn page(name: &str, page_token: String) -> ListMessagesRequest {
        ListMessagesRequest {
            session: name.to_owned(),
            page_size: 1,
            page_token,
            ..ListMessagesRequest::default()
        }
    }
}

/// Tells a refusal from an answer. A stream that is open is one, though nothing comes of it yet.
async fn answered(rpc: &Rpc, channel: &Channel, key: &str, name: &str) -> Result<(), Status> {
    let mut stream = rpc.open(channel, Some(key), name).await?;
    let first = tokio::time::timeout(PATIENCE / 4, stream.message()).await;
    first.map_or(Ok(()), |first| first.map(drop))
}
