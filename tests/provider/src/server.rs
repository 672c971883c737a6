//! The HTTP server: routes, keys, scripted behavior and the record of requests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, Response};
use axum::routing::{any, get, post};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::refusal::{Api, Refusal, json_response, respond};
use crate::script::{Behaviour, Plan, Wording};
use crate::state::{Recorded, State};
use crate::{anthropic, openai, stream};

/// Anthropic's maximum request size. Its edge rejects larger requests.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

type Memory = Arc<Mutex<State>>;

/// A running provider. It stops on drop.
pub struct FakeProvider {
    address: SocketAddr,
    state: Memory,
    server: Option<JoinHandle<std::io::Result<()>>>,
}

impl FakeProvider {
    /// Starts a provider on a free loopback port.
    pub async fn start() -> anyhow::Result<Self> {
        Self::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// Starts a provider at an address.
    pub async fn listen(address: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let state = Memory::default();
        let app = Router::new()
            .route("/v1/messages", post(messages))
            .route("/v1/chat/completions", post(completions))
            .route("/_control/requests", get(requests))
            .fallback(any(nothing_here))
            .with_state(Arc::clone(&state));
        let server = tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self {
            address,
            state,
            server: Some(server),
        })
    }

    /// Returns the base URL. Anthropic's clients use it directly, OpenAI's with the suffix `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Scripts the next requests with this model's name, in order. Later requests get the behavior that the name
    /// defines.
    pub fn script<P: Into<Plan>>(&self, model: &str, plans: impl IntoIterator<Item = P>) {
        lock(&self.state).script(model, plans.into_iter().map(Into::into));
    }

    /// Returns the latest requests, oldest first.
    pub fn requests(&self) -> Vec<Recorded> {
        lock(&self.state).recorded()
    }

