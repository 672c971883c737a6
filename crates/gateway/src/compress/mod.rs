//! `POST /v1/compress` and `GET /v1/retrieve/{hash}`: the contract of compression guardrails, with which other gateways
//! send only the messages of a request and forward the returned ones themselves.
//!
//! Level 1 acts on each message alone, and its replacements depend on nothing but the replaced result. A whole conversation
//! then goes to its session, as a request to a model does, and the answer contains its view. A part of a conversation has
//! no session, because its caller keeps the other messages back and puts each returned message to its place.

mod contract;
mod http;
mod metrics;
mod originals;
mod retrieve;
mod rows;
mod shape;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use palimpsest_core::codec;
use palimpsest_core::command::DecidePersist;
use palimpsest_core::ids::ProjectId;
use palimpsest_core::json::ObjectFields;
use palimpsest_core::levels::results::UnboundResult;
use palimpsest_core::message::{Digest, Message};
use palimpsest_core::policy::Policy;
use palimpsest_core::tokens::TokenCounter;
use palimpsest_engine::Engine;
use palimpsest_engine::call::in_current_call;
use tokio::time::timeout;
use tracing::Instrument as _;

use self::contract::CompressionRequest;
pub(crate) use self::contract::InvalidRequest;
pub(crate) use self::http::Problem;
pub(crate) use self::metrics::CompressionMetrics;
use self::originals::OriginalHash;
use self::rows::LargeResult;
use self::shape::Extent;
use crate::call::GatewayCall;
use crate::context::{ContextPort as _, ModelBody, ModelRequest, NamedSession, Purpose, Unmanaged};
use crate::managed::{EngineContext, provider_of};
use crate::reading::{ReadMemory, ResponseApi};
use crate::thread::{MAX_INLINE_BYTES, on_fitting_thread};

/// The number of originals of one request that are stored at the same time.
const CONCURRENT_STORES: usize = 8;

/// Answers the requests of compression guardrails.
#[derive(Debug)]
pub(crate) struct Compression {
    pub(crate) engine: Engine,
    /// The sessions of whole conversations.
    pub(crate) context: EngineContext,
    pub(crate) metrics: CompressionMetrics,
    /// The memory of all requests in flight.
    pub(crate) memory: ReadMemory,
    /// The maximum size of a body, in bytes.
    pub(crate) max_bytes: usize,
    /// The maximum time for the originals of a request, and likewise for its session.
    pub(crate) prepare_timeout: Duration,
    /// The maximum time without progress in the body of a request.
    pub(crate) stall: Duration,
    /// True if a request is rejected whose array no session takes.
    pub(crate) requires_session: bool,
}

/// The caller of a request.
#[derive(Debug, Clone)]
struct Origin {
    call: GatewayCall,
    project: ProjectId,
    /// The digest of the credentials.
    scope: Digest,
    /// The session that the request names.
    session: Option<NamedSession>,
}

/// The answer to a compression request.
#[derive(Debug)]
struct Compressed {
    /// The array as JSON.
    array: Messages,
    tokens_before: u64,
    tokens_after: u64,
    /// True if a replacement was written into the array.
    replaced: bool,
    /// The resource name of the session that took the array.
    session: Option<String>,
    /// The reason for an array that no session has taken.
    unmanaged: Option<Unmanaged>,
}

/// The returned messages.
#[derive(Debug)]
enum Messages {
    /// Those of the caller.
    Original,
    /// Those of the caller, with replacements in place of tool results.
    Replaced(String),
    /// The view of the session.
    View(String),
}

/// An array that was read.
struct ReadRows {
    api: ResponseApi,
    extent: Extent,
    tokens: u64,
    results: Vec<LargeResult>,
}

impl Compression {
    /// Compresses the array of a request.
    async fn compress(&self, request: &CompressionRequest, origin: Origin) -> Compressed {
        let policy = Arc::clone(self.engine.sessions.policies().of(&origin.project));
        let rows = match self.read(request.clone(), Arc::clone(&policy)).await {
            Ok(rows) => rows,
            Err(reason) => return Compressed::unmanaged(reason),
        };
        let (array, saved) = self
            .replace(request, &rows, &origin.project, policy.as_ref())
            .await;
        let mut compressed = Compressed {
            tokens_before: rows.tokens,
            tokens_after: rows.tokens.saturating_sub(saved),
            replaced: array.is_some(),
            array: array.map_or(Messages::Original, Messages::Replaced),
            session: None,
            unmanaged: None,
        };
        // A pinned beginning and the number of messages of a part must stay, so only level 1 acts on them.
        if rows.extent == Extent::Whole && request.frozen_messages == 0 {
            self.sync(request, &rows, origin, policy.counter(), &mut compressed)
                .await;
        }
        compressed
    }

    /// Reads the array, and finds the results for level 1.
    async fn read(
        &self,
        request: CompressionRequest,
        policy: Arc<Policy>,
    ) -> Result<ReadRows, Unmanaged> {
        let engine = self.engine.clone();
        // The first count loads the vocabulary of the estimator, which takes longer than the count.
        let is_large = request.body.len() > MAX_INLINE_BYTES || !policy.counter().is_ready();
        let read = move || {
            let array = request.array();
            let api = shape::api(array, request.has_system);
            let provider = provider_of(api);
            let read = codec::read(provider, array.as_bytes(), &mut engine.next_id());
            let messages = read.map_err(|error| {
                tracing::debug!(
                    path = error.path,
                    "cannot read the array of a compression request"
                );
                Unmanaged::Unreadable
            })?;
            // Without a way to the original, a replacement would lose content.
            let results = if request.reads_originals {
                let frozen = request.frozen_messages;
                rows::large_results((provider, array), &messages, frozen, &policy.tool_results)
            } else {
                Vec::new()
            };
            Ok(ReadRows {
                api,
                extent: shape::extent(&messages),
                tokens: count(policy.counter(), &messages),
                results,
            })
        };
        on_fitting_thread(is_large, read).await?
    }

