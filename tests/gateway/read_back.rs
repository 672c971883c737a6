//! Calls of the service's tools by the model, which the gateway runs inside the response.

use http::HeaderMap;
use palimpsest_fake_provider::{Call, Fault, Match, Pace, Script, ScriptedTurn, Split, Status};
use palimpsest_gateway::reading::{ReadMemory, Reader, ResponseApi};
use serde_json::{Value, json};

use crate::agent::{Agent, Api, Reply};
use crate::world::{World, unmarked};

const QUESTION: &str = "What was line 1 of round 3?";
/// The first line of the third output.
const LINE: &str = "round 000003 line 00000001";

/// Returns an agent whose conversation was compacted, so that its view offers tools.
pub(crate) async fn compacted(world: &World, api: Api, name: &str) -> Agent {
    let mut agent = Agent::new(api, &world.url, Some(name));
    agent.key = format!("key-{name}");
    agent.model = format!(
        // The provider's window is above that of the session, so the provider rejects no prompt before the compaction.
        "{}-{name}+agent=12+output-bytes=24000+window=200000",
        api.model()
    );
    agent.say("Run all rounds.");
    while agent.step().await.1 {}
    let session = format!("projects/default/sessions/{name}");
    assert!(world.compactions(&session).await > 0, "{api:?}");
    // The rounds belong to the name of the model, and the answers to the key.
    agent.model = format!("{}-{name}-after+window=200000", api.model());
    agent
}

pub(crate) fn call(name: &str, input: Value) -> Call {
    let name = name.to_owned();
    Call {
        namespace: None,
        name,
        input,
    }
}

pub(crate) fn search() -> Call {
    call("palimpsest_SearchTranscript", json!({"pattern": LINE}))
}

pub(crate) fn bash() -> Call {
    call("Bash", json!({"command": "seq -f 'after %08.0f' 1 3"}))
}

/// Makes the model give these answers to a question.
pub(crate) fn answer(world: &World, agent: &Agent, question: &str, turns: Vec<ScriptedTurn>) {
    let script = Script {
        matches: Match {
            key: Some(agent.key.clone()),
            text: Some(question.to_owned()),
            ..Match::default()
        },
        turns: turns.into(),
        ..Script::default()
    };
    world.provider.add_script(script).unwrap();
}

pub(crate) fn turn(text: &str, calls: Vec<Call>) -> ScriptedTurn {
    // The borders of frames differ between the responses of a test.
    let splits = [
        Split::Event,
        Split::Together,
        Split::Field,
        Split::LineEnd,
        Split::Utf8,
    ];
    let split = splits[(text.len() + calls.len()) % splits.len()];
    ScriptedTurn {
        text: text.to_owned(),
        calls,
        pace: Pace {
            split,
            pings: 1,
            crlf: text.len().is_multiple_of(2),
            ..Pace::default()
        },
        ..ScriptedTurn::default()
    }
}

