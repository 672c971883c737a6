//! Tests of the preset `economy`: a compaction below the threshold, which reduces the cost of the session.

use palimpsest_proto::context::v1::level_report::Detail;
use palimpsest_proto::context::v1::{
    Compaction, CompactionState, CompactionStrategy, CreateSessionRequest, MemoryState,
    MicrocompactPolicy, Policy, PolicyPreset, PrepareContextResponse, Session,
    UpdateSessionRequest,
};
use palimpsest_tests::say::prepare;

use super::*;

/// Returns the compaction that took effect before the reply.
fn compaction(reply: &PrepareContextResponse) -> Option<&Compaction> {
    let mut details = reply
        .level_reports
        .iter()
        .filter_map(|it| it.detail.as_ref());
    details.find_map(|detail| match detail {
        Detail::Compaction(compaction) if compaction.state() == CompactionState::Succeeded => {
            Some(&**compaction)
        }
        _ => None,
    })
}

#[tokio::test]
async fn a_view_is_compacted_as_soon_as_its_prompt_cache_has_expired() {
    let running = SERVER.get();
    let mut client = running.0.context().await;
    let session = named("economy");
    let (project, id) = session.split_once("/sessions/").unwrap();
    let mut policy = Policy {
        // Clearing of old results would make the view too small for a compaction.
        microcompact: Some(MicrocompactPolicy {
            enabled: Some(false),
            ..MicrocompactPolicy::default()
        }),
        ..Policy::default()
    };
    policy.set_preset(PolicyPreset::Economy);
    let create = CreateSessionRequest {
        parent: project.to_owned(),
        session_id: id.to_owned(),
        session: Some(Session {
            policy_overrides: Some(policy),
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    running
        .0
        .sessions()
        .await
        .create_session(create)
        .await
        .unwrap();
    let mut call = async |messages| {
        let reply = client.prepare_context(prepare(&session, messages)).await;
        reply.unwrap().into_inner()
    };

    let work = (1..=4).flat_map(|number| turn(number, 3, 12_000));
    let first = call(work.chain([asks("Which ones are left?")]).collect()).await;
    assert_eq!(compaction(&first), None);
    let before = first.tokens.unwrap().total_tokens;
    assert!((40_000..100_000).contains(&before), "{before}");
    let mut reader = running.0.context().await;
    memory_when(&mut reader, &session, |memory| {
        memory.state() == MemoryState::Ready && !memory.running
    })
    .await;

    // The cache is warm, and nothing has been saved that could pay for a compaction.
    let warm = call(vec![says("None is left."), asks("Check them.")]).await;
    assert_eq!(compaction(&warm), None);

    let mut policy = Policy::default();
    // With a lifetime of 1 ms, the provider's cache has expired at the next call.
    policy.economy.get_or_insert_default().cache_lifetime = Some(prost_types::Duration {
        seconds: 0,
        nanos: 1_000_000,
    });
    let update = UpdateSessionRequest {
        session: Some(Session {
            name: session.clone(),
            policy_overrides: Some(policy),
            ..Session::default()
        }),
        ..UpdateSessionRequest::default()
    };
    running
        .0
        .sessions()
        .await
        .update_session(update)
        .await
        .unwrap();
    let cold = call(vec![says("All are correct."), asks("And now?")]).await;
    let compaction = compaction(&cold).unwrap_or_else(|| panic!("{:#?}", cold.level_reports));
    assert_eq!(compaction.strategy(), CompactionStrategy::SessionMemory);
    let hidden = &compaction.hidden_paths;
    assert!(hidden.iter().any(|path| path == "/repo/src/module_1_0.rs"));
    for attached in compaction.attachments.iter().filter(|it| !it.truncated) {
        assert!(!hidden.contains(&attached.name), "{compaction:#?}");
    }
    let after = cold.tokens.unwrap().total_tokens;
    assert!(after < before * 2 / 3, "{before} → {after}");
}
