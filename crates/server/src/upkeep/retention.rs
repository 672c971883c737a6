//! Sessions past their retention: which they are, what keeps them, and how they go.

use std::collections::HashSet;
use std::sync::PoisonError;

use palimpsest_core::command::Rejection;
use palimpsest_core::ids::{ProjectId, SessionKey, Timestamp};
use palimpsest_core::session::Session;
use palimpsest_engine::maintenance::{RetentionConfig, RetentionLimits, day_of};
use palimpsest_engine::sessions::{Sessions, SessionsError};
use palimpsest_store::blobs::{BlobError, Blobs};
use palimpsest_store::{MAX_LIST, crash_point, error_chain};

use super::export::ExportError;
use super::families::{Family, Row};
use super::selection::{DeletionSelector, PassLimits, RetentionReason};
use super::{ClockCheck, DutyCycle, Jump, Upkeep, export};

/// Why a pass could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RetentionError {
    /// The sessions could not be read.
    #[error(transparent)]
    Sessions(#[from] SessionsError),
    /// Their files could not be listed.
    #[error(transparent)]
    Blobs(#[from] BlobError),
}

/// A pass over all sessions.
#[derive(Debug, Default)]
struct RetentionPass {
    /// The time; none while the clock is not trusted.
    now: Option<Timestamp>,
    /// Sessions that are kept because a stored result of theirs is lost.
    incomplete: HashSet<SessionKey>,
    /// Sessions that a dry run would have deleted.
    would_delete: u64,
}

impl Upkeep {
    /// Looks at every session once, project after project. What it holds in memory is one project's
    /// rows, a few hundred bytes each.
    pub(super) async fn retention_pass(&self) -> Result<(), RetentionError> {
        let mut pass = RetentionPass {
            now: self.trusted_time().await?,
            ..RetentionPass::default()
        };
        let mut after = None;
        while let Some(project) = next_project(&self.sessions, after.as_ref()).await? {
            let keep = self.retention.of(&project);
            if keep.is_limited() {
                self.project_pass(&project, keep, &mut pass).await?;
            }
            after = Some(project);
        }
        if self.retention.dry_run {
            tracing::info!(
                sessions = pass.would_delete,
                "retention.dry_run is set: nothing is deleted, and these sessions would be"
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

    /// The time, unless the clock cannot be right: then nothing is deleted by its age.
    async fn trusted_time(&self) -> Result<Option<Timestamp>, RetentionError> {
        let clock = self.sessions.clock();
        let limit = self.retention.max_clock_jump;
        if !self.retention.ages_any() || !limit.is_limited() {
            return Ok(Some(clock.now()));
        }
        let mut check = self.clock_check.lock().await;
        let doubt = self.blobs.clock_doubt().await?;
        if check.is_ignorant() {
            check.doubt(doubt);
            let newest = newest(&self.sessions, &check, self.pace()).await?;
            check.learn(newest);
        }
        let now = clock.now();
        let trusted = self.retention.clock_trusted_until;
        let judged = check.judge((now, clock.monotonic()), limit.as_millis(), trusted);
        let was_paused = self.stats.pause(judged.is_err());
        match judged {
            Ok(()) => {
                if was_paused {
                    tracing::info!("the clock is plausible again: retention by age goes on");
                }
                if doubt.is_some() {
                    self.blobs.trust_clock().await?;
                }
                Ok(Some(now))
            }
            Err(jump) => {
                if !was_paused {
                    tell(jump);
                }
                // What this clock writes must not prove it right after a restart.
                if doubt.is_none() {
                    self.blobs.doubt_clock(jump.expected).await?;
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
        let rows = rows(&self.sessions, &self.blobs, (project, keep), self.pace()).await?;
        let limits = PassLimits {
            keep,
            now: pass.now,
            max_percent: self.retention.max_percent_per_pass,
        };
        let alone = self.retention.subagents_separately;
        let (mut selection, families) = DeletionSelector::begin(rows, alone, limits);
        for family in families {
            let Some(over) = selection.next(&family) else {
                break;
            };
            let (members, size) = (family.members.len() as u64, family.bytes());
            if self.pace().work(self.retire(family, over, pass)).await {
                selection.gone(members, size, over);
            }
        }
        if selection.is_cut() {
            tracing::info!(
                %project,
                "retention has deleted its share for one pass (retention.max_percent_per_pass): the next one goes on"
            );
        }
        Ok(())
    }

    /// Exports and deletes a family, unless something keeps it. True when all of it is deleted.
    async fn retire(
        &self,
        family: Family,
        over: RetentionReason,
        pass: &mut RetentionPass,
    ) -> bool {
        let is_in_use = |row: &Row| self.sessions.is_in_use(&row.key);
        if family.is_held() || family.members.iter().any(is_in_use) {
            self.stats.spare();
            return false;
        }
        if self.retention.dry_run {
            pass.would_delete += family.members.len() as u64;
            return true;
        }
        for row in &family.members {
            if !self.export(row, pass).await {
                self.stats.spare();
                return false;
            }
        }
        for row in &family.members {
            match self.delete(row).await {
                Ok(true) => {
                    self.stats.deleted(over == RetentionReason::Age);
                    tracing::info!(
                        session = %row.key,
                        revision = %row.position.revision,
                        exported = self.exports.is_some(),
                        reason = over.as_str(),
                        "deleted a session whose retention is over"
                    );
                }
                // Somebody wrote to it, watches it or has put it on hold just now.
                Ok(false) => {
                    self.stats.spare();
                    return false;
                }
                Err(error) => {
                    self.stats.failed();
                    tracing::warn!(session = %row.key, error = %error_chain(&error), "failed to delete a session whose retention is over; it is tried again");
                    return false;
                }
            }
        }
        true
    }

    /// Exports a session, where exports are kept. False when that failed, or when the export would not be all of it.
    async fn export(&self, row: &Row, pass: &mut RetentionPass) -> bool {
        let Some(place) = &self.exports else {
            return true;
        };
        let exported = export::export(&self.service, place, row).await;
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
                // It stays so until somebody acts, and is said once.
                if !known.contains(&row.key) {
                    tracing::warn!(session = %row.key, error = %error_chain(&error), "a session whose retention is over is kept, because its export would not be all of it: restore the file from a backup, or delete the session");
                }
                drop(known);
                pass.incomplete.insert(row.key.clone());
                false
            }
            Err(error) => {
                tracing::warn!(session = %row.key, error = %error_chain(&error), "failed to export a session whose retention is over; it is not deleted, and tried again");
                false
            }
        }
    }

    /// Deletes a session if it is as it was looked at. The rest of it goes in the background.
    async fn delete(&self, row: &Row) -> Result<bool, SessionsError> {
        if self.sessions.is_in_use(&row.key) {
            return Ok(false);
        }
        let check = |session: &Session| {
            if session.about().hold.is_empty() {
                Ok(())
            } else {
                Err(Rejection::invalid("session", "is on hold"))
            }
        };
        // By the whole position: another session of its name may have as many events.
        let deleted = self.sessions.delete(&row.key, Some(row.position), check);
        match deleted.await {
            Err(SessionsError::Rejected(_) | SessionsError::Moved(_)) => Ok(false),
            // Somebody else has deleted it.
            Ok(_) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

fn tell(jump: Jump) {
    tracing::warn!(
        now = %day_of(jump.now),
        expected = %day_of(jump.expected),
        "retention by age is paused: the clock is further ahead of the newest event than the time that has passed \
         explains. If the clock is wrong, set it. If it is right, set retention.clock_trusted_until to a day after now"
    );
}

/// The project after one, in the order of names, that has a session.
async fn next_project(
    sessions: &Sessions,
    after: Option<&ProjectId>,
) -> Result<Option<ProjectId>, RetentionError> {
    let mut from: Option<SessionKey> = None;
    loop {
        // From the first session of the last project on; most projects fit one page.
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

/// The newest time in the log that was there when the process began.
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
) -> Result<Vec<Row>, RetentionError> {
    let (mut rows, mut from) = (Vec::new(), None);
    loop {
        let page = sessions.list(Some(project), from.as_ref(), MAX_LIST);
        let page = tempo.work(page).await?;
        let is_last = page.len() < MAX_LIST;
        from = page.last().map(|(key, ..)| key.clone());
        for (key, head, about) in page {
            let mut bytes = head.log_bytes + head.snapshot.map_or(0, |mark| mark.bytes);
            if keep.max_bytes > 0 {
                bytes += tempo.work(blobs.stored_bytes(&key)).await?;
            }
            rows.push(Row {
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
    /// The session.
    pub session: SessionKey,
    /// The time of its last event.
    pub modified: Timestamp,
    /// Its bytes, without its stored results unless a limit of bytes counts them.
    pub bytes: u64,
    /// The reason.
    pub over: RetentionReason,
}

/// A preview of retention.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preview {
    /// All sessions that would go, however many passes that takes.
    pub endings: Vec<PlannedDeletion>,
    /// Sessions that were looked at.
    pub sessions: u64,
    /// Sessions that a hold keeps.
    pub held: u64,
    /// The reason that nothing would be deleted by its age.
    pub jump: Option<Jump>,
}

/// Says what retention would delete, and deletes nothing.
pub async fn preview(
    sessions: &Sessions,
    blobs: &Blobs,
    config: &RetentionConfig,
) -> Result<Preview, RetentionError> {
    let clock = sessions.clock();
    let (now, tempo) = (clock.now(), DutyCycle::new(100));
    let mut preview = Preview::default();
    if config.max_clock_jump.is_limited() {
        let mut check = ClockCheck::started(now, clock.monotonic());
        check.doubt(blobs.clock_doubt().await?);
        check.learn(newest(sessions, &check, tempo).await?);
        let limit = config.max_clock_jump.as_millis();
        let judged = check.judge((now, clock.monotonic()), limit, config.clock_trusted_until);
        preview.jump = judged.err();
    }
    let mut after = None;
    while let Some(project) = next_project(sessions, after.as_ref()).await? {
        let limits = PassLimits {
            keep: config.of(&project),
            now: Some(now),
            max_percent: 100,
        };
        let rows = rows(sessions, blobs, (&project, limits.keep), tempo).await?;
        preview.sessions += rows.len() as u64;
        let (mut selection, families) =
            DeletionSelector::begin(rows, config.subagents_separately, limits);
        for family in families {
            let Some(over) = selection.next(&family) else {
                break;
            };
            let members = family.members.len() as u64;
            if family.is_held() {
                preview.held += members;
                continue;
            }
            selection.gone(members, family.bytes(), over);
            preview
                .endings
                .extend(family.members.into_iter().map(|row| PlannedDeletion {
                    session: row.key,
                    modified: row.modified,
                    bytes: row.bytes,
                    over,
                }));
        }
        after = Some(project);
    }
    Ok(preview)
}
