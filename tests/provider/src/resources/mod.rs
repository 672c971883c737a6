//! The objects that the providers keep: models, files and batches.

mod batches;
mod files;
mod models;
mod multipart;
mod pages;

use std::collections::VecDeque;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Method, Response};
use bytes::Bytes;
use serde_json::Value;

use crate::credential::without_key;
use crate::openai::CREATED;
use crate::refusal::{Api, Refusal, json_response, respond};
use crate::server::Shared;
use crate::state::{Recorded, State};
use crate::wire::Connection;
use crate::{anthropic, openai};

/// The maximum size of a request, in bytes.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;
/// The maximum number of objects of one kind. The oldest ones are evicted.
const MAX_OBJECTS: usize = 1_000;
/// The date of [`CREATED`].
const CREATED_DATE: &str = "2023-11-14T22:13:20Z";

/// The stored objects.
#[derive(Default)]
pub(crate) struct Resources {
    files: VecDeque<files::File>,
    batches: VecDeque<batches::Batch>,
}

/// A request for an object.
struct Call<'a> {
    api: Api,
    parts: &'a Parts,
    raw: Bytes,
}

/// The answer to an accepted request.
enum Reply {
    Json(Value),
    /// The content of a file.
    Content(&'static str, Bytes),
}

/// Answers and records a request.
pub(crate) async fn handle(
    shared: &Arc<Shared>,
    connection: &Connection,
    request: Request,
) -> Response<Body> {
    let line = &connection.0;
    line.set_one_byte(false);
    let (parts, body) = request.into_parts();
    // Both providers have these paths, and only Anthropic's clients send a version.
    let api = if parts.headers.contains_key("anthropic-version") {
        Api::Messages
    } else {
        Api::Responses
    };
    let id = shared.state().id("req_");
    let raw = to_bytes(body, MAX_BODY_BYTES).await;
    let answered = match &raw {
        Ok(raw) => {
            let call = Call {
                api,
                parts: &parts,
                raw: raw.clone(),
            };
            call.answer(&mut shared.state())
        }
        Err(_) => Err(Refusal::new(
            413,
            "request_too_large",
            "Request exceeds the maximum size",
        )),
    };
    let response = match answered {
        Ok(Reply::Json(body)) => json_response(200, &body, api, &id),
        Ok(Reply::Content(kind, bytes)) => respond(200, kind, Body::from(bytes), api, &id),
        Err(refusal) => refusal.respond(api, &id),
    };
    let raw = raw.unwrap_or_default();
    let recorded = Recorded {
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        status: response.status().as_u16(),
        body: serde_json::from_slice(&raw).unwrap_or_default(),
        headers: without_key(&parts.headers),
        raw,
        head: line.head(),
    };
    shared.state().record_resource(recorded);
    response
}

impl Call<'_> {
    fn answer(&self, state: &mut State) -> Result<Reply, Refusal> {
        let path = self.parts.uri.path();
        let path: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
        match self.api {
            Api::Messages => anthropic::admitted(&self.parts.headers)?,
            Api::Chat | Api::Responses => openai::admitted(&self.parts.headers)?,
        }
        match (self.api, path.as_slice()) {
            (_, ["models", rest @ ..]) => self.models(rest),
            (_, ["files", rest @ ..]) => self.files(state, rest),
            (Api::Messages, ["messages", "batches", rest @ ..]) | (_, ["batches", rest @ ..]) => {
                self.batches(state, rest)
            }
            _ => Err(not_found("Not found")),
        }
    }

    fn is_anthropic(&self) -> bool {
        self.api == Api::Messages
    }

    fn method(&self) -> &Method {
        &self.parts.method
    }

    /// Returns a parameter of the query.
    fn query(&self, name: &str) -> Option<&str> {
        let query = self.parts.uri.query().unwrap_or_default();
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let mut values = pairs.filter(|(key, _)| *key == name);
        values.next().map(|(_, value)| value)
    }

    /// Returns a time as the API writes it.
    fn time(&self) -> Value {
        if self.is_anthropic() {
            Value::from(CREATED_DATE)
        } else {
            Value::from(CREATED)
        }
    }
}

fn not_found(message: impl Into<String>) -> Refusal {
    Refusal::new(404, "not_found_error", message)
}

/// Adds an object and evicts the oldest one.
fn add<T>(objects: &mut VecDeque<T>, object: T) {
    objects.push_back(object);
    if objects.len() > MAX_OBJECTS {
        objects.pop_front();
    }
}
