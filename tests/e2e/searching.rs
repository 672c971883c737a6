//! Tests that searches end with their call, whatever the pattern is.

use std::time::Duration;

use palimpsest_proto::context::v1::call_tool_request::Call;
use palimpsest_proto::context::v1::{
    CallToolRequest, CreateSessionRequest, Format, ModelToolPolicy, Payload, Policy,
    SearchMessagesRequest, Session, TextPattern, text_pattern,
};
use palimpsest_tests::say::{append, user};
use palimpsest_tests::{name, refused};
use serde_json::{Value, json};
use tonic::{Code, Request};

use crate::SERVER;

/// A pattern that reads to the end of the text at each position and matches the empty string.
const EMPTY: &str = r"(?s).*[~\x00-\x08\x0e-\x1f]|";
/// The same pattern with a match of one letter.
const FAR: &str = r"(?s).*[~\x00-\x08\x0e-\x1f]|a";

fn search(session: &str, regex: &str) -> SearchMessagesRequest {
    SearchMessagesRequest {
        session: name(session),
        pattern: Some(TextPattern {
            pattern: Some(text_pattern::Pattern::Regex(regex.into())),
            ignore_case: false,
        }),
        ..SearchMessagesRequest::default()
    }
}

fn tool(session: &str, input: &Value) -> CallToolRequest {
    let call = json!({"type": "tool_use", "id": "t", "name": "SearchTranscript", "input": input});
    CallToolRequest {
        session: name(session),
        call: Some(Call::Payload(Payload {
            format: Format::AnthropicMessages.into(),
            json: call.to_string().into(),
        })),
        ..CallToolRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expensive_search_ends_with_its_call_and_does_not_block_others() {
    let shared = SERVER.get();
    let mut context = shared.0.context().await;
    let mut sessions = shared.0.sessions().await;
    let text = "a".repeat(1024 * 1024);
    for n in 0..4 {
        let message = user(&format!("{n} {text}"));
        context
            .append_messages(append(&name("far"), vec![message]))
            .await
            .unwrap();
    }
    // A pattern that matches the empty string is rejected with instructions.
    let status = sessions.search_messages(search("far", EMPTY)).await;
    let status = status.unwrap_err();
    refused(&status, Code::InvalidArgument, "INVALID_PATTERN");
    assert!(status.message().contains("empty string"), "{status}");
    // A model receives the same error as the result of its call.
    let input = json!({"pattern": EMPTY, "regex": true});
    let reply = context.call_tool(tool("far", &input)).await.unwrap();
    let told: Value = serde_json::from_slice(&reply.into_inner().tool_result_json).unwrap();
    assert_eq!(told["is_error"], true, "{told}");
    // A pattern with a match has a limited number of steps, and ends with its deadline.
    let calls = (0..32).map(|_| {
        let mut sessions = sessions.clone();
        tokio::spawn(async move {
            let mut request = Request::new(search("far", FAR));
            request.set_timeout(Duration::from_secs(2));
            sessions.search_messages(request).await
        })
    });
    let calls: Vec<_> = calls.collect();
    // Another call is answered meanwhile.
    let other = append(&name("near"), vec![user("hello")]);
    context.append_messages(other).await.unwrap();
    for call in calls {
        match call.await.unwrap() {
            Ok(reply) => assert!(!reply.into_inner().hits.is_empty()),
            Err(status) => {
                let codes = [
                    Code::DeadlineExceeded,
                    Code::Cancelled,
                    Code::ResourceExhausted,
                ];
                assert!(codes.contains(&status.code()), "{status}");
            }
        }
    }
    // The permits are free again: the threads ended with their calls.
    let found = sessions.search_messages(search("near", "h.llo")).await;
    assert_eq!(found.unwrap().into_inner().hits.len(), 1);
}

#[tokio::test]
async fn a_truncated_search_continues_from_the_named_ordinal() {
    let shared = SERVER.get();
    let mut context = shared.0.context().await;
    for n in 1..=30 {
        let message = user(&format!("needle {n}"));
        context
            .append_messages(append(&name("pages"), vec![message]))
            .await
            .unwrap();
    }
    let mut first = json!(1);
    let mut seen = 0;
    loop {
        let input = json!({"pattern": "needle", "max_hits": 20, "first": first});
        let reply = context.call_tool(tool("pages", &input)).await.unwrap();
        let told: Value = serde_json::from_slice(&reply.into_inner().tool_result_json).unwrap();
        let text = told["content"].as_str().unwrap();
        seen += text.lines().filter(|line| line.contains("needle")).count();
        let Some((_, next)) = text.split_once("ask again with first ") else {
            break;
        };
        first = next.split(']').next().unwrap().parse().unwrap();
    }
    assert_eq!(seen, 30);
}

#[tokio::test]
async fn the_hits_of_one_message_continue_on_the_next_page() {
    const HITS: usize = 250;
    let shared = SERVER.get();
    let mut context = shared.0.context().await;
    let mut sessions = shared.0.sessions().await;
    let texts = ["one hit before: x", &"x ".repeat(HITS), "x after"];
    let messages = texts.map(user).to_vec();
    context
        .append_messages(append(&name("dense"), messages))
        .await
        .unwrap();
    for descending in [false, true] {
        let mut request = SearchMessagesRequest {
            page_size: 100,
            descending,
            ..search("dense", "x")
        };
        let (mut found, mut pages) = (Vec::new(), Vec::new());
        loop {
            let page = sessions.search_messages(request.clone()).await.unwrap();
            let page = page.into_inner();
            pages.push(page.hits.len());
            let places = page.hits.iter();
            found.extend(places.map(|hit| (hit.ordinal, hit.match_offset_bytes)));
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                break;
            }
        }
        // 250 hits in the second message, and one hit in each of the others.
        assert_eq!(pages, [100, 100, 52], "descending: {descending}");
        let dense = (0..HITS as u64).map(|at| (2, 2 * at));
        let mut expected: Vec<_> = dense.collect();
        let (first, last) = if descending {
            ((3, 0), (1, 16))
        } else {
            ((1, 16), (3, 0))
        };
        expected.insert(0, first);
        expected.push(last);
        assert_eq!(found, expected, "descending: {descending}");
    }
    // A model continues at a message, so the answer names the message whose other hits are left out.
    let input = json!({"pattern": "x", "max_hits": 20});
    let reply = context.call_tool(tool("dense", &input)).await.unwrap();
    let told: Value = serde_json::from_slice(&reply.into_inner().tool_result_json).unwrap();
    let text = told["content"].as_str().unwrap();
    assert_eq!(
        text.lines().filter(|line| line.contains(" user: ")).count(),
        20
    );
    let note =
        "[message 2 has more hits; messages from 3 on were not searched: ask again with first 3]";
    assert!(text.contains(note), "{text}");
}

#[tokio::test]
async fn a_search_names_the_reader_with_the_prefix_of_the_policy() {
    let shared = SERVER.get();
    let mut context = shared.0.context().await;
    let mut sessions = shared.0.sessions().await;
    let create = CreateSessionRequest {
        parent: "projects/p".into(),
        session_id: "prefixed".into(),
        session: Some(Session {
            policy_overrides: Some(Policy {
                model_tools: Some(ModelToolPolicy {
                    name_prefix: Some("my_".into()),
                    ..ModelToolPolicy::default()
                }),
                ..Policy::default()
            }),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    sessions.create_session(create).await.unwrap();
    context
        .append_messages(append(&name("prefixed"), vec![user("a needle")]))
        .await
        .unwrap();
    let mut request = tool("prefixed", &json!({"pattern": "needle"}));
    if let Some(Call::Payload(payload)) = &mut request.call {
        let input = json!({"pattern": "needle"});
        let call =
            json!({"type": "tool_use", "id": "t", "name": "my_SearchTranscript", "input": input});
        payload.json = call.to_string().into();
    }
    let reply = context.call_tool(request).await.unwrap();
    let told: Value = serde_json::from_slice(&reply.into_inner().tool_result_json).unwrap();
    let text = told["content"].as_str().unwrap();
    assert!(
        text.ends_with("[read any of them with my_ReadTranscript by its number]"),
        "{text}"
    );
}
