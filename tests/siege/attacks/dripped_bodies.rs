//! Request bodies of which one byte arrives every few seconds, with the longest allowed deadline.

use std::sync::Arc;
use std::time::Duration;

use palimpsest_tests::say::{append, user};
use tokio::task::JoinSet;

use crate::attack::{Assault, Attack};
use crate::wire::{Call, USUAL_WINDOW};

pub(super) const ATTACK: Attack = Attack {
    name: "dripped_bodies",
    needs: &[],
    run: |assault| Box::pin(run(assault)),
};

const CONNECTIONS: usize = 4;
const CALLS: usize = 256;
const PAUSE: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_secs(1);

async fn run(assault: Assault) {
    let mut all = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let assault = assault.clone();
        all.spawn(async move {
            loop {
                let wire = Arc::new(assault.dial(USUAL_WINDOW).await);
                let calls = (0..assault.scale.of(CALLS)).map(|number| {
                    let (key, session) = assault
                        .target
                        .attacker(connection * CALLS + number, "dripped");
                    // At one byte in five seconds, this body takes much longer than the deadline of 600 s.
                    let request = append(&session, vec![user(&"x".repeat(1_000))]);
                    let call = Call::new("ContextService/AppendMessages", &request)
                        .with_key(key)
                        .within("600S");
                    let (assault, wire) = (&assault, Arc::clone(&wire));
                    async move {
                        loop {
                            assault.tally.tried();
                            let outcome = wire.drip(&call, PAUSE).await;
                            assault.tally.ended(&outcome);
                            if outcome == "connection lost" {
                                break;
                            }
                            tokio::time::sleep(AGAIN).await;
                        }
                    }
                });
                futures::future::join_all(calls).await;
                assault.redial("connection ended").await;
            }
        });
    }
    all.join_all().await;
}
