//! What an update does to the policy of a session.

use palimpsest_core::policy::{Overlay, OverlayError, Policy};
use palimpsest_proto::context::v1;
use palimpsest_settings::policy_fields;
use serde_json::{Map, Value};

use super::super::FieldError;
use super::{OVERRIDES, overlay};

/// A change of a policy, as far as it is known without the session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyChange {
    given: Overlay,
    /// What the mask names, an empty path being all of it; without a mask it is what is given.
    masked: Option<Vec<Vec<String>>>,
}

impl PolicyChange {
    /// Reads a change: what is given, and the paths of a mask within it, if there is a mask.
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

    /// What is given, whatever the mask says of it.
    pub fn given(&self) -> &Overlay {
        &self.given
    }

    #[cfg(test)]
    pub(super) fn of(given: Overlay, masked: Option<Vec<Vec<String>>>) -> Self {
        Self { given, masked }
    }

    /// What is to be laid over the policy of a session. `inherited` is what a new session would start
    /// with, and names a preset; a field that is cleared comes from there.
    pub fn overlay(&self, policy: &Policy, inherited: &Overlay) -> Result<Overlay, OverlayError> {
        let all = [Vec::new()];
        let masked = match &self.masked {
            Some(masked) => masked.as_slice(),
            // Naming a preset asks for that preset, and not for its name on the settings of another.
            None if self.given.get(PRESET).is_some() => &all,
            None => return Ok(self.given.clone()),
        };
        let begins_anew = |path: &Vec<String>| path.is_empty() || *path == PRESET;
        if masked.iter().any(begins_anew) {
            return Ok(self.laid_over(inherited.clone(), masked));
        }
        let now = Overlay::of(policy);
        let mut anew = inherited.clone();
        if let Some(preset) = now.get(PRESET) {
            anew.set(PRESET, preset.clone());
        }
        let anew = Overlay::of(&anew.resolve(policy.preset)?);
        let mut over = Overlay::default();
        for path in masked {
            over.set(path, instead(now.get(path), anew.get(path)));
        }
        Ok(self.laid_over(over, masked))
    }

    fn laid_over(&self, mut under: Overlay, masked: &[Vec<String>]) -> Overlay {
        for path in masked {
            match self.given.get(path) {
                _ if path.is_empty() => under.lay_over(&self.given),
                Some(value) => under.set(path, value.clone()),
                None => {}
            }
        }
        under
    }
}

const PRESET: &[&str] = &["preset"];

/// What makes `new` of `old` when it is laid over it: what is gone is taken back by a null.
fn instead(old: Option<&Value>, new: Option<&Value>) -> Value {
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let names = old.keys().chain(new.keys());
            let field = |name: &String| (name.clone(), instead(old.get(name), new.get(name)));
            Value::Object(names.map(field).collect::<Map<_, _>>())
        }
        (_, new) => new.cloned().unwrap_or_default(),
    }
}

/// The path within the overrides that a path of a mask names; nothing when there is no such field.
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
        .any(|field| field.path.starts_with(&path));
    is_known.then_some(path)
}
