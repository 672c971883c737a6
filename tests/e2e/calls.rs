//! Tests of open calls, thinking, usage, budgets and dry runs.

use palimpsest_proto::context::v1::{
    BudgetState, GetSessionRequest, MessageInput, NotSendableReason, PrepareContextRequest,
    PrepareContextResponse, Provider, RepairKind, Target, TokenMethod, WarningCode,
};
use palimpsest_tests::array::{check_prefix, flat};
use palimpsest_tests::say::{
    anthropic, append, assistant, assistant_calls, prepare, result, target, user,
};
use palimpsest_tests::{Array, name, refused};
use serde_json::{Value, json};
use tonic::Code;

use crate::SERVER;

async fn ask(request: PrepareContextRequest) -> PrepareContextResponse {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    client.prepare_context(request).await.unwrap().into_inner()
}

fn response(tokens: u64) -> MessageInput {
    anthropic(&json!({
        "id": format!("msg_{tokens}"), "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "usage": {"input_tokens": tokens, "output_tokens": 10},
    }))
}

#[tokio::test]
async fn open_calls_are_reported_and_closed_only_on_request() {
    let _shared = SERVER.get();
    let session = name("open");
    let mut array = Array::default();
    let said = vec![
        user("go"),
        assistant_calls(&["a", "b"]),
        result("a", "found"),
    ];
    let reply = ask(prepare(&session, said)).await;
    assert!(!reply.sendable);
    assert_eq!(reply.not_sendable_reason(), NotSendableReason::OpenCalls);
    let open: Vec<_> = reply
        .open_calls
        .iter()
        .map(|call| call.call.clone().unwrap())
        .collect();
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].tool_use_id, "b");
    assert_ne!(open[0].call_key, "");
    array.take(&reply);
    let mut request = prepare(&session, Vec::new());
    request.interrupt_open_calls = true;
    request.known_etag = array.etag.clone();
    let reply = ask(request).await;
    assert!(reply.sendable && reply.open_calls.is_empty());
    let kinds: Vec<_> = reply
        .repairs
        .iter()
        .map(palimpsest_proto::context::v1::Repair::kind)
        .collect();
    assert!(kinds.contains(&RepairKind::CallInterrupted), "{kinds:?}");
    let before = flat(&array.messages);
    array.take(&reply);
    check_prefix(&before, &flat(&array.messages));
    let values = array.values();
    let last = values.last().unwrap()["content"]
        .as_array()
        .unwrap()
        .last()
        .unwrap();
    assert_eq!(
        (&last["tool_use_id"], &last["is_error"]),
        (&json!("b"), &json!(true))
    );
    // The late result is shown once, as text at the end. The served part does not change.
    let mut request = prepare(&session, vec![assistant("well"), result("b", "LATE")]);
    request.known_etag = array.etag.clone();
    let reply = ask(request).await;
    let before = flat(&array.messages);
    array.take(&reply);
    check_prefix(&before, &flat(&array.messages));
    let kinds: Vec<_> = reply
        .repairs
        .iter()
        .map(palimpsest_proto::context::v1::Repair::kind)
        .collect();
    assert!(kinds.contains(&RepairKind::LateResultAsText), "{kinds:?}");
    let all = String::from_utf8(array.messages.concat()).unwrap();
    assert_eq!(all.matches("LATE").count(), 1, "{all}");
}

#[tokio::test]
async fn a_trailing_assistant_message_is_not_sendable() {
    let _shared = SERVER.get();
    let reply = ask(prepare(&name("ends"), vec![user("a"), assistant("b")])).await;
    assert_eq!(
        reply.not_sendable_reason(),
        NotSendableReason::EndsWithAssistant
    );
    assert!(!reply.sendable);
    let reply = ask(prepare(&name("ends"), vec![user("c")])).await;
    assert!(reply.sendable);
}

#[tokio::test]
async fn p16_thinking_is_verbatim_for_its_model_and_absent_for_another() {
    let _shared = SERVER.get();
    let thinking = json!({"type": "thinking", "thinking": "hmm\u{e9}", "signature": "c2ln=="});
    let said = json!({
        "id": "msg_t", "type": "message", "role": "assistant", "model": "thinker",
        "content": [thinking, {"type": "text", "text": "so"}],
    });
    let own = Target {
        thinking: true,
        ..target(Provider::Anthropic, "thinker")
    };
    let mut request = prepare(&name("p16"), vec![user("q"), anthropic(&said), user("r")]);
    request.target = Some(own.clone());
    let reply = ask(request).await;
    let message: Value = serde_json::from_slice(&reply.messages_json[1]).unwrap();
    assert_eq!(message["content"][0], thinking);
    for other in [
        Target {
            thinking: true,
            ..target(Provider::Anthropic, "other")
        },
        target(Provider::Anthropic, "thinker"),
        target(Provider::Openai, "gpt"),
    ] {
        let mut request = prepare(&name("p16"), Vec::new());
        request.target = Some(other.clone());
        let reply = ask(request).await;
        let all = String::from_utf8(reply.messages_json.concat()).unwrap();
        assert!(
            !all.contains("c2ln") && all.contains("so"),
            "{other:?}: {all}"
        );
    }
    // The original target gives the original bytes again.
    let mut request = prepare(&name("p16"), Vec::new());
    request.target = Some(own);
    assert_eq!(ask(request).await.messages_json, reply.messages_json);
}

