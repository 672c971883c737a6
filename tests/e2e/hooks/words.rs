//! Tests of the effects of hooks: instructions, verbatim texts, messages, and the rejection of a computed compaction.

use std::time::Duration;

use palimpsest_proto::context::v1::commit_summary_request::Outcome;
use palimpsest_proto::context::v1::{
    BudgetState, CommitSummaryRequest, CompactRequest, CompactionFailureReason, CompactionStrategy,
    FileState, GetSessionMemoryRequest, HookKind, HookResult, LevelAction, ListMessagesRequest,
    MemoryState, MessageKind, PostCompactResponse, PreCompactResponse, Role, SessionStartResponse,
    Target, level_report::Detail,
};
use palimpsest_tests::say::{anthropic, assistant, assistant_call, prepare, result, typed, user};
use palimpsest_tests::{name, refused};
use serde_json::json;
use tonic::Code;

use super::{Answers, World, outcomes, stage, text, turn, work};

/// Generous, because this limit must only detect hangs.
const PATIENCE: Duration = Duration::from_mins(2);

/// A text that no summary contains by itself.
const KEPT: &str = "  port 4711\n\tstays  ";

fn wishes(instructions: &str, must_keep: &[&str]) -> Answers {
    Answers {
        pre: PreCompactResponse {
            additional_instructions: instructions.to_owned(),
            must_keep: must_keep.iter().map(|text| (*text).to_owned()).collect(),
            ..PreCompactResponse::default()
        },
        ..Answers::default()
    }
}

fn says(messages: &[&str]) -> Answers {
    let messages = messages.iter().map(|text| typed(Role::User, text));
    Answers {
        start: SessionStartResponse {
            messages: messages.collect(),
        },
        ..Answers::default()
    }
}

/// Returns the first text of a view, which is the summary's message.
fn first_text(array: &palimpsest_tests::Array) -> String {
    let values = array.values();
    let content = &values[0]["content"];
    let text = content[0]["text"].as_str().or(content.as_str());
    text.unwrap().to_owned()
}

/// Returns the sealed blocks, regardless of the messages that contain them.
fn blocks(array: &palimpsest_tests::Array) -> Vec<serde_json::Value> {
    let values = array.values().into_iter();
    let blocks = values.map(|message| message["content"].as_array().unwrap().clone());
    blocks.flatten().collect()
}

/// Creates a session with session memory, in a world with a worker.
async fn with_memory(world: &mut World, session: &str) {
    let words = |tokens: usize| "the importer reads every row and maps it ".repeat(tokens / 10);
    let mut messages = Vec::new();
    for number in 0..8 {
        let id = format!("w{number}");
        messages.push(user(&format!("Please mend module {number}.")));
        messages.push(assistant_call(&id));
        messages.push(result(&id, &words(6_000)));
        messages.push(assistant("It is mended."));
    }
    world.view(session, messages).await;
    for _ in 0..2_000 {
        let request = GetSessionMemoryRequest {
            session: name(session),
            ..GetSessionMemoryRequest::default()
        };
        let memory = world.client.get_session_memory(request).await.unwrap();
        let memory = memory.into_inner().memory.unwrap();
        if memory.state() == MemoryState::Ready && !memory.running {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("session memory has no version");
}

const WORKER: [&str; 2] = ["worker.enabled=true", "worker.poll_ms=50"];

#[tokio::test]
async fn hook_instructions_reach_the_model_and_disable_session_memory() {
    let mut world = World::new(&WORKER).await;
    with_memory(&mut world, "s").await;
    world.hook.answers(wishes("Name the lamp maker.", &[]));
    let compaction = world
        .compact("s", CompactionStrategy::Unspecified)
        .await
        .unwrap();
    assert_eq!(compaction.strategy(), CompactionStrategy::Model);
    // The hook is called with the planned strategy. Its instructions then need a model, because session memory is fixed
    // text.
    assert_eq!(
        world.hook.asked().pre[0].strategy(),
        CompactionStrategy::SessionMemory
    );
    let requests = world.provider.requests();
    let asked = requests.iter().map(|request| request.body.to_string());
    let asked: Vec<String> = asked
        .filter(|body| body.contains("A hook of the user's adds:"))
        .collect();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].contains("Name the lamp maker."));
    let shown = text(&world.view("s", vec![]).await);
    assert!(shown.contains("Please mend module 7.") && !shown.contains("Please mend module 0.\""));

    // Without instructions, session memory is used.
    with_memory(&mut world, "t").await;
    world.hook.answers(wishes("", &[]));
    let compaction = world
        .compact("t", CompactionStrategy::Unspecified)
        .await
        .unwrap();
    assert_eq!(compaction.strategy(), CompactionStrategy::SessionMemory);
    assert_eq!(outcomes(&compaction).len(), 3);
}

