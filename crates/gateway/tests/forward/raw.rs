//! A gateway on a free port, and HTTP/1.1 on raw sockets on both of its sides.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use palimpsest_edge::access::Authenticator;
use palimpsest_edge::metrics::Metrics;
use palimpsest_edge::net::Connections;
use palimpsest_edge::port::{Port as _, PortParts};
use palimpsest_engine::quotas::QuotaTracker;
use palimpsest_gateway::Gateway;
use palimpsest_gateway::context::ContextPort;
use palimpsest_settings::{GatewayConfig, UpstreamUrl};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The time after which a test counts as hanging.
const HANGS_AFTER: Duration = Duration::from_mins(3);

/// Fails a test that hangs.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    let ended = tokio::time::timeout(HANGS_AFTER, future).await;
    ended.expect("the test hangs")
}

/// A running gateway.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) requests: TaskTracker,
    pub(crate) connections: Connections,
    pub(crate) metrics: Metrics,
    pub(crate) serving: JoinHandle<()>,
}

/// Starts a gateway whose upstreams of all APIs have the address.
pub(crate) async fn gateway(upstream: SocketAddr) -> Running {
    configured_gateway(&format!("http://{upstream}"), |_| {}).await
}

/// Starts a gateway with other settings.
pub(crate) async fn configured_gateway(
    url: &str,
    change: impl FnOnce(&mut GatewayConfig),
) -> Running {
    limited_gateway(url, None, change, (None, None)).await
}

/// Starts a gateway with a context and other settings.
pub(crate) async fn recording_gateway(
    url: &str,
    context: Arc<dyn ContextPort>,
    change: impl FnOnce(&mut GatewayConfig),
) -> Running {
    limited_gateway(url, Some(context), change, (None, None)).await
}

/// Starts a gateway with authentication, quotas and other settings.
pub(crate) async fn limited_gateway(
    url: &str,
    context: Option<Arc<dyn ContextPort>>,
    change: impl FnOnce(&mut GatewayConfig),
    (authenticator, quotas): (Option<Arc<Authenticator>>, Option<Arc<QuotaTracker>>),
) -> Running {
    let mut config = GatewayConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        ..GatewayConfig::default()
    };
    config.upstreams.anthropic.base_url = UpstreamUrl::parse(url).unwrap();
    config.upstreams.openai = config.upstreams.anthropic.clone();
    change(&mut config);
    let mut gateway = Gateway::bind(config).await.unwrap();
    if let Some(context) = context {
        gateway = gateway.with_context(context);
    }
    let address = gateway.address().unwrap();
    let (stop, requests) = (CancellationToken::new(), TaskTracker::new());
    let metrics = Metrics::default();
    let connections = Connections::new(gateway.max_connections());
    let parts = PortParts {
        connections: connections.clone(),
        requests: requests.clone(),
        authenticator,
        quotas,
        engine: None,
        tools: None,
        metrics: metrics.clone(),
    };
    let serving = tokio::spawn(Box::new(gateway).serve(parts, stop.clone()));
    Running {
        address,
        stop,
        requests,
        connections,
        metrics,
        serving,
    }
}

/// Starts an upstream that runs `serve` for each connection.
pub(crate) async fn upstream<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(serve(stream));
        }
    });
    address
}

pub(crate) async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A message as it was on the wire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The head with its empty line.
    pub(crate) head: Vec<u8>,
    /// The body without the framing of chunks.
    pub(crate) body: Vec<u8>,
    /// The body as it was on the wire.
    pub(crate) framed: Vec<u8>,
}

impl Message {
    pub(crate) fn head_text(&self) -> String {
        String::from_utf8_lossy(&self.head).into_owned()
    }

    pub(crate) fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Reads bytes until `found` returns the length of the message.
async fn read_until(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
    found: impl Fn(&[u8]) -> Option<usize>,
) -> Option<usize> {
    loop {
        if let Some(length) = found(bytes) {
            return Some(length);
        }
        if stream.read_buf(bytes).await.unwrap() == 0 {
            return None;
        }
    }
}

/// Returns the length of a head in the bytes.
pub(crate) fn head_length(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(end + 4)
}

/// Returns the value of a header.
pub(crate) fn header(head: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(head).into_owned();
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        let is_it = found.eq_ignore_ascii_case(name);
        is_it.then(|| value.trim().to_owned())
    })
}

/// Returns the content of chunks and their length on the wire. `None` for incomplete chunks.
fn dechunked(mut bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (whole, mut content) = (bytes.len(), Vec::new());
    loop {
        let end = bytes.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let rest = bytes.get(end + 2..)?;
        content.extend_from_slice(rest.get(..size)?);
        bytes = rest.get(size + 2..)?;
        if size == 0 {
            return Some((content, whole - bytes.len()));
        }
    }
}

/// Returns the content of all complete chunks.
pub(crate) fn complete_chunks(mut bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).unwrap();
        let Ok(size) = usize::from_str_radix(size, 16) else {
            break;
        };
        let Some(chunk) = bytes.get(end + 2..end + 2 + size) else {
            break;
        };
        content.extend_from_slice(chunk);
        bytes = bytes.get(end + 2 + size + 2..).unwrap_or_default();
    }
    content
}

/// Reads a message whose body has a length or is in chunks. Returns `None` at the end of the connection.
pub(crate) async fn read_message(stream: &mut TcpStream) -> Option<Message> {
    read_framed(stream, true).await
}

/// Reads a response to HEAD, or another message without a body whatever its headers say.
pub(crate) async fn read_head(stream: &mut TcpStream) -> Option<Message> {
    read_framed(stream, false).await
}

async fn read_framed(stream: &mut TcpStream, has_body: bool) -> Option<Message> {
    let mut bytes = Vec::new();
    let length = read_until(stream, &mut bytes, head_length).await?;
    let mut framed = bytes.split_off(length);
    let head = bytes;
    let is_chunked = header(&head, "transfer-encoding").is_some();
    let body = if !has_body {
        Vec::new()
    } else if is_chunked {
        let end = |bytes: &[u8]| dechunked(bytes).map(|(_, length)| length);
        read_until(stream, &mut framed, end).await?;
        dechunked(&framed).unwrap().0
    } else {
        let length = header(&head, "content-length").map_or(0, |value| value.parse().unwrap());
        let end = |bytes: &[u8]| (bytes.len() >= length).then_some(length);
        read_until(stream, &mut framed, end).await?;
        framed.clone()
    };
    Some(Message { head, body, framed })
}

/// The end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    Reset,
}

/// Reads until the end of the connection.
pub(crate) async fn read_to_end(stream: &mut TcpStream) -> (Vec<u8>, End) {
    let mut bytes = Vec::new();
    loop {
        match stream.read_buf(&mut bytes).await {
            Ok(0) => return (bytes, End::Closed),
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                return (bytes, End::Reset);
            }
        }
    }
}

/// Writes pieces one by one, so that the other side can receive them one by one.
pub(crate) async fn write_pieces(stream: &mut TcpStream, bytes: &[u8], cuts: &[usize]) {
    let mut start = 0;
    for cut in cuts {
        let end = (start + cut).min(bytes.len());
        stream.write_all(&bytes[start..end]).await.unwrap();
        tokio::task::yield_now().await;
        start = end;
    }
    stream.write_all(&bytes[start..]).await.unwrap();
}

/// A complete request with the content `{}` for the API of Anthropic.
pub(crate) const REQUEST: &[u8] =
    b"POST /v1/messages HTTP/1.1\r\nHost: gateway\r\nContent-Length: 2\r\n\r\n{}";
