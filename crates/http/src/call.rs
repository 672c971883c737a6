//! The gRPC call behind a request of another protocol.

use std::convert::Infallible;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, Version};
use http_body::Body;
use http_body_util::BodyExt as _;
use tonic::{Code, Status};
use tower::{Service, ServiceExt as _};

use crate::decoder::BodyDecoder;

/// The trailers with the outcome of a call.
const STATUS_HEADERS: [&str; 3] = ["grpc-status", "grpc-message", "grpc-status-details-bin"];
/// The header with the timeout of a gRPC call.
const TIMEOUT_HEADER: &str = "grpc-timeout";
/// The header with the timeout of a call in milliseconds, from the Connect protocol.
const TIMEOUT_MS_HEADER: &str = "connect-timeout-ms";

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The status, with the metadata of the trailers.
    pub(crate) status: Status,
    /// The headers, if they came before the status.
    pub(crate) headers: HeaderMap,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
        }
    }
}

/// The reply of a call with one message.
#[derive(Debug)]
pub(crate) struct Unary<B> {
    pub(crate) headers: HeaderMap,
    pub(crate) message: Bytes,
    pub(crate) trailers: HeaderMap,
    /// The body keeps the call in flight.
    pub(crate) body: B,
}

/// A response whose messages are read one by one.
#[derive(Debug)]
pub(crate) struct Reply<B> {
    /// The headers, without those of gRPC.
    pub(crate) headers: HeaderMap,
    body: B,
    buffer: BytesMut,
    /// The outcome of the call, once known.
    status: Option<Status>,
    /// The metadata behind the messages of a successful call.
    pub(crate) trailers: HeaderMap,
    has_ended: bool,
}

/// Calls a method. The body of the request is turned into its message by the path of the call.
pub(crate) async fn call<S, B>(
    service: S,
    request: Request<tonic::body::Body>,
    path: &str,
    decoder: BodyDecoder,
) -> Result<Reply<B>, Status>
where
    S: Service<Request<tonic::body::Body>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    let request = grpc_request(request, path, decoder)?;
    let response = match service.oneshot(request).await {
        Ok(response) => response,
        Err(impossible) => match impossible {},
    };
    let (head, body) = response.into_parts();
    // A status in the headers is the outcome of a call without messages.
    if let Some(status) = Status::from_header_map(&head.headers)
        && status.code() != Code::Ok
    {
        return Err(status);
    }
    // These headers describe the framed messages of gRPC, and not the body that the caller gets.
    let mut headers = head.headers;
    for name in [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LENGTH] {
        headers.remove(name);
    }
    Ok(Reply {
        headers,
        body,
        buffer: BytesMut::new(),
        status: None,
        trailers: HeaderMap::new(),
        has_ended: false,
    })
}

fn grpc_request(
    mut request: Request<tonic::body::Body>,
    path: &str,
    decoder: BodyDecoder,
) -> Result<Request<tonic::body::Body>, Status> {
    let uri = Uri::try_from(path).map_err(|_| Status::unimplemented("the path names no method"))?;
    *request.uri_mut() = uri;
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    let headers = request.headers_mut();
    for name in [CONTENT_ENCODING, CONTENT_LENGTH] {
        headers.remove(name);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    if let Some(millis) = headers.remove(TIMEOUT_MS_HEADER) {
        let digits = millis
            .to_str()
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(digits) = digits.filter(|digits| (1..=10).contains(&digits.len())) else {
            return Err(Status::invalid_argument(
                "connect-timeout-ms must be an integer of at most ten digits",
            ));
        };
        // A timeout in gRPC has at most eight digits.
        // Ten digits fit `u64`, so the parse cannot fail.
        let seconds = digits.parse::<u64>().unwrap_or_default().div_ceil(1_000);
        let timeout = if digits.len() <= 8 {
            format!("{digits}m")
        } else {
            // `1234567890` milliseconds become `1234568S`.
            format!("{seconds}S")
        };
        if let Ok(timeout) = HeaderValue::try_from(timeout) {
            headers.insert(TIMEOUT_HEADER, timeout);
        }
    }
    request.extensions_mut().insert(decoder);
    Ok(request)
}

impl<B: Body<Data = Bytes, Error = Status> + Unpin> Reply<B> {
    /// Returns the next message. `None` after the last message of a successful call.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        loop {
            if let Some(message) = self.take_message() {
                return Some(message);
            }
            if self.has_ended {
                let status = self.status.take()?;
                return (status.code() != Code::Ok).then_some(Err(status));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    // The only frame of a short reply is used without a copy.
                    Ok(data) if self.buffer.is_empty() => self.buffer = data.into(),
                    Ok(data) => self.buffer.extend_from_slice(&data),
                    Err(frame) => {
                        // A frame has data or trailers, so the default is never used.
                        let trailers = frame.into_trailers().unwrap_or_default();
                        self.status = Status::from_header_map(&trailers);
                        self.trailers = trailers;
                        for name in STATUS_HEADERS {
                            self.trailers.remove(name);
                        }
                        self.has_ended = true;
                    }
                },
                Some(Err(status)) => {
                    self.has_ended = true;
                    return Some(Err(status));
                }
                // Bytes that are left belong to a message that was cut off.
                None => {
                    self.has_ended = true;
                    self.status = (!self.buffer.is_empty()).then(incomplete);
                }
            }
        }
    }

    /// Returns the reply of a call with one message.
    pub(crate) async fn only(mut self) -> Result<Unary<B>, Failure> {
        let message = match self.next().await {
            Some(Ok(message)) => message,
            Some(Err(status)) => return Err(self.failure(status)),
            None => return Err(self.failure(incomplete())),
        };
        // The second step reads the trailers, which can still report an error.
        match self.next().await {
            None => Ok(Unary {
                headers: self.headers,
                message,
                trailers: self.trailers,
                body: self.body,
            }),
            Some(Err(status)) => Err(self.failure(status)),
            Some(Ok(_)) => Err(self.failure(incomplete())),
        }
    }

    fn failure(self, status: Status) -> Failure {
        Failure {
            status,
            headers: self.headers,
        }
    }

    fn take_message(&mut self) -> Option<Result<Bytes, Status>> {
        // The prefix of a message: the flag of its compression and four bytes of its length.
        let [flag, length @ ..] = *self.buffer.first_chunk::<5>()?;
        if flag != 0 {
            return Some(Err(incomplete()));
        }
        let length = u32::from_be_bytes(length) as usize;
        if self.buffer.len() < 5 + length {
            return None;
        }
        self.buffer.advance(5);
        Some(Ok(self.buffer.split_to(length).freeze()))
    }
}

fn incomplete() -> Status {
    Status::internal("the reply of the service is not complete; this is a defect")
}
