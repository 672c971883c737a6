//! Tests with the error texts of each provider as observed in practice.

use super::{PromptTooLong, prompt_too_long};

#[track_caller]
fn check(text: &str, actual: impl Into<Option<u64>>, limit: impl Into<Option<u64>>) {
    let expected = Some(PromptTooLong::new(actual.into(), limit.into()));
    assert_eq!(prompt_too_long(None, text), expected, "text alone: {text}");
    assert_eq!(prompt_too_long(Some(400), text), expected, "400: {text}");
}

#[track_caller]
fn not(status: Option<u16>, text: &str) {
    assert_eq!(prompt_too_long(status, text), None, "{text}");
}

#[test]
fn anthropic_overflow_messages_are_recognized() {
    check(
        "prompt is too long: 210000 tokens > 200000 maximum",
        210_000,
        200_000,
    );
    check(
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 1000500 tokens > 1000000 maximum"},"request_id":"req_1"}"#,
        1_000_500,
        1_000_000,
    );
    check(
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
        210_000,
        200_000,
    );
    check("API Error: 400 Prompt is too long", None, None);
    check(
        r#"{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
        None,
        None,
    );
}

#[test]
fn openai_compatible_overflow_messages_are_recognized() {
    check(
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. Please reduce the length of the messages.",
        9_000,
        8_192,
    );
    check(
        "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens (66000 in the messages, 4000 in the completion). Please reduce the length of the messages or completion.",
        70_000,
        65_536,
    );
    check(
        "This model's maximum context length is 8191 tokens, however you requested 10346 tokens (10346 in your prompt; 5 for the completion). Please reduce your prompt; or completion length.",
        10_346,
        8_191,
    );
    check(
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 150000 tokens (130000 of text input, 20000 in the output).",
        150_000,
        131_072,
    );
    check(
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        None,
        None,
    );
    check(
        r#"{"error":{"message":"?","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        None,
        None,
    );
    check(
        r#"{"error":{"message":"Invalid 'messages[0].content': string too long.","code":"string_above_max_length"}}"#,
        None,
        None,
    );
}

#[test]
fn vllm_and_sglang_overflow_messages_are_recognized() {
    // The provider adds the reserved output: 2,104 + 2,000 = 4,104 tokens.
    check(
        "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 tokens and your request has 2104 input tokens (2000 > 4096 - 2104).",
        4_104,
        4_096,
    );
    check(
        "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens. Please reduce the length of the input messages.",
        9_000,
        8_192,
    );
    // 8,100 tokens of input and 500 of output exceed the window together. Each of them fits alone.
    check(
        "You passed 8100 input tokens and requested 500 output tokens. However, the model's context length is only 8192 tokens, resulting in a maximum input length of 7692 tokens.",
        8_600,
        8_192,
    );
    check(
        "The decoder prompt (length 8357) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller than the number of text tokens.",
        8_357,
        8_192,
    );
    check(
        "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        9_000,
        8_192,
    );
    check(
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9000 tokens: 5000 tokens from the input messages and 4000 tokens for the completion.",
        9_000,
        8_192,
    );
}

#[test]
fn overflow_messages_of_other_clouds_are_recognized() {
    check(
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        1_196_265,
        1_048_575,
    );
    check(
        "The input token count exceeds the maximum number of tokens allowed 1048576.",
        None,
        1_048_576,
    );
    check(
        "ValidationException: Input is too long for requested model.",
        None,
        None,
    );
    check(
        "Too many input tokens. Max input tokens: 128000",
        None,
        None,
    );
    check(
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        537_812,
        131_072,
    );
    check(
        "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        65_673,
        32_768,
    );
    check(
        "prompt token count of 140000 exceeds the limit of 128000",
        140_000,
        128_000,
    );
    check(
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
        300_000,
        262_144,
    );
    check(
        "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
        9_000,
        8_192,
    );
    check(
        "The prompt is too long: 45066, model maximum context length: 32767",
        45_066,
        32_767,
    );
    check(
        "Please reduce the length of the messages or completion.",
        None,
        None,
    );
    check("invalid params, context window exceeds limit", None, None);
    check("Range of input length should be [1, 30720]", None, None);
    check("Prompt exceeds max length", None, None);
    check(
        "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens and 512 `max_new_tokens`",
        5_512,
        4_097,
    );
}

#[test]
fn overflow_messages_of_local_servers_are_recognized() {
    check(
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        None,
        None,
    );
    check(
        r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}"#,
        14_429,
        8_192,
    );
    check(
        "request (14429 tokens) exceeds the available context size (8192 tokens), try increasing it",
        14_429,
        8_192,
    );
    check(
        "Prompt has 300,000 tokens, but the configured context size is 131,072 tokens",
        300_000,
        131_072,
    );
    check(
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        None,
        None,
    );
    check("the input length exceeds the context length", None, None);
    let by = prompt_too_long(
        Some(400),
        "prompt too long; exceeded max context length by 4096 tokens",
    );
    assert_eq!(by.and_then(|found| found.gap_tokens), Some(4_096));
}

#[test]
fn a_request_above_the_minute_limit_is_too_long() {
    let groq = "Request too large for model `llama-3.3-70b-versatile` in organization `o` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 7201, please reduce your message size and try again.";
    assert_eq!(
        prompt_too_long(Some(413), groq),
        Some(PromptTooLong::new(Some(7_201), Some(6_000)))
    );
    let openai = "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Requested 45000. The input or output tokens must be reduced in order to run successfully.";
    let found = prompt_too_long(Some(429), openai);
    assert_eq!(found.and_then(|found| found.gap_tokens), Some(15_000));
}

#[test]
fn a_gateway_rejection_of_the_body_size_is_an_overflow() {
    let found = prompt_too_long(Some(413), "<html>413 Request Entity Too Large</html>");
    assert_eq!(found, Some(PromptTooLong::default()));
}

#[test]
fn similar_wordings_are_not_matched() {
    not(
        Some(429),
        "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
    );
    not(
        Some(429),
        "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
    );
    not(
        None,
        "ThrottlingException: Too many tokens, please wait before trying again.",
    );
    not(
        None,
        "max_tokens: 50000 > 32000, which is the maximum allowed number of output tokens for claude-x",
    );
    not(
        None,
        "max_tokens is too large: 50000. This model supports at most 16384 completion tokens, whereas you provided 50000.",
    );
    not(Some(401), "invalid x-api-key");
    not(
        Some(200),
        "prompt is too long: 210000 tokens > 200000 maximum",
    );
    not(Some(400), "messages.0.content.0.text: Field required");
    not(Some(400), "");
    not(None, "the tokens of this prompt");
}

#[test]
fn only_the_start_of_an_error_is_read() {
    // Each `é` has two bytes, so the wording begins at byte 40,000, after the inspected 16 KiB.
    let late = format!("{}prompt is too long", "é".repeat(20_000));
    not(Some(400), &late);
}
