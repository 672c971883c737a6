-- The parent of a subagent session, as its key. It is empty for a session without a parent, and null in a row that an
-- earlier release wrote.
ALTER TABLE {schema}.sessions ADD COLUMN parent text COLLATE "C";

CREATE INDEX sessions_parent ON {schema}.sessions (parent, key) WHERE parent <> '';

-- The sessions of earlier releases, until their next append.
CREATE INDEX sessions_parent_unknown ON {schema}.sessions (key) WHERE parent IS NULL;

-- Replaces `append`, which earlier releases call. Appends one frame, or creates the session with it if `at_revision` is 0.
-- Returns false if the session is at another position, or if a file has no live intent. The rules for functions are in
-- version 4.
CREATE FUNCTION {schema}.append_events(
    of_key text, of_incarnation bigint, at_revision bigint, at_token bigint,
    new_token bigint, new_events bigint, new_frame bytea, new_blob_bytes bigint, new_summary bytea,
    changes_due boolean, new_due bigint,
    of_files text[], of_project text, of_scope bytea, of_tips bytea[], of_parent text)
RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
    end_revision bigint;
    end_bytes bigint;
    live bigint;
    kept bytea[];
    tip bytea;
    moment bigint;
BEGIN
    {durable}
    IF of_files IS NOT NULL THEN
        -- The lock keeps a sweep from revoking an intent before the commit.
        PERFORM 1 FROM {schema}.intents
        WHERE key = of_key AND file = ANY(of_files) AND NOT is_doomed FOR UPDATE;
        GET DIAGNOSTICS live = ROW_COUNT;
        IF live <> cardinality(of_files) THEN
            RETURN false;
        END IF;
    END IF;
    IF at_revision = 0 THEN
        INSERT INTO {schema}.sessions
            (key, incarnation, revision, token, log_bytes, blob_bytes, summary, due, due_changes, parent)
        VALUES (of_key, of_incarnation, new_events, new_token, octet_length(new_frame), new_blob_bytes, new_summary,
            new_due, changes_due::int, of_parent)
        ON CONFLICT (key) DO NOTHING
        RETURNING revision, log_bytes INTO end_revision, end_bytes;
    ELSE
        UPDATE {schema}.sessions SET
            revision = revision + new_events,
            token = new_token,
            log_bytes = log_bytes + octet_length(new_frame),
            blob_bytes = blob_bytes + new_blob_bytes,
            summary = new_summary,
            due = CASE
                WHEN changes_due AND lease_until IS NULL AND due < new_due THEN due
                WHEN changes_due THEN new_due
                ELSE due END,
            due_changes = due_changes + changes_due::int,
            parent = of_parent
        WHERE key = of_key AND incarnation = of_incarnation AND revision = at_revision AND at_token IN (0, token)
            AND deleted_at IS NULL
        RETURNING revision, log_bytes INTO end_revision, end_bytes;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.frames (key, incarnation, last, events, log_bytes, token, bytes)
    VALUES (of_key, of_incarnation, end_revision, new_events, end_bytes, new_token, new_frame);
    IF of_files IS NOT NULL THEN
        DELETE FROM {schema}.intents WHERE key = of_key AND file = ANY(of_files);
    END IF;
    IF of_scope IS NOT NULL THEN
        -- The tips of an earlier session of this name, which an earlier release deleted, leave too.
        DELETE FROM {schema}.tips
        WHERE key = of_key AND (incarnation <> of_incarnation OR scope <> of_scope OR NOT digest = ANY(of_tips));
        -- A tip that stays keeps its number.
        SELECT array_agg(digest) INTO kept FROM {schema}.tips
        WHERE key = of_key AND incarnation = of_incarnation AND scope = of_scope;
        FOREACH tip IN ARRAY of_tips LOOP
            IF kept IS NULL OR NOT tip = ANY(kept) THEN
                -- The time orders the tips of different nodes, and a sequence would not.
                moment := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
                INSERT INTO {schema}.tips (key, incarnation, project, scope, digest, number)
                OVERRIDING SYSTEM VALUE
                VALUES (of_key, of_incarnation, of_project, of_scope, tip, moment);
            END IF;
        END LOOP;
    END IF;
    RETURN true;
END $function$;
