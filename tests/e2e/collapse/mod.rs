//! Tests of level 4: placeholders replace old rounds, and every recovery handle leads to the original content.

mod by_hand;
mod by_model;
mod pressure;
mod reading;
mod undo;

use std::time::Duration;

use futures::StreamExt as _;
use palimpsest_proto::context::v1::level_report::Detail;
use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    CollapsePolicy, CompactRequest, CreateSessionRequest, EventKind, Level, LevelAction,
    LevelReport, ListEventsRequest, ListMessagesRequest, MessageFilter, MessageInput, Policy,
    PrepareContextRequest, PrepareContextResponse, Session, SessionEvent, Span, TranscriptMessage,
    Visibility, WatchSessionRequest,
};
use palimpsest_tests::say::{
    anthropic, assistant, prepare, result, tools_with_snip, user, uuid, with_id,
};
use palimpsest_tests::server::{Context, Sessions};
use palimpsest_tests::{Array, Server, name};
use serde_json::{Value, json};

/// The context window minus the reserve for the response, in tokens.
const EFFECTIVE_TOKENS: u32 = 10_000;
const PATIENCE: Duration = Duration::from_mins(2);

/// An agent with a small window. The messages of turn n have ids from 100 n.
struct Agent {
    client: Context,
    sessions: Sessions,
    session: String,
    array: Array,
}

/// Returns a policy with frequent passes that collapses every span that frees tokens.
fn policy() -> Policy {
    Policy {
        collapse: Some(CollapsePolicy {
            enabled: Some(true),
            pass_every_tokens: Some(500),
            min_freed_tokens: Some(50),
            max_risk: Some(1.0),
            ..CollapsePolicy::default()
        }),
        ..Policy::default()
    }
}

/// Returns a call of one tool and its result of about 500 tokens.
fn round(turn: u64, round: u64) -> [MessageInput; 2] {
    let id = format!("t{turn}r{round}");
    let path = format!("/src/{id}.rs");
    let call = json!({"type": "tool_use", "id": id, "name": "Read", "input": {"path": path}});
    let call = anthropic(&json!({"role": "assistant", "content": [call]}));
    let at = 100 * turn + 1 + 2 * round;
    let said = format!("fn of_{id}() stands here. ").repeat(60);
    [
        with_id(&uuid(at), call),
        with_id(&uuid(at + 1), result(&id, &said)),
    ]
}

/// Returns a turn: a question, some rounds of work, and a final response if `answered` is true.
fn turn(number: u64, rounds: u64, answered: bool) -> Vec<MessageInput> {
    let asks = user(&format!("question {number}"));
    let mut said = vec![with_id(&uuid(100 * number), asks)];
    said.extend((0..rounds).flat_map(|at| round(number, at)));
    if answered {
        let answers = assistant(&format!("answer {number}"));
        said.push(with_id(&uuid(100 * number + 99), answers));
    }
    said
}

/// Returns the ids of some messages of a turn.
fn ids(turn: u64, messages: std::ops::Range<u64>) -> Vec<String> {
    messages.map(|at| uuid(100 * turn + at)).collect()
}

impl Agent {
    async fn new(server: &Server, session: &str) -> Self {
        Self::with_policy(server, session, policy()).await
    }

    async fn with_policy(server: &Server, session: &str, policy: Policy) -> Self {
        let mut sessions = server.sessions().await;
        let request = CreateSessionRequest {
            parent: "projects/p".into(),
            session_id: session.into(),
            session: Some(Session {
                policy_overrides: Some(policy),
                ..Session::default()
            }),
            ..CreateSessionRequest::default()
        };
        sessions.create_session(request).await.unwrap();
        Self {
            client: server.context().await,
            sessions,
            session: name(session),
            array: Array::default(),
        }
    }

    /// Returns the same agent with a client of a restarted server.
    async fn at(self, server: &Server) -> Self {
        Self {
            client: server.context().await,
            sessions: server.sessions().await,
            ..self
        }
    }

    fn request(&self, messages: Vec<MessageInput>) -> PrepareContextRequest {
        let mut request = prepare(&self.session, messages);
        let target = request.target.get_or_insert_default();
        // With a maximum output below the policy's reserve, the reserve is this output.
        target.window_tokens = Some(EFFECTIVE_TOKENS + 1_000);
        target.max_output_tokens = Some(1_000);
        request.known_etag = self.array.etag.clone();
        request.prompt_prefix = tools_with_snip();
        request
    }

    async fn send(&mut self, request: PrepareContextRequest) -> PrepareContextResponse {
        let dry_run = request.dry_run;
        let reply = self.client.prepare_context(request).await.unwrap();
        let reply = reply.into_inner();
        if !dry_run {
            self.array.take(&reply);
        }
        reply
    }

