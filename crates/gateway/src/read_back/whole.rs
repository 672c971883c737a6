//! Responses without a stream.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::response::Parts as ResponseHead;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::client::legacy::Error as ClientError;
use tokio::time::timeout;

use super::ask::ReadBack;
use super::joined::JoinedResponses;
use crate::exchange::{BodyEnd, Exchange};
use crate::headers;
use crate::reading::Unread;
use crate::tee::TeeBody;

/// The head and the body of a response for the agent.
pub(crate) type WholeResponse = (ResponseHead, TeeBody);

/// Reads a response completely, runs its calls of offered tools, and returns the response that the model ends. An error
/// is that of the connection to upstream.
pub(crate) async fn read_whole(
    response: Response<Incoming>,
    exchange: Exchange,
    mut read_back: ReadBack,
) -> Result<WholeResponse, ClientError> {
    let mut read = JoinedResponses::new(read_back.api, Arc::clone(&read_back.offered.names));
    let (mut response, mut exchange) = (response, exchange);
    loop {
        let (head, mut body) = response.into_parts();
        let received = match receive(&mut body, &mut exchange).await {
            Ok(received) => received,
            // The rest of the response is forwarded, whatever it is.
            Err((received, Unreceived::Unread(reason))) => {
                exchange.give_up(reason);
                return Ok((head, TeeBody::resumed(received, Some(body))));
            }
            Err((received, Unreceived::Broken(error))) => {
                drop(exchange.end(BodyEnd::Broken));
                return Ok((head, TeeBody::broken(received, error)));
            }
        };
        let hold = exchange.hold_timeout();
        let Some(unrecorded) = exchange.finish(BodyEnd::Whole).await else {
            return Ok((head, TeeBody::resumed(received, None)));
        };
        let json = unrecorded.json().cloned().unwrap_or_default();
        if read.add(&json, read_back.may_continue()).is_err() {
            let recording = unrecorded.spawn(Bytes::new());
            // A slower record continues in its task.
            let _ = timeout(hold, recording).await;
            return Ok((head, TeeBody::resumed(received, None)));
        }
        let round = if read.has_own_calls() {
            read_back.run(&json).await.ok()
        } else {
            None
        };
        if let Some(round) = round.as_ref().filter(|_| read.continues()) {
            let (next, span) = read_back.ask(round).await?;
            // `unrecorded` records the response so far when it is dropped. `forward` hides the rejection of a held key.
            if !next.status().is_success() {
                span.responded(next.status());
                let (head, body) = next.into_parts();
                return Ok((head, TeeBody::new(body, None)));
            }
            let (next_head, next_body) = next.into_parts();
            let place = unrecorded.place();
            let begun = Exchange::begin(
                &read_back.readings,
                read_back.api,
                (place, span),
                &next_head,
            );
            let rounds = unrecorded.into_rounds(round.results.clone().into());
            let Some(begun) = read_back.begin(begun, rounds) else {
                return Ok((next_head, TeeBody::new(next_body, None)));
            };
            read.begin_next();
            (response, exchange) = (Response::from_parts(next_head, next_body), begun);
            continue;
        }
        // Calls that could not run have no results, so the response ends even if it consists of such calls.
        read.end();
        let results = round.map(|round| round.results).unwrap_or_default();
        let recording = unrecorded.spawn(results.into());
        let _ = timeout(hold, recording).await;
        return Ok(joined(head, received, &read));
    }
}

/// Returns the joined response, or the last one as it came if it cannot be joined.
fn joined(
    mut head: ResponseHead,
    received: VecDeque<Bytes>,
    read: &JoinedResponses,
) -> WholeResponse {
    match read.joined() {
        Ok(None) => (head, TeeBody::resumed(received, None)),
        Ok(Some(joined)) => {
            head.headers = headers::of_changed_response(&head.headers, joined.len());
            (head, TeeBody::resumed([Bytes::from(joined)].into(), None))
        }
        Err(reason) => {
            tracing::warn!(%reason, "cannot join the responses of a provider");
            (head, TeeBody::resumed(received, None))
        }
    }
}

/// The reason for a body that was not received completely.
enum Unreceived {
    /// The body is not understood.
    Unread(Unread),
    /// The connection to upstream broke.
    Broken(hyper::Error),
}

/// Receives a body.
async fn receive(
    body: &mut Incoming,
    exchange: &mut Exchange,
) -> Result<VecDeque<Bytes>, (VecDeque<Bytes>, Unreceived)> {
    let mut received = VecDeque::new();
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Err((received, Unreceived::Broken(error))),
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let read = exchange.read(&data);
        // Kept even if the reading fails, because the agent gets this frame too.
        received.push_back(data);
        if let Err(reason) = read {
            return Err((received, Unreceived::Unread(reason)));
        }
    }
    Ok(received)
}
