//! Tests that every command escapes stored content with terminal control sequences.

use std::fs;
use std::path::Path;
use std::process::Output;

use palimpsest_proto::context::v1::{CreateSessionRequest, Session};
use palimpsest_tests::Server;
use palimpsest_tests::command::palimpsest_with;
use palimpsest_tests::say::{append, assistant, assistant_calls, result, user};
use serde_json::json;

/// Sets the clipboard, a link and a title, clears the screen, overwrites a line, uses a C1 control, and reverses text.
const HOSTILE: &str = "a\u{1b}]52;c;aGk=\u{7}b\u{1b}]8;;http://x\u{1b}\\c\u{1b}]0;t\u{7}d\u{1b}[2Je\rf\u{9b}31mg\u{202e}h\u{8}i";

/// Runs a command with forced colors, because standard output is not a terminal here.
fn run(args: &[&str]) -> Output {
    palimpsest_with(args, &[("CLICOLOR_FORCE", "1")])
}

/// Returns true if the output contains no control characters except for colors.
#[track_caller]
fn is_harmless(text: &[u8], what: &str) {
    let text = String::from_utf8(text.to_vec()).unwrap();
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\u{1b}') {
        let after = &rest[at + 1..];
        // A color is an escape character, `[`, digits and semicolons, and `m`, such as `ESC[31m`.
        let end = after.find('m').unwrap_or(0);
        let is_colour = after.starts_with('[')
            && after[1..end.max(1)]
                .chars()
                .all(|c| c.is_ascii_digit() || c == ';');
        assert!(is_colour, "{what}: {text:?}");
        rest = &after[end..];
    }
    let is_fine = |c: char| !c.is_control() || matches!(c, '\n' | '\t' | '\u{1b}');
    assert!(text.chars().all(is_fine), "{what}: {text:?}");
    assert!(!text.contains('\u{202e}'), "{what}: {text:?}");
}

#[track_caller]
fn is_safe(args: &[&str], must_show: bool) {
    let output = run(args);
    let what = args.join(" ");
    is_harmless(&output.stdout, &what);
    is_harmless(&output.stderr, &what);
    let all = [output.stdout, output.stderr].concat();
    let shown = String::from_utf8(all).unwrap();
    if must_show {
        let escaped = shown.contains(r"\u{1b}]52") || shown.contains(r"\u001b]52");
        assert!(escaped, "{what}: {shown}");
    }
}

fn transcript(folder: &Path) -> String {
    let line = |n: u32, role: &str, content: &serde_json::Value| {
        json!({
            "type": role,
            "uuid": format!("00000000-0000-4000-8000-{n:012}"),
            "timestamp": format!("2026-01-01T00:00:{n:02}.000Z"),
            "cwd": HOSTILE,
            "message": {"role": role, "content": content},
        })
    };
    let lines = [
        json!({"type": "summary", "summary": HOSTILE, "leafUuid": "x"}).to_string(),
        line(1, "user", &json!(HOSTILE)).to_string(),
        line(2, "assistant", &json!([{"type": "text", "text": HOSTILE}])).to_string(),
        format!("not json {HOSTILE}").replace('\n', " "),
    ];
    // A file name may contain any character except `/` and NUL.
    let path = folder.join(format!("x{}.jsonl", HOSTILE.replace('/', "_")));
    fs::write(&path, lines.join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_escapes_control_characters_in_stored_content() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let address = server.address().to_owned();
    let mut context = server.context().await;
    let create = CreateSessionRequest {
        parent: "projects/demo".into(),
        session_id: "hostile".into(),
        session: Some(Session {
            title: HOSTILE.into(),
            project_path: HOSTILE.into(),
            branch: HOSTILE.into(),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    // The server may reject the title. Lists then show the first prompt.
    let _ = Box::pin(server.sessions().await.create_session(create)).await;
    let messages = vec![
        user(HOSTILE),
        assistant_calls(&["call"]),
        result("call", HOSTILE),
        assistant(HOSTILE),
    ];
    let request = append("projects/demo/sessions/hostile", messages);
    context.append_messages(request).await.unwrap();
    let file = transcript(folder.path());
    let remote = ["--server", address.as_str(), "--project", "demo"];
    let text = folder.path().join("text.md");
    fs::write(&text, format!("# Learnings\n{HOSTILE}\n")).unwrap();
    let text = text.to_str().unwrap();
    let edit: &[&str] = &["memory", "edit", "hostile", "--file", text];
    let of_server: [(&[&str], bool); 16] = [
        (&["top", "--once"], true),
        (&["watch", "hostile", "--from", "0", "--once"], false),
        (
            &["watch", "hostile", "--from", "0", "--once", "--json"],
            false,
        ),
        (
            &[
                "compact", "hostile", "--strategy", "extractive", "--dry-run",
            ],
            false,
        ),
        (
            &["compact", "hostile", "--strategy", "extractive", "--json"],
            false,
        ),
        (&["undo", "hostile"], false),
        (&["snip", "hostile", "--turns", HOSTILE], true),
        (&["fork", "hostile", "--at", HOSTILE, "--dry-run"], false),
        (&[edit, &["--dry-run"]].concat(), true),
        (&[edit, &["--json"]].concat(), true),
        (&["sessions"], true),
        (&["sessions", "--json"], true),
        (&["inspect", "hostile"], true),
        (&["view", "hostile"], false),
        (&["inspect", "no-such-session"], false),
        (&["sessions", "delete", "no-such-session", "--yes"], false),
    ];
    for (args, must_show) in of_server {
        let args = [args, &remote].concat();
        if args[0] == "view" {
            // Raw JSON for pipes, which escapes control characters itself.
            assert!(run(&args).status.success());
            continue;
        }
        is_safe(&args, must_show);
    }
    let import = ["import", "--format", "claude-code", file.as_str()];
    is_safe(&[&import[..], &remote].concat(), true);
    let json = [&import[..], &["--json"], &remote].concat();
    is_safe(&json, true);
    for args in [
        ["verify", "--format", "claude-code", file.as_str()],
        ["verify", "--format", "openai", file.as_str()],
        ["replay", "--format", "claude-code", file.as_str()],
        ["replay", "--format", "palimpsest", file.as_str()],
    ] {
        is_safe(&args, true);
    }
    is_safe(&[&["inspect", HOSTILE][..], &remote].concat(), true);
}
