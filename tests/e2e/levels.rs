//! Tests of levels 1 to 3 and undo over gRPC: results are stored, content is snipped and cleared, and restored.

use palimpsest_proto::context::v1::{
    BlockRef, BlockVisibility, CompactRequest, Level, LevelAction, LevelReport,
    ListMessagesRequest, MessageInput, MicrocompactMode, PrepareContextResponse,
    RestoreContextRequest, SkipReason, SnipRequest, Trigger, ViewBlocks, WirePosition,
    level_report::Detail,
};
use palimpsest_tests::array::values;
use palimpsest_tests::say::{
    anthropic, assistant, assistant_calls, prepare, result, tools_with_snip, user, uuid, with_id,
};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Array, Server, name, refused, refused_field};
use serde_json::{Value, json};
use tonic::Code;

use crate::SERVER;

async fn turn(
    client: &mut Context,
    session: &str,
    array: &mut Array,
    messages: Vec<MessageInput>,
) -> PrepareContextResponse {
    let mut request = prepare(&name(session), messages);
    request.known_etag = array.etag.clone();
    request.prompt_prefix = tools_with_snip();
    let reply = client.prepare_context(request).await.unwrap().into_inner();
    array.take(&reply);
    reply
}

async fn whole(client: &mut Context, session: &str) -> PrepareContextResponse {
    let request = prepare(&name(session), Vec::new());
    client.prepare_context(request).await.unwrap().into_inner()
}

fn stage(reports: &[LevelReport], level: Level) -> &LevelReport {
    let found = reports.iter().find(|stage| stage.level() == level);
    found.unwrap_or_else(|| panic!("no {level:?} in {reports:?}"))
}

fn reads(ids: &[String]) -> MessageInput {
    let calls: Vec<Value> = ids
        .iter()
        .map(|id| json!({"type": "tool_use", "id": id, "name": "Read", "input": {"file_path": format!("/{id}")}}))
        .collect();
    anthropic(&json!({"role": "assistant", "content": calls}))
}

fn results(ids: &[String], text: &str) -> MessageInput {
    let blocks: Vec<Value> = ids
        .iter()
        .map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": text}))
        .collect();
    anthropic(&json!({"role": "user", "content": blocks}))
}

fn tag(message: &Value) -> String {
    let text = message["content"].as_array().unwrap().last().unwrap()["text"]
        .as_str()
        .unwrap();
    let (_, rest) = text.rsplit_once("[id:").unwrap();
    rest.trim_end_matches(']').to_owned()
}

#[tokio::test]
async fn p11_p12_a_large_result_is_stored_and_stays_readable() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let (session, mut array) = ("large", Array::default());
    // One result may have 50,000 characters in the view.
    let text = format!("first line\n{}", "x".repeat(60_000));
    let asked = vec![user("look"), assistant_calls(&["a"]), result("a", &text)];
    let reply = turn(&mut client, session, &mut array, asked).await;
    let report = stage(&reply.level_reports, Level::ToolResultBudget);
    assert_eq!(report.action(), LevelAction::Applied);
    let Some(Detail::ResultsPersisted(persisted)) = &report.detail else {
        panic!("{report:?}")
    };
    let stored = &persisted.results[0];
    assert_eq!(stored.original_bytes, text.len() as u64);
    let shown = array.values()[2]["content"][0]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        shown.starts_with("<persisted-output>\nOutput too large (58.6KB)."),
        "{shown}"
    );
    assert!(shown.contains(&stored.reference) && shown.contains("first line"));
    // The file is stored before any reply names it.
    let file = stored.reference.rsplit('/').next().unwrap();
    let path = folder.path().join("blobs/p/large/tool-results").join(file);
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
    // The transcript contains the original and reports how the view shows it.
    let request = ListMessagesRequest {
        session: name(session),
        ..Default::default()
    };
    let listed = server
        .sessions()
        .await
        .list_messages(request)
        .await
        .unwrap()
        .into_inner();
    let original = &listed.messages[2];
    assert_eq!(
        original.block_statuses[0].visibility(),
        BlockVisibility::Persisted
    );
    assert_eq!(original.block_statuses[0].reference, stored.reference);
    assert!(original.size_bytes > 60_000);
    server.kill();
    let server = Server::start(folder.path(), &[]);
    let again = whole(&mut server.context().await, session).await;
    assert_eq!(again.messages_json, array.messages);
}

