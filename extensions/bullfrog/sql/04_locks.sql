-- Tables are locked, all or none --------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.require_quiet_session() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a migration starts and ends at READ COMMITTED, this transaction is at %',
            pg_catalog.upper(pg_catalog.current_setting('transaction_isolation'))
            USING ERRCODE = 'active_sql_transaction', HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED first.';
    END IF;
    IF pg_catalog.current_setting('lock_timeout') = '0' THEN
        PERFORM pg_catalog.set_config('lock_timeout', '5s', true);
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.require_quiet_session() IS
    'Checks that the session may switch schemas, and limits how long it waits for a lock (5 s unless lock_timeout says otherwise) while '
        'others queue behind it.';

CREATE FUNCTION bullfrog.conflicting(mode text) RETURNS text[]
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT m FROM unnest(ARRAY['AccessShareLock', 'RowShareLock', 'RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareLock',
            'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock']) WITH ORDINALITY AS o (m, strength)
        WHERE strength > CASE mode WHEN 'ACCESS EXCLUSIVE' THEN 0 WHEN 'EXCLUSIVE' THEN 1 WHEN 'SHARE ROW EXCLUSIVE' THEN 2
            WHEN 'SHARE UPDATE EXCLUSIVE' THEN 3 END)
$$;
COMMENT ON FUNCTION bullfrog.conflicting(text) IS 'The locks that keep others from taking one of these modes.';

