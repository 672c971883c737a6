//! The policy of a session, as JSON.

use std::sync::LazyLock;

use maud::{Markup, html};
use palimpsest_http::PlainJson;
use palimpsest_proto::context::v1::{Policy, Session};
use serde_json::Value;

use crate::text::shown;

/// Writes policies as the REST API does. `None` if the contract does not compile, which its tests exclude.
static JSON: LazyLock<Option<PlainJson>> = LazyLock::new(|| PlainJson::new().ok());

/// Shows the resolved policy, and the fields that the session overrides.
pub(super) fn section(session: &Session) -> Markup {
    let policies = [
        ("Overrides of this session", &session.policy_overrides),
        ("Policy that applies now", &session.policy),
    ];
    html! {
        @for (title, policy) in policies {
            @if let Some(text) = policy.as_ref().and_then(text) {
                details {
                    summary { (title) }
                    pre.content { (shown(&text)) }
                }
            }
        }
    }
}

/// Returns a policy as indented JSON, without fields that are not set.
fn text(policy: &Policy) -> Option<String> {
    if *policy == Policy::default() {
        return None;
    }
    let line = JSON.as_ref()?.text("Policy", policy)?;
    let json: Value = serde_json::from_str(&line).ok()?;
    serde_json::to_string_pretty(&json).ok()
}

#[cfg(test)]
mod tests {
    use palimpsest_proto::context::v1::AutocompactPolicy;

    use super::*;

    #[test]
    fn the_policy_is_shown_with_the_names_of_the_contract() {
        let session = Session {
            policy: Some(Policy {
                autocompact: Some(AutocompactPolicy {
                    enabled: Some(false),
                    ..AutocompactPolicy::default()
                }),
                ..Policy::default()
            }),
            ..Session::default()
        };
        let page = section(&session).into_string();
        assert!(page.contains("Policy that applies now"), "{page}");
        assert!(page.contains("&quot;enabled&quot;: false"), "{page}");
        assert!(!page.contains("Overrides"), "{page}");
    }
}
