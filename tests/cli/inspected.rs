//! Tests of the numbers that `palimpsest inspect` prints.

use palimpsest_proto::context::v1::{AdoptedCompaction, AppendMessagesRequest};
use palimpsest_tests::Server;
use palimpsest_tests::say::{anthropic, append, assistant, prepare, user, uuid, with_id};
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

#[tokio::test]
async fn messages_are_listed_in_the_order_of_the_view_and_cut() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let session = "projects/default/sessions/work";
    let mut context = server.context().await;
    let texts: Vec<_> = (0..40)
        .map(|n| json!({"type": "text", "text": format!("part {n} {}", "x".repeat(50))}))
        .collect();
    let first = vec![
        user("the first request"),
        with_id(&uuid(2), assistant("the kept answer")),
        with_id(&uuid(3), user("the kept request")),
        with_id(
            &uuid(4),
            anthropic(&json!({"role": "assistant", "content": texts})),
        ),
    ];
    context
        .prepare_context(prepare(session, first))
        .await
        .unwrap();
    let summary = AppendMessagesRequest {
        adopted_compaction: Some(AdoptedCompaction {
            kept_message_ids: vec![uuid(2), uuid(3), uuid(4)],
            ..AdoptedCompaction::default()
        }),
        ..append(session, vec![user("the text of the summary")])
    };
    context.append_messages(summary).await.unwrap();
    context
        .append_messages(append(session, vec![user("the next request")]))
        .await
        .unwrap();
    let inspected = said(&["inspect", "work", "--server", server.address()]);
    let places = [
        "the text of the summary",
        "the kept answer",
        "the kept request",
        "part 0",
        "the next request",
    ]
    .map(|text| {
        inspected
            .find(text)
            .unwrap_or_else(|| panic!("no {text:?} in:\n{inspected}"))
    });
    assert!(places.is_sorted(), "{places:?}:\n{inspected}");
    let longest = inspected.lines().map(|line| line.chars().count()).max();
    assert!(longest < Some(250), "{longest:?}:\n{inspected}");
}
