//! Requests of 9 MB that contain only empty entries of a repeated field, with a key that has the right `read`.

use std::time::Duration;

use palimpsest_proto::context::v1::AppendMessagesRequest;
use prost::Message as _;

use super::repeat;
use crate::attack::{Assault, Attack};
use crate::wire::Call;

pub(super) const ATTACK: Attack = Attack {
    name: "repeated_entries",
    needs: &[],
    run: |assault| Box::pin(run(assault)),
};

const CALLERS: usize = 4;
const PAUSE: Duration = Duration::from_millis(500);
const ENTRIES: usize = 4_500_000;
/// The tag of `AppendMessagesRequest.messages`, and the length of an empty message.
const EMPTY_ENTRY: [u8; 2] = [4 << 3 | 2, 0];

async fn run(assault: Assault) {
    let named = AppendMessagesRequest {
        session: "projects/reader/sessions/any".into(),
        ..AppendMessagesRequest::default()
    };
    let mut body = named.encode_to_vec();
    body.extend(EMPTY_ENTRY.repeat(assault.scale.of(ENTRIES)));
    let path = "/palimpsest.context.v1.ContextService/AppendMessages";
    let call = Call::of_bytes(path, &body).with_key(&assault.target.reader);
    repeat(&assault, CALLERS, PAUSE, move |_, _| call.clone()).await;
}
