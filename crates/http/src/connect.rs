//! The Connect protocol: unary calls with the message as the body, and streams of enveloped messages.
//!
//! Every method of the contract has one request. So a stream has one request and several responses.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io::Read as _;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use futures::{StreamExt as _, stream};
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use prost_reflect::DescriptorPool;
use serde::Serialize;
use tonic::Status;
use tower::Service;

use crate::body::ApiBody;
use crate::call::{Failure, Reply, Unary, call};
use crate::decoder::{BodyDecoder, BodyProblem};
use crate::error::{self, ConnectError, defect};
use crate::json::{Form, MessageIndex, Schema, read, write};
use crate::thread::on_fitting_thread;

/// The header with the content coding of the messages of a stream.
const STREAM_ENCODING: &str = "connect-content-encoding";
/// The flags of an envelope.
const COMPRESSED: u8 = 1;
const END: u8 = 2;
/// The size of the head of an envelope: the flags and the length.
const HEAD_BYTES: usize = 5;
/// The maximum size of a message after its content coding, in bytes. The path of the call has a lower limit.
const MAX_DECODED_BYTES: usize = 1 << 30;

/// The methods of the contract over Connect.
#[derive(Debug)]
pub(crate) struct ConnectApi {
    schema: Arc<Schema>,
    methods: HashMap<String, ConnectMethod>,
}

#[derive(Debug, Clone, Copy)]
struct ConnectMethod {
    input: MessageIndex,
    output: MessageIndex,
    is_stream: bool,
}

/// The form of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codec {
    Json,
    Proto,
}

/// A type of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Content {
    codec: Codec,
    is_stream: bool,
}

impl Content {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let name = value.split(';').next()?.trim().to_ascii_lowercase();
        let (codec, is_stream) = match name.as_str() {
            "application/json" => (Codec::Json, false),
            "application/proto" => (Codec::Proto, false),
            "application/connect+json" => (Codec::Json, true),
            "application/connect+proto" => (Codec::Proto, true),
            _ => return None,
        };
        Some(Self { codec, is_stream })
    }

    const fn name(self) -> &'static str {
        match (self.codec, self.is_stream) {
            (Codec::Json, false) => "application/json",
            (Codec::Proto, false) => "application/proto",
            (Codec::Json, true) => "application/connect+json",
            (Codec::Proto, true) => "application/connect+proto",
        }
    }
}

/// The last message of a stream.
#[derive(Serialize)]
struct EndOfStream {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ConnectError>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, Vec<String>>,
}

impl ConnectApi {
    pub(crate) fn new(pool: &DescriptorPool, schema: Arc<Schema>) -> Self {
        let services = pool.services().collect::<Vec<_>>();
        let methods = services.iter().flat_map(|service| {
            service.methods().filter_map(|method| {
                let described = ConnectMethod {
                    input: schema.find(method.input().full_name())?,
                    output: schema.find(method.output().full_name())?,
                    is_stream: method.is_server_streaming(),
                };
                let path = format!("/{}/{}", service.full_name(), method.name());
                // A stream of requests would need a body that is read while the response is written.
                (!method.is_client_streaming()).then_some((path, described))
            })
        });
        Self {
            methods: methods.collect(),
            schema,
        }
    }

