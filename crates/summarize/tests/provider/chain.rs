//! Tests of the fallback from one model to the next.

use std::sync::Arc;
use std::time::Duration;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_summarize::{
    CircuitBreakerSettings, Error, FallbackChain, ModelLink, StopReason, Summarizer,
};
use tokio::time::Instant;

use crate::{anthropic, openai, small, statuses};

fn link(name: &str, summarizer: impl Summarizer + 'static) -> ModelLink {
    ModelLink {
        name: name.to_owned(),
        summarizer: Arc::new(summarizer),
        breaker: CircuitBreakerSettings::default(),
    }
}

fn two(provider: &FakeProvider, first: &str, second: &str) -> FallbackChain {
    let links = vec![
        link("first", anthropic(provider, first)),
        link("second", openai(provider, second)),
    ];
    FallbackChain::new(links, 4)
}

#[tokio::test]
async fn the_fallback_answers_after_any_failure_of_the_first() {
    let provider = FakeProvider::start().await.unwrap();
    for wrong in [
        "c+status=529", "c+status=401", "no-such-model", "c+empty", "c+refuse", "c+drop",
    ] {
        let reply = two(&provider, wrong, "gpt-fake")
            .summarize(&small())
            .await
            .unwrap();
        assert_eq!(reply.model, "gpt-fake", "{wrong}");
    }
}

#[tokio::test]
async fn a_good_answer_or_a_too_long_prompt_ends_the_chain() {
    let provider = FakeProvider::start().await.unwrap();
    let reply = two(&provider, "claude-fake", "gpt-fake")
        .summarize(&small())
        .await
        .unwrap();
    assert_eq!(reply.model, "claude-fake");
    let cut = two(&provider, "claude+cut", "gpt-fake")
        .summarize(&small())
        .await
        .unwrap();
    assert_eq!(cut.stop, StopReason::MaxTokens);
    let long = two(&provider, "claude+ptl=anthropic", "gpt-fake")
        .summarize(&small())
        .await;
    assert_eq!(long.unwrap_err().name(), "prompt_too_long");
    assert_eq!(statuses(&provider).len(), 3);
}

#[tokio::test]
async fn the_model_of_a_request_applies_to_the_first_link_only() {
    let provider = FakeProvider::start().await.unwrap();
    let mut asked = small();
    // The first link gets this failing model. The second one keeps its own, because model names differ by provider.
    asked.model = Some("claude+status=401".to_owned());
    let reply = two(&provider, "claude-fake", "gpt-fake")
        .summarize(&asked)
        .await
        .unwrap();
    assert_eq!(reply.model, "gpt-fake");
}

#[tokio::test]
async fn the_error_is_returned_when_all_links_fail() {
    let provider = FakeProvider::start().await.unwrap();
    let error = two(&provider, "c+status=500", "g+status=401")
        .summarize(&small())
        .await
        .unwrap_err();
    assert_eq!(error.name(), "auth");
    // A refusal with text is more useful to the caller than a later error.
    let chain = FallbackChain::new(
        vec![
            link("a", openai(&provider, "g+refuse")),
            link("b", openai(&provider, "g+status=401")),
        ],
        1,
    );
    assert_eq!(
        chain.summarize(&small()).await.unwrap().stop,
        StopReason::Refusal
    );
    let nobody = FallbackChain::new(Vec::new(), 1)
        .summarize(&small())
        .await
        .unwrap_err();
    assert!(
        nobody.to_string().contains("no model is configured"),
        "{nobody}"
    );
}

#[tokio::test]
async fn a_failing_endpoint_is_skipped_while_its_breaker_is_open() {
    let provider = FakeProvider::start().await.unwrap();
    let chain = two(&provider, "c+status=529", "gpt-fake");
    for _ in 0..5 {
        chain.summarize(&small()).await.unwrap();
    }
    let failed = statuses(&provider)
        .iter()
        .filter(|status| **status == 529)
        .count();
    assert_eq!(
        failed,
        3 * 4,
        "three requests with their retries, then none"
    );
}

#[tokio::test]
async fn a_short_deadline_does_not_open_the_breaker() {
    let provider = FakeProvider::start().await.unwrap();
    let chain = FallbackChain::new(vec![link("slow", anthropic(&provider, "c+delay=300"))], 4);
    for _ in 0..4 {
        let mut asked = small();
        asked.deadline = Instant::now() + Duration::from_millis(30);
        assert_eq!(chain.summarize(&asked).await.unwrap_err().name(), "timeout");
    }
    chain.summarize(&small()).await.unwrap();
}

#[tokio::test]
async fn concurrent_requests_are_limited() {
    let provider = FakeProvider::start().await.unwrap();
    let chain = Arc::new(FallbackChain::new(
        vec![link("slow", anthropic(&provider, "c+delay=200"))],
        2,
    ));
    let start = Instant::now();
    let all: Vec<_> = (0..6)
        .map(|_| {
            let chain = Arc::clone(&chain);
            tokio::spawn(async move { chain.summarize(&small()).await })
        })
        .collect();
    for one in all {
        one.await.unwrap().unwrap();
    }
    // Six calls of 200 ms in two slots take three rounds.
    assert!(
        start.elapsed() >= Duration::from_millis(600),
        "{:?}",
        start.elapsed()
    );

    // A call that waits for a slot waits until its deadline.
    let busy = Arc::new(FallbackChain::new(
        vec![link("slow", anthropic(&provider, "c+delay=2000"))],
        1,
    ));
    let first = tokio::spawn({
        let busy = Arc::clone(&busy);
        async move { busy.summarize(&small()).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut asked = small();
    asked.deadline = Instant::now() + Duration::from_millis(50);
    let error = busy.summarize(&asked).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    first.abort();
}
