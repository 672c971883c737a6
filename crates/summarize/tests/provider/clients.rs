//! Tests of the request bodies and the parsing of responses.

use palimpsest_fake_provider::{Behaviour, FakeProvider};
use palimpsest_summarize::{
    Anthropic, Auth, ChatMessage, Error, OpenAi, OutputLimitField, SecretSource, StopReason,
    Summarizer,
};
use serde_json::json;

use crate::{anthropic, bodies, endpoint, openai, request, small, statuses};

#[tokio::test]
async fn anthropic_requests_have_one_breakpoint_before_the_instruction() {
    let provider = FakeProvider::start().await.unwrap();
    let reply = anthropic(&provider, "claude-fake")
        .summarize(&small())
        .await
        .unwrap();
    assert_eq!(
        (reply.stop, reply.model.as_str()),
        (StopReason::EndTurn, "claude-fake")
    );
    assert!(
        reply.text.contains("## Primary Request\n- fix the parser"),
        "{}",
        reply.text
    );
    assert!(reply.usage.input > 0 && reply.usage.output > 0);
    assert_eq!(
        bodies(&provider)[0],
        json!({
            "model": "claude-fake",
            "max_tokens": 1_000,
            "system": "You summarise conversations.",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "fix the parser"}]},
                {"role": "assistant", "content": [{
                    "type": "text", "text": "done, see parse.rs",
                    "cache_control": {"type": "ephemeral"},
                }]},
                {"role": "user", "content": [{"type": "text", "text": small().instruction}]},
            ],
        })
    );
}

#[tokio::test]
async fn openai_requests_have_strings_and_the_system_message_first() {
    let provider = FakeProvider::start().await.unwrap();
    let turns = vec![
        ChatMessage::user("a"),
        ChatMessage::user("b"),
        ChatMessage::assistant("c"),
        ChatMessage::user("d"),
    ];
    let reply = openai(&provider, "gpt-fake")
        .summarize(&request(turns))
        .await
        .unwrap();
    assert_eq!(reply.stop, StopReason::EndTurn);
    assert_eq!(
        bodies(&provider)[0]["messages"],
        json!([
            {"role": "system", "content": "You summarise conversations."},
            {"role": "user", "content": "a\n\nb"},
            {"role": "assistant", "content": "c"},
            {"role": "user", "content": format!("d\n\n{}", small().instruction)},
        ])
    );
}

#[tokio::test]
async fn the_provider_accepts_any_sequence_of_turns() {
    let provider = FakeProvider::start().await.unwrap();
    let all = [
        vec![],
        vec![ChatMessage::assistant("first")],
        vec![
            ChatMessage::user(" \n"),
            ChatMessage::assistant("blank before  \n"),
            ChatMessage::assistant("twice"),
        ],
        vec![
            ChatMessage::user("ends with the user"),
            ChatMessage::user("again "),
        ],
    ];
    for turns in all {
        anthropic(&provider, "claude-fake")
            .summarize(&request(turns.clone()))
            .await
            .unwrap();
        openai(&provider, "gpt-fake")
            .summarize(&request(turns))
            .await
            .unwrap();
    }
    assert!(statuses(&provider).iter().all(|status| *status == 200));
}

#[tokio::test]
async fn a_second_summary_of_a_conversation_is_read_from_the_cache() {
    let provider = FakeProvider::start().await.unwrap();
    let client = anthropic(&provider, "claude-fake");
    let mut asked = request(vec![
        ChatMessage::user("x".repeat(40_000)),
        ChatMessage::assistant("y".repeat(8_000)),
    ]);
    let first = client.summarize(&asked).await.unwrap().usage;
    // 48,000 bytes, at four bytes per token.
    assert!(
        first.cache_write >= 12_000 && first.cache_read == 0,
        "{first:?}"
    );
    // The breakpoint is before the instruction, so another instruction still reads the cached conversation.
    asked.instruction = "Another instruction.".to_owned();
    let second = client.summarize(&asked).await.unwrap().usage;
    assert_eq!(
        (second.cache_read, second.cache_write),
        (first.cache_write, 0)
    );
    // OpenAI caches automatically. Cached tokens must not count as input tokens too.
    let client = openai(&provider, "gpt-fake");
    let first = client.summarize(&asked).await.unwrap().usage;
    let second = client.summarize(&asked).await.unwrap().usage;
    assert!(second.cache_read >= 10_000, "{second:?}");
    assert_eq!(first.input, second.input + second.cache_read);
}

