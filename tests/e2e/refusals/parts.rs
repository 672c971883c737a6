//! Tests of missing parts, and of results of other sessions.

use super::*;

#[tokio::test]
async fn a_range_past_the_end_is_empty_and_a_backtracking_pattern_ends() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("past-the-end");
    // A backtracking search would not terminate.
    let long = format!("line 1\nline 2\n{}!\n", "a".repeat(40_000));
    let said = vec![user("go"), assistant_call("once"), result("once", &long)];
    client
        .append_messages(append(&session, said))
        .await
        .unwrap();
    let part = |selection| ReadToolResultRequest {
        selection: Some(selection),
        ..of("past-the-end", id("once"))
    };
    let bytes = |offset_bytes, length_bytes| {
        part(Selection::ByteRange(ByteRange {
            offset_bytes,
            length_bytes,
        }))
    };
    let lines = |first_line, lines| part(Selection::LineRange(LineRange { first_line, lines }));
    for request in [
        bytes(u64::MAX, None),
        bytes(u64::MAX, Some(u64::MAX)),
        bytes(0, Some(0)),
        lines(u64::MAX, None),
        lines(4, Some(u64::MAX)),
        part(Selection::HeadLines(0)),
        part(Selection::TailLines(0)),
    ] {
        let chunks = read(&mut client, request.clone()).await.unwrap();
        assert_eq!(data(&chunks), "", "{request:?}");
        assert!(chunks.last().unwrap().last);
    }
    let all = part(Selection::HeadLines(u32::MAX));
    assert_eq!(data(&read(&mut client, all).await.unwrap()), long);
    let tail = part(Selection::TailLines(u32::MAX));
    assert_eq!(data(&read(&mut client, tail).await.unwrap()), long);
    let end = bytes(long.len() as u64 - 2, Some(u64::MAX));
    assert_eq!(data(&read(&mut client, end).await.unwrap()), "!\n");
    for (pattern, count) in [("(a+)+$", 0), ("(a+)+!$", 1)] {
        let slow = part(Selection::Search(LineSearch {
            pattern: Some(regex(pattern)),
            context_lines: 0,
        }));
        let chunks = read(&mut client, slow).await.unwrap();
        let found: usize = chunks.iter().map(|chunk| chunk.matches.len()).sum();
        assert_eq!(found, count, "{pattern}");
    }
}

#[tokio::test]
async fn a_stored_result_of_another_project_or_session_is_not_found() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let large = "a secret line\n".repeat(5_000);
    let said = || vec![user("go"), assistant_call("big"), result("big", &large)];
    let owner = "projects/q/sessions/same";
    for session in [owner, &name("same"), &name("same-not")] {
        let session = append(session, said());
        client.append_messages(session).await.unwrap();
    }
    let reply = client
        .prepare_context(prepare(owner, vec![]))
        .await
        .unwrap();
    let view = String::from_utf8(reply.into_inner().messages_json.concat()).unwrap();
    let (_, rest) = view.split_once("saved to: ").unwrap();
    let reference = rest.split_once("\\n").unwrap().0.to_owned();
    assert!(reference.starts_with("palimpsest://q/same/"), "{reference}");
    let whose = || Whose::Reference(reference.clone());
    let own = ReadToolResultRequest {
        session: owner.into(),
        ..of("x", whose())
    };
    assert_eq!(data(&read(&mut client, own).await.unwrap()), large);
    // A session with the same name in another project cannot read it, even if it has a file with the same name and
    // content.
    for session in ["same", "same-not"] {
        let status = read(&mut client, of(session, whose())).await.unwrap_err();
        refused(&status, Code::NotFound, "RESULT_NOT_FOUND");
        assert!(!status.message().contains("secret"));
    }
}

#[tokio::test]
async fn a_result_without_its_call_becomes_text_and_is_reported() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let said = vec![user("go"), result("never-called", "what it said")];
    let reply = client
        .prepare_context(prepare(&name("orphan"), said))
        .await
        .unwrap()
        .into_inner();
    assert!(reply.sendable);
    let view = String::from_utf8(reply.messages_json.concat()).unwrap();
    assert!(
        view.contains("what it said") && !view.contains("tool_result"),
        "{view}"
    );
    assert_eq!(reply.repairs.len(), 1);
    // An orphaned result has no handle, because the view shows it.
    let status = read(&mut client, of("orphan", id("never-called")))
        .await
        .unwrap_err();
    refused(&status, Code::NotFound, "RESULT_NOT_FOUND");
}
