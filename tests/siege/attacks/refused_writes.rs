//! Appends that exceed the quota of stored bytes, retried like a client retries them.

use std::time::Duration;

use palimpsest_tests::say::{append, user};

use super::repeat;
use crate::attack::{Assault, Attack};
use crate::wire::Call;

pub(super) const ATTACK: Attack = Attack {
    name: "refused_writes",
    needs: &[],
    run: |assault| Box::pin(run(assault)),
};

const CALLERS: usize = 16;
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes of one append. The first few fill the quota.
const BYTES: usize = 20_000;

async fn run(assault: Assault) {
    let key = assault.target.full.clone();
    let callers = assault.scale.of(CALLERS);
    repeat(&assault, callers, PAUSE, move |caller, number| {
        let session = format!("projects/full/sessions/full-{caller}");
        let text = format!(
            "{number} {}",
            palimpsest_tests::say::noise(number as u64, BYTES)
        );
        Call::new(
            "ContextService/AppendMessages",
            &append(&session, vec![user(&text)]),
        )
        .with_key(&key)
    })
    .await;
}
