//! The clients of the users' hook services. `palimpsest_engine::compaction` decides about calls.

mod endpoint;
mod remote;

use std::collections::BTreeMap;
use std::sync::Arc;

use palimpsest_core::policy::{HookPolicy, Overlay};
use palimpsest_settings::HooksConfig;
use serde_json::Value;

use self::endpoint::{HookEndpoint, failed};
pub use self::remote::RemoteHooks;

/// The configured hook services.
#[derive(Debug, Default)]
pub struct HookEndpoints {
    endpoints: BTreeMap<Box<str>, Arc<HookEndpoint>>,
    default: Option<Box<str>>,
}

impl HookEndpoints {
    /// Creates the clients of the configured services. No connection is made yet.
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

    /// Returns the endpoint of a policy, or `None` if no hooks are configured. Fails if the policy names an unknown
    /// endpoint.
    pub fn of(&self, policy: &HookPolicy) -> Option<Result<&Arc<HookEndpoint>, String>> {
        let name = policy.endpoint.as_ref().or(self.default.as_ref())?;
        // Names are checked when a policy is set, so this endpoint was removed from the configuration since.
        let missing = || {
            format!(
                "the server has no hook endpoint named {name:?}: configure it, or change \
                 hooks.endpoint"
            )
        };
        Some(self.endpoints.get(name).ok_or_else(missing))
    }

    /// Returns an error text if the settings name an unknown endpoint.
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
