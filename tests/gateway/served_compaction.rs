//! Compactions of OpenAI's Responses API that the gateway answers itself.

use serde_json::{Value, json};

use crate::agent::{Agent, Api, Reply};
use crate::world::World;

const SERVED: &str = "gateway.upstreams.openai.compaction=served";
const COMPACT: &str = "/v1/responses/compact";

/// Returns an agent of the Responses API whose model makes `rounds` calls with long results.
fn agent(world: &World, name: Option<&str>, rounds: u32) -> Agent {
    let mut agent = Agent::new(Api::Responses, &world.url, name);
    // The provider counts the rounds of each model.
    let model = name.unwrap_or("unnamed");
    agent.model = format!("gpt-fake-{model}+agent={rounds}+output-bytes=4000");
    agent
}

/// Runs an agent until its model makes no call, then asks it something else.
async fn work(agent: &mut Agent) {
    agent.say("Run all rounds.");
    while agent.step().await.1 {}
    agent.say("Thank you. What is the result?");
    agent.step().await;
}

/// Requests a compaction, as the SDKs do.
async fn compact(agent: &Agent) -> Reply {
    let body = json!({"model": agent.model, "input": agent.conversation,
        "instructions": "You are a test."});
    agent.post(COMPACT, body.to_string()).await
}

fn session(reply: &Reply) -> String {
    reply.header("x-palimpsest-session").unwrap().to_owned()
}

fn body_kind(reply: &Reply) -> Option<&str> {
    reply.header("x-palimpsest-body")
}

fn kinds(items: &[Value]) -> Vec<&str> {
    let kinds = items.iter().map(|item| item["type"].as_str().unwrap());
    kinds.collect()
}

/// Returns the array of the last request that upstream got.
fn last_input(world: &World) -> Vec<Value> {
    let last = world.upstream().pop().unwrap();
    assert_eq!((&*last.path, last.status), ("/v1/responses", 200));
    last.body["input"].as_array().unwrap().clone()
}

fn is_summary(item: &Value) -> bool {
    let text = item["content"][0]["text"].as_str().unwrap_or_default();
    item["role"] == "user" && text.contains("<conversation-summary>")
}

/// Checks that the transcript has everything that an agent with this number of rounds sent and received.
async fn check_originals(world: &World, session: &str, rounds: u32) {
    let mut transcript = world.transcript(session).await;
    transcript.retain(|message| !is_summary(message));
    let text = json!(transcript).to_string();
    for round in 1..=rounds {
        for part in [
            format!("round {round:06} line 00000001"),
            format!("Running round {round}."),
        ] {
            assert_eq!(text.matches(&part).count(), 1, "{part}: {text}");
        }
    }
}

#[tokio::test]
async fn a_compacted_conversation_continues_in_its_session() {
    let world = World::start(&[SERVED]).await;
    let mut agent = agent(&world, Some("compacted"), 12);
    work(&mut agent).await;
    let before = world.upstream().len();
    let reply = compact(&agent).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(body_kind(&reply), Some("compaction"));
    assert_eq!(session(&reply), "projects/default/sessions/compacted");
    let compacted = reply.json();
    assert_eq!(compacted["object"], "response.compaction");
    assert!(compacted["id"].as_str().unwrap().starts_with("resp_"));
    assert!(compacted["created_at"].as_i64().unwrap() > 1_700_000_000);
    // No model has written the summary.
    assert_eq!(compacted["usage"]["total_tokens"], 0);
    let output = compacted["output"].as_array().unwrap().clone();
    assert_eq!(kinds(&output)[0], "compaction", "{output:#?}");
    let items = output.iter().filter(|item| item["type"] == "compaction");
    assert_eq!(items.count(), 1);
    assert!(output.len() < agent.conversation.len());
    assert_eq!(world.upstream().len(), before, "no request to upstream");
    assert_eq!(world.compactions(&session(&reply)).await, 1);

    // The client continues with the output. Each prompt begins with the one before it.
    agent.conversation.clone_from(&output);
    agent.say("Go on.");
    let mut prompts: Vec<Vec<Value>> = Vec::new();
    for _ in 0..3 {
        let (next, _) = agent.step().await;
        assert_eq!(session(&next), session(&reply));
        // Not the bytes of the client: the summary refers to tools, which only a changed view offers.
        assert_eq!(body_kind(&next), Some("view"));
        prompts.push(last_input(&world));
        agent.say("And then?");
    }
    assert!(is_summary(&prompts[0][0]), "{:#?}", prompts[0]);
    // The item becomes the summary. The kept items follow it unchanged.
    assert_eq!(prompts[0][1..output.len()], output[1..]);
    let offered = json!(world.upstream().pop().unwrap().body["tools"]).to_string();
    assert!(offered.contains("palimpsest_SearchTranscript"), "{offered}");
    for pair in prompts.windows(2) {
        assert!(pair[1].starts_with(&pair[0]), "{pair:#?}");
        assert_eq!(pair[1].iter().filter(|item| is_summary(item)).count(), 1);
    }
    check_originals(&world, &session(&reply), 12).await;
    assert_eq!(world.compactions(&session(&reply)).await, 1);
    let scraped = world.server.scrape();
    let counted = r#"palimpsest_gateway_requests_total{api="responses",body="compaction"} 1"#;
    assert!(scraped.contains(counted), "{scraped}");
}

