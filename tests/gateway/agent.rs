//! A small agent that sends its whole conversation with each request, as real agents do.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::Client;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

/// The API of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Messages,
    Chat,
    Responses,
}

impl Api {
    pub(crate) const ALL: [Self; 3] = [Self::Messages, Self::Chat, Self::Responses];

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Messages => "/v1/messages",
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
        }
    }

    /// The field with the conversation.
    pub(crate) const fn field(self) -> &'static str {
        match self {
            Self::Messages | Self::Chat => "messages",
            Self::Responses => "input",
        }
    }

    /// A name of a model that the provider for tests accepts.
    pub(crate) const fn model(self) -> &'static str {
        match self {
            Self::Messages => "claude-fake",
            Self::Chat | Self::Responses => "gpt-fake",
        }
    }
}

/// A response, as the agent got it.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// An agent with one conversation.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) api: Api,
    /// The address of the gateway or of the provider.
    pub(crate) url: String,
    pub(crate) model: String,
    pub(crate) key: String,
    /// The name of the conversation in a header.
    pub(crate) session: Option<String>,
    /// The header `anthropic-beta`.
    pub(crate) betas: Option<&'static str>,
    pub(crate) conversation: Vec<Value>,
    /// True if a cache marker is at the end of the conversation. Default: true.
    pub(crate) marks: bool,
    pub(crate) client: Client,
}

impl Agent {
    pub(crate) fn new(api: Api, url: &str, session: Option<&str>) -> Self {
        let conversation = match api {
            Api::Messages | Api::Responses => Vec::new(),
            Api::Chat => vec![json!({"role": "system", "content": "You are a test."})],
        };
        Self {
            api,
            url: url.to_owned(),
            model: api.model().to_owned(),
            key: "key-of-the-agent".to_owned(),
            session: session.map(str::to_owned),
            betas: None,
            conversation,
            marks: true,
            client: Client::new(),
        }
    }

    pub(crate) fn say(&mut self, text: &str) {
        let item = match self.api {
            Api::Messages => {
                json!({"role": "user", "content": [{"type": "text", "text": text}]})
            }
            Api::Chat => json!({"role": "user", "content": text}),
            Api::Responses => json!({"type": "message", "role": "user",
                "content": [{"type": "input_text", "text": text}]}),
        };
        self.conversation.push(item);
    }

    /// The body of the next request.
    pub(crate) fn body(&self) -> Value {
        let schema = json!({"type": "object", "properties": {"command": {"type": "string"}},
            "required": ["command"]});
        let mut body = match self.api {
            Api::Messages => json!({"max_tokens": 1_000, "system": "You are a test.",
                "tools": [{"name": "Bash", "description": "Runs a command.", "input_schema": schema}]}),
            Api::Chat => json!({"tools": [{"type": "function", "function": {"name": "Bash",
                "description": "Runs a command.", "parameters": schema}}]}),
            // A provider that stores nothing returns reasoning only in its encrypted form.
            Api::Responses => json!({"store": false, "instructions": "You are a test.",
                "include": ["reasoning.encrypted_content"], "tools": [{"type": "function", "name": "Bash",
                "description": "Runs a command.", "strict": false, "parameters": schema}]}),
        };
        body["model"] = json!(self.model);
        body[self.api.field()] = json!(self.marked());
        body
    }

    /// The conversation with a cache marker at its end, which moves with each request.
    fn marked(&self) -> Vec<Value> {
        let mut conversation = self.conversation.clone();
        if self.api == Api::Messages
            && self.marks
            && let Some(blocks) = conversation
                .last_mut()
                // A string as content has no place for a marker.
                .and_then(|last| last["content"].as_array_mut())
            && let Some(block) = blocks.last_mut()
        {
            block["cache_control"] = json!({"type": "ephemeral"});
        }
        conversation
    }

    /// Sends a body to a path below the base URL.
    pub(crate) async fn post(&self, path: &str, body: String) -> Reply {
        self.send(self.request(path).body(body)).await
    }

    /// Sends a body that is compressed with gzip.
    pub(crate) async fn post_gzip(&self, path: &str, body: Vec<u8>) -> Reply {
        let request = self.request(path).header("content-encoding", "gzip");
        self.send(request.body(body)).await
    }

