//! Detects the version of HTTP of a connection by its first bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// The first bytes of HTTP/2. No request of HTTP/1.1 begins with them.
const PREFACE: &[u8; 3] = b"PRI";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpVersion {
    One,
    Two,
}

/// Reads the first bytes of a stream. Returns the version, and the stream with these bytes in front.
pub(super) async fn detect<T: AsyncRead + Unpin>(
    mut stream: T,
) -> io::Result<(HttpVersion, Rewound<T>)> {
    let mut first = [0; PREFACE.len()];
    let mut filled = 0;
    // The first different byte decides, so the loop does not wait for bytes that may never arrive.
    while filled < first.len() && first[..filled] == PREFACE[..filled] {
        match stream.read(&mut first[filled..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    let version = if first == *PREFACE {
        HttpVersion::Two
    } else {
        HttpVersion::One
    };
    Ok((
        version,
        Rewound {
            first,
            next: 0,
            filled,
            stream,
        },
    ))
}

/// A stream that repeats its first bytes.
#[derive(Debug)]
pub(super) struct Rewound<T> {
    first: [u8; PREFACE.len()],
    /// The bytes before this position were repeated.
    next: usize,
    filled: usize,
    stream: T,
}

impl<T: AsyncRead + Unpin> AsyncRead for Rewound<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.next < this.filled {
            let bytes = &this.first[this.next..this.filled];
            let count = bytes.len().min(buf.remaining());
            buf.put_slice(&bytes[..count]);
            this.next += count;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Rewound<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_bytes_decide_and_are_read_again() {
        for (text, expected) in [
            (&b"PRI * HTTP/2.0"[..], HttpVersion::Two),
            (b"POST /v1 HTTP/1.1", HttpVersion::One),
            (b"PATCH / HTTP/1.1", HttpVersion::One),
            (b"GET", HttpVersion::One),
        ] {
            let (version, mut stream) = detect(text).await.unwrap();
            let mut read = Vec::new();
            stream.read_to_end(&mut read).await.unwrap();
            assert_eq!((version, read.as_slice()), (expected, text));
        }
        assert!(detect(&b"PR"[..]).await.is_err());
    }
}
