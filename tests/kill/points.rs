//! Tests that stop the process at a named point of an update of session memory, a compaction, a commit or an undo.
//! Afterwards the view is the one before or after the step, and all later steps work.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use palimpsest_core::validate::validate;
use palimpsest_core::view::Target;
use palimpsest_proto::context::v1::read_tool_result_request::Result as Which;
use palimpsest_proto::context::v1::{
    CallRef, CompactRequest, CompactionStrategy, EventKind, GetSessionMemoryRequest,
    ListEventsRequest, MemoryState, MessageInput, ReadToolResultRequest, RestoreContextRequest,
};
use palimpsest_tests::Server;
use palimpsest_tests::array::flat;
use palimpsest_tests::name;
use palimpsest_tests::say::{anthropic, prepare, result, uuid, with_id};
use palimpsest_tests::server::Context;
use serde_json::json;
use tonic::Status;
use tonic_types::StatusExt as _;

/// The points at which the process ends, with the number of the pass. Points of the log count commits: of turns, of a
/// summary, of a compaction or of an undo.
const POINTS: &[&str] = &[
    "session.decided:2",
    "session.intended:2",
    "session.stored:3",
    "session.committed:4",
    "blob.put",
    "blob.put:3",
    "log.decided:2",
    "log.applied:3",
    "log.flushed:6",
    "log.synced:9",
    "log.applied:14",
    "log.synced:18",
    "memory.claimed",
    "memory.begun",
    "memory.noted",
    "memory.drafted",
    "memory.committed",
    "summary.written",
    "summary.placed",
    "memory.filed",
    "memory.begun:2",
    "memory.committed:2",
    "summary.placed:2",
    "compaction.begun",
    "compaction.summarized",
    "restore.read",
];

/// Settings with short intervals, compactions of small sessions, and stored results.
const SETTINGS: &[&str] = &[
    "worker.edit_debounce_ms=50",
    "worker.poll_ms=50",
    "worker.lease_ms=600",
    "worker.max_backoff_ms=500",
    "policy.session_memory.stale_after=1s",
    "policy.session_memory.start_tokens=2000",
    "policy.session_memory.update_tokens=1000",
    "policy.session_memory.update_tool_calls=1",
    "policy.session_memory.keep_min_tokens=200",
    "policy.session_memory.keep_min_messages=1",
    "policy.autocompact.min_input_tokens=100",
    "policy.tool_results.max_result_chars=4000",
];

/// Time limit for background work.
const TIMEOUT: Duration = Duration::from_mins(2);

const ASKS_ON: &[u8] = br#"{"role":"user","content":[{"type":"text","text":"go on"}]}"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The turn with this number.
    Turn(u64),
    /// Waits for session memory.
    Noted,
    /// Compacts the view, from session memory or by extraction.
    Compact(CompactionStrategy),
    /// Undoes the last compaction.
    Undo,
}

const STEPS: &[Step] = &[
    Step::Turn(0),
    Step::Turn(1),
    Step::Turn(2),
    Step::Noted,
    Step::Compact(CompactionStrategy::SessionMemory),
    Step::Turn(3),
    Step::Turn(4),
    Step::Noted,
    Step::Compact(CompactionStrategy::Extractive),
    Step::Undo,
    Step::Turn(5),
    Step::Noted,
];

/// The client and the expected state of its session.
struct World {
    session: String,
    /// The view after the last step.
    view: Vec<Bytes>,
    /// The revision and the view before the last compaction.
    undone: (u64, Vec<Bytes>),
    compactions: usize,
    turns: u64,
}

fn large(number: u64) -> String {
    let lines = (0..300).map(|line| format!("line {line} of {number} is {}\n", line * number));
    lines.collect()
}

/// Returns the user input of a turn.
fn asks(number: u64) -> String {
    format!("Please mend module {number} of the importer.")
}

