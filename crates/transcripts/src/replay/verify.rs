//! Is every view on the way valid, does it continue the one before, and has a caller that follows
//! `keep_messages` exactly the whole of it?

use std::collections::BTreeMap;
use std::sync::Arc;

use palimpsest_core::policy::Policy;
use palimpsest_core::tokens::Calibration;
use palimpsest_core::validate::Violation;
use palimpsest_core::view::{Provider, RepairKind};

use super::driver::{Driver, drive};
use super::recorded_session::RecordedSession;
use super::setup::{PrepareFrequency, Setup};
use crate::import::ImportDefect;

/// What came of a transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Messages that were taken in.
    pub messages: usize,
    /// Those of them that said again what an earlier one said.
    pub reemissions: usize,
    /// Those that were there already, under the same id.
    pub known: usize,
    /// Views that were prepared.
    pub prepares: usize,
    /// Those of them that could be sent.
    pub sendable: usize,
    /// View-changing events.
    pub view_changes: usize,
    /// Views that could be sent and should not have been: the line, and what the provider would say.
    pub invalid: Vec<(usize, Violation)>,
    /// Lines after which the view did not continue the one before, though nothing had changed it.
    pub prefix_breaks: Vec<usize>,
    /// Lines after which a caller's array was not the whole view.
    pub delta_breaks: Vec<usize>,
    /// What was repaired, and how often.
    pub repairs: BTreeMap<&'static str, usize>,
    /// The largest view, in bytes of JSON.
    pub largest_view_bytes: usize,
    /// Messages that could not be decoded.
    pub defects: Vec<ImportDefect>,
}

impl VerifyReport {
    /// Whether everything held.
    pub fn holds(&self) -> bool {
        self.invalid.is_empty() && self.prefix_breaks.is_empty() && self.delta_breaks.is_empty()
    }
}

/// Replays one session for one provider.
pub fn verify(tape: &RecordedSession, provider: Provider, pace: PrepareFrequency) -> VerifyReport {
    let setup = Setup {
        provider,
        policy: Arc::new(Policy::default()),
        pace,
        levels: false,
        calibration: Calibration::default(),
    };
    let mut report = VerifyReport::default();
    let driver = drive(tape, setup, |driver: &Driver, look| {
        let line = driver.line;
        report.prepares += 1;
        report.sendable += usize::from(look.sendable);
        if !look.whole {
            report.delta_breaks.push(line);
        }
        if !look.continues {
            report.prefix_breaks.push(line);
        }
        let found = look.violations.into_iter();
        report.invalid.extend(found.map(|found| (line, found)));
        for repair in look.repairs {
            *report.repairs.entry(name(repair)).or_default() += 1;
        }
        report.largest_view_bytes = report.largest_view_bytes.max(look.bytes);
    });
    let tally = driver.tally;
    VerifyReport {
        messages: tally.messages,
        reemissions: tally.reemissions,
        known: tally.known,
        view_changes: tally.changes.values().sum(),
        defects: tally.defects,
        ..report
    }
}

/// A repair's name in reports.
pub fn name(kind: RepairKind) -> &'static str {
    match kind {
        RepairKind::BlankText => "blank text left out",
        RepairKind::DuplicateResult(_) => "duplicate result left out",
        RepairKind::OrphanResult => "orphan result as text",
        RepairKind::LateResult(_) => "late result as text",
        RepairKind::LateResultHidden(_) => "late result left out",
        RepairKind::InterruptedCall(_) => "call interrupted",
        RepairKind::Media(_) => "picture or document as marker",
        RepairKind::TrailingThinking => "trailing thinking left out",
        RepairKind::UnsignedThinking => "unsigned thinking left out",
        RepairKind::WrongRole => "block in the wrong role left out",
        RepairKind::Opening => "opening added",
        RepairKind::MappedCallId(_) => "call id mapped",
    }
}
