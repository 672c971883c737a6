//! One agent: its session, its copy of the view, and the durations of its calls.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use palimpsest_proto::context::v1::{
    CallRef, GetSessionMemoryRequest, MessageInput, PersistToolResultRequest,
    PersistToolResultResponse, PrepareContextResponse, ReadToolResultRequest, SnipRequest,
    read_tool_result_request, tool_result_content,
};
use palimpsest_tests::say::{anthropic, append, prepare, user};
use palimpsest_tests::{Context, Server};
use serde_json::json;
use tonic::Status;
use tonic_types::StatusExt as _;

use super::Calls;
use palimpsest_load::data::{MODEL, call_id, content, text};
use palimpsest_load::retry::answered;

/// Turns per session. Then the agent starts another session.
const TURNS: usize = 60;

/// The results of agents.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) calls: Calls,
    /// Durations of the successful turns, from their due time to their end.
    pub(crate) turns: Vec<Duration>,
    /// Calls that were rejected by load shedding and retried.
    pub(crate) shed: u64,
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Done {
    pub(crate) fn add(&mut self, other: Self) {
        for (rpc, took) in other.calls {
            self.calls.entry(rpc).or_default().extend(took);
        }
        self.turns.extend(other.turns);
        self.shed += other.shed;
        for (said, times) in other.errors {
            *self.errors.entry(said).or_default() += times;
        }
    }
}

/// One agent.
pub(super) struct Agent {
    client: Context,
    /// The name of the run, which is part of the session names. Runs therefore do not share sessions.
    run: &'static str,
    number: usize,
    turn: usize,
    session: String,
    etag: Bytes,
    /// A message of an earlier turn, to be snipped later.
    old: Option<String>,
    /// The last call whose result was stored.
    stored: Option<String>,
    pub(super) done: Done,
}

impl Agent {
    pub(super) async fn new(server: &Server, run: &'static str, number: usize) -> Self {
        Self {
            client: server.context().await,
            run,
            number,
            turn: 0,
            session: String::new(),
            etag: Bytes::new(),
            old: None,
            stored: None,
            done: Done::default(),
        }
    }

    /// Takes a turn that was due at `due`.
    pub(super) async fn turn(&mut self, due: Instant) {
        if self.turn.is_multiple_of(TURNS) {
            let life = self.turn / TURNS;
            let (run, number) = (self.run, self.number);
            self.session = format!("projects/load/sessions/{run}-{number}-{life}");
            (self.etag, self.old, self.stored) = (Bytes::new(), None, None);
        }
        match self.work().await {
            // From the due time, so that a turn that waits for the previous one counts its wait.
            Ok(()) => self.done.turns.push(due.elapsed()),
            Err(status) => {
                let said = format!("{:?}: {}", status.code(), status.message());
                *self.done.errors.entry(said).or_default() += 1;
                // The array may differ from the service's state after a failed turn, so the next call requests the
                // complete view.
                self.etag = Bytes::new();
            }
        }
        self.turn += 1;
    }

    async fn work(&mut self) -> Result<(), Status> {
        let number = self.number * 10_000 + self.turn;
        let id = call_id(number);
        let question = user(&text(number as u64, 300));
        let view = self.view(question).await?;
        let call = json!({"type": "tool_use", "id": id, "name": "Bash",
            "input": {"command": format!("cat src/part_{number}.rs")}});
        self.answer(&call, &view).await?;
        let kept = self.persist(&id, number).await?;
        let block = json!({"type": "tool_result", "tool_use_id": id, "content": kept});
        let result = anthropic(&json!({"role": "user", "content": [block]}));
        let view = self.view(result).await?;
        let said = json!({"type": "text", "text": text(number as u64 + 1, 800)});
        self.answer(&said, &view).await?;
        self.now_and_then().await
    }

    /// Returns the position in the cycle of occasional calls. The agent's number shifts the cycle, so that agents do
    /// not make these calls at the same time.
    fn phase(&self) -> usize {
        self.turn + self.number
    }

    /// Appends a message and returns the view.
    async fn view(&mut self, message: MessageInput) -> Result<PrepareContextResponse, Status> {
        let mut request = prepare(&self.session, vec![message]);
        request.known_etag = self.etag.clone();
        let reply = self
            .call(
                "PrepareContext",
                &request,
                |mut client, request| async move {
                    Ok(client.prepare_context(request).await?.into_inner())
                },
            )
            .await?;
        self.etag = reply.etag.clone();
        Ok(reply)
    }

