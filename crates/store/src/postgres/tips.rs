//! The index of arrays.

use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_core::message::Digest;

use super::names;
use super::pool::Pool;
use super::read::get;
use super::retry::{RetryBudget, retry};
use crate::{SessionTips, StoreError};

/// The parameters of a change of tips.
#[derive(Debug)]
pub(super) struct TipParameters<'a> {
    pub(super) project: &'a str,
    pub(super) scope: &'a [u8],
    pub(super) digests: Vec<&'a [u8]>,
}

impl<'a> TipParameters<'a> {
    pub(super) fn of(key: &'a SessionKey, tips: &'a SessionTips) -> Self {
        Self {
            project: key.project.as_str(),
            scope: tips.scope.as_bytes(),
            digests: bytes(&tips.digests),
        }
    }
}

fn bytes(digests: &[Digest]) -> Vec<&[u8]> {
    let digests = digests.iter();
    digests.map(|digest| &digest.as_bytes()[..]).collect()
}

/// Implements [`crate::ArrayIndex::find_by_tip`].
pub(super) async fn find(
    pool: &Pool,
    budget: RetryBudget,
    (project, scope): (&ProjectId, Digest),
    digests: &[Digest],
) -> Result<Option<SessionKey>, StoreError> {
    let (project, scope) = (project.as_str(), &scope.as_bytes()[..]);
    let digests = bytes(digests);
    let row = retry!(budget, _, {
        let client = pool.client().await?;
        let statement = &pool.statements().find_by_tip;
        client
            .query_opt(statement, &[&project, &scope, &digests])
            .await
    })?;
    row.map(|row| names::parse(get(&row, "key")?)).transpose()
}
