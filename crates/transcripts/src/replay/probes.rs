//! Probes: facts of a transcript that the model may need again. Each is visible, recoverable or
//! lost.
//!
//! Rewound facts are no probes. Neither are facts that a repair omitted, because they were never in
//! a view. A repeated fact is one probe with several locations.

use std::collections::{BTreeMap, HashMap};

use palimpsest_core::ids::{Epoch, Ordinal};
use palimpsest_core::message::Message;
use palimpsest_core::session::{Session, Visibility};
use palimpsest_core::view::{DropReason, Piece, PieceForm};

use super::driver::Driver;
use super::needles::{Needle, facts};
use super::probe_kind::ProbeKind;
use super::reachability::{FactLocation, Reachability, SimulatedModel};

/// The outcome of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProbeCounts {
    /// The number of facts that the view contains.
    pub visible: usize,
    /// The number of facts that a handle in the view leads to with at most two tool calls.
    pub recoverable: usize,
    /// The number of facts that are neither visible nor recoverable.
    pub lost: usize,
}

impl ProbeCounts {
    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        self.visible += other.visible;
        self.recoverable += other.recoverable;
        self.lost += other.lost;
    }
}

/// A lost probe. It does not contain the fact itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostProbe {
    /// The line of the message.
    pub line: usize,
    /// The kind of the fact.
    pub kind: ProbeKind,
    /// The index of the block within its message.
    pub block: u16,
    /// The form of the block in the view. `None` if the message left the view.
    pub form: Option<PieceForm>,
}

/// All probes of a session and their outcomes.
#[derive(Default)]
pub(super) struct Probes {
    all: Vec<Probe>,
    by_text: HashMap<(ProbeKind, Box<str>), usize>,
    /// The number of messages that were processed.
    recorded_through: usize,
    forms: FormIndex,
    /// The probes that were lost in the last view that was sent.
    lost: BTreeMap<usize, LostProbe>,
}

/// A fact and its locations.
struct Probe {
    kind: ProbeKind,
    needle: Needle,
    locations: Vec<(Ordinal, u16)>,
    /// The access of the model. `None` while no view contains the fact.
    reachability: Option<Reachability>,
}

/// The forms of blocks in the view, for the pieces processed so far.
#[derive(Default)]
struct FormIndex {
    of: HashMap<(Ordinal, u16), PieceForm>,
    pieces: usize,
    epoch: Epoch,
}

impl Probes {
    /// Processes new messages, and checks all probes whose location may have changed.
    pub(super) fn update_locations(&mut self, driver: &Driver) {
        for (at, (_, message)) in driver.log.iter().enumerate().skip(self.recorded_through) {
            let ordinal = Ordinal::new(palimpsest_core::view::count(at));
            let entry = driver.session.transcript().get(ordinal);
            if entry.is_some_and(|entry| entry.visibility == Visibility::Visible) {
                self.record(ordinal, message);
            }
        }
        self.recorded_through = driver.log.len();
        let moved = self.forms.find_locations(&driver.session);
        self.check(driver, moved);
    }

    /// Records that the view was sent. A fact that is lost in a sent view is lost to the model.
    pub(super) fn view_sent(&mut self, driver: &Driver) {
        self.lost = self.lost(driver);
    }

    /// Checks all probes in the final view and returns the results.
    pub(super) fn finish(
        mut self,
        driver: &Driver,
    ) -> (BTreeMap<ProbeKind, ProbeCounts>, Vec<LostProbe>) {
        self.check(driver, true);
        let mut retained: BTreeMap<ProbeKind, ProbeCounts> = BTreeMap::new();
        let mut lost = self.lost(driver);
        // Later views did not reach the model, so the losses in the last sent one count too.
        lost.append(&mut self.lost);
        for (at, probe) in self.all.iter().enumerate() {
            let of_kind = retained.entry(probe.kind).or_default();
            match probe.reachability {
                _ if lost.contains_key(&at) => of_kind.lost += 1,
                Some(Reachability::Visible) => of_kind.visible += 1,
                Some(Reachability::Recoverable) => of_kind.recoverable += 1,
                Some(Reachability::Lost) | None => {}
            }
        }
        (retained, lost.into_values().collect())
    }

