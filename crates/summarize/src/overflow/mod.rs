//! Detection of errors that report a prompt as too long, in the wordings of all known providers.
//!
//! Each wording has a test. Similar errors, such as a rate limit in tokens per minute or an invalid
//! output limit, are excluded, because a shorter prompt would not help.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

/// The excess of a prompt. Values that the provider did not state are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptTooLong {
    /// The number of excess tokens.
    pub gap_tokens: Option<u64>,
    /// The number of requested tokens, including the reserved output if the provider counts it.
    pub actual: Option<u64>,
    /// The number of tokens that the model accepts.
    pub limit: Option<u64>,
}

impl PromptTooLong {
    fn new(actual: Option<u64>, limit: Option<u64>) -> Self {
        // A size within the limit contradicts the error, so the gap is unknown and not zero.
        let gap_tokens = match (actual, limit) {
            (Some(actual), Some(limit)) => actual.checked_sub(limit).filter(|gap| *gap > 0),
            _ => None,
        };
        Self {
            gap_tokens,
            actual,
            limit,
        }
    }
}

impl fmt::Display for PromptTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the prompt is too long for the model")?;
        match (self.actual, self.limit, self.gap_tokens) {
            (Some(actual), Some(limit), _) => write!(f, " ({actual} tokens, {limit} fit)"),
            (_, _, Some(gap)) => write!(f, " (by {gap} tokens)"),
            (_, Some(limit), _) => write!(f, " ({limit} tokens fit)"),
            _ => Ok(()),
        }
    }
}

/// The number of bytes of an error that are inspected. The longest known wording has 300 bytes.
const MAX_INSPECTED_BYTES: usize = 16 * 1024;

/// Wordings with numbers. The group names identify the numbers: `a` is the actual size, `b` is added
/// to it, `l` is the limit and `g` the gap.
const MESSAGES_WITH_NUMBERS: [&str; 22] = [
    // Anthropic, also through Bedrock and Vertex.
    r"prompt is too long: N<a> tokens > N<l>",
    r"input length and .{0,2}max_tokens.{0,2} exceed context limit: N<a> \+ N<b> > N<l>",
    // OpenAI, Azure, DeepSeek, OpenRouter, vLLM, SGLang.
    r"maximum context length (?:is|of) N<l> tokens\..{0,20}your (?:messages|prompt|input) (?:resulted in|contains|has) (?:at least )?N<a>",
    r"maximum context length (?:is|of) N<l> tokens\..{0,20}your request has (?:at least )?N<a> input tokens",
    r"maximum context length (?:is|of) N<l> tokens.{0,20}you requested (?:a total of )?(?:about )?N<a> tokens",
    r"maximum context length (?:is|of) N<l> tokens and your request has N<a> input tokens \(N<b> >",
    // The first match wins, so the wording without the actual size follows those with both numbers.
    r"maximum context length (?:is|of) N<l> tokens",
    r"passed N<a> input tokens(?: and requested N<b> output tokens)?\. however, the model's context length is only N<l>",
    r"\(length N<a>\).{0,60}longer than the maximum model length of N<l>",
    r"\(N<a> tokens\) is longer than the model's context length \(N<l>",
    // Gemini and Vertex.
    r"input token count \(N<a>\) exceeds the maximum number of tokens allowed \(N<l>\)",
    r"input token count exceeds the maximum number of tokens allowed \(?N<l>",
    // xAI, Mistral, GitHub Copilot, Kimi, Cerebras, Fireworks.
    r"maximum prompt length is N<l> but the request contains N<a>",
    r"prompt contains N<a> tokens.{0,60}too large for model with N<l> maximum context length",
    r"prompt token count of N<a> exceeds the limit of N<l>",
    r"exceeded model token limit: N<l> \(requested: N<a>\)",
    r"current length is N<a> while limit is N<l>",
    r"prompt is too long: N<a>, model maximum context length: N<l>",
    // Text Generation Inference and Together.
    r"must be <= N<l>\. given: N<a> .{0,2}inputs.{0,2} tokens and N<b> .{0,2}max_new_tokens",
    // llama.cpp, in older versions and in those with numbers in the text.
    r"request \(N<a> tokens\) exceeds the available context size \(N<l>",
    r"prompt has N<a> tokens?, but the configured context size is N<l>",
    // Ollama and Cohere.
    r"(?:exceeded (?:max )?context length|size limit exceeded) by N<g> tokens",
];

