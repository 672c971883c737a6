//! Tests that every recovery handle leads to the original content.

use std::collections::HashMap;

use palimpsest_proto::context::v1::call_tool_request::Call;
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{
    BlockRef, CallToolRequest, EventKind, Format, GetSessionRequest, Level, MessageInput, Payload,
    RecoveryHandleKind, RecoveryReport, RemovedItem, RemovedItemKind, RestoreContextRequest,
    RewindSessionRequest, SnipRequest, UndoneEvent,
};
use palimpsest_tests::say::{
    anthropic, assistant, assistant_calls, prepare, result, tools_with_snip, user, uuid, with_id,
};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Server, name};
use serde_json::{Value, json};

use crate::SERVER;

/// The originals of a session: the text of every block, by its position.
#[derive(Default)]
struct Originals(HashMap<(String, u32), String>);

impl Originals {
    fn message(&mut self, number: u64, role: &str, texts: &[&str]) -> MessageInput {
        let blocks: Vec<Value> = texts
            .iter()
            .map(|text| json!({"type": "text", "text": text}))
            .collect();
        self.keep(number, texts.iter().map(ToString::to_string));
        with_id(
            &uuid(number),
            anthropic(&json!({"role": role, "content": blocks})),
        )
    }

    /// Returns old calls of a tool with clearable results, and these results.
    fn reads(&mut self, number: u64, ids: &[&str], said: &str) -> [MessageInput; 2] {
        let calls: Vec<Value> = ids
            .iter()
            .map(|id| json!({"type": "tool_use", "id": id, "name": "Read", "input": {}}))
            .collect();
        let texts: Vec<String> = ids
            .iter()
            .map(|id| format!("{said} of {id}. ").repeat(100))
            .collect();
        let results: Vec<Value> = ids
            .iter()
            .zip(&texts)
            .map(|(id, text)| json!({"type": "tool_result", "tool_use_id": id, "content": text}))
            .collect();
        let mut asked = with_id(
            &uuid(number),
            anthropic(&json!({"role": "assistant", "content": calls})),
        );
        // The response is older than the prompt cache of the provider, so level 3 clears its results.
        let long_ago = prost_types::Timestamp {
            seconds: 1_700_000_000,
            nanos: 0,
        };
        asked.metadata.get_or_insert_default().create_time = Some(long_ago);
        self.keep(number + 1, texts.into_iter());
        let answers = anthropic(&json!({"role": "user", "content": results}));
        [asked, with_id(&uuid(number + 1), answers)]
    }

    fn keep(&mut self, number: u64, texts: impl Iterator<Item = String>) {
        let places = (0..).map(|block| (uuid(number), block));
        self.0.extend(places.zip(texts));
    }

    /// Returns the originals that an item must lead to.
    fn of(&self, item: &RemovedItem) -> Vec<&str> {
        if let Some(block) = item.block_index {
            return vec![&self.0[&(item.first_message_id.clone(), block)]];
        }
        // The ids are hexadecimal numbers of a fixed width, so their order as text is the order of the messages.
        let ids = &item.first_message_id..=&item.last_message_id;
        let inside = self.0.iter().filter(|((id, _), _)| ids.contains(&id));
        inside.map(|(_, text)| text.as_str()).collect()
    }
}

async fn call_tool(client: &mut Context, session: &str, item: &RemovedItem) -> String {
    let tool = item.tool_use.as_ref().unwrap();
    let input: Value = serde_json::from_slice(&tool.input_json).unwrap();
    let call = json!({"type": "tool_use", "id": "t", "name": tool.name, "input": input});
    let request = CallToolRequest {
        session: name(session),
        call: Some(Call::Payload(Payload {
            format: Format::AnthropicMessages.into(),
            json: call.to_string().into(),
        })),
        ..CallToolRequest::default()
    };
    let reply = client.call_tool(request).await.unwrap().into_inner();
    let block: Value = serde_json::from_slice(&reply.tool_result_json).unwrap();
    assert!(block.get("is_error").is_none(), "{block} for {tool:?}");
    block["content"].as_str().unwrap().to_owned()
}

/// Follows the recovery handle of each item, and checks with a dry run which content an undo restores.
async fn go(client: &mut Context, session: &str, report: &RecoveryReport, originals: &Originals) {
    for item in &report.items {
        let said = call_tool(client, session, item).await;
        for original in originals.of(item) {
            assert!(said.contains(original), "{item:?} leads to {said}");
        }
        assert!(item.tokens > 0, "{item:?}");
        // A stored result is never shown again, so no revision restores it.
        if item.level() == Level::ToolResultBudget {
            assert_eq!(item.restore_to_revision, 0);
            continue;
        }
        let request = RestoreContextRequest {
            session: name(session),
            to_revision: item.restore_to_revision,
            dry_run: true,
            ..RestoreContextRequest::default()
        };
        let would = client.restore_context(request).await.unwrap().into_inner();
        let back = would.recovery.unwrap().returned_items;
        assert!(back.contains(item), "{item:?} is not in {back:?}");
    }
}

