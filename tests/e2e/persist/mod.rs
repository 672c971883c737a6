//! Tests of `PersistToolResult`: a result is decided, stored and reported before its message is appended.

mod calls;
mod decisions;

use std::fmt::Write as _;
use std::path::Path;

use futures::StreamExt as _;
use palimpsest_proto::context::v1::read_tool_result_request::Result as Whose;
use palimpsest_proto::context::v1::tool_result_content::Content;
use palimpsest_proto::context::v1::tool_result_rule::Rule;
use palimpsest_proto::context::v1::{
    BlockVisibility, CallRef, ListEventsRequest, ListMessagesRequest, MessageInput,
    PersistToolResultRequest, PersistToolResultResponse, PersistVerdict, ReadToolResultRequest,
    SearchMessagesRequest, TextPattern, ToolResultContent, ToolResultInfo, ToolResultRule,
    text_pattern,
};
use palimpsest_tests::say::{append, assistant_calls, prepare, result, user};
use palimpsest_tests::server::{Context, Sessions};
use palimpsest_tests::{Server, name, refused};
use serde_json::Value;
use tonic::{Code, Status};

fn text(text: impl Into<String>) -> ToolResultContent {
    of(Content::Text(text.into()))
}

fn of(content: Content) -> ToolResultContent {
    ToolResultContent {
        content: Some(content),
    }
}

fn by_id(id: &str) -> CallRef {
    CallRef {
        tool_use_id: id.into(),
        ..CallRef::default()
    }
}

fn by_key(key: &str) -> CallRef {
    CallRef {
        call_key: key.into(),
        ..CallRef::default()
    }
}

fn ask(session: &str, id: &str, says: impl Into<String>) -> PersistToolResultRequest {
    PersistToolResultRequest {
        session: name(session),
        call: Some(by_id(id)),
        tool_name: "read".into(),
        content: Some(text(says)),
        ..PersistToolResultRequest::default()
    }
}

async fn persist(
    client: &mut Context,
    request: PersistToolResultRequest,
) -> PersistToolResultResponse {
    let reply = client.persist_tool_result(request).await;
    reply.unwrap().into_inner()
}

