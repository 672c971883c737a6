//! Serves the view: lays out and repairs its new pieces, and seals them.

use super::decision::{Decided, Decision, DecisionContext};
use super::persist::persist_on_serve;
use super::reject::Rejection;
use crate::event::{Event, ViewServed};
use crate::policy::WindowHint;
use crate::session::Session;
use crate::tokens::PrefixTokens;
use crate::view::{
    Layout, Piece, PieceForm, Speaker, Target, TargetOverride, extend_layout, shows_turn_ids,
};

/// Serves the view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServeView {
    /// The target of the view.
    pub target: Target,
    /// The model's context window, as far as the caller or the table of models states it.
    pub window: WindowHint,
    /// Tokens of the prompt prefix, as stated by the caller. `None` keeps the last value.
    pub prefix: Option<PrefixTokens>,
    /// True to report open calls as interrupted.
    pub interrupt_open_calls: bool,
    /// True if the model has the tool to snip turns, and needs their ids. `None` if the call names no tools. New inputs
    /// then have ids if the last input has one.
    pub offers_snip: Option<bool>,
}

impl ServeView {
    /// Serves the view for a target. Parts that the call does not state are those of the last serving.
    pub fn for_target(session: &Session, call: &TargetOverride) -> Self {
        let (target, window) = session.target_of(call);
        Self {
            target,
            window,
            ..Self::default()
        }
    }

    pub(super) fn decide(
        self,
        session: &Session,
        context: DecisionContext<'_>,
    ) -> Result<Decided, Rejection> {
        let mut layout = extend_layout(session, self.interrupt_open_calls, self.offers_snip)?;
        let last = session.last_served();
        let overhead_tokens = self
            .prefix
            .map_or(last.overhead_tokens, PrefixTokens::total);
        // A call with nothing pending writes no event, also for another model. Another window or prompt prefix is
        // recorded even then, because the levels measure the view against them.
        let is_same_room = self.window == last.window && overhead_tokens == last.overhead_tokens;
        if layout.pieces.is_empty() && (is_same_room || session.sealed().pieces().is_empty()) {
            return Ok(Decided::events(Vec::new()));
        }
        add_snip_reminder(session, &mut layout, self.offers_snip);
        let (persisted, effects) = persist_on_serve(session, &mut layout.pieces, context)?;
        // The served view has the previews of the results that are stored now.
        let sizes = persisted
            .iter()
            .flat_map(|event| event.sizes.iter().copied());
        let ledger = session.ledger_with(sizes);
        let mut events: Vec<Event> = persisted.map(Event::ResultsPersisted).into_iter().collect();
        let rewritten_tokens = session.rewritten_tokens(&self.target, context.now);
        events.push(Event::ViewServed(ViewServed {
            pieces: layout.pieces,
            target: self.target,
            window: self.window,
            overhead_tokens,
            tokens: ledger.count(overhead_tokens).tokens,
            parts: session.parts_of(&ledger, self.prefix),
            saved_tokens: session.saved_tokens(),
            rewritten_tokens,
        }));
        Ok(Decided::Now(Decision { events, effects }))
    }
}

/// Adds a reminder to snip at the end of the user message, if the policy enables reminders. A reminder is due when
/// enough messages or tokens arrived since the last snip or reminder.
fn add_snip_reminder(session: &Session, layout: &mut Layout, offers_snip: Option<bool>) {
    let (policy, since) = (&session.policy().snip, session.since_snip());
    let is_due = since.messages >= policy.nudge_after_messages
        || since.tokens >= u64::from(policy.nudge_after_tokens);
    let is_turn_of_model =
        layout.tail.last == Some(Speaker::User) && layout.tail.open_calls.is_empty();
    // A reminder before missing results would be followed by them, and providers require results before text.
    if !(policy.nudge && is_due && is_turn_of_model && !layout.defers_message) {
        return;
    }
    // The last condition, because it may read the whole view.
    if !shows_turn_ids(session, offers_snip) {
        return;
    }
    if let Some(last) = layout.pieces.iter().rfind(|piece| piece.form.is_shown()) {
        layout.pieces.push(Piece {
            message: last.message,
            block: 0,
            form: PieceForm::Nudge,
        });
    }
}
