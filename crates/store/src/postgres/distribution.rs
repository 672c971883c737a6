//! Distribution of the tables over the nodes of a Citus database, and the check of their layout.
//!
//! All rows of a session are on one node, and so is the row of each leader task. The two tables that every start reads and
//! no process writes are copied to all nodes. The tables form a group of their own: Citus moves the shards of a group
//! together, and a move of tables with different owners has lost acknowledged writes.

use std::fmt::Write as _;

use super::error::PgError;
use super::pool::Client;
use super::row::get;
use crate::StoreError;

/// The tables whose rows are distributed, with the column that decides about the node. The first table defines the group.
pub(super) const DISTRIBUTED: [(&str, &str); 7] = [
    ("sessions", "key"),
    ("frames", "key"),
    ("snapshots", "key"),
    ("intents", "key"),
    ("tips", "key"),
    ("duties", "name"),
    ("replicas", "name"),
];

/// The tables with a copy on each node.
const COPIED: [&str; 2] = ["identity", "versions"];

/// The functions of the schema. Their first parameter decides about the node.
pub(super) const FUNCTIONS: [&str; 12] = [
    "append", "put_snapshot", "delete_session", "claim_removal", "forget", "claim", "release",
    "declare_intents", "revoke_intent", "complete_intent", "claim_leader_task", "append_events",
];

/// The extension that distributes tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Citus, on each node of the database.
    Citus,
}

const INSTALLED: &str = "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL";

const TABLES: &str = "SELECT tables.relname::text AS name, pg_get_userbyid(tables.relowner)::text AS owner,
         place.partmethod::text AS method, place.repmodel::text AS copies, place.colocationid AS colocation,
         column_to_column_name(place.logicalrelid, place.partkey) AS column
     FROM pg_catalog.pg_class AS tables
     LEFT JOIN pg_catalog.pg_dist_partition AS place ON place.logicalrelid = tables.oid
     WHERE tables.relnamespace = to_regnamespace($1) AND tables.relname = ANY($2)";

const SIGNATURES: &str = "SELECT procedure.oid::regprocedure::text AS signature,
         pg_get_userbyid(procedure.proowner)::text AS owner,
         object.colocationid IS NOT DISTINCT FROM $3 AND object.distribution_argument_index = 0
             AND 'plan_cache_mode=force_custom_plan' = ANY(procedure.proconfig) AS is_distributed
     FROM pg_catalog.pg_proc AS procedure
     LEFT JOIN pg_catalog.pg_dist_object AS object
         ON object.classid = 'pg_catalog.pg_proc'::regclass AND object.objid = procedure.oid
     WHERE procedure.pronamespace = to_regnamespace($1) AND procedure.proname = ANY($2)
     ORDER BY 1";

/// Other tables whose shards Citus moves together with those of a group.
const STRANGERS: &str = "SELECT string_agg(place.logicalrelid::regclass::text, ', ') AS names
     FROM pg_catalog.pg_dist_partition AS place
     JOIN pg_catalog.pg_class AS tables ON tables.oid = place.logicalrelid
     WHERE place.colocationid = $1
         AND NOT (tables.relnamespace = to_regnamespace($2) AND tables.relname = ANY($3))";

const NODES: &str = "SELECT count(*) FILTER (WHERE shouldhaveshards) AS with_shards,
         string_agg(nodename || ':' || nodeport, ', ') FILTER (WHERE NOT (hasmetadata AND metadatasynced)) AS ignorant
     FROM pg_catalog.pg_dist_node WHERE noderole = 'primary' AND isactive";

/// A table with its layout.
#[derive(Debug)]
struct Table {
    name: String,
    owner: String,
    /// `h` is distributed by a hash, `n` is not distributed by a column. `None` is a table of one node.
    method: Option<String>,
    is_copied: bool,
    colocation: Option<i32>,
    column: Option<String>,
}

/// A function of the schema with its layout.
#[derive(Debug)]
struct Function {
    signature: String,
    owner: String,
    is_distributed: bool,
}

