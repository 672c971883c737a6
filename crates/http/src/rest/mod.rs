//! The REST API: plain JSON on paths such as `/v1/projects/demo/sessions/a:sync`.

mod query;
pub(crate) mod routes;
mod sync;

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use prost_reflect::DescriptorPool;
use tonic::Status;
use tower::Service;

use self::routes::{NoRoute, Parameters, ROUTES, Route};
use crate::body::ApiBody;
use crate::call::{Failure, Reply, Unary, call};
use crate::decoder::{BodyDecoder, BodyProblem};
use crate::error::{self, defect};
use crate::json::{Form, MessageIndex, Schema, put_bytes, read_without, write};
use crate::thread::on_fitting_thread;

/// The REST API of the contract.
#[derive(Debug)]
pub(crate) struct RestApi {
    schema: Arc<Schema>,
    /// The messages of each route.
    rpcs: Vec<Rpc>,
}

#[derive(Debug, Clone)]
struct Rpc {
    route: &'static Route,
    path: String,
    input: MessageIndex,
    output: MessageIndex,
    /// The numbers of the fields that lead to the name of the resource.
    name_path: Vec<u32>,
    is_stream: bool,
}

/// The separators of the messages in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamForm {
    /// One line per message.
    Lines,
    /// Server-sent events, which browsers read.
    Events,
}

