//! Compactions that clients ask for.

use palimpsest_fake_provider::{Call, Match, Script, ScriptedTurn};
use serde_json::json;

use super::{Client, SERVED, STEADY, TRIGGER, breaks, compact, is_plain};
use crate::world::World;

#[tokio::test]
async fn a_long_conversation_stays_under_the_trigger_of_its_client() {
    let world = World::start(&[SERVED]).await;
    // Four of eight combinations, in which each pair of values occurs once.
    for (is_named, streams, drops_head) in [
        (true, false, false),
        (true, true, true),
        (false, true, false),
        (false, false, true),
    ] {
        let name = format!("long-{is_named}-{drops_head}");
        let session = is_named.then_some(&*name);
        let model = format!("{name}+agent=40+output-bytes=12000");
        let mut client = Client::new(&world, session, &model, compact(&json!({})));
        (client.streams, client.drops_head) = (streams, drops_head);
        client.agent.say("Run all rounds.");
        let (mut summaries, mut sessions, mut prompts) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let response = client.step().await;
            assert_eq!(response.applied(), &json!([]), "{name}");
            let of_response = response.summaries();
            assert!(of_response.len() <= 1);
            if let Some(summary) = of_response.first() {
                assert_eq!(response.message["content"][0]["content"], json!(summary));
                assert!(!summary.contains("<conversation-summary>"), "{summary}");
                summaries.push((prompts.len(), (*summary).to_owned()));
            }
            sessions.push(response.session().to_owned());
            prompts.push(response.prompt_tokens());
            if !response.has_calls {
                break;
            }
        }
        sessions.dedup();
        let places: Vec<usize> = summaries.iter().map(|(at, _)| *at).collect();
        assert!(
            places.len() > 1,
            "{name}: {places:?} {prompts:?} {sessions:?}"
        );
        assert_eq!(sessions.len(), 1, "{name}: {sessions:?}");
        // The estimates of the session and the counts of the provider are close.
        let longest = prompts.iter().max().copied().unwrap_or_default();
        assert!(longest < TRIGGER * 11 / 10, "{name}: {longest}");
        let (first, _) = summaries[0];
        assert!(prompts[first - 1] > TRIGGER * 8 / 10, "{name}: {prompts:?}");
        let requests = client.upstream(&world);
        assert_eq!(requests.len(), prompts.len(), "{name}");
        is_plain(&requests);
        assert_eq!(breaks(&requests), summaries.len(), "{name}");
        // The prompt of a response with a summary contains the summary.
        for (at, summary) in &summaries {
            let body = requests[*at].body["messages"].to_string();
            let quoted = json!(summary).to_string();
            assert!(body.contains(quoted.trim_matches('"')), "{name}: {body}");
        }
        // The transcript has each message once.
        let transcript = world.transcript(&sessions[0]).await;
        let text = json!(transcript).to_string();
        for round in 1..=40 {
            let said = format!("Running round {round}.");
            let said = json!([{"text": said, "type": "text"}]).to_string();
            let said = said.trim_matches(['[', ']']);
            assert_eq!(text.matches(said).count(), 1, "{name}: round {round}");
            assert!(text.contains(&format!("round {round:06} line 00000001")));
        }
        assert_eq!(world.compactions(&sessions[0]).await, summaries.len());
    }
    let counts = world.server.scrape();
    let applied = counts.lines().find(|line| {
        line.contains("gateway_edits_total") && line.contains("compact") && line.contains("applied")
    });
    assert!(
        applied.is_some_and(|line| !line.ends_with(" 0")),
        "{applied:?}"
    );
}

