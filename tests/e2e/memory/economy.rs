//! Tests of the preset `economy`: a compaction below the threshold, which reduces the cost of the session.

use palimpsest_proto::context::v1::level_report::Detail;
use palimpsest_proto::context::v1::{
    CompactionStrategy, CreateSessionRequest, Level, LevelAction, MemoryState, Policy,
    PolicyPreset, PrepareContextResponse, Session,
};
use palimpsest_tests::say::prepare;

use super::*;

/// Returns a message with a time long ago.
fn long_ago(mut input: MessageInput) -> MessageInput {
    let metadata = input.metadata.get_or_insert_default();
    metadata.create_time = Some(prost_types::Timestamp {
        seconds: 1_700_000_000,
        nanos: 0,
    });
    input
}

/// Returns the outcome of level 5.
fn level_5(reply: &PrepareContextResponse) -> (LevelAction, Option<&Detail>) {
    let mut reports = reply.level_reports.iter();
    let report = reports.find(|report| report.level() == Level::Autocompact);
    let report = report.unwrap_or_else(|| panic!("{reply:#?}"));
    (report.action(), report.detail.as_ref())
}

#[tokio::test]
async fn a_view_is_compacted_as_soon_as_its_prompt_cache_has_expired() {
    let running = SERVER.get();
    let mut client = running.0.context().await;
    let session = named("economy");
    let (project, id) = session.split_once("/sessions/").unwrap();
    let mut policy = Policy::default();
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

    let work = (1..=4).flat_map(|number| turn(number, 3, 12_000)).collect();
    let first = call(work).await;
    assert_eq!(level_5(&first).0, LevelAction::Skipped);
    let before = first.tokens.unwrap().total_tokens;
    assert!((40_000..100_000).contains(&before), "{before}");
    let mut reader = running.0.context().await;
    memory_when(&mut reader, &session, |memory| {
        memory.state() == MemoryState::Ready && !memory.running
    })
    .await;

    // The cache is warm, and nothing has been saved that could pay for a compaction.
    let warm = call(vec![says("Both are mended."), asks("Go on.")]).await;
    assert_eq!(level_5(&warm).0, LevelAction::Skipped);

    let cold = call(vec![long_ago(says("All are mended.")), asks("And now?")]).await;
    let (action, detail) = level_5(&cold);
    assert_eq!(action, LevelAction::Applied, "{cold:#?}");
    let Some(Detail::Compaction(compaction)) = detail else {
        panic!("{detail:#?}")
    };
    assert_eq!(compaction.strategy(), CompactionStrategy::SessionMemory);
    assert_eq!(compaction.hidden_paths.len(), 12, "{compaction:#?}");
    let after = cold.tokens.unwrap().total_tokens;
    assert!(after < before / 2, "{before} → {after}");
}
