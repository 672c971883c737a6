//! Tests of `palimpsest watch` and `palimpsest top`: lines, reconnection, one table, and the live screen.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use palimpsest_tests::say::{append, user};
use palimpsest_tests::{Server, binary};
use rustix::termios::tcgetattr;
use serde_json::Value;

use crate::demo::{ENTER_SCREEN, LEAVE_SCREEN, terminal};
use crate::operator::{Operator, SESSION, contains};

fn start(args: &[&str], address: &str) -> Child {
    Command::new(binary())
        .args(args)
        .args(["--server", address])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_events_are_lines_or_json() {
    let world = Operator::new(&["worker.enabled=false"]).await;
    world.said(&["compact", "work", "--strategy", "extractive"]);
    let from = ["watch", "work", "--from", "0", "--once"];
    let lines = world.said(&from);
    let lines: Vec<&str> = lines.lines().collect();
    contains(lines[0], &["     1  session_created", "by a first write"]);
    contains(lines[1], &["messages_appended", "4 messages from 1, "]);
    let last = lines.iter().rfind(|line| line.contains("compacted"));
    contains(
        last.unwrap(),
        &["Z ", "→ extractive summary", "tokens freed", ", manual"],
    );
    let json = world.said(&[&from[..], &["--json"]].concat());
    let events: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), lines.len());
    assert!(events[0]["session_created"].is_object(), "{}", events[0]);
    let revision = events.last().unwrap()["revision"].as_u64().unwrap();
    let later = ["watch", "work", "--once", "--from", &revision.to_string()];
    assert_eq!(world.said(&later), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_continues_after_a_restart_of_the_server_without_a_gap() {
    let world = Operator::new(&["worker.enabled=false"]).await;
    let Operator { server, folder } = world;
    let (address, data) = (server.address().to_owned(), folder.path().join("data"));
    let mut child = start(&["watch", "work", "--from", "0", "--json"], &address);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = |kind: &str| loop {
        let line = lines.next().unwrap().unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        if event[kind].is_object() {
            return event;
        }
    };
    for number in 0..6 {
        let appended = next("messages_appended");
        assert_eq!(
            appended["messages_appended"]["first_ordinal"],
            number * 4 + 1
        );
    }
    server.kill();
    let server = Server::start_at(&address, &data, &["--set", "worker.enabled=false"], &[]);
    let mut context = server.context().await;
    let request = append(SESSION, vec![user("after the restart")]);
    context.append_messages(request).await.unwrap();
    let appended = next("messages_appended");
    assert_eq!(appended["messages_appended"]["first_ordinal"], 25);
    child.kill().unwrap();
    let mut notes = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut notes)
        .unwrap();
    contains(&notes, &["the connection is lost"]);
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_when_its_reader_ends() {
    let world = Operator::new(&["worker.enabled=false"]).await;
    let mut child = start(&["watch", "work", "--from", "0"], world.server.address());
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut String::new()).unwrap();
    drop(lines);
    // The next event finds the pipe closed.
    let mut context = world.server.context().await;
    let request = append(SESSION, vec![user("one more")]);
    context.append_messages(request).await.unwrap();
    assert!(child.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn top_prints_one_table_in_a_pipe() {
    let world = Operator::new(&["worker.enabled=false"]).await;
    let mut context = world.server.context().await;
    let small = append(
        "projects/default/sessions/a-small-one",
        vec![user("Hello.")],
    );
    context.append_messages(small).await.unwrap();
    let sessions = |args: &[&str]| {
        let table = world.said(args);
        let rows = table
            .lines()
            .skip(3)
            .filter_map(|row| row.split_whitespace().next());
        (table.clone(), rows.map(str::to_owned).collect::<Vec<_>>())
    };
    let (table, rows) = sessions(&["top"]);
    contains(
        &table,
        &[
            "project default · ",
            "2 sessions: 1 awaiting model, 1 idle",
            "please do the step 0",
        ],
    );
    assert_eq!(rows, ["a-small-one", "work"]);
    let (_, rows) = sessions(&["top", "--once", "--sort", "messages"]);
    assert_eq!(rows, ["work", "a-small-one"]);
    let (table, rows) = sessions(&["top", "--limit", "1"]);
    contains(&table, &["the latest 1 session"]);
    assert_eq!(rows, ["a-small-one"]);
    let (table, rows) = sessions(&["top", "--project", "empty"]);
    contains(&table, &["0 sessions\n"]);
    assert!(rows.is_empty(), "{table}");
    let output = world.run(&["top", "--interval", "2"]);
    assert_eq!(output.status.code(), Some(64));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_table_is_updated_and_the_terminal_restored() {
    let world = Operator::new(&["worker.enabled=false"]).await;
    // `q` ends the screen with success, and a signal with the exit code of shells.
    for (key, code) in [(Some(b"q"), 0), (None, 130)] {
        let (mut screen, process) = terminal(120, 10);
        let before = tcgetattr(&process).unwrap();
        let mut child = Command::new(binary())
            .args([
                "top",
                "--interval",
                "500ms",
                "--server",
                world.server.address(),
            ])
            .env_clear()
            .env("TERM", "xterm-256color")
            .stdin(process.try_clone().unwrap())
            .stdout(process.try_clone().unwrap())
            .spawn()
            .unwrap();
        let (mut shown, mut chunk) = (Vec::new(), [0; 4_096]);
        let mut read_until = |screen: &mut std::fs::File, wanted: &str| {
            while !String::from_utf8_lossy(&shown).contains(wanted) {
                let read = screen.read(&mut chunk).unwrap();
                shown.extend_from_slice(&chunk[..read]);
            }
        };
        read_until(&mut screen, ENTER_SCREEN);
        read_until(&mut screen, "please do the step 0");
        let name = format!("projects/default/sessions/late-{code}");
        let late = append(&name, vec![user("A late session.")]);
        world
            .server
            .context()
            .await
            .append_messages(late)
            .await
            .unwrap();
        read_until(&mut screen, &format!("late-{code}"));
        if let Some(key) = key {
            screen.write_all(key).unwrap();
        } else {
            let pid = child.id().to_string();
            let kill = Command::new("kill").args(["-s", "INT", &pid]).status();
            assert!(kill.unwrap().success());
        }
        read_until(&mut screen, LEAVE_SCREEN);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        let after = tcgetattr(&process).unwrap();
        assert_eq!(after.local_modes, before.local_modes);
    }
}
