-- A session: what is known of it without reading its log, its place in the worker's queue, and when it is deleted,
-- its tombstone. Its key is project!session, which sorts as the pair of names does.
CREATE TABLE {schema}.sessions (
    key text COLLATE "C" PRIMARY KEY,
    -- Tells a session from an earlier one of its name.
    incarnation bigint NOT NULL,
    revision bigint NOT NULL,
    -- The last append's, as in its frame: a process that stands at the same revision by another append is told so.
    token bigint NOT NULL,
    log_bytes bigint NOT NULL,
    blob_bytes bigint NOT NULL,
    snapshot_at bigint,
    snapshot_bytes bigint NOT NULL DEFAULT 0,
    -- How much of the log the snapshot stands for.
    snapshot_log_bytes bigint NOT NULL DEFAULT 0,
    -- Milliseconds since 1970, as all times that the service gives.
    due bigint,
    due_changes bigint NOT NULL DEFAULT 0,
    lease_owner text,
    lease_until bigint,
    lease_due_changes bigint,
    deleted_at bigint,
    summary bytea NOT NULL
) WITH (fillfactor = 80);

-- The worker's queue.
CREATE INDEX sessions_ready ON {schema}.sessions (greatest(due, lease_until), key)
    WHERE due IS NOT NULL AND deleted_at IS NULL;

CREATE INDEX sessions_deleted ON {schema}.sessions (key) WHERE deleted_at IS NOT NULL;

-- The log: what one append brought, encoded and compressed by the service.
CREATE TABLE {schema}.frames (
    key text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    -- The revision of its last event.
    last bigint NOT NULL,
    events bigint NOT NULL,
    -- The bytes of the log up to its end.
    log_bytes bigint NOT NULL,
    -- Whose append it was: one that may have happened or not is sent again.
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

-- What one process does for all, and which one.
CREATE TABLE {schema}.duties (
    name text COLLATE "C" PRIMARY KEY,
    owner text NOT NULL,
    until bigint NOT NULL
);

-- The processes that use the store, and when each has last shown that it can write.
CREATE TABLE {schema}.replicas (
    name text COLLATE "C" PRIMARY KEY,
    seen timestamptz NOT NULL
);
