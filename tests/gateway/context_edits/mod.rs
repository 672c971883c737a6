//! Edits of the context that requests of Anthropic's API ask for, served for an upstream without this feature.

mod compact;
mod other;
mod returned;

use http::HeaderMap;
use palimpsest_fake_provider::Recorded;
use palimpsest_gateway::reading::{ReadMemory, Reader, ResponseApi};
use serde_json::{Value, json};

use crate::agent::{Agent, Api, Reply};
use crate::world::{World, unmarked};

const SERVED: &str = "gateway.upstreams.anthropic.compaction=served";
/// Session memory is updated beside the requests, so its state depends on the speed of the machine.
const STEADY: &str = "worker.enabled=false";
const BETAS: &str = "compact-2026-01-12,context-management-2025-06-27";
/// The smallest trigger of a compaction that the provider accepts, in tokens.
const TRIGGER: u64 = 50_000;
/// The marker in place of a cleared result.
const CLEARED: &str = "[Old tool result content cleared]";

/// A client that asks for edits with each request.
struct Client {
    agent: Agent,
    edits: Value,
    streams: bool,
    /// True if the client leaves out what a summary replaces.
    drops_head: bool,
}

/// A response, and the session that took its request.
struct Response {
    reply: Reply,
    message: Value,
    has_calls: bool,
}

impl Response {
    /// Returns the summaries among the blocks of the response.
    fn summaries(&self) -> Vec<&str> {
        let blocks = self.message["content"].as_array().unwrap().iter();
        let summaries = blocks.filter(|block| block["type"] == "compaction");
        summaries
            .map(|block| block["content"].as_str().unwrap())
            .collect()
    }

    fn session(&self) -> &str {
        self.reply.header("x-palimpsest-session").unwrap()
    }

    fn applied(&self) -> &Value {
        &self.message["context_management"]["applied_edits"]
    }

    /// Returns the tokens of the prompt, as the provider reports them.
    fn prompt_tokens(&self) -> u64 {
        let usage = &self.message["usage"];
        let names = [
            "input_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
        ];
        names
            .iter()
            .map(|name| usage[*name].as_u64().unwrap())
            .sum()
    }
}

impl Client {
    /// Creates a client of a model whose server has no edits. Without a name, the conversation has no name either.
    fn new(world: &World, session: Option<&str>, model: &str, edits: Value) -> Self {
        let mut agent = Agent::new(Api::Messages, &world.url, session);
        agent.model = format!("claude-fake-{model}+no-edits+window=200000");
        agent.key = format!("key-{model}");
        agent.betas = Some(BETAS);
        Self {
            agent,
            edits,
            streams: false,
            drops_head: false,
        }
    }

    fn body(&self) -> Value {
        let mut body = self.agent.body();
        body["context_management"] = json!({"edits": self.edits});
        body["stream"] = json!(self.streams);
        body
    }

    /// Sends the conversation and adds the response, with the results of its calls.
    async fn step(&mut self) -> Response {
        let body = self.body().to_string();
        let reply = self.agent.post(Api::Messages.path(), body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let message = if self.streams {
            assembled(&reply)
        } else {
            reply.json()
        };
        let sent = self.agent.conversation.len();
        let has_calls = self.agent.add(&message);
        let response = Response {
            reply,
            message,
            has_calls,
        };
        if self.drops_head && !response.summaries().is_empty() {
            // The response begins with the summary of all messages before it.
            self.agent.conversation.drain(..sent);
        }
        response
    }

    /// Works until a response has a summary.
    async fn until_compacted(&mut self) -> Response {
        for _ in 0..60 {
            let response = self.step().await;
            if !response.summaries().is_empty() {
                return response;
            }
            assert!(response.has_calls, "the conversation was not compacted");
        }
        panic!("the conversation was not compacted");
    }

    /// Returns the requests of this client that upstream got.
    fn upstream(&self, world: &World) -> Vec<Recorded> {
        let model = json!(self.agent.model);
        let requests = world.upstream().into_iter();
        requests
            .filter(|request| request.body["model"] == model)
            .collect()
    }
}

fn compact(extra: &Value) -> Value {
    let trigger = json!({"type": "input_tokens", "value": TRIGGER});
    let mut edit = json!({"type": "compact_20260112", "trigger": trigger});
    for (name, value) in extra.as_object().unwrap() {
        edit[name] = value.clone();
    }
    json!([edit])
}

/// Returns the message of a stream, as a client assembles it.
fn assembled(reply: &Reply) -> Value {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", "text/event-stream".parse().unwrap());
    let memory = ReadMemory::new(usize::MAX / 2);
    let mut reader = Reader::new(ResponseApi::Messages, &headers, usize::MAX / 4, memory).unwrap();
    reader.read(reply.text.as_bytes()).unwrap();
    let finished = reader.finish(true).unwrap();
    serde_json::from_slice(&finished.json.unwrap()).unwrap()
}

/// Upstream got nothing that it would reject.
fn is_plain(requests: &[Recorded]) {
    for request in requests {
        assert_eq!(request.status, 200, "{request:?}");
        let raw = std::str::from_utf8(&request.raw).unwrap();
        assert!(!raw.contains("context_management"), "{raw}");
        assert!(!raw.contains(r#""type":"compaction""#), "{raw}");
        assert_eq!(beta(request), None);
    }
}

/// Returns the value of the header with the features of the API.
fn beta(request: &Recorded) -> Option<&str> {
    let mut headers = request.headers.iter();
    let header = headers.find(|(name, _)| name == "anthropic-beta");
    header.map(|(_, value)| value.as_str())
}

/// Returns the number of prompts that do not begin with the prompt before them.
fn breaks(requests: &[Recorded]) -> usize {
    let arrays = requests.iter().map(|request| unmarked(&request.body));
    let arrays: Vec<Vec<Value>> = arrays
        .map(|body| body["messages"].as_array().unwrap().clone())
        .collect();
    let pairs = arrays.windows(2);
    pairs.filter(|pair| !pair[1].starts_with(&pair[0])).count()
}
