//! The SQL statements about all sessions: lists, the work queue, counts, and the searches for
//! sessions by a tip and by their parent.
//!
//! A database on one machine is one part with one table of sessions. In a distributed database, each node is a part. The
//! rows of a node are in several tables, one for each shard, and a statement reads those of one node.

use super::statements::{HEAD, TOMBSTONE};
use crate::{LONGEST_LEASE_MS, LONGEST_WAIT_MS};

/// The time at which a session becomes ready for a worker. The index uses the same expression.
const READY: &str = "greatest(due, lease_until)";

/// The time of a list, in milliseconds. $1 is null, so it is the database clock: a process with a wrong clock, ahead or
/// behind, takes no leases from others. Tests with simulated time pass $1. The time does not change during a statement,
/// so the list can use an index.
const LIST_TIME: &str =
    "coalesce($1::bigint, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)";

/// True if no valid lease exists: there is none, it expired, or it exceeds the maximum length because
/// of a wrong clock.
const FREE: &str =
    "(lease_until IS NULL OR lease_until <= {now} OR lease_until > {now} + {longest_lease})";

/// True if a worker ($3) may take a session. That is the case if no worker has had it, this worker had it
/// last, or its last lease was never released. It is also the case if the session became ready before a
/// time ($4).
const ITS: &str =
    "(lease_owner IS NULL OR lease_owner = $3 OR lease_until IS NOT NULL OR {ready} < $4)";

/// The tables with the rows of one range of keys, quoted and with their schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tables {
    pub(super) sessions: String,
    pub(super) intents: String,
    pub(super) tips: String,
}

/// The statements for one part.
#[derive(Debug)]
pub(super) struct PartStatements {
    /// $1 key to start after, $2 upper bound, $3 limit.
    pub(super) list: String,
    /// $1 parents, $2 key to start after, $3 upper bound, $4 limit. The rows with a list row may have another parent.
    pub(super) subagents: String,
    /// $1 key to start after, $2 limit.
    pub(super) tombstones: String,
    /// $1 key and $2 file to start after, $3 limit.
    pub(super) intents: String,
    /// $1 simulated time, $2 limit, $3 worker, $4 time before which sessions of other workers are included.
    pub(super) due: String,
    /// As `due`. $5 limit per project.
    pub(super) due_of_each: String,
    /// $1 and $2 bounds of the keys.
    pub(super) usage: String,
    /// $1 project, $2 scope, $3 digests in order of preference.
    pub(super) find_by_tip: String,
}

