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
            WHEN 'SHARE UPDATE EXCLUSIVE' THEN 3 WHEN 'ACCESS SHARE' THEN 7 END)
$$;
COMMENT ON FUNCTION bullfrog.conflicting(text) IS 'The locks that keep others from taking one of these modes.';

CREATE FUNCTION bullfrog.evaluated_code() RETURNS jsonb
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT jsonb_agg(DISTINCT jsonb_build_array(c.class, c.object)) FROM bullfrog.target t CROSS JOIN LATERAL bullfrog.code_of(t.new_table) c
        WHERE t.fingerprint IS NULL);
END
$$;
COMMENT ON FUNCTION bullfrog.evaluated_code() IS 'What a migration whose switch is under way has evaluated: functions, domains .., each by its catalog and number.';

CREATE FUNCTION bullfrog.holders(closed oid[], live oid[], mode text, evaluated jsonb DEFAULT bullfrog.evaluated_code()) RETURNS TABLE (pid int, who text, ending text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Who only asks for the strongest lock is in the way of the weakest.
    WITH lock AS MATERIALIZED (SELECT l.* FROM pg_locks l WHERE (l.granted OR holders.mode = 'ACCESS SHARE' AND l.mode = 'AccessExclusiveLock') AND l.pid IS DISTINCT FROM pg_backend_pid()
            AND (l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) OR l.locktype = 'transactionid')),
    code AS MATERIALIZED (SELECT (c ->> 0)::oid AS class, (c ->> 1)::oid AS object FROM jsonb_array_elements(evaluated) c),
    one AS (
        SELECT l.pid, l.virtualtransaction, l.relation, format('%s%s on %s', CASE WHEN l.granted THEN '' ELSE 'asked for ' END, l.mode, l.relation::regclass) AS what
        FROM lock l WHERE l.locktype = 'relation' AND (l.relation = ANY (closed) AND l.mode = ANY (bullfrog.conflicting(holders.mode))
            OR l.relation = ANY (live) AND l.mode = ANY (bullfrog.conflicting('SHARE ROW EXCLUSIVE')))
        -- Who changes rights on a table, or a function, has locked nothing of it but its row in the catalog.
        UNION ALL SELECT l.pid, l.virtualtransaction, r.relation, format('a change of %s', r.what) FROM (
            SELECT c.oid AS relation, c.xmax, format('rights on %s', c.oid::regclass) AS what FROM pg_class c
                WHERE c.oid = ANY (closed || live) AND holders.mode = 'ACCESS EXCLUSIVE'
            UNION ALL SELECT a.attrelid, a.xmax, format('rights on %s', a.attrelid::regclass) FROM pg_attribute a
                WHERE a.attrelid = ANY (closed || live) AND holders.mode = 'ACCESS EXCLUSIVE'
            UNION ALL SELECT NULL, p.xmax, format('function %s', p.oid::regprocedure) FROM pg_proc p JOIN code c ON c.class = 'pg_proc'::regclass AND c.object = p.oid) r
            JOIN lock l ON l.locktype = 'transactionid' AND l.transactionid = r.xmax
        -- Another switch shares the function.
        WHERE r.relation IS NOT NULL OR NOT EXISTS (SELECT FROM lock s WHERE s.virtualtransaction = l.virtualtransaction AND s.locktype = 'relation'
            AND s.relation = 'pg_proc'::regclass AND s.mode = 'RowShareLock')
        UNION ALL SELECT l.pid, l.virtualtransaction, NULL, format('%s on domain %s', l.mode, l.objid::regtype) FROM lock l
            JOIN code c ON c.class = l.classid AND c.object = l.objid WHERE l.locktype = 'object' AND l.mode IN ('ExclusiveLock', 'AccessExclusiveLock')),
    held AS (
        SELECT o.pid, o.virtualtransaction, string_agg(DISTINCT o.what, ', ') AS locks,
            bool_and(pg_has_role(bullfrog.asker(), COALESCE(c.relowner, bullfrog.asker()), 'USAGE')) AS is_own
        FROM one o LEFT JOIN pg_class c ON c.oid = o.relation GROUP BY o.pid, o.virtualtransaction)
    -- Who uses others' tables is for others to know.
    SELECT a.pid, CASE WHEN h.is_own THEN format('Process %s (%s) has %s; its transaction began at %s, its last statement at %s.', a.pid,
                concat_ws(', ', COALESCE(quote_ident(a.usename), a.backend_type), NULLIF(a.application_name, ''), a.state), h.locks, a.xact_start,
                a.query_start)
            ELSE format('Process %s has %s.', a.pid, h.locks) END,
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
COMMENT ON FUNCTION bullfrog.holders(oid[], oid[], text, jsonb) IS 'Who keeps these tables from being locked in a mode, and live ones against writes, or is about to change rights on them or '
    'what a new table has evaluated, and how to end it: the first few.';

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
    PERFORM FROM pg_class c WHERE c.oid = ANY (tables) ORDER BY c.oid FOR NO KEY UPDATE NOWAIT;
    PERFORM FROM pg_attribute a WHERE a.attrelid = ANY (tables) AND a.attnum > 0 ORDER BY a.attrelid, a.attnum FOR NO KEY UPDATE NOWAIT;
