//! Tests that keys and content pass through the service and appear only where they belong.

use palimpsest_proto::context::v1::call_tool_request::Call;
use palimpsest_proto::context::v1::commit_summary_request::Outcome;
use palimpsest_proto::context::v1::text_pattern::Pattern;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, CallToolRequest, CommitSummaryRequest, CreateSessionRequest,
    DeleteSessionRequest, ExportTranscriptRequest, Format, GetSessionMemoryRequest,
    GetSessionRequest, ListEventsRequest, ListMessagesRequest, ListSessionsRequest,
    ListToolsRequest, Payload, PersistToolResultRequest, ReadToolResultRequest,
    RestoreContextRequest, RewindSessionRequest, SearchMessagesRequest, Session, SnipRequest,
    StreamContextRequest, TextPattern, UpdateSessionRequest, UpdateWorkingStateRequest,
    WatchSessionRequest,
};
use palimpsest_tests::say::payload;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tonic::{Request, Status};

use super::*;
use crate::hooks::service::Answers;

/// A key of a known form, and words that occur nowhere else.
const KEY: &str = "sk-ant-api03-Zq7xKJ2mPvL9sTnR4wYbC6dFgH8jN1kQ";
const WORD: &str = "Quibbleforth";
const TITLE: &str = "Zanzibarish";
const MODEL_KEY: &str = "key-Wexelbrandt-of-the-model";
const COLLECTOR_KEY: &str = "key-Ottoline-of-the-collector";
const CALLER_KEY: &str = "Bearer Umbrellary";

/// Starts a provider that rejects every request and repeats its content in the error.
async fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut asked = vec![0; 1 << 20];
                let read = stream.read(&mut asked).await.unwrap_or(0);
                let said = String::from_utf8_lossy(&asked[..read]).into_owned();
                let message = format!("invalid prompt: {said}");
                let body = json!({"error": {"type": "invalid_request_error", "message": message}});
                let body = body.to_string();
                let head = format!(
                    "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\
                     content-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + &body).as_bytes()).await;
            });
        }
    });
    url
}

/// All errors that callers received, which must not contain secrets.
struct Said {
    statuses: Vec<Status>,
}

impl Said {
    fn note<T>(&mut self, outcome: Result<T, Status>) {
        self.statuses.extend(outcome.err());
    }
}

/// Calls every method with valid and invalid requests.
async fn call_everything(world: &mut World, said: &mut Said) {
    let session = name("s");
    let text = format!("{WORD} {KEY}");
    let not_json = payload(Format::AnthropicMessages, format!("{{\"role\": {text}"));
    let no_message = payload(
        Format::AnthropicMessages,
        format!("{{\"role\": \"{text}\"}}"),
    );
    let client = &mut world.client;
    for message in [not_json, no_message] {
        let append = AppendMessagesRequest {
            session: session.clone(),
            messages: vec![message],
            request_id: format!("request {WORD}"),
            ..AppendMessagesRequest::default()
        };
        said.note(client.append_messages(append).await);
    }
    let snip = SnipRequest {
        session: session.clone(),
        reason: text.clone(),
        ..SnipRequest::default()
    };
    said.note(client.snip(snip).await);
    let commit = CommitSummaryRequest {
        session: session.clone(),
        outcome: Some(Outcome::Summary(text.clone())),
        delegation_token: text.clone().into(),
        ..CommitSummaryRequest::default()
    };
    said.note(client.commit_summary(commit).await);
    let persist = PersistToolResultRequest {
        session: session.clone(),
        request_id: text.clone(),
        tool_name: text.clone(),
        ..PersistToolResultRequest::default()
    };
    said.note(client.persist_tool_result(persist).await);
    let read = ReadToolResultRequest {
        session: session.clone(),
        ..ReadToolResultRequest::default()
    };
    said.note(client.read_tool_result(read).await);
    let memory = GetSessionMemoryRequest {
        session: session.clone(),
        ..GetSessionMemoryRequest::default()
    };
    said.note(client.get_session_memory(memory).await);
    let working = UpdateWorkingStateRequest {
        session: session.clone(),
        ..UpdateWorkingStateRequest::default()
    };
    said.note(client.update_working_state(working).await);
    let restore = RestoreContextRequest {
        session: session.clone(),
        ..RestoreContextRequest::default()
    };
    said.note(client.restore_context(restore).await);
    let rewind = RewindSessionRequest {
        session: session.clone(),
        ..RewindSessionRequest::default()
    };
    said.note(client.rewind_session(rewind).await);
    let tools = ListToolsRequest {
        session: session.clone(),
        ..ListToolsRequest::default()
    };
    said.note(client.list_tools(tools).await);
    let tool = CallToolRequest {
        session: session.clone(),
        call: Some(Call::Payload(Payload {
            format: Format::AnthropicMessages.into(),
            json: format!("{{\"name\": {text}").into(),
        })),
        ..CallToolRequest::default()
    };
    said.note(client.call_tool(tool).await);
    let stream = StreamContextRequest {
        session: session.clone(),
        ..StreamContextRequest::default()
    };
    said.note(client.stream_context(stream).await);
    manage_everything(world, said, &session, &text).await;
}

