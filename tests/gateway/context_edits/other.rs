//! Cleared tool results, and edits that leave with the request.

use serde_json::{Value, json};

use super::{BETAS, CLEARED, Client, SERVED, STEADY, beta, breaks, compact, is_plain};
use crate::agent::Api;
use crate::world::World;

#[tokio::test]
async fn old_tool_results_are_cleared_with_real_counts() {
    let world = World::start(&[SERVED, STEADY]).await;
    let edit = json!({"type": "clear_tool_uses_20250919",
        "trigger": {"type": "tool_uses", "value": 6}, "keep": {"type": "tool_uses", "value": 2}});
    for streams in [false, true] {
        let model = format!("clear-{streams}+agent=16+output-bytes=4000");
        let mut client = Client::new(&world, None, &model, json!([edit]));
        client.streams = streams;
        client.agent.say("Run all rounds.");
        let mut counts = Vec::new();
        loop {
            let response = client.step().await;
            let requests = client.upstream(&world);
            let sent = requests.last().unwrap().body.to_string();
            let cleared = sent.matches(CLEARED).count() as u64;
            let applied = response.applied().as_array().unwrap();
            if cleared == 0 {
                assert!(applied.is_empty(), "{applied:?}");
            } else {
                assert_eq!(applied.len(), 1, "{applied:?}");
                assert_eq!(applied[0]["type"], "clear_tool_uses_20250919");
                assert_eq!(applied[0]["cleared_tool_uses"], cleared);
                let tokens = applied[0]["cleared_input_tokens"].as_u64().unwrap();
                // An output of 4,000 bytes has about 1,000 tokens.
                assert!((600..2_000).contains(&(tokens / cleared)), "{tokens}");
            }
            counts.push(cleared);
            if !response.has_calls {
                break;
            }
        }
        // Seven results are above the trigger, and two of them stay. Five more results follow until the next time.
        let mut steps = counts.clone();
        steps.dedup();
        assert_eq!(steps, [0, 5, 10, 15][..steps.len()], "{counts:?}");
        assert!(steps.len() > 2, "{counts:?}");
        let requests = client.upstream(&world);
        is_plain(&requests);
        assert_eq!(breaks(&requests), steps.len() - 1);
    }
    let mut excluded = edit;
    excluded["exclude_tools"] = json!(["Bash"]);
    let model = "clear-excluded+agent=9+output-bytes=4000";
    let mut client = Client::new(&world, None, model, json!([excluded]));
    client.agent.say("Run all rounds.");
    while client.step().await.has_calls {}
    let requests = client.upstream(&world);
    is_plain(&requests);
    assert_eq!(breaks(&requests), 0);
    assert!(!requests.last().unwrap().body.to_string().contains(CLEARED));
}

#[tokio::test]
async fn edits_that_are_not_served_reach_upstream() {
    let world = World::start(&[SERVED, STEADY]).await;
    let post = async |edits: Value, name: &str| {
        let mut client = Client::new(&world, Some(name), name, edits);
        // A model whose server has the edits.
        client.agent.model = format!("claude-fake-{name}");
        client.agent.say("Hello.");
        let body = client.body().to_string();
        let reply = client.agent.post(Api::Messages.path(), body.clone()).await;
        (reply, client.upstream(&world).pop().unwrap(), body)
    };
    let mut edits = compact(&json!({}));
    let later = json!({"type": "clear_something_20990101", "n": 1});
    edits.as_array_mut().unwrap().push(later.clone());
    let (reply, sent, _) = post(edits, "unknown").await;
    // The provider rejects it in its own words.
    assert_eq!(reply.status, 400);
    assert!(reply.text.contains("clear_something_20990101"), "{reply:?}");
    assert_eq!(sent.body["context_management"], json!({"edits": [later]}));
    assert_eq!(beta(&sent), Some("context-management-2025-06-27"));
    // An invalid edit leaves the request as it came.
    let invalid = compact(&json!({"trigger": {"type": "input_tokens", "value": 10}}));
    let (reply, sent, body) = post(invalid, "invalid").await;
    assert_eq!(reply.status, 400);
    assert!(
        reply.text.contains("greater than or equal to 50000"),
        "{reply:?}"
    );
    assert_eq!(sent.raw, body.as_bytes());
    assert_eq!(beta(&sent), Some(BETAS));
    // Thinking that stays needs no edit.
    let keep = json!([{"type": "clear_thinking_20251015", "keep": "all"}]);
    let (reply, sent, _) = post(keep, "thinking").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    is_plain(&[sent]);
    assert_eq!(
        reply.json()["context_management"],
        json!({"applied_edits": []})
    );
}

#[tokio::test]
async fn an_unmanaged_request_and_a_forwarded_one_leave_as_they_came() {
    let summary = json!({"type": "compaction", "content": "Work was done."});
    let text = json!({"type": "text", "text": "Going on."});
    for (settings, is_managed) in [(&[SERVED][..], false), (&[][..], true)] {
        let world = World::start(settings).await;
        let mut client = Client::new(&world, Some("as-it-came"), "a", compact(&json!({})));
        client.agent.model = "claude-fake-as-it-came".to_owned();
        client.agent.conversation = vec![
            json!({"role": "user", "content": "Begin."}),
            json!({"role": "assistant", "content": [summary, text]}),
        ];
        client.agent.say("And then?");
        let mut body = client.body();
        if !is_managed {
            // The provider keeps a part of such a conversation, so no session takes it.
            client.agent.betas =
                Some("compact-2026-01-12,context-management-2025-06-27,message-threads-2026-08-12");
            body["thread"] = json!({"type": "continue", "previous_message_id": "msg_1"});
        }
        let body = body.to_string();
        let reply = client.agent.post(Api::Messages.path(), body.clone()).await;
        let kind = if is_managed { "original" } else { "unmanaged" };
        assert_eq!(reply.header("x-palimpsest-body"), Some(kind), "{reply:?}");
        let sent = world.upstream().pop().unwrap();
        assert_eq!(sent.raw, body.as_bytes());
        assert_eq!(beta(&sent), client.agent.betas);
    }
}
