//! Tests of hooks that do not answer, answer too much, or do not exist.

use std::time::Duration;

use palimpsest_proto::context::v1::{
    CompactRequest, CompactionStrategy, CreateSessionRequest, HookKind, HookPolicy, HookResult,
    Policy, PreCompactResponse, Role, Session, SessionStartResponse,
};
use palimpsest_tests::say::typed;
use palimpsest_tests::{ReservedPort, refused, refused_field};
use tonic::{Code, Status};

use super::{Answers, Hook, World, outcomes, work};

/// Timeouts that are short enough for a test and much shorter than the delay.
const QUICK: [&str; 3] = [
    "policy.hooks.pre_compact.timeout=0.3s",
    "policy.hooks.post_compact.timeout=0.3s",
    "policy.hooks.session_start.timeout=0.3s",
];
const STOP: [&str; 3] = [
    "policy.hooks.pre_compact.on_failure=stop",
    "policy.hooks.post_compact.on_failure=stop",
    "policy.hooks.session_start.on_failure=stop",
];

fn slow() -> Answers {
    Answers {
        delay: Duration::from_secs(20),
        ..Answers::default()
    }
}

/// Returns invalid answers of a hook, with the expected error text of each.
fn ill() -> Vec<(Answers, &'static str)> {
    let pre = |instructions: String, must_keep: Vec<String>| Answers {
        pre: PreCompactResponse {
            additional_instructions: instructions,
            must_keep,
            ..PreCompactResponse::default()
        },
        ..Answers::default()
    };
    vec![
        (slow(), "did not respond within"),
        (
            Answers {
                status: Some(Status::permission_denied("who are you")),
                ..Answers::default()
            },
            "PermissionDenied: who are you",
        ),
        (
            pre("x".repeat(16 * 1024 + 1), vec![]),
            "additional_instructions must have at most",
        ),
        (
            pre(String::new(), vec!["x".to_owned(); 21]),
            "must_keep must have at most 20",
        ),
        // 5 MiB exceed the limit of 4 MiB for a reply of a hook. gRPC reports this as `OutOfRange`.
        (pre(String::new(), vec!["x".repeat(5 << 20)]), "OutOfRange"),
    ]
}

#[tokio::test]
async fn a_failing_hook_stops_a_compaction_only_if_configured() {
    let mut world = World::new(&QUICK).await;
    for (at, (answers, said)) in ill().into_iter().enumerate() {
        let session = format!("s{at}");
        world.hook.answers(Answers::default());
        world.view(&session, work()).await;
        world.hook.answers(answers);
        let compaction = world
            .compact(&session, CompactionStrategy::Extractive)
            .await
            .unwrap();
        let first = &compaction.hook_outcomes[0];
        assert_eq!(first.result(), HookResult::FailedContinued, "{said}");
        assert!(first.detail.contains(said), "{said}: {}", first.detail);
        assert!(first.detail.len() <= 512);
        let shown = world.view(&session, vec![]).await;
        assert!(!super::text(&shown).contains("tool_result"), "{said}");
    }

    let mut world = World::new(&[QUICK, STOP].concat()).await;
    let before = world.view("s", work()).await;
    for (answers, said) in ill() {
        world.hook.answers(answers);
        let refusal = world
            .compact("s", CompactionStrategy::Extractive)
            .await
            .unwrap_err();
        let metadata = refused(&refusal, Code::FailedPrecondition, "HOOK_FAILED");
        assert_eq!(metadata["hook"], "PreCompact", "{said}");
        assert!(refusal.message().contains(said), "{said}: {refusal:?}");
        assert_eq!(
            world.view("s", vec![]).await.messages,
            before.messages,
            "{said}"
        );
    }
    let called = world.called("s").await;
    assert_eq!(called.len(), ill().len());
    assert!(called.iter().all(|it| {
        let outcome = it.outcome.as_ref().unwrap();
        outcome.result() == HookResult::FailedStopped
    }));
}

#[tokio::test]
async fn invalid_hook_messages_are_rejected_completely() {
    let mut world = World::new(&[]).await;
    let said = |role: Role, count: usize| SessionStartResponse {
        messages: vec![typed(role, "I was here"); count],
    };
    for (at, start) in [
        said(Role::Assistant, 1),
        said(Role::System, 1),
        said(Role::User, 101),
    ]
    .into_iter()
    .enumerate()
    {
        let session = format!("s{at}");
        world.view(&session, work()).await;
        world.hook.answers(Answers {
            start,
            ..Answers::default()
        });
        let compaction = world
            .compact(&session, CompactionStrategy::Extractive)
            .await
            .unwrap();
        // The outcomes have the order `PreCompact`, `PostCompact`, `SessionStart`.
        let last = (HookKind::SessionStart, HookResult::FailedContinued);
        assert_eq!(outcomes(&compaction)[2], last);
        assert!(compaction.hook_outcomes[2].message_ids.is_empty());
        let shown = super::text(&world.view(&session, vec![]).await);
        assert!(!shown.contains("I was here"), "{shown}");
    }
}

