//! An engine in memory, for tests.

use std::sync::Arc;

use palimpsest_conformance::MemoryLog;
use palimpsest_core::ids::Timestamp;
use palimpsest_core::limits::Limits;
use palimpsest_core::policy::Overlay;
use palimpsest_store::blobs::Blobs;
use tokio_util::sync::CancellationToken;

use crate::Engine;
use crate::background::Background;
use crate::clock::{Clock, IdSource, ManualClock};
use crate::sessions::{DefaultPolicies, Sessions};

/// Creates an engine without models and hooks. `policy` contains the settings of all projects as TOML.
pub(crate) fn engine(policy: &str) -> Engine {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_millis(1_000)));
    let policies = DefaultPolicies::new(&Overlay::from_toml(policy).unwrap(), []).unwrap();
    let (log, limits) = (Arc::new(MemoryLog::new()), Arc::new(Limits::default()));
    let sessions = Sessions::new(log, Arc::clone(&clock), limits, policies, 1 << 20);
    Engine::new(
        Arc::new(sessions),
        Arc::new(Blobs::in_memory()),
        Arc::new(IdSource::counting(clock)),
        Background::default(),
        CancellationToken::new(),
    )
}
