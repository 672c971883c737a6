//! Tests of `SyncContext`: the caller sends its whole conversation, and the session takes the difference.

use palimpsest_proto::context::v1::Format;
use palimpsest_proto::context::v1::message_input::Content;
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{
    CollapsePolicy, CompactRequest, CreateSessionRequest, GetSessionRequest, ListMessagesRequest,
    Payload, Policy, PrepareContextResponse, PromptPrefix, PromptTooLong, Provider,
    RewindSessionRequest, Session, SyncContextRequest, SyncContextResponse, SyncOutcome, Warning,
    WarningCode,
};
use palimpsest_tests::array::values;
use palimpsest_tests::say::{anthropic, append, prepare, small_window, target, work};
use palimpsest_tests::server::Context;
use palimpsest_tests::{name, refused, refused_field};
use serde_json::{Value, json};
use tonic::Code;

use crate::SERVER;

pub(crate) fn request(session: &str, format: Format, json: &Value) -> SyncContextRequest {
    SyncContextRequest {
        session: session.into(),
        payload: Some(Payload {
            format: format.into(),
            json: json.to_string().into(),
        }),
        prompt_prefix: Some(PromptPrefix {
            tools_json: json!([{"name": "Read"}]).to_string().into(),
            ..PromptPrefix::default()
        }),
        ..SyncContextRequest::default()
    }
}

async fn sync(client: &mut Context, session: &str, array: &[Value]) -> SyncContextResponse {
    let request = request(session, Format::AnthropicMessages, &json!(array));
    client.sync_context(request).await.unwrap().into_inner()
}

/// Returns the view of a reply.
pub(crate) fn view(reply: &SyncContextResponse) -> Vec<Value> {
    let messages = &reply.context.as_ref().unwrap().messages_json;
    values(messages).iter().map(plain).collect()
}

/// Returns a message in which a content of one text is a string.
fn plain(message: &Value) -> Value {
    let mut message = message.clone();
    if let Some([block]) = message["content"].as_array().map(Vec::as_slice)
        && block["type"] == "text"
    {
        message["content"] = block["text"].clone();
    }
    message
}

pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub(crate) fn model(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

async fn count(client: &mut Context, session: &str) -> u64 {
    let request = prepare(session, Vec::new());
    let reply = client.prepare_context(request).await.unwrap().into_inner();
    u64::from(reply.view_messages)
}

#[tokio::test]
async fn a_growing_array_is_appended_and_a_repeat_writes_nothing() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("whole-growing");
    let mut array = vec![user("one")];
    let first = sync(&mut client, &session, &array).await;
    assert_eq!(first.outcome(), SyncOutcome::New);
    assert_eq!((&first.session, first.appended_messages), (&session, 1));
    array.extend([model("two"), user("three")]);
    let next = sync(&mut client, &session, &array).await;
    assert_eq!(
        (next.outcome(), next.appended_messages),
        (SyncOutcome::Extended, 2)
    );
    assert_eq!(view(&next), array);
    // Clients write the same message in other forms and move their cache markers.
    array[0] = json!({"content": [
        {"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}
    ], "role": "user"});
    let again = sync(&mut client, &session, &array).await;
    assert_eq!(
        (again.outcome(), again.appended_messages),
        (SyncOutcome::Equal, 0)
    );
    let (next, again) = (next.context.unwrap(), again.context.unwrap());
    assert_eq!((again.revision, &again.etag), (next.revision, &next.etag));
    assert_eq!(again.messages_json, next.messages_json);
}

#[tokio::test]
async fn an_array_that_leaves_the_known_one_rewinds() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("whole-edited");
    let array = [user("one"), model("two"), user("three"), model("four")];
    sync(&mut client, &session, &array).await;
    let edited = [user("one"), model("two"), user("other")];
    let reply = sync(&mut client, &session, &edited).await;
    assert_eq!(reply.outcome(), SyncOutcome::Rewound);
    assert_eq!(view(&reply), edited);
    let removed = reply.context.as_ref().unwrap().recovery.as_ref();
    assert_eq!(removed.unwrap().items.len(), 1);
    // The first branch continues under the same name. It gets a session of its own, and the named one stays.
    let mut first = array.to_vec();
    first.push(user("five"));
    let lane = sync(&mut client, &session, &first).await;
    assert_eq!(lane.outcome(), SyncOutcome::New);
    assert!(lane.session.starts_with(&format!("{session}.")));
    assert_eq!(view(&lane), first);
    first.push(model("six"));
    first.push(user("seven"));
    let again = sync(&mut client, &session, &first).await;
    assert_eq!(again.session, lane.session);
    assert_eq!(again.outcome(), SyncOutcome::Extended);
    assert_eq!(count(&mut client, &session).await, 3);
}

