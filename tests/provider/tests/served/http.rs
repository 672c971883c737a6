//! A client that shows the bytes of a response: its head, its chunks, and the end of the connection.

use std::io::ErrorKind;

use palimpsest_fake_provider::FakeProvider;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The API key of all requests.
pub(crate) const KEY: &str = "secret-key";

/// A response.
pub(crate) struct Received {
    /// The status line and the headers. Empty if none arrived.
    pub(crate) head: String,
    /// The chunks of the body. A body with a content length is one chunk.
    pub(crate) chunks: Vec<Vec<u8>>,
    /// True if the body has its end.
    pub(crate) is_complete: bool,
    /// True if the connection was reset.
    pub(crate) is_reset: bool,
}

impl Received {
    pub(crate) fn body(&self) -> String {
        String::from_utf8_lossy(&self.chunks.concat()).into_owned()
    }

    /// Returns the data of all events.
    pub(crate) fn data(&self) -> Vec<String> {
        let body = self.body();
        let lines = body.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.map(str::to_owned).collect()
    }
}

/// Sends a request with additional header lines, each ended by CR LF.
pub(crate) async fn post(
    provider: &FakeProvider,
    path: &str,
    body: &Value,
    headers: &str,
) -> Received {
    let body = body.to_string();
    // With `connection: close`, the response ends with the connection.
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: provider\r\nauthorization: Bearer {KEY}\r\n\
         anthropic-version: 2023-06-01\r\ncontent-length: {}\r\n{headers}connection: close\r\n\r\n",
        body.len()
    );
    exchange(provider, &format!("{head}{body}")).await
}

/// Requests a path with additional header lines, each ended by CR LF.
pub(crate) async fn get(provider: &FakeProvider, path: &str, headers: &str) -> Received {
    let head =
        format!("GET {path} HTTP/1.1\r\nhost: provider\r\n{headers}connection: close\r\n\r\n");
    exchange(provider, &head).await
}

/// Returns the status and the JSON of a response.
pub(crate) async fn post_json(provider: &FakeProvider, path: &str, body: &Value) -> (u16, Value) {
    bodied(&post(provider, path, body, "").await)
}

/// Returns the status and the JSON of a response.
pub(crate) fn bodied(received: &Received) -> (u16, Value) {
    let status = received.head[9..12].parse().unwrap();
    let json = serde_json::from_str(&received.body()).unwrap_or(Value::Null);
    (status, json)
}

async fn exchange(provider: &FakeProvider, request: &str) -> Received {
    let mut stream = TcpStream::connect(provider.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let end = stream.read_to_end(&mut bytes).await;
    let is_reset = end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
    let head_end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(head_end) = head_end else {
        return Received {
            head: String::new(),
            chunks: Vec::new(),
            is_complete: false,
            is_reset,
        };
    };
    let (head, body) = bytes.split_at(head_end + 4);
    let head = String::from_utf8(head.to_vec()).unwrap();
    let (chunks, is_complete) = if head.contains("transfer-encoding: chunked") {
        chunks(body)
    } else {
        (vec![body.to_vec()], true)
    };
    Received {
        head,
        chunks,
        is_complete,
        is_reset,
    }
}

/// Returns the chunks of a body, and true if the last one was received.
fn chunks(mut body: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut chunks = Vec::new();
    while let Some(at) = body.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&body[..at]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (chunks, true);
        }
        let rest = &body[at + 2..];
        chunks.push(rest[..size.min(rest.len())].to_vec());
        // A body that is cut can end inside of a chunk.
        body = rest.get(size + 2..).unwrap_or_default();
    }
    (chunks, false)
}
