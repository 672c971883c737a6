//! Default policies of new sessions. The layers are, from lowest to highest: the preset, the server's settings, the
//! project's settings, and the overrides of the creating call.

use std::collections::BTreeMap;
use std::sync::Arc;

use palimpsest_core::ids::ProjectId;
use palimpsest_core::policy::{Overlay, OverlayError, Policy, Preset};

use super::estimator_warmup::warm_up;

/// The policies of new sessions, for the server and for projects with settings of their own.
#[derive(Debug, Clone)]
pub struct DefaultPolicies {
    server: InheritedPolicy,
    projects: BTreeMap<ProjectId, InheritedPolicy>,
}

/// The inherited settings of a session, and the policy of a session without overrides.
#[derive(Debug, Clone)]
struct InheritedPolicy {
    settings: Overlay,
    resolved: Arc<Policy>,
}

impl InheritedPolicy {
    fn new(mut settings: Overlay) -> Result<Self, OverlayError> {
        let resolved = settings.resolve(Preset::default())?;
        // The overlay names its preset explicitly, so that a later overlay resolves against the same preset.
        if let Some(preset) = Overlay::of(&resolved).get(&["preset"]) {
            settings.set(&["preset"], preset.clone());
        }
        Ok(Self {
            settings,
            resolved: Arc::new(resolved),
        })
    }
}

impl DefaultPolicies {
    /// Builds the policies from the server's settings and the overrides of projects. Returns an error if the settings
    /// do not resolve.
    pub fn new<'a>(
        server: &Overlay,
        projects: impl IntoIterator<Item = (&'a ProjectId, &'a Overlay)>,
    ) -> Result<Self, OverlayError> {
        let of_project = |(project, settings): (&ProjectId, &Overlay)| {
            let mut all = server.clone();
            // Fields that the project does not set keep the server's values.
            all.merge(settings);
            Ok((project.clone(), InheritedPolicy::new(all)?))
        };
        Ok(Self {
            server: InheritedPolicy::new(server.clone())?,
            projects: projects
                .into_iter()
                .map(of_project)
                .collect::<Result<_, _>>()?,
        })
    }

    fn inherit(&self, project: &ProjectId) -> &InheritedPolicy {
        self.projects.get(project).unwrap_or(&self.server)
    }

    /// Prepares the token counters of sessions without overrides.
    pub async fn prepare(&self) {
        for inherited in std::iter::once(&self.server).chain(self.projects.values()) {
            warm_up(inherited.resolved.counter()).await;
        }
    }

    /// The policy of a new session without overrides. Such sessions share one value.
    pub fn of(&self, project: &ProjectId) -> &Arc<Policy> {
        &self.inherit(project).resolved
    }

    /// The settings that a session of a project inherits. They always name a preset.
    pub fn inherited(&self, project: &ProjectId) -> &Overlay {
        &self.inherit(project).settings
    }

    /// The policy of a new session with overrides.
    pub fn with(
        &self,
        project: &ProjectId,
        overrides: &Overlay,
    ) -> Result<Arc<Policy>, OverlayError> {
        // Most sessions have no overrides, so they share one resolved policy.
        if overrides.is_empty() {
            return Ok(Arc::clone(self.of(project)));
        }
        let mut all = self.inherited(project).clone();
        all.merge(overrides);
        all.resolve(Preset::default()).map(Arc::new)
    }
}

impl Default for DefaultPolicies {
    fn default() -> Self {
        let nothing = Overlay::default();
        Self::new(&nothing, []).expect("the default preset is a policy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toml(text: &str) -> Overlay {
        Overlay::from_toml(text).unwrap()
    }

    #[test]
    fn each_policy_layer_overrides_the_previous_one() {
        let server =
            toml("snip.nudge = true\nsnip.nudge_after_messages = 5\ncollapse.enabled = true");
        let project = ProjectId::new("p").unwrap();
        let of_project = toml("preset = \"opencode\"\nsnip.nudge_after_messages = 6");
        let policies = DefaultPolicies::new(&server, [(&project, &of_project)]).unwrap();
        let other = policies.of(&ProjectId::new("other").unwrap());
        assert_eq!(other.preset, Preset::ClaudeCode);
        assert_eq!(other.snip.nudge_after_messages, 5);
        let policy = policies.of(&project);
        assert_eq!(policy.preset, Preset::OpenCode);
        assert!(policy.snip.nudge && policy.snip.wrap_interjections);
        assert_eq!(policy.snip.nudge_after_messages, 6);
        let session = toml("preset = \"threshold\"\ncollapse.enabled = false");
        let policy = policies.with(&project, &session).unwrap();
        assert_eq!(policy.preset, Preset::Threshold);
        assert!(policy.snip.nudge && !policy.collapse.enabled);
        assert_eq!(policy.snip.nudge_after_messages, 6);
        let none = policies.with(&project, &Overlay::default()).unwrap();
        assert!(Arc::ptr_eq(&none, policies.of(&project)));
    }
}
