//! The credential of events that requests through the gateway cause, also of compactions and of reads inside a response.

use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{ListEventsRequest, SessionEvent};
use palimpsest_tests::tenant::{keys, with};
use reqwest::Client;
use reqwest::header::HeaderMap;

use crate::agent::{Agent, Api};
use crate::read_back::{answer, bash, search, step, turn};
use crate::world::World;

/// Returns all events of a session.
async fn events(world: &World, key: &str, session: &str) -> Vec<SessionEvent> {
    let request = ListEventsRequest {
        session: session.to_owned(),
        page_size: 1_000,
        ..ListEventsRequest::default()
    };
    let mut sessions = world.server.sessions().await;
    let listed = sessions.list_events(with(key, request)).await.unwrap();
    listed.into_inner().events
}

#[tokio::test]
async fn all_work_of_a_request_is_done_for_its_caller() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.toml");
    let create = || {
        keys(
            &file,
            &["create", "--project", "p", "--right", "read,write"],
        )
    };
    let callers = [create(), create()];
    let keys_file = format!("auth.keys_file={}", file.display());
    let settings = [
        keys_file.as_str(),
        "policy.tokens.default_window_tokens=60000",
        "worker.enabled=false",
    ];
    let world = World::start(&settings).await;
    let client = |key: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("x-palimpsest-key", key.parse().unwrap());
        let client = Client::builder().default_headers(headers);
        client.build().unwrap()
    };
    for streams in [false, true] {
        let id = format!("who-{streams}");
        let mut agent = Agent::new(Api::Messages, &world.url, Some(&id));
        agent.client = client(&callers[0]);
        agent.key = format!("key-{id}");
        agent.model = format!("claude-fake-{id}+agent=12+output-bytes=24000+window=200000");
        agent.say("Run all rounds.");
        while agent.step().await.1 {}
        let session = format!("projects/p/sessions/{id}");
        let before = events(&world, &callers[0], &session).await;
        let by = |key: &str| format!("key {}", &key[4..20]);
        let is_of_first = |event: &SessionEvent| event.credential == by(&callers[0]);
        assert!(before.iter().all(is_of_first), "{before:#?}");
        let is_compaction = |event: &SessionEvent| matches!(event.event, Some(Event::Compacted(_)));
        assert!(before.iter().any(is_compaction));

        // The other caller continues. The gateway reads for the model, alone and beside a call of the agent.
        agent.client = client(&callers[1]);
        agent.model = format!("claude-fake-{id}-after+window=200000");
        let turns = vec![
            turn("I look it up. ", vec![search()]),
            turn("Both. ", vec![search(), bash()]),
            turn("Done.", vec![]),
        ];
        answer(&world, &agent, "What was it?", turns);
        agent.say("What was it?");
        while step(&mut agent, streams).await.2 {}
        let after = events(&world, &callers[1], &session).await;
        let added = &after[before.len()..];
        // The results that the gateway read are recorded with the response: two rounds of a call and its result.
        let recorded = |event: &SessionEvent| match &event.event {
            Some(Event::MessagesAppended(appended)) => appended.message_ids.len(),
            _ => 0,
        };
        assert!(added.iter().any(|event| recorded(event) >= 4), "{added:#?}");
        assert!(
            added
                .iter()
                .all(|event| event.credential == by(&callers[1])),
            "{added:#?}"
        );
    }
}
