//! Tests of the deletion of families, with deletions that fail.

use std::sync::Arc;
use std::time::Duration;

use palimpsest_conformance::MemoryLog;
use palimpsest_core::command::{Command, CreateSession, UpdateSession};
use palimpsest_core::limits::Limits;
use palimpsest_store::Store;
use palimpsest_store::archive::Archive;
use tokio_util::sync::CancellationToken;

use super::super::export::{ExportError, export};
use super::super::families::RetentionRow;
use super::super::{MaintenanceStats, MaxAge, SweepConfig};
use super::*;
use crate::Engine;
use crate::background::Background;
use crate::clock::{Clock, IdSource, ManualClock};
use crate::sessions::{DefaultPolicies, MissingSession, Transaction};

const HOUR: Duration = Duration::from_hours(1);

/// A project with the sessions `main`, `sub-1`, `sub-2` and `sub-2-1`, and retention of one hour.
struct Project {
    log: Arc<MemoryLog>,
    clock: Arc<ManualClock>,
    maintenance: Maintenance,
}

fn key(name: &str) -> SessionKey {
    SessionKey::parse(&format!("projects/p/sessions/{name}")).unwrap()
}

impl Project {
    /// Creates the maintenance tasks of a process on the log.
    fn process(
        (log, clock): (&Arc<MemoryLog>, &Arc<ManualClock>),
        name: &str,
        dry_run: bool,
    ) -> Maintenance {
        let sessions = Sessions::new(
            Arc::clone(log) as Arc<dyn Store>,
            Arc::clone(clock) as Arc<dyn Clock>,
            Arc::new(Limits::default()),
            DefaultPolicies::default(),
            1 << 20,
        );
        let engine = Engine::new(
            Arc::new(sessions.with_process(name.into())),
            Arc::new(Blobs::in_memory()),
            Arc::new(IdSource::counting(Arc::clone(clock) as Arc<dyn Clock>)),
            Background::default(),
            CancellationToken::new(),
        );
        let config = RetentionConfig {
            limits: RetentionLimits {
                max_age: MaxAge::from_millis(i64::try_from(HOUR.as_millis()).unwrap()),
                ..RetentionLimits::default()
            },
            max_clock_jump: MaxAge::default(),
            duty_cycle_percent: 100,
            dry_run,
            ..RetentionConfig::default()
        };
        let rules = (config, SweepConfig::default());
        Maintenance::new(engine, rules, MaintenanceStats::default()).unwrap()
    }

    async fn with_a_family() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000)));
        let log = Arc::new(MemoryLog::new());
        let project = Self {
            maintenance: Self::process((&log, &clock), "one", false),
            log,
            clock,
        };
        for (name, parent) in [
            ("main", None),
            ("sub-1", Some("main")),
            ("sub-2", Some("main")),
            ("sub-2-1", Some("sub-2")),
        ] {
            let create = CreateSession {
                parent: parent.map(key),
                ..CreateSession::default()
            };
            project.change(name, &MissingSession::Create(create)).await;
        }
        project
    }

    /// Writes an event to a session.
    async fn change(&self, name: &str, missing: &MissingSession) {
        let rename = |transaction: &mut Transaction<'_>| {
            let title = Some(format!("at {:?}", transaction.now()).into());
            transaction.run(Command::UpdateSession(UpdateSession {
                title,
                ..UpdateSession::default()
            }))?;
            Ok(())
        };
        let sessions = &self.maintenance.engine.sessions;
        let key = key(name);
        let changed = sessions.write(&key, missing, rename, |_, ()| Ok(()));
        changed.await.unwrap();
    }

    /// Deletes `sub-2-1` and creates another session of this name with as many events.
    async fn replace_a_member(&self) {
        let sessions = &self.maintenance.engine.sessions;
        let key = key("sub-2-1");
        let before = self.row("sub-2-1").await.position;
        assert!(sessions.delete(&key, None, |_| Ok(())).await.unwrap());
        let create = CreateSession {
            parent: Some(self::key("sub-2")),
            ..CreateSession::default()
        };
        self.change("sub-2-1", &MissingSession::Create(create))
            .await;
        let now = self.row("sub-2-1").await.position;
        assert_eq!(now.revision, before.revision);
        assert_ne!(now.incarnation, before.incarnation);
    }

    async fn row(&self, name: &str) -> RetentionRow {
        let families = self.families().await.into_iter();
        let mut rows = families.flat_map(|family| family.members);
        rows.find(|row| row.key == key(name)).unwrap()
    }

    async fn families(&self) -> Vec<SessionFamily> {
        let engine = &self.maintenance.engine;
        let project = key("main").project;
        let keep = self.maintenance.retention.limits;
        let tempo = self.maintenance.duty_cycle();
        let rows = rows(&engine.sessions, &engine.blobs, (&project, keep), tempo);
        super::super::families::families(rows.await.unwrap(), false)
    }

    async fn names(&self) -> Vec<String> {
        let members = self.families().await.into_iter();
        let keys = members.flat_map(|family| family.members).map(|row| row.key);
        let mut names: Vec<_> = keys.map(|key| key.session.to_string()).collect();
        names.sort();
        names
    }

    /// Retires a family for its age. Returns the numbers of deleted and kept sessions.
    async fn retire(&self, family: SessionFamily) -> (u64, u64) {
        let mut pass = RetentionPass::default();
        let retired = self
            .maintenance
            .retire(family, RetentionReason::Age, &mut pass);
        retired.await
    }

    async fn pass(&self) {
        self.maintenance.retention_pass().await.unwrap();
    }
}

