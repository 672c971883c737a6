//! A provider that answers each request at once. It reports the tokens of the body as usage.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::TOKEN_BYTES;

/// The end of a streamed response.
pub(super) const LAST_EVENT: &[u8] = b"message_stop\"}\n\n\r\n0\r\n\r\n";

/// Starts the provider.
pub(super) async fn start() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    Ok(address)
}

async fn serve(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::with_capacity(1 << 20);
    loop {
        // The client sends its next request after the response, so no byte of it is here yet.
        received.clear();
        let body = loop {
            if stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
            if let Some(at) = received.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = String::from_utf8_lossy(&received[..body]).to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.context("no length")?.trim().parse()?;
        while received.len() < body + length {
            if stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
        }
        stream
            .write_all(response(length / TOKEN_BYTES).as_bytes())
            .await?;
    }
}

/// Returns a streamed response.
fn response(tokens: usize) -> String {
    let events = [
        json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "claude-bench",
            "content": [], "usage": {"input_tokens": tokens, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ];
    let mut response =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_owned();
    for event in events {
        let kind = event["type"].as_str().unwrap_or_default();
        let event = format!("event: {kind}\ndata: {event}\n\n");
        let _ = write!(response, "{:x}\r\n{event}\r\n", event.len());
    }
    response + "0\r\n\r\n"
}