    /// Stores the originals of large results. Returns the array with their replacements and the saved tokens, or `None` in
    /// place of an array without a replacement.
    async fn replace(
        &self,
        request: &CompressionRequest,
        rows: &ReadRows,
        project: &ProjectId,
        policy: &Policy,
    ) -> (Option<String>, u64) {
        if rows.results.is_empty() {
            return (None, 0);
        }
        let offers = rows.results.iter();
        let offers = offers.map(|result| (result.hash.clone(), result.offer.clone()));
        let policy = Arc::new(originals::policy_of(policy));
        let storing = store_all(
            self.engine.clone(),
            project.clone(),
            policy,
            offers.collect(),
        );
        // A task of its own: a store that has begun continues if the caller disconnects.
        let storing = tokio::spawn(in_current_call(storing).in_current_span());
        let stored = match timeout(self.prepare_timeout, storing).await {
            // After a panic of the task no result is known to be stored, so all of them stay in the array.
            Ok(stored) => stored.unwrap_or_default(),
            Err(_elapsed) => {
                tracing::warn!(
                    "tool results were not stored within gateway.prepare_timeout_ms, and stay in their array"
                );
                Vec::new()
            }
        };
        let mut saved = 0;
        let mut replaced = Vec::new();
        for (result, stored) in rows.results.iter().zip(stored) {
            if let Some(stored) = stored {
                saved += u64::from(stored.tokens.saturating_sub(stored.replacement_tokens));
                replaced.push((result, stored.replacement));
            }
        }
        if replaced.is_empty() {
            return (None, 0);
        }
        (
            Some(rows::with_replacements(request.array(), &replaced)),
            saved,
        )
    }

    /// Gives a whole conversation to its session. Without a session, the array stays as level 1 left it.
    async fn sync(
        &self,
        request: &CompressionRequest,
        rows: &ReadRows,
        origin: Origin,
        counter: TokenCounter,
        compressed: &mut Compressed,
    ) {
        let body = match &compressed.array {
            // The session takes the array that the model sees, so replaced results are previews in its transcript too.
            Messages::Replaced(array) => request.with_array(array),
            Messages::Original | Messages::View(_) => request.body.clone(),
        };
        let prepared = self.context.prepare(ModelRequest {
            project: origin.project,
            scope: origin.scope,
            api: rows.api,
            session: origin.session,
            body: body.into(),
            purpose: Purpose::Response,
        });
        // The caller gets the view after its commit.
        let prepared = match prepared.await {
            Ok(prepared) => match prepared.commit {
                Some(commit) => commit.outcome().await,
                None => Ok(prepared.request),
            },
            Err(reason) => Err(reason),
        };
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(reason) => {
                compressed.unmanaged = Some(reason);
                return;
            }
        };
        origin.call.about(&prepared.place.session);
        compressed.session = Some(prepared.place.session.to_string());
        // A view that cannot be sent is not returned, as it is not sent by this gateway.
        let ModelBody::View(body) = prepared.body else {
            return;
        };
        match self.view(rows.api, body.whole(), counter).await {
            Ok((view, tokens)) => {
                compressed.array = Messages::View(view);
                compressed.tokens_after = tokens;
            }
            Err(reason) => compressed.unmanaged = Some(reason),
        }
    }

    /// Returns the array of a body with a view, and its tokens.
    async fn view(
        &self,
        api: ResponseApi,
        body: Bytes,
        counter: TokenCounter,
    ) -> Result<(String, u64), Unmanaged> {
        let engine = self.engine.clone();
        let is_large = body.len() > MAX_INLINE_BYTES;
        let read = move || {
            let text = std::str::from_utf8(&body).ok()?;
            let array = ObjectFields::read_str(text).ok()?.take("messages").ok()??;
            let provider = provider_of(api);
            let messages = codec::read(provider, array.get().as_bytes(), &mut engine.next_id());
            Some((array.get().to_owned(), count(counter, &messages.ok()?)))
        };
        on_fitting_thread(is_large, read)
            .await?
            .ok_or(Unmanaged::Defect)
    }
}

impl Compressed {
    /// Returns the answer for an array that cannot be read.
    fn unmanaged(reason: Unmanaged) -> Self {
        Self {
            unmanaged: Some(reason),
            ..Self::untouched()
        }
    }

    /// Returns the answer with the messages of the caller, which were not counted.
    const fn untouched() -> Self {
        Self {
            array: Messages::Original,
            tokens_before: 0,
            tokens_after: 0,
            replaced: false,
            session: None,
            unmanaged: None,
        }
    }
}

/// Stores the originals of results. Returns them in the same order.
async fn store_all(
    engine: Engine,
    project: ProjectId,
    policy: Arc<Policy>,
    offers: Vec<(OriginalHash, DecidePersist)>,
) -> Vec<Option<UnboundResult>> {
    let storing = stream::iter(offers).map(move |(hash, offer)| {
        let (engine, project, policy) = (engine.clone(), project.clone(), Arc::clone(&policy));
        async move { originals::store(&engine, &project, &policy, &hash, &offer).await }
    });
    // `buffered` keeps the order, by which the caller assigns each outcome to its result.
    storing.buffered(CONCURRENT_STORES).collect().await
}

fn count(counter: TokenCounter, messages: &[Message]) -> u64 {
    let sizes = messages.iter().map(|message| counter.message(message));
    sizes.map(|size| u64::from(size.tokens)).sum()
}
