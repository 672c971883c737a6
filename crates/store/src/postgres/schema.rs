//! The database schema and its migrations. Each version contains the changes since the previous one.
//!
//! A version declares the oldest release that works with it. During a rolling upgrade, processes of the
//! old release therefore continue. A change on which only later releases depend is added in one version
//! and used from the next.

use std::fmt::Write as _;
use std::time::Duration;

use super::distribution::{self, Distribution, FUNCTIONS};
use super::error::PgError;
use super::options::PostgresOptions;
use super::pool;
use super::pool::{Client, Pool};
use super::retry::{RetryBudget, retry};
use crate::StoreError;

struct SchemaVersion {
    /// The oldest compatible release, identified by the schema version that it introduced.
    oldest: i64,
    statements: &'static str,
}

/// All versions, from the first.
const VERSIONS: &[SchemaVersion] = &[
    SchemaVersion {
        oldest: 1,
        statements: include_str!("schema/0001.sql"),
    },
    SchemaVersion {
        oldest: 1,
        statements: include_str!("schema/0002.sql"),
    },
    SchemaVersion {
        oldest: 1,
        statements: include_str!("schema/0003.sql"),
    },
    SchemaVersion {
        oldest: 1,
        statements: include_str!("schema/0004.sql"),
    },
    SchemaVersion {
        oldest: 1,
        statements: include_str!("schema/0005.sql"),
    },
];

/// The schema version of this release.
#[expect(clippy::cast_possible_wrap, reason = "there are few versions")]
const SUPPORTED: i64 = VERSIONS.len() as i64;

/// The table of applied versions.
const HISTORY: &str = "
CREATE TABLE IF NOT EXISTS {schema}.versions (
    version bigint PRIMARY KEY,
    oldest bigint NOT NULL,
    applied timestamptz NOT NULL DEFAULT now()
)";

/// The first statement of each function that changes something. It makes the commit durable.
const DURABLE: &str = "IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;";

/// Fills the placeholders of statements. The name of the schema is quoted.
fn filled(statements: &str, schema: &str) -> String {
    statements
        .replace("{schema}", schema)
        .replace("{durable}", DURABLE)
}

/// The key of the advisory lock that serializes migrations. The value is arbitrary.
const LOCK: i64 = 0x7061_6C69_6D70;

const TABLES: [&str; 9] = [
    "sessions", "frames", "snapshots", "duties", "replicas", "identity", "intents", "tips",
    "versions",
];

/// The version of the tables in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaState {
    /// The version of the tables. Zero if they do not exist.
    pub version: i64,
    /// The oldest release that works with the tables.
    pub oldest: i64,
    /// The schema version of this release.
    pub supported: i64,
    /// The number of nodes with rows, after the tables were distributed.
    pub nodes: Option<i64>,
}

impl SchemaState {
    /// Returns true if this release works with the tables.
    pub fn is_usable(&self) -> bool {
        self.version >= self.supported && self.oldest <= self.supported
    }

    fn newer(&self) -> Result<(), StoreError> {
        if self.oldest <= self.supported {
            return Ok(());
        }
        let version = |number: i64| u64::try_from(number).unwrap_or_default();
        Err(StoreError::Newer {
            found: version(self.version),
            supported: version(self.supported),
        })
    }
}

/// Returns all statements that create the tables, for manual application.
pub fn print(schema: &str) -> String {
    let schema = pool::quoted(schema);
    let mut text = format!("BEGIN;\nCREATE SCHEMA IF NOT EXISTS {schema};\n{HISTORY};\n");
    for (number, version) in (1..).zip(VERSIONS) {
        let SchemaVersion { oldest, statements } = version;
        let _ = write!(
            text,
            "\n-- Version {number}\n{statements}\n\
             INSERT INTO {{schema}}.versions (version, oldest) VALUES ({number}, {oldest});\n"
        );
    }
    text.push_str("COMMIT;\n");
    filled(&text, &schema)
}

/// Returns the statements of all versions for a schema whose name needs no quotes.
#[cfg(test)]
pub(super) fn print_for_rules(schema: &str) -> String {
    let versions = VERSIONS.iter().map(|version| version.statements);
    filled(&versions.collect::<String>(), schema)
}

