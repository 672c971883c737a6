//! The service of the suite as a gRPC service: it answers as each request describes.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use palimpsest_http::{BodyDecoder, BodyProblem};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, ReflectMessage as _, Value};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::Service;

use super::PACKAGE;

const PREFIX_BYTES: usize = 5;
const ANY_PREFIX: &str = "type.googleapis.com/";

#[derive(Debug, Clone)]
pub(crate) struct Conformance {
    pool: DescriptorPool,
}

impl Conformance {
    pub(crate) fn new(pool: DescriptorPool) -> Self {
        Self { pool }
    }
}

impl Service<Request<Body>> for Conformance {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            Ok(service
                .answer(request)
                .await
                .unwrap_or_else(Status::into_http))
        })
    }
}

/// The parts of a request that its response repeats.
struct Received {
    headers: HeaderMap,
    message: DynamicMessage,
}

impl Conformance {
    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let path = request.uri().path().to_owned();
        let method = self
            .method(&path)
            .ok_or_else(|| Status::unimplemented("unknown"))?;
        let timeout = timeout_of(request.headers());
        let answering = self.handle(method, request);
        match timeout {
            None => answering.await,
            Some(timeout) => {
                let answered = tokio::time::timeout(timeout, answering).await;
                answered.unwrap_or_else(|_| Err(Status::deadline_exceeded("late")))
            }
        }
    }

    async fn handle(
        &self,
        method: MethodDescriptor,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let decoder = request.extensions_mut().remove::<BodyDecoder>();
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let framed = match decoder {
            None => only_message(&head.headers, body)?,
            Some(decoder) => decoder.decode(body).map_err(|problem| match problem {
                BodyProblem::MessageCount => Status::unimplemented("not one message"),
                problem => Status::invalid_argument(format!("{problem:?}")),
            })?,
        };
        let message = framed
            .get(PREFIX_BYTES..)
            .ok_or_else(|| Status::invalid_argument("no message"))?;
        let message = DynamicMessage::decode(method.input(), message);
        let message = message.map_err(|error| Status::invalid_argument(error.to_string()))?;
        if method.name() == "Unimplemented" {
            return Err(Status::unimplemented("not implemented"));
        }
        let received = Received {
            headers: head.headers,
            message,
        };
        let definition = message_in(&received.message, "response_definition");
        if method.is_server_streaming() {
            return Ok(self.stream(&method, &received, definition));
        }
        Ok(self.unary(&method, &received, definition).await)
    }

    fn method(&self, path: &str) -> Option<MethodDescriptor> {
        let (service, name) = path.trim_start_matches('/').split_once('/')?;
        let service = self.pool.get_service_by_name(service)?;
        service.methods().find(|method| method.name() == name)
    }

    async fn unary(
        &self,
        method: &MethodDescriptor,
        received: &Received,
        definition: Option<DynamicMessage>,
    ) -> Response<Body> {
        let info = self.request_info(received);
        let Some(definition) = definition else {
            let message = self.response(method, &Bytes::new(), Some(info));
            return respond(
                HeaderMap::new(),
                vec![message],
                Ok(HeaderMap::new()),
                Duration::ZERO,
            );
        };
        tokio::time::sleep(delay_of(&definition)).await;
        let headers = headers_of(&definition, "response_headers");
        let trailers = headers_of(&definition, "response_trailers");
        if let Some(error) = message_in(&definition, "error") {
            let status = self.status(&error, Some(info), trailers);
            return respond(headers, Vec::new(), Err(status), Duration::ZERO);
        }
        let data = bytes_in(&definition, "response_data");
        let message = self.response(method, &data, Some(info));
        respond(headers, vec![message], Ok(trailers), Duration::ZERO)
    }

    fn stream(
        &self,
        method: &MethodDescriptor,
        received: &Received,
        definition: Option<DynamicMessage>,
    ) -> Response<Body> {
        let info = self.request_info(received);
        let Some(definition) = definition else {
            return respond(
                HeaderMap::new(),
                Vec::new(),
                Ok(HeaderMap::new()),
                Duration::ZERO,
            );
        };
        let headers = headers_of(&definition, "response_headers");
        let trailers = headers_of(&definition, "response_trailers");
        let data = definition.get_field_by_name("response_data");
        let data = data.as_deref().and_then(Value::as_list).unwrap_or_default();
        let data = data.iter().filter_map(Value::as_bytes);
        // Only the first message repeats the request.
        let messages = data.enumerate().map(|(index, data)| {
            let info = (index == 0).then(|| info.clone());
            self.response(method, data, info)
        });
        let messages: Vec<_> = messages.collect();
        let error = message_in(&definition, "error");
        let outcome = match error {
            None => Ok(trailers),
            Some(error) => {
                let info = messages.is_empty().then_some(info);
                Err(self.status(&error, info, trailers))
            }
        };
        respond(headers, messages, outcome, delay_of(&definition))
    }

    fn new_message(&self, name: &str) -> DynamicMessage {
        let descriptor = self.pool.get_message_by_name(&format!("{PACKAGE}.{name}"));
        DynamicMessage::new(descriptor.expect("the suite has this message"))
    }

    /// Returns the description of a request for its response.
    fn request_info(&self, received: &Received) -> DynamicMessage {
        let mut info = self.new_message("ConformancePayload.RequestInfo");
        let names = received.headers.keys().map(|name| {
            let values = received.headers.get_all(name).iter();
            let values = values
                .map(|value| Value::String(String::from_utf8_lossy(value.as_bytes()).into_owned()));
            let mut header = self.new_message("Header");
            header.set_field_by_name("name", Value::String(name.to_string()));
            header.set_field_by_name("value", Value::List(values.collect()));
            Value::Message(header)
        });
        info.set_field_by_name("request_headers", Value::List(names.collect()));
        if let Some(timeout) = timeout_of(&received.headers) {
            let millis = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
            info.set_field_by_name("timeout_ms", Value::I64(millis));
        }
        let request = self.any(&received.message);
        info.set_field_by_name("requests", Value::List(vec![Value::Message(request)]));
        info
    }

    fn any(&self, message: &DynamicMessage) -> DynamicMessage {
        let descriptor = self.pool.get_message_by_name("google.protobuf.Any");
        let mut any = DynamicMessage::new(descriptor.expect("the suite imports Any"));
        let name = message.descriptor().full_name().to_owned();
        any.set_field_by_name("type_url", Value::String(format!("{ANY_PREFIX}{name}")));
        any.set_field_by_name("value", Value::Bytes(message.encode_to_vec().into()));
        any
    }

    fn response(
        &self,
        method: &MethodDescriptor,
        data: &Bytes,
        info: Option<DynamicMessage>,
    ) -> Bytes {
        let mut payload = self.new_message("ConformancePayload");
        payload.set_field_by_name("data", Value::Bytes(data.clone()));
        if let Some(info) = info {
            payload.set_field_by_name("request_info", Value::Message(info));
        }
        let mut response = DynamicMessage::new(method.output());
        response.set_field_by_name("payload", Value::Message(payload));
        response.encode_to_vec().into()
    }

    /// Returns the status that a request describes.
    fn status(
        &self,
        error: &DynamicMessage,
        info: Option<DynamicMessage>,
        trailers: HeaderMap,
    ) -> Status {
        let code = error
            .get_field_by_name("code")
            .and_then(|code| code.as_enum_number())
            .unwrap_or(2);
        let text = error
            .get_field_by_name("message")
            .and_then(|text| text.as_str().map(str::to_owned));
        let text = text.unwrap_or_default();
        let details = error.get_field_by_name("details");
        let details = details
            .as_deref()
            .and_then(Value::as_list)
            .unwrap_or_default()
            .to_vec();
        let info = info.map(|info| Value::Message(self.any(&info)));
        let details = details.into_iter().chain(info).filter_map(|detail| {
            let any = detail.as_message()?.encode_to_vec();
            prost_reflect::prost_types::Any::decode(&*any).ok()
        });
        let whole = RpcStatus {
            code,
            message: text.clone(),
            details: details.collect(),
        };
        let metadata = tonic::metadata::MetadataMap::from_headers(trailers);
        let details = whole.encode_to_vec().into();
        Status::with_details_and_metadata(Code::from_i32(code), text, details, metadata)
    }
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_reflect::prost_types::Any>,
}

