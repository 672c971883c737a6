//! Level 1 for a result that was not appended yet. A caller requests a decision and receives the exact content to give
//! to the model. The decision is binding when the message is appended (module `persist`).

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::decision::{Decided, Decision, DecisionContext};
use super::reject::Rejection;
use crate::effect::{Effect, StoreFile};
use crate::event::{
    CallState, Event, PersistDecided, PersistDecision, RequestStamp, StoredResult, UnboundResult,
    Verdict, only_text,
};
use crate::hex;
use crate::ids::{CallKey, Revision};
use crate::levels::results::{
    ExemptReason, FileNamer, exemption, file_content, is_json, is_json_file, unbound_with_preview,
    verdict,
};
use crate::message::{Block, Digest, ToolResult};
use crate::policy::ToolResultRule;
use crate::session::{Call, MAX_PENDING_DECISIONS, Session};

/// A caller's reference to a call, by key, by id or by both.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallRef {
    /// The call key.
    pub key: Option<CallKey>,
    /// The caller's `tool_use_id`. Empty if `key` is given alone.
    pub id: Box<str>,
}

/// Decides whether a result stays inline or is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidePersist {
    /// The call.
    pub call: CallRef,
    /// The name of the tool. Empty selects the tool of the call.
    pub tool: Box<str>,
    /// The tool's result. Shared, because the decision may be computed more than once.
    pub result: Arc<ToolResult>,
    /// The digest of the result's content. Computed once, because results are large.
    pub content: Digest,
    /// A limit that overrides the policy's rule for the tool.
    pub rule: Option<ToolResultRule>,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

/// The answer to a caller about one result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistOutcome {
    /// The call. `None` if its message was not appended yet.
    pub call: Option<CallKey>,
    /// The decision.
    pub verdict: Verdict,
    /// The stored file and the replacement text. `None` if the result was not stored.
    pub stored: Option<UnboundResult>,
}

impl From<&PersistDecision> for PersistOutcome {
    fn from(decision: &PersistDecision) -> Self {
        Self {
            call: decision.call,
            verdict: decision.verdict,
            stored: decision.stored.clone(),
        }
    }
}

