//! Tests that searches end with their call, whatever the pattern is.

use std::time::Duration;

use palimpsest_proto::context::v1::call_tool_request::Call;
use palimpsest_proto::context::v1::{
    CallToolRequest, Format, Payload, SearchMessagesRequest, TextPattern, text_pattern,
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
async fn an_expensive_pattern_neither_outlives_its_call_nor_starves_others() {
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
async fn a_search_that_stopped_early_continues_from_its_token() {
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
