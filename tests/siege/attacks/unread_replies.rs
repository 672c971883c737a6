//! Reads of large results whose data is never received.

use palimpsest_proto::context::v1::read_tool_result_request::Result as Whose;
use palimpsest_proto::context::v1::{CallRef, ReadToolResultRequest};

use super::hold;
use crate::attack::{Assault, Attack, Seed};
use crate::wire::{Call, USUAL_WINDOW};

pub(super) const ATTACK: Attack = Attack {
    name: "unread_replies",
    needs: &[Seed::Large],
    run: |assault| Box::pin(run(assault)),
};

const CONNECTIONS: usize = 4;
const CALLS: usize = 35;

async fn run(assault: Assault) {
    let target = assault.target.clone();
    let calls = assault.scale.of(CALLS);
    hold(
        &assault,
        (CONNECTIONS, calls),
        USUAL_WINDOW,
        move |number| {
            let (key, session) = target.attacker(number, "large");
            let call = CallRef {
                tool_use_id: "large".into(),
                ..CallRef::default()
            };
            let request = ReadToolResultRequest {
                session,
                result: Some(Whose::Call(call)),
                max_bytes: 16 << 20,
                ..ReadToolResultRequest::default()
            };
            Call::new("ContextService/ReadToolResult", &request)
                .with_key(key)
                .within("600S")
        },
    )
    .await;
}
