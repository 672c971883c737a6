//! Runs the calls of a response, and sends the next request to the provider.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts as RequestHead;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy::Error as ClientError;
use palimpsest_core::ids::SessionKey;
use palimpsest_engine::turn::JsonParts;

use super::{MAX_APPENDED_BYTES, MAX_ROUNDS, MAX_RUN_ROUNDS};
use crate::call::GatewayCall;
use crate::client::UpstreamClient;
use crate::context::{
    ContextPort, OfferedTools, OwnCalls, RecordError, ResponseRound, ToolCounts, ToolRound,
};
use crate::exchange::{Exchange, Readings};
use crate::headers;
use crate::reading::ResponseApi;
use crate::request_body::RequestBody;
use crate::span::{ModelSpan, ModelTarget};

/// The parts that the requests for one response share.
#[derive(Debug)]
pub(crate) struct ReadBack {
    pub(crate) client: UpstreamClient,
    pub(crate) context: Arc<dyn ContextPort>,
    pub(crate) readings: Arc<Readings>,
    pub(crate) api: ResponseApi,
    pub(crate) session: SessionKey,
    /// The agent's request.
    pub(crate) call: GatewayCall,
    pub(crate) target: ModelTarget,
    pub(crate) offered: OfferedTools,
    /// The head of the first request to upstream.
    pub(crate) head: RequestHead,
    /// The body of the first request.
    pub(crate) body: JsonParts,
    /// True if the requests have a key of the gateway.
    pub(crate) holds_key: bool,
    /// The calls and their results, as they follow the messages of the first request.
    pub(crate) appended: Vec<u8>,
    /// The number of requests so far.
    pub(crate) rounds: usize,
}

impl ReadBack {
    /// Returns true if another request may follow the current one.
    pub(super) fn may_continue(&self) -> bool {
        self.rounds < MAX_ROUNDS
    }

    /// Runs the calls of offered tools in a response.
    pub(super) async fn run(&self, json: &Bytes) -> Result<ToolRound, RecordError> {
        let calls = OwnCalls {
            session: self.session.clone(),
            api: self.api,
            names: Arc::clone(&self.offered.names),
            json: json.clone(),
            // In the last rounds the model gets errors only, so that it answers before `MAX_ROUNDS` ends the response.
            may_run: self.rounds <= MAX_RUN_ROUNDS && self.appended.len() < MAX_APPENDED_BYTES,
        };
        let round = self.context.run_tools(calls).await;
        let metrics = &self.readings.metrics;
        match &round {
            Ok(round) => metrics.tools_ran(round.counts),
            Err(error) => {
                tracing::warn!(%error, session = %self.session, "cannot run calls of a model");
                // The number of calls is unknown.
                metrics.tools_ran(ToolCounts {
                    failed: 1,
                    ..ToolCounts::default()
                });
            }
        }
        round
    }

    /// Sends the conversation with the calls and their results.
    pub(super) async fn ask(
        &mut self,
        round: &ToolRound,
    ) -> Result<(Response<Incoming>, ModelSpan), ClientError> {
        for part in [&round.calls, &round.results] {
            // A message precedes `array_end`, so each part begins with a comma.
            self.appended.push(b',');
            self.appended.extend_from_slice(part);
        }
        self.rounds += 1;
        let end = self.offered.array_end;
        let mut parts = self.body.section(0..end).parts().to_vec();
        parts.push(Bytes::copy_from_slice(&self.appended));
        parts.extend_from_slice(self.body.section(end..self.body.len()).parts());
        let mut head = self.head.clone();
        let length = self.body.len() + self.appended.len();
        head.headers = headers::of_changed_request(&head.headers, length, false);
        let request = Request::from_parts(head, RequestBody::whole(parts));
        let span = self.target.begin(&self.call, Some(&self.session));
        let response = self.client.request(request).await;
        let response = response.inspect_err(|_| span.failed("no_response"))?;
        Ok((response, span))
    }

    /// Begins to read the next response. `rounds` are the earlier ones.
    pub(super) fn begin(
        &self,
        exchange: Option<Exchange>,
        rounds: Vec<ResponseRound>,
    ) -> Option<Exchange> {
        exchange.map(|exchange| exchange.with_rounds(Arc::clone(&self.offered.names), rounds))
    }
}