END
$$;
COMMENT ON FUNCTION bullfrog.lock_rights(oid[]) IS 'Keeps rights on tables as they are until the transaction ends. An error if somebody is about to change them, which needs no lock on the table.';

CREATE FUNCTION bullfrog.look_at_rights(tables oid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM bullfrog.lock_rights(tables);
    -- They are given back: who has a table locked may need its row (GRANT, the ends of VACUUM and CREATE INDEX), and would be in a circle with who waits for the table.
    RAISE SQLSTATE 'BFROG';
EXCEPTION WHEN SQLSTATE 'BFROG' THEN
    NULL;
END
$$;
COMMENT ON FUNCTION bullfrog.look_at_rights(oid[]) IS 'An error if somebody is about to change rights on tables. Keeps nothing locked.';

CREATE FUNCTION bullfrog.lock_code(code jsonb DEFAULT bullfrog.evaluated_code()) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Other switches may evaluate the same.
    PERFORM FROM pg_proc p WHERE p.oid IN (SELECT (c ->> 1)::oid FROM jsonb_array_elements(code) c WHERE (c ->> 0)::oid = 'pg_proc'::regclass) ORDER BY p.oid FOR SHARE;
    -- A change of a domain writes no row of the catalog that others could lock: who has the library locks the domain.
    PERFORM bullfrog.lock_domain(d.oid) FROM (SELECT t.oid FROM pg_type t WHERE t.typtype = 'd' AND t.oid IN (
        SELECT (c ->> 1)::oid FROM jsonb_array_elements(code) c WHERE (c ->> 0)::oid = 'pg_type'::regclass) ORDER BY t.oid) d;
END
$$;
COMMENT ON FUNCTION bullfrog.lock_code(jsonb) IS 'Keeps functions and domains that a new table has evaluated as they are until the transaction ends, in which it is made: whoever is about to change '
    'them is waited for.';

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
                    WHERE a.backend_type = 'bullfrog mover' AND l.locktype = 'relation' AND l.relation = ANY (COALESCE(own, tables)) AND l.granted
                    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database());
            END IF;
            -- The server does so for who waits longer than it takes to look for circles.
            IF patience > interval '100 ms' AND mode <> 'ACCESS SHARE' THEN
                PERFORM pg_catalog.pg_cancel_backend(l.pid) FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
                    WHERE a.backend_type = 'autovacuum worker' AND a.query LIKE 'autovacuum: %' AND a.query NOT LIKE '%(to prevent wraparound)%' AND l.locktype = 'relation'
                    AND l.relation = ANY (tables) AND l.granted
                    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database());
            END IF;
            -- First what nobody else waits for.
            IF mode = 'ACCESS EXCLUSIVE' THEN
                PERFORM bullfrog.look_at_rights(tables);
            END IF;
            PERFORM bullfrog.lock_code();
            FOREACH relation IN ARRAY tables LOOP
                PERFORM bullfrog.lock(relation, CASE WHEN relation = ANY (live) THEN 'SHARE ROW EXCLUSIVE' ELSE mode END);
            END LOOP;
            IF mode = 'ACCESS EXCLUSIVE' THEN
                PERFORM bullfrog.lock_rights(tables);
            END IF;
            EXIT;
        -- Whose transaction has used a table before may be in a circle with another switch of it, which the server finds as soon as there is one.
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
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
