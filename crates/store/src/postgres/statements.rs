//! The SQL statements that address one session by its key, with a placeholder for the schema. `part_statements` has the
//! statements about all sessions.
//!
//! All changes of sessions are functions, which the schema contains. A database that distributes the tables by their
//! keys runs a call of a function on the node with the key, as one local transaction.

/// The columns of a head. `read::head_of` decodes them.
pub(super) const HEAD: &str = "key, incarnation, revision, token, summary, snapshot_at, snapshot_bytes, log_bytes, \
                               snapshot_log_bytes, blob_bytes, due, lease_owner, lease_until";

pub(super) const TOMBSTONE: &str = "key, incarnation, deleted_at, lease_owner, lease_until";

/// The condition of the statement that confirms earlier commits. It makes the commit of the transaction durable, as in
/// the functions of the schema.
const DURABLE: &str = "(SELECT set_config(
             'synchronous_commit',
             CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
                 ELSE current_setting('synchronous_commit') END,
             true)) IS NOT NULL";

/// Selects the names of server settings that are off although durability depends on them. A transaction
/// cannot set them.
const UNSAFE_SETTINGS: &str = "SELECT string_agg(name, ' and ' ORDER BY name) FROM pg_settings
             WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'";

macro_rules! statements {
    ($($name:ident: $text:literal;)*) => {
        #[cfg(test)]
        impl Statements {
            pub(super) fn all(&self) -> Vec<(&'static str, &str)> {
                vec![$((stringify!($name), self.$name.as_str()),)*]
            }
        }

        /// The statements of one store, for its schema.
        #[derive(Debug)]
        pub(super) struct Statements {
            $(pub(super) $name: String,)*
        }

        impl Statements {
            /// Creates the statements for a schema. The name must be quoted.
            pub(super) fn new(schema: &str) -> Self {
                let of = |text: &str| {
                    text.replace("{schema}", schema)
                        .replace("{head}", HEAD)
                        .replace("{tombstone}", TOMBSTONE)
                        .replace("{durable}", DURABLE)
                        .replace("{unsafe_settings}", UNSAFE_SETTINGS)
                };
                Self {
                    $($name: of($text),)*
                }
            }
        }
    };
}