async fn whole(server: &Server, session: &str) -> RecoveryReport {
    let request = GetSessionRequest {
        session: name(session),
        include_recovery: true,
        ..GetSessionRequest::default()
    };
    let mut sessions = server.sessions().await;
    let reply = sessions.get_session(request).await.unwrap().into_inner();
    reply.recovery.unwrap()
}

/// Checks that the report of a message has the items of the whole report that belong to the message.
async fn check_messages(server: &Server, session: &str, all: &RecoveryReport) {
    let mut sessions = server.sessions().await;
    let mut of = async |message: &str| {
        let request = GetSessionRequest {
            session: name(session),
            include_recovery: true,
            recovery_message_id: message.to_owned(),
        };
        sessions.get_session(request).await
    };
    for item in &all.items {
        for message in [&item.first_message_id, &item.last_message_id] {
            let report = of(message).await.unwrap().into_inner().recovery.unwrap();
            assert!(report.items.contains(item), "{item:?}: {report:?}");
            let others = report
                .items
                .iter()
                .filter(|one| one.first_message_id != *message && one.last_message_id != *message);
            assert_eq!(others.count(), 0, "{report:?}");
        }
    }
    // The last question is in the view as it was sent.
    let visible = of(&uuid(12)).await.unwrap().into_inner();
    assert_eq!(visible.recovery.unwrap(), RecoveryReport::default());
    let unknown = of(&uuid(99)).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
}

fn kinds(report: &RecoveryReport) -> Vec<(RemovedItemKind, EventKind)> {
    let items = report.items.iter();
    items.map(|item| (item.kind(), item.cause())).collect()
}