    /// Answers a request.
    pub(crate) async fn answer<S, B>(
        &self,
        service: S,
        request: Request<tonic::body::Body>,
    ) -> Response<ApiBody<B>>
    where
        S: Service<Request<tonic::body::Body>, Response = Response<B>, Error = Infallible>,
        B: Body<Data = Bytes, Error = Status> + Unpin + Send + 'static,
    {
        let path = request.uri().path().to_owned();
        let Some(method) = self.methods.get(&path).copied() else {
            // Connect has status 404 for an unknown method. The code alone would give 501.
            let mut response = failed(&Status::unimplemented(format!(
                "no method has the path {path}"
            )));
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        };
        if *request.method() != Method::POST {
            let mut response = bare(StatusCode::METHOD_NOT_ALLOWED);
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        let content = Content::of(request.headers());
        let Some(content) = content.filter(|content| content.is_stream == method.is_stream) else {
            let mut response = bare(StatusCode::UNSUPPORTED_MEDIA_TYPE);
            let accepted = if method.is_stream {
                "application/connect+json, application/connect+proto"
            } else {
                "application/json, application/proto"
            };
            response
                .headers_mut()
                .insert("accept-post", HeaderValue::from_static(accepted));
            return response;
        };
        let called = self.run(service, request, (&path, method), content).await;
        match called {
            Ok(response) => response,
            Err(failure) if content.is_stream => failed_stream(&failure, content),
            Err(failure) => {
                let mut response = failed(&failure.status);
                let headers = response.headers_mut();
                headers.extend(failure.headers);
                add_trailers(&error::metadata(&failure.status), headers);
                response
            }
        }
    }

    async fn run<S, B>(
        &self,
        service: S,
        request: Request<tonic::body::Body>,
        (path, method): (&str, ConnectMethod),
        content: Content,
    ) -> Result<Response<ApiBody<B>>, Failure>
    where
        S: Service<Request<tonic::body::Body>, Response = Response<B>, Error = Infallible>,
        B: Body<Data = Bytes, Error = Status> + Unpin + Send + 'static,
    {
        let encoding = request.headers().get(if content.is_stream {
            STREAM_ENCODING
        } else {
            CONTENT_ENCODING.as_str()
        });
        let encoding = encoding.map_or(&b"identity"[..], HeaderValue::as_bytes);
        let is_gzip = match encoding {
            b"identity" => false,
            b"gzip" => true,
            _ => {
                let what = "the content coding is not known; use gzip or identity";
                return Err(Status::unimplemented(what).into());
            }
        };
        let schema = Arc::clone(&self.schema);
        let decoder = BodyDecoder::new(move |body, out| {
            // In a stream the header only names the coding, and a flag of each envelope decides whether it applies.
            let message = if content.is_stream {
                open(&body, is_gzip)?
            } else {
                decoded(body, is_gzip)?
            };
            match content.codec {
                Codec::Proto => out.extend_from_slice(&message),
                Codec::Json => read(&schema, method.input, Form::Protobuf, &message, out)?,
            }
            Ok(())
        });
        let reply = call(service, request, path, decoder).await?;
        if content.is_stream {
            return Ok(self.stream(reply, method, content));
        }
        let Unary {
            headers,
            message,
            trailers,
            body,
        } = reply.only().await?;
        let (schema, size) = (Arc::clone(&self.schema), message.len());
        let encode = move || encoded(&schema, method.output, content.codec, message);
        let data = on_fitting_thread(size, encode).await.ok_or_else(defect)??;
        let mut response = Response::new(ApiBody::whole(data, Some(body)));
        *response.headers_mut() = headers;
        let headers = response.headers_mut();
        add_trailers(&trailers, headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content.name()));
        Ok(response)
    }

    fn stream<B>(
        &self,
        mut reply: Reply<B>,
        method: ConnectMethod,
        content: Content,
    ) -> Response<ApiBody<B>>
    where
        B: Body<Data = Bytes, Error = Status> + Unpin + Send + 'static,
    {
        let headers = std::mem::take(&mut reply.headers);
        let schema = Arc::clone(&self.schema);
        let parts = stream::unfold(Some(reply), move |reply| {
            let schema = Arc::clone(&schema);
            async move {
                // The state is `None` after the envelope with the flag `END`.
                let mut reply = reply?;
                let message = match reply.next().await {
                    Some(message) => message.and_then(|message| {
                        encoded(&schema, method.output, content.codec, message)
                    }),
                    None => return Some((end(None, &reply.trailers), None)),
                };
                Some(match message {
                    Ok(message) => (envelope(0, &message), Some(reply)),
                    Err(status) => (end(Some(&status), &error::metadata(&status)), None),
                })
            }
        });
        let mut response = Response::new(ApiBody::parts(parts.boxed()));
        *response.headers_mut() = headers;
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(content.name()));
        response
    }
}