#[tokio::test]
async fn a_side_request_gets_a_session_of_its_own() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("whole-title");
    let array = [user("build it"), model("done"), user("thanks")];
    let main = sync(&mut client, &session, &array).await;
    let title = [user("Give this conversation a title: build it")];
    let side = sync(&mut client, &session, &title).await;
    assert!(side.session.starts_with(&format!("{session}.")));
    assert_eq!(view(&side), title);
    let again = sync(&mut client, &session, &title).await;
    assert_eq!(again.session, side.session);
    assert_eq!(again.outcome(), SyncOutcome::Equal);
    let after = sync(&mut client, &session, &array).await;
    assert_eq!(after.outcome(), SyncOutcome::Equal);
    let revision = |reply: &SyncContextResponse| reply.context.as_ref().unwrap().revision;
    assert_eq!(revision(&after), revision(&main));
}

#[tokio::test]
async fn a_session_with_messages_takes_its_own_array() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("whole-adopts-deltas");
    let mut array = vec![user("one"), model("two"), user("three")];
    let inputs = array.iter().map(anthropic).collect();
    client
        .prepare_context(prepare(&session, inputs))
        .await
        .unwrap();
    array.extend([model("four"), user("five")]);
    let reply = sync(&mut client, &session, &array).await;
    assert_eq!(
        (reply.outcome(), reply.appended_messages),
        (SyncOutcome::Extended, 2)
    );
    assert_eq!(view(&reply), array);
    // Messages that arrive one by one belong to the array.
    array.push(model("six"));
    let inputs = vec![anthropic(&array[5])];
    client
        .append_messages(append(&session, inputs))
        .await
        .unwrap();
    let reply = sync(&mut client, &session, &array).await;
    assert_eq!(reply.outcome(), SyncOutcome::Equal);
    assert_eq!(view(&reply), array);
}

#[tokio::test]
async fn an_array_after_a_rewind_is_appended_again() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("whole-rewound");
    let array = [user("one"), model("two"), user("three")];
    sync(&mut client, &session, &array).await;
    let mut sessions = shared.0.sessions().await;
    let list = ListMessagesRequest {
        session: session.clone(),
        ..ListMessagesRequest::default()
    };
    let listed = sessions
        .list_messages(list.clone())
        .await
        .unwrap()
        .into_inner();
    let first = listed.messages[0].id.clone();
    let rewind = RewindSessionRequest {
        session: session.clone(),
        target_message: Some(TargetMessage::ToMessageId(first)),
        ..RewindSessionRequest::default()
    };
    client.rewind_session(rewind).await.unwrap();
    let reply = sync(&mut client, &session, &array).await;
    assert_eq!(
        (reply.outcome(), reply.appended_messages),
        (SyncOutcome::Extended, 2)
    );
    assert_eq!(view(&reply), array);
    // The rewound messages stay in the transcript, and the array adds two: 3 + 2.
    let listed = sessions.list_messages(list).await.unwrap().into_inner();
    assert_eq!(listed.messages.len(), 5);
}

#[tokio::test]
async fn a_summary_of_the_caller_is_adopted() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("whole-summary");
    let mut array = vec![user("Fix the parser."), model("It is fixed.")];
    for number in 0..10 {
        array.push(user(&format!("step {number}")));
        array.push(model(&format!("done {number}")));
    }
    sync(&mut client, &session, &array).await;
    // Summaries of Claude Code begin with these words.
    let text = "This session is being continued from a previous conversation that ran out of context. \
                The user asked to fix the parser. All ten steps are done.";
    let mut compacted = vec![user(text)];
    compacted.push(user("Go on."));
    let mut request = request(&session, Format::AnthropicMessages, &json!(compacted));
    request.caller_compacted = true;
    let reply = client.sync_context(request).await.unwrap().into_inner();
    assert_eq!(reply.outcome(), SyncOutcome::Adopted);
    assert_eq!(reply.session, session);
    let shown = json!(view(&reply)).to_string();
    assert!(
        shown.contains("All ten steps are done.") && shown.contains("Go on."),
        "{shown}"
    );
    assert!(!shown.contains("step 3"), "{shown}");
    // The messages stay readable.
    let mut sessions = shared.0.sessions().await;
    let list = ListMessagesRequest {
        session: session.clone(),
        page_size: 100,
        ..ListMessagesRequest::default()
    };
    let listed = sessions.list_messages(list).await.unwrap().into_inner();
    assert!(listed.messages.len() >= array.len() + 2);
    // The array goes on after the summary.
    compacted.extend([model("I do."), user("Good.")]);
    let next = sync(&mut client, &session, &compacted).await;
    assert_eq!(next.outcome(), SyncOutcome::Extended);
    let shown = json!(view(&next)).to_string();
    assert!(
        shown.contains("Good.") && !shown.contains("step 3"),
        "{shown}"
    );
}

