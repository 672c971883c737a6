//! The parts of a request that its session serves in place of the provider, and that the body for upstream does not contain.

use palimpsest_core::array::ReturnedSummary;
use palimpsest_core::json::RawJson;
use palimpsest_engine::Engine;
use palimpsest_engine::turn::{BodyFields, JsonParts, ReadArray, TurnCall};

use super::edits::ServedEdits;
use super::returned::without_summaries;
use crate::context::{ClearedResults, EditReport, ModelBody};

/// The parts of a request that its session serves.
#[derive(Debug, Default)]
pub(super) struct TakenOut {
    edits: Option<ServedEdits>,
    /// True if the agent sent summaries of the service back, so that its array cannot be sent.
    pub(super) has_summaries: bool,
    /// The last of them.
    pub(super) returned: Option<ReturnedSummary>,
    unused_betas: Vec<&'static str>,
}

impl TakenOut {
    /// Takes the edits that the session serves out of a body, and the summaries of the service out of its array.
    pub(super) fn of(
        engine: &Engine,
        body: &mut JsonParts,
        array: &mut ReadArray,
        fields: &BodyFields,
    ) -> Self {
        let mut taken = Self::default();
        // Without the position of the array, the edits cannot be cut out of the body.
        let Some(place) = array.place else {
            return taken;
        };
        if let Some(edits) = ServedEdits::of(&fields.options)
            && let Some((without, place)) = edits.take_out(body, place)
        {
            *body = without;
            array.place = Some(place);
            taken.edits = Some(edits);
        }
        let now = engine.sessions.clock().now();
        if let Some(without) = without_summaries(&array.elements, now, || engine.ids.message_id()) {
            array.elements = without.elements;
            taken.returned = without.last;
            taken.has_summaries = true;
        }
        // A request that stays as it came keeps all values of `anthropic-beta` too.
        if !taken.is_empty() {
            let tools = fields.tools.as_ref().map(RawJson::as_str);
            taken.unused_betas = ServedEdits::unused_betas(taken.edits.as_ref(), tools);
        }
        taken
    }

    fn is_empty(&self) -> bool {
        self.edits.is_none() && !self.has_summaries
    }

    /// Adds the edits to a turn.
    pub(super) fn add_to(&self, call: &mut TurnCall) {
        let Some(edits) = &self.edits else {
            return;
        };
        call.clear.clone_from(&edits.clear);
        if let Some(compact) = &edits.compact {
            call.compact_at = Some(compact.at_tokens);
            call.instructions.clone_from(&compact.instructions);
        }
    }

    /// Returns the body of a request whose conversation no level has changed.
    pub(super) fn unchanged(&self, body: &JsonParts) -> ModelBody {
        match &self.edits {
            // The conversation is the agent's own, but the body lacks the served edits.
            Some(_) => ModelBody::View(body.clone()),
            None => ModelBody::Original,
        }
    }

    /// Returns true if the response ends after a summary.
    pub(super) fn pauses(&self) -> bool {
        let compact = self.edits.as_ref().and_then(|edits| edits.compact.as_ref());
        compact.is_some_and(|compact| compact.pauses)
    }

    /// Returns the report about the edits. `None` if nothing was taken out. `summary` is that of a compaction within the
    /// request.
    pub(super) fn report(
        &self,
        summary: Option<String>,
        cleared: ClearedResults,
    ) -> Option<EditReport> {
        if self.is_empty() {
            return None;
        }
        let edits = self.edits.as_ref();
        let compacts = edits.is_some_and(|edits| edits.compact.is_some());
        let clears = edits.is_some_and(|edits| edits.clear.is_some());
        Some(EditReport {
            kinds: edits.into_iter().flat_map(ServedEdits::kinds).collect(),
            // The policy can compact too. Its summary is no block for an agent that did not ask for one.
            summary: summary.filter(|_| compacts),
            pause: None,
            cleared: if clears {
                cleared
            } else {
                ClearedResults::default()
            },
            unused_betas: self.unused_betas.clone(),
        })
    }
}
