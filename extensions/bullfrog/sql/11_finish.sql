-- The end ---------------------------------------------------------------------------------------------------------------

-- Not every migration has all that it drops: nobody has to be told.
CREATE FUNCTION bullfrog.forget(migration_id int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
    s record;
    t record;
    o record;
BEGIN
    FOR s IN SELECT * FROM bullfrog.source WHERE migration = migration_id LOOP
        FOR t IN DELETE FROM bullfrog.target g WHERE g.source = s.id RETURNING * LOOP
            PERFORM bullfrog.announce('bullfrog.target');
            PERFORM bullfrog.announce(t.new_table);
            PERFORM bullfrog.set_access_method(t.new_table, 'heap');
            EXECUTE format('DROP TRIGGER IF EXISTS bullfrog_insert ON %s', t.new_table);
            EXECUTE format('DROP TRIGGER IF EXISTS bullfrog_update ON %s', t.new_table);
            EXECUTE format('DROP TRIGGER IF EXISTS bullfrog_note ON %s', t.new_table);
            EXECUTE format('DROP VIEW IF EXISTS bullfrog.unmoved_%1$s, bullfrog.candidates_%1$s, bullfrog.transformed_%1$s, '
                'bullfrog.all_%1$s, bullfrog.members_%1$s', t.id);
        END LOOP;
        EXECUTE format('DROP TABLE IF EXISTS bullfrog.written_%1$s, bullfrog.due_%1$s, bullfrog.inserted_%1$s', s.id);
    END LOOP;
    DELETE FROM bullfrog.source WHERE migration = migration_id;
    FOR o IN DELETE FROM bullfrog.old WHERE migration = migration_id RETURNING * LOOP
        PERFORM bullfrog.announce(o.old_table);
        IF o.live THEN
            PERFORM bullfrog.thaw(o.old_table);
        ELSE
            PERFORM bullfrog.set_access_method(o.old_table, 'heap');
        END IF;
    END LOOP;
    DELETE FROM bullfrog.released WHERE migration = migration_id;
END
$$;
COMMENT ON FUNCTION bullfrog.forget(int) IS 'Removes everything of a migration except its tables, its record, and what is noted of each granule that was moved: '
    'nobody waits for that, movers remove it afterwards.';

CREATE FUNCTION bullfrog.readers(sources int[]) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The server shows a transaction the sessions as they were when it first asked.
    PERFORM pg_stat_clear_snapshot();
    RETURN (
        WITH last AS MATERIALIZED (
            SELECT v.moved_by FROM bullfrog.moved v WHERE v.source = ANY (sources) ORDER BY v.moved_by DESC LIMIT 1)
        SELECT string_agg(r.who, ', ') FROM last CROSS JOIN LATERAL (
            SELECT format('process %s', a.pid) AS who FROM pg_stat_activity a
                WHERE age(a.backend_xmin) >= age(last.moved_by::xid) AND a.pid <> pg_backend_pid()
                    AND (a.datname = current_database() OR a.datname IS NULL)
                    AND a.backend_type NOT IN ('autovacuum worker', 'bullfrog mover')
            UNION ALL SELECT format('replication slot %I', l.slot_name) FROM pg_replication_slots l
                WHERE age(l.xmin) >= age(last.moved_by::xid)) r);
END
$$;
COMMENT ON FUNCTION bullfrog.readers(int[])
    IS 'Whose snapshots do not see the last move of these sources, and so still need the old tables.';

CREATE FUNCTION bullfrog.unguard_keys(relation regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = relation AND g.tgname IN ('bullfrog_insert', 'bullfrog_update')) THEN
        RETURN;
    END IF;
    -- One table at a time, and nobody queues for long: if it is in use, later.
    PERFORM set_config('lock_timeout', '100ms', true);
    PERFORM bullfrog.lock(relation, 'ACCESS EXCLUSIVE');
    UPDATE bullfrog.target t SET fingerprint = NULL WHERE t.new_table = relation;
    EXECUTE format('DROP TRIGGER bullfrog_insert ON %s', relation);
    EXECUTE format('DROP TRIGGER bullfrog_update ON %s', relation);
    UPDATE bullfrog.target t SET fingerprint = bullfrog.fingerprint(relation) WHERE t.new_table = relation;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    NULL;
END
$$;
COMMENT ON FUNCTION bullfrog.unguard_keys(regclass) IS 'Ends what bullfrog.guard_keys began, of a new table that has all rows. If it is in '
    'use, nothing.';

CREATE FUNCTION bullfrog.is_swept(source bullfrog.source) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT source.pages <= CASE WHEN source.granule = 'page'
        THEN (SELECT count(*) FROM bullfrog.moved v WHERE v.source = source.id) ELSE source.swept END
$$;
COMMENT ON FUNCTION bullfrog.is_swept(bullfrog.source) IS 'Whether all pages that the old table had at the switch are done.';

CREATE FUNCTION bullfrog.has_unmoved(source bullfrog.source) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target int;
BEGIN
    -- A closed table has no row on later pages than at the switch; of one that stays in use, these do not count. An abort that was refused may have left
    -- pages without rows.
    IF bullfrog.is_swept(source) AND (EXISTS (SELECT FROM bullfrog.old o WHERE o.old_table = source.old_table AND o.live)
        OR NOT (SELECT e::boolean FROM bullfrog.evaluate(source.old_table, format('SELECT to_jsonb(EXISTS (SELECT FROM ONLY %s WHERE ctid >= %L))',
            source.old_table, format('(%s,0)', source.pages)), plain => true) e)) THEN
        RETURN false;
    END IF;
    FOR target IN SELECT t.id FROM bullfrog.target t WHERE t.source = source.id LOOP
        IF (SELECT e::boolean FROM bullfrog.evaluate(source.old_table,
            format('SELECT to_jsonb(EXISTS (SELECT FROM bullfrog.unmoved_%s))', target)) e) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;
COMMENT ON FUNCTION bullfrog.has_unmoved(bullfrog.source) IS 'Whether a row of the old table is in no new table yet. Reads the table only '
    'if the record of what was moved leaves it open.';

CREATE FUNCTION bullfrog.settle() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s record;
    t regclass;
BEGIN
    -- As at the end: tables are locked before anything is written.
    FOR t IN SELECT g.new_table FROM bullfrog.target g WHERE g.filled LOOP
        PERFORM bullfrog.unguard_keys(t);
        PERFORM bullfrog.reach('settle: keys unguarded');
    END LOOP;
    FOR s IN SELECT c.id FROM bullfrog.source c WHERE EXISTS (SELECT FROM bullfrog.target g WHERE g.source = c.id AND NOT g.filled)
        AND bullfrog.is_swept(c) LOOP
        CONTINUE WHEN bullfrog.readers(ARRAY[s.id]) IS NOT NULL;
        -- Who ends the migration has these rows, and is not waited for: it may wait for us.
        CONTINUE WHEN (SELECT count(*) FROM bullfrog.target g WHERE g.source = s.id)
            > (SELECT count(*) FROM (SELECT FROM bullfrog.target g WHERE g.source = s.id FOR UPDATE SKIP LOCKED) free);
        FOR t IN UPDATE bullfrog.target g SET filled = true WHERE g.source = s.id RETURNING g.new_table LOOP
            PERFORM bullfrog.announce(t);
        END LOOP;
        PERFORM bullfrog.announce('bullfrog.target');
        PERFORM bullfrog.reach('settle: tables filled');
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.settle() IS 'Lets statements read and write new tables that have all rows without looking for others, once '
    'every snapshot sees that.';

CREATE FUNCTION bullfrog.perform_finish(name text, keep_old boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    migration bullfrog.migration;
    olds regclass[];
    s record;
    readers text;
BEGIN
    PERFORM bullfrog.require_quiet_session();
    -- Nothing is written until the old tables are free: a transaction that writes would make other snapshots look old.
    migration := bullfrog.under_way(perform_finish.name);
    IF EXISTS (SELECT FROM bullfrog.moved v JOIN bullfrog.source c ON c.id = v.source
        WHERE c.migration = migration.id AND v.moved_by = pg_current_xact_id_if_assigned()) THEN
        RAISE EXCEPTION 'this transaction has moved rows of % itself', quote_ident(perform_finish.name)
            USING ERRCODE = 'active_sql_transaction', HINT = 'Snapshots that others take before it commits see these rows in the old '
                'tables only. COMMIT first.';
    END IF;
    FOR s IN SELECT * FROM bullfrog.source c WHERE c.migration = migration.id LOOP
        PERFORM bullfrog.sweep(s.id, ARRAY(
            SELECT p FROM pg_catalog.generate_series(s.swept, s.pages - 1) p
            WHERE s.granule <> 'page' OR NOT EXISTS (SELECT FROM bullfrog.moved v WHERE v.source = s.id AND v.granule = p)));
    END LOOP;

    PERFORM bullfrog.reach('finish: rows moved');

    readers := bullfrog.readers(ARRAY(SELECT c.id FROM bullfrog.source c WHERE c.migration = migration.id));
    IF readers IS NOT NULL THEN
        RAISE EXCEPTION 'the old tables of % are still needed by %', pg_catalog.quote_ident(perform_finish.name), readers
            USING ERRCODE = 'object_in_use', HINT = 'All rows are moved. Finish again when transactions that began before the last move '
                'have ended.';
    END IF;

    PERFORM bullfrog.lock_tables(bullfrog.tables_of(migration.id));
    PERFORM bullfrog.reach('finish: tables locked');
    FOR s IN SELECT c.old_table FROM bullfrog.source c WHERE c.migration = migration.id AND bullfrog.has_unmoved(c) LOOP
        RAISE EXCEPTION 'rows of % are in no new table yet', s.old_table
            USING ERRCODE = 'object_in_use', HINT = 'Nothing was dropped. Finish again when transactions that use the new tables have '
                'ended; bullfrog.progress tells what was moved.';
    END LOOP;
    olds := ARRAY(SELECT o.old_table FROM bullfrog.old o WHERE o.migration = migration.id AND NOT o.live);
    PERFORM bullfrog.forget(migration.id);
    PERFORM bullfrog.reach('finish: moves forgotten');
    IF NOT keep_old AND pg_catalog.cardinality(olds) > 0 THEN
        PERFORM bullfrog.keep_sequences(olds::oid[]);
        EXECUTE 'DROP TABLE ' || pg_catalog.array_to_string(olds, ', ');
    END IF;
    PERFORM bullfrog.reach('finish: tables dropped');
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'finish'), ended = pg_catalog.statement_timestamp()
        WHERE m.id = migration.id;
    PERFORM bullfrog.log_at_commit(perform_finish.name, pg_catalog.concat_ws(', ', 'finished', CASE WHEN keep_old THEN 'old tables were kept' END));
    PERFORM bullfrog.reach('finish: ended');
END
$$;
COMMENT ON FUNCTION bullfrog.perform_finish(text, boolean) IS 'What bullfrog.finish does.';