#[tokio::test]
async fn an_edit_behind_a_compaction_restores_the_messages() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("whole-compacted");
    let mut array: Vec<Value> = Vec::new();
    for number in 0..12 {
        array.push(user(&format!("question {number} {}", "x ".repeat(400))));
        array.push(model(&format!("answer {number} {}", "y ".repeat(400))));
    }
    array.push(user("last"));
    let mut first = request(&session, Format::AnthropicMessages, &json!(array));
    first.target = Some(small_window());
    client.sync_context(first).await.unwrap();
    let compact = CompactRequest {
        session: session.clone(),
        ..CompactRequest::default()
    };
    client.compact(compact).await.unwrap();
    let compacted = sync(&mut client, &session, &array).await;
    assert_eq!(compacted.outcome(), SyncOutcome::Equal);
    assert!(view(&compacted).len() < array.len());
    let mut edited = array[..4].to_vec();
    edited.push(user("something else"));
    let reply = sync(&mut client, &session, &edited).await;
    assert_eq!(reply.outcome(), SyncOutcome::Rewound);
    assert_eq!(view(&reply), edited);
}

#[tokio::test]
async fn a_request_body_brings_its_system_prompt_and_tools() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let body = |tools: usize| {
        let tool = json!({"type": "function", "function": {"name": "read", "description": "word ".repeat(300)}});
        json!({
            "model": "gpt-5", "stream": true, "tools": vec![tool; tools],
            "messages": [
                {"role": "system", "content": "You build."}, {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "one"},
            ],
        })
    };
    let mut tokens = Vec::new();
    for tools in [1, 3] {
        let session = name(&format!("whole-body-{tools}"));
        let mut request = request(&session, Format::OpenaiChat, &body(tools));
        (request.prompt_prefix, request.target) = (None, Some(target(Provider::Openai, "gpt-5")));
        let reply = client.sync_context(request).await.unwrap().into_inner();
        // The operator's messages before the conversation stay with the caller.
        assert_eq!(reply.lead_messages, 2);
        assert_eq!(view(&reply), [user("one")]);
        let context = reply.context.unwrap();
        assert!(context.append.is_none() && context.sendable);
        tokens.push(context.tokens.unwrap().breakdown.unwrap().tools_tokens);
    }
    assert!(tokens[0] > 300 && tokens[1] > 2 * tokens[0], "{tokens:?}");
}

#[tokio::test]
async fn a_dry_run_and_an_invalid_array_write_nothing() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("whole-dry");
    let mut dry = request(&session, Format::AnthropicMessages, &json!([user("one")]));
    dry.dry_run = true;
    let reply = client.sync_context(dry).await.unwrap().into_inner();
    assert_eq!(
        (reply.outcome(), reply.appended_messages),
        (SyncOutcome::New, 1)
    );
    let invalid = request(
        &session,
        Format::AnthropicMessages,
        &json!([{"role": "tool"}]),
    );
    let error = client.sync_context(invalid).await.unwrap_err();
    refused(&error, Code::InvalidArgument, "INVALID_PAYLOAD");
    let mut sessions = shared.0.sessions().await;
    let get = GetSessionRequest {
        session,
        ..GetSessionRequest::default()
    };
    let error = sessions.get_session(get).await.unwrap_err();
    refused(&error, Code::NotFound, "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn the_last_response_makes_token_counts_exact() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("whole-usage");
    let mut array = vec![user("one")];
    sync(&mut client, &session, &array).await;
    array.extend([model("two"), user("three")]);
    let mut next = request(&session, Format::AnthropicMessages, &json!(array));
    next.last_response = Some(Payload {
        format: Format::AnthropicMessages.into(),
        json: json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
            "content": [{"type": "text", "text": "two"}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 4_000, "output_tokens": 3},
        })
        .to_string()
        .into(),
    });
    for outcome in [SyncOutcome::Extended, SyncOutcome::Equal] {
        let reply = client
            .sync_context(next.clone())
            .await
            .unwrap()
            .into_inner();
        assert_eq!(reply.outcome(), outcome);
        let tokens = reply.context.unwrap().tokens.unwrap();
        // The input and the output of the response: 4,000 + 3.
        assert_eq!(tokens.anchor_tokens, 4_003);
    }
    // The response of another message is not used, and a message of the user is no response.
    array.extend([model("four"), user("five")]);
    next.payload.as_mut().unwrap().json = json!(array).to_string().into();
    let reply = client
        .sync_context(next.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(reply.context.unwrap().tokens.unwrap().anchor_tokens, 4_003);
    next.last_response.as_mut().unwrap().json = json!([user("one")]).to_string().into();
    let error = client.sync_context(next).await.unwrap_err();
    refused_field(&error, "last_response");
}