#[tokio::test]
async fn every_recovery_handle_leads_to_the_original() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    let (session, mut originals) = ("ways", Originals::default());
    let ids = ["w0", "w1", "w2", "w3", "w4"];

    // The caller reuses its ids, so that an id in the view names two calls.
    let mut said = vec![originals.message(1, "user", &["the first question"])];
    said.extend(originals.reads(2, &ids, "early"));
    said.extend(originals.reads(4, &ids, "late"));
    let first = client
        .prepare_context(prepare(&name(session), said))
        .await
        .unwrap()
        .into_inner();
    let cleared = first.recovery.unwrap();
    let result_cleared = (RemovedItemKind::ToolResult, EventKind::ResultsCleared);
    assert_eq!(kinds(&cleared), [result_cleared; 5]);
    assert_eq!((cleared.total_items, cleared.visible_handles), (5, 5));
    for (item, id) in cleared.items.iter().zip(ids) {
        assert_eq!(
            (item.handle_kind(), &*item.handle),
            (RecoveryHandleKind::CallId, id)
        );
        assert_eq!(item.cause_revision, first.revision);
        assert_eq!(item.level(), Level::Microcompact);
    }
    go(&mut client, session, &cleared, &originals).await;

    // A result above the limit, and turns to be snipped.
    let large = format!("{}the end", "a long line of what it says\n".repeat(2_000));
    // An answer of a tool has at most 50,000 bytes, so it must contain only the beginning of this original.
    originals.keep(8, [large[..10_000].to_owned()].into_iter());
    let said = vec![
        originals.message(6, "assistant", &["an answer"]),
        with_id(&uuid(7), assistant_calls(&["big"])),
        with_id(&uuid(8), result("big", &large)),
        originals.message(9, "assistant", &["it is large"]),
        originals.message(10, "user", &["the second question"]),
        originals.message(11, "assistant", &["its answer", "and more of it"]),
        originals.message(12, "user", &["the third question"]),
        originals.message(13, "assistant", &["the third answer"]),
        originals.message(14, "user", &["the fourth question"]),
        originals.message(15, "assistant", &["the fourth answer"]),
        originals.message(16, "user", &["the fifth question"]),
    ];
    let mut request = prepare(&name(session), said);
    request.prompt_prefix = tools_with_snip();
    let reply = client.prepare_context(request).await.unwrap().into_inner();
    let stored = reply.recovery.unwrap();
    let result_stored = (RemovedItemKind::ToolResult, EventKind::ResultsPersisted);
    assert_eq!(kinds(&stored), [result_stored]);
    assert_eq!(stored.items[0].handle_kind(), RecoveryHandleKind::Reference);
    assert_eq!(stored.items[0].level(), Level::ToolResultBudget);
    assert!(stored.items[0].cause_revision > first.revision);
    go(&mut client, session, &stored, &originals).await;

    let view: Vec<Value> = reply
        .messages_json
        .iter()
        .map(|json| serde_json::from_slice(json).unwrap())
        .collect();
    let of_second = view
        .iter()
        .find(|message| message.to_string().contains("the second question"));
    let text = of_second.unwrap()["content"].to_string();
    let turn = text.rsplit_once("[id:").unwrap().1[..6].to_owned();
    let request = SnipRequest {
        session: name(session),
        turn_ids: vec![turn.clone()],
        message_ids: vec![uuid(13), uuid(15)],
        blocks: vec![BlockRef {
            message_id: uuid(9),
            block_index: 0,
        }],
        ..SnipRequest::default()
    };
    let mut dry = request.clone();
    dry.dry_run = true;
    let would = client.snip(dry).await.unwrap().into_inner();
    let snipped = client.snip(request).await.unwrap().into_inner();
    let of_snip = snipped.recovery.unwrap();
    let report = &of_snip;
    assert_eq!(Some(report), would.recovery.as_ref());
    let by = |kind| (kind, EventKind::ContentSnipped);
    let expected = [
        by(RemovedItemKind::Turn),
        by(RemovedItemKind::Message),
        by(RemovedItemKind::Message),
        by(RemovedItemKind::Block),
    ];
    assert_eq!(kinds(report), expected);
    assert_eq!(
        (report.items[0].messages, &report.items[0].turn_id),
        (2, &turn)
    );
    // Snipped content leaves no text in the view that leads to it.
    assert_eq!(report.visible_handles, 0);
    go(&mut client, session, report, &originals).await;

    let request = RewindSessionRequest {
        session: name(session),
        target_message: Some(TargetMessage::ToMessageId(uuid(12))),
        ..RewindSessionRequest::default()
    };
    let rewound = client.rewind_session(request).await.unwrap().into_inner();
    let report = rewound.recovery.unwrap();
    let taken = |kind| (kind, EventKind::SessionRewound);
    let expected = [
        taken(RemovedItemKind::Message),
        taken(RemovedItemKind::Message),
    ];
    assert_eq!(kinds(&report), expected);
    go(&mut client, session, &report, &originals).await;

    // The complete report, also after a restart.
    let all = whole(&server, session).await;
    // One stored result, five cleared ones, four snipped items and two rewound messages.
    assert_eq!(all.total_items, 1 + 5 + 4 + 2);
    assert_eq!((all.items.len(), all.incomplete), (12, false));
    let sum: u64 = all.items.iter().map(|item| u64::from(item.tokens)).sum();
    assert_eq!(all.total_tokens, sum);
    go(&mut client, session, &all, &originals).await;
    check_messages(&server, session, &all).await;
    server.kill();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.context().await;
    assert_eq!(whole(&server, session).await, all);

    // Undos restore all of it, except the results that level 1 stored.
    let mut restore = async |item: &RemovedItem| {
        let request = RestoreContextRequest {
            session: name(session),
            to_revision: item.restore_to_revision,
            ..RestoreContextRequest::default()
        };
        let restored = client.restore_context(request).await.unwrap().into_inner();
        let undone = restored.restored.unwrap().undone;
        let kinds: Vec<EventKind> = undone.iter().map(UndoneEvent::kind).collect();
        (kinds, restored.recovery.unwrap())
    };
    let (undone, back) = restore(&of_snip.items[0]).await;
    let snip_and_rewind = [EventKind::SessionRewound, EventKind::ContentSnipped];
    assert_eq!(undone, snip_and_rewind);
    assert_eq!((back.total_items, back.total_returned_items), (0, 6));
    assert_eq!(whole(&server, session).await.total_items, 6);
    let (undone, back) = restore(&cleared.items[0]).await;
    let expected = [
        EventKind::ContextRestored,
        EventKind::SessionRewound,
        EventKind::ContentSnipped,
        EventKind::ResultsCleared,
    ];
    assert_eq!(undone, expected);
    assert_eq!((back.total_items, back.total_returned_items), (0, 11));
    assert_eq!(kinds(&whole(&server, session).await), [result_stored]);
}

#[tokio::test]
async fn complete_views_have_no_recovery_handles() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let said = vec![user("one"), assistant("two"), user("three")];
    let reply = client
        .prepare_context(prepare(&name("nothing-left"), said))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(reply.recovery, None);
    let all = whole(&shared.0, "nothing-left").await;
    assert_eq!(all, RecoveryReport::default());
}
