//! An agent that calls for another tenant's data while the server has faults. Every reply must equal the reply for a
//! missing session.

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

/// The deadline of a call.
const TIMEOUT: Duration = Duration::from_millis(800);
/// A turn number that no agent uses. A message with this number in an agent's session reveals a leak.
const FOREIGN: u64 = 0xFFFF_FFFF;
/// The end of a session name that does not exist. Its length equals that of an agent's session name.
const NOBODY: &str = "nobod-y";

/// The calls of all intruders.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Intrusions {
    /// Calls for another tenant's data.
    pub(crate) calls: u64,
    /// Calls whose error equaled the error for a missing session in every detail.
    pub(crate) as_missing: u64,
    /// Calls that failed for another reason, such as a fault.
    pub(crate) unanswered: u64,
    /// Pages that were requested with another tenant's page token.
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

/// The intruder's own key and the session that it calls for.
#[derive(Debug)]
pub(crate) struct Intruder {
    key: String,
    theirs: String,
    /// The key of the session's owner, used to obtain tokens that only a leak could reveal.
    owners: String,
    /// A page token of the other tenant's transcript.
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

    /// Gets a page token with the owner's key.
    pub(crate) async fn steal(&mut self, channel: &Channel) {
        let mut client = SessionServiceClient::new(channel.clone());
        let request = Self::page(&self.theirs, String::new());
        if let Ok(page) = client.list_messages(with(&self.owners, request)).await {
            self.token = page.into_inner().next_page_token;
        }
    }

    /// Makes one random call twice: for another tenant's session and for a missing session. Asserts that both errors
    /// are equal.
    pub(crate) async fn intrude(&mut self, context: &mut Context, channel: &Channel) {
        // Three kinds follow the rpcs: a page token, an append and a prepare.
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

    /// Returns the error of the call. `None` if the call failed because of a fault. Panics if the call succeeds.
    async fn ask(
        &self,
        kind: usize,
        context: &mut Context,
        channel: &Channel,
        name: &str,
    ) -> Option<Status> {
        let foreign = || vec![with_id(&uuid(FOREIGN), user("what does not belong here"))];
        let asked = async {
            // The difference counts the kinds after the rpcs. It is 0 for each rpc.
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
        let status = match tokio::time::timeout(TIMEOUT, asked).await {
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

/// Returns an error if the call was rejected. An open stream counts as accepted, even without a first message.
async fn answered(rpc: &Rpc, channel: &Channel, key: &str, name: &str) -> Result<(), Status> {
    let mut stream = rpc.open(channel, Some(key), name).await?;
    let first = tokio::time::timeout(TIMEOUT / 4, stream.message()).await;
    first.map_or(Ok(()), |first| first.map(drop))
}
