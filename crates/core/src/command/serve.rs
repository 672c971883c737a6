//! The view is served: what is new in it is placed, repaired where it must be, and sealed.

use super::persist::at_serving;
use super::{Context, Decision, Rejection};
use crate::event::{Event, ViewServed};
use crate::policy::WindowHint;
use crate::session::Session;
use crate::view::{Target, lay_out};

/// Serve the view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Serve {
    /// For whom.
    pub target: Target,
    /// What the caller says about its model.
    pub window: WindowHint,
    /// What the caller says its system prompt and its tools have, when it says so.
    pub overhead_tokens: Option<u64>,
    /// Report calls that are still open as interrupted.
    pub interrupt_open_calls: bool,
}

impl Serve {
    pub(super) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        let mut layout = lay_out(session, self.interrupt_open_calls)?;
        // A repeat writes nothing.
        if layout.pieces.is_empty() {
            return Ok(Decision::Events(Vec::new()));
        }
        let overhead_tokens = self
            .overhead_tokens
            .unwrap_or(session.last_served().overhead_tokens);
        let persisted = at_serving(session, &mut layout.pieces, context)?;
        let mut events: Vec<Event> = persisted.map(Event::ResultsPersisted).into_iter().collect();
        events.push(Event::ViewServed(ViewServed {
            pieces: layout.pieces,
            target: self.target,
            window: self.window,
            overhead_tokens,
            tokens: session.ledger().count(overhead_tokens).tokens,
        }));
        Ok(Decision::Events(events))
    }
}
