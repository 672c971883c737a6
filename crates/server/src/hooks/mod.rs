//! The users' own hook services: which there are, and one call of one of them.
//!
//! Not here: when they are called, and what their answers mean (`services::hooks`).

mod endpoint;

use std::collections::BTreeMap;
use std::sync::Arc;

use palimpsest_core::policy::HookPolicy;

pub use self::endpoint::{Endpoint, cut, failed};
use crate::config::HooksConfig;

/// The hook services that the configuration names.
#[derive(Debug, Default)]
pub struct Hooks {
    endpoints: BTreeMap<Box<str>, Arc<Endpoint>>,
    default: Option<Box<str>>,
}

impl Hooks {
    /// Those of a configuration. No connection is made yet.
    pub fn from_config(config: &HooksConfig) -> Self {
        let endpoint = |(name, config): (&crate::config::EndpointName, _)| {
            let endpoint = Arc::new(Endpoint::new(config));
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
    pub fn of(&self, policy: &HookPolicy) -> Option<Result<&Arc<Endpoint>, String>> {
        let name = policy.endpoint.as_ref().or(self.default.as_ref())?;
        let missing = || {
            format!(
                "the server has no hook endpoint named {name:?}: configure it, or change \
                 hooks.endpoint"
            )
        };
        Some(self.endpoints.get(name).ok_or_else(missing))
    }
}
