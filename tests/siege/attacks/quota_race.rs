//! Concurrent creations of sessions, more than the quota of their project allows.

use std::time::Duration;

use palimpsest_proto::context::v1::{CreateSessionRequest, ListSessionsRequest};
use palimpsest_tests::Server;
use palimpsest_tests::tenant::with;

use super::repeat;
use crate::attack::{Assault, Attack};
use crate::wire::Call;

pub(super) const ATTACK: Attack = Attack {
    name: "quota_race",
    needs: &[],
    run: |assault| Box::pin(run(assault)),
};

const CALLERS: usize = 60;
const PAUSE: Duration = Duration::from_millis(500);

async fn run(assault: Assault) {
    let key = assault.target.race.clone();
    // The number of callers does not depend on the scale, because they must run concurrently.
    repeat(&assault, CALLERS, PAUSE, move |_, _| {
        let request = CreateSessionRequest {
            parent: "projects/race".into(),
            ..CreateSessionRequest::default()
        };
        Call::new("SessionService/CreateSession", &request).with_key(&key)
    })
    .await;
}

/// Returns the number of sessions in the project. `None` if the server does not answer.
pub(crate) async fn sessions_that_exist(server: &Server, key: &str) -> Option<usize> {
    let request = ListSessionsRequest {
        parent: "projects/race".into(),
        page_size: 1_000,
        ..ListSessionsRequest::default()
    };
    let mut client = server.sessions().await;
    let page = client.list_sessions(with(key, request)).await.ok()?;
    Some(page.into_inner().sessions.len())
}
