//! A model provider for tests: a small HTTP server that speaks Anthropic's Messages API and OpenAI's Chat
//! Completions as strictly as they do, says what it is told to say, and remembers what it was asked.
//!
//! It shares no code with the product: its rules are written from the providers' documentation, so that
//! it can find a view that the product wrongly holds to be valid.
//!
//! What it does is set by [`FakeProvider::script`], or by the model's name (see [`script`]), which needs
//! no access to the process: `claude-fake+window=8192`, `gpt-fake+status=429+retry-after=1+times=2`.
//!
//! Not here: models themselves. Tokens are counted as bytes by four; answers are fixed texts, or the
//! headings that the prompt asks for with lines of the conversation under them.

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
