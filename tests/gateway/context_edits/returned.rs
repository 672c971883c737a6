//! Summaries that clients send back, with the messages before them or without.

use serde_json::{Value, json};

use super::{Client, SERVED, STEADY, breaks, compact, is_plain};
use crate::world::World;

#[tokio::test]
async fn a_summary_of_another_server_begins_the_conversation() {
    let world = World::start(&[SERVED, STEADY]).await;
    for session in [Some("foreign"), None] {
        let model = format!("foreign-{}", session.is_some());
        let mut client = Client::new(&world, session, &model, compact(&json!({})));
        let summary =
            json!({"type": "compaction", "content": "The build was fixed on another machine."});
        let text = json!({"type": "text", "text": "The build is green."});
        client.agent.conversation = vec![json!({"role": "assistant", "content": [summary, text]})];
        client.agent.say("And the tests?");
        let first = client.step().await;
        client.agent.say("Thanks.");
        let second = client.step().await;
        assert_eq!(first.session(), second.session());
        let requests = client.upstream(&world);
        is_plain(&requests);
        assert_eq!(breaks(&requests), 0);
        let messages = &requests[1].body["messages"];
        // The summary as a user message, the text after it, and the three messages of the two requests.
        assert_eq!(messages.as_array().unwrap().len(), 5, "{messages:#}");
        let begins = messages[0]["content"][0]["text"].as_str().unwrap();
        assert!(begins.contains("The build was fixed on another machine."));
        assert_eq!(messages[1]["content"][0]["text"], "The build is green.");
    }
}

#[tokio::test]
async fn a_conversation_without_its_head_can_be_forked() {
    let world = World::start(&[SERVED, STEADY]).await;
    let model = "forked+agent=60+output-bytes=16000";
    let mut client = Client::new(&world, None, model, compact(&json!({})));
    client.drops_head = true;
    client.agent.say("Run all rounds.");
    let session = client.until_compacted().await.session().to_owned();
    let mut other = Client {
        agent: client.agent.clone(),
        edits: client.edits.clone(),
        streams: true,
        drops_head: true,
    };
    for _ in 0..2 {
        assert_eq!(client.step().await.session(), session);
    }
    // The user takes back the rounds after the summary. The results of a call stay beside it.
    let last = other.agent.conversation.last_mut().unwrap();
    let blocks = last["content"].as_array_mut().unwrap();
    blocks.push(json!({"type": "text", "text": "Stop after this round."}));
    let forked = other.step().await.session().to_owned();
    assert_ne!(forked, session);
    let before = world.transcript(&session).await.len();
    for _ in 0..2 {
        assert_eq!(other.step().await.session(), forked);
    }
    assert_eq!(world.transcript(&session).await.len(), before);
    assert_eq!(client.step().await.session(), session);
    is_plain(&client.upstream(&world));
}

#[tokio::test]
async fn a_named_conversation_without_its_head_is_rewound() {
    let world = World::start(&[SERVED, STEADY]).await;
    let model = "rewound+agent=60+output-bytes=16000";
    let mut client = Client::new(&world, Some("rewound"), model, compact(&json!({})));
    client.drops_head = true;
    client.agent.say("Run all rounds.");
    let session = client.until_compacted().await.session().to_owned();
    for _ in 0..2 {
        client.step().await;
    }
    let conversation = &mut client.agent.conversation;
    let said = |message: &Value| message["content"][0]["text"].as_str().unwrap().to_owned();
    let taken_back = said(&conversation[conversation.len() - 2]);
    conversation.truncate(conversation.len() - 2);
    let last = conversation.last_mut().unwrap()["content"].as_array_mut();
    last.unwrap()
        .push(json!({"type": "text", "text": "Another way, please."}));
    let response = client.step().await;
    assert_eq!(response.session(), session);
    let requests = client.upstream(&world);
    is_plain(&requests);
    let sent = requests.last().unwrap().body["messages"].to_string();
    assert!(sent.contains("conversation-summary") && sent.contains("Another way, please."));
    assert!(!sent.contains(&taken_back), "{sent}");
}

#[tokio::test]
async fn a_summary_that_a_later_one_replaced_still_names_its_conversation() {
    let world = World::start(&[SERVED, STEADY]).await;
    for session in [Some("replaced"), None] {
        let model = format!("replaced-{}+agent=60+output-bytes=16000", session.is_some());
        let mut client = Client::new(&world, session, &model, compact(&json!({})));
        client.drops_head = true;
        client.agent.say("Run all rounds.");
        let session = client.until_compacted().await.session().to_owned();
        for _ in 0..3 {
            client.step().await;
        }
        // The client gets no summary of this compaction.
        let request = palimpsest_proto::context::v1::CompactRequest {
            session: session.clone(),
            level: palimpsest_proto::context::v1::Level::Compaction.into(),
            ..Default::default()
        };
        let mut context = world.server.context().await;
        context.compact(request).await.unwrap();
        assert_eq!(world.compactions(&session).await, 2);
        for _ in 0..3 {
            assert_eq!(client.step().await.session(), session);
        }
        let requests = client.upstream(&world);
        is_plain(&requests);
        // Each of the two compactions changes the beginning of one prompt.
        assert_eq!(breaks(&requests), 2);
    }
}
