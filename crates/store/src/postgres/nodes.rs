//! The nodes of a database. A distributed database has several, and a call about a session goes directly to the node with
//! its rows. A database on one machine is one node.
//!
//! The map of a distributed database is only a hint. A node that does not have the rows of a call passes the call on, so an
//! outdated map costs a hop and no correctness. Statements that read the tables of a node compare the map afterwards.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures::future::join_all;
use palimpsest_core::ids::SessionKey;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::error::PgError;
use super::names;
use super::node_address::NodeAddress;
use super::options::{PoolStatus, PostgresOptions};
use super::part_statements::{PartStatements, Tables};
use super::pool::Pool;
use super::retry::{RetryBudget, retry};
use super::shard_map::{self, Shard};
use crate::StoreError;

/// The time between two reads of the map. A shard that moved is found at its new node at the latest then.
const REFRESH: Duration = Duration::from_secs(5);
/// The time limit of the answer of one node to a question to all nodes, with its retries.
const ANSWER: Duration = Duration::from_secs(3);
/// The time for which such a question is retried: a restart of a node breaks its idle connections.
const RETRY: Duration = Duration::from_millis(500);
/// The number of attempts to ask all nodes while shards move.
const MOVES: usize = 4;

/// All nodes, and the map of a distributed database.
#[derive(Debug)]
pub(super) struct Nodes {
    options: PostgresOptions,
    /// Connections to the hosts of the URL. Without distribution, all calls use them.
    entry: Arc<Pool>,
    layout: RwLock<Arc<Layout>>,
    pools: Mutex<HashMap<NodeAddress, Arc<NodePool>>>,
}

/// The connections to one node.
#[derive(Debug)]
struct NodePool {
    sessions: Arc<Pool>,
    lists: Arc<Pool>,
    /// True after the first connection. Until then, calls go through the hosts of the URL: perhaps this process cannot
    /// resolve or reach the address by which the nodes know each other.
    is_direct: AtomicBool,
}

/// The map and the parts at one time.
#[derive(Debug)]
struct Layout {
    shards: Vec<Shard>,
    /// The part of each shard.
    places: Vec<usize>,
    parts: Vec<Arc<Part>>,
}

/// The rows of one node.
#[derive(Debug)]
pub(super) struct Part {
    /// The connections for calls about sessions.
    pub(super) pool: Arc<Pool>,
    /// The connections for the statements about all sessions.
    pub(super) lists: Arc<Pool>,
    pub(super) statements: PartStatements,
    /// `None` without distribution.
    node: Option<PartNode>,
}

/// The node of a part.
#[derive(Debug)]
struct PartNode {
    address: NodeAddress,
    pools: Arc<NodePool>,
    /// The numbers of the shards on the node.
    shards: Vec<i64>,
}

/// The answers of the nodes to one question.
#[derive(Debug)]
pub(super) struct Answers<T> {
    pub(super) answers: Vec<T>,
    /// The nodes without an answer.
    pub(super) left_out: Vec<Box<str>>,
}

/// The requirements of a question to all nodes of a distributed database.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    /// The time limit of the answer of one node, with its retries.
    pub(super) limit: Duration,
    /// True if the nodes are asked again after a shard moved. Otherwise this shard may be missed or answered twice.
    pub(super) is_exact: bool,
}

impl Question {
    pub(super) const SHORT: Self = Self {
        limit: ANSWER,
        is_exact: false,
    };
    pub(super) const EXACT: Self = Self {
        limit: ANSWER,
        is_exact: true,
    };
}

impl Nodes {
    /// Reads the map. `entry` contains connections to the hosts of the URL.
    pub(super) async fn open(
        options: &PostgresOptions,
        entry: Arc<Pool>,
        budget: RetryBudget,
    ) -> Result<Arc<Self>, StoreError> {
        let shards = retry!(budget, _, {
            let client = entry.client().await?;
            shard_map::read(&client, entry.schema()).await
        })?;
        let is_distributed = !shards.is_empty();
        let entry = if is_distributed {
            // The statements of a distributed database need another setting, which only new connections get.
            entry.close();
            Arc::new(Pool::distributed(options)?)
        } else {
            entry
        };
        let nodes = Arc::new(Self {
            options: options.clone(),
            layout: RwLock::new(Arc::new(Layout::whole(&entry))),
            entry,
            pools: Mutex::default(),
        });
        if is_distributed {
            nodes.replace(shards)?;
            nodes.look_at_new_nodes().await;
        }
        Ok(nodes)
    }

    /// Reads the map regularly, until the task is aborted. `None` without distribution: the tables can only be distributed
    /// while no process uses them.
    pub(super) fn watch(self: &Arc<Self>) -> Option<JoinHandle<()>> {
        if !self.is_distributed() {
            return None;
        }
        let nodes = Arc::clone(self);
        Some(tokio::spawn(async move {
            loop {
                sleep(REFRESH).await;
                nodes.refresh().await;
                nodes.look_at_new_nodes().await;
            }
        }))
    }

    pub(super) fn is_distributed(&self) -> bool {
        !self.layout().shards.is_empty()
    }

