//! Connections with a window of zero bytes and a thousand calls whose replies can never be sent.

use palimpsest_proto::context::v1::ListMessagesRequest;

use super::hold;
use crate::attack::{Assault, Attack, Seed};
use crate::wire::Call;

pub(super) const ATTACK: Attack = Attack {
    name: "window_zero",
    needs: &[Seed::Small],
    run: |assault| Box::pin(run(assault)),
};

const CONNECTIONS: usize = 4;
const CALLS: usize = 256;

async fn run(assault: Assault) {
    let target = assault.target.clone();
    let calls = assault.scale.of(CALLS);
    hold(&assault, (CONNECTIONS, calls), 0, move |number| {
        let (key, session) = target.attacker(number, "small");
        let request = ListMessagesRequest {
            session,
            ..ListMessagesRequest::default()
        };
        Call::new("SessionService/ListMessages", &request).with_key(key)
    })
    .await;
}