/// Reads the version of the tables.
pub async fn state(options: &PostgresOptions) -> Result<SchemaState, StoreError> {
    let pool = Pool::new(options)?;
    let budget = RetryBudget::new(options.retry);
    retry!(budget, _, read_state(&pool.client().await?, &pool).await)
}

/// Reads the version of the tables, and fails if their layout is not usable.
pub async fn check(options: &PostgresOptions) -> Result<SchemaState, StoreError> {
    let pool = Pool::new(options)?;
    let budget = RetryBudget::new(options.retry);
    retry!(budget, _, {
        let client = pool.client().await?;
        let state = read_state(&client, &pool).await?;
        if state.is_usable() {
            distribution::check(&client, pool.schema()).await?;
        }
        Ok(state)
    })
}

/// Creates or migrates the tables, and returns their new version. With a distribution, distributes them.
pub async fn apply(
    options: &PostgresOptions,
    distribution: Option<Distribution>,
) -> Result<SchemaState, StoreError> {
    let pool = Pool::new(options)?;
    let budget = RetryBudget::new(options.retry);
    let mut state = migrate_schema(&pool, budget).await?;
    if distribution == Some(Distribution::Citus) {
        state.nodes = Some(distribute(&pool, budget).await?);
    }
    Ok(state)
}

async fn distribute(pool: &Pool, budget: RetryBudget) -> Result<i64, StoreError> {
    retry!(budget, _, {
        // The distribution copies all rows.
        let client = pool.client().await?.with_limit(Duration::MAX);
        client
            .batch(&format!(
                "SET statement_timeout = 0; SET lock_timeout = 0; SELECT pg_advisory_lock({LOCK})"
            ))
            .await?;
        let distributed = distribution::distribute(&client, pool.schema()).await;
        // The lock belongs to the connection, which returns to the pool. It is therefore released after an error too.
        client
            .batch(&format!(
                "SELECT pg_advisory_unlock({LOCK}); RESET statement_timeout; RESET lock_timeout"
            ))
            .await?;
        distributed
    })
}

/// Verifies that the tables exist in a supported version and that the role may use them. Creates or
/// migrates them if `migrate` is true.
pub(super) async fn ensure_schema(
    pool: &Pool,
    budget: RetryBudget,
    migrate: bool,
) -> Result<(), StoreError> {
    let mut state = retry!(budget, _, read_state(&pool.client().await?, pool).await)?;
    state.newer()?;
    // Without the right to migrate, an operator applies the statements by hand.
    if state.version < SUPPORTED && migrate {
        state = migrate_schema(pool, budget).await?;
    }
    if state.version < SUPPORTED {
        return Err(StoreError::Setup(format!(
            "its tables have version {}, this release needs {SUPPORTED}: run `palimpsest schema apply`, or set \
             store.postgres.auto_migrate",
            state.version
        )));
    }
    // A missing right or a wrong layout fails the start, and not the first call that meets it.
    retry!(budget, _, {
        let client = pool.client().await?;
        check_privileges(&client, pool).await?;
        distribution::check(&client, pool.schema()).await?;
        Ok(())
    })
}

async fn read_state(client: &Client, pool: &Pool) -> Result<SchemaState, PgError> {
    let mut state = SchemaState {
        version: 0,
        oldest: 0,
        supported: SUPPORTED,
        nodes: None,
    };
    let history = format!("{}.versions", pool.schema());
    let exists = client
        .query_opt("SELECT to_regclass($1) IS NOT NULL", &[&history])
        .await?;
    if !exists.is_some_and(|row| row.get(0)) {
        return Ok(state);
    }
    let versions = format!("SELECT version, oldest FROM {history} ORDER BY version DESC LIMIT 1");
    if let Some(row) = client.query_opt(&versions, &[]).await? {
        (state.version, state.oldest) = (row.get(0), row.get(1));
    }
    Ok(state)
}

async fn migrate_schema(pool: &Pool, budget: RetryBudget) -> Result<SchemaState, StoreError> {
    let (is_distributed, state) = migrate_tables(pool, budget).await?;
    // The functions of a new version are distributed like those of the earlier ones.
    if is_distributed {
        distribute(pool, budget).await?;
    }
    Ok(state)
}

