//! `PersistToolResult`: what becomes of a result is decided, stored and told before its message comes.

use std::path::Path;

use futures::StreamExt as _;
use futures::future::join_all;
use palimpsest_proto::context::v1::read_tool_result_request::Result as Whose;
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::tool_result_content::Content;
use palimpsest_proto::context::v1::tool_result_rule::Rule;
use palimpsest_proto::context::v1::{
    Block, BlockList, BlockVisibility, CallCandidates, CallRef, CreateSessionRequest,
    ListEventsRequest, ListMessagesRequest, MessageInput, PersistDecision,
    PersistToolResultRequest, PersistToolResultResponse, Policy, ReadToolResultRequest,
    SearchMessagesRequest, Session, TextBlock, TextPattern, ToolResultContent, ToolResultInfo,
    ToolResultPolicy, ToolResultRule, WarningCode, block, text_pattern,
};
use palimpsest_tests::say::{anthropic, append, assistant_calls, prepare, result, user};
use palimpsest_tests::server::{Context, Sessions};
use palimpsest_tests::{Server, name, refused, refused_field};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::SERVER;

fn text(text: impl Into<String>) -> Option<ToolResultContent> {
    Some(ToolResultContent {
        content: Some(Content::Text(text.into())),
    })
}

fn by_id(id: &str) -> Option<CallRef> {
    Some(CallRef {
        tool_use_id: id.into(),
        ..CallRef::default()
    })
}

fn by_key(key: &str) -> Option<CallRef> {
    Some(CallRef {
        call_key: key.into(),
        ..CallRef::default()
    })
}

