//! Decodes the content coding of a response beside its forwarding.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};

use brotli_decompressor::{BrotliDecoderParameter, DecompressorWriter};
use bytes::Bytes;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use tokio::sync::Semaphore;

use super::{ReservedMemory, Unread};
use crate::thread::on_fitting_thread;

/// The maximum decoded size of one frame, in bytes. It bounds the time of one poll.
const MAX_DECODED_BYTES: usize = 4 << 20;
/// The maximum size of one step of a complete body, in bytes before it is decoded.
const MAX_STEP_BYTES: usize = 4 * 1024;
/// The maximum number of complete bodies that are decoded at a time.
const MAX_DECODERS: usize = 8;
/// The logarithm of the largest window of Zstandard that HTTP permits (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;
/// The size of the buffer between the decoder of brotli and the output, in bytes.
const BROTLI_BUFFER: usize = 4096;

/// The permits of decoders of complete bodies.
static DECODERS: Semaphore = Semaphore::const_new(MAX_DECODERS);

/// A decoder of one response.
pub(super) struct Decoder(Option<Box<dyn Decode>>);

/// Returns the content coding of a body, or an empty text. Fails if there are several.
pub(crate) fn content_coding(headers: &HeaderMap) -> Result<&[u8], Unread> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    let coding = codings.next().map_or(&b""[..], HeaderValue::as_bytes);
    codings.next().map_or(Ok(coding), |_| Err(Unread::Encoding))
}

/// Decodes a complete body, and reserves the memory of its text. Without a coding, the frames are returned as they are.
/// Fails if the body decodes to more than `max` bytes.
pub(crate) async fn decode_reserved(
    coding: &[u8],
    body: Vec<Bytes>,
    max: usize,
    memory: &mut ReservedMemory,
) -> Result<Vec<Bytes>, Unread> {
    if Decoder::new(coding.trim_ascii())?.is_identity() {
        return Ok(body);
    }
    let received: usize = body.iter().map(Bytes::len).sum();
    let (coding, mut reserved) = (coding.to_vec(), memory.take());
    let decoding = move || {
        let grow = |size: usize| {
            if size > max {
                return Err(Unread::TooLarge);
            }
            reserved.reserve(received.saturating_add(size))
        };
        let whole = decode_whole(&coding, &body, grow);
        (whole, reserved)
    };
    // Each decoder has a window of up to 16 MiB, which is not reserved, so few run at a time.
    let permit = DECODERS.acquire().await;
    // A small body can decode to a large text, so its size does not decide about the thread.
    let decoded = on_fitting_thread(true, decoding).await;
    drop(permit);
    let (whole, reserved) = decoded.map_err(|_| Unread::Panic)?;
    *memory = reserved;
    whole.map(|whole| vec![whole])
}

/// Decodes a complete body into one text. `grow` gets the size of the text before the text grows, and can fail.
pub(crate) fn decode_whole(
    coding: &[u8],
    body: &[Bytes],
    mut grow: impl FnMut(usize) -> Result<(), Unread>,
) -> Result<Bytes, Unread> {
    let mut decoder = Decoder::new(coding.trim_ascii())?;
    if decoder.is_identity()
        && let [only] = body
    {
        return Ok(only.clone());
    }
    let mut whole = Vec::new();
    // One step decodes a part only, so that a small body cannot use much memory at once.
    let parts = body.iter().flat_map(|frame| frame.chunks(MAX_STEP_BYTES));
    for part in parts {
        let text = decoder.decode(part)?;
        grow(whole.len() + text.len())?;
        whole.extend_from_slice(&text);
    }
    // The reservation is that of the text, without the spare capacity.
    whole.shrink_to_fit();
    Ok(whole.into())
}

/// A decoder that writes into an [`Output`].
trait Decode: Write + Send {
    fn output(&mut self) -> &mut Output;
}

impl Decoder {
    /// Creates the decoder for the value of `content-encoding`.
    pub(super) fn new(coding: &[u8]) -> Result<Self, Unread> {
        let output = Output::default();
        let decoder: Box<dyn Decode> = match coding.to_ascii_lowercase().as_slice() {
            b"" | b"identity" => return Ok(Self(None)),
            b"gzip" | b"x-gzip" => Box::new(MultiGzDecoder::new(output)),
            // In HTTP, `deflate` has the header of zlib (RFC 9110).
            b"deflate" => Box::new(ZlibDecoder::new(output)),
            b"br" => {
                let mut decoder = DecompressorWriter::new(output, BROTLI_BUFFER);
                // Large windows, of up to 1 GiB, are no part of the coding `br`.
                let large = BrotliDecoderParameter::BROTLI_DECODER_PARAM_LARGE_WINDOW;
                decoder.set_parameter(large, 0);
                Box::new(decoder)
            }
            b"zstd" => {
                let decoder = zstd::stream::write::Decoder::new(output);
                let mut decoder = decoder.map_err(|_| Unread::Encoding)?;
                decoder
                    .window_log_max(ZSTD_WINDOW_LOG)
                    .map_err(|_| Unread::Encoding)?;
                Box::new(decoder)
            }
            _ => return Err(Unread::Encoding),
        };
        Ok(Self(Some(decoder)))
    }

    /// Returns true if frames are not coded.
    pub(super) fn is_identity(&self) -> bool {
        self.0.is_none()
    }