/// Applies all missing versions. Returns true if the tables are distributed.
async fn migrate_tables(
    pool: &Pool,
    budget: RetryBudget,
) -> Result<(bool, SchemaState), StoreError> {
    retry!(budget, _, {
        // A migration may take long, and it may wait for another process that migrates.
        let client = pool.client().await?.with_limit(Duration::MAX);
        let brought = migrate_in_transaction(&client, pool).await;
        // The connection returns to the pool, so it must not keep an open transaction.
        if brought.is_err() {
            client.batch("ROLLBACK").await?;
        }
        let state = brought.map_err(|trouble| match trouble {
            PgError::Denied(reason) => PgError::Final(StoreError::Setup(format!(
                "its tables cannot be created: {reason}. Let the role create in the database (GRANT CREATE ON \
                 DATABASE), or let its owner run what `palimpsest schema print` prints"
            ))),
            trouble => trouble,
        })?;
        Ok((distribution::is_on(&client, pool.schema()).await?, state))
    })
}

/// Applies all missing versions in one transaction. An advisory lock prevents concurrent migrations.
async fn migrate_in_transaction(client: &Client, pool: &Pool) -> Result<SchemaState, PgError> {
    // `SET LOCAL` ends with the transaction, so the pooled connection keeps its limits.
    let begin = format!(
        "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock({LOCK})"
    );
    client.batch(&begin).await?;
    // Read after the lock was taken: another process may have migrated while this one waited.
    let state = read_state(client, pool).await?;
    state.newer()?;
    let mut statements = String::new();
    if state.version == 0 {
        // If the schema exists, the role does not need the right to create one.
        let exists = client
            .query_opt("SELECT to_regnamespace($1) IS NOT NULL", &[&pool.schema()])
            .await?;
        tracing::info!(schema = pool.schema(), "making the tables");
        if !exists.is_some_and(|row| row.get(0)) {
            statements.push_str("CREATE SCHEMA {schema};");
        }
        statements.push_str(HISTORY);
        statements.push(';');
    }
    // All versions are sent as one batch within the transaction.
    // Versions are numbered from 1 without gaps, so the version is also the number of entries to skip.
    let mut version = state.version;
    for next in VERSIONS
        .iter()
        .skip(usize::try_from(version).unwrap_or_default())
    {
        version += 1;
        let _ = write!(
            statements,
            "{};INSERT INTO {{schema}}.versions (version, oldest) VALUES ({version}, {});",
            next.statements, next.oldest
        );
        tracing::info!(version, "changing the tables");
    }
    client.batch(&filled(&statements, pool.schema())).await?;
    let state = read_state(client, pool).await?;
    client.batch("COMMIT").await?;
    Ok(state)
}

/// Selects a right on a table or on a function that the role lacks. $1 schema, $2 tables, $3 functions. Only migrations
/// write the history, and another role may run them.
const LACKING: &str = "SELECT needed.privilege, needed.object FROM (
         SELECT rights.privilege AS privilege, format('%s.%s', $1::text, tables.name) AS object,
             has_table_privilege(format('%s.%s', $1::text, tables.name), rights.privilege) AS has
         FROM unnest($2::text[]) AS tables(name)
         CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS rights(privilege)
         WHERE tables.name <> 'versions' OR rights.privilege = 'SELECT'
         UNION ALL
         SELECT 'EXECUTE', format('FUNCTION %s.%s', $1::text, functions.name),
             (SELECT bool_and(has_function_privilege(oid, 'EXECUTE')) FROM pg_catalog.pg_proc
                 WHERE pronamespace = to_regnamespace($1) AND proname = functions.name)
         FROM unnest($3::text[]) AS functions(name)) AS needed
     WHERE needed.has IS NOT TRUE
     ORDER BY array_position(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'EXECUTE'], needed.privilege), needed.object
     LIMIT 1";

/// Verifies the rights of the role and the settings on which durability depends.
async fn check_privileges(client: &Client, pool: &Pool) -> Result<(), PgError> {
    let (tables, functions): (&[&str], &[&str]) = (&TABLES, &FUNCTIONS);
    let lacking = client
        .query_opt(LACKING, &[&pool.schema(), &tables, &functions])
        .await?;
    if let Some(row) = lacking {
        let (right, object): (String, String) = (row.get("privilege"), row.get("object"));
        return Err(PgError::Final(StoreError::Setup(format!(
            "the role may not {right} on {object}: GRANT {right} ON {object} to it"
        ))));
    }
    Ok(pool.durability().check()?)
}
