//! Health watches without a credential, as many as there are slots for watches.

use super::hold;
use crate::attack::{Assault, Attack};
use crate::wire::{Call, USUAL_WINDOW};

pub(super) const ATTACK: Attack = Attack {
    name: "health_watches",
    needs: &[],
    run: |assault| Box::pin(run(assault)),
};

const CONNECTIONS: usize = 8;
const CALLS: usize = 160;

async fn run(assault: Assault) {
    let calls = assault.scale.of(CALLS);
    hold(&assault, (CONNECTIONS, calls), USUAL_WINDOW, |_| {
        Call::of_bytes("/grpc.health.v1.Health/Watch", &[])
    })
    .await;
}
