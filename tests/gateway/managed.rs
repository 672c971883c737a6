//! Conversations that sessions take: unchanged ones, long ones, and prompts that are too long.

use serde_json::{Value, json};

use crate::agent::{Agent, Api, Reply};
use crate::world::{World, unmarked, visible};

#[tokio::test]
async fn an_unchanged_conversation_leaves_as_it_came() {
    let world = World::start(&[]).await;
    for api in Api::ALL {
        let name = format!("unchanged-{api:?}");
        let mut agent = Agent::new(api, &world.url, Some(&name));
        let mut sent = Vec::new();
        for text in ["one", "two \u{e9} \u{1f600}", "three"] {
            agent.say(text);
            // An unusual spelling of JSON, which only the original bytes keep.
            let body = serde_json::to_string_pretty(&agent.body()).unwrap() + " \n";
            let reply = agent.post(api.path(), body.clone()).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            assert_eq!(reply.header("x-palimpsest-body"), Some("original"));
            let session = format!("projects/default/sessions/{name}");
            assert_eq!(reply.header("x-palimpsest-session"), Some(&*session));
            sent.push(body);
            agent.step().await;
        }
        let requests = world.upstream();
        let raw: Vec<&str> = requests
            .iter()
            .filter(|request| request.path == api.path())
            .map(|request| std::str::from_utf8(&request.raw).unwrap())
            .collect();
        assert_eq!(raw.len(), 6);
        assert_eq!(
            raw.iter().step_by(2).collect::<Vec<_>>(),
            sent.iter().collect::<Vec<_>>()
        );
        // Three questions, and two responses to each of them. The agent continued with the second ones.
        let session = format!("projects/default/sessions/{name}");
        let transcript = world.transcript(&session).await;
        let roles = |role: &str| transcript.iter().filter(|one| one["role"] == role).count();
        assert_eq!(roles("user"), 3, "{api:?} {transcript:#?}");
        assert_eq!(roles("assistant"), 6, "{api:?} {transcript:#?}");
    }
}

/// Runs an agent until its model makes no call.
async fn work(agent: &mut Agent) {
    agent.say("Run all rounds.");
    while agent.step().await.1 {}
}

