//! Palimpsest over gRPC: a server with its store on disk, one `PrepareContext` per model call, and the caller's array
//! maintained from the replies.
//!
//! The measured time is the time that a caller waits. It includes the request, the local network, the gRPC layers, JSON
//! parsing, the levels, the commit to disk and the reply. It is not comparable with the time of the works alone, and is
//! in a separate table.

use std::path::Path;

use anyhow::Context as _;
use palimpsest_proto::context::v1::{
    Format, MessageInput, Payload, PrepareContextRequest, PrepareContextResponse, message_input,
};
use palimpsest_tests::{Context, Server};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::conversation::{Conversation, Step};
use crate::player::{Asked, Played, Watch, serve};
use crate::views::Writer;
use crate::works;

/// A server and a client.
struct World {
    runtime: Runtime,
    client: Context,
    _server: Server,
    _folder: TempDir,
    /// Number of sessions so far. Each play uses a new one.
    sessions: usize,
}

/// Plays the requests from standard input.
pub(crate) fn play() -> anyhow::Result<()> {
    let mut world = World::start()?;
    let hello = json!({ "peer": "Palimpsest over gRPC", "works": works::WORKS });
    serve(&hello, |line| {
        let asked: Asked = serde_json::from_str(line)?;
        Ok(serde_json::to_value(world.played(&asked)?)?)
    })
}

impl World {
    fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let settings = folder.path().join("palimpsest.toml");
        std::fs::write(&settings, configuration()?)?;
        let settings = path_text(&settings)?;
        let server = Server::start(&folder.path().join("data"), &["--config", settings]);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let client = runtime.block_on(server.context());
        Ok(Self {
            runtime,
            client,
            _server: server,
            _folder: folder,
            sessions: 0,
        })
    }

    fn played(&mut self, asked: &Asked) -> anyhow::Result<Played> {
        let conversation = Conversation::read(&asked.conversation)?;
        let mut writer = asked.views.as_deref().map(Writer::create).transpose()?;
        self.sessions += 1;
        let session = format!("projects/{}/sessions/play-{}", asked.work, self.sessions);
        let (mut call_ns, mut array, mut etag) = (Vec::new(), Vec::new(), Vec::new());
        let mut new: Vec<&str> = Vec::new();
        for step in &conversation.steps {
            match step {
                Step::Message(raw) => new.push(raw.get()),
                Step::Call(_) => {
                    let request = PrepareContextRequest {
                        session: session.clone(),
                        messages: new.drain(..).map(input).collect(),
                        known_etag: std::mem::take(&mut etag).into(),
                        ..PrepareContextRequest::default()
                    };
                    // The construction of the request is not measured.
                    let watch = Watch::start();
                    let reply = self
                        .runtime
                        .block_on(self.client.prepare_context(request))?;
                    let reply: PrepareContextResponse = reply.into_inner();
                    array.truncate(reply.keep_messages as usize);
                    let fresh = reply.messages_json.iter();
                    array.extend(fresh.map(|message| message.to_vec()));
                    call_ns.push(watch.real_ns());
                    etag = reply.etag.to_vec();
                    if let Some(writer) = &mut writer {
                        writer.write(&array)?;
                    }
                }
            }
        }
        writer.map(Writer::finish).transpose()?;
        Ok(Played { call_ns })
    }
}

/// Returns the server's configuration. Each work's policy belongs to a project with its name.
fn configuration() -> anyhow::Result<String> {
    let mut projects = serde_json::Map::new();
    for work in works::WORKS {
        let policy = works::overlay(work)?;
        projects.insert(work.into(), json!({ "policy": policy.fields() }));
    }
    Ok(toml::to_string(&json!({ "projects": projects }))?)
}

fn path_text(path: &Path) -> anyhow::Result<&str> {
    path.to_str()
        .context("the path of temporary files has to be UTF-8; set TMPDIR to one that is")
}

fn input(json: &str) -> MessageInput {
    MessageInput {
        content: Some(message_input::Content::Payload(Payload {
            format: Format::AnthropicMessages.into(),
            json: json.to_owned().into(),
        })),
        ..MessageInput::default()
    }
}
