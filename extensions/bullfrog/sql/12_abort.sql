-- The way back --------------------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.has_bytes(type oid) RETURNS boolean
    LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE part (type) AS (
        SELECT has_bytes.type
        UNION SELECT p.type FROM part JOIN pg_type t ON t.oid = part.type CROSS JOIN LATERAL (
            SELECT t.typelem WHERE t.typsend = 'array_send'::regproc
            UNION ALL SELECT t.typbasetype
            UNION ALL SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
            UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)) p (type)
        WHERE p.type <> 0)
    SELECT bool_and(t.typsend <> 0) FROM part JOIN pg_type t ON t.oid = part.type
$$;
COMMENT ON FUNCTION bullfrog.has_bytes(oid) IS 'Whether values of a type, and of what it is made of, can be written as bytes.';

CREATE FUNCTION bullfrog.content(relation regclass) RETURNS text
    LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    -- Bytes tell more than the types' own equality (which json does not have, and for which -0 is 0), and depend on no setting.
    SELECT format('record_send(ROW(%s))', string_agg(
        quote_ident(a.attname) || CASE WHEN bullfrog.has_bytes(a.atttypid) THEN '' ELSE '::text' END, ', ' ORDER BY a.attnum))
    FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
$$;
COMMENT ON FUNCTION bullfrog.content(regclass) IS 'The expression by which rows of a table are compared: two are the same if it is equal.';

CREATE FUNCTION bullfrog.difference(target bullfrog.target, condition text) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
BEGIN
    -- What was not moved is of both schemas, as it is.
    RETURN (SELECT e::bigint FROM bullfrog.evaluate(target.new_table, format(
        'WITH new AS MATERIALIZED (SELECT %1$s AS r FROM ONLY %2$s t WHERE %6$s), old AS MATERIALIZED (SELECT %1$s AS r '
            'FROM bullfrog.transformed_%3$s t WHERE bullfrog.is_%4$s_moved(%5$s, bullfrog_tid) AND %6$s) '
        'SELECT to_jsonb(count(*)) FROM ((TABLE new EXCEPT ALL TABLE old) UNION ALL (TABLE old EXCEPT ALL TABLE new)) AS d',
        bullfrog.content(target.new_table), target.new_table, target.id, bullfrog.naming(target.granule), target.source, condition),
        plain => true) e);
END
$$;
COMMENT ON FUNCTION bullfrog.difference(bullfrog.target, text) IS 'How many rows that meet a condition the new schema has and the old one not, or '
    'the other way round.';

CREATE FUNCTION bullfrog.key_columns(source bullfrog.source) RETURNS smallint[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT k.columns FROM (
        SELECT (x.indkey::smallint[])[0:x.indnkeyatts - 1] AS columns FROM pg_catalog.pg_index x
        WHERE x.indrelid = source.old_table AND x.indisunique AND x.indisvalid AND x.indimmediate AND x.indpred IS NULL
            AND x.indexprs IS NULL) k
    WHERE NOT EXISTS (SELECT FROM bullfrog.target t WHERE t.source = source.id AND NOT k.columns <@ t.origins)
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = source.old_table AND a.attnum = ANY (k.columns)
            AND NOT a.attnotnull)
    ORDER BY pg_catalog.cardinality(k.columns), k.columns LIMIT 1
$$;
COMMENT ON FUNCTION bullfrog.key_columns(bullfrog.source) IS 'The columns of a key of the old table that every new table has, too.';

CREATE FUNCTION bullfrog.same_key(target bullfrog.target, keys smallint[]) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_catalog.string_agg(pg_catalog.format('t.%I = o.%I', n.attname, o.attname), ' AND ')
    FROM pg_catalog.unnest(keys) k
    JOIN pg_catalog.pg_attribute o ON o.attrelid = target.old_tables[1] AND o.attnum = k
    JOIN pg_catalog.pg_attribute n ON n.attrelid = target.new_table AND n.attnum = pg_catalog.array_position(target.origins, k)
$$;
COMMENT ON FUNCTION bullfrog.same_key(bullfrog.target, smallint[])
    IS 'When row t of a new table and row o of the old one have the same key.';

CREATE FUNCTION bullfrog.key_names(target bullfrog.target, keys smallint[]) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_catalog.string_agg(pg_catalog.quote_ident(n.attname), ', ')
    FROM pg_catalog.unnest(keys) k
    JOIN pg_catalog.pg_attribute n ON n.attrelid = target.new_table AND n.attnum = pg_catalog.array_position(target.origins, k)