const ALL: [&str; 4] = ["main", "sub-1", "sub-2", "sub-2-1"];

#[tokio::test]
async fn a_parent_that_cannot_be_deleted_keeps_its_subagents() {
    let project = Project::with_a_family().await;
    project.clock.advance(2 * HOUR);
    project.log.fail_deletion(Some(key("main")));
    project.pass().await;
    assert_eq!(project.names().await, ALL);
    assert_eq!(project.maintenance.stats.failures(), 1);
    project.log.fail_deletion(None);
    project.pass().await;
    assert!(project.names().await.is_empty());
    assert_eq!(project.maintenance.stats.aged_out(), 4);
}

#[tokio::test]
async fn a_subagent_that_cannot_be_deleted_keeps_its_own_until_the_next_pass() {
    let project = Project::with_a_family().await;
    project.clock.advance(2 * HOUR);
    project.log.fail_deletion(Some(key("sub-2")));
    project.pass().await;
    assert_eq!(project.names().await, ["sub-2", "sub-2-1"]);
    project.log.fail_deletion(None);
    project.pass().await;
    assert!(project.names().await.is_empty());
}

#[tokio::test]
async fn a_process_that_is_no_longer_the_leader_resets_its_gauges() {
    let project = Project::with_a_family().await;
    project.clock.advance(2 * HOUR);
    let place = (&project.log, &project.clock);
    let [one, other] = ["one", "other"].map(|name| Project::process(place, name, true));
    one.run_retention_if_leader(HOUR).await;
    assert_eq!(one.stats.would_have_deleted(), 4);
    // The lease has expired, and the other process takes over.
    project.clock.advance(HOUR);
    other.run_retention_if_leader(HOUR).await;
    one.run_retention_if_leader(HOUR).await;
    assert_eq!(other.stats.would_have_deleted(), 4);
    assert_eq!(one.stats.would_have_deleted(), 0);
}

#[tokio::test]
async fn a_member_that_changed_since_the_selection_keeps_its_family() {
    let project = Project::with_a_family().await;
    project.clock.advance(2 * HOUR);
    let family = project.families().await.remove(0);
    project.change("sub-2-1", &MissingSession::Reject).await;
    assert_eq!(project.retire(family).await, (0, 0));
    assert_eq!(project.names().await, ALL);
}

#[tokio::test]
async fn a_member_that_was_created_again_since_the_selection_keeps_its_family() {
    let project = Project::with_a_family().await;
    project.clock.advance(2 * HOUR);
    let family = project.families().await.remove(0);
    project.replace_a_member().await;
    assert_eq!(project.retire(family).await, (0, 0));
    assert_eq!(project.names().await, ALL);
}

#[tokio::test]
async fn a_session_that_was_created_again_is_not_exported_as_its_predecessor() {
    let project = Project::with_a_family().await;
    let folder = tempfile::tempdir().unwrap();
    let place = Archive::open(folder.path().to_str().unwrap()).unwrap();
    let engine = &project.maintenance.engine;
    let row = project.row("sub-2-1").await;
    export(engine, &place, &row).await.unwrap();
    let exported = || {
        let files = std::fs::read_dir(folder.path().join("p/sub-2-1")).unwrap();
        files.count()
    };
    assert_eq!(exported(), 1);
    project.replace_a_member().await;
    let refused = export(engine, &place, &row).await;
    assert!(matches!(refused, Err(ExportError::Changed)), "{refused:?}");
    assert_eq!(exported(), 1);
}
