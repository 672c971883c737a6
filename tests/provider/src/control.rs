//! The routes under `/_control` with which a program in any language scripts the provider.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::body::Bytes;
use axum::extract::State as Extension;
use axum::http::{HeaderMap, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::billing::Bill;
use crate::credential::Credential;
use crate::refusal::{Api, Refusal, json_response};
use crate::server::Shared;

type Outcome = Result<Value, String>;

/// A time in milliseconds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Milliseconds {
    ms: u64,
}

/// Returns the recorded requests.
pub(crate) async fn requests(Extension(shared): Extension<Arc<Shared>>) -> Response<Body> {
    let recorded = shared.state().recorded();
    let requests: Vec<Value> = recorded
        .iter()
        // The bytes of the head contain the key, so they are not listed.
        .map(|recorded| {
            json!({
                "path": recorded.path, "query": recorded.query, "status": recorded.status,
                "headers": recorded.headers, "body": recorded.body,
            })
        })
        .collect();
    reply(Ok(json!({"requests": requests})))
}

/// Returns the bill of the request's key. Without a key, those of all keys by their digests.
pub(crate) async fn bill(
    Extension(shared): Extension<Arc<Shared>>,
    headers: HeaderMap,
) -> Response<Body> {
    let state = shared.state();
    let credential = Credential::of(&headers);
    let bill = if credential == Credential::of_key("") {
        let bills = state.billing.bills().iter();
        let bills: Map<String, Value> = bills
            .map(|(credential, bill)| (credential.0.clone(), shown(bill)))
            .collect();
        json!({"bills": bills})
    } else {
        shown(&state.billing.bill(&credential))
    };
    reply(Ok(bill))
}

fn shown(bill: &Bill) -> Value {
    json!({
        "requests": bill.requests,
        "input_tokens": bill.input,
        "cache_read_tokens": bill.read,
        "cache_write_5m_tokens": bill.written_5m,
        "cache_write_1h_tokens": bill.written_1h,
        "output_tokens": bill.output,
        "cost_milli": bill.cost_milli,
    })
}

/// Adds a script.
pub(crate) async fn script(
    Extension(shared): Extension<Arc<Shared>>,
    body: Bytes,
) -> Response<Body> {
    let added = parse(&body).and_then(|script| shared.state().add_script(script, body.len()));
    reply(added.map(|()| json!({})))
}

/// Returns the time since the start of the provider.
pub(crate) async fn clock(Extension(shared): Extension<Arc<Shared>>) -> Response<Body> {
    reply(Ok(now(&shared)))
}

/// Advances the clock.
pub(crate) async fn advance(
    Extension(shared): Extension<Arc<Shared>>,
    body: Bytes,
) -> Response<Body> {
    reply(parse(&body).map(|Milliseconds { ms }| {
        shared.clock.advance(Duration::from_millis(ms));
        now(&shared)
    }))
}

/// Refuses new connections for a time.
pub(crate) async fn refuse(
    Extension(shared): Extension<Arc<Shared>>,
    body: Bytes,
) -> Response<Body> {
    reply(parse(&body).map(|Milliseconds { ms }| {
        shared.refuse(Duration::from_millis(ms));
        json!({})
    }))
}

fn now(shared: &Shared) -> Value {
    json!({"now_ms": shared.clock.now().as_secs_f64() * 1_000.0})
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("Cannot read the body: {error}"))
}

fn reply(outcome: Outcome) -> Response<Body> {
    match outcome {
        Ok(body) => json_response(200, &body, Api::Messages, "control"),
        Err(message) => Refusal::invalid(message).respond(Api::Messages, "control"),
    }
}
