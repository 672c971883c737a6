//! Sessions on their way out.

use palimpsest_core::ids::{Epoch, Revision, SessionKey};
use palimpsest_core::session::{About, CallState, Session, Visibility, WaitsFor};
use palimpsest_proto::context::v1;

use super::append_result::tool_call;
use super::policy::policy;
use super::scalars::export_timestamp;
use super::target::export_target;
use super::tokens::budget;

/// How many open calls a session shows.
const MAX_OPEN_CALLS: usize = 100;

/// What a list knows of a session without loading it.
#[derive(Debug, Clone, Copy)]
pub struct SessionListEntry<'a> {
    /// Its name.
    pub key: &'a SessionKey,
    /// What it is about.
    pub about: &'a About,
    /// How many events its log holds.
    pub revision: Revision,
    /// How many view-changing events there were.
    pub epoch: Epoch,
    /// What it holds.
    pub counts: v1::SessionCounts,
    /// Whether it waits for somebody.
    pub state: v1::SessionState,
    /// The model of the last response.
    pub last_model: &'a str,
}

/// A session in a list.
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
        ..v1::Session::default()
    }
}

/// A session with everything that the contract shows of one.
pub fn session(session: &Session) -> v1::Session {
    let last = session.last_served();
    let has_messages = !session.transcript().is_empty();
    let open = session.calls().iter();
    let open = open.filter(|(_, call)| call.state == CallState::Open);
    v1::Session {
        policy: Some(policy(session.policy())),
        budget: has_messages.then(|| budget(session, &last.target, last.window)),
        last_target: session
            .sealed()
            .last()
            .map(|_| export_target(&last.target, last.window)),
        open_calls: open
            .take(MAX_OPEN_CALLS)
            .map(|(key, _)| tool_call(session, key))
            .collect(),
        ..listed_session(SessionListEntry {
            key: session.key(),
            about: session.about(),
            revision: session.revision(),
            epoch: session.sealed().epoch(),
            counts: counts(session),
            state: if is_compacting(session) {
                v1::SessionState::Compacting
            } else {
                session_state(session.about())
            },
            last_model: &session.about().last_model,
        })
    }
}

/// Whether a compaction runs. What is written ahead of its time changes nothing yet.
fn is_compacting(session: &Session) -> bool {
    let running = session.compactions().running.as_ref();
    running.is_some_and(|running| !running.ahead)
}

/// What a session holds. User turns, bytes and reported tokens are those of what it still has in
/// memory: the messages that a rewind took away are not among them.
fn counts(session: &Session) -> v1::SessionCounts {
    let transcript = session.transcript();
    let visible = transcript.entries();
    let visible = visible.filter(|(_, entry)| entry.standing == Visibility::Visible);
    v1::SessionCounts {
        messages: transcript.len() as u64,
        tool_calls: session.calls().iter().len() as u64,
        transcript_bytes: transcript.content_bytes() as u64,
        compactions: u32::try_from(session.compactions().boundaries.len()).unwrap_or(u32::MAX),
        user_turns: session.turns().starts().len() as u64,
        persisted_results: session.stored().len() as u64,
        reported_tokens: session.about().reported_tokens,
        visible_messages: u32::try_from(visible.count()).unwrap_or(u32::MAX),
    }
}

/// Whether a session waits for somebody.
pub const fn session_state(about: &About) -> v1::SessionState {
    match about.waits_for {
        WaitsFor::Anything => v1::SessionState::Empty,
        WaitsFor::User => v1::SessionState::Idle,
        WaitsFor::Tools => v1::SessionState::AwaitingResults,
        WaitsFor::Model => v1::SessionState::AwaitingModel,
    }
}