/// Returns true if any of the tables is distributed. The name of the schema must be quoted, as in all functions.
pub(super) async fn is_on(client: &Client, schema: &str) -> Result<bool, PgError> {
    let tables = tables(client, schema).await?;
    Ok(tables.iter().any(|table| table.method.is_some()))
}

/// Fails if the tables are distributed in another way than [`distribute`] does. Returns true if they are distributed.
pub(super) async fn check(client: &Client, schema: &str) -> Result<bool, PgError> {
    let tables = tables(client, schema).await?;
    if tables.iter().all(|table| table.method.is_none()) {
        return Ok(false);
    }
    let group = tables.iter().find(|table| table.name == "sessions");
    let (group, owner) = group.map_or((None, ""), |table| (table.colocation, &*table.owner));
    for table in &tables {
        let name = &table.name;
        if !has_its_layout(table) {
            return Err(wrong(&format!("`{name}` is not distributed as it must be")));
        }
        if !COPIED.contains(&&**name) && table.colocation != group {
            return Err(wrong(&format!(
                "`{name}` and `sessions` are in different groups"
            )));
        }
    }
    let functions = functions(client, schema, group).await?;
    let others = functions
        .iter()
        .map(|function| (&function.signature, &function.owner));
    let others = tables
        .iter()
        .map(|table| (&table.name, &table.owner))
        .chain(others);
    for (name, other) in others {
        if other != owner {
            return Err(PgError::Final(StoreError::Setup(format!(
                "`{name}` belongs to {other} and `sessions` to {owner}: moves of shards have lost writes of tables \
                 with different owners. ALTER … OWNER TO {owner}"
            ))));
        }
    }
    if let Some(function) = functions.iter().find(|function| !function.is_distributed) {
        let signature = &function.signature;
        return Err(wrong(&format!(
            "the function {signature} is not distributed"
        )));
    }
    let names: Vec<_> = DISTRIBUTED.iter().map(|(name, _)| *name).collect();
    let strangers = client
        .query_opt(STRANGERS, &[&group, &schema, &names])
        .await?;
    let strangers: Option<String> = match strangers {
        Some(row) => get(&row, "names")?,
        None => None,
    };
    if let Some(strangers) = strangers {
        return Err(PgError::Final(StoreError::Setup(format!(
            "its tables share their group with {strangers}: moves of shards of such groups have lost writes. Run \
             SELECT update_distributed_table_colocation('…', colocate_with => 'none') for each of these tables"
        ))));
    }
    Ok(true)
}

fn wrong(problem: &str) -> PgError {
    PgError::Final(StoreError::Setup(format!(
        "its tables have a layout that the service cannot use: {problem}. Stop all processes and run `palimpsest schema \
         apply --distributed citus`"
    )))
}

fn has_its_layout(table: &Table) -> bool {
    let method = table.method.as_deref();
    let column = DISTRIBUTED.iter().find(|(name, _)| *name == table.name);
    match column {
        Some((_, column)) => method == Some("h") && table.column.as_deref() == Some(*column),
        None => method == Some("n") && table.is_copied,
    }
}

