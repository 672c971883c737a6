//! Tests of the commands with which an operator changes a session: `compact`, `undo`, `snip` and `fork`.

use std::path::Path;
use std::process::Output;

use palimpsest_proto::context::v1::{
    GetSessionRequest, ListMessagesRequest, Session, TranscriptMessage,
};
use palimpsest_tests::say::{append, work};
use palimpsest_tests::tenant::keys;
use palimpsest_tests::{Server, palimpsest, palimpsest_with};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const SESSION: &str = "projects/default/sessions/work";

/// A server with a session of six user turns.
pub(crate) struct Operator {
    pub(crate) server: Server,
    pub(crate) folder: TempDir,
}

impl Operator {
    pub(crate) async fn new(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings: Vec<&str> = settings.iter().flat_map(|it| ["--set", it]).collect();
        let server = Server::start(&folder.path().join("data"), &settings);
        let mut context = server.context().await;
        for number in 0..6 {
            let request = append(SESSION, work(number));
            context.append_messages(request).await.unwrap();
        }
        Self { server, folder }
    }

    /// Runs a command with the address of the server as `host:port`.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        palimpsest(&[args, &["--server", self.server.address()]].concat())
    }

    /// Returns the output of a command that must succeed.
    #[track_caller]
    pub(crate) fn said(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.said(&[args, &["--json"]].concat())).unwrap()
    }

    /// Returns the error of a command that must fail.
    #[track_caller]
    pub(crate) fn error(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) async fn session(&self) -> Session {
        let request = GetSessionRequest {
            session: SESSION.into(),
            ..GetSessionRequest::default()
        };
        let mut sessions = self.server.sessions().await;
        let found = sessions.get_session(request).await.unwrap();
        found.into_inner().session.unwrap()
    }

    async fn revision(&self) -> u64 {
        self.session().await.revision
    }

    async fn messages(&self) -> Vec<TranscriptMessage> {
        let request = ListMessagesRequest {
            session: SESSION.into(),
            page_size: 1_000,
            ..ListMessagesRequest::default()
        };
        let mut sessions = self.server.sessions().await;
        let page = sessions.list_messages(request).await.unwrap();
        page.into_inner().messages
    }
}