#[tokio::test]
async fn a_long_conversation_is_compacted_and_costs_less() {
    let world = World::start(&["policy.tokens.default_window_tokens=60000"]).await;
    for api in Api::ALL {
        let name = format!("long-{api:?}");
        let model = |side: &str| {
            let name = format!("{}-{side}-{api:?}", api.model());
            format!("{name}+agent=60+output-bytes=8000+window=200000")
        };
        let mut managed = Agent::new(api, &world.url, Some(&name));
        (managed.model, managed.key) = (model("managed"), format!("managed-{api:?}"));
        let before = world.upstream().len();
        work(&mut managed).await;
        let requests = world.upstream();
        // 60 rounds and the final answer are 61 requests. The provider evicts old records, so `before` can be too
        // large.
        let requests = &requests[before.min(requests.len() - 61)..];
        assert!(requests.iter().all(|request| request.status == 200));

        // Between two compactions, each prompt begins with the one before it.
        let arrays: Vec<Vec<Value>> = requests
            .iter()
            .filter(|request| request.path == api.path())
            .map(|request| {
                unmarked(&request.body)[api.field()]
                    .as_array()
                    .unwrap()
                    .clone()
            })
            .collect();
        let breaks = arrays
            .windows(2)
            .filter(|pair| !pair[1].starts_with(&pair[0]));
        let session = format!("projects/default/sessions/{name}");
        let compactions = world.compactions(&session).await;
        assert!(compactions > 1, "{api:?}: {compactions} compactions");
        assert_eq!(breaks.count(), compactions, "{api:?}");
        let longest = requests.iter().map(|request| request.raw.len()).max();
        // The window has 60,000 tokens of four bytes.
        assert!(longest.unwrap() < 60_000 * 4, "{api:?}: {longest:?}");

        // The transcript has every message that the agent sent and received.
        let transcript = world.transcript(&session).await;
        let text = json!(transcript).to_string();
        for round in 1..=60 {
            assert!(
                text.contains(&format!("round {round:06} line 00000001")),
                "{api:?} {round}"
            );
            assert!(
                text.contains(&format!("Running round {round}.")),
                "{api:?} {round}"
            );
        }

        let mut direct = Agent::new(api, &world.provider.url(), Some(&name));
        (direct.model, direct.key) = (model("direct"), format!("direct-{api:?}"));
        work(&mut direct).await;
        let (managed, direct) = (
            world.provider.bill(&managed.key),
            world.provider.bill(&direct.key),
        );
        assert_eq!(managed.requests, direct.requests);
        assert!(
            managed.cost_milli < direct.cost_milli,
            "{api:?}: {managed:?} {direct:?}"
        );
        println!(
            "{api:?}: {} % of the bill without the gateway, {compactions} compactions",
            100 * managed.cost_milli / direct.cost_milli
        );
    }
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_shortened_inside_the_request() {
    let world = World::start(&[]).await;
    for api in Api::ALL {
        let name = format!("overlong-{api:?}");
        let mut agent = Agent::new(api, &world.url, Some(&name));
        // The provider accepts far less than the session assumes.
        agent.model = format!(
            "{}-{api:?}+agent=20+output-bytes=8000+window=30000",
            api.model()
        );
        work(&mut agent).await;
        let session = format!("projects/default/sessions/{name}");
        assert!(world.compactions(&session).await > 0, "{api:?}");
        let requests = world.upstream();
        let mut statuses = requests.iter().map(|request| request.status);
        assert!(statuses.any(|status| status == 400), "{api:?}");
        let counts = world.server.scrape();
        assert!(
            counts.contains("palimpsest_gateway_requests_total"),
            "{counts}"
        );
    }
}

#[tokio::test]
async fn a_count_of_tokens_counts_the_view_and_changes_nothing() {
    let world = World::start(&["policy.tokens.default_window_tokens=60000"]).await;
    let mut agent = Agent::new(Api::Messages, &world.url, Some("counted"));
    agent.model = "claude-fake+agent=30+output-bytes=8000".to_owned();
    work(&mut agent).await;
    let session = "projects/default/sessions/counted";
    assert!(world.compactions(session).await > 0);
    let events = world.events(session).await.len();
    agent.say("One more question.");
    let mut body = agent.body();
    // A count of tokens accepts no `max_tokens`.
    body.as_object_mut().unwrap().remove("max_tokens");
    let path = "/v1/messages/count_tokens";
    let view = agent.post(path, body.to_string()).await;
    assert_eq!(
        (view.status, view.header("x-palimpsest-body")),
        (200, Some("view"))
    );
    let original = Agent {
        url: world.provider.url(),
        ..agent.clone()
    };
    let original = original.post(path, body.to_string()).await;
    let tokens = |reply: &Reply| reply.json()["input_tokens"].as_u64().unwrap();
    assert!(2 * tokens(&view) < tokens(&original));
    assert_eq!(world.events(session).await.len(), events);
    // Counting an unknown conversation creates no session.
    let mut other = Agent::new(Api::Messages, &world.url, Some("uncounted"));
    other.say("Hello.");
    let mut body = other.body();
    body.as_object_mut().unwrap().remove("max_tokens");
    let reply = other.post(path, body.to_string()).await;
    assert_eq!(
        (reply.status, reply.header("x-palimpsest-body")),
        (200, Some("original"))
    );
    let mut sessions = world.server.sessions().await;
    let request = palimpsest_proto::context::v1::GetSessionRequest {
        session: "projects/default/sessions/uncounted".into(),
        ..Default::default()
    };
    assert_eq!(
        sessions.get_session(request).await.unwrap_err().code(),
        tonic::Code::NotFound
    );
}

#[tokio::test]
async fn a_side_request_goes_to_a_lane() {
    let world = World::start(&[]).await;
    let mut agent = Agent::new(Api::Chat, &world.url, Some("with-a-title"));
    // OpenCode requests a title under the same name, before the first turn.
    let title = json!({"model": "gpt-fake", "messages": [
        {"role": "system", "content": "You write titles."},
        {"role": "user", "content": "Generate a title for this conversation:"},
        {"role": "user", "content": "Fix the build."},
    ]});
    let reply = agent.post("/v1/chat/completions", title.to_string()).await;
    let lane = reply.header("x-palimpsest-session");
    let lane = lane.unwrap_or_else(|| panic!("{reply:?}")).to_owned();
    assert!(
        lane.starts_with("projects/default/sessions/with-a-title."),
        "{lane}"
    );
    agent.say("Fix the build.");
    let (reply, _) = agent.step().await;
    let session = "projects/default/sessions/with-a-title";
    assert_eq!(reply.header("x-palimpsest-session"), Some(session));
    assert_eq!(world.transcript(session).await.len(), 2);
}

#[tokio::test]
async fn conversations_without_a_name_are_found_by_their_content() {
    let world = World::start(&[]).await;
    for api in Api::ALL {
        // Two conversations of one credential begin with equal messages and alternate.
        let mut one = Agent::new(api, &world.url, None);
        one.model = format!("{}-{api:?}+agent=3+output-bytes=900", api.model());
        one.say("Hello.");
        let mut other = one.clone();
        let session = |reply: &Reply| reply.header("x-palimpsest-session").unwrap().to_owned();
        let (first, _) = one.step().await;
        let of_one = session(&first);
        let (second, _) = other.step().await;
        for round in 0..2 {
            let (reply, _) = one.step().await;
            assert_eq!(session(&reply), of_one, "{api:?} {round}");
            assert_eq!(reply.header("x-palimpsest-body"), Some("original"));
            other.step().await;
        }
        other.say("Something else.");
        let (reply, _) = other.step().await;
        let of_other = session(&reply);
        assert_ne!(of_one, of_other, "{api:?} {second:?}");
        // A retry is found, and writes nothing.
        let body = one.body().to_string();
        let retried = [
            one.post(api.path(), body.clone()).await,
            one.post(api.path(), body).await,
        ];
        assert!(retried.iter().all(|reply| session(reply) == of_one));
        // The user takes back the last turn and asks something else: a fork, and the first conversation stays.
        let before = visible(&world.server, &of_one).await;
        let mut edited = one.clone();
        let last = edited.conversation.len() - 1;
        edited.conversation.truncate(last);
        edited.say("Another question.");
        if api == Api::Messages {
            // The results of a call must stay beside it, so the whole last round leaves.
            edited.conversation.drain(last - 1..last);
        }
        let reply = edited.post(api.path(), edited.body().to_string()).await;
        assert_ne!(session(&reply), of_one, "{api:?} {reply:?}");
        assert_eq!(visible(&world.server, &of_one).await, before);
        // Another credential never finds the conversation.
        let mut foreign = one.clone();
        foreign.key = "another-key".to_owned();
        let reply = foreign.post(api.path(), foreign.body().to_string()).await;
        assert_ne!(session(&reply), of_one, "{api:?}");
    }
}

/// A round of two parallel calls, with their results in the order in which the tools finished.
fn parallel_calls(api: Api) -> Vec<Value> {
    let calls = |call: fn(&str) -> Value| ["first", "second"].map(call).to_vec();
    let results = |result: fn(&str) -> Value| ["second", "first"].map(result).to_vec();
    match api {
        Api::Messages => {
            let calls =
                calls(|id| json!({"type": "tool_use", "id": id, "name": "Bash", "input": {}}));
            let results =
                results(|id| json!({"type": "tool_result", "tool_use_id": id, "content": id}));
            vec![
                json!({"role": "assistant", "content": calls}),
                json!({"role": "user", "content": results}),
            ]
        }
        Api::Chat => {
            let calls = calls(
                |id| json!({"type": "function", "id": id, "function": {"name": "Bash", "arguments": "{}"}}),
            );
            let results = results(|id| json!({"role": "tool", "tool_call_id": id, "content": id}));
            [
                vec![json!({"role": "assistant", "tool_calls": calls})],
                results,
            ]
            .concat()
        }
        Api::Responses => {
            let calls = calls(
                |id| json!({"type": "function_call", "call_id": id, "name": "Bash", "arguments": "{}"}),
            );
            let results =
                results(|id| json!({"type": "function_call_output", "call_id": id, "output": id}));
            [calls, results].concat()
        }
    }
}

#[tokio::test]
async fn a_conversation_with_results_in_another_order_is_the_same() {
    let world = World::start(&[]).await;
    for (api, is_named) in Api::ALL.map(|api| [(api, true), (api, false)]).concat() {
        let name = is_named.then(|| format!("reordered-{api:?}"));
        let mut agent = Agent::new(api, &world.url, name.as_deref());
        agent.say(&format!("Run both commands. Named: {is_named}"));
        agent.conversation.extend(parallel_calls(api));
        let results = agent.conversation.len() - 2..agent.conversation.len();
        let (reply, _) = agent.step().await;
        let session = reply.header("x-palimpsest-session").unwrap().to_owned();
        // So many requests that no array before the results is known.
        for round in 0..20 {
            agent.say(&format!("Question {round}."));
            agent.step().await;
        }
        let before = visible(&world.server, &session).await;
        match api {
            Api::Messages => {
                let message = &mut agent.conversation[results.end - 1];
                message["content"].as_array_mut().unwrap().reverse();
            }
            Api::Chat | Api::Responses => agent.conversation[results].reverse(),
        }
        agent.say("And now?");
        let (reply, _) = agent.step().await;
        assert_eq!(reply.header("x-palimpsest-session"), Some(&*session));
        let after = visible(&world.server, &session).await;
        assert!(after.starts_with(&before), "{api:?} {is_named}");
        assert_eq!(after.len(), before.len() + 2, "{api:?} {is_named}");
    }
}

#[tokio::test]
async fn a_string_as_input_is_a_message_of_the_user() {
    let world = World::start(&["gateway.require_session=true"]).await;
    let mut agent = Agent::new(Api::Responses, &world.url, None);
    agent.say("Hello.");
    let mut body = agent.body();
    body["input"] = json!("Hello.");
    let body = body.to_string();
    let first = agent.post(agent.api.path(), body.clone()).await;
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(first.header("x-palimpsest-body"), Some("original"));
    assert_eq!(world.upstream()[0].raw, body);
    // The conversation continues as an array.
    let output = first.json()["output"].as_array().unwrap().clone();
    agent.conversation.extend(output);
    agent.say("And then?");
    let (second, _) = agent.step().await;
    let session = |reply: &Reply| reply.header("x-palimpsest-session").unwrap().to_owned();
    assert_eq!(session(&second), session(&first));
    assert_eq!(second.header("x-palimpsest-body"), Some("original"));
    assert_eq!(world.transcript(&session(&first)).await.len(), 4);
}

#[tokio::test]
async fn a_request_that_continues_a_thread_has_no_session() {
    let world = World::start(&[]).await;
    let mut agent = Agent::new(Api::Messages, &world.url, Some("threaded"));
    agent.say("Hello.");
    agent.betas = Some("message-threads-2026-08-12");
    let mut body = agent.body();
    body["thread"] = json!({"type": "create"});
    let first = agent.post(agent.api.path(), body.to_string()).await;
    assert_eq!(
        first.header("x-palimpsest-body"),
        Some("original"),
        "{first:?}"
    );
    let session = "projects/default/sessions/threaded";
    let events = world.events(session).await.len();
    // Only the new message. The session would take it for a rewind.
    let thread = json!({"type": "continue", "previous_message_id": first.json()["id"]});
    let messages = json!([{"role": "user", "content": "And then?"}]);
    let body =
        json!({"model": agent.model, "max_tokens": 100, "thread": thread, "messages": messages});
    let second = agent.post(agent.api.path(), body.to_string()).await;
    assert_eq!(second.status, 200, "{second:?}");
    assert_eq!(second.header("x-palimpsest-body"), Some("unmanaged"));
    assert_eq!(second.header("x-palimpsest-reason"), Some("stateful"));
    assert_eq!(world.events(session).await.len(), events);
}
