//! The requests of a run, and the sessions that they need, made before anything is measured.

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
use crate::site::Site;
use crate::works::{Kind, Work};

/// The project of all sessions.
const PROJECT: &str = "projects/load/sessions";
/// How many sessions appends go to, in turn.
const APPENDED: usize = 256;
/// How many messages a session has that is snipped.
const SNIPPED: usize = 256;
/// How many stored results may wait for their messages in one session; the service's bound is 256.
const STORED: usize = 200;
/// How many sessions are made at one time.
const AT_ONCE: usize = 8;

/// Requests as ghz reads them, each with its length before it: those of some numbers, or for so many sessions
/// where the same may be sent again.
pub async fn requests(
    work: &Work,
    site: &Site,
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
        Kind::AppendJson => Ok(make.appends(round_as_json)),
        Kind::AppendTyped => Ok(make.appends(round_typed)),
        Kind::PrepareFull => make.each_read(Maker::full).await,
        Kind::PrepareDelta => make.each_read(Maker::delta).await,
        Kind::Memory => make.each_read(Maker::memory).await,
        Kind::ReadResult => make.each_read(Maker::stored).await,
        Kind::ListMessages => make.each_read(Maker::listed).await,
        Kind::Persist => make.results(numbers).await,
        Kind::Snip => make.snips(numbers).await,
        Kind::Compact => make.compactions(numbers).await,
    }
    .with_context(|| format!("the sessions of {} could not be made", work.name))
}

fn encoded<M: Message>(requests: impl IntoIterator<Item = M>) -> Vec<u8> {
    let each = requests.into_iter();
    each.flat_map(|request| request.encode_length_delimited_to_vec())
        .collect()
}

/// Messages in Anthropic's JSON, as one input.
fn said(messages: Vec<Value>) -> Vec<MessageInput> {
    vec![anthropic(&Value::from(messages))]
}

struct Maker<'a> {
    work: &'a Work,
    site: &'a Site,
    prefix: String,
    /// How many sessions reads go to, in turn.
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

    /// A session with a conversation in it, as its agent sees it.
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

    /// Rounds for sessions that are there with the first of them.
    fn appends(&self, round: fn(usize, usize) -> Vec<MessageInput>) -> Vec<u8> {
        // As many as memory may be used for, in whole turns through the sessions.
        let turns = (64_000_000 / self.work.bytes / APPENDED).clamp(1, 16);
        encoded((0..turns * APPENDED).map(|number| {
            let session = self.session(number % APPENDED);
            append(&session, round(number, self.work.bytes))
        }))
    }

    /// One request for each session that is read from.
    async fn each_read<M: Message>(
        &self,
        make: impl AsyncFn(&Self, &Context, usize) -> Result<M>,
    ) -> Result<Vec<u8>> {
        self.each(0..self.read, make).await.map(encoded)
    }

    /// Something for each number, some of them at one time, in order.
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

    /// The caller knows all but the last message.
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

    /// Reads from a result that was stored; the range is in its middle.
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

    /// The first page of a transcript that has more than one.
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

    /// Hands a result in, and looks whether it became what the run is about.
    async fn persist(&self, client: &Context, request: PersistToolResultRequest) -> Result<()> {
        let reply = answered(client, &request, |mut client, request| async move {
            client.persist_tool_result(request).await
        });
        let reply = reply.await?.reply.into_inner();
        let wanted = match self.work.kind {
            Kind::Persist if self.work.bytes < 50_000 => PersistVerdict::InlineUnderLimit,
            _ => PersistVerdict::Persisted,
        };
        ensure!(reply.decision() == wanted, "it was {:?}", reply.decision());
        Ok(())
    }

    /// Results, each of a call of its own.
    async fn results(&self, numbers: Range<usize>) -> Result<Vec<u8>> {
        let client = self.site.server.context().await;
        let probe = persisted(&format!("{}-probe", self.prefix), 0, self.work.bytes);
        self.persist(&client, probe).await?;
        let sessions = (numbers.len() / STORED + 1).max(64);
        Ok(encoded(numbers.map(|number| {
            let session = self.session(number % sessions);
            persisted(&session, number, self.work.bytes)
        })))
    }

    /// Messages that leave the views of their sessions, each once.
    async fn snips(&self, numbers: Range<usize>) -> Result<Vec<u8>> {
        // The last messages stay: they are the turn that goes on.
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
        // One after another, so that callers seldom meet in one session.
        Ok(encoded((0..numbers.len()).map(|number| SnipRequest {
            session: self.session(number % sessions),
            message_ids: vec![uuid((number / sessions) as u64)],
            ..SnipRequest::default()
        })))
    }

    /// Sessions with a summary, each compacted once.
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

/// What a tool returned, before its message is there.
fn persisted(session: &str, number: usize, bytes: usize) -> PersistToolResultRequest {
    PersistToolResultRequest {
        session: session.to_owned(),
        call: Some(call(number)),
        tool_name: "Bash".into(),
        content: Some(content(text(number as u64, bytes))),
        ..PersistToolResultRequest::default()
    }
}