#[tokio::test]
async fn a_turn_continues_after_a_compaction_in_its_middle() {
    // The kept messages include calls, which the output then contains beside the item.
    let keeps = "policy.autocompact.keep_messages=5";
    let world = World::start(&[SERVED, keeps]).await;
    // As the SDKs send the output, and as Codex sends it: without calls and their results.
    for drops_calls in [false, true] {
        let name = format!("middle-{drops_calls}");
        let mut agent = agent(&world, Some(&name), 12);
        agent.say("Run all rounds.");
        for _ in 0..8 {
            assert!(agent.step().await.1);
        }
        let reply = compact(&agent).await;
        let mut output = reply.json()["output"].as_array().unwrap().clone();
        assert!(kinds(&output).contains(&"function_call"), "{output:#?}");
        if drops_calls {
            output.retain(|item| matches!(item["type"].as_str(), Some("message" | "compaction")));
        }
        agent.conversation = output;
        let mut last: Vec<Value> = Vec::new();
        for round in 0..4 {
            let (next, _) = agent.step().await;
            assert_eq!(session(&next), session(&reply));
            assert_eq!(body_kind(&next), Some("view"), "{round}");
            let prompt = last_input(&world);
            assert!(prompt.starts_with(&last), "{round}: {last:#?} {prompt:#?}");
            // The messages that the client left out are in the prompt all the same.
            assert!(
                json!(prompt)
                    .to_string()
                    .contains("round 000008 line 00000001")
            );
            last = prompt;
        }
        // The results of the last round are not sent yet.
        check_originals(&world, &session(&reply), 11).await;
    }
}

#[tokio::test]
async fn a_client_can_ignore_the_compacted_conversation() {
    let world = World::start(&[SERVED]).await;
    let mut agent = agent(&world, Some("ignored"), 6);
    work(&mut agent).await;
    let reply = compact(&agent).await;
    agent.say("Go on.");
    let (next, _) = agent.step().await;
    assert_eq!(session(&next), session(&reply));
    // The session is compacted, and the client still has the whole conversation.
    assert_eq!(body_kind(&next), Some("view"));
    assert!(is_summary(&last_input(&world)[0]));
    // A later use of the answer continues the same session.
    let mut output = reply.json()["output"].as_array().unwrap().clone();
    output.extend(
        agent.conversation[agent.conversation.len() - 2..]
            .iter()
            .cloned(),
    );
    agent.conversation = output;
    agent.say("And then?");
    let (next, _) = agent.step().await;
    assert_eq!(session(&next), session(&reply));
    let prompt = last_input(&world);
    assert_eq!(
        json!(prompt).to_string().matches("Go on.").count(),
        1,
        "{prompt:#?}"
    );
    check_originals(&world, &session(&reply), 6).await;
}

