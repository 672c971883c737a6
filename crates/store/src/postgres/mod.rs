//! The store engine on PostgreSQL, which several processes share.
//!
//! Every change of a session is one call of a function of the schema and a transaction of its own. It changes the rows of
//! one key. The tables can therefore be distributed by the key, and `nodes` finds the node of a session. Only the session's
//! row is locked, for the duration of one call.
//!
//! A statement whose outcome is unknown after a broken connection is retried. `retry` explains why that
//! is safe.

mod append;
mod connect;
mod distribution;
mod durability;
mod error;
mod hints;
mod intents;
mod names;
mod node_address;
mod nodes;
mod options;
mod outage;
mod part_statements;
#[cfg(test)]
mod partitions;
mod pool;
mod queue;
mod read;
mod removal;
mod retry;
mod row;
#[cfg(test)]
mod rules;
mod schema;
mod shard_map;
mod statements;
mod subagents;
mod tips;
mod tls;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palimpsest_core::ids::{ProjectId, SessionKey, Timestamp};
use palimpsest_core::message::Digest;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use self::hints::Hints;
use self::nodes::Nodes;
use self::pool::Pool;
use self::retry::RetryBudget;
use self::usage::UsageCache;
use crate::head_record::{
    check_batch, check_files, check_lease, check_lookup, check_parents, check_snapshot,
};
use crate::{
    ArrayIndex, Batch, DueChange, DueQuery, DueSession, FileIntents, Frame, IntentPage, Leadership,
    Lease, Position, RowPage, SessionHead, SessionLog, StorageUsage, Store, StoreError, StoreId,
    StoredSnapshot, SubagentIndex, Tombstone, Tombstones, WorkQueue,
};

pub use self::connect::{SecretProvider, is_address};
pub use self::distribution::Distribution;
pub use self::options::{LeaseClock, PoolStatus, PostgresOptions};
pub use self::schema::{SchemaState, apply, check, print, state};
pub use self::statements::append_statement;

/// A log in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresLog {
    nodes: Arc<Nodes>,
    name: String,
    retry: Duration,
    counted: UsageCache,
    hints: Option<Hints>,
    watch: Option<JoinHandle<()>>,
    is_closed: AtomicBool,
    id: StoreId,
}

