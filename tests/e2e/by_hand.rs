//! Tests of manual compaction over gRPC. It includes every visible message, served or not, and produces the smallest
//! possible view.

use std::time::Duration;

use palimpsest_proto::context::v1::{
    CompactRequest, CompactResponse, CompactionMode, CompactionState, CompactionStrategy,
    GetSessionMemoryRequest, GetSessionRequest, Level, LevelAction, ListMessagesRequest,
    RestoreContextRequest, SkipReason, Target, Visibility,
};
use palimpsest_tests::say::{append, prepare, user, work};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Server, name, refused};
use tonic::Code;

use crate::SERVER;

const ALONE: [&str; 2] = ["--set", "worker.enabled=false"];
/// Generous, because this limit must only detect hangs.
const PATIENCE: Duration = Duration::from_mins(2);

async fn bring_in(client: &mut Context, session: &str, turns: std::ops::Range<usize>) {
    let messages = turns.flat_map(work).collect();
    let request = append(&name(session), messages);
    client.append_messages(request).await.unwrap();
}

fn wanted(session: &str) -> CompactRequest {
    CompactRequest {
        session: name(session),
        ..CompactRequest::default()
    }
}

async fn revision(server: &Server, session: &str) -> u64 {
    let request = GetSessionRequest {
        session: name(session),
        ..GetSessionRequest::default()
    };
    let reply = server.sessions().await.get_session(request).await;
    reply.unwrap().into_inner().session.unwrap().revision
}

/// Returns the tokens before and after.
#[track_caller]
fn tokens(reply: &CompactResponse) -> (u32, u32) {
    let boundary = reply.compaction.as_ref().unwrap().boundary.as_ref();
    let boundary = boundary.unwrap();
    (boundary.before_tokens, boundary.after_tokens)
}

#[tokio::test]
async fn messages_never_served_before_are_compacted() {
    let shared = SERVER.get();
    let (mut client, session) = (shared.0.context().await, "by-hand-never-prepared");
    bring_in(&mut client, session, 0..30).await;
    let dry = CompactRequest {
        dry_run: true,
        ..wanted(session)
    };
    let foreseen = client.compact(dry).await.unwrap().into_inner();
    assert_eq!(
        foreseen.compaction.as_ref().unwrap().state(),
        CompactionState::DryRun
    );
    let reply = client.compact(wanted(session)).await.unwrap().into_inner();
    let (before, after) = tokens(&reply);
    assert!(before > 100_000 && after < 20_000, "{before} → {after}");
    assert_eq!(tokens(&foreseen), (before, after));
    // The next view has exactly the announced size, and nothing is counted twice.
    let view = prepare(&name(session), vec![]);
    let view = client.prepare_context(view).await.unwrap().into_inner();
    assert_eq!(view.tokens.unwrap().total_tokens, after);
    let shown = String::from_utf8(view.messages_json.concat()).unwrap();
    assert!(shown.contains("<conversation-summary>"), "{shown}");
    assert!(!shown.contains("0 line 17 of a listing"));
}

#[tokio::test]
async fn messages_since_the_last_prepare_are_compacted_too() {
    let shared = SERVER.get();
    let (mut client, session) = (shared.0.context().await, "by-hand-since");
    let first = prepare(&name(session), work(0));
    client.prepare_context(first).await.unwrap();
    bring_in(&mut client, session, 1..8).await;
    let reply = client.compact(wanted(session)).await.unwrap().into_inner();
    let boundary = reply.compaction.unwrap().boundary.unwrap();
    // All messages except the last user input.
    assert_eq!(boundary.summarized_messages, 31);
}

#[tokio::test]
async fn a_small_view_is_compacted_manually_and_a_rejected_call_serves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &ALONE);
    let (mut client, session) = (server.context().await, "by-hand-little");
    client
        .append_messages(append(&name(session), vec![user("hello")]))
        .await
        .unwrap();
    let before = revision(&server, session).await;
    let status = client.compact(wanted(session)).await.unwrap_err();
    let about = refused(&status, Code::FailedPrecondition, "NOTHING_TO_COMPACT");
    assert_eq!(about["skip_reason"], "NOTHING_ELIGIBLE", "{about:?}");
    assert_eq!(revision(&server, session).await, before);
    // The minimum input of automatic compactions does not apply to manual ones.
    bring_in(&mut client, session, 0..1).await;
    let reply = client.compact(wanted(session)).await.unwrap().into_inner();
    let (before, after) = tokens(&reply);
    assert!(before < 10_000 && after < before, "{before} → {after}");
}