#[tokio::test]
async fn p04_parallel_results_stay_below_the_message_limit() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let ids: Vec<String> = (0..40).map(|n| format!("r{n}")).collect();
    let mut array = Array::default();
    turn(
        &mut client,
        "wide",
        &mut array,
        vec![user("go"), reads(&ids)],
    )
    .await;
    // The results of one message may arrive in several calls.
    for id in &ids {
        // No result exceeds 50,000 characters. Together they exceed the 200,000 characters of one message.
        let size = 40_000 + usize::from(id.ends_with('7')) * 1_000;
        let request =
            palimpsest_tests::say::append(&name("wide"), vec![result(id, &"y".repeat(size))]);
        client.append_messages(request).await.unwrap();
    }
    let reply = turn(&mut client, "wide", &mut array, vec![]).await;
    assert!(reply.sendable);
    let blocks = array.values()[2]["content"].as_array().unwrap().clone();
    let sizes: Vec<usize> = blocks
        .iter()
        .map(|block| block["content"].as_str().unwrap().len())
        .collect();
    assert_eq!(sizes.len(), 40);
    assert!(sizes.iter().sum::<usize>() <= 200_000, "{sizes:?}");
    // The largest results are stored first.
    let kept: Vec<usize> = sizes.iter().copied().filter(|size| *size > 3_000).collect();
    // A replacement has a preview of 2,000 characters and a short frame, so longer texts are originals.
    assert!(
        !kept.is_empty() && kept.iter().all(|size| *size == 40_000),
        "{sizes:?}"
    );
    // A decision about a result is final, so the next view repeats the same bytes.
    let before = array.clone();
    let again = turn(&mut client, "wide", &mut array, vec![]).await;
    assert_eq!((array, again.messages_json.len()), (before, 0));
}

#[tokio::test]
async fn p19_turns_are_snipped_by_the_ids_in_the_view() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut array = Array::default();
    let said = vec![
        with_id(&uuid(901), user("one")),
        with_id(&uuid(902), assistant_calls(&["a"])),
        with_id(&uuid(903), result("a", "of a")),
        with_id(&uuid(904), assistant("done")),
        with_id(&uuid(905), user("two")),
    ];
    turn(&mut client, "snip", &mut array, said).await;
    let (first, current) = (tag(&array.values()[0]), tag(&array.values()[4]));
    assert_ne!(first, current);
    let snip = |turns: &[&str]| SnipRequest {
        session: name("snip"),
        turn_ids: turns.iter().map(ToString::to_string).collect(),
        reason: "done with it".into(),
        ..SnipRequest::default()
    };
    let refusals = [
        (snip(&["zzzzzz"]), Code::NotFound, "TURN_NOT_FOUND"),
        (
            snip(&[&current]),
            Code::FailedPrecondition,
            "TURN_IS_CURRENT",
        ),
        (snip(&[&first, "nope"]), Code::NotFound, "TURN_NOT_FOUND"),
    ];
    for (request, code, reason) in refusals {
        refused(&client.snip(request).await.unwrap_err(), code, reason);
    }
    let twice = client.snip(snip(&[&first, &first])).await.unwrap_err();
    refused_field(&twice, "turn_ids[1]");
    let mut dry = snip(&[&first]);
    dry.dry_run = true;
    let would = client.snip(dry).await.unwrap().into_inner();
    assert_eq!(
        whole(&mut client, "snip").await.messages_json,
        array.messages
    );
    let mut request = snip(&[&first]);
    request.request_id = "once".into();
    let done = client.snip(request.clone()).await.unwrap().into_inner();
    assert_eq!(done.snipped, would.snipped);
    let snipped = done.snipped.clone().unwrap();
    assert_eq!(snipped.turn_ids, [first.as_str()]);
    assert_eq!(
        snipped.message_ids,
        [uuid(901), uuid(902), uuid(903), uuid(904)]
    );
    assert!(done.effect.as_ref().unwrap().freed_tokens > 0);
    // A repeat with the same request id returns the first answer. A new request is rejected.
    assert_eq!(
        client.snip(request).await.unwrap().into_inner().snipped,
        done.snipped
    );
    let already = client.snip(snip(&[&first])).await.unwrap_err();
    refused(&already, Code::FailedPrecondition, "TURN_ALREADY_SNIPPED");
    turn(&mut client, "snip", &mut array, vec![]).await;
    assert_eq!(array.values().len(), 1);
    assert_eq!(tag(&array.values()[0]), current);
}

