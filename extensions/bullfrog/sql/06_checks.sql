-- Rows that would violate a constraint --------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.put_aside(target bullfrog.target, violates text, query text) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_rows bigint;
BEGIN
    INSERT INTO bullfrog.quarantined (migration, target, place, new_table, violates, content, owner)
        SELECT s.migration, target.id, bullfrog.place((e ->> 'bullfrog_tid')::tid), target.new_table::text, put_aside.violates,
            (SELECT jsonb_object_agg(key, value) FROM jsonb_each(e) WHERE key NOT LIKE 'bullfrog\_%'), c.relowner
        FROM pg_class c CROSS JOIN bullfrog.source s CROSS JOIN bullfrog.evaluate(target.new_table, query) e WHERE c.oid = target.new_table AND s.id = target.source;
    GET DIAGNOSTICS found_rows = ROW_COUNT;
    RETURN found_rows;
END
$$;
COMMENT ON FUNCTION bullfrog.put_aside(bullfrog.target, text, text) IS 'Puts the rows that a query gives into quarantine. Tells how many.';

CREATE FUNCTION bullfrog.put_aside(target int, place tid, violates text) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT bullfrog.put_aside(t, violates, pg_catalog.format('SELECT to_jsonb(t) FROM bullfrog.transformed_%s t WHERE bullfrog_tid = %L',
        t.id, place))
    FROM bullfrog.target t WHERE t.id = target
$$;
COMMENT ON FUNCTION bullfrog.put_aside(int, tid, text) IS 'Puts the row of a place into quarantine.';

