//! Recognizes the response of a provider that rejected a prompt as too long.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_ENCODING;
use http::response::Parts;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use palimpsest_summarize::{PromptTooLong, prompt_too_long};
use tokio::time::timeout;

use super::reading::{Unread, decode_whole};
use super::tee::TeeBody;

/// The maximum size of an error response that is examined, in bytes. The errors of providers are much smaller.
const MAX_BYTES: usize = 64 * 1024;
/// The maximum time in which an error response arrives. A slower one is forwarded as it arrives.
const TIMEOUT: Duration = Duration::from_secs(5);

/// An error response whose body was examined.
pub(crate) struct Examined {
    /// The body, as it arrived.
    pub(crate) body: TeeBody,
    /// The report of the provider, if it rejected the prompt as too long.
    pub(crate) too_long: Option<PromptTooLong>,
}

/// Returns true if a response with the status can report a prompt that is too long.
pub(crate) fn is_candidate(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY
    )
}

/// Examines the body of an error response.
pub(crate) async fn examine(head: &Parts, mut body: Incoming) -> Examined {
    let mut received = VecDeque::new();
    let end = timeout(TIMEOUT, receive(&mut body, &mut received)).await;
    let body = match end {
        Ok(ReceivedEnd::Whole) => return examine_whole(head, received),
        // A broken body must break for the agent too.
        Ok(ReceivedEnd::Broken(error)) => TeeBody::broken(received, error),
        // The received part is sent first, so that the agent loses no byte.
        Ok(ReceivedEnd::TooLarge) | Err(_) => TeeBody::resumed(received, Some(body)),
    };
    Examined {
        body,
        too_long: None,
    }
}

fn examine_whole(head: &Parts, mut received: VecDeque<Bytes>) -> Examined {
    let coding = head.headers.get(CONTENT_ENCODING);
    let coding = coding.map_or(&b""[..], |value| value.as_bytes());
    // A body that cannot be decoded counts as another error, which the agent gets as it came.
    let grow = |size| match size {
        ..=MAX_BYTES => Ok(()),
        _ => Err(Unread::TooLarge),
    };
    let text = decode_whole(coding, received.make_contiguous(), grow).ok();
    let too_long = text.and_then(|text| {
        let text = String::from_utf8_lossy(&text);
        prompt_too_long(Some(head.status.as_u16()), &text)
    });
    Examined {
        body: TeeBody::resumed(received, None),
        too_long,
    }
}

/// The end of the receipt of a body.
enum ReceivedEnd {
    Whole,
    TooLarge,
    Broken(hyper::Error),
}

/// Receives a body until it exceeds the maximum.
async fn receive(body: &mut Incoming, received: &mut VecDeque<Bytes>) -> ReceivedEnd {
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return ReceivedEnd::Broken(error),
        };
        if let Ok(data) = frame.into_data() {
            size += data.len();
            received.push_back(data);
        }
        if size > MAX_BYTES {
            return ReceivedEnd::TooLarge;
        }
    }
    ReceivedEnd::Whole
}
