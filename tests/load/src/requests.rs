//! Creates the requests of a run, and the sessions that they need, before the measurement.

use std::ops::Range;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use palimpsest_proto::context::v1::{
    ByteRange, CallRef, CompactRequest, GetSessionMemoryRequest, ListMessagesRequest, MessageInput,
    PersistToolResultRequest, PersistVerdict, PrepareContextRequest, PrepareContextResponse,
    ReadToolResultRequest, SnipRequest, read_tool_result_request,
};
use palimpsest_tests::Context;
use palimpsest_tests::say::{anthropic, append, prepare, user, uuid, with_id};
use prost::Message;
use serde_json::Value;

use crate::data::{call_id, content, conversation, round_as_json, round_typed, text};
use crate::retry::answered;
use crate::settle::settled;
use crate::test_server::TestServer;
use crate::workloads::{Workload, WorkloadKind};

/// The project of all sessions.
const PROJECT: &str = "projects/load/sessions";
/// Number of sessions that appends use in turn.
const APPENDED: usize = 256;
/// Messages per session for snips.
const SNIPPED: usize = 256;
/// Maximum number of results per session that are submitted before their messages. The limit of the service is 256.
const STORED: usize = 200;
/// Number of sessions that are created in parallel.
const AT_ONCE: usize = 8;

/// Returns length-delimited requests, as ghz reads them. Requests that can be sent only once are created for `numbers`.
/// Repeatable requests use `read` sessions.
pub async fn requests(
    work: &Workload,
    site: &TestServer,
    run: &str,
    (numbers, read): (Range<usize>, usize),
) -> Result<Vec<u8>> {
    let make = Maker {
        read,
        work,
        site,
        prefix: format!("{PROJECT}/{run}"),
    };
    match work.kind {
        WorkloadKind::AppendJson => Ok(make.appends(round_as_json)),
        WorkloadKind::AppendTyped => Ok(make.appends(round_typed)),
        WorkloadKind::PrepareFull => make.each_read(Maker::full).await,
        WorkloadKind::PrepareDelta => make.each_read(Maker::delta).await,
        WorkloadKind::Memory => make.each_read(Maker::memory).await,
        WorkloadKind::ReadResult => make.each_read(Maker::stored).await,
        WorkloadKind::ListMessages => make.each_read(Maker::listed).await,
        WorkloadKind::Persist => make.results(numbers).await,
        WorkloadKind::Snip => make.snips(numbers).await,
        WorkloadKind::Compact => make.compactions(numbers).await,
    }
    .with_context(|| format!("the sessions of {} could not be made", work.name))
}

fn encoded<M: Message>(requests: impl IntoIterator<Item = M>) -> Vec<u8> {
    let each = requests.into_iter();
    each.flat_map(|request| request.encode_length_delimited_to_vec())
        .collect()
}

/// Converts messages in Anthropic's JSON to one input.
fn said(messages: Vec<Value>) -> Vec<MessageInput> {
    vec![anthropic(&Value::from(messages))]
}

struct Maker<'a> {
    work: &'a Workload,
    site: &'a TestServer,
    prefix: String,
    /// Number of sessions that reads use in turn.
    read: usize,
}