    fn record(&mut self, message: Ordinal, content: &Message) {
        for (block, kind, needle) in facts(content) {
            let next = self.all.len();
            let text = (kind, needle.text.clone());
            let at = *self.by_text.entry(text).or_insert(next);
            if at == next {
                self.all.push(Probe {
                    kind,
                    needle,
                    locations: Vec::new(),
                    reachability: None,
                });
            }
            self.all[at].locations.push((message, block));
            // A new location can make a lost fact visible.
            self.all[at].reachability = None;
        }
    }

    /// Checks the probes. Between view-changing events, known results remain valid, so only new
    /// probes are checked.
    fn check(&mut self, driver: &Driver, all: bool) {
        let reader = SimulatedModel::new(driver);
        for probe in &mut self.all {
            if all || probe.reachability.is_none() {
                probe.reachability = probe.reachability(&reader, driver, &self.forms);
            }
        }
    }

    fn lost(&self, driver: &Driver) -> BTreeMap<usize, LostProbe> {
        let is_lost = |(_, probe): &(usize, &Probe)| probe.reachability == Some(Reachability::Lost);
        let lost = self.all.iter().enumerate().filter(is_lost);
        lost.filter_map(|(at, probe)| Some((at, probe.to_lost_probe(driver, &self.forms)?)))
            .collect()
    }
}

impl Probe {
    fn reachability(
        &self,
        reader: &SimulatedModel<'_>,
        driver: &Driver,
        forms: &FormIndex,
    ) -> Option<Reachability> {
        let homes: Vec<_> = self
            .locations
            .iter()
            .rev()
            .filter_map(|home| forms.location(*home, &driver.session))
            .collect();
        if homes.is_empty() {
            return None;
        }
        let is_shown = |home: &FactLocation| reader.shows(home, &self.needle);
        Some(
            if homes.iter().any(is_shown) || reader.shows_anywhere(&self.needle) {
                Reachability::Visible
            } else if homes.iter().any(|home| reader.leads_to(home, &self.needle)) {
                Reachability::Recoverable
            } else {
                Reachability::Lost
            },
        )
    }

    fn to_lost_probe(&self, driver: &Driver, forms: &FormIndex) -> Option<LostProbe> {
        let (message, block) = *self.locations.last()?;
        Some(LostProbe {
            line: driver.line_of(message),
            kind: self.kind,
            block,
            form: forms.of.get(&(message, block)).copied(),
        })
    }
}

impl FormIndex {
    /// Processes new pieces. Returns true if the forms of earlier pieces may have changed.
    fn find_locations(&mut self, session: &Session) -> bool {
        let sealed = session.sealed();
        let moved = sealed.epoch() != self.epoch;
        if moved {
            *self = Self {
                epoch: sealed.epoch(),
                ..Self::default()
            };
        }
        // Within an epoch the list only grows, so the index is valid.
        let new = sealed.pieces()[self.pieces..].iter();
        let of_blocks = new.filter(|piece| piece.form.represents_block());
        self.of
            .extend(of_blocks.map(|piece| ((piece.message, piece.block), piece.form)));
        self.pieces = sealed.pieces().len();
        moved
    }

    /// Returns the location of a block. Returns `None` for a block that was never in a view or that
    /// was rewound.
    fn location(
        &self,
        (message, block): (Ordinal, u16),
        session: &Session,
    ) -> Option<FactLocation> {
        let entry = session.transcript().get(message)?;
        match (entry.visibility, self.of.get(&(message, block))) {
            // A visible message without a form has not been in a view yet.
            (Visibility::Rewound, _) | (Visibility::Visible, None) => None,
            (_, Some(PieceForm::Dropped(reason))) if *reason != DropReason::Snipped => None,
            (_, None) => Some(FactLocation::Left(message)),
            (_, Some(form)) => Some(FactLocation::Piece(Piece {
                message,
                block,
                form: *form,
            })),
        }
    }
}
