//! Gives the array of a request to its session, and renders the view for the model.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use palimpsest_core::array::{ChainHead, ReturnedSummary, is_unchanged};
use palimpsest_core::command::CreateSession;
use palimpsest_core::hex;
use palimpsest_core::ids::{ProjectId, SessionId, SessionKey};
use palimpsest_core::json::RawJson;
use palimpsest_core::levels::clearing::cleared_results;
use palimpsest_core::message::{Block, Role};
use palimpsest_core::policy::{Overlay, Policy, WindowHint};
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::view::{Provider, TargetOverride};
use palimpsest_engine::call::Deadline;
use palimpsest_engine::compaction::CompactionError;
use palimpsest_engine::sessions::{DefaultPolicies, MissingSession};
use palimpsest_engine::turn::{
    self, BeforeCommit, BodyFields, FirstStore, JsonParts, OmittedCompaction, Overflow, PrefixPart,
    PromptPrefix, ReadArray, SyncInput, Turn, TurnCall, TurnOutcome, UnnamedArray,
};
use palimpsest_engine::{Engine, EngineError};
use tokio::sync::oneshot;

use super::fields::RequestFields;
use super::taken_out::TakenOut;
use super::tools::{self, AddedTools};
use super::{EngineContext, identity, markers, provider_of, rewrite, short_input};
use crate::context::{
    ClearedResults, ManagedRequest, ModelBody, ModelRequest, Pause, Purpose, ResponsePlace,
    Unmanaged,
};
use crate::reading::ResponseApi;
use crate::thread::{MAX_INLINE_BYTES, on_fitting_thread};

/// The policy settings of new sessions of the gateway. The view has no ids of turns, because these cost tokens without a
/// level having acted.
const SETTINGS: &str = "\
    snip.tag_turns = false
    snip.nudge = false
    snip.wrap_interjections = false
