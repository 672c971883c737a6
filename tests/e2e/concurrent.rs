//! Tests of many concurrent callers, and of callers that disconnect.

use std::time::Duration;

use palimpsest_proto::context::v1::ListMessagesRequest;
use palimpsest_tests::array::values;
use palimpsest_tests::name;
use palimpsest_tests::say::{append, prepare, user, uuid, with_id};
use palimpsest_tests::server::{Server, Sessions};

use crate::SERVER;

/// Returns the texts of a transcript, in order.
async fn texts(client: &mut Sessions, session: &str) -> Vec<String> {
    let request = ListMessagesRequest {
        session: session.to_owned(),
        page_size: 1_000,
        ..Default::default()
    };
    let listed = client.list_messages(request).await.unwrap().into_inner();
    assert_eq!(listed.next_page_token, "");
    let text = |json| {
        let content = &values(json)[0]["content"];
        content
            .as_str()
            .or_else(|| content[0]["text"].as_str())
            .unwrap()
            .to_owned()
    };
    listed
        .messages
        .iter()
        .map(|message| text(&message.messages_json))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p15_a_thousand_concurrent_appends_are_stored_once() {
    const SESSIONS: usize = 20;
    const CALLERS: usize = 5;
    const EACH: usize = 10;
    let shared = SERVER.get();
    let mut callers = Vec::new();
    for number in 0..SESSIONS * CALLERS {
        let (caller, session) = (
            number / SESSIONS,
            name(&format!("p15-{}", number % SESSIONS)),
        );
        let mut client = shared.0.context().await;
        callers.push(tokio::spawn(async move {
            for turn in 0..EACH {
                let said = user(&format!("caller {caller} turn {turn}"));
                client
                    .append_messages(append(&session, vec![said]))
                    .await
                    .unwrap();
                if turn % 3 == caller % 3 {
                    client
                        .prepare_context(prepare(&session, Vec::new()))
                        .await
                        .unwrap();
                }
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    let mut sessions = shared.0.sessions().await;
    for session in 0..SESSIONS {
        let texts = texts(&mut sessions, &name(&format!("p15-{session}"))).await;
        assert_eq!(texts.len(), CALLERS * EACH);
        for caller in 0..CALLERS {
            let start = format!("caller {caller} ");
            let told: Vec<_> = texts
                .iter()
                .filter(|text| text.starts_with(&start))
                .collect();
            let said: Vec<_> = (0..EACH)
                .map(|turn| format!("{start}turn {turn}"))
                .collect();
            assert!(told.iter().copied().eq(&said), "{told:?}");
        }
    }
}

/// Sends appends and disconnects before each answer. Returns the number of appended messages.
async fn gone(server: &Server, wait: Duration, session: &str) -> usize {
    for number in 0..20 {
        let mut client = server.context().await;
        let messages = vec![
            with_id(&uuid(2 * number), user(&format!("{number} a"))),
            with_id(&uuid(2 * number + 1), user(&format!("{number} b"))),
        ];
        let call = client.append_messages(append(session, messages));
        // The outcome of the call does not matter here.
        let _ = tokio::time::timeout(wait, call).await;
    }
    // The server answers this append after all earlier ones that it accepted.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut client = server.context().await;
    client
        .append_messages(append(session, vec![user("last")]))
        .await
        .unwrap();
    let mut texts = texts(&mut server.sessions().await, session).await;
    assert_eq!(texts.pop().unwrap(), "last");
    for pair in texts.chunks(2) {
        let [a, b] = pair else {
            panic!("half an append: {texts:?}")
        };
        assert_eq!(a.strip_suffix(" a").unwrap(), b.strip_suffix(" b").unwrap());
    }
    texts.len() / 2
}

#[tokio::test]
async fn an_append_of_a_disconnected_caller_is_atomic() {
    let shared = SERVER.get();
    // The callers disconnect at different steps of the call.
    for micros in [300, 1_000, 3_000] {
        gone(
            &shared.0,
            Duration::from_micros(micros),
            &name(&format!("gone-{micros}")),
        )
        .await;
    }
    // Completely sent appends take effect, even if no caller waits for the answer.
    let there = gone(&shared.0, Duration::from_mins(2), &name("waited")).await;
    assert_eq!(there, 20);
}
