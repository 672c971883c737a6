-- The store id of this log: one row, which never changes.
CREATE TABLE {schema}.identity (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    id bytea NOT NULL CHECK (octet_length(id) = 16)
);
INSERT INTO {schema}.identity (id) VALUES (uuid_send(gen_random_uuid()));

-- Intents: blobs that are about to be written, or were written and are not referenced by any event. The append that
-- references a blob deletes the intent in the same statement.
CREATE TABLE {schema}.intents (
    key text COLLATE "C" NOT NULL,
    file text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    -- True after a sweep has selected the blob for deletion. No later event can reference the blob.
    is_doomed boolean NOT NULL DEFAULT false,
    PRIMARY KEY (key, file)
);
