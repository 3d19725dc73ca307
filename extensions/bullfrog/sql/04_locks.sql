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

CREATE FUNCTION bullfrog.lock_tables(closed oid[], live oid[] DEFAULT '{}', mode text DEFAULT 'ACCESS EXCLUSIVE') RETURNS void
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
            IF mode <> 'SHARE ROW EXCLUSIVE' AND pg_catalog.clock_timestamp() - began > given::interval / 2 THEN
                PERFORM pg_catalog.pg_cancel_backend(l.pid) FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
                    WHERE a.backend_type = 'bullfrog mover' AND l.locktype = 'relation' AND l.relation = ANY (tables) AND l.granted
                    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database());
            END IF;
            FOREACH relation IN ARRAY tables LOOP
                PERFORM bullfrog.lock(relation, CASE WHEN relation = ANY (live) THEN 'SHARE ROW EXCLUSIVE' ELSE mode END);
            END LOOP;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF pg_catalog.clock_timestamp() - began > given::interval THEN
                RAISE EXCEPTION 'could not lock % within %', pg_catalog.array_to_string(closed::regclass[] || live::regclass[], ', '), given
                    USING ERRCODE = 'lock_not_available',
                        HINT = 'Nothing was changed. Try again when transactions that use them have ended, or SET lock_timeout.';
            END IF;
        END;
        PERFORM pg_catalog.pg_sleep(0.05 + 0.1 * pg_catalog.random());
        tables := tables[2:] || tables[1:1];
        patience := LEAST(2 * patience, 2 * detection + '100 ms');
    END LOOP;
    PERFORM pg_catalog.set_config('lock_timeout', given, true);
    PERFORM pg_catalog.set_config('deadlock_timeout', (1000 * EXTRACT(epoch FROM detection))::int::text, true);
    -- They may have been given away before they were locked.
    PERFORM bullfrog.require_ownership(tables);
END
$$;
COMMENT ON FUNCTION bullfrog.lock_tables(oid[], oid[], text)
    IS 'Locks tables in a mode, and live ones against writes, all or none: tries for at most lock_timeout, at first for a tenth of a '
        'second, then longer, in the end long enough for others to find that they wait in a circle; between tries everybody has time.';

CREATE FUNCTION bullfrog.tables_of(migration_id int) RETURNS oid[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- In the order in which statements lock them.
    SELECT ARRAY(SELECT t.new_table::oid FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source WHERE s.migration = migration_id
            ORDER BY t.id)
        || ARRAY(SELECT o.old_table::oid FROM bullfrog.old o WHERE o.migration = migration_id ORDER BY o.old_table)
$$;
COMMENT ON FUNCTION bullfrog.tables_of(int) IS 'The new and old tables of a migration under way.';
