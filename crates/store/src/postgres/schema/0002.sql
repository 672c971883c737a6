-- The identity of this log: one row, which never changes.
CREATE TABLE {schema}.identity (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    id bytea NOT NULL CHECK (octet_length(id) = 16)
);
INSERT INTO {schema}.identity (id) VALUES (uuid_send(gen_random_uuid()));

-- Files that are about to be stored, or were stored and are named by no event. The event that names a file deletes its
-- row in the same statement.
CREATE TABLE {schema}.intents (
    key text COLLATE "C" NOT NULL,
    file text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    -- A sweep has taken the file up: no event can name it any more.
    is_doomed boolean NOT NULL DEFAULT false,
    PRIMARY KEY (key, file)
);
