//! Suggestions for unknown names.
//!
//! Keys are compared part by part, because a long common prefix would make any two keys similar.

use std::collections::BTreeSet;

use crate::source::VARIABLE_PREFIX;

/// Minimum similarity of a suggestion, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.84;
/// Renamed settings: the former key and the new key.
const RENAMED: [(&str, &str); 14] = [
    ("auth.open_reflection", "auth.public_reflection"),
    (
        "policy.attachments.listings",
        "policy.attachments.capabilities",
    ),
    (
        "policy.tool_results.preview_bytes",
        "policy.tool_results.preview_chars",
    ),
    ("prices.uncached", "prices.input"),
    ("retention.load_percent", "retention.duty_cycle_percent"),
    (
        "retention.subagents_alone",
        "retention.subagents_separately",
    ),
    ("store.postgres.hints", "store.postgres.notify"),
    ("store.postgres.migrate", "store.postgres.auto_migrate"),
    ("store.postgres.retry_ms", "store.postgres.retry_timeout_ms"),
    ("store.postgres.wait_ms", "store.postgres.pool_timeout_ms"),
    ("sweep.grace_ms", "sweep.min_age_ms"),
    ("worker.grace_ms", "worker.shutdown_grace_ms"),
    ("worker.parallel", "worker.concurrency"),
    ("worker.settle_ms", "worker.edit_debounce_ms"),
];
/// Maximum number of names in a hint. No section has more, so the intended name is always listed.
const MAX_LISTED: usize = 32;

/// Returns the candidate with the highest similarity, if it is similar enough.
pub(crate) fn closest(given: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    candidates
        .map(|candidate| (similarity(given, &candidate), candidate))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, best)| best)
}

/// Returns the new key of a renamed setting, or the new variable of a renamed variable.
pub(crate) fn renamed(given: &str) -> Option<String> {
    let is_variable = given.starts_with(VARIABLE_PREFIX);
    let form = |key: &str| {
        if is_variable {
            format!("{VARIABLE_PREFIX}{}", key.replace('.', "_").to_uppercase())
        } else {
            key.to_owned()
        }
    };
    let pair = RENAMED.iter().find(|(former, _)| form(former) == given);
    pair.map(|(_, new)| form(new))
}

/// Returns a suggestion as the end of an error text. An unknown key is also compared with sections, and with keys
/// that begin with `policy.`.
pub(crate) fn did_you_mean(given: &str, candidates: impl Iterator<Item = String>) -> String {
    if let Some(new) = renamed(given) {
        return format!(": its new name is {new}");
    }
    // Sections are candidates too, because a section name can be misspelled as well.
    let all: BTreeSet<String> = candidates.flat_map(|key| with_sections(&key)).collect();
    // `snip.nugde` without its prefix is also compared as `policy.snip.nugde`.
    let full = format!("policy.{given}");
    let asked = [given, full.as_str()];
    let best = asked.iter().find_map(|asked| {
        let depth = asked.split('.').count();
        // Keys of another depth have no matching parts to compare.
        let same_depth = all.iter().filter(|key| key.split('.').count() == depth);
        closest(asked, same_depth.cloned())
    });
    if let Some(best) = best {
        return format!(": did you mean {best}?");
    }
    // A name without a section belongs to no section, so listing the sections of the policy would not help.
    let with_section = asked.iter().filter(|_| given.contains('.'));
    let sections = with_section.filter_map(|asked| asked.rsplit_once('.'));
    let mut listed = sections.filter_map(|(section, _)| {
        let inner = all
            .iter()
            .filter_map(|key| key.strip_prefix(section)?.strip_prefix('.'));
        let inner: BTreeSet<&str> = inner.filter_map(|rest| rest.split('.').next()).collect();
        (!inner.is_empty()).then(|| listed_in(section, inner.iter().copied()))
    });
    listed.next().unwrap_or_default()
}

/// Returns the names of a section as the end of an error text.
pub(crate) fn listed_in<'a>(section: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let shown = names[..names.len().min(MAX_LISTED)].join(", ");
    let more = if names.len() > MAX_LISTED {
        ", …"
    } else {
        ""
    };
    format!(": {section} has {shown}{more}")
}

/// Returns a key and its enclosing sections: `a.b.c` results in `a`, `a.b` and `a.b.c`.
fn with_sections(key: &str) -> Vec<String> {
    let ends = key.match_indices('.').map(|(at, _)| &key[..at]);
    ends.chain([key]).map(str::to_owned).collect()
}

/// Returns the similarity of two keys with the same number of parts: the minimum over their parts.
fn similarity(given: &str, candidate: &str) -> f64 {
    let bare = |name: &'_ str| {
        name.strip_prefix(VARIABLE_PREFIX)
            .unwrap_or(name)
            .to_owned()
    };
    let (given, candidate) = (bare(given), bare(candidate));
    let parts = given.split('.').zip(candidate.split('.'));
    let alike = parts.map(|(a, b)| part_similarity(a, b));
    alike.fold(1.0, f64::min)
}

/// Returns the similarity of two parts. The edit distance is limited, because Jaro-Winkler alone overrates short
/// words with few common letters.
fn part_similarity(given: &str, candidate: &str) -> f64 {
    let edits = strsim::osa_distance(given, candidate);
    // At most a third of the characters may differ, and always one.
    let most = (given.chars().count().max(candidate.chars().count()) / 3).max(1);
    if edits > most {
        return 0.0;
    }
    strsim::jaro_winkler(given, candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 8] = [
        "listen",
        "quotas.sessions",
        "quotas.server.sessions",
        "limits.max_messages",
        "policy.snip.nudge",
        "policy.autocompact.enabled",
        "policy.autocompact.warn_buffer_tokens",
        "log.level",
    ];

    fn hint(given: &str) -> String {
        did_you_mean(given, KEYS.iter().map(|&key| key.to_owned()))
    }

    #[test]
    fn a_suggestion_is_from_the_same_section() {
        for (given, suggested) in [
            ("quota", ": did you mean quotas?"),
            ("limits.max_mesages", ": did you mean limits.max_messages?"),
            ("snip.nugde", ": did you mean policy.snip.nudge?"),
            ("policy.autocompct", ": did you mean policy.autocompact?"),
            ("listn", ": did you mean listen?"),
        ] {
            assert_eq!(hint(given), suggested, "{given}");
        }
    }

    #[test]
    fn a_former_name_suggests_the_new_name() {
        for (former, new) in RENAMED {
            assert_eq!(hint(former), format!(": its new name is {new}"));
        }
        let variable = hint("PALIMPSEST_STORE_POSTGRES_WAIT_MS");
        let new = "PALIMPSEST_STORE_POSTGRES_POOL_TIMEOUT_MS";
        assert_eq!(variable, format!(": its new name is {new}"));
    }

    #[test]
    fn an_unknown_name_lists_the_names_of_its_section() {
        let listed = ": policy.autocompact has enabled, warn_buffer_tokens";
        assert_eq!(hint("autocompact.treshold"), listed);
        assert_eq!(hint("policy.autocompact.treshold"), listed);
        assert_eq!(hint("policy.foo"), ": policy has autocompact, snip");
        assert_eq!(hint("nonsense"), "");
    }
}
