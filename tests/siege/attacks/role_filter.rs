//! A filter of 8 MB that repeats the same role.

use std::time::Duration;

use palimpsest_proto::context::v1::{ListMessagesRequest, MessageFilter, Role};

use super::repeat;
use crate::attack::{Assault, Attack, Seed};
use crate::wire::Call;

pub(super) const ATTACK: Attack = Attack {
    name: "role_filter",
    needs: &[Seed::Text],
    run: |assault| Box::pin(run(assault)),
};

const CALLERS: usize = 4;
const PAUSE: Duration = Duration::from_millis(500);
const ROLES: usize = 8_000_000;

async fn run(assault: Assault) {
    let (key, session) = assault.target.attacker(0, "text");
    let request = ListMessagesRequest {
        session,
        filter: Some(MessageFilter {
            // Packed protobuf needs one byte for each role.
            roles: vec![Role::Assistant.into(); assault.scale.of(ROLES)],
            ..MessageFilter::default()
        }),
        ..ListMessagesRequest::default()
    };
    let call = Call::new("SessionService/ListMessages", &request)
        .with_key(key)
        .within("1S");
    repeat(&assault, CALLERS, PAUSE, move |_, _| call.clone()).await;
}