#[track_caller]
pub(crate) fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_is_previewed_run_and_undone() {
    let world = Operator::new(&["worker.enabled=false"]).await;
    let before = world.revision().await;
    let compact = ["compact", "work", "--strategy", "extractive"];
    let dry = [&compact[..], &["--dry-run"]].concat();
    let planned = world.said(&dry);
    contains(
        &planned,
        &[
            "would be replaced by a summary",
            "extracted from the messages",
            "tokens ",
            "freed",
            "cache ",
            "kept ",
        ],
    );
    let planned = world.json(&dry);
    assert_eq!(planned["compaction"]["state"], "dry_run");
    let boundary = &planned["compaction"]["boundary"];
    assert!(
        boundary["before_tokens"].as_u64() > boundary["after_tokens"].as_u64(),
        "{planned}"
    );
    assert_eq!(
        world.revision().await,
        before,
        "a dry run changed the session"
    );

    let done = world.json(&compact);
    assert_eq!(done["compaction"]["state"], "succeeded");
    let view = world.said(&["view", "work"]);
    let again = world.error(&compact);
    contains(&again, &["NOTHING_TO_COMPACT"]);

    let compacted = world.revision().await;
    let planned = world.said(&["undo", "work", "--dry-run"]);
    contains(
        &planned,
        &[
            "1 change of the view would be undone",
            "compacted at revision",
            "returns to the view",
            "added",
        ],
    );
    assert_eq!(
        world.revision().await,
        compacted,
        "a dry run changed the session"
    );
    let undone = world.said(&["undo", "work"]);
    contains(&undone, &["1 change of the view undone"]);
    let restored = world.said(&["view", "work"]);
    assert_ne!(restored, view);
    contains(&restored, &["please do the step 0 of the plan"]);

    let nothing = world.error(&["undo", "work"]);
    contains(&nothing, &["nothing to undo", "--to"]);
    // An undo is a change too: its own revision names the compacted view.
    let redone = world.json(&["undo", "work", "--to", &compacted.to_string()]);
    assert_eq!(redone["restored"]["undone"][0]["kind"], "context_restored");
    assert_eq!(world.said(&["view", "work"]), view);
    let unknown = world.error(&["undo", "work", "--to", "999999"]);
    contains(&unknown, &["REVISION_NOT_FOUND"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_and_messages_are_snipped_together_or_not_at_all() {
    let world = Operator::new(&["worker.enabled=false"]).await;
    let messages = world.messages().await;
    let turn = messages[0].turn_id.clone();
    contains(&world.said(&["inspect", "work"]), &[&turn]);
    let (message, before) = (messages[7].id.clone(), world.revision().await);
    let snip = ["snip", "work", "--turns", &turn, "--messages", &message];
    let planned = world.said(&[&snip[..], &["--dry-run"]].concat());
    contains(
        &planned,
        &[
            // The turn has four messages. The fifth is the last message of the second turn.
            "1 turn, 5 messages would leave the view",
            &format!("turn {turn}"),
            "freed",
        ],
    );
    let wrong = ["snip", "work", "--turns", &format!("{turn},zzzzzz")];
    contains(&world.error(&wrong), &["TURN_NOT_FOUND", "zzzzzz"]);
    assert_eq!(world.revision().await, before, "the session changed");

    let with_reason = [&snip[..], &["--reason", "a test"]].concat();
    let done = world.json(&with_reason);
    assert_eq!(done["snipped"]["turn_ids"][0], turn.as_str());
    assert_eq!(done["snipped"]["reason"], "a test");
    assert!(done["revision"].as_u64() > Some(before), "{done}");
    contains(&world.error(&snip), &["TURN_ALREADY_SNIPPED"]);
    contains(
        &world.said(&["undo", "work"]),
        &["content snipped at revision"],
    );
    // Without a target, the command line is invalid.
    assert_eq!(world.run(&["snip", "work"]).status.code(), Some(64));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_forked_at_a_message() {
    let world = Operator::new(&["worker.enabled=false"]).await;
    let messages = world.messages().await;
    let fourth = messages[3].id.clone();
    let before = world.said(&["sessions"]);
    let fork = ["fork", "work", "--at", &fourth, "--id", "copy"];
    let planned = world.said(&[&fork[..], &["--dry-run"]].concat());
    assert_eq!(
        planned,
        format!(
            "projects/default/sessions/copy would be a copy of {SESSION}, 4 messages of its transcript\n"
        )
    );
    contains(
        &world.said(&["fork", "work", "--dry-run"]),
        &[
            "a session with a new UUID would be a copy of",
            "24 messages",
        ],
    );
    assert_eq!(
        world.said(&["sessions"]),
        before,
        "a dry run created a session"
    );

    let done = world.said(&[&fork[..], &["--title", "Before the bug"]].concat());
    assert!(
        done.starts_with("projects/default/sessions/copy\n"),
        "{done}"
    );
    contains(&done, &[&fourth]);
    contains(&world.said(&["sessions"]), &["Before the bug"]);
    contains(&world.error(&fork), &["SESSION_EXISTS"]);
    contains(
        &world.error(&[&fork[..], &["--dry-run"]].concat()),
        &["copy exists already"],
    );
    let unknown = "01920000-0000-7000-8000-000000000099";
    for dry_run in [&[][..], &["--dry-run"]] {
        let args = [&["fork", "work", "--at", unknown][..], dry_run].concat();
        contains(&world.error(&args), &["MESSAGE_NOT_FOUND"]);
    }
    let whole = world.json(&["fork", "work"]);
    assert_eq!(whole["session"]["forked_from"]["session"], SESSION);
}

/// Every command of an operator on a session, each in the form that changes it.
fn changes(file: &str) -> [Vec<&str>; 5] {
    [
        vec!["compact", "SESSION"],
        vec!["undo", "SESSION", "--to", "1"],
        vec!["snip", "SESSION", "--turns", "a1b2c3"],
        vec!["fork", "SESSION"],
        vec!["memory", "edit", "SESSION", "--file", file],
    ]
}

fn named<'a>(args: &[&'a str], session: &'a str) -> Vec<&'a str> {
    let args = args.iter();
    args.map(|arg| if *arg == "SESSION" { session } else { arg })
        .collect()
}

fn text_file(folder: &Path) -> String {
    let file = folder.join("text.md");
    std::fs::write(&file, "# Learnings\nAsk Ann.\n").unwrap();
    file.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_session_is_an_error_of_every_command() {
    let world = Operator::new(&["worker.enabled=false"]).await;
    let file = text_file(world.folder.path());
    let reads = [
        vec!["watch", "SESSION"],
        vec!["memory", "show", "SESSION"],
        vec!["undo", "SESSION"],
        vec!["fork", "SESSION", "--dry-run"],
    ];
    for args in changes(&file).iter().chain(&reads) {
        let error = world.error(&named(args, "nowhere"));
        contains(
            &error,
            &["session projects/default/sessions/nowhere does not exist (SESSION_NOT_FOUND)"],
        );
        contains(
            &world.error(&named(args, "no name")),
            &["the session projects/default/"],
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_without_rights_can_look_and_not_change() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.toml");
    std::fs::write(&file, "").unwrap();
    let create = |right| keys(&file, &["create", "--project", "default", "--right", right]);
    let (reader, writer) = (create("read"), create("read,write"));
    let setting = format!("auth.keys_file={}", file.display());
    let settings = ["--set", &setting, "--set", "worker.enabled=false"];
    let server = Server::start(&folder.path().join("data"), &settings);
    let mut context = server.context().await;
    let request = palimpsest_tests::tenant::with(&writer, append(SESSION, work(0)));
    context.append_messages(request).await.unwrap();
    let run = |args: &[&str], key: &str| {
        let args = [args, &["--server", server.address()]].concat();
        palimpsest_with(&args, &[("PALIMPSEST_API_KEY", key)])
    };
    let text = text_file(folder.path());
    for args in changes(&text) {
        let output = run(&named(&args, "work"), &reader);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        contains(&stderr, &["PERMISSION_DENIED"]);
    }
    for args in [
        &["watch", "work", "--from", "0", "--once"][..],
        &["memory", "show", "work"],
        &["top", "--once"],
        &["fork", "work", "--dry-run"],
    ] {
        let output = run(args, &reader);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
    }
    // The right `write` is enough to change session memory, unlike the view.
    let edit = run(&["memory", "edit", "work", "--file", &text], &writer);
    let stderr = String::from_utf8_lossy(&edit.stderr);
    assert!(edit.status.success(), "{stderr}");
}