async fn manage_everything(world: &mut World, said: &mut Said, session: &str, text: &str) {
    let sessions = &mut world.sessions;
    let of = |title: &str| Session {
        name: session.to_owned(),
        title: title.to_owned(),
        attributes: [(text.to_owned(), text.to_owned())].into(),
        ..Session::default()
    };
    let create = CreateSessionRequest {
        parent: "projects/p".into(),
        session_id: "s".into(),
        session: Some(of(TITLE)),
        ..CreateSessionRequest::default()
    };
    said.note(sessions.create_session(create).await);
    let update = UpdateSessionRequest {
        session: Some(of(&TITLE.repeat(10_000))),
        ..UpdateSessionRequest::default()
    };
    said.note(sessions.update_session(update).await);
    let mut get = Request::new(GetSessionRequest {
        session: name("missing"),
        ..GetSessionRequest::default()
    });
    get.metadata_mut()
        .insert("authorization", CALLER_KEY.parse().unwrap());
    get.metadata_mut()
        .insert("traceparent", CALLER_KEY.parse().unwrap());
    said.note(sessions.get_session(get).await);
    let list = ListSessionsRequest {
        parent: "projects/p".into(),
        page_token: text.to_owned(),
        ..ListSessionsRequest::default()
    };
    said.note(sessions.list_sessions(list).await);
    let list = ListMessagesRequest {
        session: session.to_owned(),
        page_token: text.to_owned(),
        ..ListMessagesRequest::default()
    };
    said.note(sessions.list_messages(list).await);
    let search = SearchMessagesRequest {
        session: session.to_owned(),
        pattern: Some(TextPattern {
            pattern: Some(Pattern::Regex(format!("({text}"))),
            ..TextPattern::default()
        }),
        ..SearchMessagesRequest::default()
    };
    said.note(sessions.search_messages(search).await);
    let events = ListEventsRequest {
        session: session.to_owned(),
        ..ListEventsRequest::default()
    };
    said.note(sessions.list_events(events).await);
    let watch = WatchSessionRequest {
        session: session.to_owned(),
        ..WatchSessionRequest::default()
    };
    said.note(sessions.watch_session(watch).await);
    let export = ExportTranscriptRequest {
        session: session.to_owned(),
        ..ExportTranscriptRequest::default()
    };
    said.note(sessions.export_transcript(export).await);
    let delete = DeleteSessionRequest {
        session: session.to_owned(),
        ..DeleteSessionRequest::default()
    };
    said.note(sessions.delete_session(delete).await);
}

#[tokio::test]
async fn telemetry_contains_no_key_and_no_message_content() {
    let provider = format!("summarizer.base_url={}", echo().await);
    let settings = [
        provider.as_str(),
        "summarizer.api_key_env=OTHER_KEY",
        "otlp.headers_env=COLLECTOR_HEADERS",
        "policy.hooks.pre_compact.on_failure=continue",
    ];
    let headers = format!("x-key={COLLECTOR_KEY}");
    let vars = [
        ("OTHER_KEY", MODEL_KEY),
        ("COLLECTOR_HEADERS", headers.as_str()),
    ];
    let mut world = World::with(&settings, &vars).await;
    let mut said = Said {
        statuses: Vec::new(),
    };
    world.hook.answers(Answers {
        status: Some(Status::internal(format!("{WORD} {KEY}"))),
        ..Answers::default()
    });
    let mut messages = work(WORD);
    messages.push(user(&format!("My key is {KEY}, tell nobody.")));
    world.prepare("s", messages).await;
    // The model is called and fails. The view does not change.
    let compact = CompactRequest {
        session: name("s"),
        strategy: CompactionStrategy::Model.into(),
        ..CompactRequest::default()
    };
    said.note(world.client.compact(compact).await);
    // The worker calls the same provider and falls back.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    call_everything(&mut world, &mut said).await;
    // Metrics and spans are exported in intervals.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;

    let log = world.server.log().join("\n");
    // All failures occurred: the model and the hook failed, and spans and metrics were exported.
    assert!(log.contains("a model wrote no summary"), "{log}");
    assert!(log.contains("a hook failed"), "{log}");
    let exported = world.receiver.text();
    assert!(exported.contains("PrepareContext") && exported.contains("worker.pass"));
    assert!(said.statuses.len() >= 8, "{:?}", said.statuses);
    let statuses: Vec<String> = said
        .statuses
        .iter()
        .map(|status| {
            let details = String::from_utf8_lossy(status.details()).into_owned();
            format!("{} {details} {:?}", status.message(), status.metadata())
        })
        .collect();
    let everything = [
        ("log", log),
        ("spans and metrics", exported),
        ("scrape", world.server.scrape()),
        ("errors", statuses.join("\n")),
    ];
    let secrets = [
        KEY, WORD, TITLE, MODEL_KEY, COLLECTOR_KEY, "Umbrellary", "lights.rs",
    ];
    for (place, text) in &everything {
        for secret in secrets {
            let lines = text.lines().filter(|line| line.contains(secret));
            let found: Vec<&str> = lines.map(|line| &line[..line.len().min(2_000)]).collect();
            assert!(found.is_empty(), "{secret} in {place}: {found:#?}");
        }
    }
}