#[tokio::test]
async fn a_conversation_can_be_compacted_again() {
    let world = World::start(&[SERVED]).await;
    let mut agent = agent(&world, Some("again"), 8);
    work(&mut agent).await;
    let first = compact(&agent).await;
    agent.conversation = first.json()["output"].as_array().unwrap().clone();
    // Nothing new to compact: the client gets its items back.
    let same = compact(&agent).await;
    let unidentified = |mut items: Value| {
        for item in items.as_array_mut().unwrap() {
            item.as_object_mut().unwrap().remove("id");
        }
        items
    };
    assert_eq!(
        unidentified(same.json()["output"].clone()),
        unidentified(json!(agent.conversation))
    );
    agent.model = "gpt-fake+agent=20+output-bytes=4000".to_owned();
    agent.say("Run all rounds again.");
    while agent.step().await.1 {}
    let second = compact(&agent).await;
    assert_eq!(session(&second), session(&first));
    let output = second.json()["output"].as_array().unwrap().clone();
    let items = output.iter().filter(|item| item["type"] == "compaction");
    assert_eq!(items.count(), 1, "{output:#?}");
    assert_ne!(
        output[0]["encrypted_content"],
        agent.conversation[0]["encrypted_content"]
    );
    agent.conversation = output;
    agent.say("Go on.");
    let (next, _) = agent.step().await;
    assert_eq!(session(&next), session(&first));
    let prompt = last_input(&world);
    assert_eq!(prompt.iter().filter(|item| is_summary(item)).count(), 1);
}

#[tokio::test]
async fn a_conversation_without_a_name_is_found_by_its_summary() {
    let world = World::start(&[SERVED]).await;
    let mut agent = agent(&world, None, 6);
    work(&mut agent).await;
    let reply = compact(&agent).await;
    assert_eq!(body_kind(&reply), Some("compaction"), "{reply:?}");
    agent.conversation = reply.json()["output"].as_array().unwrap().clone();
    agent.say("Go on.");
    for _ in 0..2 {
        let (next, _) = agent.step().await;
        assert_eq!(session(&next), session(&reply));
        agent.say("And then?");
    }
    check_originals(&world, &session(&reply), 6).await;
    // Another credential never finds the session, and its provider can read the conversation all the same.
    let mut foreign = agent.clone();
    foreign.key = "another-key".to_owned();
    let (next, _) = foreign.step().await;
    assert_ne!(session(&next), session(&reply));
    assert!(is_summary(&last_input(&world)[0]));
}

/// Sends the conversation with a trigger, as Codex does.
async fn trigger(agent: &Agent, streams: bool) -> Reply {
    let mut body = agent.body();
    body["stream"] = json!(streams);
    let input = body["input"].as_array_mut().unwrap();
    input.push(json!({"type": "compaction_trigger"}));
    agent.post("/v1/responses", body.to_string()).await
}

/// Returns the events of a stream.
fn events(text: &str) -> Vec<Value> {
    let blocks = text.trim_end().split("\n\n");
    let event = |block: &str| -> Value {
        let (name, data) = block.split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        data
    };
    blocks.map(event).collect()
}