/// Wordings without numbers, and error codes.
const MESSAGES_WITHOUT_NUMBERS: [&str; 24] = [
    r"prompt (?:is )?too long",
    r"context_length_exceeded",
    r"context[ _]length exceeded",
    r"model_context_window_exceeded",
    r"exceed_context_size_error",
    r"exceeds? (?:the |this )?(?:model's |models )?(?:maximum |max |available )?context (?:length|size|window|limit)",
    r"exceeds? the context window",
    r"context window exceeds limit",
    r"context size has been exceeded",
    r"input (?:is )?too long for (?:the )?requested model",
    r"too many input tokens\b",
    r"input tokens exceeded",
    r"number of input tokens exceeds maximum",
    r"greater than the context length",
    r"loaded with context length of only",
    r"longer than the model's context length",
    r"longer than the maximum model length",
    r"too large for model with",
    r"reduce the length of the (?:messages|prompt|input)",
    r"range of input length should be",
    r"prompt exceeds max length",
    r"exceeds the maximum number of tokens allowed",
    r"request_too_large",
    r"string_above_max_length",
];

/// A single request that exceeds the tokens allowed per minute never succeeds, whatever the wait.
/// Groq returns 413, OpenAI 429.
const OVER_MINUTE_LIMIT: &str =
    r"request too large for .{0,120}(?:tokens per min|tpm).{0,40}limit N<l>, requested N<a>";

/// Similar wordings with a different meaning: throttling, and an output limit above the model's
/// maximum.
const UNRELATED_MESSAGES: &str = r"please wait before trying|per day|rate limit of|maximum allowed number of output tokens|supports at most";

/// llama.cpp returns its numbers in fields beside the text.
const FIELDS: [(&str, &str); 2] = [
    (r#""n_prompt_tokens"\s*:\s*N<a>"#, "a"),
    (r#""n_ctx"\s*:\s*N<l>"#, "l"),
];

/// Parses a provider's error: the status, if known, and the body or error text. Returns `None` if
/// the error has another cause.
pub fn prompt_too_long(status: Option<u16>, text: &str) -> Option<PromptTooLong> {
    // A success, rejected credentials or an unknown model has another cause, whatever words the text contains.
    if matches!(status, Some(200..=299 | 401..=404)) {
        return None;
    }
    // The text is untrusted and may be large, so only its beginning is matched.
    let text = start_of(text);
    if let Some(found) = numbers(&OVER, text) {
        return Some(found);
    }
    // A 429 is a rate limit, except for the single oversized request that was checked above.
    if status == Some(429) || NOT.is_match(text) {
        return None;
    }
    if let Some(found) = NUMBERED.iter().find_map(|wording| numbers(wording, text)) {
        return Some(found);
    }
    // A proxy rejects a large body with 413 and a page of HTML. A shorter prompt helps there too.
    let bare = PLAIN.is_match(text) || status == Some(413);
    bare.then(|| PromptTooLong::new(field(text, 0), field(text, 1)))
}

fn field(text: &str, index: usize) -> Option<u64> {
    let captures = BESIDE[index].captures(text)?;
    number(captures.name(FIELDS[index].1)?.as_str())
}

fn numbers(wording: &Regex, text: &str) -> Option<PromptTooLong> {
    let captures = wording.captures(text)?;
    let named = |name| captures.name(name).and_then(|found| number(found.as_str()));
    let actual = named("a").map(|actual| actual.saturating_add(named("b").unwrap_or(0)));
    let mut found = PromptTooLong::new(actual, named("l"));
    found.gap_tokens = found.gap_tokens.or(named("g"));
    Some(found)
}

/// Parses a number with optional thousands separators, such as "300,000".
fn number(text: &str) -> Option<u64> {
    text.replace(',', "").parse().ok()
}

fn start_of(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_INSPECTED_BYTES)]
}

#[expect(
    clippy::expect_used,
    reason = "the wordings are constants, and tests compile them all"
)]
fn compile(wording: &str) -> Regex {
    // `N<a>` becomes the named group `(?P<a>…)` for a number with optional thousands separators.
    let numbers = Regex::new("N<(.)>").expect("a constant");
    let wording = numbers.replace_all(wording, r"(?P<$1>\d[\d,]{0,15})");
    Regex::new(&format!("(?is){wording}")).expect("a constant")
}

static NUMBERED: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    MESSAGES_WITH_NUMBERS
        .iter()
        .map(|wording| compile(wording))
        .collect()
});
static PLAIN: LazyLock<Regex> = LazyLock::new(|| compile(&MESSAGES_WITHOUT_NUMBERS.join("|")));
static OVER: LazyLock<Regex> = LazyLock::new(|| compile(OVER_MINUTE_LIMIT));
static NOT: LazyLock<Regex> = LazyLock::new(|| compile(UNRELATED_MESSAGES));
static BESIDE: LazyLock<Vec<Regex>> =
    LazyLock::new(|| FIELDS.iter().map(|(wording, _)| compile(wording)).collect());

#[cfg(test)]
mod tests;
