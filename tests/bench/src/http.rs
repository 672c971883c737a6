//! Measures the processor time of turns over HTTP with JSON. The limit is twice the time of the same turns over gRPC, in
//! turn on the same server.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use palimpsest_load::test_server::cpu;
use palimpsest_proto::context::v1::{Format, Payload, PrepareContextRequest, SyncContextRequest};
use palimpsest_tests::Server;
use palimpsest_tests::say::{anthropic, uuid, with_id};
use palimpsest_tests::server::Context;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::row::{MICROS, Row, Target};

/// The sizes of this part.
pub(crate) struct Extent {
    pub(crate) rounds: usize,
    /// The turns of a round, for each kind of turn and each protocol.
    pub(crate) turns: usize,
    /// The size of a long conversation, in tokens.
    pub(crate) tokens: usize,
}

/// The bytes of a token in the generated text.
const TOKEN_BYTES: usize = 4;
/// The bytes of a message.
const MESSAGE_BYTES: usize = 2_000;
/// The maximum ratio to the time of gRPC.
const MAX_RATIO: f64 = 2.0;

/// Measures the rows of the HTTP API.
pub(crate) fn rows(folder: &Path, extent: &Extent, mut tell: impl FnMut(&Row)) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir_in(folder).context("no folder for the server's data")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let rows = runtime.block_on(measured(folder.path(), extent))?;
    rows.iter().for_each(&mut tell);
    Ok(rows)
}

async fn measured(folder: &Path, extent: &Extent) -> Result<Vec<Row>> {
    // Updates of session memory would be a part of the time, at other moments for each protocol.
    let settings = [
        "--set",
        "policy.tokens.default_window_tokens=1000000",
        "--set",
        "worker.enabled=false",
    ];
    let server = Server::start(folder, &settings);
    let mut callers = Callers {
        grpc: server.context().await,
        http: TcpStream::connect(server.address()).await?,
    };
    callers.http.set_nodelay(true)?;
    let mut rows = Vec::new();
    let long = format!("SyncContext, {} tokens", extent.tokens);
    for (name, kind) in [
        ("PrepareContext, 2 KB", Kind::Prepare),
        (&*long, Kind::Sync),
    ] {
        let mut pairs = Vec::new();
        // The clock of processor time is coarse for short turns.
        let turns = match kind {
            Kind::Prepare => extent.turns * 5,
            Kind::Sync => extent.turns,
        };
        for round in 0..extent.rounds {
            let side = |protocol| Side::new(&format!("{protocol}-{round}"), kind, extent);
            let mut sides = [side("grpc"), side("http")];
            // The first turn creates the session.
            callers.round(&server, &mut sides, 1).await?;
            let [grpc, http] = callers.round(&server, &mut sides, turns).await?;
            pairs.push((http, grpc * MAX_RATIO));
        }
        let limit = (MICROS, "processor time over gRPC, twice");
        let name = format!("HTTP, processor time of {name}");
        rows.push(Row::new(name, &pairs, limit, Target::AtMost(1.0)));
    }
    Ok(rows)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// New messages in, the rest of the view out.
    Prepare,
    /// The whole conversation in and out.
    Sync,
}

/// The conversation of one protocol.
struct Side {
    session: String,
    kind: Kind,
    /// The array without its end.
    array: String,
    messages: u64,
    /// The etag of the view that the caller holds.
    etag: Etag,
}

/// An etag in the form of its protocol.
#[derive(Default)]
struct Etag {
    grpc: Bytes,
    http: Value,
}

impl Side {
    fn new(protocol: &str, kind: Kind, extent: &Extent) -> Self {
        let mut side = Self {
            session: format!("{protocol}-{kind:?}").to_lowercase(),
            kind,
            array: "[".to_owned(),
            messages: 0,
            etag: Etag::default(),
        };
        while kind == Kind::Sync && side.array.len() < extent.tokens * TOKEN_BYTES {
            side.next();
        }
        side
    }

    /// Adds a message and returns it.
    fn next(&mut self) -> Value {
        self.messages += 1;
        let role = if self.messages % 2 == 1 {
            "user"
        } else {
            "assistant"
        };
        let line = format!("line {}\n", self.messages);
        let message = json!({"role": role, "content": line.repeat(MESSAGE_BYTES / line.len())});
        if self.messages > 1 {
            self.array.push(',');
        }
        self.array.push_str(&message.to_string());
        message
    }

