//! Tests of the numbers that `palimpsest inspect` prints.

use palimpsest_proto::context::v1::{AdoptedCompaction, AppendMessagesRequest};
use palimpsest_tests::Server;
use palimpsest_tests::say::{anthropic, append, user};
use serde_json::json;

use super::said;

/// Returns the tokens that the output of `inspect` gives for a kind of content.
fn tokens(inspected: &str, kind: &str) -> u64 {
    let (_, rest) = inspected
        .split_once(&format!(" {kind} "))
        .unwrap_or_else(|| panic!("no {kind:?} in:\n{inspected}"));
    let number = rest.split_whitespace().next().unwrap();
    number.replace(',', "").parse().unwrap()
}

/// The provider counts a system prompt and tools that the caller did not declare. They are not a part of the summary.
#[tokio::test]
async fn the_tokens_of_memory_are_those_of_the_summary_alone() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ["--set", "worker.enabled=false"];
    let server = Server::start(&folder.path().join("data"), &settings);
    let session = "projects/default/sessions/work";
    let mut context = server.context().await;
    let answer = |id: &str| {
        anthropic(&json!({
            "role": "assistant",
            "id": id,
            "content": [{"type": "text", "text": "done"}],
            "usage": {"input_tokens": 40_000, "output_tokens": 10},
        }))
    };
    let first = vec![user("do the work"), answer("msg_1")];
    context
        .append_messages(append(session, first))
        .await
        .unwrap();
    // 15,000 letters are about 5,000 tokens.
    let summary = AppendMessagesRequest {
        adopted_compaction: Some(AdoptedCompaction::default()),
        ..append(session, vec![user(&"x".repeat(15_000))])
    };
    context.append_messages(summary).await.unwrap();
    let inspect = || said(&["inspect", "work", "--server", server.address()]);
    // The count of the provider is known from the request before the compaction, and then from one after it.
    for round in ["before", "after"] {
        let inspected = inspect();
        let (memory, system) = (tokens(&inspected, "memory"), tokens(&inspected, "system"));
        assert!((4_500..5_500).contains(&memory), "{round}:\n{inspected}");
        assert!((34_000..41_000).contains(&system), "{round}:\n{inspected}");
        let next = vec![answer("msg_2")];
        context
            .append_messages(append(session, next))
            .await
            .unwrap();
    }
}
