-- What clients write while abort compares -----------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.new_columns(target bullfrog.target, columns smallint[]) RETURNS smallint[]
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT array_position(target.origins, c)::smallint FROM unnest(columns) WITH ORDINALITY AS o (c, n) ORDER BY n)
$$;
COMMENT ON FUNCTION bullfrog.new_columns(bullfrog.target, smallint[]) IS 'Which columns of a new table some of the old one are.';

CREATE FUNCTION bullfrog.column_list(relation oid, columns smallint[], form text DEFAULT '%s') RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(replace(form, '%s', quote_ident(a.attname)), ', ' ORDER BY n)
    FROM unnest(columns) WITH ORDINALITY AS c (attnum, n)
    JOIN pg_attribute a ON a.attrelid = relation AND a.attnum = c.attnum
$$;
COMMENT ON FUNCTION bullfrog.column_list(oid, smallint[], text) IS 'The names of columns, each in a form, in the order given.';

CREATE FUNCTION bullfrog.noted_key(source bullfrog.source) RETURNS smallint[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT COALESCE((SELECT k.columns FROM (SELECT bullfrog.key_columns(source) AS columns) k
        WHERE NOT EXISTS (SELECT FROM bullfrog.target t WHERE t.source = source.id AND NOT EXISTS (
            SELECT FROM pg_index x WHERE x.indrelid = t.new_table AND x.indisunique AND x.indisvalid AND x.indimmediate
                AND x.indpred IS NULL AND x.indexprs IS NULL
                AND (x.indkey::smallint[])[0:x.indnkeyatts - 1] <@ bullfrog.new_columns(t, k.columns)
                AND bullfrog.compares_as_columns(x)
                AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = t.new_table AND NOT a.attnotnull
                    AND a.attnum = ANY (bullfrog.new_columns(t, k.columns)))))), '{}')
$$;
COMMENT ON FUNCTION bullfrog.noted_key(bullfrog.source) IS 'The columns of a key of the old table by which written rows are noted: it is one of '
    'every new table, too. Empty: there is none.';

