//! Calls without a credential that are reset immediately, at the maximum rate.

use std::time::Duration;

use palimpsest_proto::context::v1::GetSessionRequest;
use tokio::task::JoinSet;

use crate::attack::{Assault, Attack};
use crate::wire::{Call, USUAL_WINDOW};

pub(super) const ATTACK: Attack = Attack {
    name: "rapid_reset",
    needs: &[],
    run: |assault| Box::pin(run(assault)),
};

const CONNECTIONS: usize = 8;
/// Number of calls without a pause. The pause leaves processor time to others and still allows thousands of calls per
/// second.
const BURST: usize = 50;
const PAUSE: Duration = Duration::from_millis(50);
/// Pause before a connection that the server ended is opened again. Each end can cause a log line, so this pause is
/// shorter than that of other attacks.
const AGAIN: Duration = Duration::from_millis(10);

async fn run(assault: Assault) {
    let mut all = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let assault = assault.clone();
        all.spawn(async move {
            let call = Call::new("SessionService/GetSession", &GetSessionRequest::default());
            loop {
                let wire = assault.dial(USUAL_WINDOW).await;
                'connection: loop {
                    for _ in 0..assault.scale.of(BURST) {
                        assault.tally.tried();
                        if wire.reset(&call).await.is_err() {
                            break 'connection;
                        }
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                assault.tally.note("connection ended by the server");
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
    all.join_all().await;
}
