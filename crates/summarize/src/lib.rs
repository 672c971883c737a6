//! Summaries by models: one trait, two clients (Anthropic's Messages API and OpenAI's Chat
//! Completions API), and the mechanisms that make them reliable.
//!
//! - [`Summarizer`] is the interface. [`Anthropic`] and [`OpenAi`] call a provider. [`FallbackChain`] tries
//!   the next model after a failure. [`RedactingSummarizer`] removes secrets from requests and
//!   replies.
//! - [`summarize_with_retries`] drops the oldest rounds if the prompt is too long.
//!   [`summarize_in_chunks`] summarizes a conversation of several windows in pieces.
//! - [`ChatSpan`] is the span of a request to a model, for all crates that send one.
//! - [`prompt_too_long`] and [`redact`] are pure functions that other crates use too.
//!
//! The prompts, the requirements for a summary and its validation are outside of this crate. So is
//! the extractive summarizer, which needs no model and is used when every model fails.
//!
//! No error, log line or `Debug` output of this crate contains conversation text.

mod anthropic;
mod breaker;
mod chain;
mod chat_span;
mod chunks;
mod delegated;
mod endpoint;
mod error;
mod error_response;
mod http;
mod openai;
mod overflow;
mod provider_error;
mod redact;
mod redacting_summarizer;
mod request;
mod retry;
mod rounds;
mod secret;
mod shorten;
mod summarizer;
mod wire;

pub use anthropic::Anthropic;
pub use breaker::CircuitBreakerSettings;
pub use chain::{FallbackChain, ModelLink};
pub use chat_span::{ChatRequest, ChatResponse, ChatSpan};
pub use chunks::{ChunkPosition, ChunkSettings, ChunkedSummary, plan_chunks, summarize_in_chunks};
pub use delegated::{ApiFormat, redacted_request, request_body};
pub use endpoint::{Auth, ModelEndpoint};
pub use error::Error;
pub use http::HttpSettings;
pub use openai::{OpenAi, OutputLimitField};
pub use overflow::{PromptTooLong, prompt_too_long};
pub use provider_error::ProviderError;
pub use redact::{Redacted, redact};
pub use redacting_summarizer::RedactingSummarizer;
pub use request::{ChatMessage, Purpose, Role, StopReason, SummaryReply, SummaryRequest, Usage};
pub use retry::{Jitter, RetrySettings};
pub use rounds::{Round, TRUNCATED, shorten, turns};
pub use secret::{SecretError, SecretSource};
pub use shorten::{ShortenSettings, ShortenedSummary, summarize_with_retries};
pub use summarizer::Summarizer;
