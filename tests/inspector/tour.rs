//! A session in which every level acts.

use palimpsest_proto::context::v1::{
    CompactRequest, CompactionStrategy, Level, MessageInput, PrepareContextRequest, SnipRequest,
    Target,
};
use palimpsest_tests::name;
use palimpsest_tests::say::{
    anthropic, assistant, assistant_calls, prepare, result, user, uuid, with_id,
};
use palimpsest_tests::server::{Context, Server};
use serde_json::{Value, json};

/// The name of the session.
pub(crate) const TOUR: &str = "tour";
/// The number of requests in the tour.
pub(crate) const REQUESTS: usize = 7;

/// A session to which messages with fixed ids are added.
pub(crate) struct Tour {
    client: Context,
    session: String,
    next: u64,
}

impl Tour {
    pub(crate) async fn begin(server: &Server, session: &str) -> Self {
        Self {
            client: server.context().await,
            session: name(session),
            next: 1,
        }
    }

    /// Appends messages and prepares a request. Returns the revision.
    pub(crate) async fn request(&mut self, messages: Vec<MessageInput>) -> u64 {
        let messages = messages.into_iter().map(|message| {
            self.next += 1;
            with_id(&uuid(self.next - 1), message)
        });
        let request = PrepareContextRequest {
            target: Some(Target {
                model: "claude-sonnet-4-5".into(),
                window_tokens: Some(60_000),
                ..Target::default()
            }),
            ..prepare(&self.session, messages.collect())
        };
        let reply = self.client.prepare_context(request).await.unwrap();
        reply.into_inner().revision
    }

    async fn snip(&mut self, message: u64) -> u64 {
        let request = SnipRequest {
            session: self.session.clone(),
            message_ids: vec![uuid(message)],
            reason: "of no use".into(),
            ..SnipRequest::default()
        };
        self.client
            .snip(request)
            .await
            .unwrap()
            .into_inner()
            .revision
    }

    /// Runs a level. Returns the revision.
    pub(crate) async fn compact(&mut self, level: Level) -> u64 {
        let request = CompactRequest {
            session: self.session.clone(),
            level: level.into(),
            target_tokens: (level == Level::Microcompact).then_some(0),
            strategy: CompactionStrategy::Extractive.into(),
            ..CompactRequest::default()
        };
        self.client
            .compact(request)
            .await
            .unwrap()
            .into_inner()
            .revision
    }
}

fn reads(files: &[String]) -> MessageInput {
    let calls: Vec<Value> = files
        .iter()
        .map(|file| json!({"type": "tool_use", "id": file, "name": "Read", "input": {"file_path": file}}))
        .collect();
    anthropic(&json!({"role": "assistant", "content": calls}))
}

fn results(files: &[String]) -> MessageInput {
    let results: Vec<Value> = files
        .iter()
        .map(|file| {
            let text = format!("a line of the file {file}\n").repeat(60);
            json!({"type": "tool_result", "tool_use_id": file, "content": text})
        })
        .collect();
    anthropic(&json!({"role": "user", "content": results}))
}

/// The revisions at which levels acted.
#[derive(Debug)]
pub(crate) struct Revisions {
    pub(crate) snipped: u64,
    pub(crate) cleared: u64,
    pub(crate) compacted: u64,
    pub(crate) last: u64,
}

/// Plays the tour: a stored result, a snip, cleared results and a compaction.
pub(crate) async fn play(server: &Server, session: &str) -> Revisions {
    let mut tour = Tour::begin(server, session).await;
    // 72,000 characters exceed the limit of a result, which is then stored.
    let large = format!("the first line\n{}", "large ".repeat(12_000));
    tour.request(vec![user("Look at the file a")]).await;
    tour.request(vec![assistant_calls(&["a"]), result("a", &large)])
        .await;
    tour.request(vec![assistant("It is long."), user("Look at the files b")])
        .await;
    let files: Vec<String> = (1..=8).map(|file| format!("b{file}")).collect();
    tour.request(vec![reads(&files), results(&files)]).await;
    tour.request(vec![
        assistant("Nothing there."),
        user("Look at the files c"),
    ])
    .await;
    let snipped = tour.snip(4).await;
    let files: Vec<String> = (1..=8).map(|file| format!("c{file}")).collect();
    tour.request(vec![reads(&files), results(&files)]).await;
    let cleared = tour.compact(Level::Microcompact).await;
    let compacted = tour.compact(Level::Compaction).await;
    let last = tour
        .request(vec![
            assistant("All three are read."),
            user("What did you find?"),
        ])
        .await;
    Revisions {
        snipped,
        cleared,
        compacted,
        last,
    }
}