#[tokio::test]
async fn a_turn_of_the_parent_is_distinguished_from_an_unknown_turn() {
    use palimpsest_proto::context::v1::{CreateSessionRequest, Session};
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut array = Array::default();
    turn(
        &mut client,
        "snip-parent",
        &mut array,
        vec![user("one"), assistant("x"), user("two")],
    )
    .await;
    let of_parent = tag(&array.values()[0]);
    let session = Session {
        name: name("snip-child"),
        parent_session: name("snip-parent"),
        ..Session::default()
    };
    let request = CreateSessionRequest {
        parent: "projects/p".into(),
        session_id: "snip-child".into(),
        session: Some(session),
        ..CreateSessionRequest::default()
    };
    shared
        .0
        .sessions()
        .await
        .create_session(request)
        .await
        .unwrap();
    turn(
        &mut client,
        "snip-child",
        &mut Array::default(),
        vec![user("hello")],
    )
    .await;
    let request = SnipRequest {
        session: name("snip-child"),
        turn_ids: vec![of_parent],
        ..SnipRequest::default()
    };
    let status = client.snip(request).await.unwrap_err();
    refused(&status, Code::NotFound, "TURN_FOREIGN");
}

#[tokio::test]
async fn p04_a_rejected_block_is_snipped_by_its_position_in_the_view() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut array = Array::default();
    let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}});
    let ask = anthropic(
        &json!({"role": "user", "content": [picture, {"type": "text", "text": "what is it?"}]}),
    );
    turn(&mut client, "poison", &mut array, vec![ask]).await;
    assert_eq!(array.values()[0]["content"][0]["type"], "image");
    let request = SnipRequest {
        session: name("poison"),
        view_blocks: Some(ViewBlocks {
            etag: array.etag.clone(),
            positions: vec![WirePosition {
                message_index: 0,
                block_index: Some(0),
            }],
        }),
        ..SnipRequest::default()
    };
    let mut outside = request.clone();
    let view = outside.view_blocks.as_mut().unwrap();
    view.positions.push(WirePosition {
        message_index: 9,
        block_index: None,
    });
    let outside = client.snip(outside).await.unwrap_err();
    refused_field(&outside, "view_blocks.positions[1]");
    let mut many = request.clone();
    let view = many.view_blocks.as_mut().unwrap();
    view.positions = vec![view.positions[0]; 10_001];
    let many = client.snip(many).await.unwrap_err();
    refused_field(&many, "view_blocks.positions");
    client.snip(request.clone()).await.unwrap();
    // The first snip changed the view, so the positions of its etag are out of date.
    let stale = client.snip(request).await.unwrap_err();
    refused(&stale, Code::Aborted, "VIEW_CHANGED");
    let reply = turn(&mut client, "poison", &mut array, vec![]).await;
    assert!(reply.sendable);
    assert_eq!(array.values()[0]["content"][0]["text"], "[image removed]");
}

/// Returns a response with an old timestamp.
fn long_ago(mut input: MessageInput) -> MessageInput {
    let metadata = input.metadata.get_or_insert_default();
    metadata.create_time = Some(prost_types::Timestamp {
        seconds: 1_700_000_000,
        nanos: 0,
    });
    input
}

