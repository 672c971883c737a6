//! Tests of persist decisions: their content and their form in the reply.

use palimpsest_proto::context::v1::read_tool_result_request::Result as Whose;
use palimpsest_proto::context::v1::tool_result_content::Content;
use palimpsest_proto::context::v1::tool_result_rule::Rule;
use palimpsest_proto::context::v1::{
    Block, BlockList, CreateSessionRequest, PersistToolResultRequest, PersistVerdict, Policy,
    Session, TextBlock, ToolResultPolicy, WarningCode, block,
};
use palimpsest_tests::say::{anthropic, assistant_calls, prepare, result, user};
use palimpsest_tests::server::Sessions;
use palimpsest_tests::{Server, name, refused};
use serde_json::{Value, json};
use tonic::Code;

use super::{
    ask, by_key, files, large, of, persist, read, reference, replacement, rule, say, shown, text,
    view,
};
use crate::SERVER;

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

#[tokio::test]
async fn a_result_of_several_blocks_is_stored_as_json() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let original = large(70_000);
    let blocks = json!([{"type": "text", "text": original}, {"type": "text", "text": "end"}]);
    let mut request = ask("several-blocks", "a", "");
    request.content = Some(of(Content::Json(blocks.to_string().into())));
    let told = persist(&mut client, request).await;
    let whose = Whose::Reference(reference(&told));
    let (file, info) = read(&mut client, "several-blocks", whose).await.unwrap();
    assert_eq!(info.media_type, "application/json");
    assert_eq!(serde_json::from_str::<Value>(&file).unwrap(), blocks);
}

#[tokio::test]
async fn a_result_of_one_text_block_is_stored_as_text_and_keeps_its_form() {
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
    let forms: [fn(&str) -> Content; 2] = [of_blocks, of_json];
    for (session, form) in ["of-blocks", "of-json"].into_iter().zip(forms) {
        let mut request = ask(session, "a", "");
        request.content = Some(of(form(&original)));
        let told = persist(&mut client, request.clone()).await;
        assert_eq!(told.decision(), PersistVerdict::Persisted);
        let (file, info) = read(&mut client, session, Whose::Reference(reference(&told)))
            .await
            .unwrap();
        assert!(
            info.media_type.starts_with("text/plain"),
            "{}",
            info.media_type
        );
        assert_eq!(file, original);
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
        // The replacement, appended in the form of the reply.
        let block = json!({"type": "tool_result", "tool_use_id": "a", "content": said});
        let message = anthropic(&json!({"role": "user", "content": [block]}));
        let said_all = vec![user("look"), assistant_calls(&["a"]), message];
        say(&mut client, session, said_all).await;
        let seen = view(&mut client, session).await;
        assert_eq!(shown(&seen, 2, 0), said[0]["text"].as_str().unwrap());
        let (again, _) = read(&mut client, session, Whose::Call(by_key("c0")))
            .await
            .unwrap();
        assert_eq!(again, file);
        assert_eq!(
            persist(&mut client, request).await.replacement,
            told.replacement
        );
    }
}