#[tokio::test]
async fn a_trigger_is_answered_with_one_item() {
    let world = World::start(&[SERVED]).await;
    for streams in [false, true] {
        let name = format!("triggered-{streams}");
        let mut agent = agent(&world, Some(&name), 9);
        agent
            .conversation
            .push(json!({"type": "message", "role": "developer",
            "content": [{"type": "input_text", "text": "Be brief."}]}));
        agent.say("<environment_context>A test.</environment_context>");
        work(&mut agent).await;
        let before = world.upstream().len();
        let reply = trigger(&agent, streams).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(body_kind(&reply), Some("compaction"));
        assert_eq!(world.upstream().len(), before);
        let response = if streams {
            assert!(
                reply
                    .header("content-type")
                    .unwrap()
                    .starts_with("text/event-stream")
            );
            let events = events(&reply.text);
            let names: Vec<&str> = events
                .iter()
                .map(|it| it["type"].as_str().unwrap())
                .collect();
            assert_eq!(
                names,
                [
                    "response.created",
                    "response.in_progress",
                    "response.output_item.added",
                    "response.output_item.done",
                    "response.completed"
                ]
            );
            for (number, event) in events.iter().enumerate() {
                assert_eq!(event["sequence_number"], number);
            }
            assert_eq!(events[0]["response"]["status"], "in_progress");
            assert_eq!(events[3]["item"], events[4]["response"]["output"][0]);
            events[4]["response"].clone()
        } else {
            reply.json()
        };
        assert_eq!(
            (&response["object"], &response["status"]),
            (&json!("response"), &json!("completed"))
        );
        assert_eq!(response["usage"]["total_tokens"], 0);
        assert_eq!(response["model"], agent.model);
        let output = response["output"].as_array().unwrap();
        assert_eq!(kinds(output), ["compaction"]);

        // Codex keeps the inputs of the user before the item, and sends its context again.
        let is_input = |item: &&Value| {
            let text = item["content"][0]["text"].as_str().unwrap_or_default();
            item["role"] == "user" && !text.starts_with("<environment_context>")
        };
        let mut history: Vec<Value> = agent
            .conversation
            .iter()
            .filter(is_input)
            .cloned()
            .collect();
        history.push(output[0].clone());
        history.extend(agent.conversation[..2].iter().cloned());
        agent.conversation = history;
        agent.say("Go on.");
        let mut prompts: Vec<Vec<Value>> = Vec::new();
        for _ in 0..2 {
            let (next, _) = agent.step().await;
            assert_eq!(session(&next), session(&reply));
            assert_eq!(body_kind(&next), Some("view"));
            prompts.push(last_input(&world));
            agent.say("And then?");
        }
        assert!(is_summary(&prompts[0][0]), "{:#?}", prompts[0]);
        assert!(prompts[1].starts_with(&prompts[0]), "{prompts:#?}");
        let text = json!(prompts[1][1..]).to_string();
        for once in [
            "Be brief.",
            "environment_context>A test.",
            "Go on.",
            "And then?",
        ] {
            assert_eq!(text.matches(once).count(), 1, "{once}: {text}");
        }
        check_originals(&world, &session(&reply), 9).await;
    }
}

#[tokio::test]
async fn the_request_of_the_user_stays_while_codex_compacts_its_turn() {
    let world = World::start(&[SERVED]).await;
    let mut agent = agent(&world, Some("turn"), 20);
    let context = |number: u32| {
        let text = format!("<environment_context>Number {number}.</environment_context>");
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
    };
    agent.conversation.push(context(0));
    agent.say("Run all rounds.");
    let request = agent.conversation[1].clone();
    for number in 1..4 {
        for _ in 0..5 {
            assert!(agent.step().await.1);
        }
        let reply = trigger(&agent, true).await;
        let item = events(&reply.text)[3]["item"].clone();
        // Codex sends its context again, before the last input of the user.
        agent.conversation = vec![context(number), request.clone(), item];
        agent.step().await;
        let prompt = last_input(&world);
        assert_eq!(prompt.iter().filter(|item| is_summary(item)).count(), 1);
        for once in [&context(number), &request] {
            let found = prompt.iter().filter(|item| *item == once);
            assert_eq!(found.count(), 1, "{number} {once}: {prompt:#?}");
        }
        assert_eq!(session(&reply), "projects/default/sessions/turn");
    }
    // Three times six rounds. The results of round 18 are not sent yet.
    check_originals(&world, "projects/default/sessions/turn", 17).await;
}

#[tokio::test]
async fn a_short_conversation_gets_an_item_too() {
    let world = World::start(&[SERVED]).await;
    let mut agent = agent(&world, Some("short"), 1);
    agent.say("Remember the word heliotrope.");
    let reply = trigger(&agent, false).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let output = reply.json()["output"].as_array().unwrap().clone();
    assert_eq!(kinds(&output), ["compaction"]);
    // The endpoint returns the items as they are.
    let mut other = agent.clone();
    other.session = Some("short-endpoint".to_owned());
    let unchanged = compact(&other).await;
    assert_eq!(unchanged.json()["output"], json!(other.conversation));
    agent.conversation.extend(output);
    agent.say("Which word?");
    let (next, _) = agent.step().await;
    assert_eq!(session(&next), session(&reply));
    let prompt = last_input(&world);
    assert!(is_summary(&prompt[0]), "{prompt:#?}");
    let text = json!(prompt).to_string();
    assert_eq!(text.matches("heliotrope").count(), 1, "{prompt:#?}");
}

