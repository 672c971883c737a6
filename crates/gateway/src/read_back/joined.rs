//! Joins responses without streams to one. Without I/O.

use std::sync::Arc;

use super::splice::{Calls, Splice};
use super::{chat, messages, responses};
use crate::reading::{Fields, ResponseApi, Unread};

/// The responses of the provider that become one response to the agent.
#[derive(Debug)]
pub struct JoinedResponses {
    api: ResponseApi,
    state: Splice,
    read: Vec<Fields>,
}

impl JoinedResponses {
    /// Creates the responses to a request that offered tools with these names.
    pub fn new(api: ResponseApi, names: Arc<[String]>) -> Self {
        Self {
            api,
            state: Splice::new(names),
            read: Vec::new(),
        }
    }

    /// Adds a response as JSON, and decides whether another one follows. `may_continue` is false if it is the last one in
    /// any case.
    ///
    /// # Errors
    ///
    /// Fails if the response is not understood.
    pub fn add(&mut self, json: &[u8], may_continue: bool) -> Result<(), Unread> {
        let fields: Fields = serde_json::from_slice(json)?;
        let state = &mut self.state;
        let (calls, is_regular): (Calls, bool) = match self.api {
            ResponseApi::Messages => messages::calls(state, &fields),
            ResponseApi::Chat => chat::calls(state, &fields),
            ResponseApi::Responses => responses::calls(state, &fields),
        }?;
        state.calls = calls;
        state.may_continue = may_continue;
        let usage: Fields = fields.read("usage")?.unwrap_or_default();
        let field = match self.api {
            ResponseApi::Chat => "completion_tokens",
            ResponseApi::Messages | ResponseApi::Responses => "output_tokens",
        };
        state.output_tokens.1 = usage.read(field)?.unwrap_or_default();
        state.end(is_regular);
        self.read.push(fields);
        Ok(())
    }

    /// Begins the next response of the provider.
    pub fn begin_next(&mut self) {
        self.state.begin_next();
    }

    /// Makes the last response the end, whatever it calls.
    pub fn end(&mut self) {
        self.state.continues = false;
    }

    /// Returns true if the last response contains calls of offered tools.
    pub fn has_own_calls(&self) -> bool {
        self.state.calls.own > 0
    }

    /// Returns true if the last response has ended with calls of offered tools only, so that another one follows.
    pub fn continues(&self) -> bool {
        self.state.continues
    }

    /// Returns the response for the agent. `None` if the agent gets the only response as it came.
    ///
    /// # Errors
    ///
    /// Fails if the responses cannot be joined.
    pub fn joined(&self) -> Result<Option<Vec<u8>>, Unread> {
        if let [only] = &self.read[..]
            && !self.has_own_calls()
            && !self.repeats_tools(only)?
        {
            return Ok(None);
        }
        let joined = match self.api {
            ResponseApi::Messages => messages::join(&self.state, &self.read),
            ResponseApi::Chat => chat::join(&self.state, &self.read),
            ResponseApi::Responses => responses::join(&self.state, &self.read),
        }?;
        Ok(Some(serde_json::to_vec(&joined)?))
    }

    /// Returns true if a response repeats offered tools of its request, which only the Responses API does.
    fn repeats_tools(&self, response: &Fields) -> Result<bool, Unread> {
        match self.api {
            ResponseApi::Messages | ResponseApi::Chat => Ok(false),
            ResponseApi::Responses => responses::repeats_tools(&self.state, response),
        }
    }
}
