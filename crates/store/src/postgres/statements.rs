//! All SQL statements, with a placeholder for the schema. Except for lists, each addresses one session
//! by its key.

use crate::{LONGEST_LEASE_MS, LONGEST_WAIT_MS};

/// The columns of a head. `read::head_of` decodes them.
const HEAD: &str = "key, incarnation, revision, token, summary, snapshot_at, snapshot_bytes, log_bytes, \
                    snapshot_log_bytes, blob_bytes, due, lease_owner, lease_until";

const TOMBSTONE: &str = "key, incarnation, deleted_at, lease_owner, lease_until";

/// The time at which a session becomes ready for a worker. The index uses the same expression.
const READY: &str = "greatest(due, lease_until)";

/// A part of the condition of every acknowledged change. It makes the commit of the transaction
/// durable, whatever value the role, the database, the configuration or a pooler set for
/// `synchronous_commit`.
///
/// Stricter values than `on` are kept. `local` is raised to `on`: it does not wait for a synchronous
/// standby, so a failover would lose acknowledged changes.
const DURABLE: &str = "(SELECT set_config(
             'synchronous_commit',
             CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
                 ELSE current_setting('synchronous_commit') END,
             true)) IS NOT NULL";

/// Selects the names of server settings that are off although durability depends on them. A transaction
/// cannot set them.
const UNSAFE_SETTINGS: &str = "SELECT string_agg(name, ' and ' ORDER BY name) FROM pg_settings
             WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'";

/// The time of a statement about leases and due times, in milliseconds. $1 is null, so it is the database clock: a
/// process with a wrong clock, ahead or behind, takes no leases from others. Tests with simulated time pass $1.
const NOW: &str = "coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)";

/// As [`NOW`], for lists. The time does not change during a statement, so the list can use an index.
const LIST_TIME: &str =
    "coalesce($1::bigint, (extract(epoch FROM statement_timestamp()) * 1000)::bigint)";

/// True if no valid lease exists: there is none, it expired, or it exceeds the maximum length because
/// of a wrong clock.
const FREE: &str =
    "(lease_until IS NULL OR lease_until <= {at} OR lease_until > {at} + {longest_lease})";

/// True if a worker ($3) may take a session. That is the case if no worker has had it, this worker had it
/// last, or its last lease was never released. It is also the case if the session became ready before a
/// time ($4).
const ITS: &str =
    "(lease_owner IS NULL OR lease_owner = $3 OR lease_until IS NOT NULL OR {ready} < $4)";

/// The insertion of a session's row by its first append.
const ADD_SESSION: &str = "INSERT INTO {schema}.sessions
                 (key, incarnation, revision, token, log_bytes, blob_bytes, summary, due, due_changes)";

/// Advances a session's head by one append if it is at the expected position.
const ADVANCE: &str = "UPDATE {schema}.sessions SET
                 revision = revision + $4,
                 token = $3,
                 log_bytes = log_bytes + $5,
                 blob_bytes = blob_bytes + $6,
                 summary = $7,
                 due = CASE
                     WHEN $8 AND lease_until IS NULL AND due < $9::bigint THEN due
                     WHEN $8 THEN $9::bigint
                     ELSE due END,
                 due_changes = due_changes + $8::bool::int
             WHERE key = $1 AND incarnation = $2 AND revision = $11 AND $12::bigint IN (0, token)
                 AND deleted_at IS NULL";

/// Inserts the frame of an append after its head was changed.
const ADD_FRAME: &str =
    "INSERT INTO {schema}.frames (key, incarnation, last, events, log_bytes, token, bytes)
         SELECT $1, $2::bigint, revision, $4::bigint, log_bytes, $3::bigint, $10::bytea FROM head
         WHERE {durable}";