/// Returns a gRPC response. Each message comes after the delay.
fn respond(
    headers: HeaderMap,
    messages: Vec<Bytes>,
    outcome: Result<HeaderMap, Status>,
    delay: Duration,
) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    match outcome {
        Ok(own) => {
            trailers = own;
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
        }
        Err(status) => drop(status.add_header(&mut trailers)),
    }
    let messages = stream::iter(messages).then(move |message| async move {
        tokio::time::sleep(delay).await;
        let mut framed = BytesMut::with_capacity(PREFIX_BYTES + message.len());
        framed.put_u8(0);
        framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        framed.put_slice(&message);
        Ok::<_, Status>(Frame::data(framed.freeze()))
    });
    let end = stream::iter([Ok(Frame::trailers(trailers))]);
    let mut response = Response::new(Body::new(StreamBody::new(Box::pin(messages.chain(end)))));
    *response.headers_mut() = headers;
    let content_type = HeaderValue::from_static("application/grpc");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, content_type);
    response
}

fn message_in(message: &DynamicMessage, name: &str) -> Option<DynamicMessage> {
    if !message.has_field_by_name(name) {
        return None;
    }
    message.get_field_by_name(name)?.as_message().cloned()
}

fn bytes_in(message: &DynamicMessage, name: &str) -> Bytes {
    let field = message.get_field_by_name(name);
    field
        .and_then(|field| field.as_bytes().cloned())
        .unwrap_or_default()
}

