//! Facts of a transcript that the model may need again: can it see them, can it find them, or are they
//! lost?
//!
//! What a user has taken back is no probe, and neither is what a repair left out: that never was in a
//! view. The same fact said twice is one probe with two homes.

use std::collections::{BTreeMap, HashMap};

use palimpsest_core::ids::{Epoch, Ordinal};
use palimpsest_core::message::Message;
use palimpsest_core::session::{Session, Visibility};
use palimpsest_core::view::{DropReason, Piece, PieceForm};

use super::driver::Driver;
use super::facts::{Needle, facts};
use super::kinds::ProbeKind;
use super::recover::{FactLocation, Reach, SimulatedModel};

/// What became of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProbeCounts {
    /// They stand in the view.
    pub visible: usize,
    /// They do not, and something that does leads to them in at most two calls of tools.
    pub recoverable: usize,
    /// Neither.
    pub lost: usize,
}

impl ProbeCounts {
    /// Counts others in.
    pub fn add(&mut self, other: Self) {
        self.visible += other.visible;
        self.recoverable += other.recoverable;
        self.lost += other.lost;
    }
}

/// A probe that was lost. It does not say what the probe was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostProbe {
    /// The line that brought it.
    pub line: usize,
    /// What it is.
    pub kind: ProbeKind,
    /// The block within its message.
    pub block: u16,
    /// The form that its block has in the view; none when it left.
    pub form: Option<PieceForm>,
}

/// All probes of a session, and what became of each.
#[derive(Default)]
pub(super) struct Probes {
    all: Vec<Probe>,
    by_text: HashMap<(ProbeKind, Box<str>), usize>,
    /// How many messages were looked at.
    taken: usize,
    forms: Forms,
    /// Those that were lost in the view that was sent last.
    lost: BTreeMap<usize, LostProbe>,
}

/// A fact, and where it was said.
struct Probe {
    kind: ProbeKind,
    needle: Needle,
    homes: Vec<(Ordinal, u16)>,
    /// None as long as it is in no view.
    reach: Option<Reach>,
}

/// The forms that blocks have in the view, as far as its pieces were looked at.
#[derive(Default)]
struct Forms {
    of: HashMap<(Ordinal, u16), PieceForm>,
    pieces: usize,
    epoch: Epoch,
}

impl Probes {
    /// Takes in what came since, and looks for everything whose place may have changed.
    pub(super) fn follow(&mut self, driver: &Driver) {
        for (at, (_, message)) in driver.log.iter().enumerate().skip(self.taken) {
            let ordinal = Ordinal::new(palimpsest_core::view::count(at));
            let entry = driver.session.transcript().get(ordinal);
            if entry.is_some_and(|entry| entry.standing == Visibility::Visible) {
                self.take(ordinal, message);
            }
        }
        self.taken = driver.log.len();
        let moved = self.forms.follow(&driver.session);
        self.look(driver, moved);
    }

    /// The view is sent: what is lost in it is lost to the model.
    pub(super) fn sent(&mut self, driver: &Driver) {
        self.lost = self.lost(driver);
    }

    /// Looks once more for every probe, in the view as it is at the end.
    pub(super) fn finish(
        mut self,
        driver: &Driver,
    ) -> (BTreeMap<ProbeKind, ProbeCounts>, Vec<LostProbe>) {
        self.look(driver, true);
        let mut retained: BTreeMap<ProbeKind, ProbeCounts> = BTreeMap::new();
        let mut lost = self.lost(driver);
        lost.append(&mut self.lost);
        for (at, probe) in self.all.iter().enumerate() {
            let of_kind = retained.entry(probe.kind).or_default();
            match probe.reach {
                _ if lost.contains_key(&at) => of_kind.lost += 1,
                Some(Reach::Visible) => of_kind.visible += 1,
                Some(Reach::Recoverable) => of_kind.recoverable += 1,
                Some(Reach::Lost) | None => {}
            }
        }
        (retained, lost.into_values().collect())
    }

    fn take(&mut self, message: Ordinal, content: &Message) {
        for (block, kind, needle) in facts(content) {
            let next = self.all.len();
            let text = (kind, needle.text.clone());
            let at = *self.by_text.entry(text).or_insert(next);
            if at == next {
                self.all.push(Probe {
                    kind,
                    needle,
                    homes: Vec::new(),
                    reach: None,
                });
            }
            self.all[at].homes.push((message, block));
            self.all[at].reach = None;
        }
    }

    /// Looks for the probes. Between two changes of the view what was found stays where it is.
    fn look(&mut self, driver: &Driver, all: bool) {
        let reader = SimulatedModel::new(driver);
        for probe in &mut self.all {
            if all || probe.reach.is_none() {
                probe.reach = probe.look(&reader, driver, &self.forms);
            }
        }
    }

    fn lost(&self, driver: &Driver) -> BTreeMap<usize, LostProbe> {
        let is_lost = |(_, probe): &(usize, &Probe)| probe.reach == Some(Reach::Lost);
        let lost = self.all.iter().enumerate().filter(is_lost);
        lost.filter_map(|(at, probe)| Some((at, probe.as_lost(driver, &self.forms)?)))
            .collect()
    }
}

impl Probe {
    fn look(&self, reader: &SimulatedModel<'_>, driver: &Driver, forms: &Forms) -> Option<Reach> {
        let homes: Vec<_> = self
            .homes
            .iter()
            .rev()
            .filter_map(|home| forms.home(*home, &driver.session))
            .collect();
        if homes.is_empty() {
            return None;
        }
        let is_shown = |home: &FactLocation| reader.shows(home, &self.needle);
        Some(
            if homes.iter().any(is_shown) || reader.shows_anywhere(&self.needle) {
                Reach::Visible
            } else if homes.iter().any(|home| reader.leads_to(home, &self.needle)) {
                Reach::Recoverable
            } else {
                Reach::Lost
            },
        )
    }

    fn as_lost(&self, driver: &Driver, forms: &Forms) -> Option<LostProbe> {
        let (message, block) = *self.homes.last()?;
        Some(LostProbe {
            line: driver.line_of(message),
            kind: self.kind,
            block,
            form: forms.of.get(&(message, block)).copied(),
        })
    }
}

impl Forms {
    /// Learns the forms of new pieces; says whether those of old ones may have changed.
    fn follow(&mut self, session: &Session) -> bool {
        let sealed = session.sealed();
        let moved = sealed.epoch() != self.epoch;
        if moved {
            *self = Self {
                epoch: sealed.epoch(),
                ..Self::default()
            };
        }
        let new = sealed.pieces()[self.pieces..].iter();
        let of_blocks = new.filter(|piece| piece.form.is_of_a_block());
        self.of
            .extend(of_blocks.map(|piece| ((piece.message, piece.block), piece.form)));
        self.pieces = sealed.pieces().len();
        moved
    }

    /// None for what was never in a view, or that the user has taken back.
    fn home(&self, (message, block): (Ordinal, u16), session: &Session) -> Option<FactLocation> {
        let entry = session.transcript().get(message)?;
        match (entry.standing, self.of.get(&(message, block))) {
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
