//! Counters of the maintenance tasks since process start, for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use palimpsest_store::blobs::RemovalCount;

use super::export::ExportError;
use super::leader_task::LeaderTask;

/// Shared counters. Reading them is cheap.
#[derive(Debug, Clone, Default)]
pub struct MaintenanceStats(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    aged_out: AtomicU64,
    over_quota: AtomicU64,
    spared: AtomicU64,
    exported: AtomicU64,
    export_failures: AtomicU64,
    incomplete_exports: AtomicU64,
    incomplete: AtomicU64,
    paused: AtomicBool,
    would_have_deleted: AtomicU64,
    swept_files: AtomicU64,
    swept_bytes: AtomicU64,
    passes: [AtomicU64; LeaderTask::ALL.len()],
    failures: AtomicU64,
    removing: AtomicU64,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        impl MaintenanceStats {
            $($(#[$doc])*
            pub fn $name(&self) -> u64 {
                self.0.$name.load(Ordering::Relaxed)
            })*
        }
    };
}

counts! {
    /// Sessions deleted because of their age.
    aged_out;
    /// Sessions deleted because their project exceeded a limit.
    over_quota;
    /// Expired sessions that were kept: on hold, in use or not exported.
    spared;
    /// Transcripts exported before a deletion.
    exported;
    /// Failed exports. The sessions were not deleted.
    export_failures;
    /// Exports that would have been incomplete. The sessions were not deleted.
    incomplete_exports;
    /// Sessions that the last pass kept because one of their stored results is lost.
    incomplete;
    /// Sessions that the last dry run would have deleted.
    would_have_deleted;
    /// Removed orphaned blobs.
    swept_files;
    /// Bytes of removed orphaned blobs.
    swept_bytes;
    /// Failed passes and failed deletions.
    failures;
    /// Deleted sessions with remaining data.
    removing;
}

impl MaintenanceStats {
    /// Returns the number of passes that this process started.
    pub fn passes(&self, task: LeaderTask) -> u64 {
        self.0.passes[task as usize].load(Ordering::Relaxed)
    }

    pub(super) fn record_pass(&self, task: LeaderTask) {
        self.0.passes[task as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_deleted(&self, by_age: bool) {
        let counter = if by_age {
            &self.0.aged_out
        } else {
            &self.0.over_quota
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn record_skipped(&self) {
        self.0.spared.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true while retention by age is paused because of an implausible clock.
    pub fn is_paused(&self) -> bool {
        self.0.paused.load(Ordering::Relaxed)
    }

    /// Sets the pause of retention by age. Returns the previous value.
    pub(super) fn pause(&self, paused: bool) -> bool {
        self.0.paused.swap(paused, Ordering::Relaxed)
    }

    pub(super) fn would_delete(&self, sessions: u64) {
        self.0.would_have_deleted.store(sessions, Ordering::Relaxed);
    }

    pub(super) fn incomplete_sessions(&self, sessions: usize) {
        let sessions = u64::try_from(sessions).unwrap_or(u64::MAX);
        self.0.incomplete.store(sessions, Ordering::Relaxed);
    }

    /// Resets the values that only the leader of retention reports.
    pub(super) fn reset_retention_gauges(&self) {
        self.pause(false);
        self.would_delete(0);
        self.incomplete_sessions(0);
    }

    pub(super) fn export(&self, outcome: &Result<(), ExportError>) {
        let counter = match outcome {
            Ok(()) => &self.0.exported,
            Err(ExportError::Incomplete { .. }) => &self.0.incomplete_exports,
            Err(_) => &self.0.export_failures,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn swept(&self, swept: RemovalCount) {
        self.0.swept_files.fetch_add(swept.files, Ordering::Relaxed);
        self.0.swept_bytes.fetch_add(swept.bytes, Ordering::Relaxed);
    }

    pub(super) fn count_failed(&self) {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_removing(&self, sessions: usize) {
        let sessions = u64::try_from(sessions).unwrap_or(u64::MAX);
        self.0.removing.store(sessions, Ordering::Relaxed);
    }
}