fn encoded(
    schema: &Schema,
    message: MessageIndex,
    codec: Codec,
    bytes: Bytes,
) -> Result<Bytes, Status> {
    if codec == Codec::Proto {
        return Ok(bytes);
    }
    let mut json = Vec::with_capacity(bytes.len() + bytes.len() / 2);
    write(schema, message, Form::Protobuf, &bytes, &mut json).map_err(|_| defect())?;
    Ok(json.into())
}

/// Returns the message in the only envelope of a stream of requests.
fn open(body: &Bytes, is_gzip: bool) -> Result<Bytes, BodyProblem> {
    let Some([flags, length @ ..]) = body.first_chunk::<HEAD_BYTES>() else {
        return Err(if body.is_empty() {
            BodyProblem::MessageCount
        } else {
            BodyProblem::Malformed
        });
    };
    let end = HEAD_BYTES + u32::from_be_bytes(*length) as usize;
    if body.len() > end {
        return Err(BodyProblem::MessageCount);
    }
    let is_compressed = flags & COMPRESSED != 0;
    // A message can only be compressed if a header names the coding.
    if body.len() < end || flags & !COMPRESSED != 0 || (is_compressed && !is_gzip) {
        return Err(BodyProblem::Malformed);
    }
    decoded(body.slice(HEAD_BYTES..), is_compressed)
}

/// Removes the content coding of a message.
fn decoded(body: Bytes, is_gzip: bool) -> Result<Bytes, BodyProblem> {
    // An empty body is an empty message, although it is no gzip file.
    if !is_gzip || body.is_empty() {
        return Ok(body);
    }
    // A compressed body can be a thousand times as large. The limit is in proportion to what was received and counted.
    let limit = body
        .len()
        .saturating_mul(MAX_RATIO)
        .clamp(MIN_DECODED_BYTES, MAX_DECODED_BYTES);
    // A gzip file can have several members, which a decoder of a single member would ignore.
    let mut out = Vec::new();
    // The byte after the limit shows that the content is larger.
    let mut decoder = MultiGzDecoder::new(&body[..]).take(limit as u64 + 1);
    decoder
        .read_to_end(&mut out)
        .map_err(|_| BodyProblem::Malformed)?;
    if out.len() > limit {
        return Err(BodyProblem::TooLarge(limit));
    }
    Ok(out.into())
}

/// The maximum ratio of a content coding, and the size up to which the ratio is not limited, in bytes. JSON of
/// conversations is compressed to a third or a tenth.
const MAX_RATIO: usize = 50;
const MIN_DECODED_BYTES: usize = 1 << 20;

fn envelope(flags: u8, message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(HEAD_BYTES + message.len());
    out.put_u8(flags);
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(message);
    out.freeze()
}

fn end(status: Option<&Status>, metadata: &HeaderMap) -> Bytes {
    let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in metadata {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        fields.entry(name.to_string()).or_default().push(value);
    }
    let message = EndOfStream {
        error: status.map(ConnectError::from),
        metadata: fields,
    };
    // Maps of strings always have a JSON form, so the default is never used.
    envelope(END, &serde_json::to_vec(&message).unwrap_or_default())
}

/// Adds the metadata behind a message. Its headers have a prefix, because the body is the message alone.
fn add_trailers(trailers: &HeaderMap, headers: &mut HeaderMap) {
    for (name, value) in trailers {
        if let Ok(name) = HeaderName::try_from(format!("trailer-{name}")) {
            headers.append(name, value.clone());
        }
    }
}

fn failed<B>(status: &Status) -> Response<ApiBody<B>> {
    let json = serde_json::to_vec(&ConnectError::from(status)).unwrap_or_default();
    error::response(status, json)
}

/// Returns the response of a stream that failed before its first message. Its HTTP status is always 200.
fn failed_stream<B>(failure: &Failure, content: Content) -> Response<ApiBody<B>> {
    let end = end(Some(&failure.status), &error::metadata(&failure.status));
    let mut response = Response::new(ApiBody::whole(end, None));
    *response.headers_mut() = failure.headers.clone();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content.name()));
    response
}

fn bare<B>(status: StatusCode) -> Response<ApiBody<B>> {
    let mut response = Response::new(ApiBody::whole(Bytes::new(), None));
    *response.status_mut() = status;
    response
}
