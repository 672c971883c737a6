//! A conversation of an agent with connections to the provider and to the gateways.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::TOKEN_BYTES;
use super::provider::LAST_EVENT;

/// The bytes of one tool result.
const RESULT_BYTES: usize = 8_000;

/// The receiver of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The provider.
    Direct,
    /// A gateway that only forwards.
    Forwarding,
    /// A gateway whose sessions take the conversations.
    Managed,
}

impl Side {
    /// All sides, in the order of a conversation's requests.
    pub(super) const ALL: [Self; 3] = [Self::Direct, Self::Forwarding, Self::Managed];
}

/// The times of one request, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Latency {
    pub(super) first_byte: f64,
    pub(super) end: f64,
}

/// A response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Response {
    pub(super) latency: Latency,
    /// The prompt tokens that the provider reports.
    pub(super) tokens: usize,
    /// True if the provider got the view.
    pub(super) is_view: bool,
}

/// A conversation with a connection to each side.
pub(super) struct Conversation {
    name: String,
    /// The body without its end.
    body: Vec<u8>,
    steps: usize,
    connections: [TcpStream; 3],
}

impl Conversation {
    /// Creates a conversation of `tokens` tokens. `addresses` are those of [`Side::ALL`].
    pub(super) async fn new(
        (name, model): (String, &str),
        tokens: usize,
        addresses: &[String; 3],
    ) -> Result<Self> {
        let start = format!(
            r#"{{"model":"{model}","max_tokens":1000,"stream":true,"tools":[{{"name":"Bash","input_schema":{{"type":"object"}}}}],"messages":[{{"role":"user","content":"Work."}}"#
        );
        let connect = async |address: &String| -> Result<TcpStream> {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let [direct, forwarding, managed] = addresses;
        let mut conversation = Self {
            name,
            body: start.into_bytes(),
            steps: 0,
            connections: [
                connect(direct).await?,
                connect(forwarding).await?,
                connect(managed).await?,
            ],
        };
        while conversation.body.len() < tokens * TOKEN_BYTES {
            conversation.grow(RESULT_BYTES);
        }
        Ok(conversation)
    }

    /// Adds a call and its result.
    pub(super) fn grow(&mut self, bytes: usize) {
        self.steps += 1;
        let id = format!("toolu_{}", self.steps);
        let line = format!("line {} of {}\n", self.steps, self.name);
        let call = json!({"role": "assistant", "content": [
            {"type": "text", "text": "ok"},
            {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": "ls"}}]});
        let result = json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": line.repeat(bytes / line.len() + 1)}]});
        self.body
            .extend_from_slice(format!(",{call},{result}").as_bytes());
    }

    /// Sends the conversation.
    pub(super) async fn request(&mut self, side: Side) -> Result<Response> {
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: provider\r\nx-api-key: k\r\nanthropic-version: 2023-06-01\r\n\
             x-palimpsest-session: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.name,
            // The request adds `]}`, the end of the array and of the body.
            self.body.len() + 2
        );
        let request = [head.as_bytes(), &self.body, b"]}"].concat();
        let stream = &mut self.connections[side as usize];
        let began = Instant::now();
        let since = || began.elapsed().as_secs_f64() * 1e3;
        stream.write_all(&request).await?;
        let mut received = Vec::with_capacity(4096);
        let mut first_byte = None;
        while !received.ends_with(LAST_EVENT) {
            if stream.read_buf(&mut received).await? == 0 {
                bail!("the response ended: {}", String::from_utf8_lossy(&received));
            }
            first_byte.get_or_insert_with(since);
        }
        let latency = Latency {
            first_byte: first_byte.unwrap_or_default(),
            end: since(),
        };
        let text = String::from_utf8_lossy(&received);
        let body = |kind: &str| text.contains(&format!("x-palimpsest-body: {kind}"));
        let is_view = body("view");
        // An unmanaged request would measure a gateway that only forwards.
        if side == Side::Managed && !is_view && !body("original") {
            bail!("a session did not take the conversation: {text}");
        }
        let tokens = text.split_once("\"input_tokens\":").map(|(_, rest)| rest);
        let tokens = tokens.and_then(|rest| rest.split(',').next()?.parse().ok());
        Ok(Response {
            latency,
            tokens: tokens.context("the response contains no usage")?,
            is_view,
        })
    }
}