    fn request(&self, path: &str) -> reqwest::RequestBuilder {
        let mut request = self.client.post(format!("{}{path}", self.url));
        request = match self.api {
            Api::Messages => request
                .header("x-api-key", &self.key)
                .header("anthropic-version", "2023-06-01"),
            Api::Chat | Api::Responses => request.bearer_auth(&self.key),
        };
        if let Some(session) = &self.session {
            request = request.header("x-session-id", session);
        }
        if let Some(betas) = self.betas {
            request = request.header("anthropic-beta", betas);
        }
        request.header("content-type", "application/json")
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Reply {
        let response = request.send().await.unwrap();
        Reply {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            text: response.text().await.unwrap(),
        }
    }

    /// Sends the conversation. Adds the response, and the results of its calls.
    pub(crate) async fn step(&mut self) -> (Reply, bool) {
        let reply = self.post(self.api.path(), self.body().to_string()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let has_calls = self.add(&reply.json());
        (reply, has_calls)
    }

    /// Sends the conversation of the Messages API and reads the response as a stream. Adds the response and the results of
    /// its calls. Returns false if the response does not arrive completely.
    pub(crate) async fn try_step(&mut self) -> bool {
        let mut body = self.body();
        body["stream"] = json!(true);
        let request = self.client.post(format!("{}{}", self.url, self.api.path()));
        let request = request
            .header("x-api-key", &self.key)
            .header("anthropic-version", "2023-06-01")
            .header("content-type", "application/json")
            .header("x-session-id", self.session.as_deref().unwrap_or_default());
        let Ok(response) = request.body(body.to_string()).send().await else {
            return false;
        };
        assert_eq!(response.status(), 200);
        let Ok(events) = response.text().await else {
            return false;
        };
        let Some(content) = assembled(&events) else {
            return false;
        };
        self.add(&json!({"content": content}))
    }

    /// Adds a response to the conversation, and the results of its calls. Returns true if it has calls.
    pub(crate) fn add(&mut self, response: &Value) -> bool {
        let mut results = Vec::new();
        match self.api {
            Api::Messages => {
                let content = response["content"].clone();
                for block in content.as_array().unwrap() {
                    if block["type"] == "tool_use" {
                        results.push(json!({"type": "tool_result", "tool_use_id": block["id"],
                            "content": run(&block["input"])}));
                    }
                }
                self.conversation
                    .push(json!({"role": "assistant", "content": content}));
                if !results.is_empty() {
                    // Anthropic requires all results of a round in one message. The other APIs have a message or an
                    // item for each.
                    let results = json!({"role": "user", "content": results});
                    self.conversation.push(results);
                    return true;
                }
            }
            Api::Chat => {
                let message = response["choices"][0]["message"].clone();
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let input = call["function"]["arguments"].as_str().unwrap();
                    let input: Value = serde_json::from_str(input).unwrap();
                    results.push(json!({"role": "tool", "tool_call_id": call["id"],
                        "content": run(&input)}));
                }
                self.conversation.push(message);
            }
            Api::Responses => {
                for item in response["output"].as_array().unwrap() {
                    if item["type"] == "function_call" {
                        let input = item["arguments"].as_str().unwrap();
                        let input: Value = serde_json::from_str(input).unwrap();
                        results.push(json!({"type": "function_call_output",
                            "call_id": item["call_id"], "output": run(&input)}));
                    }
                    self.conversation.push(item.clone());
                }
            }
        }
        let has_calls = !results.is_empty();
        self.conversation.extend(results);
        has_calls
    }
}

/// Returns the output of the command `seq -f FORMAT 1 LAST`, which the provider's agent calls.
fn run(input: &Value) -> String {
    let command = input["command"].as_str().unwrap();
    // The format is between single quotes, and the number of lines is the last word.
    let format = command.split('\'').nth(1).unwrap();
    let last: u64 = command.rsplit(' ').next().unwrap().parse().unwrap();
    let line = |number: u64| format.replace("%08.0f", &format!("{number:08}"));
    (1..=last).map(|number| line(number) + "\n").collect()
}

/// Returns the content of a streamed message. `None` if its last event is missing.
fn assembled(events: &str) -> Option<Vec<Value>> {
    let data = events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let mut blocks: Vec<Value> = Vec::new();
    let mut inputs: Vec<String> = Vec::new();
    for event in data.map(|data| serde_json::from_str::<Value>(data).unwrap()) {
        let index = usize::try_from(event["index"].as_u64().unwrap_or_default()).unwrap();
        match event["type"].as_str() {
            Some("content_block_start") => {
                blocks.push(event["content_block"].clone());
                inputs.push(String::new());
            }
            Some("content_block_delta") => {
                let delta = &event["delta"];
                if let Some(text) = delta["text"].as_str() {
                    let so_far = blocks[index]["text"].as_str().unwrap_or_default();
                    blocks[index]["text"] = json!(format!("{so_far}{text}"));
                }
                // The input of a call arrives in parts of one JSON text, which is complete at the end of its block.
                inputs[index] += delta["partial_json"].as_str().unwrap_or_default();
            }
            Some("content_block_stop") if !inputs[index].is_empty() => {
                blocks[index]["input"] = serde_json::from_str(&inputs[index]).unwrap();
            }
            Some("message_stop") => return Some(blocks),
            _ => {}
        }
    }
    None
}

/// Returns a body that is compressed with gzip.
pub(crate) fn gzip(body: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body.as_bytes()).unwrap();
    encoder.finish().unwrap()
}