fn replacement(reply: &PersistToolResultResponse) -> String {
    match reply.replacement.clone().and_then(|r| r.content) {
        Some(Content::Text(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn reference(reply: &PersistToolResultResponse) -> String {
    reply.persisted.as_ref().unwrap().reference.clone()
}

async fn read(
    client: &mut Context,
    session: &str,
    whose: Whose,
) -> Result<(String, ToolResultInfo), Status> {
    let request = ReadToolResultRequest {
        session: name(session),
        result: Some(whose),
        max_bytes: 16 * 1024 * 1024,
        ..ReadToolResultRequest::default()
    };
    let mut stream = client.read_tool_result(request).await?.into_inner();
    let (mut bytes, mut info) = (Vec::new(), None);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        bytes.extend_from_slice(&chunk.data);
        info = info.or(chunk.info);
    }
    Ok((String::from_utf8(bytes).unwrap(), info.unwrap()))
}

async fn view(client: &mut Context, session: &str) -> Vec<Value> {
    let reply = client
        .prepare_context(prepare(&name(session), vec![]))
        .await;
    let reply = reply.unwrap().into_inner();
    let messages = reply.messages_json.iter();
    messages
        .map(|json| serde_json::from_slice(json).unwrap())
        .collect()
}

async fn say(client: &mut Context, session: &str, messages: Vec<MessageInput>) {
    let request = append(&name(session), messages);
    client.append_messages(request).await.unwrap();
}

fn shown(view: &[Value], message: usize, block: usize) -> &str {
    view[message]["content"][block]["content"].as_str().unwrap()
}

/// Returns the names of a session's files.
fn files(data: &Path, session: &str) -> Vec<String> {
    let folder = data.join("blobs/p").join(session).join("tool-results");
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// Returns lines that all differ, so that each part of the text is unique.
fn large(bytes: usize) -> String {
    let mut out = String::new();
    for line in 0.. {
        if out.len() >= bytes {
            break;
        }
        let _ = writeln!(out, "line {line} says ümläut and {}", line * 7);
    }
    out
}

async fn events(sessions: &mut Sessions, session: &str) -> usize {
    let request = ListEventsRequest {
        session: name(session),
        ..ListEventsRequest::default()
    };
    let listed = sessions.list_events(request).await.unwrap().into_inner();
    listed.events.len()
}

fn rule(rule: Rule) -> ToolResultRule {
    ToolResultRule { rule: Some(rule) }
}

#[tokio::test]
async fn p11_p12_a_result_stored_before_its_call_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let original = large(300 * 1024);
    let told = persist(&mut client, ask("early", "toolu_1", &original)).await;
    assert_eq!(told.decision(), PersistVerdict::Persisted);
    let given = replacement(&told);
    // The limit counts characters, and the text has fewer characters than bytes.
    assert!(
        given.starts_with("<persisted-output>\nOutput too large (282.2KB)"),
        "{given}"
    );
    let named = reference(&told);
    assert!(given.contains(&named), "{given}");
    // The message with the call has not arrived, so the call has no key.
    assert_eq!(told.call.as_ref().unwrap().call_key, "");
    assert_eq!(
        told.persisted.as_ref().unwrap().original_bytes,
        original.len() as u64
    );
    // The result can be read before its message is appended.
    let by_reference = || Whose::Reference(named.clone());
    let of_call = |id: &str| Whose::Call(by_id(id));
    for whose in [by_reference(), of_call("toolu_1")] {
        let (text, info) = read(&mut client, "early", whose).await.unwrap();
        assert_eq!(text, original);
        assert_eq!((info.reference, &*info.tool_name), (named.clone(), "read"));
    }
    // The session exists. Another session does not have the result.
    assert!(view(&mut client, "early").await.is_empty());
    say(&mut client, "other", vec![user("hi")]).await;
    let foreign = read(&mut client, "other", by_reference())
        .await
        .unwrap_err();
    refused(&foreign, Code::NotFound, "RESULT_NOT_FOUND");

    // A crash between both calls loses nothing.
    server.kill();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let again = persist(&mut client, ask("early", "toolu_1", &original)).await;
    assert_eq!(again, told);
    let (text, _) = read(&mut client, "early", by_reference()).await.unwrap();
    assert_eq!(text, original);

    let said = vec![user("look"), assistant_calls(&["toolu_1"])];
    say(&mut client, "early", said).await;
    let bound = persist(&mut client, ask("early", "toolu_1", &original)).await;
    assert_eq!(bound.call.as_ref().unwrap().call_key, "c0");
    assert_eq!(replacement(&bound), given);
    let (text, _) = read(&mut client, "early", of_call("toolu_1"))
        .await
        .unwrap();
    assert_eq!(text, original);

    let reply = client
        .append_messages(append(&name("early"), vec![result("toolu_1", &given)]))
        .await
        .unwrap()
        .into_inner();
    // The result was stored by the first call.
    assert!(reply.level_reports.is_empty(), "{:?}", reply.level_reports);
    let seen = view(&mut client, "early").await;
    assert_eq!(shown(&seen, 2, 0), given);
    assert_eq!(files(folder.path(), "early").len(), 1);
    let mut sessions = server.sessions().await;
    originals_lead_to(&mut client, &mut sessions, "early", &named, &original).await;

    // A retry returns the same decision, and other content is detected.
    let late = persist(&mut client, ask("early", "toolu_1", &original)).await;
    assert_eq!(
        (late.decision(), replacement(&late)),
        (PersistVerdict::Persisted, given.clone())
    );
    // A replacement must never be stored as an original.
    let echo = persist(&mut client, ask("early", "toolu_1", &given)).await;
    assert_eq!(echo.decision(), PersistVerdict::InlineReplacement);
    let status = client
        .persist_tool_result(ask("early", "toolu_1", "else"))
        .await
        .unwrap_err();
    let metadata = refused(&status, Code::AlreadyExists, "RESULT_CONFLICT");
    assert_eq!(metadata["call_key"], "c0");
    assert_ne!(metadata["stored_digest"], metadata["given_digest"]);
    assert!(!status.message().contains("else"), "{status:?}");

    // A restart reads the same state from the snapshot and the log.
    server.kill();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    assert_eq!(view(&mut client, "early").await, seen);
    let mut sessions = server.sessions().await;
    originals_lead_to(&mut client, &mut sessions, "early", &named, &original).await;
}

/// Asserts that every way to read originals finds the one that exists only in a file.
async fn originals_lead_to(
    client: &mut Context,
    sessions: &mut Sessions,
    session: &str,
    reference: &str,
    original: &str,
) {
    let whose = [
        Whose::Reference(reference.into()),
        Whose::Call(by_key("c0")),
    ];
    for whose in whose {
        let (text, info) = read(client, session, whose).await.unwrap();
        assert_eq!(text, original);
        assert_eq!(info.reference, reference);
    }
    let last = original.lines().last().unwrap();
    let request = SearchMessagesRequest {
        session: name(session),
        pattern: Some(TextPattern {
            pattern: Some(text_pattern::Pattern::Literal(last.into())),
            ignore_case: false,
        }),
        ..SearchMessagesRequest::default()
    };
    let found = sessions
        .search_messages(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(found.hits.len(), 1);
    assert_eq!(found.hits[0].call.as_ref().unwrap().call_key, "c0");
    let request = ListMessagesRequest {
        session: name(session),
        ..ListMessagesRequest::default()
    };
    let listed = sessions.list_messages(request).await.unwrap().into_inner();
    let status = &listed.messages[2].block_statuses[0];
    assert_eq!(status.visibility(), BlockVisibility::Persisted);
    assert_eq!(status.reference, reference);
}

#[tokio::test]
async fn the_original_result_gets_the_same_decision_and_is_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let original = large(80_000);
    // Before and after the call is appended.
    for (session, first) in [("unknown", false), ("known", true)] {
        let calls = vec![user("look"), assistant_calls(&["a"])];
        if first {
            say(&mut client, session, calls.clone()).await;
        }
        let told = persist(&mut client, ask(session, "a", &original)).await;
        if !first {
            say(&mut client, session, calls).await;
        }
        say(&mut client, session, vec![result("a", &original)]).await;
        let seen = view(&mut client, session).await;
        assert_eq!(shown(&seen, 2, 0), replacement(&told));
        assert_eq!(files(folder.path(), session).len(), 1);
        let (text, info) = read(&mut client, session, Whose::Reference(reference(&told)))
            .await
            .unwrap();
        assert_eq!((text, info.reference), (original.clone(), reference(&told)));
        let file = &files(folder.path(), session)[0];
        assert_eq!(file.starts_with("c0-"), first, "{file}");
    }
}
