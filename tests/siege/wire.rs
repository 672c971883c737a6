//! An HTTP/2 client that violates good practice: it leaves replies unread, sends bodies slowly and resets calls.

use std::io;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::future::{Either, select};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request};
use prost::Message;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Status;
use tonic_types::StatusExt as _;

/// The initial window of HTTP/2.
pub(crate) const USUAL_WINDOW: u32 = 65_535;
/// Time limit to open a connection.
const DIAL: Duration = Duration::from_secs(5);

/// A gRPC request in its encoded form.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    path: String,
    key: Option<String>,
    timeout: Option<&'static str>,
    frame: Bytes,
}

impl Call {
    /// Creates a call of a method such as `SessionService/ListSessions`.
    pub(crate) fn new(method: &str, request: &impl Message) -> Self {
        let path = format!("/palimpsest.context.v1.{method}");
        Self::of_bytes(path, &request.encode_to_vec())
    }

    /// Creates a call of any path, with a body that no encoder produces.
    pub(crate) fn of_bytes(path: impl Into<String>, body: &[u8]) -> Self {
        let mut frame = BytesMut::with_capacity(5 + body.len());
        frame.put_u8(0);
        frame.put_u32(u32::try_from(body.len()).unwrap());
        frame.put(body);
        Self {
            path: path.into(),
            key: None,
            timeout: None,
            frame: frame.freeze(),
        }
    }

    /// Adds a credential.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Adds a deadline, as gRPC writes it.
    pub(crate) fn within(mut self, deadline: &'static str) -> Self {
        self.timeout = Some(deadline);
        self
    }

    fn head(&self, address: &str) -> Request<()> {
        let mut head = Request::post(format!("http://{address}{}", self.path))
            .header("content-type", "application/grpc")
            // gRPC requires this header.
            .header("te", "trailers");
        if let Some(key) = &self.key {
            head = head.header("authorization", format!("Bearer {key}"));
        }
        if let Some(deadline) = self.timeout {
            head = head.header("grpc-timeout", deadline);
        }
        head.body(()).unwrap()
    }
}

/// One connection. It closes on drop, with all open calls.
#[derive(Debug)]
pub(crate) struct Wire {
    calls: SendRequest<Bytes>,
    address: String,
    driver: JoinSet<()>,
}

impl Wire {
    /// Connects. `window` is the number of bytes of each reply that the server may send before any are consumed.
    pub(crate) async fn connect(address: &str, window: u32) -> io::Result<Self> {
        let stream = timeout(DIAL, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window);
        let greeted = timeout(DIAL, builder.handshake(stream)).await?;
        let (calls, connection) = greeted.map_err(io::Error::other)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // The calls on this connection report how it ended.
            let _ = connection.await;
        });
        Ok(Self {
            calls,
            address: address.to_owned(),
            driver,
        })
    }

    /// Waits for the end of the connection. Answers the server's PINGs until then.
    pub(crate) async fn closed(mut self) {
        self.driver.join_next().await;
    }

    /// Sends a request and its body.
    pub(crate) async fn send(&self, call: &Call) -> Result<Open, h2::Error> {
        let (answer, mut body) = self.begin(call).await?;
        body.send_data(call.frame.clone(), true)?;
        Ok(Open { answer })
    }

    /// Sends a request and resets it immediately.
    pub(crate) async fn reset(&self, call: &Call) -> Result<(), h2::Error> {
        let (_answer, mut body) = self.begin(call).await?;
        body.send_reset(Reason::CANCEL);
        Ok(())
    }

    /// Sends a request, and its body byte by byte with pauses, until the server stops accepting it.
    pub(crate) async fn drip(&self, call: &Call, pause: Duration) -> String {
        let (answer, mut body) = match self.begin(call).await {
            Ok(begun) => begun,
            Err(error) => return failed(&error),
        };
        let dripped = Box::pin(async move {
            for at in 0..call.frame.len() {
                if let Err(error) = body.send_data(call.frame.slice(at..=at), false) {
                    return failed(&error);
                }
                tokio::time::sleep(pause).await;
            }
            "the whole body was sent".to_owned()
        });
        // The server can answer before the body is complete.
        match select(Box::pin(Open { answer }.taken()), dripped).await {
            Either::Left((outcome, _)) | Either::Right((outcome, _)) => outcome,
        }
    }

    async fn begin(&self, call: &Call) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut calls = self.calls.clone().ready().await?;
        calls.send_request(call.head(&self.address), false)
    }
}

/// A call that was sent.
#[derive(Debug)]
pub(crate) struct Open {
    answer: ResponseFuture,
}

impl Open {
    /// Reads the reply and returns the outcome.
    pub(crate) async fn taken(self) -> String {
        self.outcome(true).await
    }

    /// Waits for the end of the call without ever granting more window to the server. Returns the outcome.
    pub(crate) async fn untaken(self) -> String {
        self.outcome(false).await
    }

    async fn outcome(self, takes: bool) -> String {
        match self.answer.await {
            Ok(answer) => match outcome_in(answer.headers()) {
                // A rejected call has its status in the head, without a body.
                Some(refused) => refused,
                None => rest(answer.into_body(), takes).await,
            },
            Err(error) => failed(&error),
        }
    }
}

async fn rest(mut body: RecvStream, takes: bool) -> String {
    while let Some(part) = body.data().await {
        match part {
            Ok(part) if takes => {
                // A closed connection needs no window.
                let _ = body.flow_control().release_capacity(part.len());
            }
            Ok(_) => {}
            Err(error) => return failed(&error),
        }
    }
    match body.trailers().await {
        Ok(trailers) => {
            outcome_in(&trailers.unwrap_or_default()).unwrap_or_else(|| "no status".into())
        }
        Err(error) => failed(&error),
    }
}

/// Returns the status and the reason of an answer, such as `RESOURCE_EXHAUSTED OVERLOADED`.
fn outcome_in(headers: &HeaderMap) -> Option<String> {
    let status = Status::from_header_map(headers)?;
    Some(outcome_of(&status))
}

/// Returns the code and the reason of a status.
pub(crate) fn outcome_of(status: &Status) -> String {
    match status.get_details_error_info() {
        Some(info) => format!("{:?} {}", status.code(), info.reason),
        None => format!("{:?}", status.code()),
    }
}

fn failed(error: &h2::Error) -> String {
    match error.reason() {
        Some(reason) => format!("reset: {reason:?}"),
        None => "connection lost".to_owned(),
    }
}
