//! The way of one request through the provider: checks, scripted behavior, answer, and record.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Response};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::billing::Charge;
use crate::credential::{Credential, without_key};
use crate::faults::{self, End, Fault, RetryAfter, Status};
use crate::plan::{Behaviour, Plan, Wording};
use crate::refusal::{Api, Refusal, json_response, respond};
use crate::script::Asked;
use crate::server::Shared;
use crate::state::Recorded;
use crate::stream::pace::Pace;
use crate::stream::{self, Delivery};
use crate::turn::{Answer, Prompt};
use crate::wire::{Connection, Line};
use crate::{anthropic, openai, responses};

/// Anthropic's maximum request size. Its edge rejects larger requests.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// A route of the APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Messages,
    /// The count of a Messages prompt.
    CountTokens,
    Chat,
    Responses,
    /// Compaction of a Responses conversation.
    Compact,
}

impl Route {
    fn api(self) -> Api {
        match self {
            Self::Messages | Self::CountTokens => Api::Messages,
            Self::Chat => Api::Chat,
            Self::Responses | Self::Compact => Api::Responses,
        }
    }
}

/// The outcome of an accepted request.
enum Outcome {
    /// The answer and the plan that decides about its delivery.
    Whole(Value, Box<Plan>),
    /// The headers and the first bytes of the body. Then the connection closes.
    Half(Value),
    /// A proxy's page instead of the provider's JSON.
    Page(u16),
    /// The error body of another server.
    Foreign(u16, Value),
    /// A stream of the Responses API that reports this error, and the plan that decides about its delivery.
    Failed(Refusal, Box<Plan>),
    /// The connection is reset.
    Reset,
}

/// Answers and records a request.
pub(crate) async fn handle(
    shared: &Arc<Shared>,
    route: Route,
    connection: &Connection,
    request: Request,
) -> Response<Body> {
    let line = &connection.0;
    // A connection serves several requests. The pace of an earlier answer must not slow this one.
    line.set_one_byte(false);
    let api = route.api();
    let (parts, body) = request.into_parts();
    let id = shared.state().id("req_");
    let (raw, json, outcome) = if let Ok(raw) = to_bytes(body, MAX_BODY_BYTES).await {
        let json: Value = serde_json::from_slice(&raw).unwrap_or(Value::Null);
        let outcome = answer(shared, route, &parts.headers, &json).await;
        (raw, json, outcome)
    } else {
        let message = "Request exceeds the maximum size";
        let refusal = Refusal::new(413, "request_too_large", message);
        (Bytes::new(), Value::Null, Err(refusal))
    };
    let mut status = None;
    let response = match outcome {
        Ok(Outcome::Reset) => {
            // The response below has status 200, which no client receives.
            status = Some(0);
            reset(line)
        }
        Ok(outcome) => deliver(shared, api, &parts.headers, &json, outcome, line, &id),
        Err(refusal) => refusal.respond(api, &id),
    };
    let recorded = Recorded {
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        status: status.unwrap_or_else(|| response.status().as_u16()),
        body: json,
        headers: without_key(&parts.headers),
        raw,
        head: line.head(),
    };
    shared.state().record(recorded);
    response
}

/// Returns a response of which no byte reaches the client.
fn reset(line: &Line) -> Response<Body> {
    line.reset();
    let error = std::io::Error::other("the script resets the connection");
    Response::new(Body::from_stream(futures::stream::iter([Err::<Bytes, _>(
        error,
    )])))
}

