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

CREATE FUNCTION bullfrog.key_names(target bullfrog.target, keys smallint[], form text DEFAULT '%s') RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT bullfrog.column_list(target.new_table, bullfrog.new_columns(target, keys), form)
$$;
COMMENT ON FUNCTION bullfrog.key_names(bullfrog.target, smallint[], text) IS 'What the columns of a key of the old table are called in a new one.';

CREATE FUNCTION bullfrog.has_triggers(relation oid) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = relation AND NOT t.tgisinternal)
$$;
COMMENT ON FUNCTION bullfrog.has_triggers(oid) IS 'Whether a table has triggers of its users.';

CREATE FUNCTION bullfrog.forbids_return(migration_id int) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT h.hindrance FROM (
        SELECT t.id, CASE
                WHEN cardinality(t.live_tables) > 0 THEN format('%s is in use beside %s', t.live_tables[1]::regclass, t.new_table)
                WHEN t.granule = 'group' OR cardinality(t.old_tables) > 1 OR NOT t.complete
                    THEN format('not every row of %s is one of %s', t.old_tables[1]::regclass, t.new_table)
                WHEN EXISTS (SELECT FROM bullfrog.quarantined q WHERE q.target = t.id) THEN format('rows of %s are in quarantine', t.new_table)
                WHEN bullfrog.key_columns(s) IS NULL THEN format('no key of %s is in all new tables', s.old_table)
                -- What is carried back fires no triggers, and the recheck of a deferrable key is one.
                WHEN bullfrog.has_triggers(s.old_table) AND EXISTS (SELECT FROM pg_index x WHERE x.indrelid = s.old_table AND NOT x.indimmediate)
                    THEN format('%s has triggers and a deferrable key', s.old_table) END AS hindrance
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

CREATE FUNCTION bullfrog.carry_back(source bullfrog.source, only_noted boolean, is_last boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
DECLARE
    keys CONSTANT smallint[] := bullfrog.key_columns(source);
    is_quiet CONSTANT boolean := bullfrog.has_triggers(source.old_table);
    -- A row so old that its transaction's number has come again is no such row; but of those that are asked here, whose keys were noted, all old
    -- ones were moved before anybody wrote them.
    -- Rows that were carried back before have another place. Where no rounds were, rows of this transaction are those that it wrote before the switch.
    moved CONSTANT text := format('(bullfrog.is_%s_moved(%s, o.ctid)%s)', bullfrog.naming(source.granule), source.id,
        CASE WHEN only_noted THEN ' OR bullfrog.is_own(o.xmin)' ELSE '' END);
    chosen CONSTANT text := CASE WHEN only_noted THEN bullfrog.is_noted(source, source.old_table, keys, 'o') ELSE 'true' END;
    old_key CONSTANT text := bullfrog.column_list(source.old_table, keys, 'o.%s');
    -- Keys of rows that are inserted are noted: of such a row, new tables may have a part only.
    inserting CONSTANT text := CASE WHEN only_noted THEN 'WITH inserted AS (' ELSE '' END;
    noting CONSTANT text := CASE WHEN only_noted THEN format(' RETURNING %s) INSERT INTO bullfrog.inserted_%s TABLE inserted',
        bullfrog.column_list(source.old_table, keys), source.id) ELSE '' END;
    inserted CONSTANT text := CASE WHEN only_noted THEN format('(%s) IN (SELECT %s FROM bullfrog.inserted_%s i)', old_key,
        bullfrog.column_list(source.old_table, keys, 'i.%s'), source.id) ELSE 'false' END;
    target bullfrog.target;
    news record;
    columns record;
    deferred text;
BEGIN
    -- What is deferred to the commit would be evaluated with the rights of who commits: the server does not let it.
    SELECT string_agg(format('%s.%I', k.connamespace::regnamespace, k.conname), ', ') INTO deferred
        FROM pg_constraint k WHERE k.conrelid = source.old_table AND k.condeferred;
    IF deferred IS NOT NULL THEN
        PERFORM bullfrog.change(source.old_table, format('SET CONSTRAINTS %s IMMEDIATE', deferred));
    END IF;
    -- New tables are n1, n2 ..
    SELECT string_agg(format('ONLY %s n%s', t.new_table, t.n), ', ' ORDER BY t.n) AS tables, (array_agg(t.target ORDER BY t.n))[1] AS first,
        count(*) > 1 AS are_several,
        string_agg(format('(%s) = (%s)', bullfrog.key_names(t.target, keys, format('n%s.%%s', t.n)), t.first_key), ' AND ') AS with_first_key,
        string_agg(format('EXISTS (SELECT FROM ONLY %s t WHERE (%s) = (%s))', t.new_table, bullfrog.key_names(t.target, keys, 't.%s'), old_key),
            ' AND ') AS in_all,
        string_agg(format('EXISTS (SELECT FROM ONLY %s t WHERE (%s) = (%s))', t.new_table, bullfrog.key_names(t.target, keys, 't.%s'), old_key),
            ' OR ') AS in_any
    INTO news
    FROM (SELECT g AS target, g.new_table, row_number() OVER by_number AS n, bullfrog.key_names(first_value(g) OVER by_number, keys, 'n1.%s') AS first_key
        FROM bullfrog.target g WHERE g.source = source.id WINDOW by_number AS (ORDER BY g.id)) t;
    -- A row that was not moved is in the new tables as it is: those there that have its key are others.
    PERFORM bullfrog.leave(source, is_last, news.first, '%s rows are twice in a new table, or in some of them only',
        format('SELECT %s FROM ONLY %s o WHERE %s AND NOT %s AND CASE WHEN %s THEN (%s) AND NOT (%s) ELSE %6$s END', old_key, source.old_table, chosen,
            inserted, moved, news.in_any, news.in_all));
    PERFORM bullfrog.change(source.old_table, format('DELETE FROM ONLY %s o WHERE %s AND %s AND (NOT (%s) OR %s AND NOT (%s))', source.old_table, chosen,
        moved, news.in_any, inserted, news.in_all), quiet => is_quiet);
    IF news.are_several THEN
        -- A row that all of them have a part of. Each column from the first that has it.
        SELECT string_agg(quote_ident(c.old), ', ' ORDER BY c.attnum) AS olds, string_agg(c.new, ', ' ORDER BY c.attnum) AS news INTO columns
        FROM (SELECT DISTINCT ON (o.attnum) o.attnum, o.attname AS old, format('n%s.%I', t.n, a.attname) AS new
            FROM (SELECT g.*, row_number() OVER (ORDER BY g.id) AS n FROM bullfrog.target g WHERE g.source = source.id) t
            JOIN pg_attribute o ON o.attrelid = source.old_table AND o.attnum > 0 AND NOT o.attisdropped AND o.attgenerated = ''
            JOIN pg_attribute a ON a.attrelid = t.new_table AND a.attnum = array_position(t.origins, o.attnum)
            ORDER BY o.attnum, t.n) c;
        PERFORM bullfrog.change(source.old_table, inserting || format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s '
            'WHERE %s AND %s AND NOT EXISTS (SELECT FROM ONLY %1$s o WHERE (%7$s) = (%8$s))', source.old_table, columns.olds, columns.news, news.tables,
            CASE WHEN only_noted THEN bullfrog.is_noted(source, (news.first).new_table, bullfrog.new_columns(news.first, keys), 'n1') ELSE 'true' END,
            news.with_first_key, bullfrog.key_names(news.first, keys, 'n1.%s'), old_key) || noting, quiet => is_quiet);
    END IF;
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
        PERFORM bullfrog.change(source.old_table, inserting || format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM ONLY %s t '
            'WHERE %s AND NOT EXISTS (SELECT FROM ONLY %1$s o WHERE (%6$s) = (%7$s))', source.old_table, columns.olds, columns.news,
            target.new_table, CASE WHEN only_noted THEN bullfrog.is_noted(source, target.new_table, bullfrog.new_columns(target, keys), 't') ELSE 'true' END,
            bullfrog.key_names(target, keys, 't.%s'), old_key) || noting, quiet => is_quiet);
        IF columns.assigned IS NOT NULL THEN
            PERFORM bullfrog.change(source.old_table, format('UPDATE ONLY %s o SET %s FROM ONLY %s t WHERE %s AND (%s) = (%s) AND %s',
                source.old_table, columns.assigned, target.new_table, chosen, bullfrog.key_names(target, keys, 't.%s'), old_key, columns.differ),
                quiet => is_quiet);
        END IF;
    END LOOP;
    -- Whatever was done: the old table must give every row that new tables have.
    FOR target IN SELECT * FROM bullfrog.target t WHERE t.source = source.id ORDER BY t.id LOOP
        PERFORM bullfrog.leave(source, is_last, target, '%s rows are none that the definition gives', format(
            'WITH new AS MATERIALIZED (SELECT %1$s, %2$s AS r FROM ONLY %3$s t WHERE %5$s), old AS MATERIALIZED (SELECT %1$s, %2$s AS r '
                'FROM bullfrog.transformed_%4$s t WHERE %5$s AND (%1$s) IN (SELECT %1$s FROM ONLY %3$s)) '
                'SELECT %1$s FROM (TABLE new EXCEPT ALL TABLE old) AS d',
            bullfrog.key_names(target, keys), bullfrog.content(target.new_table), target.new_table, target.id,
            CASE WHEN only_noted THEN bullfrog.is_noted(source, target.new_table, bullfrog.new_columns(target, keys), 't') ELSE 'true' END));
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.carry_back(bullfrog.source, boolean, boolean) IS
    'Writes to an old table what was written to new ones since the switch, where every new row is one old row with its key: all of it, or those rows that '
        'are due. What cannot be carried back is an error if nothing follows.';

