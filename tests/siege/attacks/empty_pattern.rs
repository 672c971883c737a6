//! Searches for a pattern that matches the empty text everywhere.

use std::time::Duration;

use palimpsest_proto::context::v1::text_pattern::Pattern;
use palimpsest_proto::context::v1::{SearchMessagesRequest, TextPattern};

use super::repeat;
use crate::attack::{Assault, Attack, Seed};
use crate::wire::Call;

pub(super) const ATTACK: Attack = Attack {
    name: "empty_pattern",
    needs: &[Seed::Text],
    run: |assault| Box::pin(run(assault)),
};

const CALLERS: usize = 32;
const PAUSE: Duration = Duration::from_millis(200);
// The first alternative searches to the end of the text in vain. The empty one then matches, at every position.
const PATTERN: &str = r"(?s).*[~\x00-\x08\x0e-\x1f]|";

async fn run(assault: Assault) {
    let target = assault.target.clone();
    let callers = assault.scale.of(CALLERS);
    repeat(&assault, callers, PAUSE, move |caller, _| {
        let (key, session) = target.attacker(caller, "text");
        let request = SearchMessagesRequest {
            session,
            pattern: Some(TextPattern {
                pattern: Some(Pattern::Regex(PATTERN.into())),
                ..TextPattern::default()
            }),
            ..SearchMessagesRequest::default()
        };
        Call::new("SessionService/SearchMessages", &request)
            .with_key(key)
            .within("1S")
    })
    .await;
}
