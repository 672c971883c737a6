//! The identity of the store, and the intents of files. Each call is one idempotent statement.

use std::sync::Arc;

use palimpsest_core::ids::{SessionKey, Timestamp};
use tokio_postgres::Row;

use super::names;
use super::nodes::{Nodes, Part, Question};
use super::pool::Pool;
use super::read::clamp_limit;
use super::retry::{RetryBudget, retry};
use super::row::get;
use crate::file_intents::IntentCollector;
use crate::{FileIntent, IntentPage, MAX_LIST, StoreError, StoreId};

/// Returns the identity of the store, which was created with the tables.
pub(super) async fn store_id(pool: &Pool, budget: RetryBudget) -> Result<StoreId, StoreError> {
    let row = retry!(budget, _, {
        let client = pool.client().await?;
        let statement = &pool.statements().store_id;
        client.query_opt(statement, &[]).await
    })?;
    let row = row.ok_or_else(|| {
        StoreError::Setup(
            "its table `identity` is empty: put the row back that it had, from a backup of the database"
                .into(),
        )
    })?;
    let id: Vec<u8> = get(&row, "id")?;
    let id = <[u8; 16]>::try_from(id);
    let id = id.map_err(|_| StoreError::Read("the store's identity has the wrong size".into()))?;
    Ok(StoreId::from_bytes(id))
}

/// Implements [`crate::FileIntents::declare_intents`].
pub(super) async fn declare(
    pool: &Pool,
    budget: RetryBudget,
    (key, files): (&SessionKey, &[Box<str>]),
    at: Timestamp,
) -> Result<(), StoreError> {
    let stored = names::key(key);
    // The order of the rows prevents deadlocks.
    let mut files: Vec<&str> = files.iter().map(|file| &**file).collect();
    files.sort_unstable();
    files.dedup();
    let at = at.as_millis();
    let revoked = retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statements = pool.statements();
        client
            .query_opt(&statements.intend, &[&stored, &files, &at])
            .await
    })?;
    let revoked: Option<String> = match &revoked {
        Some(row) => row
            .try_get(0)
            .map_err(|error| StoreError::Read(error.to_string()))?,
        None => None,
    };
    match revoked {
        Some(file) => Err(StoreError::IntentRevoked(file.into())),
        None => Ok(()),
    }
}

/// Returns the first file without an intent that an append could end.
pub(super) async fn first_without_intent(
    pool: &Pool,
    budget: RetryBudget,
    (key, files): (&SessionKey, &[Box<str>]),
) -> Result<Option<Box<str>>, StoreError> {
    let stored = names::key(key);
    let wanted: Vec<&str> = files.iter().map(|file| &**file).collect();
    let rows = retry!(budget, _, {
        let client = pool.client().await?;
        let statement = &pool.statements().live;
        client.query(statement, &[&stored, &wanted]).await
    })?;
    let live: Result<Vec<String>, _> = rows.iter().map(|row| get(row, "file")).collect();
    let live = live?;
    // The first missing file in the caller's order makes the error deterministic.
    let lost = files
        .iter()
        .find(|file| !live.iter().any(|it| **it == ***file));
    Ok(lost.cloned())
}

/// Implements [`crate::FileIntents::list_intents`].
pub(super) async fn intents(
    nodes: &Nodes,
    budget: RetryBudget,
    after: Option<(&SessionKey, &str)>,
    limit: usize,
) -> Result<IntentPage, StoreError> {
    let mut after = after.map_or((String::new(), String::new()), |(key, file)| {
        (names::key(key), file.to_owned())
    });
    let mut found = IntentCollector::default();
    // A page without a readable row has no end that a caller could name, so the next rows are read here.
    while found.len() == 0 {
        let (from, most) = (&after, clamp_limit(limit));
        let asked = nodes.ask(budget, Question::SHORT, move |part: Arc<Part>| async move {
            let client = part.lists.client().await?;
            let statement = &part.statements.intents;
            client.query(statement, &[&from.0, &from.1, &most]).await
        });
        let mut rows: Vec<Row> = asked.await?.answers.into_iter().flatten().collect();
        let order = |row: &Row| -> Result<(String, String), StoreError> {
            Ok((get(row, "key")?, get(row, "file")?))
        };
        rows.sort_by_cached_key(|row| order(row).unwrap_or_default());
        rows.truncate(limit.min(MAX_LIST));
        let Some(last) = rows.last() else {
            break;
        };
        after = order(last)?;
        for row in &rows {
            found.push(intent_of(row).ok());
        }
    }
    Ok(found.page())
}

fn intent_of(row: &Row) -> Result<FileIntent, StoreError> {
    Ok(FileIntent {
        key: names::parse(get(row, "key")?)?,
        file: get::<String>(row, "file")?.into(),
        at: Timestamp::from_millis(get(row, "at")?),
        is_revoked: get(row, "is_doomed")?,
    })
}

/// Implements [`crate::FileIntents::revoke_intent`].
pub(super) async fn revoke(
    pool: &Pool,
    budget: RetryBudget,
    (key, file): (&SessionKey, &str),
    before: Timestamp,
) -> Result<bool, StoreError> {
    let (stored, before) = (names::key(key), before.as_millis());
    let doomed = retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statement = &pool.statements().doom_intent;
        client.call(statement, &[&stored, &file, &before]).await
    })?;
    Ok(doomed)
}

/// Implements [`crate::FileIntents::complete_intent`].
pub(super) async fn complete(
    pool: &Pool,
    budget: RetryBudget,
    (key, file): (&SessionKey, &str),
) -> Result<(), StoreError> {
    let stored = names::key(key);
    retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statement = &pool.statements().end_intent;
        client.call(statement, &[&stored, &file]).await
    })?;
    Ok(())
}
