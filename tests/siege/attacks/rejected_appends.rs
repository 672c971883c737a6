//! Rejected appends to many large sessions. The sessions that are loaded for them must be evicted again.

use std::time::Duration;

use palimpsest_tests::say::{append, user};

use super::repeat;
use crate::attack::{Assault, Attack, Seed};
use crate::target::ATTACKERS;
use crate::wire::Call;

pub(super) const ATTACK: Attack = Attack {
    name: "rejected_appends",
    needs: &[Seed::Heavy],
    run: |assault| Box::pin(run(assault)),
};

const PAUSE: Duration = Duration::from_millis(20);

async fn run(assault: Assault) {
    let target = assault.target.clone();
    repeat(&assault, ATTACKERS, PAUSE, move |caller, number| {
        let (key, session) = target.heavy(caller + number * ATTACKERS);
        let mut request = append(&session, vec![user("x")]);
        // No session has this revision, so the server loads the session and rejects the append.
        request.expected_revision = Some(1_000_000);
        Call::new("ContextService/AppendMessages", &request).with_key(key)
    })
    .await;
}
