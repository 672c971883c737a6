//! Updates the working state: entries by key, within the size limit, and pins of visible content.

use std::collections::HashSet;

use super::decision::{Decided, find_visible};
use super::reject::Rejection;
use crate::event::{Event, RequestStamp, WorkingStateUpdated};
use crate::ids::Revision;
use crate::session::Session;
use crate::working::{PinTarget, WorkingState, WorkingStateChange};

/// Changes the working state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpdateWorkingState {
    /// The entries to set and to remove.
    pub change: WorkingStateChange,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

impl UpdateWorkingState {
    pub(super) fn decide(mut self, session: &Session) -> Result<Decided, Rejection> {
        check_keys(&self.change.set)?;
        check_pins(session, &self.change.set)?;
        let set = &mut self.change.set;
        // Only messages from here on can contain a newer version of these files.
        for file in set.files.iter_mut().chain(&mut set.instruction_files) {
            file.since = session.transcript().next();
        }
        let state = &session.working().state;
        let change = self.change.effective_on(state);
        if !change.is_empty() {
            let mut after = WorkingState::clone(state);
            after.change(&change);
            let limit = session.policy().limits.max_working_state_bytes;
            // A change that reduces the size is accepted even above the limit, so that a lowered limit can be
            // reached in steps.
            let bytes = after.bytes();
            if bytes > limit && bytes > session.working().bytes() {
                return Err(Rejection::WorkingStateTooLarge { bytes, limit });
            }
        }
        let event = WorkingStateUpdated {
            change,
            request: self.request,
        };
        // With a stamp, an event is written even without a change, so that a retry is recognized.
        let is_news = event != WorkingStateUpdated::default();
        let event = is_news.then_some(Event::WorkingStateUpdated(event));
        Ok(Decided::events(event.into_iter().collect()))
    }
}

/// Rejects a list in which two entries share a key.
fn check_keys(set: &WorkingState) -> Result<(), Rejection> {
    fn check_unique_keys<'k>(
        list: &str,
        keys: impl Iterator<Item = &'k str>,
    ) -> Result<(), Rejection> {
        // Entries are addressed by key, so a repeated key would be ambiguous.
        let mut seen = HashSet::new();
        for (index, key) in keys.enumerate() {
            if !seen.insert(key) {
                return Err(Rejection::invalid(
                    format!("set.{list}[{index}]"),
                    "has the key of an earlier entry: give each its own",
                ));
            }
        }
        Ok(())
    }
    check_unique_keys("files", set.files.iter().map(|file| &*file.path))?;
    let instructions = set.instruction_files.iter().map(|file| &*file.path);
    check_unique_keys("instruction_files", instructions)?;
    check_unique_keys("skills", set.skills.iter().map(|skill| &*skill.name))?;
    check_unique_keys("tasks", set.tasks.iter().map(|task| &*task.id))?;
    check_unique_keys(
        "tools",
        set.tools.iter().map(|capability| &*capability.name),
    )?;
    check_unique_keys(
        "agents",
        set.agents.iter().map(|capability| &*capability.name),
    )?;
    let servers = set.mcp_servers.iter().map(|capability| &*capability.name);
    check_unique_keys("mcp_servers", servers)?;
    check_unique_keys("notes", set.notes.iter().map(|note| &*note.id))?;
    check_unique_keys("pins", set.pins.iter().map(|pin| &*pin.id))
}

/// Rejects pins of messages and blocks that are not in the view. A pin cannot restore content that left the view.
fn check_pins(session: &Session, set: &WorkingState) -> Result<(), Rejection> {
    let known = &session.working().state.pins;
    for (index, pin) in set.pins.iter().enumerate() {
        // A caller may resend its pins. A pin that was accepted before is not checked again.
        if known.contains(pin) {
            continue;
        }
        match &pin.target {
            PinTarget::Message(id) => {
                find_visible(session, *id)?;
            }
            PinTarget::Block(id, block) => {
                let message = session
                    .transcript()
                    .require_content(find_visible(session, *id)?)?;
                if usize::from(*block) >= message.blocks.len() {
                    return Err(Rejection::invalid(
                        format!("set.pins[{index}].block.block_index"),
                        format!(
                            "is not a block of the message: it has {}",
                            message.blocks.len()
                        ),
                    ));
                }
            }
            PinTarget::Text(text) if text.trim().is_empty() => {
                return Err(Rejection::invalid(
                    format!("set.pins[{index}].text"),
                    "must not be blank",
                ));
            }
            PinTarget::Text(_) => {}
        }
    }
    Ok(())
}