    /// Returns all text that the frames so far contain and that was not returned before.
    pub(super) fn decode<'a>(&mut self, frame: &'a [u8]) -> Result<Cow<'a, [u8]>, Unread> {
        let Some(decoder) = &mut self.0 else {
            return Ok(Cow::Borrowed(frame));
        };
        // Without the flush, a decoder keeps text back, and an event would be read with a later frame.
        let written = decoder.write_all(frame).and_then(|()| decoder.flush());
        let output = decoder.output();
        match written {
            Ok(()) => Ok(Cow::Owned(std::mem::take(&mut output.0))),
            // `Output` fails only when it is full. All other errors are those of the coding.
            Err(_) if output.0.len() == MAX_DECODED_BYTES => Err(Unread::Expansion),
            Err(_) => Err(Unread::Malformed),
        }
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Decoder").field(&self.0.is_some()).finish()
    }
}

/// The decoded text of one frame, of at most [`MAX_DECODED_BYTES`].
#[derive(Debug, Default)]
struct Output(Vec<u8>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let size = bytes.len().min(MAX_DECODED_BYTES - self.0.len());
        self.0.extend_from_slice(&bytes[..size]);
        if size == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(size)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Decode for MultiGzDecoder<Output> {
    fn output(&mut self) -> &mut Output {
        self.get_mut()
    }
}

impl Decode for ZlibDecoder<Output> {
    fn output(&mut self) -> &mut Output {
        self.get_mut()
    }
}

impl Decode for DecompressorWriter<Output> {
    fn output(&mut self) -> &mut Output {
        self.get_mut()
    }
}

impl Decode for zstd::stream::write::Decoder<'static, Output> {
    fn output(&mut self) -> &mut Output {
        self.get_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::ReadMemory;

    /// Encodes a text so that a decoder can return it before the end of the coding.
    fn encoded(coding: &str, text: &[u8]) -> Vec<u8> {
        let level = flate2::Compression::default();
        let write = |mut encoder: Box<dyn Write + '_>| {
            encoder.write_all(text).unwrap();
            encoder.flush().unwrap();
        };
        let mut out = Vec::new();
        match coding {
            "gzip" => write(Box::new(flate2::write::GzEncoder::new(&mut out, level))),
            "deflate" => write(Box::new(flate2::write::ZlibEncoder::new(&mut out, level))),
            "br" => write(Box::new(brotli::CompressorWriter::new(
                &mut out, 4096, 5, 22,
            ))),
            _ => {
                let mut encoder = zstd::stream::write::Encoder::new(&mut out, 0).unwrap();
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap();
            }
        }
        out
    }

    const CODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

    #[test]
    fn every_byte_is_decoded_as_soon_as_possible() {
        let text = "data: a text with ü and 😀\n\n".repeat(40);
        for coding in CODINGS {
            let coded = encoded(coding, text.as_bytes());
            for size in [1, 7, coded.len()] {
                let mut decoder = Decoder::new(coding.as_bytes()).unwrap();
                let mut read = Vec::new();
                for frame in coded.chunks(size) {
                    read.extend_from_slice(&decoder.decode(frame).unwrap());
                }
                assert_eq!(read, text.as_bytes(), "{coding} in frames of {size}");
            }
        }
    }

    #[test]
    fn a_frame_that_decodes_to_too_much_is_not_read() {
        for coding in CODINGS {
            let fits = encoded(coding, &vec![b'x'; MAX_DECODED_BYTES]);
            let mut decoder = Decoder::new(coding.as_bytes()).unwrap();
            assert_eq!(decoder.decode(&fits).unwrap().len(), MAX_DECODED_BYTES);
            let bomb = encoded(coding, &vec![b'x'; MAX_DECODED_BYTES + 1]);
            let mut decoder = Decoder::new(coding.as_bytes()).unwrap();
            assert_eq!(decoder.decode(&bomb), Err(Unread::Expansion), "{coding}");
        }
    }

    #[tokio::test]
    async fn the_text_of_a_coded_body_is_part_of_the_memory() {
        let text = Bytes::from(vec![b'x'; 1 << 20]);
        let cases = [
            (4 << 20, 2 << 20, Ok(())),
            (256 << 10, 2 << 20, Err(Unread::Memory)),
            (4 << 20, 1 << 19, Err(Unread::TooLarge)),
        ];
        for (budget, max, expected) in cases {
            for coding in CODINGS {
                let coded = Bytes::from(encoded(coding, &text));
                assert!(coded.len() < 16 << 10);
                let mut memory = ReservedMemory::new(ReadMemory::new(budget));
                let parts = vec![coded];
                let decoded = decode_reserved(coding.as_bytes(), parts, max, &mut memory).await;
                assert_eq!(decoded, expected.map(|()| vec![text.clone()]), "{coding}");
            }
        }
    }

    #[test]
    fn unknown_and_malformed_codings_are_not_read() {
        assert_eq!(Decoder::new(b"gzip, br").unwrap_err(), Unread::Encoding);
        assert_eq!(Decoder::new(b"compress").unwrap_err(), Unread::Encoding);
        for coding in CODINGS {
            let mut decoder = Decoder::new(coding.as_bytes()).unwrap();
            let text = b"not compressed, and long enough for each header".repeat(4);
            assert_eq!(decoder.decode(&text), Err(Unread::Malformed), "{coding}");
        }
    }
}
