//! Tests of the table of models: the window of a target that names a model and states no window.

use std::collections::BTreeSet;

use palimpsest_proto::context::v1::{
    Format, Payload, PrepareContextRequest, PrepareContextResponse, Provider, SyncContextRequest,
    Target, Warning, WarningCode,
};
use palimpsest_tests::name;
use palimpsest_tests::say::{prepare, target, user, work};
use serde_json::json;

use crate::repeats::World;

/// The summaries are extractive, so no test depends on a model.
const WITHOUT_MODEL: &str = "summarizer.provider=none";

fn codes(warnings: &[Warning]) -> BTreeSet<WarningCode> {
    warnings.iter().map(Warning::code).collect()
}

fn request(session: &str, target: Target) -> PrepareContextRequest {
    PrepareContextRequest {
        target: Some(target),
        ..prepare(&name(session), vec![user("hello")])
    }
}

impl World {
    async fn prepare_reply(&mut self, request: PrepareContextRequest) -> PrepareContextResponse {
        let reply = self.client.prepare_context(request).await;
        reply.unwrap().into_inner()
    }

    /// Returns the window that a new session has for a target, and true if it is assumed.
    async fn window_of(&mut self, session: &str, target: Target) -> (u32, bool) {
        let reply = self.prepare_reply(request(session, target)).await;
        let is_assumed = codes(&reply.warnings).contains(&WarningCode::WindowAssumed);
        (reply.budget.unwrap().window_tokens, is_assumed)
    }
}

#[tokio::test]
async fn a_known_model_gets_no_view_above_its_threshold() {
    let mut world = World::new(&[WITHOUT_MODEL]).await;
    let mut compactions = 0;
    // The rounds have about 120,000 tokens, more than the threshold of a window of 128,000.
    for number in 0..40 {
        let reply = world
            .prepare_reply(PrepareContextRequest {
                target: Some(target(Provider::Openai, "gpt-4o")),
                ..prepare(&name("s"), work(number))
            })
            .await;
        let budget = reply.budget.as_ref().unwrap();
        // The reserve is the largest output of the model, because it is smaller than that of the policy.
        let (window, compact_at) = (budget.window_tokens, budget.compact_at_tokens);
        assert_eq!((window, compact_at), (128_000, 128_000 - 16_384 - 13_000));
        let used = budget.used_tokens;
        assert!(used < compact_at, "round {number} has {used} tokens");
        assert!(codes(&reply.warnings).is_empty(), "{:?}", reply.warnings);
        compactions += reply
            .level_reports
            .iter()
            .filter(|one| one.effect.is_some())
            .count();
    }
    assert!(compactions > 0, "the rounds did not reach the threshold");
}

#[tokio::test]
async fn only_an_unknown_window_has_a_warning() {
    let mut world = World::new(&[WITHOUT_MODEL]).await;
    let mut window = async |session: &str, provider, model: &str| {
        world.window_of(session, target(provider, model)).await
    };
    let anthropic = Provider::Anthropic;
    assert_eq!(
        window("unknown", anthropic, "acme-1").await,
        (200_000, true)
    );
    assert_eq!(window("unnamed", anthropic, "").await, (200_000, true));
    // An id of Bedrock has a region, a vendor, a date and a version around the name.
    let dated = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
    assert_eq!(
        window("known", Provider::Bedrock, dated).await,
        (200_000, false)
    );
    assert_eq!(
        window("large", anthropic, "claude-opus-5-5").await,
        (1_000_000, false)
    );
    // A later target of the session without a model is for the same one.
    assert_eq!(window("large", anthropic, "").await, (1_000_000, false));
    // Another model of the same session has its own window.
    let responses = Provider::OpenaiResponses;
    assert_eq!(
        window("large", responses, "gpt-5-codex").await,
        (400_000, false)
    );
    assert_eq!(window("large", responses, "acme-1").await, (200_000, true));
}

#[tokio::test]
async fn a_whole_array_has_the_window_of_its_model() {
    let mut world = World::new(&[WITHOUT_MODEL]).await;
    let array = json!([{"role": "user", "content": "hello"}]);
    let request = SyncContextRequest {
        session: name("whole"),
        payload: Some(Payload {
            format: Format::OpenaiChat.into(),
            json: array.to_string().into(),
        }),
        target: Some(target(Provider::Openai, "gpt-4o")),
        ..SyncContextRequest::default()
    };
    let reply = world
        .client
        .sync_context(request)
        .await
        .unwrap()
        .into_inner();
    let context = reply.context.unwrap();
    assert_eq!(context.budget.unwrap().window_tokens, 128_000);
    assert!(
        codes(&context.warnings).is_empty(),
        "{:?}",
        context.warnings
    );
}