#[tokio::test]
async fn session_memory_far_behind_the_transcript_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let (mut client, session) = (server.context().await, "by-hand-behind");
    bring_in(&mut client, session, 0..4).await;
    let began = tokio::time::Instant::now();
    loop {
        let request = GetSessionMemoryRequest {
            session: name(session),
            ..GetSessionMemoryRequest::default()
        };
        let memory = client.get_session_memory(request).await.unwrap();
        let memory = memory.into_inner().memory.unwrap();
        if !memory.last_summarized_message_id.is_empty() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{memory:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.kill();
    // Without a worker, session memory is not updated from here on.
    let server = Server::start(folder.path(), &ALONE);
    let mut client = server.context().await;
    bring_in(&mut client, session, 4..30).await;
    let with = |strategy: CompactionStrategy| CompactRequest {
        dry_run: true,
        strategy: strategy.into(),
        ..wanted(session)
    };
    let memory = client
        .compact(with(CompactionStrategy::SessionMemory))
        .await;
    let (_, lagging) = tokens(&memory.unwrap().into_inner());
    assert!(lagging > 80_000, "{lagging}");
    let structure = client.compact(with(CompactionStrategy::Extractive)).await;
    let (_, best) = tokens(&structure.unwrap().into_inner());
    let reply = client.compact(wanted(session)).await.unwrap().into_inner();
    assert_eq!(
        reply.compaction.as_ref().unwrap().strategy(),
        CompactionStrategy::Extractive
    );
    assert_eq!(tokens(&reply).1, best);
    assert!(best < 20_000, "{best}");
}

/// Starts a server with the preset `threshold` and a window of 250,000 tokens. The compaction threshold is 200,000.
async fn threshold(turns: usize) -> (Server, Context, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let preset = ["--set", "policy.preset=threshold"];
    let server = Server::start(folder.path(), &[&ALONE[..], &preset].concat());
    let mut client = server.context().await;
    bring_in(&mut client, "s", 0..turns).await;
    (server, client, folder)
}

async fn kept(server: &Server) -> usize {
    let mut visible = 0;
    let mut page_token = String::new();
    loop {
        let list = ListMessagesRequest {
            session: name("s"),
            page_size: 1_000,
            page_token,
            ..ListMessagesRequest::default()
        };
        let listed = server.sessions().await.list_messages(list).await;
        let listed = listed.unwrap().into_inner();
        let is_kept = |visibility: Visibility| visibility == Visibility::Visible;
        visible += listed
            .messages
            .iter()
            .filter(|message| is_kept(message.visibility()) && message.turn_id.is_empty())
            .count();
        page_token = listed.next_page_token;
        if page_token.is_empty() {
            return visible;
        }
    }
}

#[tokio::test]
async fn the_threshold_preset_compacts_in_rounds_and_keeps_five_messages() {
    let (_server, mut client, _folder) = threshold(34).await;
    let reply = client.compact(wanted("s")).await.unwrap().into_inner();
    let applied = reply.level_reports.iter();
    let applied = applied.filter(|stage| stage.action() == LevelAction::Applied);
    let effects: Vec<_> = applied.map(|stage| stage.effect.clone().unwrap()).collect();
    // 136,000 tokens need more than two and less than four compactions.
    assert_eq!(effects.len(), 3, "{effects:?}");
    for effect in &effects {
        assert!(effect.freed_tokens <= 50_000, "{effect:?}");
    }
    let boundary = reply.compaction.unwrap().boundary.unwrap();
    // The last five messages are kept: a result, which also keeps its call, and the last user input, which is always
    // kept.
    assert_eq!(boundary.kept_message_ids.len(), 5);
    let view = prepare(&name("s"), vec![]);
    let view = client.prepare_context(view).await.unwrap().into_inner();
    assert_eq!(view.tokens.unwrap().total_tokens, boundary.after_tokens);
}

#[tokio::test]
async fn a_critical_view_is_truncated_by_policy_and_can_be_restored() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "worker.enabled=false",
        "policy.autocompact.truncate_when_critical=true",
        // No input is large enough for a summary.
        "policy.autocompact.min_input_tokens=1000000",
    ];
    let args: Vec<&str> = settings.iter().flat_map(|one| ["--set", one]).collect();
    let server = Server::start(folder.path(), &args);
    let mut client = server.context().await;
    // The view exceeds the compaction threshold of 17,000 tokens, so its state is critical.
    let target = Target {
        window_tokens: Some(50_000),
        ..Target::default()
    };
    for number in 0..6 {
        let mut request = prepare(&name("s"), work(number));
        request.target = Some(target.clone());
        request.set_compaction_mode(CompactionMode::Never);
        client.prepare_context(request).await.unwrap();
    }
    let mut request = prepare(&name("s"), vec![user("and now the rest")]);
    request.target = Some(target.clone());
    let reply = client.prepare_context(request).await.unwrap().into_inner();
    let of_level = reply.level_reports.iter();
    let of_level = of_level.filter(|stage| stage.level() == Level::Compaction);
    let reports: Vec<_> = of_level.collect();
    assert_eq!(reports[0].skip_reason(), SkipReason::TooLittleInput);
    assert_eq!(reports[1].action(), LevelAction::Applied, "{reports:?}");
    let budget = reply.budget.unwrap();
    assert!(budget.used_tokens < budget.warn_at_tokens.max(1) || budget.warn_at_tokens == 0);
    assert!(budget.used_tokens < budget.compact_at_tokens, "{budget:?}");
    assert!(reply.sendable);
    let back = &reply.recovery.unwrap().items[0];
    let restore = RestoreContextRequest {
        session: name("s"),
        to_revision: back.restore_to_revision,
        force: true,
        ..RestoreContextRequest::default()
    };
    client.restore_context(restore).await.unwrap();
    // Six turns have three messages each beside the user input.
    assert_eq!(
        kept(&server).await,
        18,
        "all messages that are not user input must be visible"
    );
}