fn delay_of(definition: &DynamicMessage) -> Duration {
    let millis = definition.get_field_by_name("response_delay_ms");
    Duration::from_millis(
        millis
            .and_then(|millis| millis.as_u32())
            .unwrap_or(0)
            .into(),
    )
}

fn headers_of(definition: &DynamicMessage, name: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let listed = definition.get_field_by_name(name);
    for header in listed
        .as_deref()
        .and_then(Value::as_list)
        .unwrap_or_default()
    {
        let Some(header) = header.as_message() else {
            continue;
        };
        let name = header.get_field_by_name("name");
        let name = name.as_deref().and_then(Value::as_str).unwrap_or_default();
        let Ok(name) = HeaderName::try_from(name) else {
            continue;
        };
        let values = header.get_field_by_name("value");
        for value in values
            .as_deref()
            .and_then(Value::as_list)
            .unwrap_or_default()
        {
            let value = value
                .as_str()
                .and_then(|value| HeaderValue::try_from(value).ok());
            headers.extend(value.map(|value| (name.clone(), value)));
        }
    }
    headers
}

/// Checks the body of a gRPC call, which has one message.
fn only_message(headers: &HeaderMap, body: Bytes) -> Result<Bytes, Status> {
    let encoding = headers
        .get("grpc-encoding")
        .map_or(&b"identity"[..], HeaderValue::as_bytes);
    if encoding != b"identity" {
        return Err(Status::unimplemented("the compression is not known"));
    }
    match body.first_chunk::<PREFIX_BYTES>() {
        Some([1, ..]) => Err(Status::internal(
            "a compressed message without a compression",
        )),
        Some([_, length @ ..])
            if PREFIX_BYTES + u32::from_be_bytes(*length) as usize == body.len() =>
        {
            Ok(body)
        }
        _ => Err(Status::unimplemented("not one message")),
    }
}

/// Returns the timeout of a call in the header of gRPC.
fn timeout_of(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (count, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = count.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_hours(count),
        "M" => Duration::from_mins(count),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}
