//! A server with a gateway in front of the provider for tests.

use palimpsest_fake_provider::{FakeProvider, Recorded};
use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    ListEventsRequest, ListMessagesRequest, SessionEvent, TranscriptMessage, Visibility,
};
use palimpsest_tests::Server;
use serde_json::Value;
use tempfile::TempDir;

/// A server and its provider.
pub(crate) struct World {
    pub(crate) provider: FakeProvider,
    pub(crate) server: Server,
    pub(crate) url: String,
    _folder: TempDir,
}

impl World {
    /// Starts a server with further settings.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        let provider = FakeProvider::start().await.unwrap();
        let upstream = provider.url();
        Self::start_with(provider, &upstream, settings)
    }

    /// Starts a server whose upstream is this address.
    pub(crate) fn start_with(provider: FakeProvider, upstream: &str, settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = [
            "gateway.enabled=true".to_owned(),
            "gateway.listen=127.0.0.1:0".to_owned(),
            // A busy machine must not change the outcome.
            "gateway.prepare_timeout_ms=120000".to_owned(),
            "gateway.hold_timeout_ms=60000".to_owned(),
            format!("gateway.upstreams.anthropic.base_url={upstream}"),
            format!("gateway.upstreams.openai.base_url={upstream}"),
        ];
        let settings = settings.iter().map(|it| (*it).to_owned()).chain(own);
        let args: Vec<String> = settings.flat_map(|it| ["--set".to_owned(), it]).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let server = Server::start(folder.path(), &args);
        Self {
            url: format!("http://{}", server.gateway()),
            provider,
            server,
            _folder: folder,
        }
    }

    /// Returns all events of a session.
    pub(crate) async fn events(&self, session: &str) -> Vec<SessionEvent> {
        let mut sessions = self.server.sessions().await;
        let mut request = ListEventsRequest {
            session: session.to_owned(),
            page_size: 1_000,
            ..ListEventsRequest::default()
        };
        let mut events = Vec::new();
        loop {
            let page = sessions.list_events(request.clone()).await;
            let page = page.unwrap().into_inner();
            events.extend(page.events);
            if page.next_page_token.is_empty() {
                return events;
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Returns the number of compactions of a session.
    pub(crate) async fn compactions(&self, session: &str) -> usize {
        let events = self.events(session).await;
        let compacted = |event: &&SessionEvent| matches!(event.event, Some(Event::Compacted(_)));
        events.iter().filter(compacted).count()
    }

    /// Returns the messages of the transcript as JSON, in order.
    pub(crate) async fn transcript(&self, session: &str) -> Vec<Value> {
        let mut sessions = self.server.sessions().await;
        let mut request = ListMessagesRequest {
            session: session.to_owned(),
            page_size: 100,
            form: palimpsest_proto::context::v1::MessageForm::Json.into(),
            ..ListMessagesRequest::default()
        };
        let mut messages = Vec::new();
        loop {
            let page = sessions.list_messages(request.clone()).await;
            let page = page.unwrap().into_inner();
            let json = page
                .messages
                .iter()
                .flat_map(|message| &message.messages_json);
            messages.extend(json.map(|json| serde_json::from_slice::<Value>(json).unwrap()));
            if page.next_page_token.is_empty() {
                return messages;
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Returns the requests to models that upstream got, oldest first.
    pub(crate) fn upstream(&self) -> Vec<Recorded> {
        self.provider.requests()
    }
}

/// Returns the messages of the view as JSON, in order.
pub(crate) async fn visible(server: &Server, session: &str) -> Vec<Value> {
    let mut messages = listed(server, session).await;
    messages.retain(|message| message.visibility() == Visibility::Visible);
    json(&messages)
}

async fn listed(server: &Server, session: &str) -> Vec<TranscriptMessage> {
    let mut sessions = server.sessions().await;
    let mut request = ListMessagesRequest {
        session: session.to_owned(),
        page_size: 100,
        ..ListMessagesRequest::default()
    };
    let mut messages = Vec::new();
    loop {
        let page = sessions.list_messages(request.clone()).await;
        let page = page.unwrap().into_inner();
        messages.extend(page.messages);
        if page.next_page_token.is_empty() {
            return messages;
        }
        request.page_token = page.next_page_token;
    }
}

fn json(messages: &[TranscriptMessage]) -> Vec<Value> {
    let json = messages.iter().flat_map(|message| &message.messages_json);
    json.map(|json| serde_json::from_slice(json).unwrap())
        .collect()
}

/// Returns a value without cache markers.
pub(crate) fn unmarked(value: &Value) -> Value {
    let mut value = value.clone();
    remove_markers(&mut value);
    value
}

fn remove_markers(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(remove_markers),
        Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(remove_markers);
        }
        _ => {}
    }
}