#[tokio::test]
async fn a_whole_array_among_new_messages_is_reported() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("whole-doubled");
    let mut array = vec![
        user("one"),
        model("two"),
        user("three"),
        model("four"),
        user("five"),
    ];
    let inputs = |array: &[Value]| array.iter().map(anthropic).collect::<Vec<_>>();
    let codes = |reply: PrepareContextResponse| {
        let codes = reply.warnings.iter().map(Warning::code);
        codes.collect::<Vec<_>>()
    };
    let first = prepare(&session, inputs(&array));
    let first = client.prepare_context(first).await.unwrap().into_inner();
    assert!(!codes(first).contains(&WarningCode::RepeatedTranscript));
    array.extend([model("six"), user("seven")]);
    let again = prepare(&session, inputs(&array));
    let again = client.prepare_context(again).await.unwrap().into_inner();
    assert!(codes(again).contains(&WarningCode::RepeatedTranscript));
    // One repeated text is no repetition of the transcript.
    let next = prepare(&session, inputs(&[model("eight"), user("one")]));
    let next = client.prepare_context(next).await.unwrap().into_inner();
    assert!(!codes(next).contains(&WarningCode::RepeatedTranscript));
}

/// A session that gets its messages one by one, and one that gets the whole array before each model request, have the
/// same views, epochs and levels.
#[tokio::test]
async fn both_ways_in_give_the_same_views() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let (deltas, whole) = (name("whole-deltas"), name("whole-arrays"));
    let mut array: Vec<Value> = Vec::new();
    // The turns cause several compactions. Their views must be equal too.
    for number in 0..30 {
        let new: Vec<Value> = work(number)
            .into_iter()
            .map(|input| match input.content.unwrap() {
                Content::Payload(payload) => serde_json::from_slice(&payload.json).unwrap(),
                Content::Message(_) => panic!("the work has payloads"),
            })
            .collect();
        array.extend(new.iter().cloned());
        let mut one = prepare(&deltas, new.iter().map(anthropic).collect());
        one.target = Some(small_window());
        let one = client.prepare_context(one).await.unwrap().into_inner();
        let mut other = request(&whole, Format::AnthropicMessages, &json!(array));
        (other.prompt_prefix, other.target) = (None, Some(small_window()));
        let other = client.sync_context(other).await.unwrap().into_inner();
        let other = other.context.unwrap();
        assert_eq!(one.messages_json, other.messages_json, "{number}");
        assert_eq!((one.epoch, one.sendable), (other.epoch, other.sendable));
        assert_eq!(
            one.level_reports.len(),
            other.level_reports.len(),
            "{number}"
        );
    }
}

