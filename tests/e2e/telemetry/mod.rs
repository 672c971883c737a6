//! Tests of telemetry: spans and metrics at a collector, metrics at a scrape, and no content of conversations.

mod collector;
mod cost;
mod dashboards;
mod gateway;
mod provider_keys;
mod receiver;
mod secrets;
mod traces;
mod transports;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_proto::context::v1::{CompactRequest, CompactionStrategy, MessageInput};
use palimpsest_tests::say::{assistant, assistant_call, prepare, result, user};
use palimpsest_tests::server::{Context, Sessions};
use palimpsest_tests::{ReservedPort, Server, name};
use tempfile::TempDir;

use self::receiver::Receiver;
use crate::hooks::service::Hook;

/// A server with all telemetry: a worker, a model, hooks, and a collector.
struct World {
    receiver: Receiver,
    provider: FakeProvider,
    hook: Hook,
    client: Context,
    sessions: Sessions,
    server: Server,
    folder: TempDir,
}

impl World {
    async fn new(settings: &[&str]) -> Self {
        Self::with(settings, &[]).await
    }

    async fn with(settings: &[&str], vars: &[(&str, &str)]) -> Self {
        let (receiver, hook) = (Receiver::start(), Hook::start());
        let provider = FakeProvider::start().await.unwrap();
        let usual = [
            format!("otlp.endpoint={}", receiver.url),
            "otlp.metrics_every_ms=200".to_owned(),
            "otlp.timeout_ms=1000".to_owned(),
            "otlp.sample_ratio=1".to_owned(),
            "worker.poll_ms=50".to_owned(),
            "worker.edit_debounce_ms=0".to_owned(),
            "policy.session_memory.start_tokens=100".to_owned(),
            "policy.autocompact.min_input_tokens=100".to_owned(),
            format!("hooks.endpoints.own.url={}", hook.url),
            "hooks.default_endpoint=own".to_owned(),
            "summarizer.provider=anthropic".to_owned(),
            format!("summarizer.base_url={}", provider.url()),
            "summarizer.model=claude-fake".to_owned(),
            "summarizer.api_key_env=MODEL_KEY".to_owned(),
        ];
        let all = usual.iter().map(String::as_str);
        let all = all.chain(settings.iter().copied());
        let args: Vec<&str> = all.flat_map(|setting| ["--set", setting]).collect();
        let folder = tempfile::tempdir().unwrap();
        let vars = [&[("MODEL_KEY", "key-of-the-model")], vars].concat();
        let server = Server::start_with(folder.path(), &args, &vars);
        Self {
            receiver,
            provider,
            hook,
            client: server.context().await,
            sessions: server.sessions().await,
            server,
            folder,
        }
    }

    async fn prepare(&mut self, session: &str, messages: Vec<MessageInput>) {
        let request = prepare(&name(session), messages);
        self.client.prepare_context(request).await.unwrap();
    }

    async fn compact(&mut self, session: &str, strategy: CompactionStrategy) {
        let request = CompactRequest {
            session: name(session),
            strategy: strategy.into(),
            ..CompactRequest::default()
        };
        self.client.compact(request).await.unwrap();
    }
}

/// Returns a conversation with large results that is large enough for a summary.
fn work(word: &str) -> Vec<MessageInput> {
    let lines = |what: &str| format!("{what} of the {word}\n").repeat(60);
    vec![
        user(&format!("Make the {word} blink twice.")),
        assistant_call("c1"),
        result("c1", &lines("source")),
        assistant(&format!("The {word} is driven by a timer in lights.rs.")),
        user("Then set that timer to two beats."),
        assistant_call("c2"),
        result("c2", &format!("{word} ").repeat(20_000)),
        assistant(&lines("a long account")),
    ]
}