#[tokio::test]
async fn an_unreachable_hook_is_reported_and_reconnected() {
    // Connections to the port are refused until a hook listens on it.
    let port = ReservedPort::reserve();
    let url = format!("hooks.endpoints.own.url=http://{}", port.address());
    let mut world = World::new(&[&url]).await;
    world.view("s", work()).await;
    let compaction = world
        .compact("s", CompactionStrategy::Extractive)
        .await
        .unwrap();
    for outcome in &compaction.hook_outcomes {
        assert_eq!(outcome.result(), HookResult::FailedContinued);
        assert!(outcome.detail.contains("refused"), "{}", outcome.detail);
    }
    let hook = Hook::on(port.listen());
    world.view("t", work()).await;
    let compaction = world
        .compact("t", CompactionStrategy::Extractive)
        .await
        .unwrap();
    let found = compaction.hook_outcomes.iter();
    assert!(
        found
            .clone()
            .all(|outcome| outcome.result() == HookResult::Continued)
    );
    assert_eq!(hook.count(), (1, 1, 1));
}

#[tokio::test]
async fn a_session_can_name_only_configured_endpoints() {
    let other = Hook::start();
    let url = format!("hooks.endpoints.other.url={}", other.url);
    let mut world = World::new(&[&url]).await;
    let mut sessions = world.server.sessions().await;
    let create = |id: &str, endpoint: &str| CreateSessionRequest {
        parent: "projects/p".into(),
        session_id: id.into(),
        session: Some(Session {
            policy_overrides: Some(Policy {
                hooks: Some(HookPolicy {
                    endpoint: Some(endpoint.into()),
                    ..HookPolicy::default()
                }),
                ..Policy::default()
            }),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    let refusal = sessions
        .create_session(create("s", "http://elsewhere"))
        .await
        .unwrap_err();
    refused_field(&refusal, "session.policy_overrides.hooks.endpoint");
    assert!(refusal.message().contains("other, own"), "{refusal:?}");
    sessions.create_session(create("s", "other")).await.unwrap();
    world.view("s", work()).await;
    world
        .compact("s", CompactionStrategy::Extractive)
        .await
        .unwrap();
    assert_eq!((other.count(), world.hook.count()), ((1, 1, 1), (0, 0, 0)));
}

#[tokio::test]
async fn a_hook_does_not_exceed_the_deadline_of_the_caller() {
    let mut world = World::new(&[]).await;
    world.view("s", work()).await;
    world.hook.answers(slow());
    let mut request = tonic::Request::new(CompactRequest {
        session: palimpsest_tests::name("s"),
        strategy: CompactionStrategy::Extractive.into(),
        ..CompactRequest::default()
    });
    request.set_timeout(Duration::from_secs(4));
    // Each hook uses at most half of the remaining time, so that time is left for the next.
    let reply = world.client.compact(request).await.unwrap().into_inner();
    let outcomes = outcomes(&reply.compaction.unwrap());
    assert_eq!(outcomes.len(), 3);
    assert!(
        outcomes
            .iter()
            .all(|(_, result)| *result == HookResult::FailedContinued)
    );
}

#[tokio::test]
async fn a_compaction_orphaned_during_a_hook_call_ends() {
    // On a shared store, another process may run the compaction, so it ends at its deadline only.
    if palimpsest_tests::is_on_a_database() {
        return;
    }
    let mut world = World::new(&[]).await;
    let before = world.view("s", work()).await;
    world.hook.answers(slow());
    let mut other = world.server.context().await;
    let request = CompactRequest {
        session: palimpsest_tests::name("s"),
        strategy: CompactionStrategy::Extractive.into(),
        ..CompactRequest::default()
    };
    let again = request.clone();
    let compacting = tokio::spawn(async move { other.compact(request).await });
    // The kill must happen while the hook runs.
    while world.hook.count().0 == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.restart().await;
    assert!(compacting.await.unwrap().is_err());
    world.hook.answers(Answers::default());
    assert_eq!(world.view("s", vec![]).await.messages, before.messages);
    let reply = world.client.compact(again).await.unwrap().into_inner();
    assert_eq!(outcomes(&reply.compaction.unwrap()).len(), 3);
}

#[tokio::test]
async fn a_hook_over_tls_is_called_if_its_certificate_is_trusted() {
    let authority = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/hooks/tls/ca.pem");
    let trusted = [("SSL_CERT_FILE", authority)];
    let mut world = World::with(Hook::start_with_tls(), &[], &trusted).await;
    world.view("s", work()).await;
    let compaction = world
        .compact("s", CompactionStrategy::Extractive)
        .await
        .unwrap();
    assert!(
        outcomes(&compaction)
            .iter()
            .all(|(_, result)| *result == HookResult::Continued),
        "{:?}",
        compaction.hook_outcomes
    );
    assert_eq!(world.hook.count(), (1, 1, 1));

    let mut world = World::with(Hook::start_with_tls(), &[], &[]).await;
    world.view("s", work()).await;
    let compaction = world
        .compact("s", CompactionStrategy::Extractive)
        .await
        .unwrap();
    let first = &compaction.hook_outcomes[0];
    assert_eq!(first.result(), HookResult::FailedContinued);
    assert!(!first.detail.is_empty());
    assert_eq!(
        world.hook.count(),
        (0, 0, 0),
        "an untrusted hook was called"
    );
}
