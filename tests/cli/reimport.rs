//! Tests the import of files from `palimpsest export`: the import restores the session, and a damaged file imports
//! nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{
    CompactRequest, CompactionStrategy, CreateSessionRequest, GetSessionMemoryRequest,
    MessageInput, MessageMetadata, RewindSessionRequest, Role, Session, SnipRequest,
};
use palimpsest_tests::say::{
    anthropic, append, assistant, assistant_call, openai, prepare, result, typed, user, uuid,
    with_id,
};
use palimpsest_tests::{Server, palimpsest};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::said;

const SETTINGS: &[&str] = &[
    "worker.edit_debounce_ms=20",
    "worker.poll_ms=20",
    "policy.session_memory.start_tokens=300",
    "policy.autocompact.min_input_tokens=100",
    "policy.tool_results.max_result_chars=4000",
];

struct World {
    server: Server,
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let args: Vec<&str> = SETTINGS.iter().flat_map(|it| ["--set", it]).collect();
        let server = Server::start(&folder.path().join("data"), &args);
        Self { server, folder }
    }

    fn run(&self, args: &[&str]) -> String {
        let server = format!("http://{}", self.server.address());
        said(&[args, &["--server", &server]].concat())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn export(&self, session: &str) -> String {
        self.run(&["export", session])
    }

    fn import(&self, path: &Path, session: &str) -> Value {
        let path = path.to_str().unwrap();
        let args = [
            "import", "--format", "palimpsest", "--json", path, "--session", session,
        ];
        serde_json::from_str(&self.run(&args)).unwrap()
    }

    /// Returns the error of a rejected file.
    fn refused(&self, path: &Path) -> String {
        let server = format!("http://{}", self.server.address());
        let path = path.to_str().unwrap();
        let args = [
            "import", "--format", "palimpsest", "--json", path, "--server", &server,
        ];
        let output = palimpsest(&args);
        assert!(!output.status.success(), "{path} was taken");
        let reports: Value = serde_json::from_slice(&output.stdout).unwrap();
        reports[0]["failure"].as_str().unwrap().to_owned()
    }

    /// Returns the text of `summary.md` once it covers the whole session.
    async fn summary(&self, session: &str) -> String {
        let mut client = self.server.context().await;
        let began = Instant::now();
        loop {
            let request = GetSessionMemoryRequest {
                session: name(session),
                ..GetSessionMemoryRequest::default()
            };
            let memory = client.get_session_memory(request).await.unwrap();
            let memory = memory.into_inner().memory.unwrap();
            if memory.version > 0 && !memory.running {
                return memory.text;
            }
            assert!(began.elapsed() < Duration::from_mins(2), "{memory:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn name(session: &str) -> String {
    format!("projects/default/sessions/{session}")
}

/// Returns the messages of an export without fields that differ between sessions and without messages that the service
/// adds.
fn messages(export: &str) -> Vec<Value> {
    let lines: Vec<&str> = export.lines().collect();
    let lines = lines[1..lines.len() - 1].iter();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines = lines.filter(|line| line["kind"] != "BOUNDARY");
    lines
        .map(|mut line| {
            let line = line.as_object_mut().unwrap();
            line.remove("revision");
            line.remove("ordinal");
            if line["kind"] == "SUMMARY" {
                // The service does not state the creation time of its own summaries.
                line.remove("create_time_ms");
            }
            Value::Object(line.clone())
        })
        .collect()
}

/// Returns the view without the random salt in the names of stored results.
pub(crate) fn unsalted(view: &str) -> String {
    let mut parts = view.split("/tool-results/");
    let mut out = parts.next().unwrap().to_owned();
    // In a name such as `c0-0123456789abcdef.txt`, the 16 digits depend on a random salt.
    for part in parts {
        let (call, rest) = part.split_once('-').unwrap();
        let (tag, rest) = rest.split_at(16);
        assert!(tag.chars().all(|c| c.is_ascii_hexdigit()), "{part}");
        out.extend(["/tool-results/", call, "-", rest]);
    }
    out
}

/// Returns a conversation with every feature of a message.
fn conversation() -> Vec<MessageInput> {
    let called = json!({"role": "assistant", "id": "msg_1", "model": "m", "stop_reason": "tool_use",
        "usage": {"input_tokens": 900, "output_tokens": 20, "cache_read_input_tokens": 5},
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "big", "name": "Read", "input": {"path": "a.rs", "n": 1.50}}]});
    let marked = json!({"role": "user", "novel": {"x": 1e3}, "content": [
        {"type": "text", "text": "Please mend the importer.", "cache_control": {"type": "ephemeral"}}]});
    let mut all = vec![
        typed(Role::System, "be brief"),
        anthropic(&marked),
        anthropic(&called),
        result("big", &"fn row() -> Row { todo!() }\n".repeat(400)),
        assistant("The importer reads rows in a.rs; it is mended and its tests pass."),
        openai(&json!({"role": "user", "content": "And the exporter?", "name": "ann"})),
        assistant_call("small"),
        result("small", "done"),
        user("a machine's words"),
        assistant(&"The exporter is mended too, and its tests pass. ".repeat(40)),
    ];
    all[8].metadata = Some(MessageMetadata {
        machine_generated: true,
        create_time: Some(prost_types::Timestamp {
            seconds: 1_748_781_296,
            nanos: 789_000_000,
        }),
        attributes: [("gitBranch".to_owned(), "main".to_owned())].into(),
        ..MessageMetadata::default()
    });
    (1..)
        .zip(all)
        .map(|(number, message)| with_id(&uuid(number), message))
        .collect()
}

#[tokio::test]
async fn an_export_restores_view_transcript_and_summary() {
    let world = World::new();
    let create = CreateSessionRequest {
        parent: "projects/default".into(),
        session_id: "first".into(),
        session: Some(Session {
            title: "mending".into(),
            branch: "main".into(),
            attributes: [("team".to_owned(), "one".to_owned())].into(),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    let mut sessions = world.server.sessions().await;
    let created = Box::pin(sessions.create_session(create)).await;
    created.unwrap();
    let mut client = world.server.context().await;
    client
        .append_messages(append(&name("first"), conversation()))
        .await
        .unwrap();
    let summary = world.summary("first").await;
    let exported = world.export("first");
    let path = world.write("first.jsonl", &exported);
    let report = world.import(&path, "again");
    assert_eq!(report[0]["defects"], json!([]), "{report:#}");
    assert_eq!(report[0]["sessions"][0]["appended"], 10);

    assert_eq!(messages(&world.export("again")), messages(&exported));
    for provider in ["anthropic", "openai"] {
        // Locations of results differ between sessions.
        let view = |session: &str| {
            let view = world.run(&["view", session, "--provider", provider]);
            unsalted(&view.replace(&format!("/{session}/"), "/s/"))
        };
        assert_eq!(view("again"), view("first"), "{provider}");
    }
    assert_eq!(world.summary("again").await, summary);
    let head = |export: &str| {
        let mut head: Value = serde_json::from_str(export.lines().next().unwrap()).unwrap();
        head["session"].take();
        head["revision"].take();
        head
    };
    assert_eq!(head(&world.export("again")), head(&exported));
    // A second import adds nothing.
    let report = world.import(&path, "again");
    let again = &report[0]["sessions"][0];
    assert_eq!(
        (&again["appended"], &again["duplicates"]),
        (&json!(0), &json!(10))
    );
}

#[tokio::test]
async fn messages_outside_the_view_stay_outside_after_import() {
    let world = World::new();
    let mut client = world.server.context().await;
    let say = |number: u64, message| with_id(&uuid(number), message);
    let session = name("changed");
    let early: Vec<_> = (1..9)
        .map(|number| {
            let words = format!("part {number} of what was said early. ").repeat(300);
            say(
                number,
                if number % 2 == 1 {
                    user(&words)
                } else {
                    assistant(&words)
                },
            )
        })
        .collect();
    client
        .prepare_context(prepare(&session, early))
        .await
        .unwrap();
    world.summary("changed").await;
    let compact = CompactRequest {
        session: session.clone(),
        strategy: CompactionStrategy::Extractive.into(),
        ..CompactRequest::default()
    };
    client.compact(compact).await.unwrap();
    let more = vec![
        say(11, user("one question")),
        say(12, assistant("an abandoned answer")),
        say(13, user("an abandoned thought")),
    ];
    client
        .append_messages(append(&session, more))
        .await
        .unwrap();
    let rewind = RewindSessionRequest {
        session: session.clone(),
        target_message: Some(TargetMessage::ToMessageId(uuid(11))),
        ..RewindSessionRequest::default()
    };
    client.rewind_session(rewind).await.unwrap();
    let more = vec![
        say(14, assistant("a better answer")),
        say(15, user("a removed question")),
        say(16, assistant("a removed answer")),
        say(17, user("the last question")),
    ];
    client
        .prepare_context(prepare(&session, more))
        .await
        .unwrap();
    let snip = SnipRequest {
        session: session.clone(),
        message_ids: vec![uuid(15), uuid(16)],
        ..SnipRequest::default()
    };
    client.snip(snip).await.unwrap();

    let exported = world.export("changed");
    for visibility in ["COMPACTED", "REWOUND", "SNIPPED"] {
        assert!(exported.contains(visibility), "{visibility}: {exported}");
    }
    let path = world.write("changed.jsonl", &exported);
    let report = world.import(&path, "back");
    assert_eq!(report[0]["defects"], json!([]), "{report:#}");
    let counts = &report[0]["sessions"][0];
    let counts = ["rewinds", "compactions", "removals"].map(|it| counts[it].clone());
    assert_eq!(counts, [json!(1), json!(1), json!(1)]);
    assert_eq!(messages(&world.export("back")), messages(&exported));
    let view = |session: &str| world.run(&["view", session]);
    assert_eq!(view("back"), view("changed"));
}

#[tokio::test]
async fn a_damaged_file_imports_nothing() {
    let world = World::new();
    let mut client = world.server.context().await;
    client
        .append_messages(append(&name("good"), conversation()))
        .await
        .unwrap();
    let good = world.export("good");
    let cut = &good[..good.len() * 2 / 3];
    let newer = good.replacen("\"version\":1", "\"version\":2", 1);
    let bad = [
        ("cut", cut.to_owned(), "the file was cut off"),
        (
            "changed",
            // The change keeps the length of the file, so only a checksum detects it.
            good.replacen("mend the importer", "burn the importer", 1),
            "the file was changed",
        ),
        ("newer", newer, "line 1: has version 2"),
        (
            "foreign",
            "{\"type\":\"user\"}\n".to_owned(),
            "line 1: is no beginning",
        ),
        ("empty", String::new(), "the file is empty"),
    ];
    for (name, text, why) in bad {
        let path = world.write(&format!("{name}.jsonl"), &text);
        let said = world.refused(&path);
        assert!(
            said.contains("nothing was imported") && said.contains(why),
            "{name}: {said}"
        );
        let sessions = world.run(&["sessions"]);
        assert!(
            !sessions.contains(&format!("sessions/{name}")),
            "{sessions}"
        );
    }
    // A valid file that the server rejects in the middle.
    let path = world.write("refused.jsonl", &good);
    let small = tempfile::tempdir().unwrap();
    // The result in line 5 exceeds this limit, after valid lines were read.
    let args = ["--set", "limits.max_message_bytes=6000"];
    let other = World {
        server: Server::start(&small.path().join("data"), &args),
        folder: small,
    };
    let said = other.refused(&path);
    assert!(said.starts_with("nothing was imported: line 5: "), "{said}");
    assert!(!other.run(&["sessions"]).contains("sessions/refused"));
}
