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
use super::splice::{Calls, Splice};
use super::{chat, messages, responses};
use crate::exchange::{BodyEnd, Exchange};
use crate::headers;
use crate::reading::{Fields, ResponseApi, Unread};
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
    let mut state = Splice::new(Arc::clone(&read_back.offered.names));
    let (mut response, mut exchange) = (response, exchange);
    let mut read = Vec::new();
    loop {
        let (head, mut body) = response.into_parts();
        let received = match receive(&mut body, &mut exchange).await {
            Ok(received) => received,
            // The rest of the response is forwarded, whatever it is.
            Err((received, reason)) => {
                exchange.give_up(reason);
                return Ok((head, TeeBody::resumed(received, Some(body))));
            }
        };
        let hold = exchange.hold_timeout();
        let Some(unrecorded) = exchange.finish(BodyEnd::Whole).await else {
            return Ok((head, TeeBody::resumed(received, None)));
        };
        let json = unrecorded.json().cloned().unwrap_or_default();
        let response_fields = look(read_back.api, &mut state, &json, read_back.may_continue());
        let Ok(fields) = response_fields else {
            let recording = unrecorded.spawn(Bytes::new());
            let _ = timeout(hold, recording).await;
            return Ok((head, TeeBody::resumed(received, None)));
        };
        let has_own = state.calls.own > 0;
        let round = if has_own {
            read_back.run(&json).await.ok()
        } else {
            None
        };
        if let Some(round) = round.as_ref().filter(|_| state.continues) {
            let next = read_back.ask(round).await?;
            if !next.status().is_success() {
                let (head, body) = next.into_parts();
                return Ok((head, TeeBody::new(body, None)));
            }
            let (next_head, next_body) = next.into_parts();
            let (place, span) = (unrecorded.place(), read_back.span.clone());
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
            read.push(fields);
            state.begin_next();
            (response, exchange) = (Response::from_parts(next_head, next_body), begun);
            continue;
        }
        state.continues = false;
        let results = round.map(|round| round.results).unwrap_or_default();
        let recording = unrecorded.spawn(results.into());
        let _ = timeout(hold, recording).await;
        // A response of the Responses API repeats the tools of its request.
        let repeats_tools = read_back.api == ResponseApi::Responses;
        if !has_own && read.is_empty() && !repeats_tools {
            return Ok((head, TeeBody::resumed(received, None)));
        }
        read.push(fields);
        return Ok(joined(head, received, (read_back.api, &state, &read)));
    }
}

/// Returns the joined response, or the last one as it came if it cannot be joined.
fn joined(
    mut head: ResponseHead,
    received: VecDeque<Bytes>,
    (api, state, read): (ResponseApi, &Splice, &[Fields]),
) -> WholeResponse {
    let joined = match api {
        ResponseApi::Messages => messages::join(state, read),
        ResponseApi::Chat => chat::join(state, read),
        ResponseApi::Responses => responses::join(state, read),
    };
    let joined = joined.and_then(|joined| Ok(serde_json::to_vec(&joined)?));
    match joined {
        Ok(joined) => {
            head.headers = headers::of_changed_response(&head.headers, joined.len());
            (head, TeeBody::resumed([Bytes::from(joined)].into(), None))
        }
        Err(reason) => {
            tracing::warn!(%reason, "cannot join the responses of a provider");
            (head, TeeBody::resumed(received, None))
        }
    }
}

/// Receives a body.
async fn receive(
    body: &mut Incoming,
    exchange: &mut Exchange,
) -> Result<VecDeque<Bytes>, (VecDeque<Bytes>, Unread)> {
    let mut received = VecDeque::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err((received, Unread::Malformed));
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let read = exchange.read(&data);
        received.push_back(data);
        if let Err(reason) = read {
            return Err((received, reason));
        }
    }
    Ok(received)
}

/// Reads the calls of a response, and decides whether another one follows.
fn look(
    api: ResponseApi,
    state: &mut Splice,
    json: &[u8],
    may_continue: bool,
) -> Result<Fields, Unread> {
    let fields: Fields = serde_json::from_slice(json)?;
    let (calls, is_regular): (Calls, bool) = match api {
        ResponseApi::Messages => messages::calls(state, &fields),
        ResponseApi::Chat => chat::calls(state, &fields),
        ResponseApi::Responses => responses::calls(state, &fields),
    }?;
    state.calls = calls;
    state.may_continue = may_continue;
    let usage: Fields = fields.read("usage")?.unwrap_or_default();
    let field = if api == ResponseApi::Chat {
        "completion_tokens"
    } else {
        "output_tokens"
    };
    state.output_tokens.1 = usage.read(field)?.unwrap_or_default();
    state.end(is_regular);
    Ok(fields)
}
