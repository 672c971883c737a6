//! A rejected request, in the provider's error format.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

/// The called API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Chat Completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
}

/// The reason of a rejection.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// The error type, in the words of the called API.
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    /// The field `param` of OpenAI's errors. `code` is the next field.
    pub(crate) param: Option<String>,
    pub(crate) code: Option<&'static str>,
    /// The field `details` of Anthropic's errors.
    pub(crate) details: Option<Box<Value>>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Refusal {
    pub(crate) fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            message: message.into(),
            param: None,
            code: None,
            details: None,
            headers: Vec::new(),
        }
    }

    /// Returns the error for an invalid request: 400 `invalid_request_error` for both providers.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request_error", message)
    }

    pub(crate) fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn details(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Returns the error in the provider's format.
    pub(crate) fn respond(&self, api: Api, id: &str) -> Response<Body> {
        // Anthropic repeats the id of the request in the body. OpenAI states it in the header alone.
        let mut body = match api {
            Api::Messages => json!({
                "type": "error",
                "error": {"type": self.kind, "message": self.message},
                "request_id": id,
            }),
            Api::Chat | Api::Responses => json!({"error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }}),
        };
        if let Some(details) = &self.details {
            body["error"]["details"] = Value::clone(details);
        }
        let mut response = json_response(self.status, &body, api, id);
        for (name, value) in &self.headers {
            if let Ok(value) = HeaderValue::from_str(value) {
                response
                    .headers_mut()
                    .insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

pub(crate) fn json_response(status: u16, body: &Value, api: Api, id: &str) -> Response<Body> {
    respond(
        status,
        "application/json",
        Body::from(body.to_string()),
        api,
        id,
    )
}

pub(crate) fn respond(
    status: u16,
    kind: &'static str,
    body: Body,
    api: Api,
    id: &str,
) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static(kind));
    let name = match api {
        Api::Messages => "request-id",
        Api::Chat | Api::Responses => "x-request-id",
    };
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(HeaderName::from_static(name), id);
    }
    response
}
