//! Callers over HTTP/2. Each caller sends its next request after the previous answer. Requests are encoded in advance
//! and answers are not decoded, so the callers cost little more than the wire.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The five bytes before each message: a compression flag and the length.
const PREFIX: usize = 5;
/// The flow-control window. Larger than any reply of the bench.
const WINDOW: u32 = 8 << 20;
/// Extra time for the last answers of a round.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Requests of one method, sent in order.
#[derive(Debug)]
pub(crate) struct Requests {
    method: &'static str,
    frames: Vec<Bytes>,
    next: AtomicUsize,
    /// True if each request has an effect only once.
    once: bool,
}

impl Requests {
    /// Splits a buffer of length-delimited requests.
    pub(crate) fn new(method: &'static str, delimited: Vec<u8>, once: bool) -> Result<Self> {
        let mut rest = Bytes::from(delimited);
        let mut frames = Vec::new();
        while !rest.is_empty() {
            let length = prost::decode_length_delimiter(&mut rest)?;
            ensure!(length <= rest.len(), "a request is cut off");
            let message = rest.split_to(length);
            let mut frame = BytesMut::with_capacity(PREFIX + length);
            frame.put_u8(0);
            frame.put_u32(u32::try_from(length)?);
            frame.put(message);
            frames.push(frame.freeze());
        }
        ensure!(!frames.is_empty(), "there is no request to send");
        Ok(Self {
            method,
            frames,
            next: AtomicUsize::new(0),
            once,
        })
    }

    /// Returns the number of requests that can still be sent.
    pub(crate) fn left(&self) -> usize {
        if self.once {
            self.frames.len().saturating_sub(self.next.load(Relaxed))
        } else {
            usize::MAX
        }
    }

    /// Returns the same requests for repeated use, although they were sent before.
    pub(crate) fn again(&self) -> Self {
        Self {
            method: self.method,
            frames: self.frames.clone(),
            next: AtomicUsize::new(0),
            once: false,
        }
    }

    fn next(&self) -> Option<Bytes> {
        let number = self.next.fetch_add(1, Relaxed);
        if self.once {
            return self.frames.get(number).cloned();
        }
        self.frames.get(number % self.frames.len()).cloned()
    }
}

/// The outcome of a round.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) done: u64,
    /// Failed calls, by status.
    pub(crate) failed: BTreeMap<String, u64>,
    pub(crate) took: Duration,
}

/// Connections to one server.
#[derive(Clone)]
pub(crate) struct Callers {
    connections: Vec<SendRequest<Bytes>>,
    address: String,
}

impl Callers {
    /// Opens `connections` connections.
    pub(crate) async fn connect(address: &str, connections: usize) -> Result<Self> {
        let mut open = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let mut builder = h2::client::Builder::new();
            builder
                .initial_window_size(WINDOW)
                .initial_connection_window_size(WINDOW);
            let (calls, connection) = builder.handshake(stream).await?;
            tokio::spawn(async move {
                // The calls on this connection report its errors.
                let _ = connection.await;
            });
            open.push(calls);
        }
        Ok(Self {
            connections: open,
            address: address.to_owned(),
        })
    }

    /// Makes one call and returns the encoded reply.
    pub(crate) async fn call(&self, requests: &Requests) -> Result<Bytes> {
        let head = self.head(requests)?;
        let calls = self.connections.first().context("no connection")?.clone();
        let frame = requests.next().context("no request is left")?;
        let mut reply = BytesMut::new();
        let status = call(calls, &head, frame, |part| reply.put(part)).await?;
        ensure!(status == "0", "it was answered with status {status}");
        ensure!(reply.len() >= PREFIX, "there was no reply");
        Ok(reply.split_off(PREFIX).freeze())
    }

    /// Makes calls until the time is over or no request is left. `at_once` is the number of concurrent calls per
    /// connection.
    pub(crate) async fn run(
        &self,
        requests: &Arc<Requests>,
        at_once: usize,
        time: Duration,
    ) -> Result<Outcome> {
        let head = Arc::new(self.head(requests)?);
        let began = Instant::now();
        let mut callers = JoinSet::new();
        for connection in &self.connections {
            for _ in 0..at_once {
                let (calls, head) = (connection.clone(), Arc::clone(&head));
                let requests = Arc::clone(requests);
                callers.spawn(async move {
                    let mut mine = Outcome::default();
                    while let Some(frame) = requests.next() {
                        match call(calls.clone(), &head, frame, drop).await?.as_str() {
                            "0" => mine.done += 1,
                            status => *mine.failed.entry(status.to_owned()).or_default() += 1,
                        }
                        // Checks the time after the call, so that every round has at least one call.
                        if began.elapsed() >= time {
                            break;
                        }
                    }
                    Ok::<_, anyhow::Error>(mine)
                });
            }
        }
        let mut all = Outcome::default();
        let gathered = tokio::time::timeout(time + TIMEOUT, async {
            while let Some(joined) = callers.join_next().await {
                let mine = joined??;
                all.done += mine.done;
                for (status, count) in mine.failed {
                    *all.failed.entry(status).or_default() += count;
                }
            }
            Ok::<_, anyhow::Error>(())
        });
        match gathered.await {
            Ok(gathered) => gathered?,
            Err(_elapsed) => bail!("a call of {} was not answered", requests.method),
        }
        all.took = began.elapsed();
        Ok(all)
    }

    fn head(&self, requests: &Requests) -> Result<Request<()>> {
        let uri = format!(
            "http://{}/palimpsest.context.v1.ContextService/{}",
            self.address, requests.method
        );
        Ok(Request::post(uri)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?)
    }
}

/// Makes a call, passes each part of the answer to `take`, and returns the status.
async fn call(
    calls: SendRequest<Bytes>,
    head: &Request<()>,
    frame: Bytes,
    mut take: impl FnMut(Bytes),
) -> Result<String> {
    let (answer, mut body) = calls.ready().await?.send_request(head.clone(), false)?;
    body.send_data(frame, true)?;
    let answer = answer.await?;
    // A rejected call has its status in the headers and no body.
    if let Some(status) = status(answer.headers()) {
        return Ok(status);
    }
    let mut body = answer.into_body();
    while let Some(part) = body.data().await {
        let part = part?;
        // All replies of a connection share one window, which would be used up without this.
        body.flow_control().release_capacity(part.len())?;
        take(part);
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    Ok(status(&trailers).unwrap_or_else(|| "none".to_owned()))
}

fn status(headers: &HeaderMap) -> Option<String> {
    let status = headers.get("grpc-status")?;
    Some(String::from_utf8_lossy(status.as_bytes()).into_owned())
}