/// Returns a turn with two calls: one result is stored and one stays in the view.
fn turn(number: u64) -> Vec<MessageInput> {
    let (stored, stays) = (format!("stored_{number}"), format!("stays_{number}"));
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "Read", "input": {"file_path": format!("/src/{id}.rs")}});
    let calls = json!({"role": "assistant", "content": [call(&stored), call(&stays)]});
    // 3,000 characters are below the limit of the settings (4,000), so this result stays in the view.
    let short: String = large(number).chars().take(3_000).collect();
    let all = [
        anthropic(&json!({"role": "user", "content": asks(number)})),
        anthropic(&calls),
        result(&stored, &large(number)),
        result(&stays, &short),
        anthropic(&json!({"role": "assistant", "content": format!("Module {number} is mended.")})),
    ];
    let ids = (10 * number..).map(uuid);
    ids.zip(all).map(|(id, said)| with_id(&id, said)).collect()
}

impl World {
    fn new() -> Self {
        Self {
            session: name("points"),
            view: Vec::new(),
            undone: (0, Vec::new()),
            compactions: 0,
            turns: 0,
        }
    }

    /// Returns the complete view, which must be valid, and the revision.
    async fn whole(&self, client: &mut Context) -> Result<(Vec<Bytes>, u64), Status> {
        let reply = client.prepare_context(prepare(&self.session, vec![])).await;
        let reply = reply?.into_inner();
        let mut sent = reply.messages_json.clone();
        if sent
            .last()
            .is_none_or(|last| last.starts_with(br#"{"role":"assistant""#))
        {
            // A request must end with a user message to be valid.
            sent.push(Bytes::from_static(ASKS_ON));
        }
        assert_eq!(validate(&Target::default(), &sent), [], "{sent:?}");
        Ok((reply.messages_json, reply.revision))
    }

    async fn run(&mut self, client: &mut Context, step: Step) -> Result<(), Status> {
        match step {
            Step::Turn(number) => {
                let mut request = prepare(&self.session, turn(number));
                request.request_id = format!("turn {number}");
                client.prepare_context(request).await?;
            }
            Step::Noted => self.noted(client).await?,
            Step::Compact(strategy) => {
                self.undone = self.whole(client).await.map(|(view, at)| (at, view))?;
                let request = CompactRequest {
                    session: self.session.clone(),
                    strategy: strategy.into(),
                    ..CompactRequest::default()
                };
                client.compact(request).await?;
            }
            Step::Undo => {
                let request = RestoreContextRequest {
                    session: self.session.clone(),
                    to_revision: self.undone.0,
                    ..RestoreContextRequest::default()
                };
                client.restore_context(request).await?;
            }
        }
        let (view, _) = self.whole(client).await?;
        self.did(step, view);
        Ok(())
    }

    fn did(&mut self, step: Step, view: Vec<Bytes>) {
        self.view = view;
        self.compactions += usize::from(matches!(step, Step::Compact(_)));
        if let Step::Turn(number) = step {
            self.turns = number + 1;
        }
    }

    /// Waits until session memory covers the whole session.
    async fn noted(&self, client: &mut Context) -> Result<(), Status> {
        let began = Instant::now();
        loop {
            let request = GetSessionMemoryRequest {
                session: self.session.clone(),
                ..GetSessionMemoryRequest::default()
            };
            let memory = client.get_session_memory(request).await?.into_inner();
            let memory = memory.memory.unwrap();
            if memory.state() == MemoryState::Ready && memory.behind_messages == 0 {
                return Ok(());
            }
            assert!(began.elapsed() < TIMEOUT, "no summary: {memory:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn compactions(&self, server: &Server) -> usize {
        let list = ListEventsRequest {
            session: self.session.clone(),
            kinds: vec![EventKind::Compacted.into()],
            ..ListEventsRequest::default()
        };
        let events = server.sessions().await.list_events(list).await;
        events.map_or(0, |events| events.into_inner().events.len())
    }

    /// Asserts that the view after a restart is the one before or the one after the interrupted step. Returns true if
    /// the step took effect.
    async fn check(&mut self, server: &Server, step: Step) -> bool {
        let mut client = server.context().await;
        let compactions = self.compactions(server).await;
        let found = match self.whole(&mut client).await {
            Ok((found, _)) => found,
            // The first turn did not take effect, so the session does not exist.
            Err(status) => {
                assert_eq!(status.code(), tonic::Code::NotFound, "{status:?}");
                Vec::new()
            }
        };
        if found == self.view {
            return false;
        }
        let text = |view: &[Bytes]| {
            flat(view)
                .into_iter()
                .map(|(_, block)| block)
                .collect::<String>()
        };
        match step {
            Step::Turn(number) => {
                assert!(flat(&found).starts_with(&flat(&self.view)), "{step:?}");
                assert!(text(&found).contains(&format!("Module {number} is mended.")));
                assert!(text(&found).contains("<persisted-output>"));
            }
            Step::Noted => panic!("a summary changed the view"),
            Step::Compact(_) => {
                assert_eq!(compactions, self.compactions + 1);
                assert!(text(&found).contains("<conversation-summary>"));
                let last = asks(self.turns - 1);
                assert!(text(&found).contains(&last), "{step:?}: {found:?}");
            }
            Step::Undo => assert!(found == self.undone.1, "neither the old nor the new view"),
        }
        self.did(step, found);
        true
    }

    /// Asserts that every reference in the view can be read completely.
    async fn check_results(&self, client: &mut Context, turns: u64) {
        for number in 0..turns {
            let request = ReadToolResultRequest {
                session: self.session.clone(),
                result: Some(Which::Call(CallRef {
                    tool_use_id: format!("stored_{number}"),
                    ..CallRef::default()
                })),
                ..ReadToolResultRequest::default()
            };
            let mut chunks = client.read_tool_result(request).await.unwrap().into_inner();
            let mut read = Vec::new();
            while let Some(chunk) = chunks.message().await.unwrap() {
                read.extend_from_slice(&chunk.data);
            }
            assert_eq!(String::from_utf8(read).unwrap(), large(number));
        }
    }

    /// Asserts that the file is absent or complete with all headings, at any time. Returns its text.
    fn check_file(&self, folder: &Path) -> String {
        let session = self.session.rsplit('/').next().unwrap();
        let path = folder.join("blobs").join("p").join(session);
        let path = path.join("session-memory").join("summary.md");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let headings = text.lines().filter(|line| line.starts_with("# ")).count();
        assert!(headings == 0 || headings == 10, "half a file: {text}");
        text
    }
}

/// Runs all steps. The process ends at the given point and is started again.
async fn crash_at(point: &'static str) {
    let folder = tempfile::tempdir().unwrap();
    let settings: Vec<&str> = SETTINGS.iter().flat_map(|one| ["--set", one]).collect();
    let crash = [("CRASH_AT", point)];
    let mut server = Some(Server::start_with(folder.path(), &settings, &crash));
    let mut client = server.as_ref().unwrap().context().await;
    let mut world = World::new();
    let mut crashed = false;
    let mut steps = STEPS.iter().copied().peekable();
    while let Some(step) = steps.peek().copied() {
        let Err(status) = world.run(&mut client, step).await else {
            steps.next();
            continue;
        };
        // A running server rejects calls with a reason. An error without a reason is a lost connection.
        let refusal = status.get_details_error_info();
        assert!(
            refusal.is_none() && !crashed,
            "{point}, {step:?}: {status:?}"
        );
        let status = server.take().unwrap().wait();
        assert!(!status.success(), "{point}: the server exited normally");
        crashed = true;
        world.check_file(folder.path());
        let again = Server::start(folder.path(), &settings);
        client = again.context().await;
        if world.check(&again, step).await {
            steps.next();
        }
        server = Some(again);
    }
    assert!(crashed, "{point} was not reached");
    world.check_results(&mut client, 6).await;
    let began = Instant::now();
    while !world.check_file(folder.path()).contains("module 5") {
        assert!(
            began.elapsed() < TIMEOUT,
            "{point}: the file is older than the text"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The client must be dropped first. Its connection cannot close while the blocking `stop` below occupies the
    // thread.
    drop(client);
    server.unwrap().stop();
}

/// Number of points that run in parallel.
const AT_ONCE: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p08_a_crash_at_any_point_leaves_the_old_or_the_new_view() {
    let mut points = POINTS.iter().copied();
    let mut running = tokio::task::JoinSet::new();
    for point in points.by_ref().take(AT_ONCE) {
        running.spawn(crash_at(point));
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
        if let Some(point) = points.next() {
            running.spawn(crash_at(point));
        }
    }
}