    /// Serves until the listener fails.
    pub async fn serve_until_it_fails(mut self) -> anyhow::Result<()> {
        if let Some(server) = self.server.take() {
            server.await??;
        }
        Ok(())
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}

fn lock(state: &Memory) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn messages(Shared(state): Shared<Memory>, request: Request) -> Response<Body> {
    handle(&state, Api::Anthropic, request).await
}

async fn completions(Shared(state): Shared<Memory>, request: Request) -> Response<Body> {
    handle(&state, Api::OpenAi, request).await
}

async fn requests(Shared(state): Shared<Memory>) -> Response<Body> {
    let recorded = lock(&state).recorded();
    let requests: Vec<Value> = recorded
        .iter()
        .map(|recorded| json!({"path": recorded.path, "status": recorded.status, "body": recorded.body}))
        .collect();
    json_response(
        200,
        &json!({"requests": requests}),
        Api::Anthropic,
        "control",
    )
}

async fn nothing_here(request: Request) -> Response<Body> {
    let api = if request.uri().path().contains("chat") {
        Api::OpenAi
    } else {
        Api::Anthropic
    };
    Refusal::new(404, "not_found_error", "Not found").respond(api, "none")
}

async fn handle(state: &Memory, api: Api, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let id = lock(state).id("req_");
    let (json, size, outcome) = if let Ok(body) = to_bytes(body, MAX_BODY_BYTES).await {
        let json: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let outcome = answer(state, api, &parts.headers, &json).await;
        (json, body.len(), outcome)
    } else {
        let message = "Request exceeds the maximum size";
        let refusal = Refusal::new(413, "request_too_large", message);
        (Value::Null, 0, Err(refusal))
    };
    let response = match outcome {
        Ok(answer) => deliver(api, &json, answer, &id),
        Err(refusal) => refusal.respond(api, &id),
    };
    let recorded = Recorded {
        path: parts.uri.path().to_owned(),
        status: response.status().as_u16(),
        body: json,
        headers: headers(&parts.headers),
    };
    lock(state).record(recorded, size);
    response
}

/// The answer to an accepted request.
enum Answer {
    Whole(Value),
    /// The headers and the first half of the body. Then the connection closes.
    Half(Value),
    /// A proxy's page instead of the provider's JSON.
    Page(u16, &'static str),
    /// The error body of another server.
    Foreign(u16, Value),
}

async fn answer(
    state: &Memory,
    api: Api,
    headers: &HeaderMap,
    body: &Value,
) -> Result<Answer, Refusal> {
    match api {
        Api::Anthropic => anthropic::admitted(headers)?,
        Api::OpenAi => openai::admitted(headers)?,
    }
    let model = body["model"].as_str().unwrap_or_default();
    let plan = lock(state).plan(model).map_err(Refusal::invalid)?;
    if !plan.delay.is_zero() {
        tokio::time::sleep(plan.delay).await;
    }
    // An overloaded provider fails before it validates the request.
    if let Behaviour::Fail {
        status,
        retry_after,
    } = plan.behaviour
    {
        return Err(failure(api, status, retry_after));
    }
    if plan.behaviour == Behaviour::Redirect {
        // The target is the same path, so that a client that follows the redirect is recorded twice.
        let path = match api {
            Api::Anthropic => "/v1/messages",
            Api::OpenAi => "/v1/chat/completions",
        };
        return Err(Refusal::new(307, "redirect", "Moved").header("location", path));
    }
    let needed = match api {
        Api::Anthropic => anthropic::check(headers, body, &plan)?,
        Api::OpenAi => openai::check(body, &plan)?,
    };
    if let Behaviour::TooLong(wording) = plan.behaviour {
        return too_long(wording, needed, body);
    }
    let mut memory = lock(state);
    let whole = match api {
        Api::Anthropic => anthropic::message(&mut memory, body, &plan),
        Api::OpenAi => openai::completion(&mut memory, body, &plan),
    };
    Ok(match plan.behaviour {
        Behaviour::Drop => Answer::Half(whole),
        _ => Answer::Whole(whole),
    })
}

fn deliver(api: Api, request: &Value, answer: Answer, id: &str) -> Response<Body> {
    match answer {
        Answer::Whole(whole) if request["stream"] == json!(true) => {
            let events = match api {
                Api::Anthropic => stream::anthropic(&whole),
                Api::OpenAi => {
                    let with_usage = request["stream_options"]["include_usage"] == json!(true);
                    stream::openai(&whole, with_usage)
                }
            };
            respond(200, "text/event-stream", Body::from(events), api, id)
        }
        Answer::Whole(whole) => json_response(200, &whole, api, id),
        Answer::Half(whole) => {
            let text = whole.to_string();
            let half = Bytes::from(text.into_bytes()).slice(..20);
            let broken = futures::stream::iter([Ok(half), Err(std::io::Error::other("dropped"))]);
            respond(200, "application/json", Body::from_stream(broken), api, id)
        }
        Answer::Page(status, page) => respond(status, "text/html", Body::from(page), api, id),
        Answer::Foreign(status, body) => json_response(status, &body, api, id),
    }
}

/// Returns a failure in the provider's wording.
fn failure(api: Api, status: u16, retry_after: Option<Duration>) -> Refusal {
    let (kind, message) = match (api, status) {
        (Api::Anthropic, 429) => (
            "rate_limit_error",
            "This request would exceed your account's rate limit.",
        ),
        (Api::Anthropic, 529) => ("overloaded_error", "Overloaded"),
        (Api::Anthropic, 401) => ("authentication_error", "invalid x-api-key"),
        (Api::Anthropic, 403) => ("permission_error", "Your API key does not have permission."),
        (Api::Anthropic, _) => ("api_error", "Internal server error"),
        (Api::OpenAi, 429) => ("requests", "Rate limit reached for requests"),
        (Api::OpenAi, _) => (
            "server_error",
            "The server had an error while processing your request.",
        ),
    };
    let refusal = Refusal::new(status, kind, message);
    match retry_after {
        None => refusal,
        Some(wait) if wait.subsec_millis() == 0 => {
            refusal.header("retry-after", wait.as_secs().to_string())
        }
        Some(wait) => refusal.header("retry-after-ms", wait.as_millis().to_string()),
    }
}

/// Returns the error for a prompt that is too long, with the numbers of this request. The stated limit is about a tenth
/// lower than the request.
fn too_long(wording: Wording, needed: u64, body: &Value) -> Result<Answer, Refusal> {
    let limit = needed - needed / 10 - 1;
    let output = body["max_tokens"].as_u64().unwrap_or(0);
    Err(match wording {
        Wording::Anthropic => anthropic::too_long(needed, limit),
        Wording::AnthropicOutput => anthropic::output_too_long(needed, output, limit),
        Wording::OpenAi => openai::too_long(needed, limit),
        Wording::Bedrock => Refusal::invalid("Input is too long for requested model."),
        Wording::Gemini => Refusal::invalid(format!(
            "The input token count ({needed}) exceeds the maximum number of tokens allowed ({limit})."
        )),
        Wording::LlamaCpp => {
            let body = json!({"error": {
                "code": 400, "type": "exceed_context_size_error",
                "message": "the request exceeds the available context size, try increasing it",
                "n_prompt_tokens": needed, "n_ctx": limit,
            }});
            return Ok(Answer::Foreign(400, body));
        }
        Wording::Proxy => {
            return Ok(Answer::Page(
                413,
                "<html><h1>413 Request Entity Too Large</h1></html>",
            ));
        }
    })
}

/// Returns the headers without credentials.
fn headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let shown = headers
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "x-api-key" | "authorization" | "api-key"));
    shown
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect()
}