#[tokio::test]
async fn the_body_of_a_request_names_its_model() {
    let mut world = World::new(&[WITHOUT_MODEL]).await;
    let mut sync = async |session: &str, model: &str, target: Option<Target>| {
        let messages = json!([{"role": "user", "content": "hello"}]);
        let body = json!({"model": model, "messages": messages});
        let request = SyncContextRequest {
            session: name(session),
            payload: Some(Payload {
                format: Format::AnthropicMessages.into(),
                json: body.to_string().into(),
            }),
            target,
            ..SyncContextRequest::default()
        };
        let reply = world.client.sync_context(request).await.unwrap();
        let context = reply.into_inner().context.unwrap();
        let is_assumed = codes(&context.warnings).contains(&WarningCode::WindowAssumed);
        (context.budget.unwrap().window_tokens, is_assumed)
    };
    assert_eq!(
        sync("body", "claude-opus-5-5", None).await,
        (1_000_000, false)
    );
    assert_eq!(
        sync("body", "claude-sonnet-4-5", None).await,
        (200_000, false)
    );
    assert_eq!(sync("body", "acme-1", None).await, (200_000, true));
    // The target of a call has priority over the body, and the window of a target stays for its model.
    let stated = |model: &str, window_tokens| {
        let target = target(Provider::Anthropic, model);
        Some(Target {
            window_tokens,
            ..target
        })
    };
    let of_target = stated("claude-sonnet-4-5", None);
    assert_eq!(
        sync("target", "claude-opus-5-5", of_target).await,
        (200_000, false)
    );
    let of_target = stated("", Some(90_000));
    assert_eq!(
        sync("window", "claude-opus-5-5", of_target).await,
        (90_000, false)
    );
    assert_eq!(
        sync("window", "claude-opus-5-5", None).await,
        (90_000, false)
    );
    assert_eq!(
        sync("window", "claude-sonnet-4-5", None).await,
        (200_000, false)
    );
}

#[tokio::test]
async fn a_configured_model_overrides_the_table_and_a_stated_window_both() {
    let file = r#"
        [[models]]
        names = ["gpt-4o"]
        window_tokens = 90_000

        [[models]]
        names = ["acme-*"]
        window_tokens = 80_000
        max_output_tokens = 5_000

        [projects.own.policy]
        tokens.default_window_tokens = 200_000
    "#;
    let mut world = World::with_file(&[WITHOUT_MODEL], file).await;
    let openai = |model: &str| target(Provider::Openai, model);
    assert_eq!(
        world.window_of("own", openai("openai/gpt-4o")).await,
        (90_000, false)
    );
    let reply = world
        .prepare_reply(request("new", openai("acme-large")))
        .await;
    // The largest output of 5,000 tokens is below the policy's reserve and replaces it.
    let budget = reply.budget.unwrap();
    let (window, effective) = (budget.window_tokens, budget.effective_window_tokens);
    assert_eq!((window, effective), (80_000, 75_000));
    let stated = Target {
        window_tokens: Some(70_000),
        ..openai("gpt-4o")
    };
    assert_eq!(world.window_of("stated", stated).await, (70_000, false));
    // A policy with a window has it for every model, even if it equals the assumed one.
    let mut of_policy = request("any", openai("gpt-4o"));
    of_policy.session = "projects/own/sessions/s".to_owned();
    let reply = world.prepare_reply(of_policy).await;
    assert!(codes(&reply.warnings).is_empty(), "{:?}", reply.warnings);
    assert_eq!(reply.budget.unwrap().window_tokens, 200_000);
}

#[tokio::test]
async fn another_table_changes_no_recorded_window() {
    let mut world = World::new(&[WITHOUT_MODEL]).await;
    let model = target(Provider::Openai, "gpt-4o");
    assert_eq!(world.window_of("s", model.clone()).await, (128_000, false));
    let file = "[[models]]\nnames = [\"gpt-4o\"]\nwindow_tokens = 64_000\n";
    let mut world = world.restarted_with(file).await;
    // The state comes from the log, and a call without a target uses it.
    let reply = world
        .prepare_reply(prepare(&name("s"), vec![user("go on")]))
        .await;
    assert_eq!(reply.budget.unwrap().window_tokens, 128_000);
    // A call that names the model takes the new value.
    assert_eq!(world.window_of("s", model).await, (64_000, false));
}