fn ask(session: &str, id: &str, says: impl Into<String>) -> PersistToolResultRequest {
    PersistToolResultRequest {
        session: name(session),
        call: by_id(id),
        tool_name: "read".into(),
        content: text(says),
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

/// The names of a session's files.
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

/// Lines that differ, so that a part of them is no other part.
fn large(bytes: usize) -> String {
    let mut out = String::new();
    for line in 0.. {
        if out.len() >= bytes {
            break;
        }
        out.push_str(&format!("line {line} says ümläut and {}\n", line * 7));
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

#[tokio::test]
async fn p11_p12_a_result_is_stored_before_its_call_is_known_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let original = large(300 * 1024);
    let told = persist(&mut client, ask("early", "toolu_1", &original)).await;
    assert_eq!(told.decision(), PersistDecision::Persisted);
    let given = replacement(&told);
    assert!(
        given.starts_with("<persisted-output>\nOutput too large (300"),
        "{given}"
    );
    let named = reference(&told);
    assert!(given.contains(&named), "{given}");
    assert_eq!(told.call.as_ref().unwrap().call_key, "");
    assert_eq!(
        told.persisted.as_ref().unwrap().original_bytes,
        original.len() as u64
    );
    // It is there for whoever was told of it, before anything is appended.
    let by_reference = || Whose::Reference(named.clone());
    let of_call = |id: &str| Whose::Call(by_id(id).unwrap());
    for whose in [by_reference(), of_call("toolu_1")] {
        let (text, info) = read(&mut client, "early", whose).await.unwrap();
        assert_eq!(text, original);
        assert_eq!((info.reference, &*info.tool_name), (named.clone(), "read"));
    }
    // The session exists; its name in another session leads nowhere.
    assert!(view(&mut client, "early").await.is_empty());
    say(&mut client, "other", vec![user("hi")]).await;
    let foreign = read(&mut client, "other", by_reference())
        .await
        .unwrap_err();
    refused(&foreign, Code::NotFound, "RESULT_NOT_FOUND");

    // A crash between the two calls loses nothing.
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
    // It was stored when the caller asked.
    assert!(reply.stages.is_empty(), "{:?}", reply.stages);
    let seen = view(&mut client, "early").await;
    assert_eq!(shown(&seen, 2, 0), given);
    assert_eq!(files(folder.path(), "early").len(), 1);
    let mut sessions = server.sessions().await;
    originals_lead_to(&mut client, &mut sessions, "early", &named, &original).await;

    // The decision holds for a retry, and other content is told apart.
    let late = persist(&mut client, ask("early", "toolu_1", &original)).await;
    assert_eq!(
        (late.decision(), replacement(&late)),
        (PersistDecision::Persisted, given.clone())
    );
    let echo = persist(&mut client, ask("early", "toolu_1", &given)).await;
    assert_eq!(echo.decision(), PersistDecision::InlineReplacement);
    let status = client
        .persist_tool_result(ask("early", "toolu_1", "else"))
        .await
        .unwrap_err();
    let metadata = refused(&status, Code::AlreadyExists, "RESULT_CONFLICT");
    assert_eq!(metadata["call_key"], "c0");
    assert_ne!(metadata["stored_digest"], metadata["given_digest"]);
    assert!(!status.message().contains("else"), "{status:?}");

    // From a snapshot and a log alike.
    server.kill();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    assert_eq!(view(&mut client, "early").await, seen);
    let mut sessions = server.sessions().await;
    originals_lead_to(&mut client, &mut sessions, "early", &named, &original).await;
}

/// Whatever reads originals finds the one that is in a file alone.
async fn originals_lead_to(
    client: &mut Context,
    sessions: &mut Sessions,
    session: &str,
    reference: &str,
    original: &str,
) {
    let whose = [
        Whose::Reference(reference.into()),
        Whose::Call(by_key("c0").unwrap()),
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
async fn the_original_comes_to_the_same_and_is_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let original = large(80_000);
    // Before its call and after it.
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

#[tokio::test]
async fn blocks_and_json_come_back_in_their_own_form() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let original = large(70_000);
    let of_blocks = |text: &str| {
        let block = Block {
            block: Some(block::Block::Text(TextBlock { text: text.into() })),
            ..Block::default()
        };
        Content::Blocks(BlockList {
            blocks: vec![block],
        })
    };
    let of_json =
        |text: &str| Content::Json(json!([{"type": "text", "text": text}]).to_string().into());
    let forms: [(&str, &dyn Fn(&str) -> Content); 2] =
        [("of-blocks", &of_blocks), ("of-json", &of_json)];
    for (session, form) in forms {
        let mut request = ask(session, "a", "");
        request.content = Some(ToolResultContent {
            content: Some(form(&original)),
        });
        let told = persist(&mut client, request.clone()).await;
        assert_eq!(told.decision(), PersistDecision::Persisted);
        let (file, info) = read(&mut client, session, Whose::Reference(reference(&told)))
            .await
            .unwrap();
        assert_eq!(info.media_type, "application/json");
        let stored: Value = serde_json::from_str(&file).unwrap();
        assert_eq!(stored, json!([{"type": "text", "text": original}]));
        let given = told.replacement.as_ref().unwrap().content.clone().unwrap();
        let said = match &given {
            Content::Json(json) => serde_json::from_slice::<Value>(json).unwrap(),
            Content::Blocks(list) => match list.blocks[0].block.as_ref().unwrap() {
                block::Block::Text(text) => json!([{"type": "text", "text": text.text}]),
                other => panic!("{other:?}"),
            },
            Content::Text(text) => panic!("{text}"),
        };
        assert_eq!(
            std::mem::discriminant(&given),
            std::mem::discriminant(&form("x"))
        );
        // The replacement in the form in which it was given.
        let block = json!({"type": "tool_result", "tool_use_id": "a", "content": said});
        let message = anthropic(&json!({"role": "user", "content": [block]}));
        let said_all = vec![user("look"), assistant_calls(&["a"]), message];
        say(&mut client, session, said_all).await;
        let seen = view(&mut client, session).await;
        assert_eq!(shown(&seen, 2, 0), said[0]["text"].as_str().unwrap());
        let (again, _) = read(&mut client, session, Whose::Call(by_key("c0").unwrap()))
            .await
            .unwrap();
        assert_eq!(again, file);
        assert_eq!(
            persist(&mut client, request).await.replacement,
            told.replacement
        );
    }
}

async fn with_policy(sessions: &mut Sessions, session: &str, results: ToolResultPolicy) {
    let request = CreateSessionRequest {
        parent: "projects/p".into(),
        session_id: session.into(),
        session: Some(Session {
            policy_overrides: Some(Policy {
                tool_results: Some(results),
                ..Policy::default()
            }),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    sessions.create_session(request).await.unwrap();
}

fn rule(rule: Rule) -> Option<ToolResultRule> {
    Some(ToolResultRule { rule: Some(rule) })
}

#[tokio::test]
async fn every_decision_is_reached_and_none_is_taken_twice() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let mut sessions = server.sessions().await;
    let session = "decide";
    let (small, big) = (large(20_000), large(60_000));
    let picture = json!([
        {"type": "text", "text": big},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
    ]);
    let empty = "(Tool completed with no output)";
    let of_picture = Some(ToolResultContent {
        content: Some(Content::Json(picture.to_string().into())),
    });
    let cases = [
        (
            "small",
            text(&*small),
            None,
            PersistDecision::InlineUnderLimit,
        ),
        ("big", text(&*big), None, PersistDecision::Persisted),
        (
            "fixed",
            text(&*big),
            rule(Rule::FixedChars(100_000)),
            PersistDecision::InlineUnderLimit,
        ),
        (
            "declared",
            text(&*big),
            rule(Rule::DeclaredChars(100_000)),
            PersistDecision::Persisted,
        ),
        (
            "tight",
            text("four"),
            rule(Rule::FixedChars(3)),
            PersistDecision::Persisted,
        ),
        (
            "never",
            text(&*big),
            rule(Rule::NeverPersist(true)),
            PersistDecision::InlineNever,
        ),
        ("empty", text(" \n"), None, PersistDecision::InlineEmpty),
        ("picture", of_picture, None, PersistDecision::InlineImage),
        (
            "again",
            text("<persisted-output>\nx\n</persisted-output>"),
            None,
            PersistDecision::InlineReplacement,
        ),
    ];
    for (id, content, rule, decision) in &cases {
        let request = PersistToolResultRequest {
            content: content.clone(),
            rule: rule.clone(),
            ..ask(session, id, "")
        };
        let told = persist(&mut client, request.clone()).await;
        assert_eq!(told.decision(), *decision, "{id}");
        assert_eq!(
            told.persisted.is_some(),
            *decision == PersistDecision::Persisted,
            "{id}"
        );
        match decision {
            PersistDecision::InlineEmpty => assert_eq!(replacement(&told), empty),
            PersistDecision::Persisted => assert!(replacement(&told).contains("saved to: ")),
            _ => assert_eq!(told.replacement, None, "{id}"),
        }
        let again = persist(&mut client, request).await;
        assert_eq!(again, told, "{id}");
    }
    // What was decided holds when the message comes, though the policy would say otherwise.
    let ids: Vec<&str> = cases.iter().map(|(id, ..)| *id).collect();
    say(
        &mut client,
        session,
        vec![user("go"), assistant_calls(&ids)],
    )
    .await;
    say(
        &mut client,
        session,
        vec![result("fixed", &big), result("empty", empty)],
    )
    .await;
    say(
        &mut client,
        session,
        vec![result("never", &big), result("small", &small)],
    )
    .await;
    let interrupt = palimpsest_proto::context::v1::PrepareContextRequest {
        interrupt_open_calls: true,
        ..prepare(&name(session), vec![])
    };
    let reply = client
        .prepare_context(interrupt)
        .await
        .unwrap()
        .into_inner();
    let results: Value = serde_json::from_slice(&reply.messages_json[2]).unwrap();
    let says = |id: &str| {
        let blocks = results["content"].as_array().unwrap();
        let block = blocks.iter().find(|block| block["tool_use_id"] == id);
        block.unwrap()["content"].as_str().unwrap().to_owned()
    };
    assert_eq!(says("fixed"), big);
    assert_eq!(says("never"), big);
    assert_eq!(says("small"), small);
    assert_eq!(says("empty"), empty);
    let retry = persist(&mut client, ask(session, "empty", "")).await;
    assert_eq!(retry.decision(), PersistDecision::InlineEmpty);

    let off = ToolResultPolicy {
        enabled: Some(false),
        ..ToolResultPolicy::default()
    };
    with_policy(&mut sessions, "off", off).await;
    let told = persist(&mut client, ask("off", "a", &big)).await;
    assert_eq!(told.decision(), PersistDecision::InlineDisabled);
    assert_eq!(told.replacement, None);

    // Where its folder should be, there is a file.
    std::fs::create_dir_all(folder.path().join("blobs/p")).unwrap();
    std::fs::write(folder.path().join("blobs/p/broken"), "").unwrap();
    let told = persist(&mut client, ask("broken", "a", &big)).await;
    assert_eq!(told.decision(), PersistDecision::InlineStoreFailed);
    assert_eq!(told.replacement, None);
    assert_eq!(told.warnings[0].code(), WarningCode::StoreFailed);
    // A failure is no decision: the retry does better.
    std::fs::remove_file(folder.path().join("blobs/p/broken")).unwrap();
    let told = persist(&mut client, ask("broken", "a", &big)).await;
    assert_eq!(told.decision(), PersistDecision::Persisted);
    assert!(told.warnings.is_empty());
}

#[tokio::test]
async fn the_limit_of_a_message_holds_for_what_stays_inline_too() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = "inline-budget";
    let ids = ["a", "b", "c", "d"];
    say(
        &mut client,
        session,
        vec![user("go"), assistant_calls(&ids)],
    )
    .await;
    for (index, id) in ids.iter().enumerate() {
        let says = large(60_000 + index * 2_000);
        let request = PersistToolResultRequest {
            rule: rule(Rule::FixedChars(90_000)),
            ..ask(session, id, &*says)
        };
        let told = persist(&mut client, request).await;
        assert_eq!(told.decision(), PersistDecision::InlineUnderLimit);
        say(&mut client, session, vec![result(id, &says)]).await;
    }
    let seen = view(&mut client, session).await;
    let sizes: Vec<usize> = (0..4).map(|block| shown(&seen, 2, block).len()).collect();
    assert!(sizes[..3].iter().all(|size| *size >= 60_000), "{sizes:?}");
    assert!(sizes[3] < 3_000, "{sizes:?}");
}

#[tokio::test]
async fn calls_that_share_an_id_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let session = "twins";
    say(
        &mut client,
        session,
        vec![user("go"), assistant_calls(&["x", "x"])],
    )
    .await;
    let status = client
        .persist_tool_result(ask(session, "x", large(60_000)))
        .await
        .unwrap_err();
    refused(&status, Code::InvalidArgument, "AMBIGUOUS_TOOL_USE_ID");
    let rich = tonic_types::pb::Status::decode(status.details()).unwrap();
    let own = rich
        .details
        .iter()
        .find(|any| any.type_url.ends_with("CallCandidates"));
    let candidates = CallCandidates::decode(&*own.unwrap().value).unwrap();
    let keys: Vec<_> = candidates
        .calls
        .iter()
        .map(|call| call.call.clone().unwrap())
        .collect();
    assert_eq!(
        keys.iter().map(|key| &*key.call_key).collect::<Vec<_>>(),
        ["c0", "c1"]
    );
    assert_eq!(keys[0].tool_use_id, "x");
    assert_eq!(candidates.calls[0].tool_name, "read");

    let [first, second] = [large(60_000), large(70_000)];
    let mut given = Vec::new();
    for (key, says) in [("c0", &first), ("c1", &second)] {
        let request = PersistToolResultRequest {
            call: by_key(key),
            ..ask(session, "", says.as_str())
        };
        given.push(replacement(&persist(&mut client, request).await));
    }
    // Results that share an id are paired by their order; here it is the other one.
    say(
        &mut client,
        session,
        vec![result("x", &given[1]), result("x", &given[0])],
    )
    .await;
    let seen = view(&mut client, session).await;
    assert_eq!(
        [shown(&seen, 2, 0), shown(&seen, 2, 1)],
        [&*given[1], &*given[0]]
    );
    for (key, says) in [("c0", &second), ("c1", &first)] {
        let whose = Whose::Call(by_key(key).unwrap());
        assert_eq!(&read(&mut client, session, whose).await.unwrap().0, says);
    }
    assert_eq!(files(folder.path(), session).len(), 2);
    let mismatch = PersistToolResultRequest {
        call: Some(CallRef {
            call_key: "c0".into(),
            tool_use_id: "y".into(),
        }),
        ..ask(session, "", "z")
    };
    let status = client.persist_tool_result(mismatch).await.unwrap_err();
    refused(&status, Code::InvalidArgument, "CALL_MISMATCH");
}

#[tokio::test]
async fn callers_that_race_get_one_answer() {
    let shared = SERVER.get();
    let original = large(60_000);
    let race = (0..8).map(|_| {
        let (shared, original) = (shared.clone(), original.clone());
        async move {
            let mut client = shared.0.context().await;
            client.persist_tool_result(ask("race", "a", original)).await
        }
    });
    let told: Vec<_> = join_all(race).await;
    let told: Vec<_> = told
        .into_iter()
        .map(|reply| reply.unwrap().into_inner())
        .collect();
    assert!(told.iter().all(|reply| *reply == told[0]), "{told:?}");
    assert_eq!(told[0].revision, 2);
    assert_eq!(events(&mut shared.0.sessions().await, "race").await, 2);
}

#[tokio::test]
async fn a_conflict_says_both_digests_and_a_request_is_answered_once() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = "persist-conflict";
    let mut request = ask(session, "a", large(60_000));
    request.request_id = "r1".into();
    let told = persist(&mut client, request.clone()).await;
    assert_eq!(persist(&mut client, request.clone()).await, told);
    request.content = text("else");
    let status = client
        .persist_tool_result(request.clone())
        .await
        .unwrap_err();
    let metadata = refused(&status, Code::AlreadyExists, "REQUEST_CONFLICT");
    assert_eq!(metadata["request_id"], "r1");
    request.request_id = String::new();
    let status = client
        .persist_tool_result(request.clone())
        .await
        .unwrap_err();
    let metadata = refused(&status, Code::AlreadyExists, "RESULT_CONFLICT");
    assert_ne!(metadata["stored_digest"], metadata["given_digest"]);
    // What stays inline is decided once too.
    persist(&mut client, ask(session, "b", "one")).await;
    let status = client
        .persist_tool_result(ask(session, "b", "two"))
        .await
        .unwrap_err();
    refused(&status, Code::AlreadyExists, "RESULT_CONFLICT");
    // And what was appended without asking.
    say(
        &mut client,
        session,
        vec![user("go"), assistant_calls(&["c"]), result("c", "said")],
    )
    .await;
    let told = persist(&mut client, ask(session, "c", "said")).await;
    assert_eq!(told.decision(), PersistDecision::InlineUnderLimit);
    assert_eq!(told.call.unwrap().call_key, "c0");
    let status = client
        .persist_tool_result(ask(session, "c", "else"))
        .await
        .unwrap_err();
    let metadata = refused(&status, Code::AlreadyExists, "RESULT_CONFLICT");
    assert_eq!(metadata["call_key"], "c0");
    let mut stale = ask(session, "d", "x");
    stale.expected_revision = Some(1);
    let status = client.persist_tool_result(stale).await.unwrap_err();
    refused(&status, Code::Aborted, "REVISION_MISMATCH");
}

#[tokio::test]
async fn a_dry_run_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let mut request = ask("dry", "a", large(60_000));
    request.dry_run = true;
    let told = persist(&mut client, request.clone()).await;
    assert_eq!(told.decision(), PersistDecision::Persisted);
    assert!(replacement(&told).starts_with("<persisted-output>"));
    assert_eq!((told.revision, files(folder.path(), "dry").len()), (0, 0));
    let gone = read(&mut client, "dry", Whose::Reference(reference(&told))).await;
    refused(&gone.unwrap_err(), Code::NotFound, "SESSION_NOT_FOUND");
    // Nothing was decided by it either.
    request.content = text("else");
    request.dry_run = false;
    let told = persist(&mut client, request).await;
    assert_eq!(told.decision(), PersistDecision::InlineUnderLimit);
}

#[tokio::test]
async fn an_id_never_becomes_a_path() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let original = large(60_000);
    let ids = [
        "../../etc/passwd",
        "/etc/passwd",
        "a\0b",
        "c0",
        "o0",
        "..",
        "ä/ö\\ü",
    ];
    for id in ids {
        let told = persist(&mut client, ask("paths", id, &original)).await;
        assert_eq!(told.decision(), PersistDecision::Persisted, "{id:?}");
        let (text, _) = read(&mut client, "paths", Whose::Reference(reference(&told)))
            .await
            .unwrap();
        assert_eq!(text, original);
    }
    let names = files(folder.path(), "paths");
    assert_eq!(names.len(), ids.len());
    for (index, name) in names.iter().enumerate() {
        let (owner, rest) = name.split_once('-').unwrap();
        assert_eq!(owner, format!("o{index}"));
        assert!(rest.ends_with(".txt") && rest.len() == 20, "{name}");
    }
    for escape in ["../x", "..", "o0-../x", "a/b"] {
        let named = format!("palimpsest://p/paths/tool-results/{escape}");
        let status = read(&mut client, "paths", Whose::Reference(named))
            .await
            .unwrap_err();
        refused(&status, Code::NotFound, "RESULT_NOT_FOUND");
    }
}

#[tokio::test]
async fn a_call_that_is_opened_again_gets_its_own_result() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = "reopened";
    let ids: Vec<String> = (0..3)
        .map(|n| palimpsest_tests::say::uuid(7_000 + n))
        .collect();
    let original = large(60_000);
    let said = [user("go"), assistant_calls(&["a"]), result("a", &original)];
    let said = ids.iter().zip(said);
    let said = said.map(|(id, input)| palimpsest_tests::say::with_id(id, input));
    say(&mut client, session, said.collect()).await;
    let before = view(&mut client, session).await;
    assert!(shown(&before, 2, 0).starts_with("<persisted-output>"));
    let rewind = palimpsest_proto::context::v1::RewindSessionRequest {
        session: name(session),
        target_message: Some(TargetMessage::ToMessageId(ids[1].clone())),
        ..Default::default()
    };
    client.rewind_session(rewind).await.unwrap();
    let told = persist(&mut client, ask(session, "a", "short")).await;
    assert_eq!(told.decision(), PersistDecision::InlineUnderLimit);
    say(&mut client, session, vec![result("a", "short")]).await;
    let after = view(&mut client, session).await;
    assert_eq!(shown(&after, 2, 0), "short");
}

