//! Tests of the clients and their drivers against a fake provider that rejects the same requests as
//! real ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod chain;
mod clients;
mod drivers;
mod failures;
mod secrets;

use std::time::Duration;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_summarize::{
    Anthropic, Auth, ChatMessage, Jitter, ModelEndpoint, OpenAi, OutputLimitField, Purpose, Round,
    SecretSource, SummaryRequest,
};
use serde_json::Value;
use tokio::time::Instant;

/// Returns an endpoint of the fake provider with short waits that always have their maximum length.
fn endpoint(url: &str, model: &str) -> ModelEndpoint {
    let key = Auth::Key(SecretSource::value("test-key"));
    let mut endpoint = ModelEndpoint::new(url, key, model).unwrap();
    endpoint.retry.first_wait = Duration::from_millis(5);
    endpoint.jitter = Jitter::with(|longest| longest);
    endpoint
}

fn anthropic(provider: &FakeProvider, model: &str) -> Anthropic {
    Anthropic::new(endpoint(&provider.url(), model)).unwrap()
}

fn openai(provider: &FakeProvider, model: &str) -> OpenAi {
    let url = format!("{}/v1", provider.url());
    OpenAi::new(endpoint(&url, model), OutputLimitField::Either).unwrap()
}

fn request(turns: Vec<ChatMessage>) -> SummaryRequest {
    SummaryRequest {
        purpose: Purpose::Compaction,
        conversation: None,
        model: None,
        system: "You summarise conversations.".to_owned(),
        turns,
        instruction: "Write a <summary>.\n1. Primary Request\n2. Current Work".to_owned(),
        max_output_tokens: 1_000,
        deadline: Instant::now() + Duration::from_mins(1),
    }
}

fn small() -> SummaryRequest {
    request(vec![
        ChatMessage::user("fix the parser"),
        ChatMessage::assistant("done, see parse.rs"),
    ])
}

/// Returns rounds of a user question and an assistant answer with about `tokens` tokens each.
fn rounds(count: usize, tokens: u64) -> Vec<Round> {
    // Four bytes per token, and twelve bytes per repetition.
    let filler = "lorem ipsum ".repeat(usize::try_from(tokens).unwrap() * 4 / 12);
    let round = |number| Round {
        turns: vec![
            ChatMessage::assistant(format!("answer {number}.\n{filler}")),
            ChatMessage::user(format!("question {number}")),
        ],
        tokens,
    };
    (0..count).map(round).collect()
}

/// Returns the bodies of all requests, oldest first.
fn bodies(provider: &FakeProvider) -> Vec<Value> {
    provider
        .requests()
        .into_iter()
        .map(|recorded| recorded.body)
        .collect()
}

fn statuses(provider: &FakeProvider) -> Vec<u16> {
    provider
        .requests()
        .iter()
        .map(|recorded| recorded.status)
        .collect()
}
