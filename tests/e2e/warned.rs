//! Tests of warnings about the window, and of compaction options of a prepare call.

use std::collections::BTreeSet;
use std::time::Duration;

use palimpsest_fake_provider::Behaviour;
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{
    BudgetState, CacheBreakpointOptions, CompactionMode, CompactionOverrides, Format, MessageInput,
    PrepareContextRequest, PrepareContextResponse, RewindSessionRequest, Warning, WarningCode,
};
use palimpsest_tests::say::{
    append, payload, prepare, small_window, summary, user, uuid, with_id, work,
};
use palimpsest_tests::{ReservedPort, name, refused, refused_field};
use tonic::Code;

use crate::SERVER;
use crate::repeats::World;

/// Generous, because this limit must only detect hangs.
const PATIENCE: Duration = Duration::from_mins(2);

fn request(messages: Vec<MessageInput>) -> PrepareContextRequest {
    PrepareContextRequest {
        target: Some(small_window()),
        ..prepare(&name("s"), messages)
    }
}

impl World {
    async fn served(&mut self, request: PrepareContextRequest) -> PrepareContextResponse {
        let reply = self.client.prepare_context(request).await;
        reply.unwrap().into_inner()
    }

    async fn work(&mut self, turns: usize) {
        for number in 0..turns {
            let mut request = request(work(number));
            request.set_compaction_mode(CompactionMode::Never);
            self.served(request).await;
        }
    }
}

fn codes(reply: &PrepareContextResponse) -> BTreeSet<WarningCode> {
    reply.warnings.iter().map(Warning::code).collect()
}

#[tokio::test]
async fn cache_markers_of_messages_have_a_warning() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let marked = || {
        let block = r#"{"type":"text","text":"a","cache_control" : {"type":"ephemeral"}}"#;
        let json = format!(r#"{{"role":"user","content":[{block}]}}"#);
        vec![payload(Format::AnthropicMessages, json)]
    };
    let session = name("warned-cache");
    let appended = client.append_messages(append(&session, marked())).await;
    let warnings = appended.unwrap().into_inner().warnings;
    let is_dropped = |one: &Warning| one.code() == WarningCode::CacheControlDropped;
    assert!(warnings.iter().any(is_dropped), "{warnings:?}");
    let dropped = WarningCode::CacheControlDropped;
    let request = prepare(&session, marked());
    let reply = client.prepare_context(request.clone()).await.unwrap();
    assert!(codes(&reply.into_inner()).contains(&dropped));
    let placed = PrepareContextRequest {
        cache_breakpoints: Some(CacheBreakpointOptions::default()),
        ..request
    };
    let reply = client.prepare_context(placed).await.unwrap();
    assert!(!codes(&reply.into_inner()).contains(&dropped));
    let reply = client
        .prepare_context(prepare(&session, vec![user("b")]))
        .await;
    assert!(!codes(&reply.unwrap().into_inner()).contains(&dropped));
}

#[tokio::test]
async fn an_unknown_window_has_a_warning() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let request = prepare(&name("warned-window"), vec![user("hello")]);
    let reply = client.prepare_context(request.clone()).await.unwrap();
    assert_eq!(
        codes(&reply.into_inner()),
        [WarningCode::WindowAssumed].into()
    );
    let known = PrepareContextRequest {
        target: Some(small_window()),
        ..request
    };
    let reply = client.prepare_context(known).await.unwrap().into_inner();
    assert!(codes(&reply).is_empty(), "{:?}", reply.warnings);
}

#[tokio::test]
async fn a_view_above_the_block_threshold_has_a_warning() {
    let mut world = World::new(&["policy.autocompact.enabled=false"]).await;
    // Nine turns of about 4,000 tokens exceed the block threshold of 27,000.
    world.work(9).await;
    let last = with_id(&uuid(99), user("go on"));
    let reply = world.served(request(vec![last])).await;
    assert!(reply.sendable);
    assert_eq!(
        reply.budget.as_ref().unwrap().state(),
        BudgetState::Exhausted
    );
    assert_eq!(codes(&reply), [WarningCode::OverBlockThreshold].into());
    // The view is still too large without the last message.
    let rewind = RewindSessionRequest {
        session: name("s"),
        target_message: Some(TargetMessage::BeforeMessageId(uuid(99))),
        ..RewindSessionRequest::default()
    };
    let rewound = world.client.rewind_session(rewind).await.unwrap();
    let warnings = rewound.into_inner().warnings;
    assert_eq!(warnings[0].code(), WarningCode::OverBlockThreshold);
}