    /// Returns the connections to the hosts of the URL.
    pub(super) fn entry(&self) -> &Arc<Pool> {
        &self.entry
    }

    /// Returns the connections to the node with a session.
    pub(super) fn of_session(&self, key: &SessionKey) -> Arc<Pool> {
        let layout = self.layout();
        if layout.shards.is_empty() {
            return Arc::clone(&self.entry);
        }
        self.of_key(&layout, &names::key(key))
    }

    /// Returns the connections to the node with the row of a leader task.
    pub(super) fn of_task(&self, name: &str) -> Arc<Pool> {
        let layout = self.layout();
        self.of_key(&layout, name)
    }

    fn of_key(&self, layout: &Layout, key: &str) -> Arc<Pool> {
        let hash = shard_map::hash(key);
        // The ranges are in order, so the first one that ends at or after the hash contains it.
        let shard = layout.shards.partition_point(|shard| shard.last < hash);
        let part = layout.places.get(shard).map(|place| &layout.parts[*place]);
        let part = part.filter(|part| part.is_direct());
        // The hosts of the URL pass the call on. Without distribution, the map is empty and all calls use them.
        Arc::clone(part.map_or(&self.entry, |part| &part.pool))
    }

    /// Returns the connections of all nodes and of the hosts of the URL.
    pub(super) fn status(&self) -> PoolStatus {
        let mut all = self.entry.connections();
        if self.is_distributed() {
            let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            let pools = pools
                .values()
                .flat_map(|node| [&node.sessions, &node.lists]);
            for pool in pools {
                let one = pool.connections();
                all.open += one.open;
                all.idle += one.idle;
                all.waiting += one.waiting;
                all.max_connections += one.max_connections;
            }
        }
        all
    }

    pub(super) fn close(&self) {
        self.entry.close();
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        for node in pools.values() {
            node.sessions.close();
            node.lists.close();
        }
    }

    pub(super) fn parts(&self) -> Vec<Arc<Part>> {
        self.layout().parts.clone()
    }

    fn layout(&self) -> Arc<Layout> {
        let layout = self.layout.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&layout)
    }

    /// Reads the map again, from any node. An old map is kept after an error.
    async fn refresh(&self) {
        let mut sources = vec![Arc::clone(&self.entry)];
        let parts = self.parts();
        sources.extend(parts.iter().map(|part| Arc::clone(&part.lists)));
        for source in sources {
            let read = timeout(ANSWER, async {
                let client = source.client().await?;
                shard_map::read(&client, source.schema()).await
            });
            match read.await {
                // A layout without shards must have one part, as `ask` expects. An empty map would give none.
                Ok(Ok(shards)) if !shards.is_empty() => {
                    if let Err(error) = self.replace(shards) {
                        tracing::warn!(%error, "failed to use the map of the database");
                    }
                    return;
                }
                outcome => tracing::debug!(?outcome, "failed to read the map of the database"),
            }
        }
    }

    fn replace(&self, shards: Vec<Shard>) -> Result<(), StoreError> {
        let known = self.layout();
        if known.shards == shards {
            return Ok(());
        }
        let layout = {
            let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            let mut of_node = |node: &NodeAddress| -> Result<Arc<NodePool>, StoreError> {
                if let Some(known) = pools.get(node) {
                    return Ok(Arc::clone(known));
                }
                let (sessions, lists) = Pool::of_node(&self.options, node)?;
                let new = Arc::new(NodePool {
                    sessions: Arc::new(sessions),
                    lists: Arc::new(lists),
                    is_direct: false.into(),
                });
                pools.insert(node.clone(), Arc::clone(&new));
                Ok(new)
            };
            let layout = Layout::distributed(shards, &mut of_node)?;
            // The calls in flight on a removed node keep its connections until their end.
            pools.retain(|node, _| layout.shards.iter().any(|shard| shard.node == *node));
            layout
        };
        *self.layout.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(layout);
        Ok(())
    }

    /// Connects to the nodes that this process has not reached yet.
    async fn look_at_new_nodes(&self) {
        use Ordering::Relaxed;
        let new: Vec<_> = {
            let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            let new = pools.values().filter(|node| !node.is_direct.load(Relaxed));
            new.cloned().collect()
        };
        join_all(new.iter().map(async |node| {
            let client = timeout(self.options.connect, node.sessions.client()).await;
            node.is_direct.store(matches!(client, Ok(Ok(_))), Relaxed);
        }))
        .await;
    }

    /// Asks all nodes at once. Without distribution, an error fails the call after its retries. Otherwise a node without an
    /// answer is left out, and the call fails only if all nodes are left out.
    pub(super) async fn ask<T, F>(
        &self,
        budget: RetryBudget,
        Question { limit, is_exact }: Question,
        question: impl Fn(Arc<Part>) -> F,
    ) -> Result<Answers<T>, StoreError>
    where
        F: Future<Output = Result<T, PgError>>,
    {
        let mut rounds = 0;
        loop {
            let layout = self.layout();
            if layout.shards.is_empty() {
                let answer = retry!(budget, _, question(Arc::clone(&layout.parts[0])).await)?;
                return Ok(Answers {
                    answers: vec![answer],
                    left_out: Vec::new(),
                });
            }
            rounds += 1;
            let asked = layout
                .parts
                .iter()
                .map(|part| ask_one(part, (limit, is_exact), &question));
            let asked = join_all(asked).await;
            let has_moved = asked
                .iter()
                .any(|answer| matches!(answer, Err(Unanswered::Moved)));
            if has_moved && rounds < MOVES {
                self.refresh().await;
                continue;
            }
            let (mut answers, mut left_out, mut first) = (Vec::new(), Vec::new(), None);
            for (part, answer) in layout.parts.iter().zip(asked) {
                match answer {
                    Ok(answer) => answers.push(answer),
                    Err(unanswered) => {
                        let (host, port) = part.address();
                        left_out.push(format!("{host}:{port}").into());
                        first.get_or_insert(unanswered);
                    }
                }
            }
            return match first {
                Some(unanswered) if answers.is_empty() => Err(unanswered.into()),
                _ => Ok(Answers { answers, left_out }),
            };
        }
    }
}

