-- One row per session: its position, its sizes, its list row and its due time for the worker. The row of a deleted
-- session is its tombstone. The key is project!session, which sorts like the pair of both names.
CREATE TABLE {schema}.sessions (
    key text COLLATE "C" PRIMARY KEY,
    -- Distinguishes the session from earlier sessions with the same name.
    incarnation bigint NOT NULL,
    revision bigint NOT NULL,
    -- The token of the last append, equal to the token in its frame. A process that reached the same revision by
    -- another append detects the difference.
    token bigint NOT NULL,
    log_bytes bigint NOT NULL,
    blob_bytes bigint NOT NULL,
    snapshot_at bigint,
    snapshot_bytes bigint NOT NULL DEFAULT 0,
    -- Bytes of the log that the snapshot covers.
    snapshot_log_bytes bigint NOT NULL DEFAULT 0,
    -- Milliseconds since the Unix epoch, like all times that the service writes.
    due bigint,
    due_changes bigint NOT NULL DEFAULT 0,
    lease_owner text,
    lease_until bigint,
    lease_due_changes bigint,
    deleted_at bigint,
    summary bytea NOT NULL
) WITH (fillfactor = 80);

-- The worker's queue, ordered by the time at which a session can be claimed.
CREATE INDEX sessions_ready ON {schema}.sessions (greatest(due, lease_until), key)
    WHERE due IS NOT NULL AND deleted_at IS NULL;

CREATE INDEX sessions_deleted ON {schema}.sessions (key) WHERE deleted_at IS NOT NULL;

-- The log: one row per append. The service encodes and compresses the events.
CREATE TABLE {schema}.frames (
    key text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    -- The revision of the last event.
    last bigint NOT NULL,
    events bigint NOT NULL,
    -- Bytes of the log up to and including this frame.
    log_bytes bigint NOT NULL,
    -- Identifies the append. After a lost reply, a retry finds its own frame by the token.
    token bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (key, incarnation, last)
);
ALTER TABLE {schema}.frames ALTER COLUMN bytes SET STORAGE EXTERNAL;

CREATE TABLE {schema}.snapshots (
    key text COLLATE "C" PRIMARY KEY,
    incarnation bigint NOT NULL,
    at bigint NOT NULL,
    bytes bytea NOT NULL
);
ALTER TABLE {schema}.snapshots ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Leader tasks and the process that currently runs each of them.
CREATE TABLE {schema}.duties (
    name text COLLATE "C" PRIMARY KEY,
    owner text NOT NULL,
    until bigint NOT NULL
);

-- The processes that use the store, with the time of the last successful write check of each.
CREATE TABLE {schema}.replicas (
    name text COLLATE "C" PRIMARY KEY,
    seen timestamptz NOT NULL
);