/// Sends the conversation, with a stream or without, and adds the response. Returns the response, and true if it has
/// calls.
pub(crate) async fn step(agent: &mut Agent, streams: bool) -> (Reply, Value, bool) {
    if !streams {
        let (reply, has_calls) = agent.step().await;
        let json = reply.json();
        return (reply, json, has_calls);
    }
    let mut body = agent.body();
    body["stream"] = json!(true);
    let reply = agent.post(agent.api.path(), body.to_string()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let json = assembled(agent.api, &reply);
    let has_calls = agent.add(&json);
    (reply, json, has_calls)
}

fn assembled(api: Api, reply: &Reply) -> Value {
    let api = match api {
        Api::Messages => ResponseApi::Messages,
        Api::Chat => ResponseApi::Chat,
        Api::Responses => ResponseApi::Responses,
    };
    let mut headers = HeaderMap::new();
    headers.insert("content-type", "text/event-stream".parse().unwrap());
    let memory = ReadMemory::new(usize::MAX / 2);
    let mut reader = Reader::new(api, &headers, usize::MAX / 4, memory).unwrap();
    reader.read(reply.text.as_bytes()).unwrap();
    let finished = reader.finish(true).unwrap();
    serde_json::from_slice(&finished.json.unwrap()).unwrap()
}

/// Returns the text of a response.
fn text_of(api: Api, response: &Value) -> String {
    let texts = |blocks: &Value| -> String {
        let blocks = blocks.as_array().into_iter().flatten();
        blocks.filter_map(|block| block["text"].as_str()).collect()
    };
    match api {
        Api::Messages => texts(&response["content"]),
        Api::Chat => response["choices"][0]["message"]["content"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        Api::Responses => {
            let items = response["output"].as_array().unwrap();
            items.iter().map(|item| texts(&item["content"])).collect()
        }
    }
}

/// Returns the arrays of the agent's requests that upstream got, without cache markers.
fn arrays(world: &World, agent: &Agent) -> Vec<Vec<Value>> {
    let requests = world.upstream().into_iter();
    let own = requests.filter(|request| request.body["model"] == json!(agent.model));
    let own = own.inspect(|request| assert_eq!(request.status, 200, "{request:?}"));
    own.map(|request| {
        unmarked(&request.body)[agent.api.field()]
            .as_array()
            .unwrap()
            .clone()
    })
    .collect()
}

#[tokio::test]
async fn the_model_reads_what_left_its_view_and_the_agent_sees_one_response() {
    let world = World::start(&["policy.tokens.default_window_tokens=60000"]).await;
    for api in Api::ALL {
        for streams in [false, true] {
            let name = format!("reads-{api:?}-{streams}").to_lowercase();
            let mut agent = compacted(&world, api, &name).await;
            let before = arrays(&world, &agent).len();
            let turns = vec![
                turn("I look it up. ", vec![search()]),
                turn("", vec![search(), search()]),
                turn("It was found.", vec![]),
            ];
            answer(&world, &agent, QUESTION, turns);
            agent.say(QUESTION);
            let (reply, response, has_calls) = step(&mut agent, streams).await;
            assert_eq!(reply.header("x-palimpsest-body"), Some("view"));
            assert!(!has_calls, "{api:?} {response:#}");
            assert_eq!(
                text_of(api, &response),
                "I look it up. It was found.",
                "{response:#}"
            );
            assert!(
                !reply.text.contains("palimpsest_"),
                "{api:?} {streams}: {}",
                reply.text
            );

            let sent = arrays(&world, &agent);
            assert_eq!(sent.len() - before, 3, "{api:?} {streams}");
            assert!(sent[before + 1].starts_with(&sent[before]));
            assert!(sent[before + 2].starts_with(&sent[before + 1]));
            // The first result has the original line, which is not in the view.
            assert!(!json!(sent[before]).to_string().contains(LINE), "{api:?}");
            let results = json!(sent[before + 1][sent[before].len()..]).to_string();
            assert!(results.contains("line 00000001"), "{api:?}: {results}");

            // The next prompt begins with the last one, so the model still has what it read.
            agent.say("Go on.");
            let (_, response, _) = step(&mut agent, streams).await;
            let after = arrays(&world, &agent);
            let last = after.last().unwrap();
            assert!(
                last.starts_with(&sent[before + 2]),
                "{api:?} {streams}: {response:#}\n{last:#?}"
            );
        }
    }
    // Three APIs, each with a stream and without, and three calls.
    assert_eq!(tool_calls(&world), [18, 0, 0]);
}

/// Returns the counted calls of offered tools: successful, failed and exhausted ones.
fn tool_calls(world: &World) -> [u64; 3] {
    let counts = world.server.scrape();
    ["ok", "failed", "exhausted"].map(|outcome| {
        let series = format!("palimpsest_gateway_tool_calls_total{{outcome=\"{outcome}\"}} ");
        let value = counts.lines().find_map(|line| line.strip_prefix(&series));
        value.unwrap_or_else(|| panic!("{counts}")).parse().unwrap()
    })
}

#[tokio::test]
async fn a_call_beside_one_of_the_agent_is_answered_with_it() {
    let world = World::start(&["policy.tokens.default_window_tokens=60000"]).await;
    for api in Api::ALL {
        for streams in [false, true] {
            let name = format!("beside-{api:?}-{streams}").to_lowercase();
            let mut agent = compacted(&world, api, &name).await;
            let before = arrays(&world, &agent).len();
            let turns = vec![
                turn("First. ", vec![search()]),
                turn("Both. ", vec![search(), bash(), search()]),
                turn("Done.", vec![]),
            ];
            answer(&world, &agent, QUESTION, turns);
            agent.say(QUESTION);
            let (_, response, has_calls) = step(&mut agent, streams).await;
            assert!(has_calls, "{api:?} {streams}: {response:#}");
            assert_eq!(text_of(api, &response), "First. Both. ");
            assert!(
                !response.to_string().contains("palimpsest_"),
                "{response:#}"
            );
            let (_, response, has_calls) = step(&mut agent, streams).await;
            assert!(!has_calls);
            assert_eq!(text_of(api, &response), "Done.");
            // The provider accepts a prompt only if each call has its result.
            let sent = arrays(&world, &agent);
            assert_eq!(sent.len() - before, 3, "{api:?} {streams}");
            let last = &sent[before + 2];
            assert!(
                last.starts_with(&sent[before + 1]),
                "{api:?} {streams}: {last:#?}"
            );
            let further = json!(last[sent[before + 1].len()..]).to_string();
            assert!(further.contains("after 00000003"), "{api:?}: {further}");
            assert!(further.contains("line 00000001"), "{api:?}: {further}");
        }
    }
}

/// Adds the result of a call that the model made, with this text.
async fn use_tool(world: &World, agent: &mut Agent, question: &str, bytes: usize) {
    // A line such as `filler 00000001` has 16 bytes with its line feed.
    let command = format!("seq -f 'filler %08.0f' 1 {}", bytes / 16);
    let big = call("Bash", json!({"command": command}));
    answer(
        world,
        agent,
        question,
        vec![turn("", vec![big]), turn("Read.", vec![])],
    );
    agent.say(question);
    let (reply, has_calls) = agent.step().await;
    assert!(has_calls, "{reply:?}");
}

#[tokio::test]
async fn a_large_result_is_stored_only_where_that_pays_at_once() {
    let world = World::start(&[]).await;
    for api in Api::ALL {
        let name = format!("large-{api:?}").to_lowercase();
        let mut agent = Agent::new(api, &world.url, Some(&name));
        agent.key = format!("key-{name}");
        agent.model = format!("{}-{name}+window=1000000", api.model());
        // The result is larger than all before it, so it is stored, and the tools that read it are offered.
        use_tool(&world, &mut agent, "Read the first file.", 120_000).await;
        let (reply, _) = agent.step().await;
        assert_eq!(reply.header("x-palimpsest-body"), Some("view"), "{api:?}");
        let sent = world.upstream().pop().unwrap();
        // The result alone has 120,000 bytes.
        assert!(sent.raw.len() < 20_000, "{api:?}: {}", sent.raw.len());
        let text = sent.body.to_string();
        assert!(text.contains("Output too large") && text.contains("palimpsest_ReadToolResult"));
        let reference = text.split("palimpsest://").nth(1).unwrap();
        let reference = reference.split(['\\', '"', ' ']).next().unwrap();
        let read = json!({"reference": format!("palimpsest://{reference}"), "tail_lines": 1});
        let turns = vec![
            turn("", vec![call("palimpsest_ReadToolResult", read)]),
            turn("It ends with 7500.", vec![]),
        ];
        answer(&world, &agent, "How does it end?", turns);
        agent.say("How does it end?");
        assert!(!agent.step().await.1);
        let sent = world.upstream().pop().unwrap();
        assert!(sent.body.to_string().contains("filler 00007500"), "{api:?}");

        // A result behind a long unchanged conversation stays, because the cache has all before it.
        let name = format!("spared-{api:?}").to_lowercase();
        let mut agent = Agent::new(api, &world.url, Some(&name));
        agent.key = format!("key-{name}");
        agent.model = format!("{}-{name}+window=1000000", api.model());
        agent.say(&"A long text. ".repeat(20_000));
        agent.step().await;
        use_tool(&world, &mut agent, "Read the second file.", 120_000).await;
        let (reply, _) = agent.step().await;
        assert_eq!(
            reply.header("x-palimpsest-body"),
            Some("original"),
            "{api:?}"
        );
    }
}

#[tokio::test]
async fn a_model_that_only_reads_is_stopped() {
    let world = World::start(&["policy.tokens.default_window_tokens=60000"]).await;
    for api in Api::ALL {
        for streams in [false, true] {
            let name = format!("endless-{api:?}-{streams}").to_lowercase();
            let mut agent = compacted(&world, api, &name).await;
            let before = arrays(&world, &agent).len();
            // More turns than the gateway runs within one response.
            let turns = (0..20).map(|_| turn("", vec![search()])).collect();
            answer(&world, &agent, QUESTION, turns);
            agent.say(QUESTION);
            let (reply, response, has_calls) = step(&mut agent, streams).await;
            assert!(
                !has_calls && !reply.text.contains("palimpsest_"),
                "{response:#}"
            );
            let reason = match api {
                Api::Messages => &response["stop_reason"],
                Api::Chat => &response["choices"][0]["finish_reason"],
                Api::Responses => &response["status"],
            };
            let expected = match api {
                Api::Messages => "end_turn",
                Api::Chat => "stop",
                Api::Responses => "completed",
            };
            assert_eq!(reason, expected, "{response:#}");
            let sent = arrays(&world, &agent);
            assert_eq!(sent.len() - before, 10, "{api:?} {streams}");
            let last = json!(sent.last().unwrap()).to_string();
            assert!(last.contains("has used up its calls"), "{last}");
        }
    }
    // Each of the six responses consists of ten, and the calls of the last two of them were not run.
    assert_eq!(tool_calls(&world), [6 * 8, 0, 6 * 2]);
}

#[tokio::test]
async fn an_error_after_a_call_reaches_the_agent_and_a_retry_succeeds() {
    let world = World::start(&["policy.tokens.default_window_tokens=60000"]).await;
    for api in Api::ALL {
        for streams in [false, true] {
            let name = format!("fails-{api:?}-{streams}").to_lowercase();
            let mut agent = compacted(&world, api, &name).await;
            let failing = ScriptedTurn {
                fault: Some(Fault::Status(Status {
                    status: 529,
                    retry_after: None,
                })),
                ..turn("", vec![])
            };
            let turns = vec![
                turn("Looking. ", vec![search()]),
                failing,
                turn("Again. ", vec![search()]),
                turn("Found.", vec![]),
            ];
            answer(&world, &agent, QUESTION, turns);
            agent.say(QUESTION);
            let mut body = agent.body();
            body["stream"] = json!(streams);
            let reply = agent.post(api.path(), body.to_string()).await;
            // A stream has begun, so its error is an event. Without a stream, the response is that of the provider.
            assert_eq!(reply.status, if streams { 200 } else { 529 }, "{reply:?}");
            assert!(reply.text.contains("error"), "{reply:?}");
            assert!(!reply.text.contains("palimpsest_"), "{reply:?}");
            let (_, response, has_calls) = step(&mut agent, streams).await;
            assert!(!has_calls);
            assert_eq!(text_of(api, &response), "Again. Found.");
            agent.say("Go on.");
            step(&mut agent, streams).await;
        }
    }
}

/// Removes all numbers: ids, and the usage, which depends on the size of the prompt.
fn without_numbers(text: &str) -> String {
    text.replace(|c: char| c.is_ascii_digit(), "")
}

#[tokio::test]
async fn a_response_that_is_not_understood_arrives_as_it_is() {
    let world = World::start(&["policy.tokens.default_window_tokens=60000"]).await;
    for api in Api::ALL {
        for split in [Split::Event, Split::Together, Split::Byte] {
            let name = format!("malformed-{api:?}-{split:?}").to_lowercase();
            let mut agent = compacted(&world, api, &name).await;
            let malformed = || ScriptedTurn {
                fault: Some(Fault::MalformedAfterEvent(4)),
                pace: Pace {
                    split,
                    ..Pace::default()
                },
                ..turn(
                    "A text of several words, which arrives in several events.",
                    vec![],
                )
            };
            answer(&world, &agent, QUESTION, vec![malformed(), malformed()]);
            agent.say(QUESTION);
            let mut body = agent.body();
            body["stream"] = json!(true);
            let through = agent.post(api.path(), body.to_string()).await;
            assert_eq!(through.header("x-palimpsest-body"), Some("view"));
            agent.url = world.provider.url();
            let direct = agent.post(api.path(), body.to_string()).await;
            let (through, direct) = (
                without_numbers(&through.text),
                without_numbers(&direct.text),
            );
            assert!(!through.contains("palimpsest_") || api == Api::Responses);
            if api == Api::Responses {
                // Its first events repeat the tools of the request.
                assert_eq!(through.lines().count(), direct.lines().count(), "{through}");
                assert_eq!(through.lines().last(), direct.lines().last());
            } else {
                assert_eq!(through, direct);
            }
        }
    }
}

#[tokio::test]
async fn a_broken_response_breaks_for_the_agent_after_the_same_bytes() {
    const BYTES: usize = 40;
    let world = World::start(&["policy.tokens.default_window_tokens=60000"]).await;
    for api in Api::ALL {
        let name = format!("broken-{api:?}").to_lowercase();
        let mut agent = compacted(&world, api, &name).await;
        let broken = || ScriptedTurn {
            fault: Some(Fault::CutAfterByte(BYTES)),
            ..turn("A text that does not arrive.", vec![])
        };
        answer(&world, &agent, QUESTION, vec![broken(), broken()]);
        agent.say(QUESTION);
        for streams in [false, true] {
            let mut body = agent.body();
            body["stream"] = json!(streams);
            let url = format!("{}{}", agent.url, api.path());
            let request = agent.client.post(url).bearer_auth(&agent.key);
            let request = request
                .header("anthropic-version", "2023-06-01")
                .header("x-session-id", &name);
            let mut response = request.body(body.to_string()).send().await.unwrap();
            assert_eq!(response.headers()["x-palimpsest-body"], "view", "{api:?}");
            let mut received = 0;
            let end = loop {
                match response.chunk().await {
                    Ok(Some(data)) => received += data.len(),
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            assert!(end.is_err(), "{api:?} {streams}");
            assert_eq!(received, BYTES, "{api:?} {streams}");
        }
        // The retry of the agent succeeds.
        assert!(!agent.step().await.1, "{api:?}");
    }
}