#[tokio::test]
async fn wrong_requests_name_the_field() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let good = || ask("persist-bad", "a", "x");
    type Spoil = fn(&mut PersistToolResultRequest);
    let cases: [(&str, Spoil); 9] = [
        ("session", |r| r.session = "nope".into()),
        ("call", |r| r.call = None),
        ("call.tool_use_id", |r| r.call = Some(CallRef::default())),
        ("call.call_key", |r| r.call = by_key("../c0")),
        ("content", |r| r.content = None),
        ("content", |r| {
            r.content = Some(ToolResultContent::default())
        }),
        ("rule.rule", |r| r.rule = Some(ToolResultRule::default())),
        ("rule.never_persist", |r| {
            r.rule = rule(Rule::NeverPersist(false))
        }),
        ("request_id", |r| r.request_id = "x".repeat(129)),
    ];
    for (field, spoil) in cases {
        let mut request = good();
        spoil(&mut request);
        let status = client.persist_tool_result(request).await.unwrap_err();
        refused_field(&status, field);
    }
    let json = |json: &str| {
        Some(ToolResultContent {
            content: Some(Content::Json(json.to_owned().into())),
        })
    };
    for bad in [
        "{",
        "{}",
        "[1]",
        r#"[{"type":"tool_use","id":"x","name":"y","input":{}}]"#,
    ] {
        let mut request = good();
        request.content = json(bad);
        let status = client.persist_tool_result(request).await.unwrap_err();
        let metadata = refused(&status, Code::InvalidArgument, "INVALID_PAYLOAD");
        assert_eq!(metadata["field"], "content.json", "{bad}");
    }
    let mut unknown = good();
    unknown.call = by_key("c7");
    let status = client.persist_tool_result(unknown).await.unwrap_err();
    refused(&status, Code::NotFound, "CALL_NOT_FOUND");
    for long in [
        ask("persist-bad", &"x".repeat(257), "x"),
        PersistToolResultRequest {
            tool_name: "x".repeat(257),
            ..good()
        },
        ask("persist-bad", "a", "x".repeat(16 * 1024 * 1024 + 1)),
    ] {
        let status = client.persist_tool_result(long).await.unwrap_err();
        refused(&status, Code::ResourceExhausted, "MESSAGE_TOO_LARGE");
    }
    // A refused call makes no session.
    let request = palimpsest_proto::context::v1::GetSessionRequest {
        session: name("persist-bad"),
    };
    let status = shared
        .0
        .sessions()
        .await
        .get_session(request)
        .await
        .unwrap_err();
    refused(&status, Code::NotFound, "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn stored_results_that_nobody_appends_are_bounded() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let tight = |id: &str| PersistToolResultRequest {
        rule: rule(Rule::FixedChars(1)),
        ..ask("many-offers", id, format!("says {id}"))
    };
    persist(&mut client, ask("many-offers", "inline", "x")).await;
    let first = persist(&mut client, tight("0")).await;
    for index in 1..256 {
        persist(&mut client, tight(&index.to_string())).await;
    }
    let status = client.persist_tool_result(tight("more")).await.unwrap_err();
    let metadata = refused(&status, Code::ResourceExhausted, "QUOTA_EXCEEDED");
    assert_eq!(metadata["limit"], "256");
    // What stays inline is still told, and no promise is broken.
    let told = persist(&mut client, ask("many-offers", "one", "x")).await;
    assert_eq!(told.decision(), PersistDecision::InlineUnderLimit);
    let whose = Whose::Reference(reference(&first));
    assert_eq!(
        read(&mut client, "many-offers", whose).await.unwrap().0,
        "says 0"
    );
    // A result that comes makes room.
    let said = vec![user("go"), assistant_calls(&["0"]), result("0", "says 0")];
    say(&mut client, "many-offers", said).await;
    let told = persist(&mut client, tight("more")).await;
    assert_eq!(told.decision(), PersistDecision::Persisted);
}