CREATE FUNCTION bullfrog.leave(source bullfrog.source, is_last boolean, target bullfrog.target, hindrance text, query text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rows bigint;
BEGIN
    IF NOT is_last THEN
        -- Between two writes of a client, perhaps.
        PERFORM bullfrog.change(source.old_table, format('INSERT INTO bullfrog.written_%s (%s) %s', source.id,
            bullfrog.column_list(source.old_table, bullfrog.noted_key(source)), query));
        RETURN;
    END IF;
    SELECT e::bigint INTO rows FROM bullfrog.evaluate(source.old_table, format('SELECT to_jsonb(count(*)) FROM (%s) d', query), plain => true) e;
    IF rows > 0 THEN
        PERFORM bullfrog.refuse_return(target.new_table, rows, format(hindrance, rows));
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.leave(bullfrog.source, boolean, bullfrog.target, text, text) IS 'What becomes of rows, whose keys a query gives, that cannot be '
    'carried back as they are: they are left for later, or lets the abort fail.';

CREATE FUNCTION bullfrog.carry_ahead(migration_id int) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source bullfrog.source;
    began timestamptz;
    took interval;
    longest interval;
    has_failed boolean := false;
    rows bigint;
    moment bigint;
BEGIN
    IF bullfrog.forbids_return(migration_id) IS NOT NULL THEN
        RETURN NULL;
    END IF;
    FOR round IN 1..10 LOOP
        began := clock_timestamp();
        rows := 0;
        BEGIN
            FOR source IN SELECT * FROM bullfrog.source s WHERE s.migration = migration_id AND bullfrog.noted_key(s) <> '{}' ORDER BY s.id LOOP
                PERFORM bullfrog.take_notes(source);
                rows := rows + bullfrog.count_due(source);
                PERFORM bullfrog.carry_back(source, true, false);
                -- As its owner, who may have given it a trigger.
                PERFORM bullfrog.change(source.old_table, format('TRUNCATE bullfrog.due_%s', source.id));
            END LOOP;
            took := clock_timestamp() - began;
            IF rows >= 100 THEN
                moment := GREATEST(moment, 100, (0.1 * rows / EXTRACT(epoch FROM took))::bigint);
            END IF;
        EXCEPTION WHEN integrity_constraint_violation THEN
            -- Perhaps by what clients have written half: it is tried again, the last time when nobody writes.
            IF has_failed THEN
                RETURN NULL;
            END IF;
            has_failed := true;
        END;
        PERFORM bullfrog.reach('abort: round carried back');
        EXIT WHEN took < '50 ms' OR took > longest;
        longest := took * 0.75;
    END LOOP;
    -- The pace of a few rows is not told by them.
    RETURN COALESCE(moment, 1000);
END
$$;
COMMENT ON FUNCTION bullfrog.carry_ahead(int) IS 'Carries back what was written while clients go on, in rounds, each what was written during the one '
    'before, as long as they get shorter. Nobody sees it before the transaction commits. Gives how many rows are carried back in a tenth of a second; NULL: what is left can only be when nobody writes, if at all.';

CREATE FUNCTION bullfrog.count_due(source bullfrog.source) RETURNS bigint
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT e::bigint FROM bullfrog.evaluate(source.old_table, format('SELECT to_jsonb(count(*)) FROM bullfrog.due_%s', source.id)) e
$$;
COMMENT ON FUNCTION bullfrog.count_due(bullfrog.source) IS 'How many rows of an old table are to be carried back now.';

CREATE FUNCTION bullfrog.is_more_left(migration_id int, than bigint) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source bullfrog.source;
    rows bigint := 0;
BEGIN
    FOR source IN SELECT * FROM bullfrog.source s WHERE s.migration = migration_id AND bullfrog.noted_key(s) <> '{}' ORDER BY s.id LOOP
        rows := rows + (SELECT e::bigint FROM bullfrog.evaluate(source.old_table, format('SELECT to_jsonb(count(*)) FROM '
            '(SELECT 1 FROM bullfrog.due_%1$s UNION ALL SELECT 1 FROM bullfrog.written_%1$s LIMIT %2$s) n', source.id, than + 1)) e);
    END LOOP;
    RETURN rows > than;
END
$$;
COMMENT ON FUNCTION bullfrog.is_more_left(int, bigint) IS 'Whether more rows than so many are noted, which were written and not carried back.';

CREATE FUNCTION bullfrog.lock_for_rest(migration_id int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment bigint;
BEGIN
    FOR attempt IN 1..10 LOOP
        moment := bullfrog.carry_ahead(migration_id);
        -- More rounds would be in vain.
        EXIT WHEN moment IS NULL;
        BEGIN
            PERFORM bullfrog.lock_tables(bullfrog.tables_of(migration_id), mode => 'EXCLUSIVE');
            IF NOT bullfrog.is_more_left(migration_id, moment) THEN
                RETURN;
            END IF;
            -- What was written while the lock was waited for would take long: the end of this block gives the lock back.
            RAISE SQLSTATE 'BFROG';
        EXCEPTION WHEN SQLSTATE 'BFROG' THEN
            RAISE NOTICE 'more was written than is carried back in a moment, trying again' USING DETAIL = format('More than %s rows were noted when '
                'the tables were locked, which others may write again.', moment);
        END;
        PERFORM bullfrog.reach('abort: tables given back');
        PERFORM bullfrog.slow_down(t.new_table) FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source WHERE s.migration = migration_id;
    END LOOP;
    IF bullfrog.forbids_return(migration_id) IS NULL AND bullfrog.is_more_left(migration_id, COALESCE(moment, 1000)) THEN
        RAISE WARNING 'writers wait while what they wrote is carried back'
            USING DETAIL = CASE WHEN moment IS NULL THEN 'Two rounds, beside clients that write, violated constraints of an old table.'
                    ELSE format('In each of 10 tries, more than %s rows had been written when the tables were locked.', moment) END,
                HINT = 'Cancel it if that takes too long, and abort again when less is written.';
    END IF;
    PERFORM bullfrog.lock_tables(bullfrog.tables_of(migration_id), mode => 'EXCLUSIVE');
END
$$;
COMMENT ON FUNCTION bullfrog.lock_for_rest(int) IS 'Carries back what was written, and locks the tables against writers when what is left takes a moment '
    'only. If that is not so behind the lock, it is given back, and more is carried back before; in the end they are locked whatever is left.';

CREATE FUNCTION bullfrog.carry_rest(migration_id int, ahead boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    forbidden CONSTANT text := bullfrog.forbids_return(migration_id);
    source bullfrog.source;
    target bullfrog.target;
    by_key boolean;
    written bigint;
    is_written boolean;
BEGIN
    FOR source IN SELECT * FROM bullfrog.source s WHERE s.migration = migration_id ORDER BY s.id LOOP
        by_key := ahead AND bullfrog.noted_key(source) <> '{}';
        IF by_key THEN
            PERFORM bullfrog.take_notes(source);
        END IF;
        IF ahead THEN
            SELECT e::boolean INTO is_written FROM bullfrog.evaluate(source.old_table, format('SELECT to_jsonb(EXISTS (SELECT FROM bullfrog.%s_%s))',
                CASE WHEN by_key THEN 'due' ELSE 'written' END, source.id)) e;
            CONTINUE WHEN NOT is_written;
        END IF;
        IF forbidden IS NOT NULL OR NOT by_key THEN
            written := 0;
            FOR target IN SELECT * FROM bullfrog.target t WHERE t.source = source.id ORDER BY t.id LOOP
                written := bullfrog.difference(target, CASE WHEN by_key THEN bullfrog.is_noted(source, target.new_table,
                    bullfrog.new_columns(target, bullfrog.noted_key(source)), 't') ELSE 'true' END);
                EXIT WHEN written > 0;
            END LOOP;
            CONTINUE WHEN written = 0;
            IF forbidden IS NOT NULL THEN
                PERFORM bullfrog.refuse_return(target.new_table, written, forbidden);
            END IF;
        END IF;
        PERFORM bullfrog.carry_back(source, by_key, true);
    END LOOP;
EXCEPTION WHEN integrity_constraint_violation THEN
    PERFORM bullfrog.refuse_return((SELECT t.new_table FROM bullfrog.target t WHERE t.source = source.id ORDER BY t.id LIMIT 1), NULL, SQLERRM);
END
$$;
COMMENT ON FUNCTION bullfrog.carry_rest(int, boolean) IS 'Carries back what is left, when nobody writes: what was noted meanwhile, or all that differs. An '
    'error if it cannot.';

CREATE FUNCTION bullfrog.kept(relation oid, columns smallint[], old_table oid, all_rows boolean) RETURNS smallint[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN relation = old_table THEN columns ELSE (
        SELECT ARRAY(SELECT t.origins[c] FROM unnest(columns) WITH ORDINALITY AS k (c, n) ORDER BY n) FROM bullfrog.target t
        WHERE t.new_table = relation AND t.old_tables = ARRAY[old_table] AND t.granule <> 'group'
            AND (NOT all_rows OR t.complete AND NOT EXISTS (SELECT FROM bullfrog.quarantined q WHERE q.target = t.id))) END
$$;
COMMENT ON FUNCTION bullfrog.kept(oid, smallint[], oid, boolean) IS 'Which columns of an old table (0: none) some of a new one are, each of whose rows is one row of '
    'it; if that is asked for, each of its rows is one. Or those of the table itself.';

CREATE FUNCTION bullfrog.still_holds(key bullfrog.released) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM pg_constraint k WHERE k.contype = 'f' AND k.confmatchtype = 's' AND key.options !~ 'MATCH'
            AND EXISTS (SELECT FROM bullfrog.target t WHERE t.new_table IN (k.conrelid, k.confrelid))
            -- The same columns in pairs, in any order.
            AND ARRAY(SELECT format('%s %s', c.referring, c.referred) FROM unnest(bullfrog.kept(k.conrelid, k.conkey, key.relation, true),
                    bullfrog.kept(k.confrelid, k.confkey, key.refers_to, false)) AS c (referring, referred) ORDER BY 1)
                = ARRAY(SELECT format('%s %s', c.referring, c.referred) FROM unnest(key.columns, key.referred) AS c (referring, referred) ORDER BY 1))
        -- A row that only another new table has gets the defaults, which nobody has checked.
        AND (NOT EXISTS (SELECT FROM pg_attrdef d WHERE d.adrelid = key.relation AND d.adnum = ANY (key.columns))
            OR (SELECT count(*) FROM bullfrog.target t WHERE t.old_tables = ARRAY[key.relation::oid]) < 2)
$$;
COMMENT ON FUNCTION bullfrog.still_holds(bullfrog.released) IS 'Whether a foreign key that ended at the switch holds for all rows, if the old tables have what the '
    'new ones have, because one of these has it.';

CREATE FUNCTION bullfrog.bring_back(key bullfrog.released, holds boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    definition CONSTANT text := bullfrog.foreign_key(key.relation, key.columns, key.refers_to, key.referred) || key.options;
BEGIN
    IF definition IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table', MESSAGE = 'the table that it referred to was dropped';
    END IF;
    EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I %s', key.relation, key.name, definition || CASE WHEN key.valid THEN ' NOT VALID' ELSE '' END);
    IF NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = key.relation AND k.confrelid = key.refers_to AND k.conname = key.name) THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table', MESSAGE = 'its tables were renamed meanwhile';
    END IF;
    IF key.valid AND holds THEN
        UPDATE pg_constraint k SET convalidated = true WHERE k.conrelid = key.relation AND k.conname = key.name;
    ELSIF key.valid THEN
        -- The server's check may call a cast of the owner's.
        PERFORM bullfrog.change(key.relation, format('ALTER TABLE %s VALIDATE CONSTRAINT %I', key.relation, key.name));
    END IF;
EXCEPTION
    WHEN foreign_key_violation THEN
        RAISE EXCEPTION 'a foreign key of the old schema does not hold any more'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = format('%s of %s, %s: %s', quote_ident(key.name), key.relation, definition, SQLERRM),
                HINT = 'Rows of other tables were written since the switch. Correct them, then abort again; or finish the migration.';
    WHEN syntax_error_or_access_rule_violation THEN
        RAISE EXCEPTION 'a foreign key of the old schema cannot come back'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = format('%s of %s: %s', quote_ident(key.name), key.relation, SQLERRM),
                HINT = 'Other tables were changed since the switch. Bring back what it needs, then abort again; or finish the migration.';
END
$$;
COMMENT ON FUNCTION bullfrog.bring_back(bullfrog.released, boolean) IS 'Brings back a foreign key that ended at the switch. If it is not known to hold, rows are '
    'checked.';

CREATE FUNCTION bullfrog.perform_abort(name text, discard_writes boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    migration bullfrog.migration;
    news regclass[];
    t record;
    standstill text;
    ahead boolean := false;
    keys bullfrog.released[];
    key bullfrog.released;
    holding boolean[] := '{}';
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
    -- Nobody writes while the rest is carried back, and everybody reads.
    IF ahead THEN
        PERFORM bullfrog.lock_for_rest(migration.id);
    ELSE
        PERFORM bullfrog.lock_tables(bullfrog.tables_of(migration.id), mode => 'EXCLUSIVE');
    END IF;
    PERFORM bullfrog.under_way(perform_abort.name);
    PERFORM bullfrog.reach('abort: tables locked');
    IF NOT discard_writes THEN
        PERFORM bullfrog.carry_rest(migration.id, ahead);
    END IF;
    PERFORM bullfrog.reach('abort: writes carried back');
    PERFORM bullfrog.lock_tables(bullfrog.tables_of(migration.id));
    news := ARRAY(SELECT g.new_table FROM bullfrog.target g JOIN bullfrog.source c ON c.id = g.source WHERE c.migration = migration.id);
    -- A table that is not there any more took its foreign keys along.
    keys := ARRAY(SELECT r FROM bullfrog.released r WHERE r.migration = migration.id
        AND EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = r.relation));
    FOREACH key IN ARRAY keys LOOP
        holding := holding || (NOT discard_writes AND bullfrog.still_holds(key));
    END LOOP;
    PERFORM bullfrog.forget(migration.id);
    PERFORM bullfrog.reach('abort: moves forgotten');
    FOR t IN SELECT k.conname, k.conrelid::regclass AS relation FROM bullfrog.referring(news::oid[]) k LOOP
        EXECUTE pg_catalog.format('ALTER TABLE %s DROP CONSTRAINT %I', t.relation, t.conname);
    END LOOP;
    EXECUTE 'DROP TABLE ' || pg_catalog.array_to_string(news, ', ');
    FOR i IN 1..cardinality(keys) LOOP
        PERFORM bullfrog.bring_back(keys[i], holding[i]);
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