impl Maker<'_> {
    fn session(&self, number: usize) -> String {
        format!("{}-{number}", self.prefix)
    }

    async fn append(
        &self,
        client: &Context,
        session: &str,
        messages: Vec<MessageInput>,
    ) -> Result<()> {
        let request = append(session, messages);
        answered(client, &request, |mut client, request| async move {
            client.append_messages(request).await
        })
        .await?;
        Ok(())
    }

    async fn prepare(
        &self,
        client: &Context,
        request: &PrepareContextRequest,
    ) -> Result<PrepareContextResponse> {
        let served = answered(client, request, |mut client, request| async move {
            client.prepare_context(request).await
        });
        Ok(served.await?.reply.into_inner())
    }

    /// Creates a session with a conversation. Returns its name and the last view of its agent.
    async fn filled(
        &self,
        client: &Context,
        number: usize,
        bytes: usize,
    ) -> Result<(String, PrepareContextResponse)> {
        let session = self.session(number);
        self.append(client, &session, said(conversation(number, bytes)))
            .await?;
        let view = self.prepare(client, &prepare(&session, Vec::new())).await?;
        Ok((session, view))
    }

    /// Returns appends of rounds. The first append creates its session.
    fn appends(&self, round: fn(usize, usize) -> Vec<MessageInput>) -> Vec<u8> {
        // The number of requests is limited by memory, and is a multiple of the number of sessions.
        let turns = (64_000_000 / self.work.bytes / APPENDED).clamp(1, 16);
        encoded((0..turns * APPENDED).map(|number| {
            let session = self.session(number % APPENDED);
            append(&session, round(number, self.work.bytes))
        }))
    }

    /// Creates one request for each session that reads use.
    async fn each_read<M: Message>(
        &self,
        make: impl AsyncFn(&Self, &Context, usize) -> Result<M>,
    ) -> Result<Vec<u8>> {
        self.each(0..self.read, make).await.map(encoded)
    }

    /// Creates a value for each number. Several run in parallel, and the results are in order.
    async fn each<T>(
        &self,
        numbers: Range<usize>,
        make: impl AsyncFn(&Self, &Context, usize) -> Result<T>,
    ) -> Result<Vec<T>> {
        let client = self.site.server.context().await;
        let make = &make;
        let each = stream::iter(numbers).map(|number| {
            let client = client.clone();
            async move { make(self, &client, number).await }
        });
        each.buffered(AT_ONCE).try_collect().await
    }

    async fn full(&self, client: &Context, number: usize) -> Result<impl Message + use<>> {
        let (session, view) = self.filled(client, number, self.work.bytes).await?;
        let (wanted, there) = (self.work.bytes as u64, view.view_bytes);
        ensure!(
            !view.view_omitted && there.abs_diff(wanted) < wanted / 4,
            "the view has {there} bytes"
        );
        Ok(prepare(&session, Vec::new()))
    }

    /// Creates a request for a delta of one message.
    async fn delta(&self, client: &Context, number: usize) -> Result<impl Message + use<>> {
        let (session, view) = self.filled(client, number, 100_000).await?;
        let question = user(&text(number as u64, self.work.bytes));
        let mut request = prepare(&session, vec![question]);
        request.known_etag = view.etag;
        let served = self.prepare(client, &request).await?;
        let (wanted, there) = (self.work.bytes as u64, served.view_bytes);
        ensure!(
            served.keep_messages > 0 && there.abs_diff(wanted) < wanted / 4,
            "the delta keeps {} messages and has {there} bytes",
            served.keep_messages
        );
        // The message is appended already. With the old etag, each repeat of the request returns the same delta.
        request.messages.clear();
        Ok(request)
    }

    async fn memory(&self, client: &Context, number: usize) -> Result<impl Message + use<>> {
        let (session, _view) = self.filled(client, number, self.work.bytes).await?;
        ensure!(settled(client, &session).await?, "it has no summary");
        Ok(GetSessionMemoryRequest {
            session,
            ..GetSessionMemoryRequest::default()
        })
    }

    /// Creates a request for a range in the middle of a stored result.
    async fn stored(&self, client: &Context, number: usize) -> Result<impl Message + use<>> {
        const BYTES: usize = 300_000;
        let session = self.session(number);
        self.persist(client, persisted(&session, number, BYTES))
            .await?;
        let middle = ByteRange {
            offset_bytes: (BYTES / 2) as u64,
            length_bytes: Some(self.work.bytes as u64),
        };
        let selection = (self.work.bytes < BYTES)
            .then_some(read_tool_result_request::Selection::ByteRange(middle));
        Ok(ReadToolResultRequest {
            session,
            result: Some(read_tool_result_request::Result::Call(call(number))),
            selection,
            ..ReadToolResultRequest::default()
        })
    }

    /// Creates a request for the first page of a transcript with several pages.
    async fn listed(&self, client: &Context, number: usize) -> Result<impl Message + use<>> {
        const MESSAGE: usize = 1_000;
        let session = self.session(number);
        let page = self.work.bytes / MESSAGE;
        let messages = (0..2 * page).map(|n| user(&text(n as u64, MESSAGE)));
        self.append(client, &session, messages.collect()).await?;
        Ok(ListMessagesRequest {
            session,
            page_size: u32::try_from(page)?,
            ..ListMessagesRequest::default()
        })
    }

    /// Submits a result and verifies that the decision is the one that the run measures.
    async fn persist(&self, client: &Context, request: PersistToolResultRequest) -> Result<()> {
        let reply = answered(client, &request, |mut client, request| async move {
            client.persist_tool_result(request).await
        });
        let reply = reply.await?.reply.into_inner();
        let wanted = match self.work.kind {
            WorkloadKind::Persist if self.work.bytes < 50_000 => PersistVerdict::InlineUnderLimit,
            _ => PersistVerdict::Persisted,
        };
        ensure!(reply.decision() == wanted, "it was {:?}", reply.decision());
        Ok(())
    }

    /// Creates requests that submit results. Each result belongs to another call.
    async fn results(&self, numbers: Range<usize>) -> Result<Vec<u8>> {
        let client = self.site.server.context().await;
        // A session of its own checks the decision once, because the run cannot repeat its requests.
        let probe = persisted(&format!("{}-probe", self.prefix), 0, self.work.bytes);
        self.persist(&client, probe).await?;
        // At least 64 sessions, so that concurrent callers rarely share one.
        let sessions = (numbers.len() / STORED + 1).max(64);
        Ok(encoded(numbers.map(|number| {
            let session = self.session(number % sessions);
            persisted(&session, number, self.work.bytes)
        })))
    }

    /// Creates requests that snip each message once.
    async fn snips(&self, numbers: Range<usize>) -> Result<Vec<u8>> {
        // The last messages cannot be snipped, because they are the current turn.
        let of_each = SNIPPED - 2;
        let sessions = numbers.len().div_ceil(of_each);
        self.each(0..sessions, async |make: &Self, client, number| {
            let messages = (0..SNIPPED).map(|n| {
                let said = text((number * SNIPPED + n) as u64, make.work.bytes / SNIPPED);
                with_id(&uuid(n as u64), user(&said))
            });
            let session = make.session(number);
            make.append(client, &session, messages.collect()).await?;
            make.prepare(client, &prepare(&session, Vec::new())).await?;
            Ok(())
        })
        .await?;
        // Consecutive requests use different sessions, so that concurrent callers rarely share one.
        Ok(encoded((0..numbers.len()).map(|number| SnipRequest {
            session: self.session(number % sessions),
            message_ids: vec![uuid((number / sessions) as u64)],
            ..SnipRequest::default()
        })))
    }

    /// Creates sessions with session memory, and one compaction for each.
    async fn compactions(&self, numbers: Range<usize>) -> Result<Vec<u8>> {
        let made = self.each(numbers, async |make: &Self, client, number| {
            let (session, _view) = make.filled(client, number, make.work.bytes).await?;
            ensure!(settled(client, &session).await?, "it has no summary");
            Ok(CompactRequest {
                session,
                ..CompactRequest::default()
            })
        });
        made.await.map(encoded)
    }
}

fn call(number: usize) -> CallRef {
    CallRef {
        tool_use_id: call_id(number),
        ..CallRef::default()
    }
}

/// Creates a request that submits a tool result before its message is appended.
fn persisted(session: &str, number: usize, bytes: usize) -> PersistToolResultRequest {
    PersistToolResultRequest {
        session: session.to_owned(),
        call: Some(call(number)),
        tool_name: "Bash".into(),
        content: Some(content(text(number as u64, bytes))),
        ..PersistToolResultRequest::default()
    }
}
