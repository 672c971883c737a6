//! A single POST request with limits of time and size. Retries and the interpretation of responses
//! are elsewhere.
//!
//! The crate uses `reqwest` and no provider client. No maintained Rust client of the Messages API
//! exists. `async-openai` has its own retry policy without deadlines, hides `retry-after`, and
//! rejects the responses of many compatible servers by strict typing. Only one call of either API is
//! needed.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use reqwest::redirect::Policy;
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::error::Error;
use crate::provider_error::ProviderError;
use crate::retry::AttemptError;

/// The limits of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// The time limit of the connection, including TLS. Default: 10 s.
    pub connect_timeout: Duration,
    /// The time limit of one attempt. Responses are not streamed, so a long summary takes long.
    /// Default: 5 min.
    pub call_timeout: Duration,
    /// The maximum size of a response in bytes. Default: 4 MiB.
    pub max_reply_bytes: usize,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_mins(5),
            max_reply_bytes: 4 * 1024 * 1024,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct HttpClient {
    client: reqwest::Client,
    settings: HttpSettings,
}

/// The response to a request, with any status.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpClient {
    pub(crate) fn new(settings: HttpSettings) -> Result<Self, Error> {
        let client = reqwest::Client::builder()
            .connect_timeout(settings.connect_timeout)
            // A redirect would send the key to another host.
            .redirect(Policy::none())
            .user_agent(concat!("palimpsest/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| {
                Error::bad_request(format!("no HTTP client can be made: {}", kind(&error)))
            })?;
        Ok(Self { client, settings })
    }

    /// Sends a JSON body. A failed connection is retryable. A timeout is final, because a retry
    /// would take as long.
    pub(crate) async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        deadline: Instant,
    ) -> Result<HttpResponse, AttemptError> {
        let start = Instant::now();
        let until = start.checked_add(self.settings.call_timeout);
        let until = until.map_or(deadline, |until| until.min(deadline));
        let call = self.post_once(url, headers, body);
        timeout_at(until, call).await.unwrap_or_else(|_| {
            let after = until.saturating_duration_since(start);
            Err(AttemptError::Final(Error::Timeout { after }))
        })
    }

    async fn post_once(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<HttpResponse, AttemptError> {
        let request = self.client.post(url.clone()).headers(headers).body(body);
        let mut response = request
            .send()
            .await
            .map_err(|error| connection_error(kind(&error)))?;
        let status = response.status().as_u16();
        let headers = std::mem::take(response.headers_mut());
        let mut body = BytesMut::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| connection_error(kind(&error)))?
        {
            // The received bytes are counted, because `Content-Length` may be absent.
            if body.len() + chunk.len() > self.settings.max_reply_bytes {
                let limit = self.settings.max_reply_bytes;
                let detail = format!("its answer has more than {limit} bytes");
                return Err(AttemptError::Final(Error::bad_request(detail)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(HttpResponse {
            status,
            headers,
            body: body.freeze(),
        })
    }
}

/// Returns a description of the error. Omits the URL that the error's own text contains.
fn kind(error: &reqwest::Error) -> &'static str {
    if error.is_connect() {
        "no connection"
    } else if error.is_timeout() {
        "the connection timed out"
    } else if error.is_body() || error.is_decode() {
        "the connection ended amid the answer"
    } else if error.is_builder() {
        "the request cannot be built"
    } else {
        "the connection failed"
    }
}

impl HttpResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Removes the credentials that were sent from an error response. Some gateways repeat them, and
    /// error messages reach callers and logs.
    pub(crate) fn redact_credentials(&mut self, sent: &HeaderMap) {
        let secrets = sent.values().filter(|value| value.is_sensitive());
        for secret in secrets.filter_map(|value| value.to_str().ok()) {
            // An echo contains the key, but not necessarily the scheme of the header.
            let secret = secret.strip_prefix("Bearer ").unwrap_or(secret);
            let body = String::from_utf8_lossy(&self.body);
            if !secret.is_empty() && body.contains(secret) {
                self.body = Bytes::from(body.replace(secret, "[key]"));
            }
        }
    }

    /// Returns the wait that the provider requests. A date is compared with the response's own
    /// `Date` header, so local clock errors do not matter.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        // The form in milliseconds is the more precise one, so it takes precedence.
        if let Some(millis) = self.header("retry-after-ms") {
            return seconds(millis).map(|wait| wait / 1_000);
        }
        let after = self.header("retry-after")?.trim();
        if let Some(wait) = seconds(after) {
            return Some(wait);
        }
        let until = httpdate::parse_http_date(after).ok()?;
        let now = httpdate::parse_http_date(self.header("date")?).ok()?;
        // A date in the past means that the wait is over.
        Some(until.duration_since(now).unwrap_or(Duration::ZERO))
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.trim().parse().ok()?;
    // `from_secs_f64` would panic for `-3`, `inf` and `1e300`, which a server can send.
    Duration::try_from_secs_f64(seconds).ok()
}

/// Creates the retryable error for a connection that failed before or during the response.
pub(crate) fn connection_error(detail: impl Into<String>) -> AttemptError {
    let error = Error::Unavailable {
        retry_after: None,
        fault: ProviderError::local(detail),
    };
    AttemptError::Retryable {
        error,
        after: None::<Duration>,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, HeaderName};

    use super::HttpResponse;

    #[track_caller]
    fn check(headers: &[(&str, &str)], expected: Option<u64>) {
        let pair = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())
        };
        let answer = HttpResponse {
            status: 429,
            headers: headers.iter().map(pair).collect::<HeaderMap>(),
            body: Bytes::new(),
        };
        assert_eq!(
            answer.retry_after(),
            expected.map(Duration::from_millis),
            "{headers:?}"
        );
    }

    #[test]
    fn all_forms_of_retry_after_are_parsed() {
        check(&[("retry-after", "2")], Some(2_000));
        check(&[("retry-after", "0.5")], Some(500));
        check(
            &[("retry-after-ms", "250"), ("retry-after", "9")],
            Some(250),
        );
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        check(
            &[date, ("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT")],
            Some(60_000),
        );
        check(
            &[date, ("retry-after", "Sun, 06 Nov 1994 08:48:37 GMT")],
            Some(0),
        );
        check(&[("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT")], None);
        check(&[("retry-after", "-3")], None);
        check(&[("retry-after", "soon")], None);
        check(&[("retry-after", "1e300")], None);
        check(&[("retry-after", "inf")], None);
        check(&[], None);
    }
}