impl PartStatements {
    /// Creates the statements for the tables of a part. There is at least one.
    pub(super) fn new(tables: &[Tables]) -> Self {
        let union = |text: &str| {
            let of_tables = tables.iter().map(|tables| {
                let text = text
                    .replace("{sessions}", &tables.sessions)
                    .replace("{intents}", &tables.intents)
                    .replace("{tips}", &tables.tips);
                format!("({text})")
            });
            fill(&of_tables.collect::<Vec<_>>().join(" UNION ALL "))
        };
        let of_all = |columns: &str, text: &str, order: &str| {
            fill(&format!(
                "SELECT {columns} FROM ({}) AS part {order}",
                union(text)
            ))
        };
        Self {
            list: of_all(
                HEAD,
                "SELECT {head} FROM {sessions}
                 WHERE key > $1 AND key < $2 AND deleted_at IS NULL ORDER BY key LIMIT $3",
                "ORDER BY key LIMIT $3",
            ),
            // The conditions repeat those of the indexes. The second part finds the rows of earlier releases.
            subagents: of_all(
                "key, summary",
                "(SELECT key, NULL::bytea AS summary FROM {sessions}
                     WHERE parent <> '' AND parent = ANY($1) AND key > $2 AND deleted_at IS NULL
                     ORDER BY key LIMIT $4)
                 UNION ALL
                 (SELECT key, summary FROM {sessions}
                     WHERE parent IS NULL AND key > $2 AND key < $3 AND deleted_at IS NULL
                     ORDER BY key LIMIT $4)",
                "ORDER BY key LIMIT $4",
            ),
            tombstones: of_all(
                TOMBSTONE,
                "SELECT {tombstone} FROM {sessions}
                 WHERE key > $1 AND deleted_at IS NOT NULL ORDER BY key LIMIT $2",
                "ORDER BY key LIMIT $2",
            ),
            intents: of_all(
                "key, file, at, is_doomed",
                "SELECT key, file, at, is_doomed FROM {intents}
                 WHERE (key, file) > ($1, $2) ORDER BY key, file LIMIT $3",
                "ORDER BY key, file LIMIT $3",
            ),
            // The second part finds sessions with a time that a wrong clock set. Any worker may take them, because the
            // previous one may be gone.
            due: of_all(
                "key, due, revision, ready",
                "(SELECT key, due, revision, {ready} AS ready FROM {sessions}
                     WHERE due IS NOT NULL AND deleted_at IS NULL AND {ready} <= {now} AND {free} AND {its}
                     ORDER BY {ready}, key LIMIT $2)
                 UNION ALL
                 (SELECT key, due, revision, {ready} AS ready FROM {sessions}
                     WHERE due IS NOT NULL AND deleted_at IS NULL AND {ready} > {now} + {longest_wait}
                         AND (due <= {now} OR due > {now} + {longest_wait}) AND {free}
                     ORDER BY {ready}, key LIMIT $2)",
                "ORDER BY ready, key LIMIT $2",
            ),
            due_of_each: fill(&format!(
                "SELECT key, due, revision, ready FROM (
                     SELECT key, due, revision, ready,
                         row_number() OVER (PARTITION BY split_part(key, '!', 1) ORDER BY ready, key) AS number
                     FROM ({}) AS part) AS waiting
                 WHERE number <= $5
                 ORDER BY ready, key LIMIT $2",
                union(
                    "SELECT key, due, revision, {ready} AS ready FROM {sessions}
                     WHERE due IS NOT NULL AND deleted_at IS NULL AND {free}
                         AND ({ready} <= {now} AND {its}
                             OR {ready} > {now} + {longest_wait}
                                 AND (due <= {now} OR due > {now} + {longest_wait}))"
                )
            )),
            usage: of_all(
                "sum(sessions)::bigint AS sessions, sum(bytes)::bigint AS bytes",
                "SELECT count(*) AS sessions,
                     coalesce(sum(log_bytes + snapshot_bytes + blob_bytes), 0)::bigint AS bytes
                 FROM {sessions} WHERE key > $1 AND key < $2 AND deleted_at IS NULL",
                "",
            ),
            // For each digest, the index gives the latest session.
            find_by_tip: of_all(
                "key, place, number",
                "SELECT found.key, given.place, found.number
                 FROM unnest($3::bytea[]) WITH ORDINALITY AS given(digest, place)
                 CROSS JOIN LATERAL (
                     SELECT tips.key, tips.number FROM {tips} AS tips
                     WHERE tips.project = $1 AND tips.scope = $2 AND tips.digest = given.digest
                         AND EXISTS (
                             SELECT 1 FROM {sessions} AS live
                             WHERE live.key = tips.key AND live.incarnation = tips.incarnation
                                 AND live.deleted_at IS NULL)
                     ORDER BY tips.number DESC LIMIT 1) AS found
                 ORDER BY given.place LIMIT 1",
                "ORDER BY place, number DESC LIMIT 1",
            ),
        }
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> [(&'static str, &str); 8] {
        [
            ("list", &self.list),
            ("subagents", &self.subagents),
            ("tombstones", &self.tombstones),
            ("intents", &self.intents),
            ("due", &self.due),
            ("due_of_each", &self.due_of_each),
            ("usage", &self.usage),
            ("find_by_tip", &self.find_by_tip),
        ]
    }
}

/// Replaces the fragments. The order matters: fragments may contain other placeholders, which are replaced later.
fn fill(text: &str) -> String {
    text.replace("{head}", HEAD)
        .replace("{tombstone}", TOMBSTONE)
        .replace("{its}", ITS)
        .replace("{ready}", READY)
        .replace("{free}", FREE)
        .replace("{longest_lease}", &LONGEST_LEASE_MS.to_string())
        .replace("{longest_wait}", &LONGEST_WAIT_MS.to_string())
        .replace("{now}", LIST_TIME)
}
