//! The failures that a script can inject into an answer.

use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::refusal::{Api, Refusal, respond};
use crate::stream::Event;

/// The failure of one answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Resets the connection, and refuses new connections for this time in milliseconds.
    RefuseMs(u64),
    /// Resets the connection before the first byte of the answer.
    Reset,
    /// Closes the connection after this number of events. An answer without a stream is cut after half of its body.
    CutAfterEvent(usize),
    /// Closes the connection after this number of bytes of the body.
    CutAfterByte(usize),
    /// Resets the connection after this number of events.
    ResetAfterEvent(usize),
    /// Replaces the data of the event after this number of events with invalid JSON.
    MalformedAfterEvent(usize),
    /// Ends the stream with the API's error event after this number of events.
    ErrorAfterEvent(usize),
    /// Ends the stream with `response.failed` after this number of events. Other APIs send their error event.
    FailedAfterEvent(usize),
    /// Fails with a status in the API's error format.
    Status(Status),
    /// Answers with this status and the HTML page of a proxy.
    Html(u16),
}

/// A failure by status.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The HTTP status.
    pub status: u16,
    /// The time after which the provider accepts a retry.
    #[serde(default)]
    pub retry_after: Option<RetryAfter>,
}

/// The form in which a failure states the time of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAfter {
    /// `retry-after` in whole seconds.
    Seconds(u64),
    /// `retry-after` with a fraction of a second, in milliseconds.
    Fraction(u64),
    /// `retry-after` as a date, this number of seconds ahead.
    Date(u64),
    /// `retry-after-ms` in milliseconds.
    Millis(u64),
    /// No `retry-after`, but the rate-limit headers of the API, in seconds.
    Limits(u64),
}

/// The end of a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// The end of the body.
    #[default]
    Clean,
    /// The connection closes before the end of the body.
    Cut,
    /// The connection is reset before the end of the body.
    Reset,
}

/// Returns the page of a proxy.
pub(crate) fn page(status: u16, api: Api, id: &str) -> Response<Body> {
    let page = format!("<html><head><title>{status}</title></head><body>nginx</body></html>\r\n");
    respond(status, "text/html", Body::from(page), api, id)
}

/// Returns a failure in the API's wording.
pub(crate) fn failure(api: Api, failed: &Status) -> Refusal {
    let (kind, message) = match (api, failed.status) {
        (Api::Messages, 429) => (
            "rate_limit_error",
            "This request would exceed your account's rate limit.",
        ),
        (Api::Messages, 529) => ("overloaded_error", "Overloaded"),
        (Api::Messages, 401) => ("authentication_error", "invalid x-api-key"),
        (Api::Messages, 403) => ("permission_error", "Your API key does not have permission."),
        (Api::Messages, _) => ("api_error", "Internal server error"),
        // OpenAI puts the exhausted limit, `requests` or `tokens`, in `type`.
        (_, 429) => ("requests", "Rate limit reached for requests"),
        _ => (
            "server_error",
            "The server had an error while processing your request.",
        ),
    };
    let mut refusal = Refusal::new(failed.status, kind, message);
    if api != Api::Messages && failed.status == 429 {
        refusal = refusal.code("rate_limit_exceeded");
    }
    match failed.retry_after {
        None => refusal,
        Some(RetryAfter::Seconds(wait)) => refusal.header("retry-after", wait.to_string()),
        Some(RetryAfter::Fraction(wait)) => refusal.header(
            "retry-after",
            format!("{}.{:03}", wait / 1_000, wait % 1_000),
        ),
        Some(RetryAfter::Date(wait)) => {
            refusal.header("retry-after", httpdate::fmt_http_date(wall_clock(wait)))
        }
        Some(RetryAfter::Millis(wait)) => refusal.header("retry-after-ms", wait.to_string()),
        Some(RetryAfter::Limits(wait)) => limits(api, refusal, wait),
    }
}

/// Adds the headers of an exhausted rate limit.
fn limits(api: Api, refusal: Refusal, wait: u64) -> Refusal {
    // Anthropic states the reset as a date, OpenAI as a duration such as `60s`.
    if api == Api::Messages {
        let date = httpdate::fmt_http_date(wall_clock(wait));
        return refusal
            .header("anthropic-ratelimit-requests-limit", "50")
            .header("anthropic-ratelimit-requests-remaining", "0")
            .header("anthropic-ratelimit-requests-reset", rfc3339(&date));
    }
    refusal
        .header("x-ratelimit-limit-requests", "50")
        .header("x-ratelimit-remaining-requests", "0")
        .header("x-ratelimit-reset-requests", format!("{wait}s"))
}