#[tokio::test]
async fn stop_reasons_are_parsed() {
    let provider = FakeProvider::start().await.unwrap();
    let cases: [(&str, Result<StopReason, Error>); 3] = [
        ("+cut", Ok(StopReason::MaxTokens)),
        ("+cannot", Ok(StopReason::EndTurn)),
        ("+empty", Err(Error::Empty)),
    ];
    for (directive, expected) in cases {
        let by_anthropic = anthropic(&provider, &format!("claude{directive}"))
            .summarize(&small())
            .await;
        assert_eq!(
            by_anthropic.map(|reply| reply.stop),
            expected,
            "{directive}"
        );
        let by_openai = openai(&provider, &format!("gpt{directive}"))
            .summarize(&small())
            .await;
        assert_eq!(by_openai.map(|reply| reply.stop), expected, "{directive}");
    }
    let refused = anthropic(&provider, "claude+refuse")
        .summarize(&small())
        .await
        .unwrap_err();
    assert_eq!(refused.name(), "refused");
    let refused = openai(&provider, "gpt+refuse")
        .summarize(&small())
        .await
        .unwrap();
    assert_eq!(refused.stop, StopReason::Refusal);
    let mut asked = small();
    asked.max_output_tokens = 4;
    let cut = anthropic(&provider, "claude-fake")
        .summarize(&asked)
        .await
        .unwrap();
    // Four tokens of four bytes.
    assert_eq!((cut.stop, cut.text.len()), (StopReason::MaxTokens, 16));
}

#[tokio::test]
async fn the_other_output_limit_field_is_learned_once() {
    let provider = FakeProvider::start().await.unwrap();
    let client = openai(&provider, "o3-fake");
    client.summarize(&small()).await.unwrap();
    client.summarize(&small()).await.unwrap();
    // `o3` rejects `max_tokens`. The retry uses `max_completion_tokens`, and the second call begins with it.
    assert_eq!(statuses(&provider), [400, 200, 200]);
    assert_eq!(bodies(&provider)[2]["max_completion_tokens"], 1_000);

    // An explicit setting is never overridden.
    let url = format!("{}/v1", provider.url());
    let fixed = OpenAi::new(endpoint(&url, "o3-fake"), OutputLimitField::MaxTokens).unwrap();
    assert_eq!(
        fixed.summarize(&small()).await.unwrap_err().name(),
        "bad_request"
    );
}

#[tokio::test]
async fn the_model_of_a_request_overrides_that_of_the_endpoint() {
    let provider = FakeProvider::start().await.unwrap();
    let mut asked = small();
    asked.model = Some("claude-other".to_owned());
    let reply = anthropic(&provider, "claude-fake")
        .summarize(&asked)
        .await
        .unwrap();
    assert_eq!(reply.model, "claude-other");
}

#[tokio::test]
async fn keys_are_sent_in_the_header_of_the_provider() {
    let provider = FakeProvider::start().await.unwrap();
    let with = |auth: Auth| {
        let mut endpoint = endpoint(&provider.url(), "claude-fake");
        endpoint.auth = auth;
        endpoint
    };
    let bearer = Auth::Bearer(SecretSource::value("k"));
    Anthropic::new(with(bearer))
        .unwrap()
        .summarize(&small())
        .await
        .unwrap();
    // Azure has its API version in the query, which must survive when the path is extended.
    let mut azure = with(Auth::Header("api-key".to_owned(), SecretSource::value("k")));
    azure.base_url = format!("{}/v1?api-version=1", provider.url())
        .parse()
        .unwrap();
    OpenAi::new(azure, OutputLimitField::Either)
        .unwrap()
        .summarize(&small())
        .await
        .unwrap();

    let wrong = Auth::Key(SecretSource::value("invalid"));
    let error = Anthropic::new(with(wrong))
        .unwrap()
        .summarize(&small())
        .await
        .unwrap_err();
    assert_eq!(error.name(), "auth");
    let none = Anthropic::new(with(Auth::None))
        .unwrap()
        .summarize(&small())
        .await
        .unwrap_err();
    assert_eq!(none.name(), "auth");
    let unset = Auth::Key(SecretSource::Env("PALIMPSEST_TEST_NO_SUCH_KEY".to_owned()));
    let unset = Anthropic::new(with(unset))
        .unwrap()
        .summarize(&small())
        .await
        .unwrap_err();
    assert!(
        unset.to_string().contains("PALIMPSEST_TEST_NO_SUCH_KEY"),
        "{unset}"
    );
}

#[tokio::test]
async fn the_breakpoint_can_be_omitted() {
    let provider = FakeProvider::start().await.unwrap();
    let client = anthropic(&provider, "claude-fake").without_cache_marker();
    client.summarize(&small()).await.unwrap();
    assert!(!bodies(&provider)[0].to_string().contains("cache_control"));
}

#[tokio::test]
async fn debug_output_contains_no_conversation() {
    let provider = FakeProvider::start().await.unwrap();
    provider.script(
        "claude-fake",
        [Behaviour::Say("the secret plan".to_owned())],
    );
    let asked = request(vec![ChatMessage::user("the secret plan")]);
    let reply = anthropic(&provider, "claude-fake")
        .summarize(&asked)
        .await
        .unwrap();
    assert!(!format!("{asked:?} {reply:?}").contains("secret plan"));
}
