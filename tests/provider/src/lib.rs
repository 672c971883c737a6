//! A model provider for tests: a small HTTP server with Anthropic's Messages API, and OpenAI's Chat Completions and
//! Responses APIs. It validates as strictly as the providers, answers as scripted, and records all requests.
//!
//! It shares no code with the product. Its rules are written from the providers' documentation, so that it detects an
//! invalid view that the product considers valid. Models, files and batches are served too.
//!
//! Three ways set the behavior. [`FakeProvider::script`] sets the next answers of a model. [`FakeProvider::add_script`]
//! and `POST /_control/script` set those of a conversation (see [`Script`]). The model's name needs no access to the
//! process (see [`named`]): `claude-fake+window=8192`, `gpt-fake+status=429+retry-after=1+times=2`.
//!
//! There is no model. Tokens are bytes divided by four. Answers are fixed texts, or the headings that the prompt
//! requests with lines of the conversation.

mod agent;
mod anthropic;
mod billing;
mod clock;
mod control;
mod credential;
mod echo;
mod exchange;
mod faults;
pub mod named;
mod openai;
mod plan;
mod refusal;
mod resources;
mod responses;
mod script;
mod server;
mod state;
mod stream;
mod structured;
mod tokens;
mod turn;
mod wire;

pub use agent::Round;
pub use billing::Bill;
pub use faults::{Fault, RetryAfter, Status};
pub use plan::{Behaviour, Plan, Wording};
pub use script::{Agent, Match, Script, ScriptedTurn};
pub use server::FakeProvider;
pub use state::Recorded;
pub use stream::coding::Coding;
pub use stream::pace::{Pace, Split};
pub use tokens::count;
pub use turn::{Call, Turn, Usage};
