-- All changes of sessions are functions. A call changes the rows of one key in one transaction and takes one round trip.
-- If the tables are distributed by their keys, a call runs on the node with the rows of its key, as a local transaction.
--
-- Rules for these functions:
--   - Each statement names one key and has no CTE, no volatile function and no query in place of VALUES. A distributed
--     database would refuse the statement, or run it as a transaction of several nodes.
--   - A release that needs other parameters adds a function with another name, because releases run side by side.
--   - The first statement makes the commit durable, whatever value the role, the database, the configuration or a pooler
--     set for `synchronous_commit`. Stricter values than `on` are kept. `local` is raised to `on`: it does not wait for a
--     synchronous standby, so a failover would lose acknowledged changes.

-- Appends one frame, or creates the session with it if `at_revision` is 0. Returns false if the session is at another
-- position, or if a file has no live intent.
CREATE FUNCTION {schema}.append(
    of_key text, of_incarnation bigint, at_revision bigint, at_token bigint,
    new_token bigint, new_events bigint, new_frame bytea, new_blob_bytes bigint, new_summary bytea,
    changes_due boolean, new_due bigint,
    of_files text[], of_project text, of_scope bytea, of_tips bytea[])
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
            (key, incarnation, revision, token, log_bytes, blob_bytes, summary, due, due_changes)
        VALUES (of_key, of_incarnation, new_events, new_token, octet_length(new_frame), new_blob_bytes, new_summary,
            new_due, changes_due::int)
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
            due_changes = due_changes + changes_due::int
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

-- Replaces the snapshot. Returns false if the session never had this position, or if a newer snapshot exists.
CREATE FUNCTION {schema}.put_snapshot(
    of_key text, of_incarnation bigint, at_revision bigint, at_token bigint, new_bytes bytea)
RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
    covered bigint;
BEGIN
    {durable}
    IF at_token <> 0 THEN
        PERFORM 1 FROM {schema}.frames
        WHERE key = of_key AND incarnation = of_incarnation AND last = at_revision AND token = at_token;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END IF;
    SELECT log_bytes INTO covered FROM {schema}.frames
    WHERE key = of_key AND incarnation = of_incarnation AND last <= at_revision
    ORDER BY last DESC LIMIT 1;
    UPDATE {schema}.sessions SET
        snapshot_at = at_revision,
        snapshot_bytes = octet_length(new_bytes),
        snapshot_log_bytes = coalesce(covered, 0)
    WHERE key = of_key AND incarnation = of_incarnation AND deleted_at IS NULL
        AND revision >= at_revision AND coalesce(snapshot_at, 0) <= at_revision;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.snapshots (key, incarnation, at, bytes)
    VALUES (of_key, of_incarnation, at_revision, new_bytes)
    ON CONFLICT (key) DO UPDATE SET
        incarnation = excluded.incarnation, at = excluded.at, bytes = excluded.bytes;
    RETURN true;
END $function$;

-- Marks a session as deleted if it is at the expected position.
CREATE FUNCTION {schema}.delete_session(
    of_key text, of_incarnation bigint, at_revision bigint, at_token bigint, at_time bigint)
RETURNS boolean LANGUAGE plpgsql AS $function$
BEGIN
    {durable}
    UPDATE {schema}.sessions SET deleted_at = at_time, due = NULL
    WHERE key = of_key AND incarnation = of_incarnation AND revision = at_revision AND at_token IN (0, token)
        AND deleted_at IS NULL;
    RETURN FOUND;
END $function$;

-- Claims the removal of a deleted session. In this function and the next ones, `at_time` is null except in tests with
-- simulated time, so the clock of the database decides.
CREATE FUNCTION {schema}.claim_removal(
    of_key text, of_incarnation bigint, of_owner text, at_time bigint, length bigint, longest_lease bigint)
RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
    moment bigint := coalesce(at_time, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
BEGIN
    {durable}
    UPDATE {schema}.sessions SET lease_owner = of_owner, lease_until = moment + length
    WHERE key = of_key AND incarnation = of_incarnation AND deleted_at IS NOT NULL
        AND (lease_owner = of_owner
            OR lease_until IS NULL OR lease_until <= moment OR lease_until > moment + longest_lease);
    RETURN FOUND;
END $function$;

-- Removes up to `max_frames` frames of a deleted session, and all other rows after the last frame. Returns true if
-- nothing remains. A claim of another owner prevents the removal of the last row.
CREATE FUNCTION {schema}.forget(of_key text, of_incarnation bigint, of_owner text, max_frames bigint)
RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
    removed bigint;
    bound bigint;
BEGIN
    {durable}
    PERFORM 1 FROM {schema}.sessions
    WHERE key = of_key AND incarnation = of_incarnation AND deleted_at IS NOT NULL;
    IF NOT FOUND THEN
        RETURN true;
    END IF;
    SELECT max(next.last) INTO bound FROM (
        SELECT last FROM {schema}.frames
        WHERE key = of_key AND incarnation = of_incarnation
        ORDER BY last LIMIT max_frames) AS next;
    DELETE FROM {schema}.frames WHERE key = of_key AND incarnation = of_incarnation AND last <= bound;
    GET DIAGNOSTICS removed = ROW_COUNT;
    IF removed >= max_frames THEN
        RETURN false;
    END IF;
    DELETE FROM {schema}.snapshots WHERE key = of_key AND incarnation = of_incarnation;
    DELETE FROM {schema}.tips WHERE key = of_key AND incarnation = of_incarnation;
    -- The row is the tombstone. It leaves last and with its data, so the name stays blocked until then.
    DELETE FROM {schema}.sessions
    WHERE key = of_key AND incarnation = of_incarnation AND deleted_at IS NOT NULL
        AND (lease_until IS NULL OR lease_owner = of_owner);
    RETURN FOUND;
END $function$;

-- Claims a session for a worker. A renewal keeps `lease_due_changes`, because the holder has not seen later changes.
CREATE FUNCTION {schema}.claim(
    of_key text, of_owner text, at_time bigint, length bigint, longest_lease bigint, longest_wait bigint)
RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
    moment bigint := coalesce(at_time, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
BEGIN
    {durable}
    UPDATE {schema}.sessions SET
        lease_owner = of_owner,
        lease_until = moment + length,
        lease_due_changes = CASE
            WHEN lease_owner = of_owner AND lease_until > moment THEN lease_due_changes
            ELSE due_changes END
    WHERE key = of_key AND deleted_at IS NULL
        AND (lease_owner = of_owner AND lease_until > moment
            OR (lease_until IS NULL OR lease_until <= moment OR lease_until > moment + longest_lease)
                AND (due <= moment OR due > moment + longest_wait));
    RETURN FOUND;
END $function$;

-- Releases a claim. The owner remains in the row, so that the queue can prefer it. The due time changes only if no append
-- changed it since the claim.
CREATE FUNCTION {schema}.release(of_key text, of_owner text, changes_due boolean, new_due bigint)
RETURNS boolean LANGUAGE plpgsql AS $function$
BEGIN
    {durable}
    UPDATE {schema}.sessions SET
        lease_until = NULL,
        lease_due_changes = NULL,
        due = CASE
            WHEN changes_due AND lease_due_changes = due_changes AND deleted_at IS NULL THEN new_due
            ELSE due END
    WHERE key = of_key AND lease_owner = of_owner AND lease_until IS NOT NULL;
    RETURN FOUND;
END $function$;

-- Declares intents for distinct files. Returns a file whose intent is revoked, or null.
CREATE FUNCTION {schema}.declare_intents(of_key text, of_files text[], at_time bigint)
RETURNS text LANGUAGE plpgsql AS $function$
DECLARE
    new_file text;
    revoked text;
BEGIN
    {durable}
    FOREACH new_file IN ARRAY of_files LOOP
        INSERT INTO {schema}.intents AS has (key, file, at)
        VALUES (of_key, new_file, at_time)
        ON CONFLICT (key, file) DO UPDATE SET at = excluded.at WHERE NOT has.is_doomed;
        IF NOT FOUND THEN
            revoked := coalesce(revoked, new_file);
        END IF;
    END LOOP;
    RETURN revoked;
END $function$;

-- Revokes an intent that is older than a time.
CREATE FUNCTION {schema}.revoke_intent(of_key text, of_file text, before bigint)
RETURNS boolean LANGUAGE plpgsql AS $function$
BEGIN
    {durable}
    UPDATE {schema}.intents SET is_doomed = true
    WHERE key = of_key AND file = of_file AND (is_doomed OR at < before);
    RETURN FOUND;
END $function$;

-- Ends an intent without an event.
CREATE FUNCTION {schema}.complete_intent(of_key text, of_file text)
RETURNS boolean LANGUAGE plpgsql AS $function$
BEGIN
    {durable}
    DELETE FROM {schema}.intents WHERE key = of_key AND file = of_file;
    RETURN FOUND;
END $function$;

-- Claims a leader task. The name of the task is the key of its row.
CREATE FUNCTION {schema}.claim_leader_task(of_key text, of_owner text, at_time bigint, length bigint)
RETURNS boolean LANGUAGE plpgsql AS $function$
DECLARE
    moment bigint := coalesce(at_time, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
BEGIN
    {durable}
    INSERT INTO {schema}.duties AS has (name, owner, until)
    VALUES (of_key, of_owner, moment + length)
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
    WHERE has.owner = excluded.owner OR has.until <= moment OR has.until > moment + 2 * length;
    RETURN FOUND;
END $function$;