#[tokio::test]
async fn a_response_pauses_after_its_summary() {
    let world = World::start(&[SERVED, STEADY]).await;
    for streams in [false, true] {
        for continues in ["as_it_is", "with_the_last_messages", "with_a_new_input"] {
            let name = format!("pause-{streams}-{continues}");
            let edits = compact(&json!({"pause_after_compaction": true}));
            let model = format!("{name}+agent=60+output-bytes=16000");
            let mut client = Client::new(&world, None, &model, edits);
            client.streams = streams;
            client.agent.say("Run all rounds.");
            let paused = client.until_compacted().await;
            assert_eq!(paused.message["stop_reason"], "compaction", "{name}");
            assert_eq!(paused.message["role"], "assistant");
            assert_eq!(paused.message["model"], json!(client.agent.model));
            assert_eq!(paused.message["content"].as_array().unwrap().len(), 1);
            assert_eq!(paused.prompt_tokens(), 0);
            let session = paused.session().to_owned();
            let before = client.upstream(&world).len();
            let messages = world.transcript(&session).await.len();
            let conversation = &mut client.agent.conversation;
            match continues {
                "as_it_is" => {}
                "with_the_last_messages" => {
                    // The provider's documentation keeps the last messages in this way.
                    let end = conversation.len() - 1;
                    let summary = conversation.remove(end);
                    conversation.drain(..end - 2);
                    conversation.insert(0, summary);
                }
                _ => {
                    let end = conversation.len() - 1;
                    conversation.drain(..end);
                    client.agent.say("What is next?");
                }
            }
            let next = client.step().await;
            assert_eq!(next.session(), session, "{name}");
            assert!(next.summaries().is_empty(), "{name}");
            let requests = client.upstream(&world);
            assert_eq!(requests.len(), before + 1, "{name}");
            is_plain(&requests);
            let sent = requests.last().unwrap().body["messages"].to_string();
            assert!(sent.contains("conversation-summary"), "{name}: {sent}");
            // The session took nothing twice.
            let added = usize::from(continues == "with_a_new_input");
            let after = world.transcript(&session).await.len();
            assert_eq!(after, messages + added + 1, "{name}");
            let last = client.step().await;
            assert_eq!(last.session(), session, "{name}");
        }
    }
}

#[tokio::test]
async fn a_response_with_a_summary_can_contain_calls_that_the_gateway_runs() {
    let world = World::start(&[SERVED, STEADY]).await;
    for streams in [false, true] {
        let model = format!("calls-{streams}+agent=60+output-bytes=16000");
        let mut client = Client::new(&world, None, &model, compact(&json!({})));
        client.streams = streams;
        client.agent.say("Run all rounds.");
        while client.step().await.prompt_tokens() < TRIGGER * 8 / 10 {}
        let question = format!("Which line was first? {streams}");
        let call = Call {
            namespace: None,
            name: "palimpsest_SearchTranscript".to_owned(),
            input: json!({"pattern": "round 000001 line 00000001"}),
        };
        let turn = |text: &str, calls| ScriptedTurn {
            text: text.to_owned(),
            calls,
            ..ScriptedTurn::default()
        };
        let script = Script {
            matches: Match {
                key: Some(client.agent.key.clone()),
                text: Some(question.clone()),
                ..Match::default()
            },
            turns: vec![turn("I look.", vec![call]), turn("The first.", vec![])].into(),
            ..Script::default()
        };
        world.provider.add_script(script).unwrap();
        // The rounds belong to the name of the model, and the answers to the key.
        client.agent.model = format!("claude-fake-answers-{streams}+no-edits+window=200000");
        // Enough text to reach the trigger.
        let text = question + &" More text.".repeat(5_000);
        let last = client.agent.conversation.last_mut().unwrap();
        let blocks = last["content"].as_array_mut().unwrap();
        blocks.push(json!({"type": "text", "text": text}));
        let response = client.step().await;
        let content = response.message["content"].as_array().unwrap();
        let kinds: Vec<&str> = content
            .iter()
            .map(|block| block["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["compaction", "text", "text"], "{content:#?}");
        assert_eq!(content[2]["text"], "The first.");
        client.agent.say("Thanks.");
        let next = client.step().await;
        assert_eq!(next.session(), response.session());
        let requests = client.upstream(&world);
        is_plain(&requests);
        let results = requests.last().unwrap().body["messages"].to_string();
        assert!(results.contains("palimpsest_SearchTranscript"), "{results}");
    }
}

#[tokio::test]
async fn a_count_has_the_view_and_no_edits() {
    let world = World::start(&[SERVED, STEADY]).await;
    let model = "counted+agent=60+output-bytes=16000";
    let mut client = Client::new(&world, Some("counted"), model, compact(&json!({})));
    client.agent.say("Run all rounds.");
    let session = client.until_compacted().await.session().to_owned();
    let events = world.events(&session).await.len();
    let mut body = client.body();
    for field in ["max_tokens", "stream"] {
        body.as_object_mut().unwrap().remove(field);
    }
    let path = "/v1/messages/count_tokens";
    let reply = client.agent.post(path, body.to_string()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let counted = reply.json()["input_tokens"].as_u64().unwrap();
    assert!(counted < TRIGGER / 2, "{counted}");
    assert_eq!(world.events(&session).await.len(), events);
}