/// Replaces the tips of a session after its head was changed. A tip that stays keeps its number. The tips of an earlier
/// session of this name, which an earlier release deleted, leave too. `{p}` is the project, `{s}` the scope, and `{d}`
/// the tips.
const SET_TIPS: &str = "left_tips AS (
             DELETE FROM {schema}.tips USING head
             WHERE key = $1 AND (incarnation <> $2 OR scope <> {s}::bytea OR NOT digest = ANY({d}::bytea[]))),
         new_tips AS (
             INSERT INTO {schema}.tips (key, incarnation, project, scope, digest)
             SELECT $1, $2::bigint, {p}::text, {s}::bytea, given.digest
             FROM head, unnest({d}::bytea[]) WITH ORDINALITY AS given(digest, place)
             WHERE NOT EXISTS (
                 SELECT 1 FROM {schema}.tips AS has
                 WHERE has.key = $1 AND has.incarnation = $2 AND has.scope = {s}::bytea
                     AND has.digest = given.digest)
             ORDER BY given.place)";

/// Returns [`SET_TIPS`] with the numbers of its parameters. `first` is the number of the project.
fn set_tips(first: u32) -> String {
    SET_TIPS
        .replace("{p}", &format!("${first}"))
        .replace("{s}", &format!("${}", first + 1))
        .replace("{d}", &format!("${}", first + 2))
}

