//! Verification of all views of a replay: each is valid, continues the previous one, and equals the
//! array of a caller that follows `keep_messages`.

use std::collections::BTreeMap;
use std::sync::Arc;

use palimpsest_core::policy::{Policy, WindowHint};
use palimpsest_core::tokens::Calibration;
use palimpsest_core::validate::Violation;
use palimpsest_core::view::{Provider, RepairKind};

use super::driver::{Driver, replay};
use super::options::{PrepareFrequency, ReplayOptions};
use super::recorded_session::RecordedSession;
use crate::import::ImportDefect;

/// The results of verifying a transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// The number of appended messages.
    pub messages: usize,
    /// The number of appended messages that repeat an earlier one.
    pub reemissions: usize,
    /// The number of messages that were stored already under the same id.
    pub duplicates: usize,
    /// The number of prepared views.
    pub prepares: usize,
    /// The number of sendable views.
    pub sendable: usize,
    /// The number of view-changing events.
    pub view_changes: usize,
    /// Sendable views that are invalid: the line, and the violation that a provider would report.
    pub invalid: Vec<(usize, Violation)>,
    /// Lines after which the view did not continue the previous one without a view-changing event.
    pub prefix_breaks: Vec<usize>,
    /// Lines after which a caller's array differed from the complete view.
    pub delta_breaks: Vec<usize>,
    /// The number of repairs by kind.
    pub repairs: BTreeMap<&'static str, usize>,
    /// The size of the largest view, in bytes of JSON.
    pub largest_view_bytes: usize,
    /// Messages that could not be decoded.
    pub defects: Vec<ImportDefect>,
}

impl VerifyReport {
    /// Returns true if all guarantees held.
    pub fn is_ok(&self) -> bool {
        self.invalid.is_empty() && self.prefix_breaks.is_empty() && self.delta_breaks.is_empty()
    }
}

/// Replays one session for one provider and verifies all views.
pub fn verify(tape: &RecordedSession, provider: Provider, pace: PrepareFrequency) -> VerifyReport {
    let setup = ReplayOptions {
        provider,
        policy: Arc::new(Policy::default()),
        window: WindowHint::default(),
        frequency: pace,
        levels: false,
        calibration: Calibration::default(),
    };
    let mut report = VerifyReport::default();
    let driver = replay(tape, setup, |driver: &Driver, look| {
        let line = driver.line;
        report.prepares += 1;
        report.sendable += usize::from(look.sendable);
        if !look.matches_full {
            report.delta_breaks.push(line);
        }
        if !look.extends_previous {
            report.prefix_breaks.push(line);
        }
        // The line of a violation leads to the message after which it occurred.
        let found = look.violations.into_iter();
        report.invalid.extend(found.map(|found| (line, found)));
        for repair in look.repairs {
            *report.repairs.entry(name(repair)).or_default() += 1;
        }
        report.largest_view_bytes = report.largest_view_bytes.max(look.bytes);
    });
    let tally = driver.counters;
    VerifyReport {
        messages: tally.messages,
        reemissions: tally.reemissions,
        duplicates: tally.duplicates,
        view_changes: tally.changes.values().sum(),
        defects: tally.defects,
        ..report
    }
}

/// Returns the name of a repair in reports.
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
        RepairKind::UnsupportedBlock => "block of another format as text or left out",
        RepairKind::RepeatedItem => "repeated item left out",
        RepairKind::Opening => "opening added",
        RepairKind::MappedCallId(_) => "call id mapped",
    }
}
