//! HTTP/1.1 over plain sockets, so that a test decides about each byte.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The maximum size of a message, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// A request or a response.
#[derive(Debug, Default, Clone)]
pub(crate) struct HttpMessage {
    /// The first line and the headers.
    pub(crate) head: String,
    /// The body, without its transfer coding.
    pub(crate) body: Vec<u8>,
    /// True if the body ended as its head announces.
    pub(crate) is_whole: bool,
}

impl HttpMessage {
    /// Returns the value of the first header with this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Returns the status of a response. 0 if there is none.
    pub(crate) fn status(&self) -> u16 {
        let status = self.head.split(' ').nth(1);
        status.and_then(|status| status.parse().ok()).unwrap_or(0)
    }
}

/// Reads a request until its end, or until the end of the connection.
pub(crate) async fn read_request(stream: &mut TcpStream) -> HttpMessage {
    // A request without a length has no body.
    read(stream, Some(0)).await
}

/// Reads a message. `length` is that of a body without a stated one. `None`: until the end of the connection.
async fn read(stream: &mut TcpStream, length: Option<usize>) -> HttpMessage {
    let unstated = length;
    let mut bytes = Vec::new();
    let mut message = HttpMessage::default();
    let begin = loop {
        if let Some(at) = find(&bytes, b"\r\n\r\n") {
            if !bytes.starts_with(b"HTTP/1.1 1") {
                break at;
            }
            // An interim response, such as 100 Continue, precedes the response.
            bytes.drain(..at + 4);
            continue;
        }
        if !more(stream, &mut bytes).await {
            return message;
        }
    };
    message.head = String::from_utf8_lossy(&bytes[..begin]).into_owned();
    let mut body = bytes.split_off(begin + 4);
    let is_chunked = message
        .header("transfer-encoding")
        .is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    let length = message
        .header("content-length")
        .map_or(unstated, |value| value.parse().ok());
    loop {
        let is_whole = if is_chunked {
            let (content, is_whole) = chunks(&body);
            message.body = content;
            is_whole
        } else {
            message.body.clone_from(&body);
            length.is_some_and(|length| body.len() >= length)
        };
        if is_whole {
            message.is_whole = true;
            return message;
        }
        if !more(stream, &mut body).await {
            // Without a length, the end of the connection is the end of the body.
            message.is_whole = !is_chunked && length.is_none();
            return message;
        }
    }
}

/// Receives further bytes. Returns false at the end of the connection, however it ends.
async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> bool {
    bytes.len() < MAX_BYTES && matches!(stream.read_buf(bytes).await, Ok(1..))
}

/// Returns the content of all chunks so far, also of an incomplete one, and true after the last chunk.
fn chunks(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut content = Vec::new();
    while let Some(end) = find(bytes, b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).unwrap_or_default();
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else {
            return (content, false);
        };
        let rest = &bytes[end + 2..];
        if size == 0 {
            return (content, true);
        }
        content.extend_from_slice(&rest[..size.min(rest.len())]);
        if rest.len() < size + 2 {
            return (content, false);
        }
        bytes = &rest[size + 2..];
    }
    (content, false)
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// Sends a request over a connection of its own. Returns the response, as far as it arrives.
pub(crate) async fn exchange(address: &str, head: &str, body: &[u8]) -> io::Result<HttpMessage> {
    let mut stream = send(address, head, body).await?;
    Ok(read(&mut stream, None).await)
}

/// Sends a request, and then nothing more.
pub(crate) async fn exchange_and_close(
    address: &str,
    head: &str,
    body: &[u8],
) -> io::Result<HttpMessage> {
    let mut stream = send(address, head, body).await?;
    let _ = stream.shutdown().await;
    Ok(read(&mut stream, None).await)
}

async fn send(address: &str, head: &str, body: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    // The gateway can answer and close the connection before it has read everything.
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(body).await;
    Ok(stream)
}