CREATE FUNCTION bullfrog.refuse_rows(target bullfrog.target, what text, found_rows bigint) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF found_rows > 0 THEN
        RAISE EXCEPTION 'rows would violate %', what
            USING ERRCODE = 'integrity_constraint_violation', DETAIL = format('%s rows do not satisfy it.', found_rows),
                TABLE = target.new_table::text,
                HINT = 'Nothing was changed. Correct the rows or the definition, then migrate again; or leave them out with checks => '
                    '''quarantine''.';
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.refuse_rows(bullfrog.target, text, bigint) IS 'An error if so many rows that violate a constraint are more than none.';

CREATE FUNCTION bullfrog.judge(target bullfrog.target, checks text, what text, violating text) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_rows bigint;
BEGIN
    IF checks = 'warn' THEN
        RAISE WARNING 'whether rows violate % was not checked', what USING
            HINT = 'Those that do go to bullfrog.quarantined when they move.';
        RETURN 0;
    ELSIF checks = 'quarantine' THEN
        found_rows := bullfrog.put_aside(target, what, violating);
        IF found_rows > 0 THEN
            RAISE WARNING '% rows violate %', found_rows, what USING HINT = 'They are in bullfrog.quarantined.';
        END IF;
        RETURN found_rows;
    END IF;
    SELECT e::bigint INTO found_rows FROM bullfrog.evaluate(target.new_table, format('SELECT to_jsonb(count(*)) FROM (%s) AS violating',
        violating)) e;
    PERFORM bullfrog.refuse_rows(target, what, found_rows);
    RETURN 0;
END
$$;
COMMENT ON FUNCTION bullfrog.judge(bullfrog.target, text, text, text) IS
    'What becomes of rows that violate a constraint: the migration is refused, or they are left out. Tells how many were.';

CREATE FUNCTION bullfrog.proven_keys(target bullfrog.target, definition text, name text, group_keys smallint[]) RETURNS oid[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT x.indexrelid FROM pg_catalog.pg_index x
        CROSS JOIN LATERAL (SELECT (x.indkey::smallint[])[0:x.indnkeyatts - 1] AS columns) AS key
        WHERE x.indrelid = target.new_table::oid AND x.indisunique AND (
            x.indexprs IS NULL AND bullfrog.compares_as_columns(x)
                AND bullfrog.key_is_proven(definition, name, target.granule = 'group', group_keys, key.columns)
            OR bullfrog.index_is_proven(definition, name, x.indexrelid)))
$$;
COMMENT ON FUNCTION bullfrog.proven_keys(bullfrog.target, text, text, smallint[]) IS
    'Unique indexes of a new table that no rows can violate, because of keys of the old tables.';

CREATE FUNCTION bullfrog.proven_expressions(target bullfrog.target, definition text, name text) RETURNS oid[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT x.indexrelid FROM pg_catalog.pg_index x WHERE x.indrelid = target.new_table::oid
        AND (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL) AND bullfrog.index_is_proven(definition, name, x.indexrelid))
$$;
COMMENT ON FUNCTION bullfrog.proven_expressions(bullfrog.target, text, text) IS
    'Indexes of a new table whose expressions and conditions have a value for every row, because of what the old table has.';

CREATE FUNCTION bullfrog.proven_checks(target bullfrog.target, definition text, name text) RETURNS oid[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT k.oid FROM pg_catalog.pg_constraint k WHERE k.conrelid = target.new_table::oid AND k.contype = 'c'
        AND bullfrog.check_is_proven(definition, name, k.conbin::text))
$$;
COMMENT ON FUNCTION bullfrog.proven_checks(bullfrog.target, text, text) IS 'Checks of a new table that hold because of those of the old one.';

CREATE FUNCTION bullfrog.unproven_keys(target bullfrog.target, definition text, name text, group_keys smallint[]) RETURNS oid[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT x.indexrelid FROM pg_catalog.pg_index x WHERE x.indrelid = target.new_table::oid AND x.indisunique
        AND x.indexrelid <> ALL (bullfrog.proven_keys(target, definition, name, group_keys)) ORDER BY x.indexrelid)
$$;
COMMENT ON FUNCTION bullfrog.unproven_keys(bullfrog.target, text, text, smallint[]) IS 'The other unique indexes of a new table.';

CREATE FUNCTION bullfrog.unproven_identities(target bullfrog.target, definition text, name text) RETURNS name[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT a.attname FROM pg_catalog.pg_attribute a WHERE a.attrelid = target.new_table::oid AND a.attidentity <> ''
        AND NOT EXISTS (SELECT FROM bullfrog.demands(definition) d WHERE d.new_table = unproven_identities.name AND d.kind = 'IDENTITY' AND d.proven
            AND d.columns = ARRAY[a.attname::text]))
$$;
COMMENT ON FUNCTION bullfrog.unproven_identities(bullfrog.target, text, text) IS 'Identity columns of a new table whose last value no index of the old one '
    'tells.';

CREATE FUNCTION bullfrog.burden(target bullfrog.target, definition text, item record) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN jsonb_build_object('required', item.required, 'evaluated', cardinality(item.evaluated) > 0,
        'keys', bullfrog.unproven_keys(target, definition, item.new_table, item.keys),
        'expressions', bullfrog.proven_expressions(target, definition, item.new_table),
        'checks', bullfrog.proven_checks(target, definition, item.new_table),
        'identities', bullfrog.unproven_identities(target, definition, item.new_table),
        'form', bullfrog.form_of_checks(target));
END
$$;
COMMENT ON FUNCTION bullfrog.burden(bullfrog.target, text, record) IS 'What is to be found out of rows of a new table: which columns have no NULL '
    'and which expressions and checks need no look, as the old tables prove; whether expressions must be evaluated; which keys must be compared and which '
    'identities counted; and the form of all that asks.';

CREATE FUNCTION bullfrog.form_of_checks(target bullfrog.target) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH code AS MATERIALIZED (SELECT c.class, c.object FROM bullfrog.code_of(target.new_table) c)
    SELECT md5(concat_ws(';',
        (SELECT string_agg(concat_ws(' ', p.oid, p.xmin, p.ctid), ',' ORDER BY p.oid) FROM code c
            JOIN pg_proc p ON c.class = 'pg_proc'::regclass AND p.oid = c.object),
        (SELECT string_agg(concat_ws(' ', d.oid, d.typnotnull), ',' ORDER BY d.oid) FROM code c
            JOIN pg_type d ON c.class = 'pg_type'::regclass AND d.oid = c.object AND d.typtype = 'd'),
        (SELECT string_agg(concat_ws(' ', k.oid, k.xmin, k.ctid), ',' ORDER BY k.oid) FROM code c
            JOIN pg_constraint k ON c.class = 'pg_constraint'::regclass AND k.oid = c.object AND k.contypid <> 0),
        (SELECT string_agg(a.attnum::text, ',' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = target.new_table::oid AND a.attnotnull),
        (SELECT string_agg(x.indexrelid::text, ',' ORDER BY x.indexrelid) FROM pg_index x WHERE x.indrelid = target.new_table::oid),
        (SELECT string_agg(k.oid::text, ',' ORDER BY k.oid) FROM pg_constraint k WHERE k.conrelid = target.new_table::oid AND k.contype = 'c'),
        (SELECT string_agg(c.relfilenode::text, ',' ORDER BY c.oid) FROM pg_class c WHERE c.oid = ANY (target.old_tables))))
$$;
COMMENT ON FUNCTION bullfrog.form_of_checks(bullfrog.target) IS 'What a look at rows relies on: functions that are called for them, domains, what the new table asks for, the '
    'files of the old ones.';

CREATE FUNCTION bullfrog.oids_of(burden jsonb, what text) RETURNS oid[]
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT e::oid FROM jsonb_array_elements_text(burden -> what) e)
$$;
COMMENT ON FUNCTION bullfrog.oids_of(jsonb, text) IS 'Numbers of objects in what bullfrog.burden tells.';

CREATE FUNCTION bullfrog.require_checkable(relation regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    item record;
BEGIN
    SELECT string_agg(r, '; ') AS obstacles INTO item FROM bullfrog.replication(relation) r;
    IF item.obstacles IS NOT NULL THEN
        RAISE EXCEPTION 'cannot migrate to %: %', relation, item.obstacles
            USING ERRCODE = 'feature_not_supported', HINT = 'Replicate it when the migration has ended.';
    END IF;
    SELECT k.conname INTO item FROM pg_constraint k WHERE k.conrelid = relation AND k.contype = 'c' AND bullfrog.is_mutable(k.conbin::text)
        LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the check % of % is not immutable', quote_ident(item.conname), relation
            USING ERRCODE = 'feature_not_supported',
                HINT = 'What a row satisfies at the switch it could violate when it moves. Add the check when the migration has ended.';
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.require_checkable(regclass) IS 'Refuses new tables whose rows could be others for others, or at another time.';

CREATE FUNCTION bullfrog.rows_where(target bullfrog.target, chosen text) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_catalog.format('(SELECT * FROM bullfrog.transformed_%s WHERE %s) t', target.id, chosen)
$$;
COMMENT ON FUNCTION bullfrog.rows_where(bullfrog.target, text) IS 'Rows of the old tables that meet a condition, in the form of the new one, for FROM.';

CREATE FUNCTION bullfrog.questions(target bullfrog.target, burden jsonb, transformed text) RETURNS TABLE (what text, query text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relation CONSTANT regclass := target.new_table;
BEGIN
    -- Expressions are immutable and the old tables no longer change: what can be evaluated now can be evaluated always.
    IF (burden ->> 'evaluated')::boolean THEN
        RETURN QUERY SELECT NULL, format('SELECT to_jsonb(%s) FROM %s', string_agg(format('count(%I)', a.attname), ' + '), transformed)
            FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0;
    END IF;
    RETURN QUERY SELECT NULL, format('SELECT to_jsonb(count(ROW(%s))) FROM %s %s', COALESCE(pg_get_expr(x.indexprs, relation), ''), transformed,
            COALESCE('WHERE ' || pg_get_expr(x.indpred, relation), ''))
        FROM pg_index x WHERE x.indrelid = relation AND (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL)
            AND x.indexrelid <> ALL (bullfrog.oids_of(burden, 'expressions'));
    RETURN QUERY SELECT format('NOT NULL of %I', a.attname), format('SELECT to_jsonb(t) FROM %s WHERE %I IS NULL', transformed, a.attname)
        FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND a.attnotnull AND NOT (burden -> 'required' ->> (a.attnum - 1))::boolean
        ORDER BY a.attnum;
    -- For each row a check is evaluated as a whole, as when the row moves: not its parts, in an order of the planner's.
    RETURN QUERY SELECT format('the check %I', k.conname), format('SELECT to_jsonb(t) FROM (SELECT t.*, %s AS bullfrog_satisfied FROM %s OFFSET 0) t '
            'WHERE NOT bullfrog_satisfied', pg_get_expr(k.conbin, k.conrelid), transformed)
        FROM pg_constraint k WHERE k.conrelid = relation AND k.contype = 'c' AND k.oid <> ALL (bullfrog.oids_of(burden, 'checks')) ORDER BY k.conname;
END
$$;
COMMENT ON FUNCTION bullfrog.questions(bullfrog.target, jsonb, text) IS 'What rows of the old tables, as bullfrog.rows_where names them, are asked, one by one: the rows '
    'that a query gives violate something. Of nothing: they are evaluated only.';

CREATE FUNCTION bullfrog.check_rows(target bullfrog.target, checks text, burden jsonb, transformed text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    question record;
BEGIN
    FOR question IN SELECT * FROM bullfrog.questions(target, burden, transformed) LOOP
        IF question.what IS NULL THEN
            PERFORM bullfrog.evaluate(target.new_table, question.query);
        ELSE
            PERFORM bullfrog.judge(target, checks, question.what, question.query);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.check_rows(bullfrog.target, text, jsonb, text) IS 'Checks that rows of the old tables, as bullfrog.rows_where names them, can be rows of the '
    'new one, but for what they have in common.';

CREATE FUNCTION bullfrog.is_proven(migration_id int, key pg_catalog.pg_constraint, child bullfrog.target, parent bullfrog.target)
    RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM bullfrog.released r
        WHERE r.migration = migration_id AND r.valid
            AND r.relation = COALESCE(child.old_tables[1], key.conrelid) AND r.refers_to = COALESCE(parent.old_tables[1], key.confrelid)
            AND r.columns = CASE WHEN child.id IS NULL THEN key.conkey
                ELSE ARRAY(SELECT child.origins[c.a] FROM pg_catalog.unnest(key.conkey) WITH ORDINALITY AS c (a, n) ORDER BY c.n) END
            AND r.referred = CASE WHEN parent.id IS NULL THEN key.confkey
                ELSE ARRAY(SELECT parent.origins[c.a] FROM pg_catalog.unnest(key.confkey) WITH ORDINALITY AS c (a, n) ORDER BY c.n) END)
        AND (parent.id IS NULL OR parent.complete)
$$;
COMMENT ON FUNCTION bullfrog.is_proven(int, pg_catalog.pg_constraint, bullfrog.target, bullfrog.target) IS
    'Whether a foreign key holds because the old tables had it, but for rows that refer to what is in quarantine. No child or parent: that table is not one of the migration.';