CREATE FUNCTION bullfrog.is_noted(source bullfrog.source, relation oid, columns smallint[], alias text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN k.columns = '{}' THEN 'true' ELSE format('(%s) IN (SELECT %s FROM bullfrog.due_%s w)',
        bullfrog.column_list(relation, is_noted.columns, alias || '.%s'), bullfrog.column_list(source.old_table, k.columns, 'w.%s'),
        source.id) END
    FROM bullfrog.noted_key(source) AS k (columns)
$$;
COMMENT ON FUNCTION bullfrog.is_noted(bullfrog.source, oid, smallint[], text) IS
    'When a row of an old or a new table, whose key these columns are, is to be carried back now. Without a key, every row is.';

CREATE FUNCTION bullfrog.begin_notes(migration_id int, reader xid8) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source bullfrog.source;
    target bullfrog.target;
    keys smallint[];
BEGIN
    -- Who has written before, and not been noted, ends first.
    PERFORM bullfrog.lock_tables(ARRAY(SELECT t.new_table::oid FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source
        WHERE s.migration = migration_id ORDER BY t.id), mode => 'SHARE ROW EXCLUSIVE');
    FOR source IN SELECT * FROM bullfrog.source s WHERE s.migration = migration_id ORDER BY s.id LOOP
        UPDATE bullfrog.source s SET noted_for = reader WHERE s.id = source.id;
        -- What was noted for an abort that has ended counts for this one, too: it may be more than has to be compared.
        CONTINUE WHEN source.noted_for IS NOT NULL;
        UPDATE bullfrog.target t SET fingerprint = NULL WHERE t.source = source.id;
        keys := bullfrog.noted_key(source);
        EXECUTE format('CREATE TABLE bullfrog.written_%s AS SELECT %s FROM ONLY %s WITH NO DATA', source.id,
            bullfrog.column_list(source.old_table, keys), source.old_table);
        EXECUTE format('COMMENT ON TABLE bullfrog.written_%s IS %L', source.id,
            format('Keys of rows that may differ from those of %s.', source.old_table));
        EXECUTE (SELECT format('ALTER TABLE bullfrog.written_%s OWNER TO %s', source.id, c.relowner::regrole) FROM pg_class c
            WHERE c.oid = source.old_table);
        FOR target IN SELECT * FROM bullfrog.target t WHERE t.source = source.id ORDER BY t.id LOOP
            EXECUTE (SELECT format('CREATE TRIGGER bullfrog_note AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW '
                    'EXECUTE FUNCTION bullfrog.note(%L, %L)', target.new_table, COALESCE(string_agg(k.new::text, ' ' ORDER BY k.new), ''),
                    format('INSERT INTO bullfrog.written_%s ', source.id) || COALESCE('(' || bullfrog.column_list(source.old_table,
                            array_agg(k.old ORDER BY k.new)) || ') VALUES (' || string_agg('$' || k.n, ', ' ORDER BY k.n) || ')',
                        'DEFAULT VALUES'))
                FROM (SELECT c.old, c.new, row_number() OVER (ORDER BY c.new) AS n
                    FROM unnest(keys, bullfrog.new_columns(target, keys)) AS c (old, new)) k);
            -- Also for sessions whose session_replication_role is replica.
            EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER bullfrog_note', target.new_table);
        END LOOP;
        UPDATE bullfrog.target t SET fingerprint = bullfrog.fingerprint(t.new_table) WHERE t.source = source.id;
    END LOOP;
    PERFORM bullfrog.reach('notes: begun');
END
$$;
COMMENT ON FUNCTION bullfrog.begin_notes(int, xid8) IS 'Lets every write to the new tables of a migration be noted from the commit on, for a '
    'transaction that reads them.';

CREATE FUNCTION bullfrog.end_stale_notes() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stale int;
    news regclass[];
    relation regclass;
BEGIN
    FOR stale IN SELECT s.id FROM bullfrog.source s WHERE s.noted_for IS NOT NULL
        AND pg_xact_status(s.noted_for) IS DISTINCT FROM 'in progress' LOOP
        news := ARRAY(SELECT t.new_table FROM bullfrog.target t WHERE t.source = stale ORDER BY t.id);
        -- Nobody queues for long: if they are in use, later.
        PERFORM set_config('lock_timeout', '100ms', true);
        PERFORM bullfrog.lock(r, 'ACCESS EXCLUSIVE') FROM unnest(news) r;
        -- Another abort may have taken the notes over meanwhile.
        UPDATE bullfrog.source s SET noted_for = NULL WHERE s.id = stale AND pg_xact_status(s.noted_for) IS DISTINCT FROM 'in progress';
        CONTINUE WHEN NOT FOUND;
        UPDATE bullfrog.target t SET fingerprint = NULL WHERE t.source = stale;
        FOREACH relation IN ARRAY news LOOP
            EXECUTE format('DROP TRIGGER bullfrog_note ON %s', relation);
        END LOOP;
        EXECUTE format('DROP TABLE bullfrog.written_%s', stale);
        UPDATE bullfrog.target t SET fingerprint = bullfrog.fingerprint(t.new_table) WHERE t.source = stale;
        PERFORM bullfrog.reach('notes: ended');
    END LOOP;
EXCEPTION WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
    NULL;
END
$$;
COMMENT ON FUNCTION bullfrog.end_stale_notes() IS 'Ends notes for transactions that have ended. If the tables are in use, nothing.';

CREATE FUNCTION bullfrog.begin_carrying(source bullfrog.source) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    keys CONSTANT smallint[] := bullfrog.noted_key(source);
    place text;
BEGIN
    IF keys = '{}' THEN
        RETURN;
    END IF;
    -- Of this transaction alone.
    FOREACH place IN ARRAY ARRAY['bullfrog.due_' || source.id, 'bullfrog.inserted_' || source.id] LOOP
        EXECUTE format('CREATE TABLE %s AS SELECT %s FROM ONLY %s WITH NO DATA', place, bullfrog.column_list(source.old_table, keys), source.old_table);
        -- Its own: what the server calls of it when it looks at the keys, it calls as the owner.
        EXECUTE (SELECT format('ALTER TABLE %s OWNER TO %s', place, c.relowner::regrole) FROM pg_class c WHERE c.oid = source.old_table);
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.begin_carrying(bullfrog.source) IS 'Makes places for the keys of rows that are to be carried back next, and of those that were inserted.';

CREATE FUNCTION bullfrog.take_notes(source bullfrog.source) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- As its owner, who may have made a view of it.
    PERFORM bullfrog.change(source.old_table, format('WITH taken AS (DELETE FROM bullfrog.written_%s RETURNING *) '
        'INSERT INTO bullfrog.due_%1$s SELECT DISTINCT * FROM taken', source.id));
    EXECUTE format('ANALYZE bullfrog.due_%s', source.id);
END
$$;
COMMENT ON FUNCTION bullfrog.take_notes(bullfrog.source) IS 'Adds the keys of rows that were written, and noted, to those that are to be carried back. What '
    'is noted from now on is for later.';

CREATE FUNCTION bullfrog.note_differences(source bullfrog.source) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
DECLARE
    target bullfrog.target;
    keys CONSTANT smallint[] := bullfrog.noted_key(source);
    news smallint[];
BEGIN
    FOR target IN SELECT * FROM bullfrog.target t WHERE t.source = source.id ORDER BY t.id LOOP
        IF keys = '{}' THEN
            IF bullfrog.difference(target, 'true') > 0 THEN
                RETURN false;
            END IF;
            CONTINUE;
        END IF;
        news := bullfrog.new_columns(target, keys);
        PERFORM bullfrog.change(target.new_table, format(
            'INSERT INTO bullfrog.due_%s (%s) SELECT %s FROM (SELECT %s, %s AS bullfrog_row FROM ONLY %s) n '
                'FULL JOIN (SELECT %4$s, %5$s AS bullfrog_row FROM bullfrog.transformed_%7$s WHERE bullfrog.is_%8$s_moved(%1$s, bullfrog_tid)) o '
                'ON (%9$s) = (%10$s) WHERE n.bullfrog_row IS DISTINCT FROM o.bullfrog_row',
            source.id, bullfrog.column_list(source.old_table, keys),
            bullfrog.column_list(target.new_table, news, 'COALESCE(n.%s, o.%s)'), bullfrog.column_list(target.new_table, news),
            bullfrog.content(target.new_table), target.new_table, target.id, bullfrog.naming(target.granule),
            bullfrog.column_list(target.new_table, news, 'n.%s'), bullfrog.column_list(target.new_table, news, 'o.%s')));
    END LOOP;
    RETURN true;
END
$$;
COMMENT ON FUNCTION bullfrog.note_differences(bullfrog.source) IS 'Finds the keys of rows that differ between the old schema and the new one, as far as '
    'they were moved. False: some do, and have no key by which they could be noted.';

CREATE FUNCTION bullfrog.compare_ahead(migration_id int) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reader CONSTANT xid8 := pg_current_xact_id();
    forbidden CONSTANT text := bullfrog.forbids_return(migration_id);
    source bullfrog.source;
    target bullfrog.target;
    written bigint;
BEGIN
    -- The process that begins the notes cannot wait for who waits for it.
    IF EXISTS (SELECT FROM pg_locks l JOIN bullfrog.target t ON t.new_table = l.relation JOIN bullfrog.source s ON s.id = t.source
        WHERE s.migration = migration_id AND l.pid = pg_backend_pid() AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')) THEN
        RETURN 'This transaction has written or locked new tables itself.';
    END IF;
    FOR source IN SELECT * FROM bullfrog.source s WHERE s.migration = migration_id AND s.noted_for <> reader
        AND pg_xact_status(s.noted_for) = 'in progress' LOOP
        RAISE EXCEPTION 'another session is about to abort the migration of %', source.old_table USING ERRCODE = 'object_in_use',
            HINT = 'Wait for its end.';
    END LOOP;
    PERFORM bullfrog.have_writes_noted(migration_id, reader::text);
    -- Who ends the notes needs the tables for himself: from here on the triggers stay until this transaction ends.
    PERFORM bullfrog.lock(r, 'ACCESS SHARE') FROM unnest(ARRAY(SELECT t.new_table::oid FROM bullfrog.target t
        JOIN bullfrog.source s ON s.id = t.source WHERE s.migration = migration_id ORDER BY t.id)) r;
    IF EXISTS (SELECT FROM bullfrog.source s WHERE s.migration = migration_id AND s.noted_for IS DISTINCT FROM reader) THEN
        RETURN 'Writes cannot be noted meanwhile: no background process is free (max_worker_processes), or the new tables could not be locked against '
            'writers within lock_timeout. The log of the server tells which.';
    END IF;
    PERFORM bullfrog.reach('abort: writes noted');
    FOR source IN SELECT * FROM bullfrog.source s WHERE s.migration = migration_id ORDER BY s.id LOOP
        PERFORM bullfrog.begin_carrying(source);
        IF forbidden IS NOT NULL THEN
            -- What differs now lets it fail: nobody has to wait for that.
            FOR target IN SELECT * FROM bullfrog.target t WHERE t.source = source.id ORDER BY t.id LOOP
                written := bullfrog.difference(target, 'true');
                IF written > 0 THEN
                    PERFORM bullfrog.refuse_return(target.new_table, written, forbidden);
                END IF;
            END LOOP;
        ELSIF NOT bullfrog.note_differences(source) THEN
            RETURN format('Rows of %s were written, and its new tables do not have one key of it, NOT NULL, by which these could be noted.',
                source.old_table);
        END IF;
    END LOOP;
    PERFORM bullfrog.reach('abort: rows compared');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION bullfrog.compare_ahead(int) IS 'Compares what was moved with the old rows while clients go on: what differs, or is written from '
    'now on, is noted. Else why that was not possible.';