    /// Appends the response of the model as the provider sends it, with usage.
    async fn answer(
        &mut self,
        block: &serde_json::Value,
        view: &PrepareContextResponse,
    ) -> Result<(), Status> {
        let tokens = view.tokens.as_ref().map_or(0, |tokens| tokens.total_tokens);
        // A provider never repeats the id of a response, so the number of appends is a part of it.
        let answers = self.done.calls.get("AppendMessages").map_or(0, Vec::len);
        let response = anthropic(&json!({
            "id": format!("msg_{}_{answers}", self.number), "type": "message", "role": "assistant",
            "model": MODEL, "content": [block], "stop_reason": "end_turn",
            "usage": {"input_tokens": tokens, "output_tokens": 200}
        }));
        let request = append(&self.session, vec![response]);
        let reply = self
            .call(
                "AppendMessages",
                &request,
                |mut client, request| async move {
                    Ok(client.append_messages(request).await?.into_inner())
                },
            )
            .await?;
        let appended = reply.append.unwrap_or_default().messages;
        if self.old.is_none() {
            self.old = appended.into_iter().next().map(|one| one.message_id);
        }
        Ok(())
    }

    /// Submits a tool result and returns the text for the model. Most results are short, some are long.
    async fn persist(&mut self, id: &str, number: usize) -> Result<String, Status> {
        let bytes = match self.phase() % 20 {
            0 => 300_000,
            1..=4 => 20_000,
            _ => 1_000,
        };
        let result = text(number as u64, bytes);
        let request = PersistToolResultRequest {
            session: self.session.clone(),
            call: Some(call(id)),
            tool_name: "Bash".into(),
            content: Some(content(result.clone())),
            ..PersistToolResultRequest::default()
        };
        let reply = self
            .call(
                "PersistToolResult",
                &request,
                |mut client, request| async move {
                    Ok(client.persist_tool_result(request).await?.into_inner())
                },
            )
            .await?;
        if reply.persisted.is_some() {
            self.stored = Some(id.to_owned());
        }
        Ok(replacement(reply).unwrap_or(result))
    }

    /// Makes the calls that are not part of every turn.
    async fn now_and_then(&mut self) -> Result<(), Status> {
        let session = self.session.clone();
        if self.phase() % 10 == 7 {
            let request = GetSessionMemoryRequest {
                session: session.clone(),
                ..GetSessionMemoryRequest::default()
            };
            self.call("GetSessionMemory", &request, |mut client, request| async move { client.get_session_memory(request).await.map(drop) })
            .await?;
        }
        if self.phase() % 10 == 9
            && let Some(old) = self.old.take()
        {
            let request = SnipRequest {
                session: session.clone(),
                message_ids: vec![old],
                ..SnipRequest::default()
            };
            self.call("Snip", &request, |mut client, request| async move {
                match client.snip(request).await {
                    // A compaction may have removed the message already.
                    Err(gone) if is_invisible(&gone) => Ok(()),
                    snipped => snipped.map(drop),
                }
            })
            .await?;
        }
        if self.phase() % 10 == 5
            && let Some(stored) = self.stored.take()
        {
            let request = ReadToolResultRequest {
                session,
                result: Some(read_tool_result_request::Result::Call(call(&stored))),
                selection: Some(read_tool_result_request::Selection::HeadLines(50)),
                ..ReadToolResultRequest::default()
            };
            self.call(
                "ReadToolResult",
                &request,
                |mut client, request| async move {
                    let mut parts = client.read_tool_result(request).await?.into_inner();
                    while parts.message().await?.is_some() {}
                    Ok(())
                },
            )
            .await?;
        }
        Ok(())
    }

    /// Makes a call and retries it after load shedding. Only the successful attempt is measured.
    async fn call<R: Clone, T, F: Future<Output = Result<T, Status>>>(
        &mut self,
        rpc: &'static str,
        request: &R,
        make: impl Fn(Context, R) -> F,
    ) -> Result<T, Status> {
        let answer = answered(&self.client, request, make).await?;
        self.done.calls.entry(rpc).or_default().push(answer.took);
        self.done.shed += answer.shed;
        Ok(answer.reply)
    }
}

fn is_invisible(status: &Status) -> bool {
    let info = status.get_details_error_info();
    info.is_some_and(|info| info.reason == "MESSAGE_NOT_VISIBLE")
}

fn call(id: &str) -> CallRef {
    CallRef {
        tool_use_id: id.to_owned(),
        ..CallRef::default()
    }
}

fn replacement(reply: PersistToolResultResponse) -> Option<String> {
    match reply.replacement?.content? {
        tool_result_content::Content::Text(text) => Some(text),
        _ => None,
    }
}