async fn answer(
    shared: &Arc<Shared>,
    route: Route,
    headers: &HeaderMap,
    body: &Value,
) -> Result<Outcome, Refusal> {
    let api = route.api();
    match api {
        Api::Messages => anthropic::admitted(headers)?,
        Api::Chat | Api::Responses => openai::admitted(headers)?,
    }
    // The bill of a request includes its output, which is set after the answer exists.
    let credential = Credential::of(headers);
    let model = body["model"].as_str().unwrap_or_default();
    let charge = Charge {
        credential: &credential,
        model,
        now: shared.clock.now(),
        output: 0,
    };
    if route == Route::CountTokens {
        let counted = anthropic::counted(headers, body)?;
        return Ok(Outcome::Whole(counted, Box::default()));
    }
    if route == Route::Compact {
        let compacted = responses::compacted(&mut shared.state(), &charge, body)?;
        return Ok(Outcome::Whole(compacted, Box::default()));
    }
    // A continued thread contains new messages only. All later checks need the whole conversation.
    let threaded = match api {
        Api::Messages => shared.state().threads.joined(body)?,
        Api::Chat | Api::Responses => None,
    };
    let given = body;
    let body = threaded.as_ref().unwrap_or(given);
    let prompt = prompt(api, body);
    let asked = Asked {
        model,
        headers,
        prompt: &prompt,
    };
    // The plan is taken before validation. A rejected request therefore uses up its scripted turn.
    let plan = shared.state().plan(&asked).map_err(Refusal::invalid)?;
    // The lock of the state is free here, so other requests are answered during the delay.
    shared.clock.sleep(plan.delay).await;
    // An overloaded provider fails before it validates the request.
    if let Some(outcome) = fails_early(shared, api, &plan) {
        return outcome;
    }
    let needed = match api {
        Api::Messages => anthropic::check(headers, body, &plan)?,
        Api::Chat => openai::check(body, &plan)?,
        Api::Responses => {
            let checked = responses::check(&shared.state().stored, body, &plan);
            match checked {
                // The real API accepts the stream first, then sends `response.failed` with `context_length_exceeded`.
                Err(refusal) if is_streamed_failure(body, &refusal) => {
                    return Ok(Outcome::Failed(refusal, Box::new(plan)));
                }
                checked => checked?,
            }
        }
    };
    plan.fits(&prompt.tools)?;
    if let Behaviour::TooLong(wording) = plan.behaviour {
        return match too_long(wording, needed, body) {
            Err(refusal) if api == Api::Responses && is_streamed_failure(body, &refusal) => {
                Ok(Outcome::Failed(refusal, Box::new(plan)))
            }
            outcome => outcome,
        };
    }
    let answer = Answer::of(&plan, prompt);
    let charge = Charge {
        output: answer.tokens(),
        ..charge
    };
    let mut state = shared.state();
    let whole = match api {
        Api::Messages => {
            let message = anthropic::message(&mut state, &charge, body, &answer);
            // `given` has the field `thread`, `body` the joined conversation.
            state.threads.hold(given, body, &message);
            message
        }
        Api::Chat => openai::completion(&mut state, &charge, body, &answer),
        Api::Responses => responses::response(&mut state, &charge, body, &answer),
    };
    Ok(match plan.behaviour {
        // The answer was generated and billed before the connection closes.
        Behaviour::Drop => Outcome::Half(whole),
        _ => Outcome::Whole(whole, Box::new(plan)),
    })
}

/// Returns true for a failure that a stream of the Responses API reports in an event, after the status 200.
fn is_streamed_failure(body: &Value, refusal: &Refusal) -> bool {
    body["stream"] == json!(true) && refusal.code == Some("context_length_exceeded")
}

/// Returns the parts of a request that decide about its answer. The request is not validated yet.
fn prompt(api: Api, body: &Value) -> Prompt<'_> {
    match api {
        Api::Messages => anthropic::prompt(body),
        Api::Chat => openai::prompt(body),
        Api::Responses => responses::prompt(body),
    }
}

/// Returns the scripted failure that needs no valid request.
fn fails_early(shared: &Arc<Shared>, api: Api, plan: &Plan) -> Option<Result<Outcome, Refusal>> {
    match &plan.fault {
        Some(Fault::RefuseMs(ms)) => {
            shared.refuse(Duration::from_millis(*ms));
            return Some(Ok(Outcome::Reset));
        }
        Some(Fault::Reset) => return Some(Ok(Outcome::Reset)),
        Some(Fault::Html(status)) => return Some(Ok(Outcome::Page(*status))),
        Some(Fault::Status(status)) => return Some(Err(faults::failure(api, status))),
        _ => {}
    }
    match plan.behaviour {
        Behaviour::Fail {
            status,
            retry_after,
        } => Some(Err(faults::failure(
            api,
            &Status {
                status,
                retry_after: retry_after.map(whole_seconds_or_millis),
            },
        ))),
        Behaviour::Redirect => {
            // The target is the same path, so that a client that follows the redirect is recorded twice.
            let path = match api {
                Api::Messages => "/v1/messages",
                Api::Chat => "/v1/chat/completions",
                Api::Responses => "/v1/responses",
            };
            let moved = Refusal::new(307, "redirect", "Moved").header("location", path);
            Some(Err(moved))
        }
        _ => None,
    }
}

fn whole_seconds_or_millis(wait: Duration) -> RetryAfter {
    // `retry-after` has whole seconds. Shorter waits need the header `retry-after-ms`.
    if wait.subsec_millis() == 0 {
        RetryAfter::Seconds(wait.as_secs())
    } else {
        RetryAfter::Millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
    }
}

