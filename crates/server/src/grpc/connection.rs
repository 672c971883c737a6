//! One HTTP/2 connection and the calls on it.
//!
//! `h2` is used directly, without the layers of `tonic`. Those layers cannot end a reply that the caller does not read,
//! so neither its memory could be released nor an error be sent. Here the server sends no more than the flow-control
//! window of the caller allows. The rest stays in counted memory.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use palimpsest_http::ApiBody;
use palimpsest_settings::GrpcConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tower::Service;

use super::connection_life::{ConnectionLife, LifeStep};
use super::response_body::ResponseBody;
use crate::net::{Connection, MonitoredConnection};

/// The maximum time for the HTTP/2 handshake.
pub(super) const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);
/// The flow-control window for requests, per connection and per call, in bytes.
const FLOW_WINDOW_BYTES: u32 = 1 << 20;
/// The maximum size of one write of a reply, in bytes. The capacity of the peer is checked between writes.
const SEND_CHUNK_BYTES: usize = 64 * 1024;
/// The maximum size of request headers, in bytes.
pub(super) const MAX_HEADERS: u32 = 32 * 1024;
/// The minimum rate at which a caller must read a reply, in bytes per second.
const MIN_RATE: u64 = 64 * 1024;

/// The time limits of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionTimeouts {
    max_streams: u32,
    pub(super) age: Duration,
    pub(super) grace: Duration,
    keepalive: Duration,
    keepalive_timeout: Duration,
    /// The maximum idle time before the first accepted call.
    pub(super) first_call: Duration,
    stall: Duration,
}

impl ConnectionTimeouts {
    pub(super) fn of(config: &GrpcConfig) -> Self {
        let millis = Duration::from_millis;
        Self {
            max_streams: config.max_streams_per_connection,
            age: millis(config.max_connection_age_ms),
            grace: millis(config.max_connection_age_grace_ms),
            keepalive: millis(config.keepalive_ms),
            keepalive_timeout: millis(config.keepalive_timeout_ms),
            first_call: millis(config.first_call_timeout_ms),
            stall: millis(config.stall_timeout_ms),
        }
    }

    /// Returns the maximum time of a write without progress.
    pub(super) fn stall(&self) -> Duration {
        self.stall
    }
}

/// Serves a connection until it closes or reaches a time limit.
pub(super) async fn serve<T, S>(
    io: MonitoredConnection<T>,
    service: S,
    times: ConnectionTimeouts,
    stop: CancellationToken,
) -> io::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Body>, Response = Response<ApiBody<ResponseBody>>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let connection = Arc::clone(io.slot().connection());
    let heard = io.last_activity();
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(times.max_streams)
        .initial_window_size(FLOW_WINDOW_BYTES)
        .initial_connection_window_size(FLOW_WINDOW_BYTES)
        .max_header_list_size(MAX_HEADERS)
        // Bounds the bytes of a reply that `h2` holds outside of the counted memory.
        .max_send_buffer_size(2 * SEND_CHUNK_BYTES);
    let shaken = timeout(PREFACE_TIMEOUT, builder.handshake(io)).await;
    let mut h2 = shaken?.map_err(io::Error::other)?;
    let mut pinger = Keepalive::new(h2.ping_pong(), times);
    let mut life = ConnectionLife::begin();
    loop {
        let next = match life.step(&connection, &times) {
            LifeStep::End => return Ok(()),
            // The next step waits for the end of the grace period.
            LifeStep::Close => {
                h2.graceful_shutdown();
                continue;
            }
            LifeStep::Wait(until) => until,
        };
        tokio::select! {
            accepted = h2.accept() => match accepted {
                None => return Ok(()),
                Some(accepted) => {
                    let (request, respond) = accepted.map_err(io::Error::other)?;
                    let of = (Arc::clone(&connection), times.stall);
                    // `accept` also drives the I/O of all calls, so no call may run in this task.
                    tokio::spawn(handle_call(service.clone(), request, respond, of));
                }
            },
            // A cancelled token is always ready, so without the condition this branch would run in each round.
            () = stop.cancelled(), if !life.is_closing() => {
                h2.graceful_shutdown();
                life.close(&times);
            }
            // Another branch may drop this future between two steps. The state of a ping is therefore in `pinger`.
            alive = pinger.next(|| heard.last()) => if !alive {
                return Ok(());
            },
            () = sleep_until(next) => {}
        }
    }
}

/// Sends HTTP/2 pings to a silent peer, to detect dead connections.
struct Keepalive {
    ping: Option<PingPong>,
    times: ConnectionTimeouts,
    /// The time of the unanswered ping.
    last_ping: Option<Instant>,
}

impl Keepalive {
    fn new(ping: Option<PingPong>, times: ConnectionTimeouts) -> Self {
        Self {
            ping,
            times,
            last_ping: None,
        }
    }

    /// Waits for the next keepalive step and performs it. Returns false if the peer is gone.
    async fn next(&mut self, heard: impl Fn() -> Instant) -> bool {
        let Some(ping) = &mut self.ping else {
            return std::future::pending().await;
        };
        let Some(asked) = self.last_ping else {
            // Any input proves that the peer is alive, so a ping is due only after a silence.
            let due = heard() + self.times.keepalive;
            sleep_until(due).await;
            // Input may have arrived during the sleep. The next turn then waits again.
            if heard() + self.times.keepalive <= Instant::now() {
                if ping.send_ping(Ping::opaque()).is_err() {
                    return false;
                }
                self.last_ping = Some(Instant::now());
            }
            return true;
        };
        tokio::select! {
            answered = poll_fn(|cx| ping.poll_pong(cx)) => {
                self.last_ping = None;
                answered.is_ok()
            }
            () = sleep_until(asked + self.times.keepalive_timeout) => false,
        }
    }
}