#[tokio::test]
async fn persist_decisions_of_every_kind_are_final() {
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
    let of_picture = of(Content::Json(picture.to_string().into()));
    let cases = [
        (
            "small",
            text(&*small),
            None,
            PersistVerdict::InlineUnderLimit,
        ),
        ("big", text(&*big), None, PersistVerdict::Persisted),
        (
            "fixed",
            text(&*big),
            Some(rule(Rule::FixedChars(100_000))),
            PersistVerdict::InlineUnderLimit,
        ),
        (
            // A declared limit is lowered to the limit of the policy (`clamp_declared`). A fixed one applies as it is.
            "declared",
            text(&*big),
            Some(rule(Rule::DeclaredChars(100_000))),
            PersistVerdict::Persisted,
        ),
        (
            "tight",
            text("four"),
            Some(rule(Rule::FixedChars(3))),
            PersistVerdict::Persisted,
        ),
        (
            "never",
            text(&*big),
            Some(rule(Rule::NeverPersist(true))),
            PersistVerdict::InlineNever,
        ),
        ("empty", text(" \n"), None, PersistVerdict::InlineEmpty),
        ("picture", of_picture, None, PersistVerdict::InlineImage),
        (
            "again",
            text("<persisted-output>\nx\n</persisted-output>"),
            None,
            PersistVerdict::InlineReplacement,
        ),
    ];
    for (id, content, rule, decision) in &cases {
        let request = PersistToolResultRequest {
            content: Some(content.clone()),
            rule: *rule,
            ..ask(session, id, "")
        };
        let told = persist(&mut client, request.clone()).await;
        assert_eq!(told.decision(), *decision, "{id}");
        assert_eq!(
            told.persisted.is_some(),
            *decision == PersistVerdict::Persisted,
            "{id}"
        );
        match decision {
            PersistVerdict::InlineEmpty => assert_eq!(replacement(&told), empty),
            PersistVerdict::Persisted => assert!(replacement(&told).contains("saved to: ")),
            _ => assert_eq!(told.replacement, None, "{id}"),
        }
        let again = persist(&mut client, request).await;
        assert_eq!(again, told, "{id}");
    }
    // The decision applies when the message arrives, although the policy has changed.
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
    assert_eq!(retry.decision(), PersistVerdict::InlineEmpty);

    let off = ToolResultPolicy {
        enabled: Some(false),
        ..ToolResultPolicy::default()
    };
    with_policy(&mut sessions, "off", off).await;
    let told = persist(&mut client, ask("off", "a", &big)).await;
    assert_eq!(told.decision(), PersistVerdict::InlineDisabled);
    assert_eq!(told.replacement, None);

    // A file blocks the creation of the session's folder.
    std::fs::create_dir_all(folder.path().join("blobs/p")).unwrap();
    std::fs::write(folder.path().join("blobs/p/broken"), "").unwrap();
    let told = persist(&mut client, ask("broken", "a", &big)).await;
    assert_eq!(told.decision(), PersistVerdict::InlineStoreFailed);
    assert_eq!(told.replacement, None);
    assert_eq!(told.warnings[0].code(), WarningCode::StoreFailed);
    let detail = &told.warnings[0].detail;
    assert!(detail.contains("blob store"), "{detail}");
    // A failure is not recorded as a decision, so a retry can succeed.
    std::fs::remove_file(folder.path().join("blobs/p/broken")).unwrap();
    let told = persist(&mut client, ask("broken", "a", &big)).await;
    assert_eq!(told.decision(), PersistVerdict::Persisted);
    assert!(told.warnings.is_empty());
}

#[tokio::test]
async fn the_message_limit_applies_to_inline_results() {
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
        // The four results exceed the limit of a message. The last one is the largest, so it is stored.
        let says = large(60_000 + index * 2_000);
        let request = PersistToolResultRequest {
            rule: Some(rule(Rule::FixedChars(90_000))),
            ..ask(session, id, &*says)
        };
        let told = persist(&mut client, request).await;
        assert_eq!(told.decision(), PersistVerdict::InlineUnderLimit);
        say(&mut client, session, vec![result(id, &says)]).await;
    }
    let seen = view(&mut client, session).await;
    let sizes: Vec<usize> = (0..4).map(|block| shown(&seen, 2, block).len()).collect();
    assert!(sizes[..3].iter().all(|size| *size >= 60_000), "{sizes:?}");
    assert!(sizes[3] < 3_000, "{sizes:?}");
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let mut request = ask("dry", "a", large(60_000));
    request.dry_run = true;
    let told = persist(&mut client, request.clone()).await;
    assert_eq!(told.decision(), PersistVerdict::Persisted);
    assert!(replacement(&told).starts_with("<persisted-output>"));
    // The call would create the session and record the decision.
    assert_eq!((told.revision, files(folder.path(), "dry").len()), (2, 0));
    let gone = read(&mut client, "dry", Whose::Reference(reference(&told))).await;
    refused(&gone.unwrap_err(), Code::NotFound, "SESSION_NOT_FOUND");
    // The dry run recorded no decision.
    request.content = Some(text("else"));
    request.dry_run = false;
    let told = persist(&mut client, request).await;
    assert_eq!(told.decision(), PersistVerdict::InlineUnderLimit);
    assert_eq!(told.revision, 2);
}