fn deliver(
    shared: &Shared,
    api: Api,
    headers: &HeaderMap,
    request: &Value,
    outcome: Outcome,
    line: &Arc<Line>,
    id: &str,
) -> Response<Body> {
    match outcome {
        Outcome::Whole(whole, plan) if is_plain(request, &plan) => {
            json_response(200, &whole, api, id)
        }
        Outcome::Whole(whole, plan) => {
            let delivery = delivery(shared, api, request, &whole, &plan, line);
            let delivery = delivery.counted(&shared.abandoned);
            encoded(api, headers, request, &plan, delivery, id)
        }
        Outcome::Failed(refusal, plan) => {
            let open = responses::empty(request, &format!("resp_{id}"));
            let events = faults::failed(&open, &refusal);
            let (line, clock) = (Arc::clone(line), shared.clock.clone());
            let delivery = Delivery::of_events(&events, plan.pace.clone(), line, clock);
            encoded(api, headers, request, &plan, delivery, id)
        }
        Outcome::Half(whole) => {
            let text = whole.to_string();
            let (line, clock) = (Arc::clone(line), shared.clock.clone());
            let delivery =
                Delivery::of_body(text, Pace::default(), line, clock).cut_after(Some(20));
            let body = delivery.body(None).unwrap_or_default();
            respond(200, "application/json", body, api, id)
        }
        Outcome::Page(status) => faults::page(status, api, id),
        Outcome::Foreign(status, body) => json_response(status, &body, api, id),
        Outcome::Reset => reset(line),
    }
}

/// Returns true for an answer in one piece, which has a content length.
fn is_plain(request: &Value, plan: &Plan) -> bool {
    request["stream"] != json!(true) && plan.fault.is_none() && plan.pace == Pace::default()
}

/// Returns the delivery of an answer: events for a stream, otherwise one body.
fn delivery(
    shared: &Shared,
    api: Api,
    request: &Value,
    whole: &Value,
    plan: &Plan,
    line: &Arc<Line>,
) -> Delivery {
    let (line, clock, pace) = (Arc::clone(line), shared.clock.clone(), plan.pace.clone());
    let cut_after = match plan.fault {
        Some(Fault::CutAfterByte(bytes)) => Some(bytes),
        _ => None,
    };
    if request["stream"] != json!(true) {
        let body = whole.to_string();
        let (cut_after, end) = match plan.fault {
            // A plain body has no events to count, so a fault between events cuts at its middle.
            Some(Fault::CutAfterEvent(_)) => (Some(body.len() / 2), End::Cut),
            Some(Fault::ResetAfterEvent(_)) => (Some(body.len() / 2), End::Reset),
            _ => (cut_after, End::Clean),
        };
        return Delivery::of_body(body, pace, line, clock)
            .cut_after(cut_after)
            .ends(end);
    }
    let mut events = match api {
        Api::Messages => stream::messages::events(whole, &pace),
        Api::Chat => stream::chat::events(whole, request, &pace),
        Api::Responses => stream::responses::events(whole, &pace),
    };
    let end = faults::inject(plan.fault.as_ref(), api, whole, &mut events);
    Delivery::of_events(&events, pace, line, clock)
        .cut_after(cut_after)
        .ends(end)
}

/// Returns the response with the content coding that the script wants and the client accepts.
fn encoded(
    api: Api,
    headers: &HeaderMap,
    request: &Value,
    plan: &Plan,
    delivery: Delivery,
    id: &str,
) -> Response<Body> {
    let accepted = headers
        .get("accept-encoding")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let coding = plan
        .pace
        .coding
        .filter(|coding| coding.is_accepted(accepted));
    let kind = if request["stream"] == json!(true) {
        "text/event-stream; charset=utf-8"
    } else {
        "application/json"
    };
    let body = match delivery.body(coding) {
        Ok(body) => body,
        Err(error) => {
            let message = format!("Cannot encode the answer: {error}");
            return Refusal::new(500, "api_error", message).respond(api, id);
        }
    };
    let mut response = respond(200, kind, body, api, id);
    if let Some(coding) = coding {
        let name = HeaderValue::from_static(coding.name());
        response.headers_mut().insert("content-encoding", name);
    }
    response
}

/// Returns the error for a prompt that is too long, with the numbers of this request. The stated limit is about a tenth
/// lower than the request.
fn too_long(wording: Wording, needed: u64, body: &Value) -> Result<Outcome, Refusal> {
    let limit = needed - needed / 10 - 1;
    let output = body["max_tokens"].as_u64().unwrap_or(0);
    Err(match wording {
        Wording::Anthropic => anthropic::too_long(needed, limit),
        Wording::AnthropicOutput => anthropic::output_too_long(needed, output, limit),
        Wording::OpenAi => openai::too_long(needed, limit),
        Wording::Responses => responses::too_long(),
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
            return Ok(Outcome::Foreign(400, body));
        }
        Wording::Proxy => return Ok(Outcome::Page(413)),
    })
}
