//! Connections without a credential that answer PINGs and make no calls.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::attack::{Assault, Attack};
use crate::wire::USUAL_WINDOW;

pub(super) const ATTACK: Attack = Attack {
    name: "silent_connections",
    needs: &[],
    run: |assault| Box::pin(run(assault)),
};

const CONNECTIONS: usize = 1_100;
/// Pause before a closed connection is opened again.
const AGAIN: Duration = Duration::from_millis(250);

async fn run(assault: Assault) {
    let mut all = JoinSet::new();
    for _ in 0..assault.scale.of(CONNECTIONS) {
        let assault = assault.clone();
        all.spawn(async move {
            loop {
                assault.tally.tried();
                assault.dial(USUAL_WINDOW).await.closed().await;
                assault.tally.ended("closed by the server");
                tokio::time::sleep(AGAIN).await;
            }
        });
    }
    all.join_all().await;
}