CREATE FUNCTION bullfrog.holders(closed oid[], live oid[], mode text) RETURNS TABLE (pid int, who text, ending text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH held AS (
        SELECT l.pid, l.virtualtransaction, string_agg(DISTINCT format('%s on %s', l.mode, l.relation::regclass), ', ') AS locks
        FROM (SELECT l.pid, l.virtualtransaction, l.locktype, l.database, l.granted, l.relation, l.mode FROM pg_locks l
            -- Who changes rights on a table has locked none of it but its rows in the catalogs.
            UNION ALL SELECT l.pid, l.virtualtransaction, 'relation', (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()), l.granted, c.oid,
                'a change of rights' FROM (SELECT k.oid, k.xmax FROM pg_class k UNION ALL SELECT a.attrelid, a.xmax FROM pg_attribute a) c
                JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = c.xmax
                WHERE c.oid = ANY (closed || live) AND holders.mode = 'ACCESS EXCLUSIVE') l
        WHERE l.locktype = 'relation' AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AND l.granted
            AND l.pid IS DISTINCT FROM pg_backend_pid()
            AND (l.mode = 'a change of rights' OR l.relation = ANY (closed) AND l.mode = ANY (bullfrog.conflicting(holders.mode))
                OR l.relation = ANY (live) AND l.mode = ANY (bullfrog.conflicting('SHARE ROW EXCLUSIVE')))
        GROUP BY l.pid, l.virtualtransaction)
    SELECT a.pid, format('Process %s (%s) has %s; its transaction began at %s, its last statement at %s.', a.pid,
            concat_ws(', ', COALESCE(quote_ident(a.usename), a.backend_type), NULLIF(a.application_name, ''), a.state), h.locks, a.xact_start,
            a.query_start),
        CASE WHEN a.backend_type = 'client backend' THEN format('SELECT pg_terminate_backend(%s)', a.pid) END
    FROM held h JOIN pg_stat_activity a ON a.pid = h.pid
    UNION ALL
    SELECT NULL, format('The prepared transaction %L of %s has %s since %s.', p.gid, quote_ident(p.owner), h.locks, p.prepared),
        format('ROLLBACK PREPARED %L', p.gid)
    FROM held h JOIN pg_locks t ON t.locktype = 'transactionid' AND t.pid IS NULL AND t.virtualtransaction = h.virtualtransaction
    JOIN pg_prepared_xacts p ON p.transaction = t.transactionid
    WHERE h.pid IS NULL
    ORDER BY 1, 2 LIMIT 10
$$;
COMMENT ON FUNCTION bullfrog.holders(oid[], oid[], text) IS 'Who keeps these tables from being locked in a mode, and live ones against writes, and how '
    'to end it: the first few.';

CREATE FUNCTION bullfrog.tell_holders(closed oid[], live oid[], mode text, given text, is_over boolean, is_first boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    in_the_way record;
BEGIN
    -- Of now, not of the first try.
    PERFORM pg_catalog.pg_stat_clear_snapshot();
    SELECT pg_catalog.string_agg(h.who, E'\n') AS names, pg_catalog.string_agg(h.ending, '; ') AS ending INTO in_the_way
        FROM bullfrog.holders(closed, live, mode) h;
    IF is_over THEN
        RAISE EXCEPTION 'could not lock % within %', pg_catalog.array_to_string(closed::regclass[] || live::regclass[], ', '), given
            USING ERRCODE = 'lock_not_available', DETAIL = COALESCE(in_the_way.names, 'Nobody has them any more.'),
                HINT = 'Nothing was changed. Try again when transactions that use them have ended, or SET lock_timeout'
                    || COALESCE(', or end them: ' || in_the_way.ending, '') || '.';
    ELSIF is_first AND in_the_way.names IS NOT NULL THEN
        RAISE NOTICE 'tables are in use, trying again for %', given USING DETAIL = in_the_way.names;
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.tell_holders(oid[], oid[], text, text, boolean, boolean) IS 'Tells who keeps tables from being locked: after the first try '
    'a notice, when the time that was given is over an error.';

CREATE FUNCTION bullfrog.lock_rights(tables oid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM pg_class c WHERE c.oid = ANY (tables) ORDER BY c.oid FOR NO KEY UPDATE;
    PERFORM FROM pg_attribute a WHERE a.attrelid = ANY (tables) AND a.attnum > 0 ORDER BY a.attrelid, a.attnum FOR NO KEY UPDATE;
END
$$;
COMMENT ON FUNCTION bullfrog.lock_rights(oid[]) IS 'Keeps rights on tables as they are until the transaction ends: whoever is about to change them, without a lock on the table, is '
    'waited for.';

CREATE FUNCTION bullfrog.lock_tables(closed oid[], live oid[] DEFAULT '{}', mode text DEFAULT 'ACCESS EXCLUSIVE', own oid[] DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tables oid[] := closed || live;
    relation oid;
    given text := pg_catalog.current_setting('lock_timeout');
    detection interval := pg_catalog.current_setting('deadlock_timeout');
    patience interval := '100 ms';
    began timestamptz := pg_catalog.clock_timestamp();
BEGIN
    -- A circle, in which somebody has one of the tables and waits for another one, is for others to find and to be ended by.
    PERFORM pg_catalog.set_config('deadlock_timeout', '1h', true);
    LOOP
        -- Each try begins with another table: in the order in which clients take them there is no circle.
        BEGIN
            PERFORM pg_catalog.set_config('lock_timeout', (1000 * EXTRACT(epoch FROM patience))::int::text, true);
            -- A move takes a moment; one that does not end is of an expression that does not.
            IF mode IN ('EXCLUSIVE', 'ACCESS EXCLUSIVE') AND pg_catalog.clock_timestamp() - began > given::interval / 2 THEN
                PERFORM pg_catalog.pg_cancel_backend(l.pid) FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
                    WHERE a.backend_type = 'bullfrog mover' AND l.locktype = 'relation' AND l.relation = ANY (tables) AND l.granted
                    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database());
            END IF;
            -- The server does so for who waits longer than it takes to look for circles.
            IF patience > interval '100 ms' THEN
                PERFORM pg_catalog.pg_cancel_backend(l.pid) FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
                    WHERE a.backend_type = 'autovacuum worker' AND a.query LIKE 'autovacuum: %' AND a.query NOT LIKE '%(to prevent wraparound)%' AND l.locktype = 'relation'
                    AND l.relation = ANY (tables) AND l.granted
                    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database());
            END IF;
            FOREACH relation IN ARRAY tables LOOP
                PERFORM bullfrog.lock(relation, CASE WHEN relation = ANY (live) THEN 'SHARE ROW EXCLUSIVE' ELSE mode END);
            END LOOP;
            IF mode = 'ACCESS EXCLUSIVE' THEN
                PERFORM bullfrog.lock_rights(tables);
            END IF;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM bullfrog.tell_holders(closed, live, mode, given, pg_catalog.clock_timestamp() - began > given::interval,
                patience = interval '100 ms');
        END;
        PERFORM pg_catalog.pg_sleep(0.05 + 0.1 * pg_catalog.random());
        tables := tables[2:] || tables[1:1];
        patience := LEAST(2 * patience, 2 * detection + '100 ms');
    END LOOP;
    PERFORM pg_catalog.set_config('lock_timeout', given, true);
    PERFORM pg_catalog.set_config('deadlock_timeout', (1000 * EXTRACT(epoch FROM detection))::int::text, true);
    -- They may have been given away before they were locked.
    PERFORM bullfrog.require_ownership(COALESCE(own, tables));
END
$$;
COMMENT ON FUNCTION bullfrog.lock_tables(oid[], oid[], text, oid[])
    IS 'Locks tables in a mode, and live ones against writes, all or none: tries for at most lock_timeout, at first for a tenth of a '
        'second, then longer, in the end long enough for others to find that they wait in a circle; between tries everybody has time. Who asks must own all of them, or '
        'those that are told.';

CREATE FUNCTION bullfrog.wait_for_writers(tables oid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    given CONSTANT text := pg_catalog.current_setting('lock_timeout');
    patience interval := LEAST('100 ms', given::interval);
    began CONSTANT timestamptz := pg_catalog.clock_timestamp();
    relation oid;
BEGIN
    FOREACH relation IN ARRAY tables LOOP
        LOOP
            BEGIN
                PERFORM pg_catalog.set_config('lock_timeout', GREATEST(1, (1000 * EXTRACT(epoch FROM patience))::int)::text, true);
                PERFORM bullfrog.await_writers(relation);
                EXIT;
            EXCEPTION WHEN lock_not_available THEN
                PERFORM bullfrog.tell_holders(tables, '{}', 'SHARE ROW EXCLUSIVE', given, pg_catalog.clock_timestamp() - began >= given::interval,
                    patience = interval '100 ms');
                -- Nobody waits for who waits here.
                patience := GREATEST(began + given::interval - pg_catalog.clock_timestamp(), '1 ms');
            END;
        END LOOP;
    END LOOP;
    PERFORM pg_catalog.set_config('lock_timeout', given, true);
END
$$;
COMMENT ON FUNCTION bullfrog.wait_for_writers(oid[]) IS 'Waits, for at most lock_timeout, until transactions have ended that have written these tables. Others may '
    'go on to write them.';

CREATE FUNCTION bullfrog.tables_of(migration_id int) RETURNS oid[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- In the order in which statements lock them.
    SELECT ARRAY(SELECT t.new_table::oid FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source WHERE s.migration = migration_id
            ORDER BY t.id)
        || ARRAY(SELECT o.old_table::oid FROM bullfrog.old o WHERE o.migration = migration_id ORDER BY o.old_table)
$$;
COMMENT ON FUNCTION bullfrog.tables_of(int) IS 'The new and old tables of a migration under way.';