/// The state of the call that a decision names.
enum CallLookup<'s> {
    /// No decision was made yet.
    New(Option<CallKey>),
    /// A decision is pending.
    Decided(&'s PersistDecision),
    /// The result was appended already.
    Answered(CallKey, &'s Call),
}

impl CallRef {
    /// Finds the call. Returns `None` if no appended call has the id. If several calls share the id, the only open one
    /// is selected.
    ///
    /// # Errors
    ///
    /// Returns an error if key and id disagree, if neither is given, or if several calls match.
    fn resolve(&self, session: &Session) -> Result<Option<CallKey>, Rejection> {
        let calls = session.calls();
        let mapped = calls.find_by_service_id(&self.id);
        if let Some(key) = self.key {
            let call = calls.get(key).ok_or(Rejection::CallNotFound(key))?;
            let agrees = self.id.is_empty() || call.id == self.id || mapped == Some(key);
            let id = self.id.clone();
            return agrees
                .then_some(Some(key))
                .ok_or(Rejection::CallMismatch { call: key, id });
        }
        if self.id.is_empty() {
            return Err(Rejection::invalid(
                "call.tool_use_id",
                "is required, or call_key",
            ));
        }
        // The model may have received one of the service's own wire ids.
        if mapped.is_some() {
            return Ok(mapped);
        }
        let with_id = calls.with_id(&self.id).iter().copied();
        // Calls that left the view are no candidates, so they do not make an id ambiguous.
        let live = with_id.filter(|call| calls.state(*call) != CallState::Gone);
        let live: Vec<CallKey> = live.collect();
        let open = live.iter().copied();
        let open: Vec<CallKey> = open
            .filter(|call| calls.state(*call) == CallState::Open)
            .collect();
        match if open.is_empty() { live } else { open }.as_slice() {
            [] => Ok(None),
            [call] => Ok(Some(*call)),
            several => Err(Rejection::AmbiguousCall(several.to_vec())),
        }
    }
}

impl DecidePersist {
    /// Creates the command without rule, expected revision and stamp. The tool is that of the call.
    pub fn new(call: CallRef, result: ToolResult) -> Self {
        Self {
            call,
            tool: "".into(),
            content: Digest::of_result(&result.content),
            result: Arc::new(result),
            rule: None,
            expected_revision: None,
            request: None,
        }
    }

    pub(super) fn decide(
        self,
        session: &Session,
        context: DecisionContext<'_>,
    ) -> Result<Decided, Rejection> {
        self.check(context)?;
        let nothing = Ok(Decided::events(Vec::new()));
        let call = match self.find(session)? {
            CallLookup::New(call) => call,
            // A replacement text carries no new information about its result.
            _ if self.is_replacement(session) => return nothing,
            CallLookup::Decided(decision) => return self.check_same_content(decision).and(nothing),
            CallLookup::Answered(key, call) => {
                return self.check_result(session, key, call).and(nothing);
            }
        };
        let verdict = self.verdict(session, call);
        let is_decided = match verdict {
            Verdict::Replacement => false,
            // A failure to store is not recorded, so that a retry can succeed.
            Verdict::Persist => context.can_store,
            _ => true,
        };
        if !is_decided {
            return nothing;
        }
        let evicted = match (
            session.persist_decisions().slot_for_new(session.calls()),
            verdict,
        ) {
            (Ok(evicted), _) => evicted,
            // A reference that was returned must stay valid, so no binding decision is removed for a new one.
            (Err(_), Verdict::Persist) => {
                return Err(Rejection::TooManyPendingResults(MAX_PENDING_DECISIONS));
            }
            // Other decisions can be computed again from the result, so they need no record.
            (Err(_), _) => return nothing,
        };
        let decision = self.build_decision(session, context.names(session), call, verdict);
        let kept = decision.stored.as_ref();
        let file = kept.map(|kept| StoreFile::offered(kept, Arc::clone(&self.result)));
        Ok(Decided::Now(Decision {
            events: vec![Event::PersistDecided(PersistDecided {
                decision,
                evicted,
                request: self.request,
            })],
            effects: file.into_iter().map(Effect::StoreFile).collect(),
        }))
    }

    fn check(&self, context: DecisionContext<'_>) -> Result<(), Rejection> {
        let limits = context.limits;
        let parts = [
            ("call.tool_use_id", self.call.id.len(), limits.max_id_bytes),
            ("tool_name", self.tool.len(), limits.max_id_bytes),
            (
                "content",
                Block::result_bytes(&self.result),
                limits.max_message_bytes,
            ),
        ];
        match parts.into_iter().find(|(_, actual, limit)| actual > limit) {
            None => Ok(()),
            Some((field, actual, limit)) => Err(Rejection::TooLarge {
                field: field.into(),
                limit,
                actual,
            }),
        }
    }

    fn find<'s>(&self, session: &'s Session) -> Result<CallLookup<'s>, Rejection> {
        let decisions = session.persist_decisions();
        let Some(key) = self.call.resolve(session)? else {
            let unbound = decisions.find_unbound(&self.call.id);
            return Ok(unbound.map_or(CallLookup::New(None), CallLookup::Decided));
        };
        let answered = session.calls().get(key).filter(|c| c.result().is_some());
        Ok(match (answered, decisions.find_by_call(key)) {
            // The appended result takes precedence over a pending decision.
            (Some(call), _) => CallLookup::Answered(key, call),
            (None, Some(decision)) => CallLookup::Decided(decision),
            (None, None) => CallLookup::New(Some(key)),
        })
    }

    fn is_replacement(&self, session: &Session) -> bool {
        let is_known = |text: &str| session.is_replacement(text);
        exemption(&self.result, is_known) == Some(ExemptReason::Replacement)
    }

    fn tool<'t>(&'t self, session: &'t Session, call: Option<CallKey>) -> &'t str {
        let call = call.and_then(|call| session.calls().get(call));
        match call {
            Some(call) if self.tool.is_empty() => &call.name,
            _ => &self.tool,
        }
    }

    fn verdict(&self, session: &Session, call: Option<CallKey>) -> Verdict {
        let tool = self.tool(session, call);
        let policy = &session.policy().tool_results;
        let is_known = |text: &str| session.is_replacement(text);
        verdict(policy, tool, self.rule, &self.result, is_known)
    }

    fn build_decision(
        &self,
        session: &Session,
        names: FileNamer<'_>,
        call: Option<CallKey>,
        verdict: Verdict,
    ) -> PersistDecision {
        let key = session.persist_decisions().next_key();
        let policy = session.policy();
        let result = &self.result;
        let kept = (verdict == Verdict::Persist).then(|| match call {
            Some(call) => unbound_with_preview(names, policy, call, result),
            // Without a call, the file is named after the decision.
            None => unbound_with_preview(names, policy, key, result),
        });
        let id = call.and_then(|call| session.calls().get(call));
        PersistDecision {
            key,
            tool_use_id: id.map_or_else(|| self.call.id.clone(), |call| call.id.clone()),
            tool: self.tool(session, call).into(),
            call,
            content: self.content,
            verdict,
            stored: kept,
        }
    }

    /// Rejects a second decision for the same call with other content. A silent change would hide a caller's mistake.
    fn check_same_content(&self, decision: &PersistDecision) -> Result<(), Rejection> {
        if decision.content == self.content {
            return Ok(());
        }
        let [recorded, given] = [decision.content, self.content].map(|digest| digest.to_string());
        Err(result_conflict(decision.call, recorded, given))
    }

    fn check_result(&self, session: &Session, key: CallKey, call: &Call) -> Result<(), Rejection> {
        if let Some(stored) = find_stored(session, call) {
            // The transcript may lack the original, so the digest of its file is compared.
            let given: [u8; 32] = Sha256::digest(file_content(&self.result).as_bytes()).into();
            // A text can equal the JSON of a list of blocks, so equal bytes do not prove equal results.
            let is_of_a_kind = is_json(&self.result) == is_json_file(&stored.file);
            if given == stored.sha256 && is_of_a_kind {
                return Ok(());
            }
            return Err(result_conflict(Some(key), hex(&stored.sha256), hex(&given)));
        }
        let result = session.result(key)?;
        let recorded = Digest::of_result(&result.content);
        // A caller that received the line for an empty result appends that line.
        let line = is_empty(&self.result).then(|| Verdict::Empty.fixed_replacement());
        let is_line = line.is_some_and(|line| line == only_text(&result.content));
        if recorded == self.content || is_line || (is_empty(&self.result) && is_empty(result)) {
            return Ok(());
        }
        let [recorded, given] = [recorded, self.content].map(|digest| digest.to_string());
        Err(result_conflict(Some(key), recorded, given))
    }
}

