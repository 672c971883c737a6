-- The index of arrays: digests of the latest arrays that the callers of sessions sent. A conversation without a name is
-- found by them. Earlier releases neither write nor remove these rows, so a lookup compares the incarnation.
CREATE TABLE {schema}.tips (
    key text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    project text COLLATE "C" NOT NULL,
    scope bytea NOT NULL,
    digest bytea NOT NULL,
    -- Orders the sessions with the same tip.
    number bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (key, incarnation, scope, digest)
);

CREATE INDEX tips_digest ON {schema}.tips (project, scope, digest, number);
