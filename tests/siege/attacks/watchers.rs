//! Watches of many large sessions that are never read.

use palimpsest_proto::context::v1::WatchSessionRequest;

use super::hold;
use crate::attack::{Assault, Attack, Seed};
use crate::wire::Call;

pub(super) const ATTACK: Attack = Attack {
    name: "watchers",
    needs: &[Seed::Heavy],
    run: |assault| Box::pin(run(assault)),
};

const CONNECTIONS: usize = 8;
const CALLS: usize = 120;

async fn run(assault: Assault) {
    let target = assault.target.clone();
    let calls = assault.scale.of(CALLS);
    hold(&assault, (CONNECTIONS, calls), 0, move |number| {
        let (key, session) = target.heavy(number);
        let request = WatchSessionRequest {
            session,
            after_revision: Some(0),
            ..WatchSessionRequest::default()
        };
        Call::new("SessionService/WatchSession", &request).with_key(key)
    })
    .await;
}
