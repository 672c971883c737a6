//! The policies and models that `replay` and `recall` take as arguments.

mod model;

use std::path::Path;
use std::sync::Arc;

use palimpsest_core::policy::{Overlay, Policy, Preset};
use palimpsest_transcripts::replay::no_levels;

pub(super) use self::model::{ModelChoice, model};

/// The name of the policy without levels.
pub(super) const NONE: &str = "none";

/// A policy and its name.
#[derive(Debug, Clone)]
pub(super) struct PolicyChoice {
    pub(super) name: String,
    pub(super) policy: Arc<Policy>,
}

impl PolicyChoice {
    /// Sets the context window of the model, if one is given.
    pub(super) fn set_window(&mut self, window: Option<u32>, model: Option<&ModelChoice>) {
        if let Some(window) = window.or(model.map(|model| model.window)) {
            self.policy = Arc::new(with_window(&self.policy, window));
        }
    }
}

/// Parses a number of tokens, such as `64000`, `64_000`, `64k` or `1m`.
pub(super) fn window(text: &str) -> Result<u32, String> {
    let lower = text.trim().to_ascii_lowercase().replace(['_', ','], "");
    let (digits, unit) = match (lower.strip_suffix('k'), lower.strip_suffix('m')) {
        (Some(digits), _) => (digits, 1_000),
        (None, Some(digits)) => (digits, 1_000_000),
        (None, None) => (lower.as_str(), 1),
    };
    let tokens = digits
        .parse::<u32>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    tokens
        .filter(|tokens| (8_000..=10_000_000).contains(tokens))
        .ok_or_else(|| "write 8000 to 10000000 tokens, such as 64000 or 64k".to_owned())
}

/// Parses the name of a preset, `none`, or the name of a file with settings.
pub(super) fn choice(text: &str) -> Result<PolicyChoice, String> {
    if text == NONE {
        return Ok(no_levels_choice());
    }
    // A name without this extension is never a file, so a mistyped preset gets an error with all presets.
    let is_file = Path::new(text).extension().is_some_and(|it| it == "toml");
    if is_file {
        return choice_from_file(Path::new(text));
    }
    let preset = Preset::by_name(text).ok_or_else(|| {
        let names = Preset::ALL.map(Preset::name).join(", ");
        format!("must be one of {names}, {NONE}, or the name of a .toml file")
    })?;
    Ok(PolicyChoice {
        name: preset.name().into(),
        policy: Arc::new(preset.policy()),
    })
}

/// Returns the policy without levels.
pub(super) fn no_levels_choice() -> PolicyChoice {
    PolicyChoice {
        name: NONE.into(),
        policy: Arc::new(no_levels()),
    }
}

/// Returns a policy for a model with another context window.
fn with_window(policy: &Policy, window: u32) -> Policy {
    let mut policy = policy.clone();
    policy.tokens.default_window_tokens = Some(window);
    // The reserve of the default policy is larger than the smallest window and would leave no space for the view.
    let reserve = &mut policy.autocompact.output_reserve_tokens;
    *reserve = (*reserve).min(window / 8);
    policy
}

/// Reads a policy from a file with the settings of `[policy]`.
fn choice_from_file(path: &Path) -> Result<PolicyChoice, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("cannot be read: {error}"))?;
    let policy = Overlay::from_toml(&text).and_then(|overlay| overlay.resolve(Preset::default()));
    let policy = policy.map_err(|error| format!("has an invalid setting: {error}"))?;
    let stem = path.file_stem().unwrap_or_default();
    Ok(PolicyChoice {
        name: stem.to_string_lossy().into_owned(),
        policy: Arc::new(policy),
    })
}