impl RestApi {
    /// Creates the API, without the routes whose rpc the contract lacks.
    pub(crate) fn new(pool: &DescriptorPool, schema: Arc<Schema>) -> Self {
        let rpcs = ROUTES.iter().filter_map(|route| {
            let service = pool.get_service_by_name(route.service)?;
            let method = service
                .methods()
                .find(|method| method.name() == route.rpc)?;
            let mut message = method.input();
            let mut name_path = Vec::new();
            // `session.name` of `UpdateSession` leads through a message.
            for name in route.name_field.split('.') {
                let field = message.get_field_by_name(name)?;
                name_path.push(field.number());
                if let prost_reflect::Kind::Message(inner) = field.kind() {
                    message = inner;
                }
            }
            Some(Rpc {
                route,
                path: route.path(),
                input: schema.find(method.input().full_name())?,
                output: schema.find(method.output().full_name())?,
                name_path,
                is_stream: method.is_server_streaming(),
            })
        });
        Self {
            rpcs: rpcs.collect(),
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
        let found = routes::find(request.method(), request.uri().path());
        let matched = match found {
            Ok(matched) => matched,
            Err(NoRoute::Path) => return self.no_route(),
            Err(NoRoute::Method(methods)) => return self.other_method(&methods),
        };
        // `new` leaves out the routes whose rpc the contract lacks.
        let Some(rpc) = self.rpcs.iter().find(|rpc| rpc.route == matched.route) else {
            return self.no_route();
        };
        if let Some(rejected) = self.unreadable(rpc, request.headers()) {
            return rejected;
        }
        match self.run(service, request, (rpc, matched.name)).await {
            Ok(response) => response,
            Err(failure) => {
                let mut response = self.failed(&failure.status);
                response.headers_mut().extend(failure.headers);
                response
                    .headers_mut()
                    .extend(error::metadata(&failure.status));
                response
            }
        }
    }

    async fn run<S, B>(
        &self,
        service: S,
        request: Request<tonic::body::Body>,
        (rpc, name): (&Rpc, String),
    ) -> Result<Response<ApiBody<B>>, Failure>
    where
        S: Service<Request<tonic::body::Body>, Response = Response<B>, Error = Infallible>,
        B: Body<Data = Bytes, Error = Status> + Unpin + Send + 'static,
    {
        let form = if accepts_events(request.headers()) {
            StreamForm::Events
        } else {
            StreamForm::Lines
        };
        let query = request.uri().query().unwrap_or_default().to_owned();
        // The array of a synced request, which the response repeats in part.
        let synced = Arc::new(OnceLock::new());
        let decoder = self.decoder(rpc, (name, query), Arc::clone(&synced));
        let reply = call(service, request, &rpc.path, decoder).await?;
        if rpc.is_stream {
            return Ok(self.stream(reply, rpc, form).await?);
        }
        let Unary {
            headers,
            message,
            body,
            ..
        } = reply.only().await?;
        let message = match synced.get() {
            Some((request, body)) => sync::with_lead(message, request, body),
            None => message,
        };
        let (schema, output) = (Arc::clone(&self.schema), rpc.output);
        let size = message.len();
        let json = on_fitting_thread(size, move || {
            let mut json = Vec::with_capacity(size + size / 8 + 256);
            write(&schema, output, Form::Plain, &message, &mut json).map(|()| json)
        });
        let json = json.await.and_then(Result::ok).ok_or_else(defect)?;
        let mut response = Response::new(ApiBody::whole(json.into(), Some(body)));
        *response.headers_mut() = headers;
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    fn decoder(
        &self,
        rpc: &Rpc,
        (name, query): (String, String),
        synced: Arc<OnceLock<(Vec<u8>, Bytes)>>,
    ) -> BodyDecoder {
        let (schema, rpc) = (Arc::clone(&self.schema), rpc.clone());
        BodyDecoder::new(move |body, out| {
            let start = out.len();
            let parameters = rpc.route.parameters;
            let name_field = Some(rpc.route.name_field);
            if parameters != Parameters::Query && !query.is_empty() {
                return Err(BodyProblem::Field {
                    path: String::new(),
                    problem: "this path has no parameters in its query; put them into the body"
                        .to_owned(),
                });
            }
            match parameters {
                Parameters::Query => {
                    if !body.trim_ascii().is_empty() {
                        return Err(BodyProblem::Field {
                            path: String::new(),
                            problem: "this path has no body; put parameters into the query"
                                .to_owned(),
                        });
                    }
                    let json = query::to_json(&schema, rpc.input, &query)?;
                    read_without(&schema, rpc.input, Form::Plain, (&json, name_field), out)?;
                }
                Parameters::Body => {
                    // curl sends nothing for `-X POST` alone.
                    let json = if body.trim_ascii().is_empty() {
                        &b"{}"[..]
                    } else {
                        &body
                    };
                    read_without(&schema, rpc.input, Form::Plain, (json, name_field), out)?;
                }
                // The service reports the missing conversation.
                Parameters::ModelRequest if body.trim_ascii().is_empty() => {}
                Parameters::ModelRequest => {
                    sync::decode(&schema, rpc.input, (&body, rpc.route.name_field), out)?;
                    // The parameters come before the body, which is the last field.
                    let parameters = out[start..].len().saturating_sub(body.len());
                    // The decoder runs once per request, so the cell is empty here.
                    let _ = synced.set((out[start..start + parameters].to_vec(), body));
                }
            }
            // A decoder merges an outer message of the name with the same message in the body.
            put_name(&rpc.name_path, &name, out);
            Ok(())
        })
    }

    async fn stream<B>(
        &self,
        mut reply: Reply<B>,
        rpc: &Rpc,
        form: StreamForm,
    ) -> Result<Response<ApiBody<B>>, Status>
    where
        B: Body<Data = Bytes, Error = Status> + Unpin + Send + 'static,
    {
        // An error before the first message has an HTTP status. A watch begins with a message too.
        let first = reply.next().await.transpose()?;
        let mut headers = std::mem::take(&mut reply.headers);
        let content_type = match form {
            StreamForm::Lines => "application/x-ndjson",
            StreamForm::Events => "text/event-stream",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        let (schema, output) = (Arc::clone(&self.schema), rpc.output);
        let write_one = move |message: Result<Bytes, Status>| {
            let mut json = Vec::new();
            let written = message.and_then(|message| {
                write(&schema, output, Form::Plain, &message, &mut json).map_err(|_| defect())
            });
            let name = match written {
                Ok(()) => "",
                Err(status) => {
                    json = error::rest_json(&schema, &status);
                    "event: error\n"
                }
            };
            match form {
                StreamForm::Lines => json.push(b'\n'),
                StreamForm::Events => {
                    let prefix = format!("{name}data: ");
                    json.splice(..0, prefix.into_bytes());
                    json.extend_from_slice(b"\n\n");
                }
            }
            Bytes::from(json)
        };
        let rest = stream::unfold(Some(reply), |reply| async {
            let mut reply = reply?;
            let message = reply.next().await?;
            // Without a state, the stream ends after the error.
            let next = message.is_ok().then_some(reply);
            Some((message, next))
        });
        let messages = stream::iter(first.map(Ok)).chain(rest).map(write_one);
        let mut response = Response::new(ApiBody::parts(messages));
        *response.headers_mut() = headers;
        Ok(response)
    }

    /// Returns the response of a request that failed or was rejected.
    pub(crate) fn failed<B>(&self, status: &Status) -> Response<ApiBody<B>> {
        let mut response = error::response(status, error::rest_json(&self.schema, status));
        *response.status_mut() = error::rest_status(status);
        response
    }

    fn no_route<B>(&self) -> Response<ApiBody<B>> {
        self.failed(&Status::not_found(
            "no resource has this path; GET /openapi.json lists all paths",
        ))
    }

    fn other_method<B>(&self, methods: &[&'static str]) -> Response<ApiBody<B>> {
        let methods = methods.join(", ");
        let status = Status::unimplemented(format!("this path has the methods {methods}"));
        let mut response = self.failed(&status);
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        if let Ok(value) = HeaderValue::try_from(methods) {
            response.headers_mut().insert(ALLOW, value);
        }
        response
    }

    /// Returns the answer to a request whose body has another type than JSON.
    fn unreadable<B>(&self, rpc: &Rpc, headers: &HeaderMap) -> Option<Response<ApiBody<B>>> {
        let value = headers.get(CONTENT_TYPE)?;
        let name = value
            .to_str()
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default()
            .trim();
        let is_json = name.eq_ignore_ascii_case("application/json")
            // curl sends this type unless it is told another one.
            || name.eq_ignore_ascii_case("application/x-www-form-urlencoded");
        if is_json || rpc.route.parameters == Parameters::Query {
            return None;
        }
        let status = Status::invalid_argument(
            "the body must be JSON; set the header content-type to application/json",
        );
        let mut response = self.failed(&status);
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Some(response)
    }
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter();
    let mut types = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    types.any(|one| one.trim().starts_with("text/event-stream"))
}

/// Appends the name of the resource.
fn put_name(path: &[u32], name: &str, out: &mut Vec<u8>) {
    let Some((last, outer)) = path.split_last() else {
        return;
    };
    let mut field = Vec::new();
    put_bytes(*last, name.as_bytes(), &mut field);
    for number in outer.iter().rev() {
        let inner = std::mem::take(&mut field);
        put_bytes(*number, &inner, &mut field);
    }
    out.extend_from_slice(&field);
}