/// Answers one call.
async fn handle_call<S>(
    mut service: S,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    (connection, stall): (Arc<Connection>, Duration),
) where
    S: Service<Request<Body>, Response = Response<ApiBody<ResponseBody>>, Error = Infallible>,
{
    // Counted until the end of the reply, so that the connection is not closed as idle.
    let _call = connection.call();
    let mut request = request.map(|body| Body::new(RequestBody(body)));
    request.extensions_mut().insert(Arc::clone(&connection));
    let answered = service.call(request);
    let response = tokio::select! {
        // `biased` checks the reset first, so that a cancelled call is dropped even if its response is ready.
        biased;
        _gone = poll_fn(|cx| respond.poll_reset(cx)) => return,
        response = answered => match response {
            Ok(response) => response,
            Err(impossible) => match impossible {},
        },
    };
    let (head, body) = response.into_parts();
    let head = Response::from_parts(head, ());
    if body.is_end_stream() {
        // The call record ends before the caller can see the end of the reply.
        drop(body);
        let _ = respond.send_response(head, true);
    } else if let Ok(mut stream) = respond.send_response(head, false) {
        send(body, &mut stream, stall).await;
    }
}

/// Sends a body at the speed of the caller.
///
/// A caller that reads too slowly gets an error in trailers, which need no flow-control window.
async fn send(mut body: ApiBody<ResponseBody>, stream: &mut SendStream<Bytes>, stall: Duration) {
    loop {
        // `biased` checks the reset first: a cancelled stream must not read further frames of the body.
        let frame = tokio::select! {
            biased;
            _gone = poll_fn(|cx| stream.poll_reset(cx)) => return,
            frame = body.frame() => frame,
        };
        let frame = match frame {
            None => {
                drop(body);
                // The send fails only after a reset of the stream. The client then waits for no end.
                let _ = stream.send_data(Bytes::new(), true);
                return;
            }
            Some(Err(_)) => return stream.send_reset(Reason::INTERNAL_ERROR),
            Some(Ok(frame)) => frame,
        };
        let data = match frame.into_data() {
            Ok(data) => data,
            // Trailers end the stream. The body is dropped first, so the call is counted before the caller reads them.
            Err(frame) => {
                drop(body);
                if let Ok(trailers) = frame.into_trailers() {
                    let _ = stream.send_trailers(trailers);
                }
                return;
            }
        };
        match send_chunk(data, stream, stall).await {
            SendOutcome::Taken => {}
            SendOutcome::Gone => return,
            SendOutcome::Stalled => {
                let trailers = body.as_grpc_mut().map(ResponseBody::stalled);
                drop(body);
                match trailers {
                    Some(Some(trailers)) => drop(stream.send_trailers(trailers)),
                    // A rejected call has no body that could stall.
                    Some(None) => {}
                    // Other protocols have no error behind a part of a body.
                    None => stream.send_reset(Reason::CANCEL),
                }
                return;
            }
        }
    }
}

enum SendOutcome {
    Taken,
    /// The caller is gone.
    Gone,
    /// The caller reads nothing, or too slowly.
    Stalled,
}

/// Sends the bytes of a reply, never more than the caller's window allows.
async fn send_chunk(
    mut data: Bytes,
    stream: &mut SendStream<Bytes>,
    stall: Duration,
) -> SendOutcome {
    let mut until = None;
    while !data.is_empty() {
        stream.reserve_capacity(data.len().min(SEND_CHUNK_BYTES));
        let mut capacity = stream.capacity();
        // The deadline starts at the first missing capacity and covers the rest of the frame. A caller that reads a few
        // bytes from time to time cannot extend it.
        if capacity == 0 {
            let begins = || Instant::now() + stall + max_send_time(data.len());
            let until = *until.get_or_insert_with(begins);
            let more = poll_fn(|cx| stream.poll_capacity(cx));
            capacity = match tokio::time::timeout_at(until, more).await {
                Err(_elapsed) => return SendOutcome::Stalled,
                Ok(Some(Ok(capacity))) => capacity,
                Ok(_) => return SendOutcome::Gone,
            };
        }
        let chunk = data.split_to(capacity.min(data.len()));
        if stream.send_data(chunk, false).is_err() {
            return SendOutcome::Gone;
        }
    }
    SendOutcome::Taken
}

/// Returns the time for sending `bytes` at the minimum rate.
fn max_send_time(bytes: usize) -> Duration {
    Duration::from_secs(bytes as u64 / MIN_RATE)
}

/// The body of a request. It returns flow-control capacity as soon as data arrives.
struct RequestBody(RecvStream);

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        match ready!(self.0.poll_data(cx)) {
            Some(Ok(data)) => {
                // The window is released immediately: memory is limited by budgets, not by the window.
                // The release cannot fail, because these bytes were received just now.
                let _ = self.0.flow_control().release_capacity(data.len());
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
