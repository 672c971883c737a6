//! Clients that list the sessions of a large project, with a filter without matches.

use std::time::Duration;

use palimpsest_proto::context::v1::{ListSessionsRequest, SessionFilter};

use super::repeat;
use crate::attack::{Assault, Attack, Seed};
use crate::wire::Call;

pub(super) const ATTACK: Attack = Attack {
    name: "listings",
    needs: &[Seed::Crowd],
    run: |assault| Box::pin(run(assault)),
};

const CALLERS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

async fn run(assault: Assault) {
    let key = assault.target.keys[0].clone();
    let callers = assault.scale.of(CALLERS);
    let request = ListSessionsRequest {
        parent: "projects/attacker-0".into(),
        page_size: 1_000,
        filter: Some(SessionFilter {
            text: "nothing holds this".into(),
            ..SessionFilter::default()
        }),
        ..ListSessionsRequest::default()
    };
    let call = Call::new("SessionService/ListSessions", &request).with_key(&key);
    repeat(&assault, callers, PAUSE, move |_, _| call.clone()).await;
}