statements! {
    head: "SELECT {head} FROM {schema}.sessions WHERE key = $1 AND deleted_at IS NULL";
    // Commits a record without effect. Its commit waits like each acknowledged change, until the standbys have the log up
    // to it.
    confirm: "SELECT pg_logical_emit_message(true, 'palimpsest', 'confirm') WHERE {durable}";
    // Tells a rejected caller the current position.
    stands: "SELECT incarnation, revision, deleted_at FROM {schema}.sessions WHERE key = $1";
    // $1 key, $2 incarnation, $3 expected revision, $4 expected token, $5 new token, $6 events, $7 frame, $8 blob size,
    // $9 list row, $10 true if the due time changes, $11 due time, $12 new files, $13 project, $14 scope, $15 tips,
    // $16 key of the parent, empty without one.
    append: "SELECT {schema}.append_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
    frame_is: "SELECT 1 FROM {schema}.frames
         WHERE key = $1 AND incarnation = $2 AND last = $3 AND token = $4";
    // $1 key, $2 incarnation, $3 revision, $4 maximum bytes, $5 token at the revision. Returns the first
    // frame in any case, and then all that fit. `log_bytes` is the end of a frame in the log.
    // The rows of a deleted session stay until `forget`, so `EXISTS` hides them. The limit bounds a read of many small
    // frames.
    frames: "SELECT last, events, bytes FROM (
             SELECT last, events, bytes, log_bytes,
                 first_value(log_bytes - octet_length(bytes)) OVER by_revision AS before,
                 row_number() OVER by_revision AS number
             FROM (
                 SELECT last, events, bytes, log_bytes FROM {schema}.frames
                 WHERE key = $1 AND incarnation = $2 AND last > $3
                     AND EXISTS (
                         SELECT 1 FROM {schema}.sessions
                         WHERE key = $1 AND incarnation = $2 AND deleted_at IS NULL)
                     AND ($5::bigint = 0 OR EXISTS (
                         SELECT 1 FROM {schema}.frames
                         WHERE key = $1 AND incarnation = $2 AND last = $3 AND token = $5::bigint))
                 ORDER BY last LIMIT 1024) AS next
             WINDOW by_revision AS (ORDER BY last)) AS page
         WHERE number = 1 OR log_bytes - before <= $4
         ORDER BY last";
    // $1 key, $2 incarnation, $3 revision, $4 token at the revision, $5 bytes.
    put_snapshot: "SELECT {schema}.put_snapshot($1, $2, $3, $4, $5)";
    snapshot: "SELECT at, bytes FROM {schema}.snapshots
         WHERE key = $1 AND incarnation = $2
             AND EXISTS (
                 SELECT 1 FROM {schema}.sessions
                 WHERE key = $1 AND incarnation = $2 AND deleted_at IS NULL)";
    // $1 key, $2 incarnation, $3 expected revision, $4 expected token, $5 time.
    delete: "SELECT {schema}.delete_session($1, $2, $3, $4, $5)";
    was_deleted: "SELECT 1 FROM {schema}.sessions
         WHERE key = $1 AND deleted_at = $2 AND incarnation = $3";
    tombstone: "SELECT {tombstone} FROM {schema}.sessions
         WHERE key = $1 AND deleted_at IS NOT NULL";
    // $1 key, $2 incarnation, $3 owner, $4 simulated time, $5 lease length, $6 longest lease.
    claim_removal: "SELECT {schema}.claim_removal($1, $2, $3, $4, $5, $6)";
    // $1 key, $2 incarnation, $3 owner, $4 maximum number of frames.
    forget: "SELECT {schema}.forget($1, $2, $3, $4)";
    store_id: "SELECT id FROM {schema}.identity";
    // $1 key, $2 distinct files, $3 now. Revoked intents are not changed, and one of them is returned.
    intend: "SELECT {schema}.declare_intents($1, $2, $3)";
    live: "SELECT file FROM {schema}.intents WHERE key = $1 AND file = ANY($2) AND NOT is_doomed";
    // $1 key, $2 file, $3 upper bound of the intent's time.
    doom_intent: "SELECT {schema}.revoke_intent($1, $2, $3)";
    end_intent: "SELECT {schema}.complete_intent($1, $2)";
    // $1 key, $2 owner, $3 simulated time, $4 lease length, $5 longest lease, $6 longest wait.
    claim: "SELECT {schema}.claim($1, $2, $3, $4, $5, $6)";
    // $1 key, $2 owner, $3 true if the due time changes, $4 due time.
    release: "SELECT {schema}.release($1, $2, $3, $4)";
    // $1 leader task, $2 owner, $3 simulated time, $4 lease length.
    claim_duty: "SELECT {schema}.claim_leader_task($1, $2, $3, $4)";
    canary: "WITH gone AS (
             DELETE FROM {schema}.replicas WHERE seen < now() - interval '1 day')
         INSERT INTO {schema}.replicas (name, seen) VALUES ($1, now())
         ON CONFLICT (name) DO UPDATE SET seen = excluded.seen
         RETURNING ({unsafe_settings}) AS unsafe";
    // The canary on a node of a distributed database. It writes to the log of this node alone.
    node_canary: "SELECT ({unsafe_settings}) AS unsafe, pg_logical_emit_message(true, 'palimpsest', $1) IS NULL AS is_lost";
    // Returns the server settings that endanger durability.
    unsafe_settings: "{unsafe_settings}";
}

/// Returns the append statement, for benchmarks. The comment of the statement in this file has its parameters.
pub fn append_statement(schema: &str) -> String {
    Statements::new(&super::pool::quoted(schema)).append
}