/// Pydantic AI sends a result and the next input as two messages in one request, and as one in the next.
#[tokio::test]
async fn messages_that_the_caller_joins_later_are_no_edit() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("whole-joined");
    let call = |id: &str| json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "Read", "input": {}}]});
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": format!("result {id}")});
    let alone = |block: Value| json!({"role": "user", "content": [block]});
    let mut array = vec![user("q0")];
    for turn in 0..4 {
        let id = format!("t{turn}");
        let input = format!("q{}", turn + 1);
        array.push(call(&id));
        let apart = [alone(result(&id)), user(&input)];
        let reply = sync(&mut client, &session, &[&array[..], &apart].concat()).await;
        let expected = [SyncOutcome::New, SyncOutcome::Extended][usize::from(turn > 0)];
        assert_eq!(reply.outcome(), expected, "turn {turn}");
        let text = json!({"type": "text", "text": input});
        array.push(json!({"role": "user", "content": [result(&id), text]}));
        let reply = sync(&mut client, &session, &array).await;
        assert_eq!(reply.outcome(), SyncOutcome::Equal, "turn {turn}");
        assert_eq!(reply.appended_messages, 0);
    }
    let mut sessions = shared.0.sessions().await;
    let list = ListMessagesRequest {
        session,
        page_size: 100,
        ..ListMessagesRequest::default()
    };
    let listed = sessions.list_messages(list).await.unwrap().into_inner();
    // The first input, and a call, a result and an input in each turn.
    assert_eq!(listed.messages.len(), 1 + 4 * 3);
}

/// A prompt that was rejected is collapsed first, and compacted then.
#[tokio::test]
async fn an_edit_behind_a_collapse_and_a_compaction_restores_the_messages() {
    let shared = SERVER.get();
    let (mut client, mut sessions) = (shared.0.context().await, shared.0.sessions().await);
    let session = name("whole-collapsed");
    let collapse = CollapsePolicy {
        enabled: Some(true),
        ..CollapsePolicy::default()
    };
    let (parent, id) = session.split_once("/sessions/").unwrap();
    let create = CreateSessionRequest {
        parent: parent.into(),
        session_id: id.into(),
        session: Some(Session {
            policy_overrides: Some(Policy {
                collapse: Some(collapse),
                ..Policy::default()
            }),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    sessions.create_session(create).await.unwrap();
    let mut array = vec![user("q1")];
    for round in 0..6 {
        let call = json!({"type": "tool_use", "id": format!("c{round}"), "name": "Read", "input": {"p": round}});
        let text = format!("r{round} {}", "word ".repeat(400));
        let result =
            json!({"type": "tool_result", "tool_use_id": format!("c{round}"), "content": text});
        array.push(json!({"role": "assistant", "content": [call]}));
        array.push(json!({"role": "user", "content": [result]}));
    }
    array.extend([model("done"), user("q2")]);
    sync(&mut client, &session, &array).await;
    let rejected = SyncContextRequest {
        prompt_too_long: Some(PromptTooLong {
            error_text: "prompt is too long: 210000 tokens > 200000 maximum".into(),
            ..PromptTooLong::default()
        }),
        ..request(&session, Format::AnthropicMessages, &json!(array))
    };
    client.sync_context(rejected).await.unwrap();
    let edited = [&array[..5], &[user("stop")]].concat();
    let reply = sync(&mut client, &session, &edited).await;
    assert_eq!(reply.outcome(), SyncOutcome::Rewound);
    let shown = json!(view(&reply)).to_string();
    assert!(
        shown.contains("r1 word") && shown.contains("stop"),
        "{shown}"
    );
    assert!(!shown.contains("r2 word"), "{shown}");
}

/// The usage of a response counts for the request that it answers, and not for another view.
#[tokio::test]
async fn the_usage_of_another_view_is_not_used() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut array = vec![user("one")];
    for round in 0..4 {
        array.push(model(&format!("answer {round} {}", "word ".repeat(1_000))));
        array.push(user(&format!("question {round}")));
    }
    let body = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": array[7]["content"], "stop_reason": "end_turn",
        "usage": {"input_tokens": 50, "output_tokens": 20},
    });
    let with_response = |session: &str, array: &[Value]| SyncContextRequest {
        last_response: Some(Payload {
            format: Format::AnthropicMessages.into(),
            json: body.to_string().into(),
        }),
        ..request(session, Format::AnthropicMessages, &json!(array))
    };
    let tokens = async |client: &mut Context, request: SyncContextRequest| {
        let reply = client.sync_context(request).await.unwrap().into_inner();
        reply.context.unwrap().tokens.unwrap().total_tokens
    };
    // A new session has served no view.
    let new = name("whole-usage-new");
    assert!(tokens(&mut client, with_response(&new, &array)).await > 3_000);
    // After an edit, messages that the response answered are appended again.
    let edited = name("whole-usage-edited");
    sync(&mut client, &edited, &array).await;
    array[2] = user("another question");
    assert!(tokens(&mut client, with_response(&edited, &array)).await > 3_000);
}