    /// Adds a response of the model and a message of the user.
    fn turn(&mut self) -> [Value; 2] {
        // Roles alternate, and a turn ends with the user. A new conversation therefore begins with one more message.
        if self.messages == 0 {
            self.next();
        }
        [self.next(), self.next()]
    }
}

struct Callers {
    grpc: Context,
    http: TcpStream,
}

impl Callers {
    /// Returns the processor time of one turn in microseconds, over gRPC and over HTTP.
    async fn round(
        &mut self,
        server: &Server,
        sides: &mut [Side; 2],
        turns: usize,
    ) -> Result<[f64; 2]> {
        let used = || cpu(server.pid()).as_secs_f64() * 1e6;
        let [grpc, http] = sides;
        let start = used();
        for _ in 0..turns {
            self.call(grpc).await?;
        }
        let middle = used();
        for _ in 0..turns {
            self.send(http).await?;
        }
        let end = used();
        #[expect(clippy::cast_precision_loss, reason = "the number of turns is small")]
        let turns = turns as f64;
        Ok([(middle - start) / turns, (end - middle) / turns])
    }

    /// Makes a turn over gRPC.
    async fn call(&mut self, side: &mut Side) -> Result<()> {
        let new = side.turn();
        let session = format!("projects/bench/sessions/{}", side.session);
        if side.kind == Kind::Sync {
            let payload = Payload {
                format: Format::AnthropicMessages.into(),
                json: format!("{{\"system\":\"s\",\"messages\":{}]}}", side.array).into(),
            };
            let request = SyncContextRequest {
                session,
                payload: Some(payload),
                ..SyncContextRequest::default()
            };
            self.grpc.sync_context(request).await?;
            return Ok(());
        }
        let first = side.messages - 1;
        let messages = new
            .iter()
            .zip(first..)
            .map(|(message, number)| with_id(&uuid(number), anthropic(message)));
        let request = PrepareContextRequest {
            session,
            messages: messages.collect(),
            known_etag: side.etag.grpc.clone(),
            ..PrepareContextRequest::default()
        };
        let reply = self.grpc.prepare_context(request).await?.into_inner();
        side.etag.grpc = reply.etag;
        Ok(())
    }

    /// Makes a turn over HTTP.
    async fn send(&mut self, side: &mut Side) -> Result<()> {
        let new = side.turn();
        let (verb, body) = if side.kind == Kind::Sync {
            let parameters = r#"{"format":"anthropic_messages"}"#;
            let body = format!(
                "{{\"system\":\"s\",\"palimpsest\":{parameters},\"messages\":{}]}}",
                side.array
            );
            ("sync", body)
        } else {
            let first = 1_000_000 + side.messages - 1;
            let messages = new.iter().zip(first..).map(|(message, number)| {
                json!({"id": uuid(number), "payload": {"format": "anthropic_messages", "json": message}})
            });
            let messages: Vec<_> = messages.collect();
            (
                "prepare",
                json!({"messages": messages, "known_etag": side.etag.http}).to_string(),
            )
        };
        let head = format!(
            "POST /v1/projects/bench/sessions/{}:{verb} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
            side.session,
            body.len()
        );
        self.http
            .write_all(&[head.as_bytes(), body.as_bytes()].concat())
            .await?;
        let reply = self.reply().await?;
        if side.kind == Kind::Prepare {
            let reply: Value = serde_json::from_slice(&reply)?;
            side.etag.http = reply["etag"].clone();
        }
        Ok(())
    }

    /// Reads the body of a response.
    async fn reply(&mut self) -> Result<Vec<u8>> {
        let mut received = Vec::with_capacity(64 * 1024);
        let head_end = loop {
            if let Some(at) = received.windows(4).position(|end| end == b"\r\n\r\n") {
                break at + 4;
            }
            if self.http.read_buf(&mut received).await? == 0 {
                bail!("the response ended");
            }
        };
        let head = String::from_utf8_lossy(&received[..head_end]).to_lowercase();
        let length = head
            .split_once("content-length: ")
            .context("the response has no length")?
            .1;
        let length: usize = length.split("\r\n").next().unwrap_or_default().parse()?;
        while received.len() < head_end + length {
            if self.http.read_buf(&mut received).await? == 0 {
                bail!("the response ended");
            }
        }
        let body = received.split_off(head_end);
        if !head.starts_with("http/1.1 200") {
            bail!("the response is {head}{}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }
}