impl PostgresLog {
    /// Connects to the database and verifies the schema version. Missing or older tables are created or
    /// migrated if the options allow it.
    pub async fn open(options: &PostgresOptions) -> Result<Self, StoreError> {
        // The usage counts and the hints run in tasks that share the pool.
        let pool = Arc::new(Pool::new(options)?);
        schema::ensure_schema(&pool, RetryBudget::new(options.retry), options.auto_migrate).await?;
        let nodes = Nodes::open(options, pool, RetryBudget::new(options.retry)).await?;
        let pool = nodes.entry();
        let id = intents::store_id(pool, RetryBudget::new(options.retry)).await?;
        Ok(Self {
            id,
            // The random number identifies this process, so that it can ignore its own hints.
            hints: if options.notify {
                Some(Hints::start(Arc::clone(pool), append::random()?))
            } else {
                None
            },
            watch: nodes.watch(),
            nodes,
            name: options.name.clone(),
            retry: options.retry,
            counted: UsageCache::new(options.usage_age, options.usage_max_wait),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Returns the state of all connection pools, for metrics.
    pub fn pool_status(&self) -> PoolStatus {
        self.nodes.status()
    }

    /// Sends a hint to the other processes that a session changed.
    fn notify_changed(&self, key: &SessionKey) {
        if let Some(hints) = &self.hints {
            hints.notify(key);
        }
    }

    /// Returns all nodes and the retry budget for one call. Fails if the log is closed.
    fn nodes_and_budget(&self) -> Result<(&Arc<Nodes>, RetryBudget), StoreError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        Ok((&self.nodes, RetryBudget::new(self.retry)))
    }

    /// Returns the connections to the node of a session and the retry budget for one call. Fails if the log is closed.
    fn pool_and_budget(&self, key: &SessionKey) -> Result<(Arc<Pool>, RetryBudget), StoreError> {
        let (nodes, budget) = self.nodes_and_budget()?;
        Ok((nodes.of_session(key), budget))
    }
}

#[async_trait]
impl SessionLog for PostgresLog {
    async fn head(&self, key: &SessionKey) -> Result<Option<SessionHead>, StoreError> {
        let (pool, budget) = self.pool_and_budget(key)?;
        read::head(&pool, budget, key).await
    }

    async fn read(
        &self,
        key: &SessionKey,
        after: Position,
        max_bytes: usize,
    ) -> Result<Vec<Frame>, StoreError> {
        let (pool, budget) = self.pool_and_budget(key)?;
        read::frames(&pool, budget, (key, after), max_bytes).await
    }

    async fn append(&self, key: &SessionKey, batch: Batch) -> Result<Position, StoreError> {
        check_batch(&batch)?;
        let (pool, budget) = self.pool_and_budget(key)?;
        // The hint follows the commit, so receivers always find the change in the log.
        let stands = append::append(&pool, budget, key, &batch).await?;
        self.notify_changed(key);
        Ok(stands)
    }

    async fn delete(
        &self,
        key: &SessionKey,
        expected: Position,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let (pool, budget) = self.pool_and_budget(key)?;
        removal::delete(&pool, budget, (key, expected), at).await?;
        self.notify_changed(key);
        Ok(())
    }

    async fn snapshot(
        &self,
        key: &SessionKey,
        incarnation: u64,
    ) -> Result<Option<StoredSnapshot>, StoreError> {
        let (pool, budget) = self.pool_and_budget(key)?;
        read::snapshot(&pool, budget, key, incarnation).await
    }

    async fn put_snapshot(
        &self,
        key: &SessionKey,
        at: Position,
        bytes: Bytes,
    ) -> Result<(), StoreError> {
        check_snapshot(&bytes)?;
        let (pool, budget) = self.pool_and_budget(key)?;
        append::put_snapshot(&pool, budget, (key, at), &bytes).await
    }

    async fn list_rows(
        &self,
        project: Option<&ProjectId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        let (nodes, budget) = self.nodes_and_budget()?;
        read::rows(nodes, budget, project, after, limit).await
    }
}

#[async_trait]
impl ArrayIndex for PostgresLog {
    async fn find_by_tip(
        &self,
        project: &ProjectId,
        scope: Digest,
        digests: &[Digest],
    ) -> Result<Option<SessionKey>, StoreError> {
        check_lookup(digests)?;
        let (nodes, budget) = self.nodes_and_budget()?;
        tips::find(nodes, budget, (project, scope), digests).await
    }
}

#[async_trait]
impl SubagentIndex for PostgresLog {
    async fn subagents(
        &self,
        parents: &[SessionKey],
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionKey>, StoreError> {
        check_parents(parents)?;
        let (nodes, budget) = self.nodes_and_budget()?;
        subagents::find(nodes, budget, parents, after, limit).await
    }
}

#[async_trait]
impl WorkQueue for PostgresLog {
    async fn due(
        &self,
        query: DueQuery<'_>,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<DueSession>, StoreError> {
        let (nodes, budget) = self.nodes_and_budget()?;
        queue::due(nodes, budget, query, now, limit).await
    }

    async fn claim(
        &self,
        key: &SessionKey,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        check_lease(&lease)?;
        let (pool, budget) = self.pool_and_budget(key)?;
        queue::claim(&pool, budget, key, &lease, now).await
    }

    async fn release(
        &self,
        key: &SessionKey,
        owner: &str,
        next: DueChange,
    ) -> Result<bool, StoreError> {
        let (pool, budget) = self.pool_and_budget(key)?;
        queue::release(&pool, budget, key, owner, next).await
    }
}

#[async_trait]
impl Tombstones for PostgresLog {
    async fn tombstone(&self, key: &SessionKey) -> Result<Option<Tombstone>, StoreError> {
        let (pool, budget) = self.pool_and_budget(key)?;
        removal::tombstone(&pool, budget, key).await
    }

    async fn tombstones(
        &self,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<Tombstone>, StoreError> {
        let (nodes, budget) = self.nodes_and_budget()?;
        removal::tombstones(nodes, budget, after, limit).await
    }

    async fn claim_removal(
        &self,
        key: &SessionKey,
        incarnation: u64,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        check_lease(&lease)?;
        let (pool, budget) = self.pool_and_budget(key)?;
        removal::claim(&pool, budget, (key, incarnation), &lease, now).await
    }

    async fn forget(
        &self,
        key: &SessionKey,
        incarnation: u64,
        owner: &str,
    ) -> Result<bool, StoreError> {
        let (pool, budget) = self.pool_and_budget(key)?;
        removal::forget(&pool, budget, (key, incarnation), owner).await
    }
}

#[async_trait]
impl FileIntents for PostgresLog {
    async fn declare_intents(
        &self,
        key: &SessionKey,
        files: Vec<Box<str>>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        check_files(&files)?;
        let (pool, budget) = self.pool_and_budget(key)?;
        intents::declare(&pool, budget, (key, &files), at).await
    }

    async fn list_intents(
        &self,
        after: Option<(&SessionKey, &str)>,
        limit: usize,
    ) -> Result<IntentPage, StoreError> {
        let (nodes, budget) = self.nodes_and_budget()?;
        intents::intents(nodes, budget, after, limit).await
    }

    async fn revoke_intent(
        &self,
        key: &SessionKey,
        file: &str,
        before: Timestamp,
    ) -> Result<bool, StoreError> {
        let (pool, budget) = self.pool_and_budget(key)?;
        intents::revoke(&pool, budget, (key, file), before).await
    }

    async fn complete_intent(&self, key: &SessionKey, file: &str) -> Result<(), StoreError> {
        let (pool, budget) = self.pool_and_budget(key)?;
        intents::complete(&pool, budget, (key, file)).await
    }
}

#[async_trait]
impl Leadership for PostgresLog {
    async fn claim_leader_task(
        &self,
        duty: &'static str,
        lease: Lease,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        check_lease(&lease)?;
        let (nodes, budget) = self.nodes_and_budget()?;
        let pool = nodes.of_task(duty);
        queue::claim_duty(&pool, budget, duty, &lease, now).await
    }
}

#[async_trait]
impl Store for PostgresLog {
    async fn store_id(&self) -> Result<StoreId, StoreError> {
        self.nodes_and_budget()?;
        Ok(self.id)
    }

    fn subscribe_hints(&self) -> Option<broadcast::Receiver<SessionKey>> {
        self.hints.as_ref().map(Hints::subscribe)
    }

    async fn usage(&self, project: Option<&ProjectId>) -> Result<StorageUsage, StoreError> {
        let (nodes, _) = self.nodes_and_budget()?;
        self.counted.usage(nodes, project).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        let (nodes, _) = self.nodes_and_budget()?;
        removal::canary(nodes, &self.name).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        // Reject new calls before the pool closes, so that they fail with `Closed`.
        self.is_closed.store(true, Ordering::Release);
        if let Some(hints) = &self.hints {
            hints.stop();
        }
        self.nodes.close();
        Ok(())
    }
}

impl Drop for PostgresLog {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}