$$;
COMMENT ON FUNCTION bullfrog.key_names(bullfrog.target, smallint[]) IS 'What the columns of a key of the old table are called in a new one.';

CREATE FUNCTION bullfrog.forbids_return(migration_id int) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT h.hindrance FROM (
        SELECT t.id, CASE
                WHEN cardinality(t.live_tables) > 0 THEN format('%s is in use beside %s', t.live_tables[1]::regclass, t.new_table)
                WHEN t.granule = 'group' OR cardinality(t.old_tables) > 1 OR NOT t.complete
                    THEN format('not every row of %s is one of %s', t.old_tables[1]::regclass, t.new_table)
                WHEN EXISTS (SELECT FROM bullfrog.quarantined q WHERE q.target = t.id) THEN format('rows of %s are in quarantine', t.new_table)
                WHEN bullfrog.key_columns(s) IS NULL THEN format('no key of %s is in all new tables', s.old_table) END AS hindrance
        FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source WHERE s.migration = migration_id) h
    WHERE h.hindrance IS NOT NULL ORDER BY h.id LIMIT 1
$$;
COMMENT ON FUNCTION bullfrog.forbids_return(int) IS 'Why what was written to the new tables of a migration cannot be carried back, whatever it is; NULL: '
    'nothing forbids it.';

