//! Fuzzes the joining of several responses of a provider to one.

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use palimpsest_gateway::read_back::{JoinedResponses, SplicedEvents};
use palimpsest_gateway::reading::{ReadMemory, Reader, ResponseApi, Unread};

const MAX_BYTES: usize = 64 * 1024;
const MAX_MEMORY: usize = 1 << 20;
/// The tool of the service that each request offers.
const OWN: &str = "own_read";
/// Ends a response of the provider in an input.
const END: u8 = 0x1e;

/// A response, as the agent gets it.
#[derive(Debug, PartialEq, Eq)]
struct Spliced {
    bytes: Vec<u8>,
    /// The number of responses of the provider of which it consists.
    rounds: usize,
    /// The reason for the end of the reading.
    unread: Option<Unread>,
}

/// Asserts that the frames of streams have no effect, that an answer without calls of the service's tools is unchanged,
/// and that the joined response can be read.
///
/// The first byte selects API, form and number of rounds. The second one is the size of the frames.
pub(crate) fn run(data: &[u8]) {
    let [selector, size, body @ ..] = data else {
        return;
    };
    let selector = usize::from(*selector);
    let (api, is_stream, rounds) = (
        ResponseApi::ALL[selector % 3],
        selector / 3 % 2 == 0,
        selector / 6 % 4,
    );
    // `split` returns at least one part, so the first response always exists.
    let responses: Vec<&[u8]> = body.split(|byte| *byte == END).collect();
    if !is_stream {
        whole(api, &responses, rounds);
        return;
    }
    let together = spliced(api, &responses, rounds, body.len().max(1));
    let in_frames = spliced(api, &responses, rounds, usize::from(*size).max(1));
    assert_eq!(together, in_frames);
    // An escape could hide the name of the tool.
    if !contains(responses[0], OWN.as_bytes()) && !responses[0].contains(&b'\\') {
        assert_eq!(together.bytes, responses[0]);
        assert_eq!(together.rounds, 1);
    }
    let reading = |reason: &Unread| format!("{reason:?}: {}", together.bytes.escape_ascii());
    if together.unread.is_none() {
        let read = read(api, "text/event-stream", &together.bytes);
        assert!(
            read.is_ok(),
            "{}",
            read.as_ref().err().map(reading).unwrap()
        );
    }
}

fn names() -> Arc<[String]> {
    [OWN.to_owned()].into()
}

/// Joins streams in frames of this size, as the gateway does.
fn spliced(api: ResponseApi, responses: &[&[u8]], rounds: usize, size: usize) -> Spliced {
    let mut events = SplicedEvents::new(api, names());
    let mut spliced = Spliced {
        bytes: Vec::new(),
        rounds: 0,
        unread: None,
    };
    for (round, response) in responses.iter().enumerate() {
        spliced.rounds += 1;
        if round > 0 {
            events.begin_next(round < rounds);
        }
        if let Err(reason) = add(api, &mut events, response, size, &mut spliced.bytes) {
            assert_ne!(reason, Unread::Panic);
            spliced.unread = Some(reason);
            return spliced;
        }
        if !events.continues() {
            return spliced;
        }
    }
    // The provider sends no further response, so the agent gets an error.
    spliced.unread = Some(Unread::Unknown);
    spliced
}

/// Adds a response of the provider.
fn add(
    api: ResponseApi,
    events: &mut SplicedEvents,
    response: &[u8],
    size: usize,
    out: &mut Vec<u8>,
) -> Result<(), Unread> {
    let mut reader = reader(api, "text/event-stream")?;
    let mut at = 0;
    while at < response.len() {
        let end = response.len().min(at + size);
        let read_event = |event: &[u8]| Ok(reader.read(event)?.is_some());
        let read = events.read(&response[at..end], out, read_event);
        at = end;
        match read {
            Ok(None) => {}
            Ok(Some(last)) => {
                out.extend_from_slice(&last);
                if !events.continues() {
                    out.extend_from_slice(&response[at..]);
                }
                reader.finish(true)?;
                return Ok(());
            }
            Err(reason) => {
                if !events.is_changed() {
                    out.extend(events.take_rest());
                    out.extend_from_slice(&response[at..]);
                }
                return Err(reason);
            }
        }
    }
    if !events.continues() {
        out.extend(events.take_rest());
    }
    reader.finish(true)?;
    Ok(())
}

/// Joins responses without streams.
fn whole(api: ResponseApi, responses: &[&[u8]], rounds: usize) {
    let mut joined = JoinedResponses::new(api, names());
    for (round, response) in responses.iter().enumerate() {
        // The gateway reads a response before it joins it.
        if read(api, "application/json", response).is_err() {
            return;
        }
        if round > 0 {
            joined.begin_next();
        }
        if joined.add(response, round < rounds).is_err() {
            return;
        }
        if !joined.continues() {
            break;
        }
    }
    joined.end();
    match joined.joined() {
        Ok(Some(json)) => {
            let read = read(api, "application/json", &json);
            assert!(read.is_ok(), "{}", json.escape_ascii());
        }
        Ok(None) => assert!(!joined.has_own_calls()),
        Err(_) => {}
    }
}

fn reader(api: ResponseApi, media: &'static str) -> Result<Reader, Unread> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    Reader::new(api, &headers, MAX_BYTES, ReadMemory::new(MAX_MEMORY))
}

fn read(api: ResponseApi, media: &'static str, body: &[u8]) -> Result<(), Unread> {
    let mut reader = reader(api, media)?;
    reader.read(body)?;
    reader.finish(true).map(drop)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
