//! Runs the model's calls of the service's tools inside a response, so that the agent never sees them.
//!
//! A view can refer to content that is stored. The body of such a request offers the tools that read it, in addition to
//! the agent's tools. If the model calls one of them, the gateway runs the call, sends the result, and joins both
//! responses of the provider to one. A response without such calls reaches the agent byte for byte.
//!
//! `calls` writes the results of calls. `splice` decides about each event of a stream, `places` keeps the positions of its
//! parts, `events` applies the decisions, and `joined` joins responses without a stream. `ask` runs the calls and sends the
//! next request. `body` is the stream for the agent, and `whole` the response without a stream.

mod ask;
mod body;
mod calls;
mod chat;
mod events;
mod joined;
mod messages;
mod places;
mod responses;
mod splice;
mod whole;

pub(crate) use self::ask::ReadBack;
pub(crate) use self::body::ReadBackBody;
pub(crate) use self::calls::results_json;
pub use self::events::SplicedEvents;
pub use self::joined::JoinedResponses;
pub(crate) use self::whole::read_whole;

/// The maximum number of requests to the provider for one response to the agent.
const MAX_ROUNDS: usize = 10;
/// The number of rounds after which calls fail, so that the model continues without them.
const MAX_RUN_ROUNDS: usize = 8;
/// The size of calls and results in one response after which calls fail, in bytes. The space that compactions leave in the
/// context window is larger.
const MAX_APPENDED_BYTES: usize = 64 * 1024;