CREATE FUNCTION bullfrog.refuse_return(relation regclass, written bigint, hindrance text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'rows were written to % since the switch', relation
        USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = format('%s rows are in one of the two schemas only, and cannot be carried back: %s.', written, hindrance),
            HINT = 'The old table does not have these changes. Finish the migration, or give them up: bullfrog.abort(name, '
                'discard_writes => true).';
END
$$;
COMMENT ON FUNCTION bullfrog.refuse_return(regclass, bigint, text) IS 'Ends an abort that would lose what was written.';

CREATE FUNCTION bullfrog.carry_back(migration_id int, only_noted boolean) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
DECLARE
    source bullfrog.source;
    target bullfrog.target;
    keys smallint[];
    columns record;
    deferred text;
    moved text;
    chosen text;
    lost bigint;
    forbidden CONSTANT text := bullfrog.forbids_return(migration_id);
    has_triggers boolean;
BEGIN
    IF forbidden IS NOT NULL THEN
        RETURN forbidden;
    END IF;
    FOR source IN SELECT * FROM bullfrog.source s WHERE s.migration = migration_id LOOP
        keys := bullfrog.key_columns(source);
        -- What is deferred to the commit would be evaluated with the rights of who commits: the server does not let it.
        SELECT string_agg(format('%s.%I', k.connamespace::regnamespace, k.conname), ', ') INTO deferred
            FROM pg_constraint k WHERE k.conrelid = source.old_table AND k.condeferred;
        IF deferred IS NOT NULL THEN
            PERFORM bullfrog.change(source.old_table, format('SET CONSTRAINTS %s IMMEDIATE', deferred));
        END IF;
        -- What is carried back was written once, and triggers of the new tables were there. The recheck of a deferrable key is a trigger, too.
        has_triggers := EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = source.old_table AND NOT t.tgisinternal);
        IF has_triggers AND EXISTS (SELECT FROM pg_index x WHERE x.indrelid = source.old_table AND NOT x.indimmediate) THEN
            RETURN format('%s has triggers and a deferrable key', source.old_table);
        END IF;
        moved := format('bullfrog.is_%s_moved(%s, o.ctid)', bullfrog.naming(source.granule), source.id);
        chosen := CASE WHEN only_noted THEN bullfrog.is_noted(source, source.old_table, keys, 'o') ELSE 'true' END;
        SELECT string_agg(format('EXISTS (SELECT FROM ONLY %s t WHERE %s)', t.new_table, bullfrog.same_key(t, keys)), ' AND ') AS in_all,
            string_agg(format('EXISTS (SELECT FROM ONLY %s t WHERE %s)', t.new_table, bullfrog.same_key(t, keys)), ' OR ') AS in_any
            INTO columns FROM bullfrog.target t WHERE t.source = source.id;
        -- A row that was not moved is in the new tables as it is: those there that have its key are others.
        SELECT e::bigint INTO lost FROM bullfrog.evaluate(source.old_table, format('SELECT to_jsonb(count(*)) FROM ONLY %s o '
            'WHERE %s AND CASE WHEN %s THEN (%s) AND NOT (%s) ELSE %4$s END', source.old_table, chosen, moved, columns.in_any,
            columns.in_all), plain => true) e;
        IF lost > 0 THEN
            RETURN format('%s rows of %s are twice in a new table, or in some of them only', lost, source.old_table);
        END IF;
        PERFORM bullfrog.change(source.old_table, format('DELETE FROM ONLY %s o WHERE %s AND %s AND NOT (%s)', source.old_table, chosen,
            moved, columns.in_any), quiet => has_triggers);
        FOR target IN SELECT * FROM bullfrog.target t WHERE t.source = source.id ORDER BY t.id LOOP
            SELECT string_agg(quote_ident(o.attname), ', ' ORDER BY o.attnum) AS olds,
                string_agg('t.' || quote_ident(n.attname), ', ' ORDER BY o.attnum) AS news,
                string_agg(format('%I = t.%I', o.attname, n.attname), ', ') FILTER (WHERE o.attnum <> ALL (keys)) AS assigned,
                -- By their bytes.
                format('record_image_ne(ROW(%s), ROW(%s))', string_agg('o.' || quote_ident(o.attname), ', ' ORDER BY o.attnum),
                    string_agg('t.' || quote_ident(n.attname), ', ' ORDER BY o.attnum)) AS differ
            INTO columns
            FROM pg_attribute o
            JOIN pg_attribute n ON n.attrelid = target.new_table AND n.attnum = array_position(target.origins, o.attnum)
            WHERE o.attrelid = source.old_table AND o.attnum > 0 AND NOT o.attisdropped AND o.attgenerated = '';
            PERFORM bullfrog.change(source.old_table, format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM ONLY %s t '
                'WHERE %s AND NOT EXISTS (SELECT FROM ONLY %1$s o WHERE %6$s)', source.old_table, columns.olds, columns.news,
                target.new_table, CASE WHEN only_noted THEN bullfrog.is_noted(source, target.new_table,
                    bullfrog.new_columns(target, keys), 't') ELSE 'true' END, bullfrog.same_key(target, keys)), quiet => has_triggers);
            IF columns.assigned IS NOT NULL THEN
                PERFORM bullfrog.change(source.old_table, format('UPDATE ONLY %s o SET %s FROM ONLY %s t WHERE %s AND %s AND (%s)',
                    source.old_table, columns.assigned, target.new_table, chosen, bullfrog.same_key(target, keys), columns.differ),
                    quiet => has_triggers);
            END IF;
        END LOOP;
        -- Whatever was done: the old table must give every row that new tables have.
        FOR target IN SELECT * FROM bullfrog.target t WHERE t.source = source.id ORDER BY t.id LOOP
            SELECT e::bigint INTO lost FROM bullfrog.evaluate(target.new_table, format(
                'WITH new AS MATERIALIZED (SELECT %1$s AS r FROM ONLY %2$s t WHERE %5$s), old AS MATERIALIZED (SELECT %1$s AS r '
                    'FROM bullfrog.transformed_%3$s t WHERE %5$s AND (%4$s) IN (SELECT %4$s FROM ONLY %2$s)) '
                    'SELECT to_jsonb(count(*)) FROM (TABLE new EXCEPT ALL TABLE old) AS d',
                bullfrog.content(target.new_table), target.new_table, target.id, bullfrog.key_names(target, keys),
                CASE WHEN only_noted THEN bullfrog.is_noted(source, target.new_table, bullfrog.new_columns(target, keys), 't')
                    ELSE 'true' END), plain => true) e;
            IF lost > 0 THEN
                RETURN format('%s rows of %s are none that the definition gives', lost, target.new_table);
            END IF;
        END LOOP;
    END LOOP;
    RETURN NULL;
EXCEPTION WHEN integrity_constraint_violation THEN
    RETURN SQLERRM;
END
$$;
COMMENT ON FUNCTION bullfrog.carry_back(int, boolean) IS
    'Writes to the old tables what was written to new ones since the switch, where every new row is one old row with its key; of that what was '
        'noted, if only that can be. Gives what stands in the way: then nothing of it counts, and the caller must fail.';

