//! Observers of sessions receive counts of committed events alone.

use std::sync::{Arc, Mutex};

use palimpsest_conformance::MemoryLog;
use palimpsest_core::command::{Append, Command};
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_engine::clock::ManualClock;
use palimpsest_engine::sessions::{DefaultPolicies, MissingSession, Sessions};
use palimpsest_engine::tally::{EventTally, Observer, TallyItem};

use crate::{message, turn};

/// The names of the events of each commit.
#[derive(Default)]
struct Commits(Mutex<Vec<Vec<&'static str>>>);

impl Observer for Commits {
    fn committed(&self, tally: &EventTally) {
        let name = |item: &TallyItem| match item {
            TallyItem::Event(name) => Some(*name),
            _ => None,
        };
        let names = tally.items().iter().filter_map(name);
        self.0.lock().unwrap().push(names.collect());
    }
}

#[tokio::test]
async fn an_observer_receives_only_committed_events() {
    let commits = Arc::new(Commits::default());
    let sessions = Sessions::new(
        Arc::new(MemoryLog::new()),
        Arc::new(ManualClock::at(Timestamp::from_millis(1))),
        Arc::new(Limits::default()),
        DefaultPolicies::default(),
        1 << 28,
    );
    let sessions = sessions.with_observer(Arc::clone(&commits) as _);
    let key = SessionKey::parse("projects/p/sessions/s").unwrap();
    turn(&sessions, &key, 0).await;
    let append = |expected_revision: Option<Revision>, dry_run: bool| {
        let append = Append {
            messages: vec![message(1)],
            expected_revision,
            ..Append::default()
        };
        let (sessions, key) = (&sessions, &key);
        async move {
            let decide = |transaction: &mut palimpsest_engine::sessions::Transaction<'_>| {
                transaction.run(Command::Append(append.clone()))
            };
            let done = sessions.run(key, &MissingSession::Reject, dry_run, decide, |_, _| Ok(()));
            done.await
        }
    };
    // A dry run and a rejected append must not reach the observer.
    append(None, true).await.unwrap();
    append(Some(Revision::new(1)), false).await.unwrap_err();
    append(None, false).await.unwrap();
    let first = vec!["session_created", "messages_appended", "view_served"];
    let expected = [first, vec!["messages_appended"]];
    assert_eq!(*commits.0.lock().unwrap(), expected);
}
