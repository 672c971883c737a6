//! A model provider for tests: a small HTTP server with Anthropic's Messages API and OpenAI's Chat Completions API. It
//! validates as strictly as the providers, answers as scripted, and records all requests.
//!
//! It shares no code with the product. Its rules are written from the providers' documentation, so that it detects an
//! invalid view that the product considers valid.
//!
//! [`FakeProvider::script`] or the model's name sets the behavior (see [`script`]). The name needs no access to the
//! process: `claude-fake+window=8192`, `gpt-fake+status=429+retry-after=1+times=2`.
//!
//! There is no model. Tokens are bytes divided by four. Answers are fixed texts, or the headings that the prompt
//! requests with lines of the conversation.

mod anthropic;
mod cache;
mod echo;
mod openai;
mod refusal;
pub mod script;
mod server;
mod state;
mod stream;
mod tokens;

pub use script::{Behaviour, Plan, Wording};
pub use server::FakeProvider;
pub use state::Recorded;
pub use tokens::count;