#[tokio::test]
async fn p10_p21_a_cold_cache_clears_old_results_once_and_reports_it() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut array = Array::default();
    let ids: Vec<String> = (0..9).map(|n| format!("t{n}")).collect();
    let said = vec![
        user("read them"),
        long_ago(reads(&ids)),
        results(&ids, &"content ".repeat(200)),
    ];
    // The response is older than `microcompact.time.idle` (one hour), so the provider's cache has expired.
    let reply = turn(&mut client, "cold", &mut array, said).await;
    let report = stage(&reply.level_reports, Level::Microcompact);
    assert_eq!(report.action(), LevelAction::Applied);
    let Some(Detail::ResultsCleared(cleared)) = &report.detail else {
        panic!("{report:?}")
    };
    assert_eq!(cleared.mode(), MicrocompactMode::Time);
    // `microcompact.time.keep_results` is 5, so the four oldest of nine results are cleared.
    assert_eq!(cleared.calls.len(), 4);
    assert_eq!(cleared.hidden_paths, ["/t0", "/t1", "/t2", "/t3"]);
    let effect = report.effect.as_ref().unwrap();
    assert_eq!(effect.trigger(), Trigger::Time);
    assert!(effect.freed_tokens > 0 && effect.after_tokens < effect.before_tokens);
    let shown: Vec<bool> = array.values()[2]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["content"] == "[Old tool result content cleared]")
        .collect();
    assert_eq!(
        shown,
        [true, true, true, true, false, false, false, false, false]
    );
    let again = turn(&mut client, "cold", &mut array, vec![]).await;
    let report = stage(&again.level_reports, Level::Microcompact);
    assert_eq!(report.skip_reason(), SkipReason::NothingEligible);
    assert_eq!(again.epoch, 1);
}

#[tokio::test]
async fn p12_manually_cleared_results_remain_readable() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut array = Array::default();
    let ids: Vec<String> = (0..6).map(|n| format!("m{n}")).collect();
    let said = vec![
        user("read"),
        reads(&ids),
        results(&ids, &"content ".repeat(500)),
    ];
    turn(&mut client, "by-hand", &mut array, said).await;
    let request = CompactRequest {
        session: name("by-hand"),
        level: Level::Microcompact.into(),
        target_tokens: Some(0),
        ..CompactRequest::default()
    };
    let reply = client.compact(request.clone()).await.unwrap().into_inner();
    let Some(Detail::ResultsCleared(cleared)) = &reply.level_reports[0].detail else {
        panic!("{reply:?}")
    };
    assert_eq!((cleared.calls.len(), cleared.persisted.len()), (3, 3));
    turn(&mut client, "by-hand", &mut array, vec![]).await;
    let shown = array.values()[2]["content"][0]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    let reference = &cleared.persisted[0].reference;
    assert_eq!(
        shown,
        format!(
            "<persisted-output>Tool result saved to: {reference}\n\nUse ReadToolResult to view</persisted-output>"
        )
    );
    let nothing = client.compact(request).await.unwrap_err();
    let metadata = refused(&nothing, Code::FailedPrecondition, "NOTHING_TO_COMPACT");
    assert_eq!(metadata["skip_reason"], "NOTHING_ELIGIBLE");
}