    async fn prepare(&mut self, messages: Vec<MessageInput>) -> PrepareContextResponse {
        self.send(self.request(messages)).await
    }

    /// Prepares, and waits for the staging pass that follows the reply.
    async fn prepare_and_stage(&mut self, messages: Vec<MessageInput>) -> Vec<Span> {
        let reply = self.prepare(messages).await;
        match self
            .next(reply.revision, EventKind::SpansStaged)
            .await
            .event
        {
            Some(Event::SpansStaged(staged)) => staged.spans,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the next event of a kind after a revision, as a watch sends it.
    async fn next(&mut self, after_revision: u64, kind: EventKind) -> SessionEvent {
        let request = WatchSessionRequest {
            session: self.session.clone(),
            after_revision: Some(after_revision),
            kinds: vec![kind.into()],
        };
        let mut stream = self
            .sessions
            .watch_session(request)
            .await
            .unwrap()
            .into_inner();
        let event = async {
            loop {
                if let Some(event) = stream.next().await.unwrap().unwrap().event {
                    return event;
                }
            }
        };
        tokio::time::timeout(PATIENCE, event).await.unwrap()
    }

    async fn events(&mut self, kind: EventKind) -> Vec<SessionEvent> {
        let request = ListEventsRequest {
            session: self.session.clone(),
            kinds: vec![kind.into()],
            ..ListEventsRequest::default()
        };
        let reply = self.sessions.list_events(request).await.unwrap();
        reply.into_inner().events
    }

    /// Runs two turns of work and a third question, so that the pass finds a span in each turn.
    async fn staged(&mut self) -> Vec<Span> {
        let mut said = turn(1, 4, true);
        said.extend(turn(2, 4, true));
        said.extend(turn(3, 0, false));
        self.prepare_and_stage(said).await
    }

    /// Returns a request that collapses the safest span, regardless of the thresholds.
    fn fold_one(&self) -> CompactRequest {
        CompactRequest {
            target_tokens: Some(4_000),
            ..self.fold()
        }
    }

    fn fold(&self) -> CompactRequest {
        CompactRequest {
            session: self.session.clone(),
            level: Level::Collapse.into(),
            ..CompactRequest::default()
        }
    }

    /// Collapses spans manually, and updates the array.
    async fn folded(&mut self, request: CompactRequest) -> Vec<Span> {
        let reply = self.client.compact(request).await.unwrap().into_inner();
        self.prepare(vec![]).await;
        spans(&reply.level_reports)
    }

    async fn list(&mut self, filter: MessageFilter) -> Vec<TranscriptMessage> {
        let request = ListMessagesRequest {
            session: self.session.clone(),
            filter: Some(filter),
            ..ListMessagesRequest::default()
        };
        let reply = self.sessions.list_messages(request).await.unwrap();
        reply.into_inner().messages
    }

    /// Returns the messages that placeholders replace.
    async fn collapsed(&mut self) -> Vec<String> {
        let filter = MessageFilter {
            visibilities: vec![Visibility::Collapsed.into()],
            ..MessageFilter::default()
        };
        let listed = self.list(filter).await;
        listed.into_iter().map(|message| message.id).collect()
    }

    /// Returns the placeholders in the view.
    fn placeholders(&self) -> Vec<String> {
        let mut found = Vec::new();
        for message in self.array.values() {
            for block in message["content"].as_array().unwrap() {
                let text = block["text"].as_str().unwrap_or_default();
                if text.contains(": this summary replaces ") {
                    assert_eq!(message["role"], "user");
                    found.push(text.to_owned());
                }
            }
        }
        found
    }

    /// Returns the complete view.
    async fn whole(&mut self) -> Vec<bytes::Bytes> {
        // Without the known etag, the reply contains the complete view.
        let mut request = self.request(vec![]);
        request.known_etag = bytes::Bytes::new();
        let reply = self.client.prepare_context(request).await.unwrap();
        reply.into_inner().messages_json
    }

    fn texts(&self) -> Vec<Value> {
        self.array.values()
    }
}

#[track_caller]
fn report(reports: &[LevelReport]) -> &LevelReport {
    let mut of_level = reports
        .iter()
        .filter(|report| report.level() == Level::Collapse);
    let only = of_level.next().unwrap();
    assert!(of_level.next().is_none(), "{reports:?}");
    only
}

/// Returns the spans that were collapsed.
#[track_caller]
fn spans(reports: &[LevelReport]) -> Vec<Span> {
    let report = report(reports);
    assert_eq!(report.action(), LevelAction::Applied, "{report:?}");
    detail(report)
}

#[track_caller]
fn detail(report: &LevelReport) -> Vec<Span> {
    match &report.detail {
        Some(Detail::SpansCollapsed(collapsed)) => collapsed.spans.clone(),
        other => panic!("{other:?}"),
    }
}
