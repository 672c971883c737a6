//! Policy changes of an update.

use palimpsest_core::policy::{Overlay, OverlayError, Policy};
use palimpsest_proto::context::v1;
use palimpsest_settings::policy_fields;
use serde_json::{Map, Value};

use super::super::FieldError;
use super::{OVERRIDES, overlay};

/// A policy change as far as it does not depend on the session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyChange {
    given: Overlay,
    /// The paths of the update mask. An empty path selects the whole policy. `None` if the update has no mask,
    /// which selects the given fields.
    masked: Option<Vec<Vec<String>>>,
}

impl PolicyChange {
    /// Validates a change: the given fields, and the paths of the mask, if any.
    pub fn read(
        given: Option<&v1::Policy>,
        masked: Option<Vec<Vec<String>>>,
    ) -> Result<Self, FieldError> {
        let given = match given {
            Some(given) => overlay(given, OVERRIDES)?,
            None => Overlay::default(),
        };
        Ok(Self { given, masked })
    }

    /// Returns the given fields, independently of the mask.
    pub fn given(&self) -> &Overlay {
        &self.given
    }

    #[cfg(test)]
    pub(super) fn of(given: Overlay, masked: Option<Vec<Vec<String>>>) -> Self {
        Self { given, masked }
    }

    /// Returns the overlay for a session's policy. `inherited` contains the settings of a new session, including
    /// its preset. A cleared field returns to its inherited value.
    pub fn overlay(&self, policy: &Policy, inherited: &Overlay) -> Result<Overlay, OverlayError> {
        let all = [Vec::new()];
        let masked = match &self.masked {
            Some(masked) => masked.as_slice(),
            // Naming a preset selects all of its settings, not only its name with the settings of another preset.
            None if self.given.get(PRESET).is_some() => &all,
            None => return Ok(self.given.clone()),
        };
        // A mask of the whole policy or of the preset starts again from the inherited values.
        let begins_anew = |path: &Vec<String>| path.is_empty() || *path == PRESET;
        if masked.iter().any(begins_anew) {
            return Ok(self.laid_over(inherited.clone(), masked));
        }
        let now = Overlay::of(policy);
        let mut anew = inherited.clone();
        // The mask does not name the preset, so the session keeps its own.
        if let Some(preset) = now.get(PRESET) {
            anew.set(PRESET, preset.clone());
        }
        let anew = Overlay::of(&anew.resolve(policy.preset)?);
        let mut over = Overlay::default();
        for path in masked {
            // Each masked field returns to its inherited value first. `laid_over` then sets the given ones.
            over.set(path, replacement_value(now.get(path), anew.get(path)));
        }
        Ok(self.laid_over(over, masked))
    }

    fn laid_over(&self, mut under: Overlay, masked: &[Vec<String>]) -> Overlay {
        for path in masked {
            match self.given.get(path) {
                _ if path.is_empty() => under.merge(&self.given),
                Some(value) => under.set(path, value.clone()),
                None => {}
            }
        }
        under
    }
}

const PRESET: &[&str] = &["preset"];

/// Returns the value that turns `old` into `new` as an overlay. Removed fields become null.
fn replacement_value(old: Option<&Value>, new: Option<&Value>) -> Value {
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let names = old.keys().chain(new.keys());
            let field = |name: &String| {
                (
                    name.clone(),
                    replacement_value(old.get(name), new.get(name)),
                )
            };
            Value::Object(names.map(field).collect::<Map<_, _>>())
        }
        (_, new) => new.cloned().unwrap_or_default(),
    }
}

/// Returns the path within the overrides for a path of an update mask, or `None` if no such field exists.
pub(in super::super) fn masked_path(path: &str) -> Option<Vec<String>> {
    let inner = path.strip_prefix("policy_overrides")?;
    if inner.is_empty() {
        return Some(Vec::new());
    }
    let path: Vec<_> = inner
        .strip_prefix('.')?
        .split('.')
        .map(String::from)
        .collect();
    let is_known = policy_fields()
        .iter()
        // A path may also name a section, which selects all of its fields.
        .any(|field| field.path.starts_with(&path));
    is_known.then_some(path)
}