/// Distributes all tables and functions that are not distributed yet. Each step is a transaction of its own, and a
/// repetition continues after an interruption. Returns the number of nodes with rows.
pub(super) async fn distribute(client: &Client, schema: &str) -> Result<i64, PgError> {
    let setup = |text: &str| PgError::Final(StoreError::Setup(text.into()));
    let installed = client.query_opt(INSTALLED, &[]).await?;
    if !installed.is_some_and(|row| row.get(0)) {
        return Err(setup(
            "it has no Citus: add citus to shared_preload_libraries, and run CREATE EXTENSION citus on each node",
        ));
    }
    let group = "SELECT groupid FROM pg_catalog.pg_dist_local_group";
    let group = client.query_opt(group, &[]).await?;
    if group.is_none_or(|row| row.get::<_, i32>(0) != 0) {
        return Err(setup(
            "only the coordinator of Citus distributes tables: name it first in store.postgres.url",
        ));
    }
    for table in tables(client, schema).await? {
        if has_its_layout(&table) {
            continue;
        }
        let name = format!("{schema}.{}", table.name);
        let statements = layout_statements(schema, &name, &table);
        tracing::info!(table = name, "distributing a table");
        client.batch(&statements).await?;
    }
    let sessions = tables(client, schema).await?;
    let sessions = sessions.iter().find(|table| table.name == "sessions");
    let group = sessions.and_then(|table| table.colocation);
    for function in functions(client, schema, group).await? {
        if !function.is_distributed {
            let signature = &function.signature;
            let text = signature.replace('\'', "''");
            // Citus keeps the plans of its own connections, which have no settings of this service.
            client
                .batch(&format!(
                    "SELECT create_distributed_function('{text}', 'of_key', colocate_with => '{}.sessions');
                     ALTER FUNCTION {signature} SET plan_cache_mode = force_custom_plan",
                    schema.replace('\'', "''")
                ))
                .await?;
        }
    }
    check(client, schema).await?;
    let nodes = client.query_opt(NODES, &[]).await?;
    let nodes = nodes.ok_or_else(|| setup("it has no nodes"))?;
    if let Some(ignorant) = get::<Option<String>>(&nodes, "ignorant")? {
        return Err(setup(&format!(
            "its nodes {ignorant} have no current copy of the map: run SELECT start_metadata_sync_to_all_nodes()"
        )));
    }
    Ok(get(&nodes, "with_shards")?)
}

/// Returns the statements that give a table its layout. A table with the layout of an earlier release gets back to one node
/// first.
fn layout_statements(schema: &str, name: &str, table: &Table) -> String {
    let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let quoted = literal(name);
    let mut statements = String::new();
    if table.method.is_some() {
        let _ = write!(statements, "SELECT undistribute_table({quoted});");
    }
    let column = DISTRIBUTED.iter().find(|(name, _)| *name == table.name);
    match column {
        Some((first, column)) => {
            let group = if *first == DISTRIBUTED[0].0 {
                "'none'".to_owned()
            } else {
                literal(&format!("{schema}.{}", DISTRIBUTED[0].0))
            };
            let _ = write!(
                statements,
                "SELECT create_distributed_table({quoted}, '{column}', colocate_with => {group});"
            );
        }
        None => {
            let _ = write!(statements, "SELECT create_reference_table({quoted});");
        }
    }
    // The rows are copied to the nodes, and those of the coordinator would stay without effect.
    let _ = write!(
        statements,
        "SELECT truncate_local_data_after_distributing_table({quoted})"
    );
    statements
}

/// Returns the tables in the order in which they are distributed.
async fn tables(client: &Client, schema: &str) -> Result<Vec<Table>, PgError> {
    let installed = client.query_opt(INSTALLED, &[]).await?;
    if !installed.is_some_and(|row| row.get(0)) {
        return Ok(Vec::new());
    }
    let distributed = DISTRIBUTED.iter().map(|(name, _)| *name);
    let names: Vec<&str> = distributed.chain(COPIED).collect();
    let rows = client.query(TABLES, &[&schema, &names]).await?;
    let tables = rows.iter().map(|row| {
        Ok(Table {
            name: get(row, "name")?,
            owner: get(row, "owner")?,
            method: get(row, "method")?,
            is_copied: get::<Option<String>>(row, "copies")?.as_deref() == Some("t"),
            colocation: get(row, "colocation")?,
            column: get(row, "column")?,
        })
    });
    let mut tables = tables.collect::<Result<Vec<_>, StoreError>>()?;
    tables.sort_by_key(|table| names.iter().position(|name| *name == table.name));
    Ok(tables)
}

async fn functions(
    client: &Client,
    schema: &str,
    group: Option<i32>,
) -> Result<Vec<Function>, PgError> {
    let names: &[&str] = &FUNCTIONS;
    let rows = client.query(SIGNATURES, &[&schema, &names, &group]).await?;
    let functions = rows.iter().map(|row| {
        Ok(Function {
            signature: get(row, "signature")?,
            owner: get(row, "owner")?,
            is_distributed: get::<Option<bool>>(row, "is_distributed")?.unwrap_or_default(),
        })
    });
    Ok(functions.collect::<Result<_, StoreError>>()?)
}