#[tokio::test]
async fn an_item_is_replaced_wherever_the_request_goes() {
    let served = World::start(&[SERVED]).await;
    let mut agent = agent(&served, Some("moved"), 6);
    work(&mut agent).await;
    let reply = compact(&agent).await;
    agent.conversation = reply.json()["output"].as_array().unwrap().clone();
    agent.say("Go on.");
    // The provider rejects the item itself.
    let direct = Agent {
        url: served.provider.url(),
        ..agent.clone()
    };
    let rejected = direct
        .post("/v1/responses", direct.body().to_string())
        .await;
    assert_eq!(
        rejected.json()["error"]["code"],
        "invalid_encrypted_content"
    );

    // Another gateway, which does not serve compactions, has no session of this conversation.
    let world = World::start(&[]).await;
    agent.url.clone_from(&world.url);
    let (next, _) = agent.step().await;
    assert_eq!(body_kind(&next), Some("original"));
    assert!(is_summary(&last_input(&world)[0]));
    // An unmanaged request.
    let mut stateful = agent.body();
    let first = next.json()["id"].clone();
    stateful["store"] = json!(true);
    stateful["previous_response_id"] = first;
    let unmanaged = agent.post("/v1/responses", stateful.to_string()).await;
    assert_eq!(unmanaged.header("x-palimpsest-reason"), Some("stateful"));
    let sent = world.upstream().pop().unwrap();
    assert!(is_summary(&sent.body["input"][0]), "{:#?}", sent.body);
    // Requests for a compaction are forwarded, with the trigger.
    let forwarded = compact(&agent).await;
    assert_eq!(
        (forwarded.status, body_kind(&forwarded)),
        (200, None),
        "{forwarded:?}"
    );
    let sent = world.upstream().pop().unwrap();
    assert!(is_summary(&sent.body["input"][0]), "{:#?}", sent.body);
    let triggered = trigger(&agent, false).await;
    assert_eq!(triggered.status, 200, "{triggered:?}");
    let sent = world.upstream().pop().unwrap();
    let last = sent.body["input"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    assert_eq!(last, json!({"type": "compaction_trigger"}));
}

#[tokio::test]
async fn a_conversation_that_no_session_takes_is_forwarded() {
    let world = World::start(&[SERVED]).await;
    let mut agent = agent(&world, Some("unmanaged"), 1);
    agent.say("Hello.");
    let body = json!({"model": agent.model, "input": agent.conversation,
        "previous_response_id": "resp_of_the_provider"});
    let reply = agent.post(COMPACT, body.to_string()).await;
    // The answer of the provider, which does not know the response either.
    assert_eq!(reply.status, 404, "{reply:?}");
    assert_eq!(reply.header("x-palimpsest-reason"), Some("stateful"));
    let sent = world.upstream().pop().unwrap();
    assert_eq!((&*sent.path, &sent.body), (COMPACT, &body));

    let mut body = agent.body();
    body["previous_response_id"] = json!("resp_of_the_provider");
    body["input"] = json!([agent.conversation[0], {"type": "compaction_trigger"}]);
    let body = serde_json::to_string_pretty(&body).unwrap();
    let reply = agent.post("/v1/responses", body.clone()).await;
    assert_eq!(reply.header("x-palimpsest-reason"), Some("stateful"));
    assert_eq!(world.upstream().pop().unwrap().raw, body);

    let strict = World::start(&[SERVED, "gateway.require_session=true"]).await;
    agent.url.clone_from(&strict.url);
    let reply = agent.post(COMPACT, json!({"input": 5}).to_string()).await;
    let error = reply.json()["error"].clone();
    assert_eq!(
        (reply.status, &error["code"]),
        (400, &json!("session_required"))
    );
    assert!(strict.upstream().is_empty());
}
