//! Tests that no secret is sent to a provider or returned in a summary.

use palimpsest_fake_provider::{Behaviour, FakeProvider};
use palimpsest_summarize::{
    ChatMessage, ChunkSettings, RedactingSummarizer, Round, ShortenSettings, Summarizer,
    summarize_in_chunks, summarize_with_retries,
};

use crate::{anthropic, openai, request, rounds};

/// The secrets are assembled at run time, so that repository scanners do not report this file.
fn secrets() -> Vec<String> {
    let tail = "a1B2c3D4e5F6g7H8i9J0kLmNoPqRsTuVwXyZ";
    ["sk-ant-api03-", "ghp_", "hf_", "npm_"]
        .iter()
        .map(|prefix| format!("{prefix}{tail}"))
        .chain(["hunter2-hunter2".to_owned()])
        .collect()
}

fn seeded() -> String {
    let keys = secrets();
    format!(
        "export KEY={}\ngit clone https://{}@github.com/x\nHF: {}\n{}\nDB_PASSWORD={}",
        keys[0], keys[1], keys[2], keys[3], keys[4]
    )
}

#[tokio::test]
async fn requests_and_replies_contain_no_secrets() {
    let provider = FakeProvider::start().await.unwrap();
    provider.script(
        "leaks",
        [Behaviour::Say(format!("<summary>{}</summary>", seeded()))],
    );
    let mut asked = request(vec![
        ChatMessage::user(seeded()),
        ChatMessage::assistant(format!("I used {}", secrets()[1])),
    ]);
    asked.system = seeded();
    asked.instruction = format!("{} {}", asked.instruction, secrets()[0]);
    let mut replies = Vec::new();
    // The second model returns secrets itself, so its reply must be redacted too.
    for model in ["claude-fake", "leaks"] {
        replies.push(
            RedactingSummarizer(anthropic(&provider, model))
                .summarize(&asked)
                .await
                .unwrap()
                .text,
        );
    }
    replies.push(
        RedactingSummarizer(openai(&provider, "gpt-fake"))
            .summarize(&asked)
            .await
            .unwrap()
            .text,
    );

    let mut seeded_rounds: Vec<Round> = rounds(4, 100);
    for round in &mut seeded_rounds {
        round.turns.push(ChatMessage::user(format!(
            "{} {}",
            seeded(),
            "filler ".repeat(400)
        )));
        round.tokens += 900;
    }
    let client = RedactingSummarizer(anthropic(&provider, "m+ptl=anthropic+times=1"));
    replies.push(
        summarize_with_retries(&client, &asked, &seeded_rounds, ShortenSettings::default())
            .await
            .unwrap()
            .reply
            .text,
    );
    let settings = ChunkSettings {
        chunk_tokens: 300,
        max_chunks: 32,
        max_requests: 32,
    };
    let instruct = |_| "Write a <summary>.".to_owned();
    replies.push(
        summarize_in_chunks(&client, &asked, &seeded_rounds, settings, &instruct)
            .await
            .unwrap()
            .reply
            .text,
    );

    let sent: String = provider
        .requests()
        .iter()
        .map(|recorded| recorded.body.to_string())
        .collect();
    assert!(sent.contains("[redacted: anthropic key]") && provider.requests().len() > 8);
    for secret in secrets() {
        assert!(!sent.contains(&secret), "{secret} was sent");
        assert!(
            !replies.iter().any(|reply| reply.contains(&secret)),
            "{secret} came back"
        );
    }
}

#[tokio::test]
async fn without_redaction_they_contain_secrets() {
    let provider = FakeProvider::start().await.unwrap();
    anthropic(&provider, "claude-fake")
        .summarize(&request(vec![ChatMessage::user(seeded())]))
        .await
        .unwrap();
    let sent = provider.requests()[0].body.to_string();
    assert!(
        secrets().iter().all(|secret| sent.contains(secret)),
        "the test above can fail"
    );
}
