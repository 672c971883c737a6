//! Tests of the pairing of results with calls: shared ids, concurrent callers and wrong names.

use futures::future::join_all;
use palimpsest_proto::context::v1::read_tool_result_request::Result as Whose;
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::tool_result_content::Content;
use palimpsest_proto::context::v1::tool_result_rule::Rule;
use palimpsest_proto::context::v1::{
    CallCandidates, CallRef, PersistToolResultRequest, PersistVerdict, ToolResultContent,
    ToolResultRule,
};
use palimpsest_tests::say::{assistant_calls, result, user};
use palimpsest_tests::{Server, name, refused, refused_field};
use prost::Message as _;
use tonic::Code;

use super::{
    ask, by_key, events, files, large, of, persist, read, reference, replacement, rule, say, shown,
    text, view,
};
use crate::SERVER;

#[tokio::test]
async fn calls_that_share_an_id_are_distinguished() {
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
            call: Some(by_key(key)),
            ..ask(session, "", says.as_str())
        };
        given.push(replacement(&persist(&mut client, request).await));
    }
    // Results with the same id are paired by order. Here the order is reversed.
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
        let whose = Whose::Call(by_key(key));
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
async fn racing_callers_get_the_same_decision() {
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
    // The first event creates the session. The second one records the decision that all callers get.
    assert_eq!(told[0].revision, 2);
    assert_eq!(events(&mut shared.0.sessions().await, "race").await, 2);
}

#[tokio::test]
async fn a_conflict_contains_both_digests_and_a_request_is_idempotent() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = "persist-conflict";
    let mut request = ask(session, "a", large(60_000));
    request.request_id = "r1".into();
    let told = persist(&mut client, request.clone()).await;
    assert_eq!(persist(&mut client, request.clone()).await, told);
    request.content = Some(text("else"));
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
    // A decision not to store a result is final too.
    persist(&mut client, ask(session, "b", "one")).await;
    let status = client
        .persist_tool_result(ask(session, "b", "two"))
        .await
        .unwrap_err();
    refused(&status, Code::AlreadyExists, "RESULT_CONFLICT");
    // The same applies to a result that was appended without a decision.
    say(
        &mut client,
        session,
        vec![user("go"), assistant_calls(&["c"]), result("c", "said")],
    )
    .await;
    let told = persist(&mut client, ask(session, "c", "said")).await;
    assert_eq!(told.decision(), PersistVerdict::InlineUnderLimit);
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
async fn a_tool_use_id_never_becomes_a_file_path() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let original = large(60_000);
    // `c0` and `o0` look like the beginnings of the names that the service gives to its files.
    let ids = [
        "../../etc/passwd", "/etc/passwd", "a\0b", "c0", "o0", "..", "ä/ö\\ü",
    ];
    for id in ids {
        let told = persist(&mut client, ask("paths", id, &original)).await;
        assert_eq!(told.decision(), PersistVerdict::Persisted, "{id:?}");
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
        let (digest, ending) = rest.split_once('.').unwrap();
        assert_eq!((digest.len(), ending), (16, "txt"), "{name}");
    }
    for escape in ["../x", "..", "o0-../x", "a/b"] {
        let path = format!("palimpsest://p/paths/tool-results/{escape}");
        let status = read(&mut client, "paths", Whose::Reference(path))
            .await
            .unwrap_err();
        refused(&status, Code::NotFound, "RESULT_NOT_FOUND");
    }
}

#[tokio::test]
async fn a_repeated_call_gets_its_own_result() {
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
    // The rewind opened the call again, so its next result is decided anew.
    let told = persist(&mut client, ask(session, "a", "short")).await;
    assert_eq!(told.decision(), PersistVerdict::InlineUnderLimit);
    say(&mut client, session, vec![result("a", "short")]).await;
    let after = view(&mut client, session).await;
    assert_eq!(shown(&after, 2, 0), "short");
}

/// A change that makes a valid request invalid.
type Spoil = fn(&mut PersistToolResultRequest);

#[tokio::test]
async fn invalid_requests_name_the_field() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let good = || ask("persist-bad", "a", "x");
    let cases: [(&str, Spoil); 9] = [
        ("session", |r| r.session = "nope".into()),
        ("call", |r| r.call = None),
        ("call.tool_use_id", |r| r.call = Some(CallRef::default())),
        ("call.call_key", |r| r.call = Some(by_key("../c0"))),
        ("content", |r| r.content = None),
        ("content", |r| {
            r.content = Some(ToolResultContent::default());
        }),
        ("rule.rule", |r| r.rule = Some(ToolResultRule::default())),
        ("rule.never_persist", |r| {
            r.rule = Some(rule(Rule::NeverPersist(false)));
        }),
        ("request_id", |r| r.request_id = "x".repeat(129)),
    ];
    for (field, spoil) in cases {
        let mut request = good();
        spoil(&mut request);
        let status = client.persist_tool_result(request).await.unwrap_err();
        refused_field(&status, field);
    }
    let json = |json: &str| Some(of(Content::Json(json.to_owned().into())));
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
    unknown.call = Some(by_key("c7"));
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
    // A rejected call creates no session.
    let request = palimpsest_proto::context::v1::GetSessionRequest {
        session: name("persist-bad"),
        ..Default::default()
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
async fn stored_results_without_an_append_are_bounded() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let tight = |id: &str| PersistToolResultRequest {
        rule: Some(rule(Rule::FixedChars(1))),
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
    // Results below the limit are still accepted, and the earlier decisions stay valid.
    let told = persist(&mut client, ask("many-offers", "one", "x")).await;
    assert_eq!(told.decision(), PersistVerdict::InlineUnderLimit);
    let whose = Whose::Reference(reference(&first));
    assert_eq!(
        read(&mut client, "many-offers", whose).await.unwrap().0,
        "says 0"
    );
    // An appended result frees space for another decision.
    let said = vec![user("go"), assistant_calls(&["0"]), result("0", "says 0")];
    say(&mut client, "many-offers", said).await;
    let told = persist(&mut client, tight("more")).await;
    assert_eq!(told.decision(), PersistVerdict::Persisted);
}
