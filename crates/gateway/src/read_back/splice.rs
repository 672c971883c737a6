//! Joins the streams of several responses of a provider to one, without the calls of offered tools.

use std::sync::Arc;

use serde::Serialize;

use super::chat::Chat;
use super::messages::Messages;
use super::responses::Responses;
use crate::reading::{Fields, ResponseApi, Unread, write_event};

/// The form in which the agent gets an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The bytes of the provider.
    AsIs,
    /// Other bytes.
    Changed(Vec<u8>),
    /// The agent does not get the event.
    Hidden,
}

/// The calls in the current response.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Calls {
    /// The calls of offered tools.
    pub(super) own: usize,
    /// The calls that the agent has to run.
    pub(super) agents: usize,
}

/// The state that the splicers of all APIs have.
#[derive(Debug)]
pub(super) struct Splice {
    names: Arc<[String]>,
    pub(super) calls: Calls,
    /// True if the current response has ended with calls of offered tools only.
    pub(super) continues: bool,
    /// False if the current response is the last one in any case.
    pub(super) may_continue: bool,
    /// True for a response after the first one.
    pub(super) is_later: bool,
    /// The output tokens of the earlier responses, and of the current one.
    pub(super) output_tokens: (u64, u64),
}

impl Splice {
    pub(super) fn new(names: Arc<[String]>) -> Self {
        Self {
            names,
            calls: Calls::default(),
            continues: false,
            may_continue: true,
            is_later: false,
            output_tokens: (0, 0),
        }
    }

    /// Begins the next response of the provider.
    pub(super) fn begin_next(&mut self) {
        self.calls = Calls::default();
        self.continues = false;
        self.is_later = true;
        // A provider can report any number.
        let output = self.output_tokens.0.saturating_add(self.output_tokens.1);
        self.output_tokens = (output, 0);
    }

    /// Returns true if the agent gets events at other positions than the provider sent them: after a hidden call, and in
    /// every response after the first one.
    pub(super) fn is_displaced(&self) -> bool {
        self.is_later || self.calls.own > 0
    }

    pub(super) fn is_own(&self, name: Option<&str>) -> bool {
        name.is_some_and(|name| self.names.iter().any(|own| own == name))
    }

    /// Decides at the end of a response whether another one follows. `is_regular` is true if the model ended it.
    pub(super) fn end(&mut self, is_regular: bool) -> bool {
        // Only the agent can run its own calls, so a response with one of them ends.
        let only_own = self.calls.own > 0 && self.calls.agents == 0;
        self.continues = only_own && is_regular && self.may_continue;
        self.continues
    }

    /// Returns true if the response ends with hidden calls only, and nothing follows.
    pub(super) fn ends_without_calls(&self) -> bool {
        self.calls.own > 0 && self.calls.agents == 0 && !self.continues
    }

    /// Adds the output tokens of the earlier responses.
    pub(super) fn add_output(&self, usage: &mut Fields, field: &str) -> Result<(), Unread> {
        let own: Option<u64> = usage.read(field)?;
        if let Some(own) = own {
            usage.set_value(field, &own.saturating_add(self.output_tokens.0))?;
        }
        Ok(())
    }
}

/// The splicer of one response to the agent.
#[derive(Debug)]
pub(super) struct Splicer {
    state: Splice,
    /// True if an event was hidden.
    is_changed: bool,
    api: ApiSplicer,
}

#[derive(Debug)]
enum ApiSplicer {
    Messages(Messages),
    Chat(Chat),
    Responses(Box<Responses>),
}

impl Splicer {
    pub(super) fn new(api: ResponseApi, names: Arc<[String]>) -> Self {
        Self {
            state: Splice::new(names),
            is_changed: false,
            api: match api {
                ResponseApi::Messages => ApiSplicer::Messages(Messages::default()),
                ResponseApi::Chat => ApiSplicer::Chat(Chat::default()),
                ResponseApi::Responses => ApiSplicer::Responses(Box::default()),
            },
        }
    }

    /// Decides about an event from its data.
    pub(super) fn event(&mut self, data: &[u8]) -> Result<Shown, Unread> {
        let state = &mut self.state;
        let shown = match &mut self.api {
            ApiSplicer::Messages(splicer) => splicer.event(state, data),
            ApiSplicer::Chat(splicer) => splicer.event(state, data),
            ApiSplicer::Responses(splicer) => splicer.event(state, data),
        }?;
        // All other changes follow from a hidden event, or concern definitions of tools.
        self.is_changed |= shown == Shown::Hidden;
        Ok(shown)
    }

    /// Begins the next response of the provider.
    pub(super) fn begin_next(&mut self, may_continue: bool) {
        self.state.begin_next();
        self.state.may_continue = may_continue;
        match &mut self.api {
            ApiSplicer::Messages(splicer) => splicer.begin_next(),
            ApiSplicer::Chat(splicer) => splicer.begin_next(),
            ApiSplicer::Responses(splicer) => splicer.begin_next(),
        }
    }

    pub(super) fn calls(&self) -> Calls {
        self.state.calls
    }

    /// Returns true if the current response has ended with calls of offered tools only.
    pub(super) fn continues(&self) -> bool {
        self.state.continues
    }

    /// Returns true if the agent got other bytes than those of the provider.
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }
}

/// Returns an event of a stream.
pub(super) fn event(name: Option<&str>, data: &impl Serialize) -> Result<Vec<u8>, Unread> {
    let mut out = Vec::new();
    write_event(&mut out, name, &serde_json::to_string(data)?);
    Ok(out)
}

/// Returns an event that ends a stream with the provider's error, given as the body of its response.
pub(super) fn failure(api: ResponseApi, body: &[u8]) -> Vec<u8> {
    let error: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    // A body of another form, such as a page of a proxy, is no event of the API.
    let error = error.filter(|error| error["error"].is_object());
    let error = error.unwrap_or_else(|| {
        serde_json::json!({"type": "error", "error": {"type": "api_error",
            "message": "the provider did not continue the response; send the request again"}})
    });
    let (name, error) = match api {
        ResponseApi::Messages => (Some("error"), error),
        ResponseApi::Chat => (None, error),
        ResponseApi::Responses => {
            let mut error = error["error"].clone();
            // The Responses API names the kind of an error in `code`.
            let code = ["code", "type"].map(|field| error[field].clone());
            let code = code.into_iter().find(serde_json::Value::is_string);
            error["code"] = code.unwrap_or_else(|| "server_error".into());
            error["type"] = "error".into();
            (Some("error"), error)
        }
    };
    // A parsed JSON value can always be written, so the default is never used.
    event(name, &error).unwrap_or_default()
}