#[tokio::test]
async fn an_incompressible_view_has_a_warning() {
    let mut world = World::new(&["policy.autocompact.min_input_tokens=1000000"]).await;
    world.work(5).await;
    let reply = world.served(request(vec![user("go on")])).await;
    assert_eq!(codes(&reply), [WarningCode::Irreducible].into());
}

#[tokio::test]
async fn failed_compactions_and_the_automatic_pause_have_warnings() {
    // No process listens for this hook, and its policy forbids a compaction without its answer.
    let port = ReservedPort::reserve();
    let endpoint = format!("hooks.endpoints.own.url=http://{}", port.address());
    let settings = [
        endpoint.as_str(),
        "hooks.default_endpoint=own",
        "policy.hooks.pre_compact.on_failure=stop",
    ];
    let mut world = World::new(&settings).await;
    world.work(5).await;
    for attempt in 1..=3 {
        let reply = world.served(request(vec![])).await;
        let codes = codes(&reply);
        assert!(codes.contains(&WarningCode::CompactionFailed), "{codes:?}");
        // `autocompact.max_failures` is 3.
        assert_eq!(codes.contains(&WarningCode::AutoPaused), attempt == 3);
    }
    let reply = world.served(request(vec![])).await;
    assert!(codes(&reply).contains(&WarningCode::AutoPaused));
    assert!(reply.budget.unwrap().auto_paused);
}

#[tokio::test]
async fn compaction_options_of_a_prepare_are_applied() {
    for mode in [CompactionMode::Wait, CompactionMode::Background] {
        let mut world = World::new(&[]).await;
        world.work(5).await;
        let said = Behaviour::Say(summary("Name the lamp maker"));
        world.provider.script("claude-other", [said]);
        let mut wishes = request(vec![user("go on")]);
        wishes.set_compaction_mode(mode);
        wishes.compaction_overrides = Some(CompactionOverrides {
            model: "claude-other".into(),
            instructions: "Keep the name of the lamp maker.".into(),
        });
        world.served(wishes).await;
        let began = tokio::time::Instant::now();
        let asked = loop {
            let asked = world.provider.requests();
            if !asked.is_empty() {
                break asked;
            }
            assert!(began.elapsed() < PATIENCE, "the model was not called");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(asked[0].body["model"], "claude-other");
        let body = asked[0].body.to_string();
        assert!(body.contains("Keep the name of the lamp maker."), "{body}");
    }
}

#[tokio::test]
async fn an_unsupported_compaction_option_is_rejected_by_name() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let request = PrepareContextRequest {
        compaction_overrides: Some(CompactionOverrides {
            model: "claude-other".into(),
            ..CompactionOverrides::default()
        }),
        ..prepare(&name("warned-wish"), vec![user("hello")])
    };
    let status = client.prepare_context(request).await.unwrap_err();
    refused_field(&status, "compaction_overrides.model");
}

#[tokio::test]
async fn a_prepare_compacts_at_the_proactive_threshold() {
    let mut world = World::new(&[
        "policy.autocompact.reactive_only=true",
        "policy.autocompact.proactive_percent=30",
    ])
    .await;
    // 15,000 of 50,000 tokens, below the default threshold of 17,000.
    world.work(4).await;
    let reply = world.served(request(vec![user("go on")])).await;
    let budget = reply.budget.as_ref().unwrap();
    let boundary = |stage: &palimpsest_proto::context::v1::LevelReport| {
        stage.effect.as_ref().map(|effect| effect.before_tokens)
    };
    let before: Vec<u32> = reply.level_reports.iter().filter_map(boundary).collect();
    assert_eq!(before.len(), 1, "{:?}", reply.level_reports);
    assert!((15_000..17_000).contains(&before[0]), "{before:?}");
    assert!(budget.used_tokens < 15_000, "{budget:?}");
}

#[tokio::test]
async fn a_missing_parent_is_rejected_with_its_path() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let session = name("warned-parent");
    let follows = |id: u64, parent: u64| {
        let mut message = user("hello");
        message.id = uuid(id);
        message.metadata = Some(palimpsest_proto::context::v1::MessageMetadata {
            parent_id: uuid(parent),
            ..Default::default()
        });
        message
    };
    let mut first = user("begin");
    first.id = uuid(1);
    let broken = append(&session, vec![first.clone(), follows(2, 99)]);
    let status = client.append_messages(broken).await.unwrap_err();
    let about = refused(&status, Code::NotFound, "MESSAGE_NOT_FOUND");
    assert_eq!(about["field"], "messages[1].metadata.parent_id");
    // A parent in the same call or an existing parent is valid.
    let whole = append(&session, vec![first, follows(2, 1)]);
    client.append_messages(whole).await.unwrap();
    let later = append(&session, vec![follows(3, 2)]);
    client.append_messages(later).await.unwrap();
}