#[tokio::test]
async fn p13_undo_restores_the_exact_view() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut array = Array::default();
    let ids: Vec<String> = (0..6).map(|n| format!("u{n}")).collect();
    let said = vec![
        user("read"),
        reads(&ids),
        results(&ids, &"content ".repeat(500)),
        with_id(&uuid(950), assistant("done")),
        user("next"),
    ];
    let before = turn(&mut client, "undo", &mut array, said).await;
    let original = array.messages.clone();
    let request = CompactRequest {
        session: name("undo"),
        level: Level::Microcompact.into(),
        target_tokens: Some(0),
        ..CompactRequest::default()
    };
    client.compact(request).await.unwrap();
    let request = SnipRequest {
        session: name("undo"),
        blocks: vec![BlockRef {
            message_id: uuid(950),
            block_index: 0,
        }],
        ..SnipRequest::default()
    };
    client.snip(request).await.unwrap();
    turn(
        &mut client,
        "undo",
        &mut array,
        vec![assistant("later"), user("on")],
    )
    .await;
    assert_ne!(array.messages[..original.len()], original);
    let request = RestoreContextRequest {
        session: name("undo"),
        to_revision: before.revision,
        ..RestoreContextRequest::default()
    };
    let restored = client
        .restore_context(request.clone())
        .await
        .unwrap()
        .into_inner();
    // Two changes of the view follow the restored revision: the clear and the snip.
    assert_eq!(restored.restored.unwrap().undone.len(), 2);
    turn(&mut client, "undo", &mut array, vec![]).await;
    assert_eq!(array.messages[..original.len()], original);
    let later = array.messages[original.len()..].concat();
    let texts = String::from_utf8_lossy(&later);
    assert!(
        texts.contains("later") && texts.contains("\"on\\n[id:"),
        "{texts}"
    );
    assert_eq!(
        whole(&mut client, "undo").await.messages_json,
        array.messages
    );
    // A revision beyond the log is rejected.
    let mut beyond = request;
    beyond.to_revision = 1_000;
    let status = client.restore_context(beyond).await.unwrap_err();
    refused(&status, Code::NotFound, "REVISION_NOT_FOUND");
}

#[tokio::test]
async fn p09_cache_edits_are_returned_once_and_stay_in_position() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let prepare_with_edits = |messages| {
        let mut request = prepare(&name("edits"), messages);
        request.cache_edits_supported = true;
        request
    };
    let ids: Vec<String> = (0..12).map(|n| format!("e{n}")).collect();
    let said = vec![user("read"), reads(&ids), results(&ids, "content")];
    let first = client
        .prepare_context(prepare_with_edits(said))
        .await
        .unwrap()
        .into_inner();
    // These results are not in the cache yet.
    assert!(first.cache_edits.is_none());
    let next = vec![assistant("and"), user("on")];
    let second = client
        .prepare_context(prepare_with_edits(next))
        .await
        .unwrap()
        .into_inner();
    let report = stage(&second.level_reports, Level::Microcompact);
    assert_eq!(report.action(), LevelAction::Advised);
    let edits = second.cache_edits.unwrap();
    let edit = &edits.edits[0];
    assert_eq!(
        (edits.edits.len(), edit.message_index, edit.newly_added),
        (1, 4, true)
    );
    let block: Value = serde_json::from_slice(&edit.block_json).unwrap();
    assert_eq!(block["type"], "cache_edits");
    // `microcompact.cached` begins above 10 results and keeps 5. With 12 results, 7 are deleted.
    assert_eq!(block["edits"].as_array().unwrap().len(), 7);
    assert_eq!(
        block["edits"][0],
        json!({"type": "delete", "cache_reference": "e0"})
    );
    // Each deleted result needs the name that the edit uses.
    let named = edit.references.iter().map(|reference| {
        let fields: Value = serde_json::from_slice(&reference.merge_json).unwrap();
        assert_eq!(fields, json!({"cache_reference": reference.tool_use_id}));
        reference.tool_use_id.clone()
    });
    assert_eq!(named.collect::<Vec<_>>(), ids[..7]);
    // The view does not change.
    assert_eq!(second.epoch, 0);
    assert_eq!(
        values(&second.messages_json)[2]["content"][0]["content"],
        "content"
    );
    server.kill();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let third = client
        .prepare_context(prepare_with_edits(vec![]))
        .await
        .unwrap()
        .into_inner();
    let again = third.cache_edits.unwrap();
    assert!(!again.edits[0].newly_added);
    assert_eq!(again.edits[0].block_json, edit.block_json);
    assert_eq!(again.edits[0].references, edit.references);
    assert_eq!(again.edits[0].message_index, edit.message_index);
}
