//! Fuzzes the responses that the gateway reads.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use palimpsest_gateway::reading::{FinishedResponse, ReadMemory, Reader, ResponseApi, Unread};

const MAX_BYTES: usize = 64 * 1024;
const MAX_MEMORY: usize = 1 << 20;
const MEDIA: [&str; 2] = ["text/event-stream", "application/json"];
const CODINGS: [&str; 5] = ["identity", "gzip", "deflate", "br", "zstd"];

/// Asserts that the frames of a body have no effect on its response, and that the content stays within its limit.
///
/// The first byte selects API, media type and content coding. The second one is the size of the frames.
pub(crate) fn run(data: &[u8]) {
    let [selector, size, body @ ..] = data else {
        return;
    };
    let selector = usize::from(*selector);
    let api = ResponseApi::ALL[selector % 3];
    let media = MEDIA[selector / 3 % 2];
    let coding = CODINGS[selector / 6 % 5];
    // `chunks` panics for a size of zero.
    let together = read(api, media, coding, body, body.len().max(1));
    let in_frames = read(api, media, coding, body, usize::from(*size).max(1));
    // A frame is decoded completely, so a fault after the last event of the same frame is an error.
    if coding == "identity" || together.is_ok() && in_frames.is_ok() {
        assert_eq!(together, in_frames);
    }
    if let Ok(finished) = in_frames {
        // The text of a response can grow by escapes and by the names of fields.
        let json = finished.json.unwrap_or_default();
        assert!(json.len() <= 8 * MAX_BYTES, "{}", json.len());
    }
}

fn read(
    api: ResponseApi,
    media: &'static str,
    coding: &'static str,
    body: &[u8],
    size: usize,
) -> Result<FinishedResponse, Unread> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
    let mut reader = Reader::new(api, &headers, MAX_BYTES, ReadMemory::new(MAX_MEMORY))?;
    for frame in body.chunks(size) {
        reader.read(frame)?;
    }
    reader.finish(true)
}
