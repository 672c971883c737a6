//! The index of arrays: sessions are found by the digests of arrays that their callers sent.

use async_trait::async_trait;
use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_core::message::Digest;

use crate::StoreError;

/// The maximum number of tips of one session.
pub const MAX_SESSION_TIPS: usize = 16;

/// The maximum number of digests of one lookup.
pub const MAX_LOOKUP_DIGESTS: usize = 64;

/// The tips of a session: digests of arrays by which the session is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTips {
    /// The scope in which the session is found, in addition to its project. The store does not interpret it.
    pub scope: Digest,
    /// The tips, oldest first. At most [`MAX_SESSION_TIPS`].
    pub digests: Vec<Digest>,
}

/// The index of arrays. An append changes the tips of its session, and the deletion of the session removes them.
#[async_trait]
pub trait ArrayIndex: Send + Sync + 'static {
    /// Returns the session that has the first possible tip of `digests`, which are in order of preference. At most
    /// [`MAX_LOOKUP_DIGESTS`]. If several sessions have the same tip, the session that got it last is returned.
    ///
    /// The result may be outdated when it is used, so callers compare the array of the session.
    async fn find_by_tip(
        &self,
        project: &ProjectId,
        scope: Digest,
        digests: &[Digest],
    ) -> Result<Option<SessionKey>, StoreError>;
}
