//! Every statement, with the schema's name in it. Each names one session by its key, except those that list.

/// What readers of a head select; `read::head_of` takes it apart.
const HEAD: &str = "key, incarnation, revision, token, summary, snapshot_at, snapshot_bytes, log_bytes, \
                    snapshot_log_bytes, blob_bytes, due, lease_owner, lease_until";

/// What readers of a tombstone select.
const TOMBSTONE: &str = "key, incarnation, deleted_at, lease_owner, lease_until";

/// When a session is ready for a worker; as in the index that finds it.
const READY: &str = "greatest(due, lease_until)";

/// Whether a session is one that a worker ($3) takes up: one that nobody has had, that it had last, that was never given
/// back, or that has been ready since before a time ($4).
const ITS: &str =
    "(lease_owner IS NULL OR lease_owner = $3 OR lease_until IS NOT NULL OR {ready} < $4)";

macro_rules! statements {
    ($($name:ident: $text:literal;)*) => {
        /// The statements of one store.
        #[derive(Debug)]
        pub(super) struct Statements {
            $(pub(super) $name: String,)*
        }

        impl Statements {
            /// For the tables of a schema, whose name is quoted already.
            pub(super) fn new(schema: &str) -> Self {
                let of = |text: &str| {
                    text.replace("{schema}", schema)
                        .replace("{head}", HEAD)
                        .replace("{tombstone}", TOMBSTONE)
                        .replace("{its}", ITS)
                        .replace("{ready}", READY)
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
    // Whoever was refused learns by what.
    stands: "SELECT incarnation, revision, deleted_at FROM {schema}.sessions WHERE key = $1";
    // $1 key, $2 incarnation, $3 token, $4 events, $5 bytes of the frame, $6 bytes of blobs, $7 summary,
    // $8 whether it says when it is due, $9 when, $10 the frame.
    create: "WITH head AS (
             INSERT INTO {schema}.sessions
                 (key, incarnation, revision, token, log_bytes, blob_bytes, summary, due, due_changes)
             VALUES ($1, $2, $4, $3, $5, $6, $7, $9::bigint, $8::bool::int)
             ON CONFLICT (key) DO NOTHING
             RETURNING revision, log_bytes)
         INSERT INTO {schema}.frames (key, incarnation, last, events, log_bytes, token, bytes)
         SELECT $1, $2::bigint, revision, $4::bigint, log_bytes, $3::bigint, $10::bytea FROM head";
    // The same, and $11 the revision that it was decided on, and $12 the token there.
    append: "WITH head AS (
             UPDATE {schema}.sessions SET
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
                 AND deleted_at IS NULL
             RETURNING revision, log_bytes)
         INSERT INTO {schema}.frames (key, incarnation, last, events, log_bytes, token, bytes)
         SELECT $1, $2::bigint, revision, $4::bigint, log_bytes, $3::bigint, $10::bytea FROM head";
    frame_is: "SELECT 1 FROM {schema}.frames
         WHERE key = $1 AND incarnation = $2 AND last = $3 AND token = $4";
    // $1 key, $2 incarnation, $3 revision, $4 bytes, $5 the token there.
    // The first frame in any case, then as many as fit: where each ends in the log, its row says.
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
    // $1 key, $2 incarnation, $3 revision, $4 size, $5 bytes, $6 the token there.
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
    // $1 key, $2 when, $3 incarnation, $4 revision, $5 the token there.
    delete: "UPDATE {schema}.sessions SET deleted_at = $2, due = NULL
         WHERE key = $1 AND incarnation = $3 AND revision = $4 AND $5::bigint IN (0, token)
             AND deleted_at IS NULL";
    was_deleted: "SELECT 1 FROM {schema}.sessions
         WHERE key = $1 AND deleted_at = $2 AND incarnation = $3";
    tombstone: "SELECT {tombstone} FROM {schema}.sessions
         WHERE key = $1 AND deleted_at IS NOT NULL";
    tombstones: "SELECT {tombstone} FROM {schema}.sessions
         WHERE key > $1 AND deleted_at IS NOT NULL
         ORDER BY key LIMIT $2";
    // $1 key, $2 incarnation, $3 owner, $4 until, $5 now.
    claim_removal: "UPDATE {schema}.sessions SET lease_owner = $3, lease_until = $4
         WHERE key = $1 AND incarnation = $2 AND deleted_at IS NOT NULL
             AND (lease_owner = $3 OR coalesce(lease_until <= $5, true))";
    forget_frames: "DELETE FROM {schema}.frames
         WHERE key = $1 AND incarnation = $2 AND last <= coalesce((
             SELECT max(last) FROM (
                 SELECT last FROM {schema}.frames
                 WHERE key = $1 AND incarnation = $2
                 ORDER BY last LIMIT $3) AS next), 0)";
    forget_snapshot: "DELETE FROM {schema}.snapshots WHERE key = $1 AND incarnation = $2";
    forget: "DELETE FROM {schema}.sessions
         WHERE key = $1 AND incarnation = $2 AND deleted_at IS NOT NULL";
    // $1 now, $2 how many, $3 for whom, $4 before when for others too.
    due: "SELECT key, due, revision FROM {schema}.sessions
         WHERE due IS NOT NULL AND deleted_at IS NULL AND {ready} <= $1 AND {its}
         ORDER BY {ready}, key LIMIT $2";
    // The same, and $5 how many of each project.
    due_of_each: "SELECT key, due, revision FROM (
             SELECT key, due, revision, {ready} AS ready,
                 row_number() OVER (
                     PARTITION BY split_part(key, '!', 1) ORDER BY {ready}, key) AS number
             FROM {schema}.sessions
             WHERE due IS NOT NULL AND deleted_at IS NULL AND {ready} <= $1 AND {its}) AS waiting
         WHERE number <= $5
         ORDER BY ready, key LIMIT $2";
    // $1 key, $2 owner, $3 until, $4 now.
    claim: "UPDATE {schema}.sessions SET
             lease_owner = $2,
             lease_until = $3,
             lease_due_changes = CASE
                 WHEN lease_owner = $2 AND lease_until > $4 THEN lease_due_changes
                 ELSE due_changes END
         WHERE key = $1 AND deleted_at IS NULL
             AND (lease_owner = $2 AND lease_until > $4
                 OR coalesce(lease_until <= $4, true) AND due <= $4)";
    // $1 key, $2 owner, $3 whether it says when it is due next, $4 when.
    // Who had it stays.
    release: "UPDATE {schema}.sessions SET
             lease_until = NULL, lease_due_changes = NULL,
             due = CASE
                 WHEN $3 AND lease_due_changes = due_changes AND deleted_at IS NULL THEN $4
                 ELSE due END
         WHERE key = $1 AND lease_owner = $2 AND lease_until IS NOT NULL";
    // $1 duty, $2 owner, $3 until, $4 now.
    claim_duty: "INSERT INTO {schema}.duties AS has (name, owner, until) VALUES ($1, $2, $3)
         ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
         WHERE has.owner = $2 OR has.until <= $4 OR has.until > 2 * $3 - $4";
    usage: "SELECT count(*) AS sessions,
             coalesce(sum(log_bytes + snapshot_bytes + blob_bytes), 0)::bigint AS bytes
         FROM {schema}.sessions
         WHERE key > $1 AND key < $2 AND deleted_at IS NULL";
    canary: "WITH gone AS (
             DELETE FROM {schema}.replicas WHERE seen < now() - interval '1 day')
         INSERT INTO {schema}.replicas (name, seen) VALUES ($1, now())
         ON CONFLICT (name) DO UPDATE SET seen = now()";
}

/// The statement of an append, for who measures it beside others.
pub fn append_statement(schema: &str) -> String {
    Statements::new(&super::pool::quoted(schema)).append
}
