//! Content codings of a response.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde::Deserialize;

/// The quality of brotli and the logarithm of its window. Low, because tests have few bytes.
const BROTLI: (u32, u32) = (4, 18);

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coding {
    /// gzip.
    Gzip,
    /// zlib, which HTTP calls deflate.
    Deflate,
    /// brotli.
    Br,
    /// Zstandard.
    Zstd,
}

impl Coding {
    /// Returns the name in headers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Br => "br",
            Self::Zstd => "zstd",
        }
    }

    /// Returns true if a client with this `accept-encoding` accepts the coding.
    pub(crate) fn is_accepted(self, accepted: &str) -> bool {
        accepted.split(',').any(|entry| {
            let (name, weight) = entry.split_once(';').unwrap_or((entry, ""));
            // A weight of zero refuses a coding (RFC 9110). Weights have at most three decimals.
            let is_refused = matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
            name.trim().eq_ignore_ascii_case(self.name()) && !is_refused
        })
    }
}

/// An encoder that can be flushed after each event.
pub(crate) enum Encoder {
    Identity,
    Gzip(GzEncoder<Vec<u8>>),
    Deflate(ZlibEncoder<Vec<u8>>),
    Br(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    pub(crate) fn new(coding: Option<Coding>) -> io::Result<Self> {
        let level = Compression::default();
        Ok(match coding {
            None => Self::Identity,
            Some(Coding::Gzip) => Self::Gzip(GzEncoder::new(Vec::new(), level)),
            Some(Coding::Deflate) => Self::Deflate(ZlibEncoder::new(Vec::new(), level)),
            Some(Coding::Br) => {
                let (quality, window) = BROTLI;
                let writer = brotli::CompressorWriter::new(Vec::new(), 4_096, quality, window);
                Self::Br(Box::new(writer))
            }
            Some(Coding::Zstd) => Self::Zstd(zstd::stream::write::Encoder::new(Vec::new(), 0)?),
        })
    }

    /// Encodes bytes so that the client can decode all of them at once.
    pub(crate) fn push(&mut self, bytes: Bytes) -> io::Result<Bytes> {
        let encoded = match self {
            Self::Identity => return Ok(bytes),
            Self::Gzip(encoder) => {
                encoder.write_all(&bytes)?;
                encoder.flush()?;
                std::mem::take(encoder.get_mut())
            }
            Self::Deflate(encoder) => {
                encoder.write_all(&bytes)?;
                encoder.flush()?;
                std::mem::take(encoder.get_mut())
            }
            Self::Br(encoder) => {
                encoder.write_all(&bytes)?;
                encoder.flush()?;
                std::mem::take(encoder.get_mut())
            }
            Self::Zstd(encoder) => {
                encoder.write_all(&bytes)?;
                encoder.flush()?;
                std::mem::take(encoder.get_mut())
            }
        };
        Ok(encoded.into())
    }

    /// Returns the bytes that end the body.
    pub(crate) fn finish(self) -> io::Result<Bytes> {
        let rest = match self {
            Self::Identity => Vec::new(),
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Deflate(encoder) => encoder.finish()?,
            // `into_inner` also writes the end of the brotli stream.
            Self::Br(encoder) => encoder.into_inner(),
            Self::Zstd(encoder) => encoder.finish()?,
        };
        Ok(rest.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use bytes::Bytes;

    use super::{Coding, Encoder};

    fn decode(coding: Coding, encoded: &[u8]) -> String {
        let mut text = String::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(encoded).read_to_string(&mut text),
            Coding::Deflate => flate2::read::ZlibDecoder::new(encoded).read_to_string(&mut text),
            Coding::Br => brotli::Decompressor::new(encoded, 4_096).read_to_string(&mut text),
            Coding::Zstd => zstd::stream::read::Decoder::new(encoded)
                .unwrap()
                .read_to_string(&mut text),
        }
        .unwrap();
        text
    }

    #[test]
    fn each_coding_is_decoded_again() {
        for coding in [Coding::Gzip, Coding::Deflate, Coding::Br, Coding::Zstd] {
            let mut encoder = Encoder::new(Some(coding)).unwrap();
            let mut sent = Vec::new();
            for event in ["data: one\n\n", "data: two\n\n"] {
                let frame = encoder.push(Bytes::from_static(event.as_bytes())).unwrap();
                assert!(!frame.is_empty(), "{coding:?} is flushed after each event");
                sent.extend(&frame);
            }
            sent.extend(&encoder.finish().unwrap());
            let text = decode(coding, &sent);
            assert_eq!(text, "data: one\n\ndata: two\n\n", "{coding:?}");
        }
    }

    #[test]
    fn only_accepted_codings_are_used() {
        assert!(Coding::Br.is_accepted("gzip, deflate, br, zstd"));
        assert!(Coding::Gzip.is_accepted("GZIP;q=0.5"));
        assert!(!Coding::Zstd.is_accepted("gzip, zstd;q=0"));
        assert!(!Coding::Gzip.is_accepted(""));
    }
}