CREATE FUNCTION bullfrog.perform_abort(name text, discard_writes boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    migration bullfrog.migration;
    news regclass[];
    t record;
    standstill text;
    ahead boolean := false;
    written bigint;
    hindrance text;
    keys bullfrog.released[];
    key bullfrog.released;
    definition text;
BEGIN
    PERFORM bullfrog.require_quiet_session();
    migration := bullfrog.under_way(perform_abort.name);
    IF NOT discard_writes THEN
        standstill := bullfrog.compare_ahead(migration.id);
        ahead := standstill IS NULL;
        IF NOT ahead THEN
            RAISE WARNING 'writers wait while all rows that were moved are compared' USING DETAIL = standstill,
                HINT = 'Cancel it if that takes too long, and abort again.';
        END IF;
    END IF;
    -- Meanwhile it may have ended.
    PERFORM bullfrog.under_way(perform_abort.name);
    -- Nobody writes while the rest is compared, and everybody reads.
    PERFORM bullfrog.lock_tables(bullfrog.tables_of(migration.id), mode => 'EXCLUSIVE');
    PERFORM bullfrog.under_way(perform_abort.name);
    PERFORM bullfrog.reach('abort: tables locked');
    FOR t IN SELECT g.* FROM bullfrog.target g JOIN bullfrog.source c ON c.id = g.source WHERE c.migration = migration.id
        AND NOT discard_writes ORDER BY g.id LOOP
        written := bullfrog.left_to_carry(t.id, ahead);
        CONTINUE WHEN written = 0;
        hindrance := bullfrog.carry_back(migration.id, ahead);
        EXIT WHEN hindrance IS NULL;
        PERFORM bullfrog.refuse_return(t.new_table, written, hindrance);
    END LOOP;
    PERFORM bullfrog.reach('abort: writes carried back');
    PERFORM bullfrog.lock_tables(bullfrog.tables_of(migration.id));
    news := ARRAY(SELECT g.new_table FROM bullfrog.target g JOIN bullfrog.source c ON c.id = g.source WHERE c.migration = migration.id);
    -- A table that is not there any more took its foreign keys along.
    keys := ARRAY(SELECT r FROM bullfrog.released r WHERE r.migration = migration.id
        AND EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = r.relation));
    PERFORM bullfrog.forget(migration.id);
    PERFORM bullfrog.reach('abort: moves forgotten');
    FOR t IN SELECT k.conname, k.conrelid::regclass AS relation FROM bullfrog.referring(news::oid[]) k LOOP
        EXECUTE pg_catalog.format('ALTER TABLE %s DROP CONSTRAINT %I', t.relation, t.conname);
    END LOOP;
    EXECUTE 'DROP TABLE ' || pg_catalog.array_to_string(news, ', ');
    FOREACH key IN ARRAY keys LOOP
        definition := bullfrog.foreign_key(key.relation, key.columns, key.refers_to, key.referred) || key.options;
        BEGIN
            IF definition IS NULL THEN
                RAISE EXCEPTION USING ERRCODE = 'undefined_table', MESSAGE = 'the table that it referred to was dropped';
            END IF;
            -- The server's check may call a cast of the owner's.
            PERFORM bullfrog.change(key.relation, pg_catalog.format('ALTER TABLE %s ADD CONSTRAINT %I %s', key.relation, key.name, definition));
        EXCEPTION
            WHEN foreign_key_violation THEN
                RAISE EXCEPTION 'a foreign key of the old schema does not hold any more'
                    USING ERRCODE = 'object_not_in_prerequisite_state',
                        DETAIL = pg_catalog.format('%s of %s, %s: %s', pg_catalog.quote_ident(key.name), key.relation, definition, SQLERRM),
                        HINT = 'Rows of other tables were written since the switch. Correct them, then abort again; or finish the '
                            'migration.';
            WHEN syntax_error_or_access_rule_violation THEN
                RAISE EXCEPTION 'a foreign key of the old schema cannot come back'
                    USING ERRCODE = 'object_not_in_prerequisite_state',
                        DETAIL = pg_catalog.format('%s of %s: %s', pg_catalog.quote_ident(key.name), key.relation, SQLERRM),
                        HINT = 'Other tables were changed since the switch. Bring back what it needs, then abort again; or finish the '
                            'migration.';
        END;
    END LOOP;
    DELETE FROM bullfrog.quarantined q WHERE q.migration = migration.id;
    PERFORM bullfrog.reach('abort: tables dropped');
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'abort'), ended = pg_catalog.statement_timestamp()
        WHERE m.id = migration.id;
    PERFORM bullfrog.log_at_commit(perform_abort.name, pg_catalog.concat_ws(', ', 'aborted', CASE WHEN discard_writes THEN
        'what was written since the switch was given up' END));
    PERFORM bullfrog.reach('abort: ended');
END
$$;
COMMENT ON FUNCTION bullfrog.perform_abort(text, boolean) IS 'What bullfrog.abort does.';