#[tokio::test]
async fn p17_usage_within_the_window_becomes_the_anchor() {
    let _shared = SERVER.get();
    let window = |tokens| {
        Some(Target {
            window_tokens: Some(tokens),
            max_output_tokens: Some(32_000),
            ..target(Provider::Anthropic, "m")
        })
    };
    let mut request = prepare(&name("p17"), vec![user("a"), response(50_000)]);
    request.target = window(200_000);
    let reply = ask(request).await;
    let tokens = reply.tokens.unwrap();
    // The input and the output of the response: 50,000 + 10.
    assert_eq!(
        (tokens.total_tokens, tokens.anchor_tokens),
        (50_010, 50_010)
    );
    assert_eq!(tokens.method(), TokenMethod::Reported);
    let budget = reply.budget.unwrap();
    assert_eq!(
        (budget.window_tokens, budget.used_tokens),
        (200_000, 50_010)
    );
    // The reserve for the output is 20,000 tokens, and the buffer before the compaction 13,000.
    assert_eq!(budget.effective_window_tokens, 180_000);
    assert!(budget.auto_enabled);
    assert_eq!(budget.compact_at_tokens, 167_000);
    // The warning is 20,000 below the compaction. The block is 3,000 below the effective window.
    assert_eq!(
        (budget.warn_at_tokens, budget.block_at_tokens),
        (147_000, 177_000)
    );
    assert_eq!(budget.state(), BudgetState::Normal);

    let mut request = prepare(&name("p17"), vec![user("more")]);
    request.target = window(200_000);
    let tokens = ask(request).await.tokens.unwrap();
    assert_eq!(tokens.method(), TokenMethod::ReportedAndEstimated);
    assert_eq!(tokens.total_tokens, 50_010 + tokens.tail_tokens);

    // A usage above the window cannot belong to this view.
    let mut request = prepare(&name("p17"), vec![response(900_000), user("go on")]);
    request.target = window(200_000);
    let reply = ask(request).await;
    let codes: Vec<_> = reply
        .warnings
        .iter()
        .map(palimpsest_proto::context::v1::Warning::code)
        .collect();
    assert!(codes.contains(&WarningCode::UsageIgnored), "{codes:?}");
    assert_eq!(reply.tokens.unwrap().anchor_tokens, 50_010);
    assert_eq!(reply.view_messages, 5, "the message must be in the view");
}

#[tokio::test]
async fn p17_a_window_of_a_million_tokens_is_supported() {
    let _shared = SERVER.get();
    let mut request = prepare(
        &name("p17-1m"),
        vec![user("a"), response(170_000), user("b")],
    );
    request.target = Some(Target {
        window_tokens: Some(1_000_000),
        ..target(Provider::Anthropic, "m")
    });
    let budget = ask(request).await.budget.unwrap();
    assert_eq!(budget.window_tokens, 1_000_000);
    assert_eq!(budget.state(), BudgetState::Normal);
    assert!(budget.compact_at_tokens > 900_000);
}

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let _shared = SERVER.get();
    let shared = SERVER.get();
    let mut sessions = shared.0.sessions().await;
    let mut request = prepare(&name("dry"), vec![user("a")]);
    request.dry_run = true;
    let reply = ask(request.clone()).await;
    assert_eq!((reply.view_messages, reply.sendable), (1, true));
    let get = GetSessionRequest {
        session: name("dry"),
        ..GetSessionRequest::default()
    };
    let status = sessions.get_session(get.clone()).await.unwrap_err();
    refused(&status, Code::NotFound, "SESSION_NOT_FOUND");
    let mut client = shared.0.context().await;
    client
        .append_messages(append(&name("dry"), vec![user("real")]))
        .await
        .unwrap();
    let before = sessions
        .get_session(get.clone())
        .await
        .unwrap()
        .into_inner();
    let reply = ask(request).await;
    assert!(
        String::from_utf8(reply.messages_json.concat())
            .unwrap()
            .contains("real")
    );
    assert_eq!(
        sessions.get_session(get).await.unwrap().into_inner(),
        before
    );
    let after = ask(prepare(&name("dry"), Vec::new())).await;
    let all = String::from_utf8(after.messages_json.concat()).unwrap();
    assert!(!all.contains("\"a\""), "{all}");
}