macro_rules! statements {
    ($($name:ident: $text:literal;)*) => {
        #[cfg(test)]
        impl Statements {
            fn all(&self) -> Vec<(&'static str, &str)> {
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
                let longest_lease = LONGEST_LEASE_MS.to_string();
                let longest_wait = LONGEST_WAIT_MS.to_string();
                // The order matters: fragments may contain other placeholders, which are replaced later.
                let of = |text: &str| {
                    text.replace("{tips_11}", &set_tips(11))
                        .replace("{tips_12}", &set_tips(12))
                        .replace("{tips_13}", &set_tips(13))
                        .replace("{tips_14}", &set_tips(14))
                        .replace("{add_session}", ADD_SESSION)
                        .replace("{advance}", ADVANCE)
                        .replace("{add_frame}", ADD_FRAME)
                        .replace("{schema}", schema)
                        .replace("{head}", HEAD)
                        .replace("{tombstone}", TOMBSTONE)
                        .replace("{its}", ITS)
                        .replace("{ready}", READY)
                        .replace("{durable}", DURABLE)
                        .replace("{unsafe_settings}", UNSAFE_SETTINGS)
                        .replace("{free}", FREE)
                        .replace("{longest_lease}", &longest_lease)
                        .replace("{longest_wait}", &longest_wait)
                        .replace("{list_time}", LIST_TIME)
                        .replace("{at}", NOW)
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
    // $1 key, $2 incarnation, $3 token, $4 events, $5 frame size, $6 blob size, $7 list row.
    // $8 true if the due time changes, $9 due time, $10 frame.
    create: "WITH head AS (
             {add_session}
             VALUES ($1, $2, $4, $3, $5, $6, $7, $9::bigint, $8::bool::int)
             ON CONFLICT (key) DO NOTHING
             RETURNING revision, log_bytes)
         {add_frame}";
    // As `create`. $11 project, $12 scope, $13 tips.
    create_found: "WITH head AS (
             {add_session}
             VALUES ($1, $2, $4, $3, $5, $6, $7, $9::bigint, $8::bool::int)
             ON CONFLICT (key) DO NOTHING
             RETURNING revision, log_bytes),
         {tips_11}
         {add_frame}";
    // As `create`. $11 expected revision, $12 expected token.
    append: "WITH head AS (
             {advance}
             RETURNING revision, log_bytes)
         {add_frame}";
    // As `append`. $13 project, $14 scope, $15 tips.
    append_found: "WITH head AS (
             {advance}
             RETURNING revision, log_bytes),
         {tips_13}
         {add_frame}";
    // As `create`. $11 new files. The append fails if one of them has no live intent.
    // `FOR UPDATE` keeps a sweep from revoking an intent before the commit. `USING head` ends intents only with the
    // append.
    create_naming: "WITH wanted AS (
             SELECT file FROM {schema}.intents
             WHERE key = $1 AND file = ANY($11::text[]) AND NOT is_doomed FOR UPDATE),
         head AS (
             {add_session}
             SELECT $1, $2, $4, $3, $5, $6, $7, $9::bigint, $8::bool::int
             WHERE (SELECT count(*) FROM wanted) = cardinality($11::text[])
             ON CONFLICT (key) DO NOTHING
             RETURNING revision, log_bytes),
         settled AS (
             DELETE FROM {schema}.intents USING head
             WHERE key = $1 AND file = ANY($11::text[]))
         {add_frame}";
    // As `create_naming`. $12 project, $13 scope, $14 tips.
    create_naming_found: "WITH wanted AS (
             SELECT file FROM {schema}.intents
             WHERE key = $1 AND file = ANY($11::text[]) AND NOT is_doomed FOR UPDATE),
         head AS (
             {add_session}
             SELECT $1, $2, $4, $3, $5, $6, $7, $9::bigint, $8::bool::int
             WHERE (SELECT count(*) FROM wanted) = cardinality($11::text[])
             ON CONFLICT (key) DO NOTHING
             RETURNING revision, log_bytes),
         settled AS (
             DELETE FROM {schema}.intents USING head
             WHERE key = $1 AND file = ANY($11::text[])),
         {tips_12}
         {add_frame}";
    // As `append`. $13 new files.
    append_naming: "WITH wanted AS (
             SELECT file FROM {schema}.intents
             WHERE key = $1 AND file = ANY($13::text[]) AND NOT is_doomed FOR UPDATE),
         head AS (
             {advance}
                 AND (SELECT count(*) FROM wanted) = cardinality($13::text[])
             RETURNING revision, log_bytes),
         settled AS (
             DELETE FROM {schema}.intents USING head
             WHERE key = $1 AND file = ANY($13::text[]))
         {add_frame}";
    // As `append_naming`. $14 project, $15 scope, $16 tips.
    append_naming_found: "WITH wanted AS (
             SELECT file FROM {schema}.intents
             WHERE key = $1 AND file = ANY($13::text[]) AND NOT is_doomed FOR UPDATE),
         head AS (
             {advance}
                 AND (SELECT count(*) FROM wanted) = cardinality($13::text[])
             RETURNING revision, log_bytes),
         settled AS (
             DELETE FROM {schema}.intents USING head
             WHERE key = $1 AND file = ANY($13::text[])),
         {tips_14}
         {add_frame}";
    // $1 project, $2 scope, $3 digests in order of preference. For each digest, the index gives the latest session.
    find_by_tip: "SELECT found.key FROM unnest($3::bytea[]) WITH ORDINALITY AS given(digest, place)
         CROSS JOIN LATERAL (
             SELECT tips.key FROM {schema}.tips AS tips
             WHERE tips.project = $1 AND tips.scope = $2 AND tips.digest = given.digest
                 AND EXISTS (
                     SELECT 1 FROM {schema}.sessions AS live
                     WHERE live.key = tips.key AND live.incarnation = tips.incarnation
                         AND live.deleted_at IS NULL)
             ORDER BY tips.number DESC LIMIT 1) AS found
         ORDER BY given.place LIMIT 1";
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
    // $1 key, $2 incarnation, $3 revision, $4 size, $5 bytes, $6 token at the revision.
    put_snapshot: "WITH head AS (
             UPDATE {schema}.sessions SET
                 snapshot_at = $3,
                 snapshot_bytes = $4,
                 snapshot_log_bytes = coalesce((
                     SELECT log_bytes FROM {schema}.frames
                     WHERE key = $1 AND incarnation = $2 AND last <= $3
                     ORDER BY last DESC LIMIT 1), 0)
             WHERE key = $1 AND incarnation = $2 AND deleted_at IS NULL
                 AND revision >= $3 AND coalesce(snapshot_at, 0) <= $3
                 AND ($6::bigint = 0 OR EXISTS (
                     SELECT 1 FROM {schema}.frames
                     WHERE key = $1 AND incarnation = $2 AND last = $3 AND token = $6::bigint))
             RETURNING key)
         INSERT INTO {schema}.snapshots AS kept (key, incarnation, at, bytes)
         SELECT $1, $2::bigint, $3::bigint, $5::bytea FROM head
         WHERE {durable}
         ON CONFLICT (key) DO UPDATE SET
             incarnation = excluded.incarnation, at = excluded.at, bytes = excluded.bytes";
    snapshot: "SELECT at, bytes FROM {schema}.snapshots
         WHERE key = $1 AND incarnation = $2
             AND EXISTS (
                 SELECT 1 FROM {schema}.sessions
                 WHERE key = $1 AND incarnation = $2 AND deleted_at IS NULL)";
    list: "SELECT {head} FROM {schema}.sessions
         WHERE key > $1 AND key < $2 AND deleted_at IS NULL
         ORDER BY key LIMIT $3";
    // $1 key, $2 time, $3 incarnation, $4 expected revision, $5 expected token.
    delete: "UPDATE {schema}.sessions SET deleted_at = $2, due = NULL
         WHERE key = $1 AND incarnation = $3 AND revision = $4 AND $5::bigint IN (0, token)
             AND deleted_at IS NULL AND {durable}";
    forget_tips: "DELETE FROM {schema}.tips WHERE key = $1 AND incarnation = $2 AND {durable}";
    was_deleted: "SELECT 1 FROM {schema}.sessions
         WHERE key = $1 AND deleted_at = $2 AND incarnation = $3";
    tombstone: "SELECT {tombstone} FROM {schema}.sessions
         WHERE key = $1 AND deleted_at IS NOT NULL";
    tombstones: "SELECT {tombstone} FROM {schema}.sessions
         WHERE key > $1 AND deleted_at IS NOT NULL
         ORDER BY key LIMIT $2";
    // $1 simulated time, $2 key, $3 incarnation, $4 owner, $5 lease length.
    claim_removal: "UPDATE {schema}.sessions SET lease_owner = $4, lease_until = {at} + $5
         WHERE key = $2 AND incarnation = $3 AND deleted_at IS NOT NULL
             AND (lease_owner = $4 OR {free}) AND {durable}";
    forget_frames: "DELETE FROM {schema}.frames
         WHERE key = $1 AND incarnation = $2 AND last <= coalesce((
             SELECT max(last) FROM (
                 SELECT last FROM {schema}.frames
                 WHERE key = $1 AND incarnation = $2
                 ORDER BY last LIMIT $3) AS next), 0)
             AND {durable}";
    forget_snapshot: "DELETE FROM {schema}.snapshots
         WHERE key = $1 AND incarnation = $2 AND {durable}";
    // $3 owner. A claim of another owner prevents the removal.
    forget: "DELETE FROM {schema}.sessions
         WHERE key = $1 AND incarnation = $2 AND deleted_at IS NOT NULL
             AND (lease_until IS NULL OR lease_owner = $3) AND {durable}";
    store_id: "SELECT id FROM {schema}.identity";
    // $1 key, $2 distinct files, $3 now. Revoked intents are not changed and not counted.
    intend: "INSERT INTO {schema}.intents AS has (key, file, at)
         SELECT $1, file, $3 FROM unnest($2::text[]) AS file WHERE {durable} ORDER BY file
         ON CONFLICT (key, file) DO UPDATE SET at = excluded.at WHERE NOT has.is_doomed";
    doomed: "SELECT file FROM {schema}.intents WHERE key = $1 AND file = ANY($2) AND is_doomed LIMIT 1";
    live: "SELECT file FROM {schema}.intents WHERE key = $1 AND file = ANY($2) AND NOT is_doomed";
    // $1 key and $2 file to start after, $3 limit.
    intents: "SELECT key, file, at, is_doomed FROM {schema}.intents
         WHERE (key, file) > ($1, $2) ORDER BY key, file LIMIT $3";
    // $1 key, $2 file, $3 upper bound of the intent's time.
    doom_intent: "UPDATE {schema}.intents SET is_doomed = true
         WHERE key = $1 AND file = $2 AND (is_doomed OR at < $3) AND {durable}";
    end_intent: "DELETE FROM {schema}.intents WHERE key = $1 AND file = $2 AND {durable}";
    // $1 simulated time, $2 limit, $3 worker, $4 time before which sessions of other workers are included. The second
    // part finds sessions with a time that a wrong clock set. Any worker may take them, because the previous one may
    // be gone.
    due: "SELECT key, due, revision FROM (
             (SELECT key, due, revision, {ready} AS ready FROM {schema}.sessions
                 WHERE due IS NOT NULL AND deleted_at IS NULL AND {ready} <= {list_time} AND {free} AND {its}
                 ORDER BY {ready}, key LIMIT $2)
             UNION ALL
             (SELECT key, due, revision, {ready} AS ready FROM {schema}.sessions
                 WHERE due IS NOT NULL AND deleted_at IS NULL AND {ready} > {list_time} + {longest_wait}
                     AND (due <= {list_time} OR due > {list_time} + {longest_wait}) AND {free}
                 ORDER BY {ready}, key LIMIT $2)) AS waiting
         ORDER BY ready, key LIMIT $2";
    // As `due`. $5 limit per project.
    due_of_each: "SELECT key, due, revision FROM (
             SELECT key, due, revision, {ready} AS ready,
                 row_number() OVER (
                     PARTITION BY split_part(key, '!', 1) ORDER BY {ready}, key) AS number
             FROM {schema}.sessions
             WHERE due IS NOT NULL AND deleted_at IS NULL AND {free}
                 AND ({ready} <= {list_time} AND {its}
                     OR {ready} > {list_time} + {longest_wait}
                         AND (due <= {list_time} OR due > {list_time} + {longest_wait}))) AS waiting
         WHERE number <= $5
         ORDER BY ready, key LIMIT $2";
    // $1 simulated time, $2 key, $3 owner, $4 lease length.
    // A renewal keeps `lease_due_changes`, because the holder has not seen later changes.
    claim: "UPDATE {schema}.sessions SET
             lease_owner = $3,
             lease_until = {at} + $4,
             lease_due_changes = CASE
                 WHEN lease_owner = $3 AND lease_until > {at} THEN lease_due_changes
                 ELSE due_changes END
         WHERE key = $2 AND deleted_at IS NULL
             AND (lease_owner = $3 AND lease_until > {at}
                 OR {free} AND (due <= {at} OR due > {at} + {longest_wait}))
             AND {durable}";
    // $1 key, $2 owner, $3 true if the due time changes, $4 due time. The owner remains in the row, so
    // that `due` can prefer it.
    release: "UPDATE {schema}.sessions SET
             lease_until = NULL, lease_due_changes = NULL,
             due = CASE
                 WHEN $3 AND lease_due_changes = due_changes AND deleted_at IS NULL THEN $4
                 ELSE due END
         WHERE key = $1 AND lease_owner = $2 AND lease_until IS NOT NULL AND {durable}";
    // $1 simulated time, $2 leader task, $3 owner, $4 lease length.
    claim_duty: "INSERT INTO {schema}.duties AS has (name, owner, until)
         SELECT $2, $3, {at} + $4 WHERE {durable}
         ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
         WHERE has.owner = $3 OR has.until <= {at} OR has.until > {at} + 2 * $4";
    usage: "SELECT count(*) AS sessions,
             coalesce(sum(log_bytes + snapshot_bytes + blob_bytes), 0)::bigint AS bytes
         FROM {schema}.sessions
         WHERE key > $1 AND key < $2 AND deleted_at IS NULL";
    canary: "WITH gone AS (
             DELETE FROM {schema}.replicas WHERE seen < now() - interval '1 day')
         INSERT INTO {schema}.replicas (name, seen) VALUES ($1, now())
         ON CONFLICT (name) DO UPDATE SET seen = now()
         RETURNING ({unsafe_settings}) AS unsafe";
    // Returns the server settings that endanger durability.
    unsafe_settings: "{unsafe_settings}";
}

/// Returns the append statement, for benchmarks.
pub fn append_statement(schema: &str) -> String {
    Statements::new(&super::pool::quoted(schema)).append
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_acknowledged_change_requests_a_durable_commit() {
        let statements = Statements::new("s");
        let changes = |text: &&str| {
            ["INSERT", "UPDATE", "DELETE"]
                .iter()
                .any(|word| text.contains(word))
        };
        let all = statements.all();
        // A lost canary does no harm, so it needs no durable commit.
        let changes: Vec<_> = all
            .into_iter()
            .filter(|(name, text)| changes(text) && *name != "canary")
            .collect();
        assert!(changes.len() > 8, "{changes:?}");
        for (name, text) in changes {
            assert!(text.contains(DURABLE), "{name}");
        }
    }
}
