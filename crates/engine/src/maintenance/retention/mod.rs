//! Retention passes: selection of expired sessions, exceptions, export and deletion.

use std::collections::HashSet;
use std::sync::PoisonError;

use super::config::{RetentionConfig, RetentionLimits, day_of};
use crate::EngineError;
use crate::call::AUDIT;
use crate::sessions::Sessions;
use palimpsest_core::command::Rejection;
use palimpsest_core::ids::{ProjectId, SessionKey, Timestamp};
use palimpsest_core::session::Session;
use palimpsest_store::blobs::{BlobError, Blobs};
use palimpsest_store::{MAX_LIST, crash_point, error_chain};

use super::clock_check::{ClockCheck, ClockJump};
use super::duty_cycle::DutyCycle;
use super::export;
use super::export::ExportError;
use super::families::{RetentionRow, SessionFamily};
use super::selection::{DeletionSelector, PassLimits, RetentionReason};
use super::tasks::Maintenance;

/// The reason for a failed pass.
#[derive(Debug, thiserror::Error)]
pub enum RetentionError {
    /// The sessions cannot be read.
    #[error(transparent)]
    Sessions(#[from] EngineError),
    /// The blobs of the sessions cannot be listed.
    #[error(transparent)]
    Blobs(#[from] BlobError),
}

/// The state of one pass over all sessions.
#[derive(Debug, Default)]
struct RetentionPass {
    /// The current time, or `None` while the clock is not trusted.
    now: Option<Timestamp>,
    /// The sessions that are kept because one of their stored results is lost.
    incomplete: HashSet<SessionKey>,
    /// The number of sessions that a dry run would have deleted.
    would_delete: u64,
}

impl Maintenance {
    /// Runs one pass over all sessions, project by project.
    ///
    /// Memory is bounded by the rows of a single project, a few hundred bytes each.
    pub(super) async fn retention_pass(&self) -> Result<(), RetentionError> {
        let mut pass = RetentionPass {
            now: self.trusted_time().await?,
            ..RetentionPass::default()
        };
        let mut after = None;
        while let Some(project) = next_project(&self.engine.sessions, after.as_ref()).await? {
            // Projects without limits are skipped before their rows are read.
            let keep = self.retention.of(&project);
            if keep.is_limited() {
                self.project_pass(&project, keep, &mut pass).await?;
            }
            after = Some(project);
        }
        if self.retention.dry_run {
            tracing::info!(
                sessions = pass.would_delete,
                "retention.dry_run is set: retention would delete these sessions"
            );
        }
        self.stats.would_delete(pass.would_delete);
        self.stats.incomplete_sessions(pass.incomplete.len());
        *self
            .incomplete
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = pass.incomplete;
        Ok(())
    }

    /// Returns the current time, or `None` if the clock is implausible. Nothing is deleted by age then.
    async fn trusted_time(&self) -> Result<Option<Timestamp>, RetentionError> {
        let clock = self.engine.sessions.clock();
        let limit = self.retention.max_clock_jump;
        if !self.retention.has_age_limit() || !limit.is_limited() {
            return Ok(Some(clock.now()));
        }
        // The check learns from the log once per process, because later events were written with the checked clock.
        let mut check = self.clock_check.lock().await;
        let doubt = self.engine.blobs.clock_doubt().await?;
        if check.needs_reference() {
            check.doubt(doubt);
            let newest = newest(&self.engine.sessions, &check, self.duty_cycle()).await?;
            check.set_reference(newest);
        }
        let now = clock.now();
        let trusted = self.retention.clock_trusted_until;
        let judged = check.judge((now, clock.monotonic()), limit.as_millis(), trusted);
        let was_paused = self.stats.pause(judged.is_err());
        match judged {
            Ok(()) => {
                if was_paused {
                    tracing::info!("the clock is trusted again; retention by age resumes");
                }
                if doubt.is_some() {
                    self.engine.blobs.trust_clock().await?;
                }
                Ok(Some(now))
            }
            Err(jump) => {
                if !was_paused {
                    log_clock_jump(jump);
                }
                // A restart must not accept events of this clock as evidence.
                if doubt.is_none() {
                    self.engine.blobs.doubt_clock(jump.expected).await?;
                }
                Ok(None)
            }
        }
    }

    async fn project_pass(
        &self,
        project: &ProjectId,
        keep: RetentionLimits,
        pass: &mut RetentionPass,
    ) -> Result<(), RetentionError> {
        let rows = rows(
            &self.engine.sessions,
            &self.engine.blobs,
            (project, keep),
            self.duty_cycle(),
        )
        .await?;
        let limits = PassLimits {
            limits: keep,
            now: pass.now,
            max_percent: self.retention.max_percent_per_pass,
        };
        let alone = self.retention.subagents_separately;
        // Families come in the order of their age, so the selection can stop at the first one that is not due.
        let (mut selection, families) = DeletionSelector::begin(rows, alone, limits);
        for family in families {
            let Some(over) = selection.next(&family) else {
                break;
            };
            let retiring = self.retire(family, over, pass);
            let (members, bytes) = self.duty_cycle().work(retiring).await;
            selection.record_deleted(members, bytes, over);
        }
        if selection.is_cut() {
            tracing::info!(
                %project,
                "retention reached retention.max_percent_per_pass; the next pass continues"
            );
        }
        Ok(())
    }

    /// Exports and deletes a family, unless an exception keeps it. Returns the number and the bytes of the deleted
    /// sessions.
    async fn retire(
        &self,
        family: SessionFamily,
        over: RetentionReason,
        pass: &mut RetentionPass,
    ) -> (u64, u64) {
        let is_in_use = |row: &RetentionRow| self.engine.sessions.is_in_use(&row.key);
        // A family is kept or deleted as a whole, so one exception protects all members.
        if family.is_held() || family.members.iter().any(is_in_use) {
            self.stats.record_skipped();
            return (0, 0);
        }
        if self.retention.dry_run {
            let members = family.members.len() as u64;
            pass.would_delete += members;
            return (members, family.bytes());
        }
        // All members are exported before any is deleted, so that a failed export keeps the family complete.
        for row in &family.members {
            if !self.export(row, pass).await {
                self.stats.record_skipped();
                return (0, 0);
            }
        }
        // Exports can take long, so all members are compared again. A changed member keeps the family complete.
        for row in &family.members {
            match self.is_unchanged(row).await {
                Ok(true) => {}
                Ok(false) => {
                    self.stats.record_skipped();
                    return (0, 0);
                }
                Err(error) => {
                    self.log_failed_deletion(row, &error);
                    return (0, 0);
                }
            }
        }
        self.delete_family(&family, over).await
    }

    /// Deletes a family, each parent before its subagents. Returns the number and the bytes of the deleted sessions.
    ///
    /// A session that cannot be deleted keeps its subagents. If its parent is deleted, it and its subagents are a family
    /// of their own in the next pass.
    async fn delete_family(&self, family: &SessionFamily, over: RetentionReason) -> (u64, u64) {
        let (mut members, mut bytes) = (0, 0);
        let mut kept = HashSet::new();
        for row in &family.members {
            if row.parent.as_ref().is_some_and(|it| kept.contains(it)) {
                kept.insert(&row.key);
                continue;
            }
            match self.delete(row).await {
                Ok(true) => {
                    members += 1;
                    bytes += row.bytes;
                    self.stats.count_deleted(over == RetentionReason::Age);
                    tracing::info!(
                        session = %row.key,
                        revision = %row.position.revision,
                        exported = self.exports.is_some(),
                        reason = over.as_str(),
                        "deleted an expired session"
                    );
                    tracing::info!(
                        target: AUDIT,
                        who = "retention",
                        method = "DeleteSession",
                        project = row.key.project.as_str(),
                        session = %row.key,
                        outcome = "OK",
                        reason = over.as_str(),
                    );
                    continue;
                }
                // The session was written to, watched or put on hold in the meantime.
                Ok(false) => self.stats.record_skipped(),
                Err(error) => self.log_failed_deletion(row, &error),
            }
            kept.insert(&row.key);
        }
        (members, bytes)
    }

    fn log_failed_deletion(&self, row: &RetentionRow, error: &EngineError) {
        self.stats.count_failed();
        tracing::warn!(session = %row.key, error = %error_chain(error), "failed to delete an expired session; retrying");
    }

    /// Returns true if a session is as it was when it was selected, or was deleted by another process.
    async fn is_unchanged(&self, row: &RetentionRow) -> Result<bool, EngineError> {
        if self.engine.sessions.is_in_use(&row.key) {
            return Ok(false);
        }
        // `is_in_use` covers this process only. A write by another process changes the position.
        let head = self.engine.sessions.log().head(&row.key).await?;
        Ok(head.is_none_or(|head| row.position.matches(head.position())))
    }

    /// Exports a session, if exports are configured. Returns false if the export failed or would be incomplete.
    async fn export(&self, row: &RetentionRow, pass: &mut RetentionPass) -> bool {
        let Some(place) = &self.exports else {
            return true;
        };
        let exported = export::export(&self.engine, place, row).await;
        self.stats.export(&exported);
        match exported {
            Ok(()) => {
                crash_point("retention.exported");
                true
            }
            Err(error @ ExportError::Incomplete { .. }) => {
                let known = self
                    .incomplete
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                // The condition lasts until an operator acts, so it is logged once.
                if !known.contains(&row.key) {
                    tracing::warn!(session = %row.key, error = %error_chain(&error), "kept an expired session because its export would be incomplete; restore the file from a backup, or delete the session");
                }
                drop(known);
                pass.incomplete.insert(row.key.clone());
                false
            }
            Err(error) => {
                tracing::warn!(session = %row.key, error = %error_chain(&error), "failed to export an expired session; the session is kept, and the export is retried");
                false
            }
        }
    }

    /// Deletes a session if it has not changed since its selection. Its remaining data is removed in the background.
    async fn delete(&self, row: &RetentionRow) -> Result<bool, EngineError> {
        if self.engine.sessions.is_in_use(&row.key) {
            return Ok(false);
        }
        let check = |session: &Session| {
            if session.info().hold.is_empty() {
                Ok(())
            } else {
                Err(Rejection::invalid("session", "is on hold"))
            }
        };
        // The complete position is compared: a new session of the same name may have the same revision.
        let deleted = self
            .engine
            .sessions
            .delete(&row.key, Some(row.position), check);
        match deleted.await {
            Err(EngineError::Rejected(_) | EngineError::RevisionConflict(_)) => Ok(false),
            // Another process has deleted it.
            Ok(_) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

fn log_clock_jump(jump: ClockJump) {
    tracing::warn!(
        now = %day_of(jump.now),
        expected = %day_of(jump.expected),
        "retention by age is paused: the clock is further ahead of the newest event than the time that has passed \
         explains. If the clock is wrong, set it. If it is right, set retention.clock_trusted_until to a day after now"
    );
}

/// Returns the next project in name order that has a session.
async fn next_project(
    sessions: &Sessions,
    after: Option<&ProjectId>,
) -> Result<Option<ProjectId>, RetentionError> {
    let mut from: Option<SessionKey> = None;
    loop {
        // Starts at the first session of the previous project, because most projects fit into one page.
        let rows = match (&from, after) {
            (None, Some(after)) => {
                let last = sessions.list(Some(after), None, 1).await?;
                let first = last.into_iter().next().map(|(key, ..)| key);
                sessions.list(None, first.as_ref(), MAX_LIST).await?
            }
            _ => sessions.list(None, from.as_ref(), MAX_LIST).await?,
        };
        let found = rows.iter().map(|(key, ..)| &key.project);
        let mut found = found.filter(|project| after.is_none_or(|after| *project > after));
        if let Some(project) = found.next() {
            return Ok(Some(project.clone()));
        }
        let Some((last, ..)) = rows.last() else {
            return Ok(None);
        };
        from = Some(last.clone());
    }
}

/// Returns the newest event time that existed before this process started.
async fn newest(
    sessions: &Sessions,
    check: &ClockCheck,
    tempo: DutyCycle,
) -> Result<Option<Timestamp>, RetentionError> {
    let (mut newest, mut from) = (None, None);
    loop {
        let page = tempo
            .work(sessions.list(None, from.as_ref(), MAX_LIST))
            .await?;
        let times = page.iter().map(|(.., about)| about.modified);
        newest = newest.max(times.filter(|time| check.is_evidence(*time)).max());
        if page.len() < MAX_LIST {
            return Ok(newest);
        }
        from = page.last().map(|(key, ..)| key.clone());
    }
}

async fn rows(
    sessions: &Sessions,
    blobs: &Blobs,
    (project, keep): (&ProjectId, RetentionLimits),
    tempo: DutyCycle,
) -> Result<Vec<RetentionRow>, RetentionError> {
    let (mut rows, mut from) = (Vec::new(), None);
    loop {
        let page = sessions.list(Some(project), from.as_ref(), MAX_LIST);
        let page = tempo.work(page).await?;
        let is_last = page.len() < MAX_LIST;
        from = page.last().map(|(key, ..)| key.clone());
        for (key, head, about) in page {
            // Stored results are counted only for a byte limit, because counting them lists the blobs of each session.
            let mut bytes = head.log_bytes + head.snapshot.map_or(0, |mark| mark.bytes);
            if keep.max_bytes > 0 {
                bytes += tempo.work(blobs.stored_bytes(&key)).await?;
            }
            rows.push(RetentionRow {
                parent: about.parent,
                modified: about.modified,
                position: head.position(),
                bytes,
                is_held: !about.hold.is_empty(),
                key,
            });
        }
        if is_last {
            return Ok(rows);
        }
    }
}

/// A session that retention would delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedDeletion {
    /// The name of the session.
    pub session: SessionKey,
    /// The time of its last event.
    pub modified: Timestamp,
    /// The size in bytes. Stored results are included only if a byte limit is configured.
    pub bytes: u64,
    /// The reason for the deletion.
    pub reason: RetentionReason,
}

/// The result of a retention preview.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetentionPreview {
    /// All sessions that would be deleted, over any number of passes.
    pub deletions: Vec<PlannedDeletion>,
    /// The number of examined sessions.
    pub sessions: u64,
    /// The number of sessions that are kept by a hold.
    pub on_hold: u64,
    /// The clock jump that would pause retention by age.
    pub jump: Option<ClockJump>,
}

/// Returns the sessions that retention would delete, without deleting any.
pub async fn preview(
    sessions: &Sessions,
    blobs: &Blobs,
    config: &RetentionConfig,
) -> Result<RetentionPreview, RetentionError> {
    let clock = sessions.clock();
    let (now, tempo) = (clock.now(), DutyCycle::new(100));
    let mut preview = RetentionPreview::default();
    if config.max_clock_jump.is_limited() {
        let mut check = ClockCheck::at_start(now, clock.monotonic());
        check.doubt(blobs.clock_doubt().await?);
        check.set_reference(newest(sessions, &check, tempo).await?);
        let limit = config.max_clock_jump.as_millis();
        let judged = check.judge((now, clock.monotonic()), limit, config.clock_trusted_until);
        // The preview reports a clock jump and continues, where retention would pause.
        preview.jump = judged.err();
    }
    // The preview covers all passes, so the share per pass is 100 %.
    let mut after = None;
    while let Some(project) = next_project(sessions, after.as_ref()).await? {
        let limits = PassLimits {
            limits: config.of(&project),
            now: Some(now),
            max_percent: 100,
        };
        let rows = rows(sessions, blobs, (&project, limits.limits), tempo).await?;
        preview.sessions += rows.len() as u64;
        let (mut selection, families) =
            DeletionSelector::begin(rows, config.subagents_separately, limits);
        for family in families {
            let Some(reason) = selection.next(&family) else {
                break;
            };
            let members = family.members.len() as u64;
            if family.is_held() {
                preview.on_hold += members;
                continue;
            }
            // The family counts as deleted, so that later decisions equal those of a real pass.
            selection.record_deleted(members, family.bytes(), reason);
            preview
                .deletions
                .extend(family.members.into_iter().map(|row| PlannedDeletion {
                    session: row.key,
                    modified: row.modified,
                    bytes: row.bytes,
                    reason,
                }));
        }
        after = Some(project);
    }
    Ok(preview)
}

#[cfg(test)]
mod tests;
