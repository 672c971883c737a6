//! The compared works, and Palimpsest's policy for each of them. One level is on and all others are off, so that the
//! time includes no work that other participants do not do.

use palimpsest_core::policy::{Overlay, Policy, Preset};

/// The names of the works in requests.
pub(crate) const WORKS: [&str; 3] = ["clear", "offload", "budget"];

/// The common settings of all works. All other numbers are those of the preset.
const NOTHING: &str = "
[snip]
tag_turns = false
[tool_results]
enabled = false
[microcompact]
enabled = false
[collapse]
enabled = false
[autocompact]
enabled = false
[session_memory]
enabled = false
";

/// Old results are cleared at 50,000 tokens. This is the warning threshold, 20,000 below the effective window, which is
/// 20,000 below the window.
const CLEAR: &str = "
[tokens]
default_window_tokens = 90000
[microcompact]
enabled = true
protected_tools = []
time = { enabled = false }
size = { enabled = true, target_tokens = 20000 }
";

/// Results of more than 20,000 characters are stored and replaced by a preview.
const OFFLOAD: &str = "
[tool_results]
enabled = true
max_result_chars = 20000
";

/// A view stays under 50,000 tokens. An extractive summary replaces old messages. The compaction threshold is 33,000
/// below the window.
const BUDGET: &str = "
[tokens]
default_window_tokens = 83000
[autocompact]
enabled = true
session_memory_first = false
";

/// Returns the settings of a work as an overlay of the server's configuration.
pub(crate) fn overlay(work: &str) -> anyhow::Result<Overlay> {
    let own = match work {
        "clear" => CLEAR,
        "offload" => OFFLOAD,
        "budget" => BUDGET,
        _ => anyhow::bail!(
            "there is no work {work:?}: it is one of {}",
            WORKS.join(", ")
        ),
    };
    let mut overlay = Overlay::from_toml(NOTHING)?;
    overlay.merge(&Overlay::from_toml(own)?);
    Ok(overlay)
}

/// Returns the policy of a work.
pub(crate) fn policy(work: &str) -> anyhow::Result<Policy> {
    Ok(overlay(work)?.resolve(Preset::ClaudeCode)?)
}

#[cfg(test)]
mod tests {
    use palimpsest_core::policy::WindowHint;

    use super::*;

    #[test]
    fn workload_policies_have_their_thresholds() {
        let points = |work| policy(work).unwrap().thresholds(WindowHint::default());
        assert_eq!(points("clear").warn, 50_000);
        assert_eq!(points("budget").compact, 50_000);
        assert!(!policy("offload").unwrap().autocompact.enabled);
        assert!(policy("rest").is_err());
    }
}
