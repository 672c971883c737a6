//! The index of subagents.

use std::collections::HashSet;
use std::sync::Arc;

use palimpsest_core::ids::SessionKey;
use tokio_postgres::Row;

use super::names;
use super::nodes::{Nodes, Part, Question};
use super::read::{clamp_limit, stored_key};
use super::retry::RetryBudget;
use super::row::get;
use crate::encoding::decode_list_row;
use crate::log::check_complete;
use crate::{MAX_LIST, StoreError};

/// Implements [`crate::SubagentIndex::subagents`]. A subagent can be on another node than its parent, so all nodes are
/// asked.
pub(super) async fn find(
    nodes: &Nodes,
    budget: RetryBudget,
    parents: &[SessionKey],
    after: Option<&SessionKey>,
    limit: usize,
) -> Result<Vec<SessionKey>, StoreError> {
    let Some(first) = parents.first() else {
        return Ok(Vec::new());
    };
    let (from, to) = names::range(Some(&first.project));
    let mut from = after.map_or(from, names::key);
    let stored: Vec<String> = parents.iter().map(names::key).collect();
    let parents: HashSet<&SessionKey> = parents.iter().collect();
    let limit = limit.min(MAX_LIST);
    let mut found = Vec::new();
    loop {
        let (stored, start, end, most) = (&stored, &from, &to, clamp_limit(limit));
        let asked = nodes.ask(budget, Question::EXACT, move |part: Arc<Part>| async move {
            let client = part.lists.client().await?;
            let statement = &part.statements.subagents;
            client.query(statement, &[stored, start, end, &most]).await
        });
        let asked = asked.await?;
        check_complete(&asked.left_out)?;
        let mut rows: Vec<Row> = asked.answers.into_iter().flatten().collect();
        rows.sort_by_cached_key(stored_key);
        rows.truncate(limit);
        for row in &rows {
            // A row without a readable name cannot be a subagent.
            if let Ok(key) = names::parse(get(row, "key")?)
                && is_subagent(row, &parents)?
            {
                found.push(key);
            }
        }
        // Rows of earlier releases may have another parent, so a full page can contain too few subagents.
        match rows.last() {
            Some(last) if rows.len() == limit && found.len() < limit => from = get(last, "key")?,
            _ => {
                found.truncate(limit);
                return Ok(found);
            }
        }
    }
}

/// Returns true if the parent of a row is one of `parents`. Only a row of an earlier release comes with its list row.
fn is_subagent(row: &Row, parents: &HashSet<&SessionKey>) -> Result<bool, StoreError> {
    let Some(list_row) = get::<Option<&[u8]>>(row, "summary")? else {
        return Ok(true);
    };
    let info = decode_list_row(list_row).ok();
    let parent = info.and_then(|info| info.parent);
    Ok(parent.is_some_and(|parent| parents.contains(&parent)))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use bytes::Bytes;
    use palimpsest_core::session::SessionInfo;
    use palimpsest_test_servers::Cluster;

    use super::*;
    use crate::encoding::encode_list_row;
    use crate::postgres::part_statements::{PartStatements, Tables};
    use crate::postgres::{PostgresLog, PostgresOptions, schema};
    use crate::{Batch, DueChange, Position, SessionLog as _, SubagentIndex as _};

    fn key(name: &str) -> SessionKey {
        SessionKey::parse(&format!("projects/p/sessions/{name}")).unwrap()
    }

    #[test]
    fn a_search_for_subagents_reads_no_other_sessions() {
        let cluster = Cluster::start();
        cluster.psql("CREATE SCHEMA s");
        cluster.psql(&schema::print_for_rules("s"));
        // Many sessions. A few are subagents of other sessions, and an earlier release wrote a few.
        cluster.psql(
            "INSERT INTO s.sessions
                 (key, incarnation, revision, token, log_bytes, blob_bytes, summary, parent)
             SELECT 'p!' || number, 1, 1, 1, 1, 0, '',
                 CASE number % 100 WHEN 0 THEN 'p!parent' || number WHEN 1 THEN NULL ELSE '' END
             FROM generate_series(1, 20000) AS number;
             ANALYZE s.sessions",
        );
        let table = |name: &str| format!("s.{name}");
        let statements = PartStatements::new(&[Tables {
            sessions: table("sessions"),
            intents: table("intents"),
            tips: table("tips"),
        }]);
        let prepare = format!(
            "PREPARE search (text[], text, text, bigint) AS {}",
            statements.subagents
        );
        let search = "EXECUTE search('{p!parent100,p!parent200,p!none}', 'p!', 'p\"', 1000)";
        for mode in ["force_generic_plan", "force_custom_plan"] {
            let plan = cluster.psql(&format!(
                "SET plan_cache_mode = {mode}; {prepare}; EXPLAIN {search}"
            ));
            for index in ["sessions_parent", "sessions_parent_unknown"] {
                assert!(plan.contains(&format!(" {index} ")), "{mode}: {plan}");
            }
            assert!(!plan.contains("Seq Scan"), "{mode}: {plan}");
            let found = cluster.psql(&format!(
                "SET plan_cache_mode = {mode}; {prepare}; {search}"
            ));
            let subagents = found.lines().filter(|line| line.ends_with('|'));
            assert_eq!(subagents.collect::<Vec<_>>(), ["p!100|", "p!200|"]);
            // The 200 sessions of an earlier release come with their list rows.
            assert_eq!(found.lines().count(), 202);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn subagents_of_an_earlier_release_are_found() {
        let cluster = Cluster::start();
        let log = PostgresLog::open(&PostgresOptions::new(cluster.url()))
            .await
            .unwrap();
        let parent = key("parent");
        let with_parent = |parent: Option<&SessionKey>| {
            let list_row = encode_list_row(&SessionInfo {
                parent: parent.cloned(),
                ..SessionInfo::default()
            });
            Batch {
                expected: Position::START,
                events: NonZeroU32::MIN,
                frame: Bytes::from_static(b"x"),
                list_row,
                parent: parent.cloned(),
                due: DueChange::Keep,
                blob_bytes: 0,
                completed_intents: Vec::new(),
                tips: None,
            }
        };
        for (name, parent) in [
            ("a", Some(&parent)),
            ("b", None),
            ("c", Some(&key("other"))),
            ("d", Some(&parent)),
            ("e", Some(&parent)),
            ("f", None),
        ] {
            log.append(&key(name), with_parent(parent)).await.unwrap();
        }
        // An earlier release wrote some rows, and one of them cannot be decoded.
        cluster.psql(
            "UPDATE palimpsest.sessions SET parent = NULL WHERE key IN ('p!a', 'p!b', 'p!c', 'p!d');
             UPDATE palimpsest.sessions SET parent = NULL, summary = 'junk' WHERE key = 'p!f'",
        );
        for limit in [1, 2, 9] {
            let mut found: Vec<SessionKey> = Vec::new();
            loop {
                let parents = std::slice::from_ref(&parent);
                let page = log.subagents(parents, found.last(), limit).await.unwrap();
                let is_last = page.len() < limit;
                found.extend(page);
                if is_last {
                    break;
                }
            }
            assert_eq!(found, ["a", "d", "e"].map(key));
        }
        // The next append moves the session into the index.
        let head = log.head(&key("a")).await.unwrap().unwrap();
        let next = Batch {
            expected: head.position(),
            ..with_parent(Some(&parent))
        };
        log.append(&key("a"), next).await.unwrap();
        let stored = "SELECT parent FROM palimpsest.sessions WHERE key = 'p!a'";
        assert_eq!(cluster.psql(stored), "p!parent");
    }
}
