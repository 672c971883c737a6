//! The users' own hook services: which there are, and one call of one of them.
//!
//! Not here: when they are called, and what their answers mean (`services::hooks`).

mod endpoint;

use std::collections::BTreeMap;
use std::sync::Arc;

use palimpsest_core::policy::{HookPolicy, Overlay};
use palimpsest_settings::HooksConfig;
use serde_json::Value;

pub use self::endpoint::{HookEndpoint, cut, failed};

/// The hook services that the configuration names.
#[derive(Debug, Default)]
pub struct HookEndpoints {
    endpoints: BTreeMap<Box<str>, Arc<HookEndpoint>>,
    default: Option<Box<str>>,
}

impl HookEndpoints {
    /// Those of a configuration. No connection is made yet.
    pub fn from_config(config: &HooksConfig) -> Self {
        let endpoint = |(name, config): (&palimpsest_settings::EndpointName, _)| {
            let endpoint = Arc::new(HookEndpoint::new(config));
            (Box::from(name.as_str()), endpoint)
        };
        let default = config.default_endpoint.as_ref();
        Self {
            endpoints: config.endpoints.iter().map(endpoint).collect(),
            default: default.map(|name| name.as_str().into()),
        }
    }

    /// The one that a policy wants called, by its name; none when it wants none called. An error when it
    /// names one that is not there.
    pub fn of(&self, policy: &HookPolicy) -> Option<Result<&Arc<HookEndpoint>, String>> {
        let name = policy.endpoint.as_ref().or(self.default.as_ref())?;
        let missing = || {
            format!(
                "the server has no hook endpoint named {name:?}: configure it, or change \
                 hooks.endpoint"
            )
        };
        Some(self.endpoints.get(name).ok_or_else(missing))
    }

    /// What is wrong with settings that name an endpoint which is not there.
    pub fn unknown(&self, settings: &Overlay) -> Option<String> {
        let Some(Value::String(name)) = settings.get(&["hooks", "endpoint"]) else {
            return None;
        };
        let is_there = self.endpoints.contains_key(name.as_str());
        (!is_there).then(|| {
            let known: Vec<&str> = self.endpoints.keys().map(|known| &**known).collect();
            format!(
                "must name an endpoint of the server's configuration, which has {}",
                if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                }
            )
        })
    }
}
