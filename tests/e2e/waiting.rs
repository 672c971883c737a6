//! Tests of compactions and waiting callers: views arrive in time, and messages can be appended meanwhile.

use std::time::Duration;

use palimpsest_proto::context::v1::{
    CompactRequest, CompactionStrategy, EventKind, Level, LevelAction, ListEventsRequest,
    ListMessagesRequest, PrepareContextRequest, Target,
};
use palimpsest_tests::say::{append, assistant, prepare, user};
use palimpsest_tests::{Server, name};
use tokio::time::Instant;
use tonic::Request;

use crate::repeats::World;

/// Returns a target whose window is too small for the conversation below.
fn small() -> Target {
    Target {
        window_tokens: Some(40_000),
        ..Target::default()
    }
}

fn crowded(session: &str) -> PrepareContextRequest {
    let long = "The lights are driven by a timer. ".repeat(2_000);
    PrepareContextRequest {
        target: Some(small()),
        ..prepare(
            session,
            vec![
                user("Make the lights blink."),
                assistant(&long),
                user("Go on."),
            ],
        )
    }
}

/// With the mode WAIT, a caller with a short deadline receives the current view.
#[tokio::test]
async fn p14_a_view_is_returned_in_time_without_its_summary() {
    // The model needs 30 seconds, and the caller waits 10.
    let mut world = World::new(&["summarizer.model=claude-fake+delay=30000"]).await;
    let mut request = Request::new(crowded(&name("s")));
    request.set_timeout(Duration::from_secs(10));
    let asked = Instant::now();
    let reply = world
        .client
        .prepare_context(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!((reply.messages_json.len(), reply.sendable), (3, true));
    let stage = reply
        .level_reports
        .iter()
        .find(|it| it.level() == Level::Compaction);
    assert_eq!(stage.unwrap().action(), LevelAction::Started, "{reply:?}");
    // The compaction continues and applies to a later call.
    let mut later = prepare(&name("s"), vec![]);
    later.target = Some(small());
    loop {
        let reply = world.client.prepare_context(later.clone()).await.unwrap();
        let text = format!("{:?}", reply.into_inner().messages_json);
        if text.contains("<conversation-summary>") {
            break;
        }
        assert!(
            asked.elapsed() < Duration::from_mins(5),
            "no summary: {text}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Appends a thousand messages while compactions run one after another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p15_a_thousand_appends_during_compactions_are_stored_once() {
    const CALLERS: usize = 20;
    const EACH: usize = 50;
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "--set",
        "worker.enabled=false",
        "--set",
        "policy.autocompact.min_input_tokens=100",
    ];
    let server = Server::start(folder.path(), &settings);
    let session = name("crowd");
    let mut client = server.context().await;
    client.prepare_context(crowded(&session)).await.unwrap();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let (mut client, session) = (server.context().await, session.clone());
        callers.spawn(async move {
            for turn in 0..EACH {
                let said = format!("caller {caller} turn {turn}");
                let said = if turn % 2 == 0 {
                    user(&said)
                } else {
                    assistant(&said)
                };
                client
                    .append_messages(append(&session, vec![said]))
                    .await
                    .unwrap();
            }
        });
    }
    let mut compactions = 0;
    while !callers.is_empty() {
        while callers.try_join_next().is_some_and(|ended| ended.is_ok()) {}
        // Serves the new messages, so that the compaction includes everything before the last user input.
        client
            .prepare_context(prepare(&session, vec![]))
            .await
            .unwrap();
        let request = CompactRequest {
            session: session.clone(),
            strategy: CompactionStrategy::Extractive.into(),
            ..CompactRequest::default()
        };
        compactions += usize::from(client.compact(request).await.is_ok());
    }
    assert!(
        compactions > 2,
        "only {compactions} compactions took place meanwhile"
    );
    let mut sessions = server.sessions().await;
    let list = ListEventsRequest {
        session: session.clone(),
        kinds: vec![EventKind::Compacted.into()],
        page_size: 1_000,
        ..ListEventsRequest::default()
    };
    let events = sessions
        .list_events(list)
        .await
        .unwrap()
        .into_inner()
        .events;
    // Further compactions were automatic.
    assert!(events.len() >= compactions);
    let mut all = Vec::new();
    let mut list = ListMessagesRequest {
        session,
        page_size: 1_000,
        ..ListMessagesRequest::default()
    };
    loop {
        let page = sessions
            .list_messages(list.clone())
            .await
            .unwrap()
            .into_inner();
        let texts = page
            .messages
            .iter()
            .map(|one| format!("{:?}", one.messages_json));
        all.extend(
            texts.filter(|text| {
                text.contains("caller ") && !text.contains("<conversation-summary>")
            }),
        );
        if page.next_page_token.is_empty() {
            break;
        }
        list.page_token = page.next_page_token;
    }
    assert_eq!(all.len(), CALLERS * EACH);
    for caller in 0..CALLERS {
        let own: Vec<_> = all
            .iter()
            .filter(|text| text.contains(&format!("caller {caller} turn ")))
            .collect();
        for (turn, text) in own.iter().enumerate() {
            // The backslash of the escaped quotation mark follows the number, so turn 1 does not match turn 10.
            assert!(
                text.contains(&format!("caller {caller} turn {turn}\\")),
                "{turn}: {text}"
            );
        }
        assert_eq!(own.len(), EACH);
    }
}
