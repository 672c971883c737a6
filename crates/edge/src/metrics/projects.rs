//! Metrics of calls by project, with a bounded number of labels.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use opentelemetry::metrics::{Counter, Meter};
use opentelemetry::{KeyValue, StringValue};
use palimpsest_core::ids::ProjectId;

use super::instruments::counter;
use super::names;

/// The maximum number of projects with a label of their own. Each of them is several time series.
const MAX_PROJECTS: usize = 100;
/// The label of all other projects.
const OTHER: &str = "other";

/// A call of a project that has ended: an rpc, or a request to another port.
#[derive(Debug)]
pub struct ProjectCall<'a> {
    /// The project.
    pub project: &'a ProjectId,
    /// True if the call succeeded.
    pub is_ok: bool,
    /// The received bytes of the request's body.
    pub request_bytes: u64,
    /// The sent bytes of the response's body.
    pub response_bytes: u64,
}

/// The instruments of calls by project.
#[derive(Debug)]
pub(super) struct ProjectMetrics {
    /// The projects with a label of their own: those that were called first since the process started.
    labels: RwLock<HashMap<ProjectId, Arc<str>>>,
    calls: Counter<u64>,
    request_bytes: Counter<u64>,
    response_bytes: Counter<u64>,
}

impl ProjectMetrics {
    pub(super) fn new(meter: &Meter) -> Self {
        Self {
            labels: RwLock::default(),
            calls: counter(meter, &names::PROJECT_CALLS),
            request_bytes: counter(meter, &names::PROJECT_REQUEST_BYTES),
            response_bytes: counter(meter, &names::PROJECT_RESPONSE_BYTES),
        }
    }

    /// Records a call.
    pub(super) fn ended(&self, call: &ProjectCall<'_>) {
        let project = KeyValue::new("project", self.label(call.project));
        let outcome = if call.is_ok { "ok" } else { "failed" };
        let of_project = [project.clone()];
        self.request_bytes.add(call.request_bytes, &of_project);
        self.response_bytes.add(call.response_bytes, &of_project);
        self.calls
            .add(1, &[project, KeyValue::new("outcome", outcome)]);
    }

    fn label(&self, project: &ProjectId) -> StringValue {
        let known = self.labels.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(label) = known.get(project) {
            return Arc::clone(label).into();
        }
        if known.len() >= MAX_PROJECTS {
            return OTHER.into();
        }
        // The read lock is released first, because `write` would wait for it forever.
        drop(known);
        let mut labels = self.labels.write().unwrap_or_else(PoisonError::into_inner);
        // Another call can have added the last label, or this one, between the two locks.
        if labels.len() >= MAX_PROJECTS && !labels.contains_key(project) {
            return OTHER.into();
        }
        let label = labels
            .entry(project.clone())
            .or_insert_with(|| project.as_str().into());
        Arc::clone(label).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_projects_share_a_label() {
        let metrics = ProjectMetrics::new(crate::metrics::Metrics::default().meter());
        let label = |n: usize| metrics.label(&ProjectId::new(&format!("p{n}")).unwrap());
        for n in 0..MAX_PROJECTS {
            assert_eq!(label(n).as_str(), format!("p{n}"));
        }
        assert_eq!(label(MAX_PROJECTS).as_str(), OTHER);
        assert_eq!(label(0).as_str(), "p0");
    }
}
