//! The outage of a node of a distributed database. While a node does not accept connections, calls to its sessions fail
//! at once, except for an attempt every 500 ms. Otherwise they would wait and retry, and take resources from calls to
//! sessions of other nodes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::error::PgError;
use super::node_address::NodeAddress;
use crate::StoreError;

/// The time for which the calls to a node that stopped answering are retried, as usual. A restart may take so long.
const PATIENCE: Duration = Duration::from_secs(2);
/// The minimum time between two attempts to connect to a node that does not answer.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The state of one node.
#[derive(Debug)]
pub(super) struct Outage {
    node: NodeAddress,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The first failed attempt to connect since the last successful one.
    since: Option<Instant>,
    tried: Option<Instant>,
    is_logged: bool,
}

impl Outage {
    pub(super) fn new(node: NodeAddress) -> Self {
        Self {
            node,
            state: Mutex::default(),
        }
    }

    /// Fails if the node does not answer for a while and another call has just tried it.
    pub(super) fn check(&self) -> Result<(), PgError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let lasts = state.since.is_some_and(|since| now - since >= PATIENCE);
        if lasts && state.tried.is_some_and(|tried| now - tried < LOOK_AGAIN) {
            let NodeAddress { host, port } = &self.node;
            return Err(PgError::Final(StoreError::Unreachable(format!(
                "its node {host}:{port} does not answer"
            ))));
        }
        // This call tries the node. The next ones fail until another attempt is due.
        state.tried = Some(now);
        Ok(())
    }

    /// Records a failed attempt to connect.
    pub(super) fn failed(&self, error: &PgError) {
        // Other errors, such as too many connections, come from a node that answers.
        if !matches!(error, PgError::Lost(_)) {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.since.get_or_insert_with(Instant::now);
        if !std::mem::replace(&mut state.is_logged, true) {
            let NodeAddress { host, port } = &self.node;
            tracing::warn!(
                %host, port, ?error,
                "a node of the database does not answer: its sessions are unavailable, and lists and the work queue \
                 leave them out"
            );
        }
    }

    /// Records a successful attempt to connect.
    pub(super) fn ended(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_logged {
            let NodeAddress { host, port } = &self.node;
            tracing::info!(%host, port, "a node of the database answers again");
        }
        *state = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_that_does_not_answer_is_tried_by_one_call_at_a_time() {
        let node = NodeAddress {
            host: "node".into(),
            port: 5432,
        };
        let outage = Outage::new(node);
        let lost = || PgError::Lost("refused".into());
        assert!(outage.check().is_ok());
        outage.failed(&PgError::Busy("too many connections".into()));
        tokio::time::advance(PATIENCE).await;
        assert!(outage.check().is_ok() && outage.check().is_ok());
        // A short outage is retried by every call.
        outage.failed(&lost());
        assert!(outage.check().is_ok() && outage.check().is_ok());
        tokio::time::advance(PATIENCE).await;
        outage.failed(&lost());
        assert!(outage.check().is_ok());
        let rejected = outage.check().unwrap_err();
        assert!(!rejected.is_transient(), "{rejected:?}");
        tokio::time::advance(LOOK_AGAIN).await;
        assert!(outage.check().is_ok() && outage.check().is_err());
        outage.ended();
        assert!(outage.check().is_ok() && outage.check().is_ok());
    }
}