";
/// The further settings if the gateway offers the tools that read stored content. The prefix keeps their names apart from
/// those of the agent's tools.
const WITH_TOOLS: &str = "\
    model_tools.name_prefix = \"palimpsest_\"
    model_tools.enabled_tools = [\"read_tool_result\", \"read_transcript\", \"search_transcript\"]
";
/// The further settings if it does not: no view refers to a stored result that the model could not read.
const WITHOUT_TOOLS: &str = "\
    tool_results.enabled = false
    model_tools.enabled_tools = []
";

/// The policies of new sessions, by the policy of their project and whether the gateway offers tools.
#[derive(Debug, Default)]
pub(super) struct SessionPolicies(Mutex<HashMap<(usize, bool), Arc<Policy>>>);

impl SessionPolicies {
    /// Returns the policy of a new session in the project.
    fn of(
        &self,
        policies: &DefaultPolicies,
        project: &ProjectId,
        offers_tools: bool,
    ) -> Arc<Policy> {
        let inherited = policies.of(project);
        // The policies of projects live as long as the engine, so their addresses identify them.
        let id = Arc::as_ptr(inherited).addr();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = known.entry((id, offers_tools)).or_insert_with(|| {
            let further = if offers_tools {
                WITH_TOOLS
            } else {
                WITHOUT_TOOLS
            };
            let settings = Overlay::from_toml(&[SETTINGS, further].concat());
            let policy = settings.and_then(|settings| policies.with(project, &settings));
            policy.unwrap_or_else(|error| {
                tracing::warn!(
                    %project,
                    %error,
                    "the policy of the project contradicts the settings for sessions of the gateway; new sessions get \
                     only the policy of the project"
                );
                Arc::clone(inherited)
            })
        });
        Arc::clone(policy)
    }
}

/// The view of a session for a request.
struct RenderedView {
    place: ResponsePlace,
    messages: Messages,
    /// The tools that the body offers in addition. `None` without such tools.
    tools: Option<AddedTools>,
    /// The summary of a compaction that the request waited for.
    summary: Option<String>,
    cleared: ClearedResults,
}

/// The messages of a view.
enum Messages {
    Unchanged,
    View(JsonParts),
    Unsendable,
}

impl EngineContext {
    /// Takes the conversation of a request and returns the body for the model.
    ///
    /// If the body is the agent's own, `early` gets the request when the session has decided about it, before the commit.
    pub(super) async fn run(
        &self,
        mut request: ModelRequest,
        early: oneshot::Sender<ManagedRequest>,
    ) -> Result<ManagedRequest, Unmanaged> {
        let named = request.session.clone();
        let named = named.or_else(|| identity::of_body(&request.body));
        let side_requests = named.as_ref().is_some_and(|named| !named.is_own);
        let key = named.map(|named| SessionKey::new(request.project.clone(), named.id));
        let provider = provider_of(request.api);
        let known_as = match &key {
            Some(key) => key.clone(),
            None => place_of_unnamed(&request)?,
        };
        let mut array = read(&self.engine, &known_as, provider, &request.body).await;
        let is_body = array.as_ref().is_ok_and(|array| array.body.is_some());
        if !is_body && let Some(body) = short_input::with_array(&request.body.whole()) {
            // A view replaces the array of this body. Without a view, the agent's own bytes leave.
            request.body = body.into();
            array = read(&self.engine, &known_as, provider, &request.body).await;
        }
        let mut array = array?;
        let body = array.body.clone().ok_or(Unmanaged::Unreadable)?;
        let fields = RequestFields(&body.options);
        if fields.is_stateful() {
            return Err(Unmanaged::Stateful);
        }
        let taken = if self.serves_edits && request.api == ResponseApi::Messages {
            TakenOut::of(&self.engine, &mut request.body, &mut array, &body)
        } else {
            TakenOut::default()
        };
        let system_messages = provider == Provider::Anthropic && has_system_messages(&array);
        let system = array.system_json();
        let mut call = call(provider, &body, system.as_ref(), request.purpose);
        // The client of such a request has the beta of the provider, and so has the request with the view.
        call.target.system_messages = Some(system_messages);
        call.target = call.target.with_models(&self.engine.model_table);
        taken.add_to(&mut call);
        // An array with summaries of the service never leaves as it came, so nothing can be sent before its view is
        // rendered.
        if request.purpose == Purpose::Response && !taken.has_summaries {
            let unchanged = ManagedRequest {
                body: taken.unchanged(&request.body),
                model: body.model(),
                options: fields.traced(&body),
                place: ResponsePlace {
                    // A placeholder. `before_commit` replaces it by the place behind this array.
                    session: known_as.clone(),
                    after: ChainHead::default(),
                },
                offered: None,
                edits: taken.report(None, ClearedResults::default()),
            };
            call.before_commit = Some(before_commit(early, unchanged));
        }
        let compacts = matches!(request.purpose, Purpose::Compaction { .. });
        // A compaction is a request of the conversation itself, also without tools.
        let side_requests = side_requests && !compacts;
        let input = self.input(&array, side_requests, taken.returned.clone());
        let agents = body.tools.as_ref().filter(|_| fields.permits_tools());
        let offer = agents.filter(|_| self.tools.is_some());
        if compacts {
            return self.compact(&request, (key, offer), (call, &input)).await;
        }
        let finish = |session: &Session, outcome: &TurnOutcome| {
            let view = self.render(session, &call, (&input, &taken), offer)?;
            Ok(RenderedView {
                summary: outcome.summary().map(str::to_owned),
                ..view
            })
        };
        let (_, turn) = self
            .sync(&request, (key, offer), (&call, &input), finish)
            .await?;
        let omitted = turn.omitted;
        let mut view = turn.answer;
        let (sent, offered) = match (
            // A placeholder: nothing reads the messages of `view` below.
            std::mem::replace(&mut view.messages, Messages::Unsendable),
            array.place,
        ) {
            // The provider rejected the last view, and no level can shorten it.
            _ if omitted == Some(OmittedCompaction::NothingLeft) => (ModelBody::Unsendable, None),
            (Messages::Unchanged, _) => (taken.unchanged(&request.body), None),
            (Messages::View(messages), Some(place)) => {
                let tools = view.tools.take();
                let rewritten = rewrite::with_messages(&request.body, place, &messages, tools);
                (ModelBody::View(rewritten.0), rewritten.1)
            }
            (Messages::View(_), None) | (Messages::Unsendable, _) => (ModelBody::Unsendable, None),
        };
        let mut edits = match sent {
            ModelBody::View(_) => taken.report(view.summary, view.cleared),
            ModelBody::Original | ModelBody::Unsendable | ModelBody::Compacted(_) => None,
        };
        if let Some(edits) = edits.as_mut().filter(|edits| edits.summary.is_some()) {
            let pauses = request.purpose == Purpose::Response && taken.pauses();
            edits.pause = pauses.then(|| Pause {
                id: format!("msg_{}", self.engine.ids.message_id().get().simple()),
                streams: fields.streams(),
            });
        }
        Ok(ManagedRequest {
            body: sent,
            model: body.model(),
            options: fields.traced(&body),
            place: view.place,
            offered,
            edits,
        })
    }

    /// Runs the turn in the named session, or in the one that the content of the array finds. Returns this session.
    pub(super) async fn sync<T>(
        &self,
        request: &ModelRequest,
        (key, offer): (Option<SessionKey>, Option<&RawJson>),
        (call, input): (&TurnCall, &SyncInput),
        finish: impl Fn(&Session, &TurnOutcome) -> Result<T, ContentNotLoaded>,
    ) -> Result<(SessionKey, Turn<T>), Unmanaged> {
        let policies = self.engine.sessions.policies();
        let create = CreateSession {
            policy: self
                .policies
                .of(policies, &request.project, offer.is_some()),
            implicit: true,
            ..CreateSession::default()
        };
        let syncing = async {
            if let Some(key) = key {
                let missing = MissingSession::Create(create);
                return turn::sync(&self.engine, &key, &missing, call, input, finish).await;
            }
            let unnamed = UnnamedArray {
                project: request.project.clone(),
                scope: request.scope,
                create,
            };
            turn::sync_found(&self.engine, &unnamed, call, input, finish).await
        };
        // A compaction that waits for a model continues in the background before the request times out.
        let deadline = Deadline::after(self.prepare_timeout.mul_f32(0.75));
        let done = Box::pin(deadline.scope(syncing)).await;
        done.map_err(|error| reason(&error))
    }

    /// Renders the view if a level has changed it. `agents` are the tools of the agent, if further ones can be added.
    fn render(
        &self,
        session: &Session,
        call: &TurnCall,
        (input, taken): (&SyncInput, &TakenOut),
        agents: Option<&RawJson>,
    ) -> Result<RenderedView, ContentNotLoaded> {
        let mut view = RenderedView {
            place: place(session),
            messages: Messages::Unchanged,
            tools: None,
            summary: None,
            cleared: ClearedResults::default(),
        };
        // Summaries in the agent's array are not sent, so the array is not either.
        if is_unchanged(session) && !taken.has_summaries {
            return Ok(view);
        }
        let (target, _) = call.target(session);
        // The state of a dry run is never committed.
        let rendered = self.views.render(session, &target, !call.dry_run)?;
        view.messages = match rendered {
            None => Messages::Unsendable,
            Some(rendered) => {
                let markers = markers::of_elements(&input.elements);
                let marked = markers::place(&markers, session, &target, &rendered)?;
                Messages::View(rendered.with(&marked))
            }
        };
        // An array that only lacks summaries is no changed view. New tools would break the provider's cache of its
        // prefix.
        if !is_unchanged(session) {
            view.tools = tools::added(session.policy(), target.provider, agents);
        }
        let (count, tokens) = cleared_results(session);
        view.cleared = ClearedResults { count, tokens };
        Ok(view)
    }

    fn input(
        &self,
        array: &ReadArray,
        side_requests: bool,
        returned: Option<ReturnedSummary>,
    ) -> SyncInput {
        let tools = array.body.as_ref().and_then(|body| body.tools.as_ref());
        SyncInput {
            elements: Arc::clone(&array.elements),
            returned,
            has_tools: tools.is_some_and(|tools| !is_empty_array(tools)),
            side_requests,
            // A request to a model cannot state that its array begins with a summary of the agent.
            caller_compacted: false,
            first_store: FirstStore::PaysAtOnce,
            // The gateway records each response when it ends, in `record`.
            last_response: Vec::new(),
            ids: Arc::clone(&self.engine.ids),
            mark: self.engine.ids.message_id(),
        }
    }
}

/// Returns the name under which the reader knows the last array without a name of these credentials.
fn place_of_unnamed(request: &ModelRequest) -> Result<SessionKey, Unmanaged> {
    let name = format!("unnamed.{}", hex(request.scope.as_bytes()));
    let name = SessionId::new(&name).map_err(|_| Unmanaged::Defect)?;
    Ok(SessionKey::new(request.project.clone(), name))
}

/// Returns the observer that hands out a request before the commit, if no level has changed its conversation.
fn before_commit(
    early: oneshot::Sender<ManagedRequest>,
    unchanged: ManagedRequest,
) -> BeforeCommit {
    let waiting = Mutex::new(Some((early, unchanged)));
    BeforeCommit::new(move |session| {
        if !is_unchanged(session) {
            return;
        }
        // If another writer commits first, the observer runs again. The request was handed out by its first run.
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((early, unchanged)) = waiting.take() {
            // Without a receiver the time of the request is over.
            let _ = early.send(ManagedRequest {
                place: place(session),
                ..unchanged
            });
        }
    })
}

/// Reads the array of a body.
async fn read(
    engine: &Engine,
    key: &SessionKey,
    provider: Provider,
    body: &JsonParts,
) -> Result<ReadArray, Unmanaged> {
    // The comparison is as fast as a copy of the body, and takes less time than a switch of threads.
    let array = engine.arrays.compare(key, provider, body.clone());
    let now = engine.sessions.clock().now();
    if array.unread_bytes() <= MAX_INLINE_BYTES {
        let read = engine
            .arrays
            .read_rest(key, &array, now, &mut engine.next_id());
        if let Some(read) = read {
            return Ok(read);
        }
    }
    let reading = {
        let (engine, key) = (engine.clone(), key.clone());
        move || {
            let mut next_id = engine.next_id();
            let rest = engine.arrays.read_rest(&key, &array, now, &mut next_id);
            rest.map_or_else(
                || engine.arrays.read_whole(&key, &array, now, &mut next_id),
                Ok,
            )
        }
    };
    let read = on_fitting_thread(body.len() > MAX_INLINE_BYTES, reading).await?;
    read.map_err(|error| {
        tracing::debug!(session = %key, path = error.path, "cannot read the body of a request");
        Unmanaged::Unreadable
    })
}

/// Returns the options of the turn.
fn call(
    provider: Provider,
    body: &BodyFields,
    system: Option<&RawJson>,
    purpose: Purpose,
) -> TurnCall {
    let tools = |json: &RawJson| {
        PrefixPart::Json(Block::Opaque {
            kind: "tools".into(),
            json: json.clone(),
        })
    };
    let of_system = |json: &RawJson| PrefixPart::Json(Block::text(json.as_str()));
    // A body without tools has none. `None` for the prefix would mean that its size is unknown.
    let part = |part: Option<PrefixPart>| part.unwrap_or(PrefixPart::Tokens(0));
    let overflow = match purpose {
        Purpose::ShorterPrompt { gap_tokens } => Some(Overflow { gap_tokens }),
        Purpose::Response | Purpose::Count | Purpose::Compaction { .. } => None,
    };
    TurnCall {
        target: TargetOverride {
            provider: Some(provider),
            model: body.model().map(String::into_boxed_str),
            thinking: Some(provider == Provider::Anthropic && body.has_thinking()),
            system_messages: None,
            window: Some(WindowHint {
                max_output_tokens: body.max_output_tokens(),
                ..WindowHint::default()
            }),
            known: None,
            format: None,
        },
        prefix: Some(PromptPrefix::new(
            part(system.map(of_system)),
            part(body.tools.as_ref().map(tools)),
        )),
        overflow,
        dry_run: purpose == Purpose::Count,
        ..TurnCall::default()
    }
}

/// Returns true if the array contains messages of the operator.
fn has_system_messages(array: &ReadArray) -> bool {
    let inside = array.elements.iter().skip(array.outside);
    inside
        .map(|element| element.message.role)
        .any(Role::is_system)
}

/// Returns the place of the response to the current array.
pub(super) fn place(session: &Session) -> ResponsePlace {
    ResponsePlace {
        session: session.key().clone(),
        after: session.array().head(),
    }
}

fn is_empty_array(json: &RawJson) -> bool {
    let inner = json.as_str().strip_prefix('[');
    let inner = inner.and_then(|inner| inner.strip_suffix(']'));
    inner.is_some_and(|inner| inner.trim().is_empty())
}

/// Returns the reason for a request that the engine did not prepare.
pub(super) fn reason(error: &CompactionError) -> Unmanaged {
    let reason = match error {
        CompactionError::Engine(error) => match error {
            EngineError::Store(_) | EngineError::BlobsUnavailable => Unmanaged::Store,
            EngineError::DeadlineExceeded | EngineError::Contended => Unmanaged::Timeout,
            EngineError::Internal { .. } | EngineError::Unreadable { .. } => Unmanaged::Defect,
            _ => Unmanaged::Rejected,
        },
        _ => Unmanaged::Rejected,
    };
    tracing::warn!(%error, reason = reason.name(), "forwarded a request whose session did not take it");
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_the_gateway_are_valid() {
        let policies = DefaultPolicies::default();
        let project = ProjectId::new("p").unwrap();
        let own = SessionPolicies::default();
        let policy = own.of(&policies, &project, false);
        assert!(!policy.snip.tag_turns && policy.model_tools.enabled_tools.is_empty());
        assert!(!policy.tool_results.enabled);
        assert!(Arc::ptr_eq(&policy, &own.of(&policies, &project, false)));
        let policy = own.of(&policies, &project, true);
        assert!(!policy.snip.tag_turns && policy.tool_results.enabled);
        assert_eq!(policy.model_tools.enabled_tools.len(), 3);
    }
}