#[tokio::test]
async fn session_memory_is_the_same_with_and_without_hooks() {
    let mut world = World::new(&WORKER).await;
    with_memory(&mut world, "s").await;
    // A dry run calls no hook.
    let request = CompactRequest {
        session: name("s"),
        strategy: CompactionStrategy::SessionMemory.into(),
        dry_run: true,
        ..CompactRequest::default()
    };
    let without = world.client.compact(request).await.unwrap().into_inner();
    let without = without.compaction.unwrap();
    assert!(without.hook_outcomes.is_empty(), "{without:?}");
    let with = world
        .compact("s", CompactionStrategy::SessionMemory)
        .await
        .unwrap();
    assert_eq!(outcomes(&with).len(), 3);
    assert_eq!(with.summary, without.summary);
}

#[tokio::test]
async fn a_prepared_summary_is_used_manually_if_session_memory_lags() {
    let mut world = World::new(&[
        WORKER[0],
        WORKER[1],
        "policy.autocompact.prepare_ahead=true",
        // The warning threshold is 107,000 tokens: 200,000 minus 20,000, 13,000 and 60,000.
        "policy.autocompact.warn_buffer_tokens=60000",
        "policy.session_memory.keep_max_tokens=20000",
    ])
    .await;
    with_memory(&mut world, "s").await;
    // Without the worker, session memory falls behind.
    for arg in &mut world.args {
        if arg == WORKER[0] {
            "worker.enabled=false".clone_into(arg);
        }
    }
    world.restart().await;
    // Above the warning threshold of this window and below its compaction threshold.
    let words = |number: u32| format!("note {number} of the importer maps a row\n").repeat(1_000);
    let messages = (0..4).flat_map(|number| [user(&words(number)), assistant("Noted.")]);
    let mut request = prepare(&name("s"), messages.collect());
    request.target = Some(Target {
        window_tokens: Some(200_000),
        ..Target::default()
    });
    let reply = world.client.prepare_context(request).await.unwrap();
    let budget = reply.into_inner().budget.unwrap();
    assert_eq!(budget.state(), BudgetState::Warning, "{budget:?}");
    let rehearsal = CompactRequest {
        session: name("s"),
        dry_run: true,
        ..CompactRequest::default()
    };
    let began = tokio::time::Instant::now();
    loop {
        let reply = world.client.compact(rehearsal.clone()).await.unwrap();
        // A dry run reports a model only if a prepared summary exists.
        if reply.into_inner().compaction.unwrap().model == "claude-fake" {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "no summary was written ahead");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let requests = world.provider.requests().len();

    let compaction = world
        .compact("s", CompactionStrategy::Unspecified)
        .await
        .unwrap();
    assert_eq!(compaction.strategy(), CompactionStrategy::Model);
    assert_eq!(compaction.model, "claude-fake");
    assert_eq!(world.provider.requests().len(), requests);
    // `PreCompact` was called when the summary was prepared.
    assert_eq!(world.hook.count(), (1, 1, 1));
}

#[tokio::test]
async fn kept_texts_are_verbatim_for_every_strategy() {
    let mut world = World::new(&WORKER).await;
    world
        .hook
        .answers(wishes("", &[KEPT, "the key is AKIAIOSFODNN7EXAMPLE"]));
    for strategy in [
        CompactionStrategy::Model,
        CompactionStrategy::Extractive,
        CompactionStrategy::SessionMemory,
    ] {
        let session = format!("s{strategy:?}");
        if strategy == CompactionStrategy::SessionMemory {
            with_memory(&mut world, &session).await;
        } else {
            world.view(&session, work()).await;
        }
        let compaction = world.compact(&session, strategy).await.unwrap();
        assert_eq!(compaction.strategy(), strategy);
        let shown = first_text(&world.view(&session, vec![]).await);
        for shown in [&compaction.summary, &shown] {
            assert!(
                shown.contains(&format!("<kept>\n{KEPT}\n</kept>")),
                "{strategy:?}: {shown}"
            );
            assert!(
                !shown.contains("AKIAIOSFODNN7EXAMPLE"),
                "{strategy:?}: {shown}"
            );
            assert!(
                shown.contains("the key is [redacted: "),
                "{strategy:?}: {shown}"
            );
        }
    }
}

#[tokio::test]
async fn hooks_apply_to_a_delegated_request_and_its_commit() {
    let mut world = World::new(&[]).await;
    world.view("s", work()).await;
    let mut answers = wishes("Name the lamp maker.", &[KEPT]);
    answers.start = says(&["The branch is main."]).start;
    world.hook.answers(answers);
    let request = CompactRequest {
        session: name("s"),
        strategy: CompactionStrategy::Delegated.into(),
        request_id: "once".into(),
        ..CompactRequest::default()
    };
    let reply = world
        .client
        .compact(request.clone())
        .await
        .unwrap()
        .into_inner();
    let again = world.client.compact(request).await.unwrap().into_inner();
    let delegated = reply.delegated_request.unwrap();
    assert_eq!(again.delegated_request.unwrap(), delegated);
    assert_eq!(
        world.hook.count(),
        (1, 0, 0),
        "an idempotent repeat must not call hooks again"
    );
    assert!(String::from_utf8_lossy(&delegated.request_json).contains("Name the lamp maker."));

    let section = |title: &str| format!("## {title}\nTwo blinks.\n");
    let sections = ["Primary request and intent", "Current work", "Next step"].map(section);
    let commit = CommitSummaryRequest {
        session: name("s"),
        delegation_token: delegated.delegation_token,
        outcome: Some(Outcome::Summary(format!(
            "<summary>\n{}</summary>",
            sections.concat()
        ))),
        ..CommitSummaryRequest::default()
    };
    let mut rejecting = wishes("", &[]);
    rejecting.post = PostCompactResponse {
        reject_reason: Some("too thin".to_owned()),
    };
    let committed = world
        .client
        .commit_summary(commit.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(outcomes(committed.compaction.as_ref().unwrap()).len(), 3);
    let shown = world.view("s", vec![]).await;
    assert!(first_text(&shown).contains(&format!("<kept>\n{KEPT}\n</kept>")));
    assert!(text(&shown).contains("The branch is main."));
    assert_eq!(world.hook.count(), (1, 1, 1));

    // A hook can also reject a caller's own summary.
    world.view("t", work()).await;
    world.hook.answers(rejecting);
    let request = CompactRequest {
        session: name("t"),
        strategy: CompactionStrategy::Delegated.into(),
        ..CompactRequest::default()
    };
    let reply = world.client.compact(request).await.unwrap().into_inner();
    let commit = CommitSummaryRequest {
        session: name("t"),
        delegation_token: reply.delegated_request.unwrap().delegation_token,
        ..commit
    };
    let refusal = world.client.commit_summary(commit).await.unwrap_err();
    let metadata = refused(&refusal, Code::FailedPrecondition, "HOOK_VETOED");
    assert_eq!(metadata["hook"], "PostCompact");
}

#[tokio::test]
async fn a_summary_rejected_by_a_hook_leaves_the_view_unchanged() {
    let mut world = World::new(&[]).await;
    let before = world.view("s", work()).await;
    world.hook.answers(Answers {
        post: PostCompactResponse {
            reject_reason: Some("it does not name the port".to_owned()),
        },
        ..says(&["never seen"])
    });
    let refusal = world
        .compact("s", CompactionStrategy::Extractive)
        .await
        .unwrap_err();
    let metadata = refused(&refusal, Code::FailedPrecondition, "HOOK_VETOED");
    assert_eq!(metadata["reason"], "it does not name the port");
    assert_eq!(world.view("s", vec![]).await.messages, before.messages);
    assert_eq!(world.hook.count(), (1, 1, 0));

    let mut larger = vec![user(&"And more lamps. ".repeat(900))];
    larger.push(assistant("Yes."));
    let reply = turn(&mut world.client, "s", larger).await;
    let rejected = stage(&reply);
    assert_eq!(rejected.action(), LevelAction::Failed);
    let Some(Detail::Compaction(compaction)) = &rejected.detail else {
        panic!("{rejected:?}");
    };
    let failure = compaction.failure.as_ref().unwrap();
    assert_eq!(failure.reason(), CompactionFailureReason::HookVetoed);
    // A rejected summary counts as a failure. A veto before the summary does not.
    assert_eq!(failure.consecutive_failures, 1);
    assert_eq!(
        outcomes(compaction),
        [
            (HookKind::PreCompact, HookResult::Continued),
            (HookKind::PostCompact, HookResult::Vetoed)
        ]
    );
}

#[tokio::test]
async fn hook_messages_follow_the_summary_until_the_next_compaction() {
    let mut world = World::new(&[]).await;
    world.view("s", work()).await;
    world
        .hook
        .answers(says(&["The branch is main.", "The port is 4711."]));
    let compaction = world
        .compact("s", CompactionStrategy::Extractive)
        .await
        .unwrap();
    let added = &compaction.hook_outcomes[2].message_ids;
    assert_eq!(added.len(), 2);
    let shown = text(&world.view("s", vec![]).await);
    let at = |what: &str| {
        shown
            .find(what)
            .unwrap_or_else(|| panic!("{what}: {shown}"))
    };
    assert!(at("</conversation-summary>") < at("The branch is main."));
    assert!(at("The branch is main.") < at("The port is 4711."));
    let request = ListMessagesRequest {
        session: name("s"),
        page_size: 100,
        ..ListMessagesRequest::default()
    };
    let mut sessions = world.server.sessions().await;
    let listed = sessions.list_messages(request).await.unwrap().into_inner();
    let of_hooks = listed
        .messages
        .iter()
        .filter(|message| added.contains(&message.id));
    let kinds: Vec<_> = of_hooks
        .map(|message| message.metadata.as_ref().unwrap().kind())
        .collect();
    assert_eq!(kinds, [MessageKind::Hook; 2]);

    // The served messages stay, and the next summary includes them.
    let before = world.view("s", vec![]).await;
    let after = world.view("s", work()).await;
    let (before, after) = (blocks(&before), blocks(&after));
    assert_eq!(after[..before.len()], before[..]);
    world.hook.answers(Answers::default());
    world
        .compact("s", CompactionStrategy::Extractive)
        .await
        .unwrap();
    let shown = text(&world.view("s", vec![]).await);
    assert!(
        !shown.contains("The branch is main.") && !shown.contains("The port is 4711."),
        "{shown}"
    );
}

#[tokio::test]
async fn files_of_the_hook_are_attached_with_their_current_content() {
    let mut world = World::new(&[]).await;
    let mut said = work();
    let read = json!({"role": "assistant", "content": [{
        "type": "tool_use", "id": "r1", "name": "Read", "input": {"file_path": "/repo/lamp.rs"},
    }]});
    said.extend([
        anthropic(&read),
        result("r1", "old content"),
        assistant("Read."),
        user("On."),
    ]);
    world.view("s", said).await;
    world.hook.answers(Answers {
        pre: PreCompactResponse {
            files: vec![FileState {
                path: "/repo/lamp.rs".into(),
                content: "new content".into(),
                ..FileState::default()
            }],
            ..PreCompactResponse::default()
        },
        ..Answers::default()
    });
    let compaction = world.compact("s", CompactionStrategy::Extractive).await;
    let compaction = compaction.unwrap();
    let names: Vec<&str> = compaction.attachments.iter().map(|it| &*it.name).collect();
    assert!(names.contains(&"/repo/lamp.rs"), "{compaction:#?}");
    let shown = text(&world.view("s", vec![]).await);
    assert!(
        shown.contains("new content") && !shown.contains("old content"),
        "{shown}"
    );
}
