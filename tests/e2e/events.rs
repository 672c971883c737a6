//! Tests that events are reported equally, however the session continues.

use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    ListEventsRequest, PromptPrefix, RestoreContextRequest, RewindSessionRequest, SessionEvent,
    SnipRequest,
};
use palimpsest_tests::say::{assistant, assistant_calls, prepare, result, user, uuid, with_id};
use palimpsest_tests::server::{Context, Sessions};
use palimpsest_tests::{Server, name};
use prost::Message as _;

const SESSION: &str = "told";

async fn events(client: &mut Sessions) -> Vec<SessionEvent> {
    let request = ListEventsRequest {
        session: name(SESSION),
        page_size: 500,
        ..ListEventsRequest::default()
    };
    let page = client.list_events(request).await.unwrap().into_inner();
    assert_eq!(page.next_page_token, "");
    page.events
}

async fn says(client: &mut Context, from: u64, overhead: u32) {
    let long = format!("line {from} of what a tool has read\n").repeat(600);
    let calls = [format!("a{from}"), format!("b{from}")];
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    let messages = vec![
        user("Look at two files."),
        assistant_calls(&calls),
        result(calls[0], &long),
        result(calls[1], "short"),
        assistant(&"They are about lights. ".repeat(50)),
    ];
    let messages = (from..)
        .zip(messages)
        .map(|(number, it)| with_id(&uuid(number), it));
    let mut request = prepare(&name(SESSION), messages.collect());
    request.prompt_prefix = Some(PromptPrefix {
        system_tokens: Some(overhead),
        ..PromptPrefix::default()
    });
    client.prepare_context(request).await.unwrap();
}

#[tokio::test]
async fn a_listed_event_never_changes() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "worker.enabled=false",
        "policy.tool_results.max_result_chars=4000",
    ];
    let args: Vec<&str> = settings.iter().flat_map(|it| ["--set", it]).collect();
    let server = Server::start(folder.path(), &args);
    let (mut client, mut sessions) = (server.context().await, server.sessions().await);
    for from in [10, 20, 30, 40] {
        says(&mut client, from, 1_000).await;
    }
    let snip = SnipRequest {
        session: name(SESSION),
        message_ids: vec![uuid(10)],
        ..SnipRequest::default()
    };
    client.snip(snip).await.unwrap();
    let rewind = |to: u64| RewindSessionRequest {
        session: name(SESSION),
        target_message: Some(TargetMessage::ToMessageId(uuid(to))),
        ..RewindSessionRequest::default()
    };
    client.rewind_session(rewind(34)).await.unwrap();
    client.rewind_session(rewind(24)).await.unwrap();
    let before = events(&mut sessions).await;
    // The revision before the last event, which is the second rewind.
    let revision = before.iter().rev().nth(1).unwrap().revision;
    // The last rewind is undone.
    let restore = RestoreContextRequest {
        session: name(SESSION),
        to_revision: revision,
        ..RestoreContextRequest::default()
    };
    client.restore_context(restore).await.unwrap();

    let before = events(&mut sessions).await;
    let freed = |event: &SessionEvent| event.effect.as_ref().map_or(0, |it| it.freed_tokens);
    let told = |wanted: fn(&Event) -> bool| {
        let mut of_kind = before
            .iter()
            .filter(|it| wanted(it.event.as_ref().unwrap()));
        of_kind.any(|it| freed(it) > 0 && it.effect.as_ref().unwrap().before_tokens > 0)
    };
    assert!(told(|it| matches!(it, Event::ResultsPersisted(_))));
    assert!(told(|it| matches!(it, Event::ContentSnipped(_))));
    assert!(told(|it| matches!(it, Event::SessionRewound(_))));
    assert!(
        before
            .iter()
            .any(|it| matches!(it.event, Some(Event::ContextRestored(_))))
    );

    // The view grows, the stated overhead changes, and the restored messages are changed in other ways.
    for from in [50, 60, 70] {
        says(&mut client, from, 9_000).await;
    }
    let snip = SnipRequest {
        session: name(SESSION),
        message_ids: vec![uuid(30)],
        ..SnipRequest::default()
    };
    client.snip(snip).await.unwrap();
    let after = events(&mut sessions).await;
    assert!(after.len() > before.len());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
        assert_eq!(before.encode_to_vec(), after.encode_to_vec());
    }
}