/// The reason why a node is left out.
#[derive(Debug)]
enum Unanswered {
    /// A shard moved to or from the node.
    Moved,
    Failed(StoreError),
}

impl From<Unanswered> for StoreError {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Moved => Self::Unreachable("its shards are being moved".into()),
            Unanswered::Failed(error) => error,
        }
    }
}

async fn ask_one<T, F>(
    part: &Arc<Part>,
    (limit, is_exact): (Duration, bool),
    question: &impl Fn(Arc<Part>) -> F,
) -> Result<T, Unanswered>
where
    F: Future<Output = Result<T, PgError>>,
{
    let answered = timeout(limit, async {
        retry!(RetryBudget::new(RETRY), _, {
            match question(Arc::clone(part)).await {
                // The table of a shard that left the node.
                Err(PgError::Denied(reason)) => {
                    tracing::debug!(reason, "a node does not have a table of the map");
                    Ok(None)
                }
                Err(error) => Err(error),
                Ok(answer) if !is_exact => Ok(Some(answer)),
                // Read after the rows: a shard that is still here was here all the time.
                Ok(answer) => Ok(part.is_current().await?.then_some(answer)),
            }
        })
    });
    match answered.await {
        Ok(Ok(Some(answer))) => Ok(answer),
        Ok(Ok(None)) => Err(Unanswered::Moved),
        Ok(Err(error)) => Err(Unanswered::Failed(error)),
        Err(_) => Err(Unanswered::Failed(PgError::timeout().into())),
    }
}

impl Part {
    fn address(&self) -> (&str, u16) {
        match &self.node {
            Some(node) => (&node.address.host, node.address.port),
            None => ("", 0),
        }
    }

    /// Returns true if this process has reached the node.
    fn is_direct(&self) -> bool {
        let node = self.node.as_ref();
        node.is_some_and(|node| node.pools.is_direct.load(Ordering::Relaxed))
    }

    /// Returns true if the node has exactly the shards of the map.
    async fn is_current(&self) -> Result<bool, PgError> {
        let Some(node) = &self.node else {
            return Ok(true);
        };
        let client = self.lists.client().await?;
        Ok(shard_map::local(&client, self.lists.schema()).await? == node.shards)
    }
}

impl Layout {
    /// The layout of a database on one machine.
    fn whole(entry: &Arc<Pool>) -> Self {
        let table = |name: &str| format!("{}.{name}", entry.schema());
        let tables = Tables {
            sessions: table("sessions"),
            intents: table("intents"),
            tips: table("tips"),
        };
        Self {
            shards: Vec::new(),
            places: Vec::new(),
            parts: vec![Arc::new(Part {
                pool: Arc::clone(entry),
                lists: Arc::clone(entry),
                statements: PartStatements::new(&[tables]),
                node: None,
            })],
        }
    }

    fn distributed(
        shards: Vec<Shard>,
        pools: &mut impl FnMut(&NodeAddress) -> Result<Arc<NodePool>, StoreError>,
    ) -> Result<Self, StoreError> {
        let mut nodes: Vec<_> = shards.iter().map(|shard| shard.node.clone()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let parts = nodes.iter().map(|node| {
            let own = shards.iter().filter(|shard| shard.node == *node);
            let tables: Vec<_> = own.clone().map(|shard| shard.tables.clone()).collect();
            let mut numbers: Vec<_> = own.map(|shard| shard.number).collect();
            numbers.sort_unstable();
            let pools = pools(node)?;
            Ok(Arc::new(Part {
                pool: Arc::clone(&pools.sessions),
                lists: Arc::clone(&pools.lists),
                statements: PartStatements::new(&tables),
                node: Some(PartNode {
                    address: node.clone(),
                    pools,
                    shards: numbers,
                }),
            }))
        });
        let parts = parts.collect::<Result<Vec<_>, StoreError>>()?;
        // The list has the node of every shard, so none is left out, and the places stay parallel to the shards.
        let places = shards
            .iter()
            .filter_map(|shard| nodes.binary_search(&shard.node).ok());
        Ok(Self {
            places: places.collect(),
            shards,
            parts,
        })
    }
}
