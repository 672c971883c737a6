//! The index of arrays.

use std::cmp::Reverse;
use std::sync::Arc;

use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_core::message::Digest;
use tokio_postgres::Row;

use super::names;
use super::nodes::{Nodes, Part, Question};
use super::retry::RetryBudget;
use super::row::get;
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

/// Implements [`crate::ArrayIndex::find_by_tip`]. In a distributed database, the tips of a session are on its node, so all
/// nodes are asked. Sessions of a node that is away are not found.
pub(super) async fn find(
    nodes: &Nodes,
    budget: RetryBudget,
    (project, scope): (&ProjectId, Digest),
    digests: &[Digest],
) -> Result<Option<SessionKey>, StoreError> {
    let (project, scope) = (project.as_str(), &scope.as_bytes()[..]);
    let digests = &bytes(digests);
    let asked = nodes.ask(budget, Question::SHORT, move |part: Arc<Part>| async move {
        let client = part.lists.client().await?;
        let statement = &part.statements.find_by_tip;
        client
            .query_opt(statement, &[&project, &scope, digests])
            .await
    });
    let found = asked.await?.answers.into_iter().flatten();
    // Each node returned its own best match. The place in the order of preference decides before the latest number.
    let order = |row: &Row| -> Result<(i64, Reverse<i64>), StoreError> {
        Ok((get(row, "place")?, Reverse(get(row, "number")?)))
    };
    let first = found.min_by_key(|row| order(row).ok());
    first.map(|row| names::parse(get(&row, "key")?)).transpose()
}
