//! How a summary is got from a model: one trait, two clients (Anthropic's Messages API and whatever
//! speaks OpenAI's Chat Completions), and what makes them dependable.
//!
//! - [`Summarizer`] is what a caller holds. [`Anthropic`] and [`OpenAi`] ask a provider, [`Chain`] goes
//!   on to the next model when one cannot answer, [`RedactingSummarizer`] takes secrets out on the way in and out.
//! - [`summarize_with_retries`] drops the oldest rounds when the prompt is too long, and
//!   [`summarize_in_chunks`] takes a conversation of many windows piece by piece.
//! - [`prompt_too_long`] and [`redact`] are pure, and of use to others.
//!
//! Deliberately not here: what a summary must contain and whether one is accepted (the core decides
//! that), the prompts, and the extractive summariser that needs no model. A caller falls to it when
//! everything here has failed.
//!
//! No error, log line or `Debug` output of this crate repeats what a conversation says.

mod anthropic;
mod breaker;
mod chain;
mod chunks;
mod delegated;
mod endpoint;
mod error;
mod fault;
mod http;
mod openai;
mod overflow;
mod redact;
mod redacting;
mod refusal;
mod request;
mod retry;
mod rounds;
mod secret;
mod shorten;
mod summarizer;
mod wire;

pub use anthropic::Anthropic;
pub use breaker::CircuitBreakerSettings;
pub use chain::{Chain, Link};
pub use chunks::{ChunkPosition, ChunkSettings, ChunkedSummary, plan_chunks, summarize_in_chunks};
pub use delegated::{Api, redacted_request, request_body};
pub use endpoint::{Auth, ModelEndpoint};
pub use error::Error;
pub use fault::Fault;
pub use http::HttpSettings;
pub use openai::{OpenAi, OutputCap};
pub use overflow::{PromptTooLong, prompt_too_long};
pub use redact::{Redacted, redact};
pub use redacting::RedactingSummarizer;
pub use request::{ChatMessage, Purpose, Request, Role, Stop, SummaryReply, Usage};
pub use retry::{Jitter, RetrySettings};
pub use rounds::{Round, TRUNCATED, shorten, turns};
pub use secret::SecretSource;
pub use shorten::{ShortenSettings, ShortenedSummary, summarize_with_retries};
pub use summarizer::Summarizer;