/// Returns the answer for a command that produced no event: an earlier decision holds, or nothing was recorded.
pub fn current_outcome(
    session: &Session,
    command: &DecidePersist,
) -> Result<PersistOutcome, Rejection> {
    let found = command.find(session)?;
    let call = match &found {
        CallLookup::New(call) => *call,
        CallLookup::Decided(decision) => decision.call,
        CallLookup::Answered(key, _) => Some(*key),
    };
    if command.is_replacement(session) {
        return Ok(PersistOutcome {
            call,
            verdict: Verdict::Replacement,
            stored: None,
        });
    }
    let stored = match found {
        CallLookup::Decided(decision) => return Ok(decision.into()),
        CallLookup::Answered(_, call) => find_stored(session, call).map(UnboundResult::from),
        CallLookup::New(_) => None,
    };
    let verdict = match (command.verdict(session, call), &stored, found) {
        (_, Some(_), _) => Verdict::Persist,
        // The result was within its limit when it was appended, and it stays inline.
        (Verdict::Persist, None, CallLookup::Answered(..)) => Verdict::UnderLimit,
        // `decide` records every other outcome of this verdict, so a missing record means that the store failed.
        (Verdict::Persist, None, _) => Verdict::StoreFailed,
        (verdict, None, _) => verdict,
    };
    Ok(PersistOutcome {
        call,
        verdict,
        stored,
    })
}

/// Returns the stored form of a call's result.
fn find_stored<'s>(session: &'s Session, call: &Call) -> Option<&'s StoredResult> {
    let (message, block) = call.result()?;
    session.stored_results().at(message, block)
}

fn is_empty(result: &ToolResult) -> bool {
    exemption(result, |_| false) == Some(ExemptReason::Empty)
}

fn result_conflict(call: Option<CallKey>, stored: String, given: String) -> Rejection {
    Rejection::ResultConflict {
        call,
        stored: stored.into(),
        given: given.into(),
    }
}
