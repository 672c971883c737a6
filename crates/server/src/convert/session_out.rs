//! Sessions from the domain to the API.

use palimpsest_core::event::ForkPoint;
use palimpsest_core::ids::{Epoch, Revision, SessionKey};
use palimpsest_core::session::{
    AwaitedParty, CallState, Session, SessionInfo, SessionTotals, Visibility,
};
use palimpsest_proto::context::v1;

use super::append_result::tool_call;
use super::policy::policy;
use super::saturate_tokens;
use super::scalars::export_timestamp;
use super::target::export_target;
use super::tokens::budget;

/// The maximum number of open calls in a session.
const MAX_OPEN_CALLS: usize = 100;
/// The unit of costs in the domain: the price of an uncached token is 1,000.
const TOKEN_PRICE: u64 = 1_000;

/// The data of a session that is available without loading it.
#[derive(Debug, Clone, Copy)]
pub struct SessionListEntry<'a> {
    /// The name of the session.
    pub key: &'a SessionKey,
    /// The metadata of the session.
    pub about: &'a SessionInfo,
    /// The number of events in the log.
    pub revision: Revision,
    /// The number of view-changing events.
    pub epoch: Epoch,
    /// The counts of the session's content.
    pub counts: v1::SessionCounts,
    /// The state of the conversation.
    pub state: v1::SessionState,
    /// The model of the last response.
    pub last_model: &'a str,
}

/// Converts a session of a list.
pub fn listed_session(listed: SessionListEntry<'_>) -> v1::Session {
    let about = listed.about;
    v1::Session {
        name: listed.key.to_string(),
        title: about.title.to_string(),
        project_path: about.project_path.to_string(),
        branch: about.branch.to_string(),
        hold: about.hold.to_string(),
        parent_session: about
            .parent
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        forked_from: about.forked_from.as_ref().map(fork_origin),
        attributes: about
            .attributes
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        first_prompt: about.first_prompt.to_string(),
        create_time: Some(export_timestamp(about.created)),
        update_time: Some(export_timestamp(about.modified)),
        revision: listed.revision.get(),
        epoch: listed.epoch.get().into(),
        counts: Some(listed.counts),
        state: listed.state.into(),
        last_model: listed.last_model.to_owned(),
        totals: Some(totals(&about.totals)),
        ..v1::Session::default()
    }
}

/// Converts totals over model requests.
pub fn totals(totals: &SessionTotals) -> v1::SessionTotals {
    v1::SessionTotals {
        requests: totals.requests,
        sent_tokens: totals.sent_tokens,
        saved_tokens: totals.saved_tokens,
        rewritten_tokens: totals.rewritten_tokens,
        cache_read_tokens: totals.cache_read_tokens,
        cache_write_tokens: totals.cache_write_tokens,
        uncached_tokens: totals.uncached_tokens,
        compactions: totals.compactions,
        view_tokens: saturate_tokens(totals.view_tokens),
        window_tokens: saturate_tokens(totals.window_tokens),
        compact_at_tokens: saturate_tokens(totals.compact_at_tokens),
        cost_tokens: totals.cost / TOKEN_PRICE,
        unmanaged_cost_tokens: totals.unmanaged_cost / TOKEN_PRICE,
    }
}

/// Converts the origin of a fork.
pub(super) fn fork_origin(point: &ForkPoint) -> v1::ForkOrigin {
    v1::ForkOrigin {
        session: point.session.to_string(),
        message_id: point.message.to_string(),
    }
}

/// Converts a session with all fields of the contract.
pub fn session(session: &Session) -> v1::Session {
    let last = session.last_served();
    let has_messages = !session.transcript().is_empty();
    let open = session.calls().iter();
    let open = open.filter(|(_, call)| call.state == CallState::Open);
    v1::Session {
        policy: Some(policy(session.policy())),
        // A session without messages has no budget to report.
        budget: has_messages.then(|| budget(session, &last.target, last.window)),
        // Before the first serving, `last` contains only defaults.
        last_target: session
            .sealed()
            .last()
            .map(|_| export_target(&last.target, last.window)),
        // A reply must stay small even if a caller leaves thousands of calls open.
        open_calls: open
            .take(MAX_OPEN_CALLS)
            .map(|(key, _)| tool_call(session, key))
            .collect(),
        ..listed_session(SessionListEntry {
            key: session.key(),
            about: session.info(),
            revision: session.revision(),
            epoch: session.sealed().epoch(),
            counts: counts(session),
            state: if is_compacting(session) {
                v1::SessionState::Compacting
            } else {
                session_state(session.info())
            },
            last_model: &session.info().last_model,
        })
    }
}

/// Returns true if a compaction is running. A prepared summary does not count, because it changes no view yet.
fn is_compacting(session: &Session) -> bool {
    let running = session.compactions().running.as_ref();
    running.is_some_and(|running| !running.ahead)
}

/// Returns the counts of a session. Messages that a rewind removed are not part of the user turns and reported
/// tokens.
fn counts(session: &Session) -> v1::SessionCounts {
    let transcript = session.transcript();
    let visible = transcript.entries();
    let visible = visible.filter(|(_, entry)| entry.visibility == Visibility::Visible);
    v1::SessionCounts {
        messages: transcript.len() as u64,
        tool_calls: session.calls().iter().len() as u64,
        compactions: u32::try_from(session.compactions().boundaries.len()).unwrap_or(u32::MAX),
        user_turns: session.turns().starts().len() as u64,
        persisted_results: session.stored_results().len() as u64,
        reported_tokens: session.info().reported_tokens,
        visible_messages: u32::try_from(visible.count()).unwrap_or(u32::MAX),
    }
}

/// Returns the state of the conversation: the party whose next step is expected.
pub const fn session_state(about: &SessionInfo) -> v1::SessionState {
    waits_for(about.awaits)
}

convert_enum! {
    fn waits_for(AwaitedParty) -> v1::SessionState {
        Anything = Empty, User = Idle, Tools = AwaitingResults, Model = AwaitingModel,
    }
}