/// Returns the wall-clock time that is this number of seconds ahead.
#[expect(
    clippy::disallowed_methods,
    reason = "clients compare the date with their own clock"
)]
fn wall_clock(ahead_s: u64) -> std::time::SystemTime {
    std::time::SystemTime::now() + Duration::from_secs(ahead_s)
}

/// Converts an HTTP date, such as `Sun, 06 Nov 1994 08:49:37 GMT`, to RFC 3339.
fn rfc3339(date: &str) -> String {
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    // Each name has three letters: `Nov` is at offset 30, hence month 30 / 3 + 1 = 11.
    let month = months.find(&date[8..11]).unwrap_or_default() / 3 + 1;
    let (day, year, time) = (&date[5..7], &date[12..16], &date[17..25]);
    format!("{year}-{month:02}-{day}T{time}Z")
}

/// Changes the events of a stream as a fault requires. Returns the end of their delivery.
pub(crate) fn inject(
    fault: Option<&Fault>,
    api: Api,
    whole: &Value,
    events: &mut Vec<Event>,
) -> End {
    match fault {
        Some(Fault::CutAfterEvent(count)) => {
            events.truncate(*count);
            End::Cut
        }
        Some(Fault::ResetAfterEvent(count)) => {
            events.truncate(*count);
            End::Reset
        }
        Some(Fault::MalformedAfterEvent(count)) => {
            if let Some(event) = events.get_mut(*count) {
                // The first half of a JSON object is never valid JSON.
                let half = event.data.floor_char_boundary(event.data.len() / 2);
                event.data.truncate(half);
            }
            End::Clean
        }
        Some(Fault::ErrorAfterEvent(count)) => {
            events.truncate(*count);
            events.push(error_event(api, events.len()));
            End::Clean
        }
        Some(Fault::FailedAfterEvent(count)) => {
            events.truncate(*count);
            let event = if api == Api::Responses {
                let message = "The model failed to generate a response.";
                failed_event(whole, events.len(), "server_error", message)
            } else {
                error_event(api, events.len())
            };
            events.push(event);
            End::Clean
        }
        _ => End::Clean,
    }
}

fn error_event(api: Api, sequence: usize) -> Event {
    let message = "The server had an error while processing your request.";
    match api {
        Api::Messages => Event::named(&json!({
            "type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"},
        })),
        Api::Chat => Event::unnamed(&json!({"error": {
            "message": message, "type": "server_error", "param": null, "code": null,
        }})),
        Api::Responses => Event::named(&json!({
            "type": "error", "code": "server_error", "message": message, "param": null,
            "sequence_number": sequence,
        })),
    }
}

/// Returns the events of a response that fails before its first item.
pub(crate) fn failed(open: &Value, refusal: &Refusal) -> Vec<Event> {
    let created = |number, kind| {
        Event::named(&json!({"type": kind, "response": open, "sequence_number": number}))
    };
    let code = refusal.code.unwrap_or("server_error");
    vec![
        created(0, "response.created"),
        created(1, "response.in_progress"),
        failed_event(open, 2, code, &refusal.message),
    ]
}

fn failed_event(whole: &Value, sequence: usize, code: &str, message: &str) -> Event {
    let mut response = whole.clone();
    response["status"] = json!("failed");
    response["output"] = json!([]);
    response["usage"] = Value::Null;
    response["error"] = json!({"code": code, "message": message});
    Event::named(&json!({
        "type": "response.failed", "response": response, "sequence_number": sequence,
    }))
}

#[cfg(test)]
mod tests {
    use super::{RetryAfter, Status, failure, rfc3339};
    use crate::refusal::Api;

    #[test]
    fn each_form_of_retry_after_has_its_header() {
        let header = |api, form| {
            let failed = Status {
                status: 429,
                retry_after: Some(form),
            };
            let (name, value) = failure(api, &failed).headers.pop().unwrap();
            format!("{name}: {value}")
        };
        let messages = |form| header(Api::Messages, form);
        assert_eq!(messages(RetryAfter::Seconds(2)), "retry-after: 2");
        assert_eq!(messages(RetryAfter::Fraction(1_500)), "retry-after: 1.500");
        assert_eq!(messages(RetryAfter::Millis(1_500)), "retry-after-ms: 1500");
        let date = messages(RetryAfter::Date(60));
        assert!(date.ends_with(" GMT"), "{date}");
        let reset = messages(RetryAfter::Limits(60));
        assert!(reset.ends_with('Z'), "{reset}");
        let reset = header(Api::Chat, RetryAfter::Limits(60));
        assert_eq!(reset, "x-ratelimit-reset-requests: 60s");
    }

    #[test]
    fn http_dates_are_converted() {
        let date = rfc3339("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date, "1994-11-06T08:49:37Z");
    }
}
