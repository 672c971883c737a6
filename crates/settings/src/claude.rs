//! Environment variables of Claude Code, mapped to settings of this service.

use crate::value::RawValue;

enum VariableEffect {
    /// Disables settings if the variable has this boolean value. The other value has no effect.
    TurnsOff(&'static [&'static str], bool),
    /// Sets a setting to the value of the variable.
    Sets(&'static str),
    /// Sets a setting to the value of the variable, limited to a maximum.
    SetsAtMost(&'static str, u64),
}

const VARIABLES: [(&str, VariableEffect); 7] = [
    (
        "DISABLE_COMPACT",
        VariableEffect::TurnsOff(
            &[
                "policy.autocompact.enabled",
                "policy.autocompact.manual_enabled",
            ],
            true,
        ),
    ),
    (
        "DISABLE_AUTO_COMPACT",
        VariableEffect::TurnsOff(&["policy.autocompact.enabled"], true),
    ),
    (
        "CLAUDE_AUTO_COMPACT",
        VariableEffect::TurnsOff(&["policy.autocompact.enabled"], false),
    ),
    (
        "DISABLE_MICROCOMPACT",
        VariableEffect::TurnsOff(&["policy.microcompact.enabled"], true),
    ),
    (
        "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE",
        VariableEffect::Sets("policy.autocompact.compact_at_percent"),
    ),
    (
        "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE",
        VariableEffect::Sets("policy.autocompact.block_at_tokens"),
    ),
    (
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
        // A larger output limit does not increase the reserve: Claude Code reserves at most 20,000 tokens.
        VariableEffect::SetsAtMost("policy.autocompact.output_reserve_tokens", 20_000),
    ),
];

/// A variable with the settings that it sets, or the text of an error.
pub(crate) type VariableSettings = (&'static str, Result<Vec<(&'static str, RawValue)>, String>);

/// Returns the settings of all variables. Empty variables are ignored.
pub(crate) fn settings(value_of: impl Fn(&str) -> Option<String>) -> Vec<VariableSettings> {
    let meant = |(name, effect): &(&'static str, VariableEffect)| {
        let value = value_of(name).filter(|value| !value.trim().is_empty())?;
        Some((*name, settings_of(effect, value)))
    };
    VARIABLES.iter().filter_map(meant).collect()
}

fn settings_of(
    effect: &VariableEffect,
    value: String,
) -> Result<Vec<(&'static str, RawValue)>, String> {
    match effect {
        VariableEffect::Sets(key) => Ok(vec![(key, RawValue::Text(value))]),
        VariableEffect::SetsAtMost(key, most) => {
            // An invalid value passes unchanged, so that the setting itself reports it.
            let is_more = value.trim().parse::<u64>().is_ok_and(|value| value > *most);
            let value = if is_more { most.to_string() } else { value };
            Ok(vec![(key, RawValue::Text(value))])
        }
        VariableEffect::TurnsOff(keys, when) => {
            let off = parse_bool(&value)? == *when;
            // The variables only disable. A value that would enable leaves the configuration unchanged.
            let keys = keys.iter().filter(|_| off);
            Ok(keys.map(|key| (*key, RawValue::Bool(false))).collect())
        }
    }
}

fn parse_bool(value: &str) -> Result<bool, String> {
    match value.trim().to_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(format!(
            "must be 1, true, yes or on, or else 0, false, no or off, is {value:?}"
        )),
    }
}
