-- Keys that nothing proves ---------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.key_terms(index oid) RETURNS TABLE (n int, term text, equal text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT i.n::int, pg_get_indexdef(index, i.n::int, false) || CASE WHEN i.compared_by <> 0 THEN format(' COLLATE %s', i.compared_by::regcollation) ELSE '' END,
        format('OPERATOR(%I.%s)', s.nspname, o.oprname)
    FROM pg_index x
    CROSS JOIN LATERAL unnest(x.indclass::oid[], x.indcollation::oid[]) WITH ORDINALITY AS i (opclass, compared_by, n)
    JOIN pg_opclass c ON c.oid = i.opclass
    JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype AND m.amopstrategy = 3
    JOIN pg_operator o ON o.oid = m.amopopr
    JOIN pg_namespace s ON s.oid = o.oprnamespace
    WHERE x.indexrelid = index
$$;
COMMENT ON FUNCTION bullfrog.key_terms(oid) IS 'What a unique index compares, and by which operators.';

CREATE FUNCTION bullfrog.has_key(index oid) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT concat_ws(' AND ', (SELECT string_agg(format('(%s) IS NOT NULL', k.term), ' AND ' ORDER BY k.n) FROM bullfrog.key_terms(index) k),
        '(' || pg_get_expr(x.indpred, x.indrelid) || ')') FROM pg_index x WHERE x.indexrelid = index
$$;
COMMENT ON FUNCTION bullfrog.has_key(oid) IS 'When a row has a key in a unique index.';

CREATE FUNCTION bullfrog.check_keys(target bullfrog.target, checks text, burden jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    index regclass;
    doubtful text;
BEGIN
    FOREACH index IN ARRAY bullfrog.oids_of(burden, 'keys') LOOP
        doubtful := CASE WHEN to_regclass(format('bullfrog.doubles_%s', index::oid)) IS NULL THEN 'true'
            ELSE format('bullfrog_tid = ANY (ARRAY(SELECT d.bullfrog_tid FROM bullfrog.doubles_%s d))', index::oid) END;
        PERFORM bullfrog.judge(target, checks, format('the unique index %s', index), format(
            'SELECT to_jsonb(t) FROM %1$s JOIN (SELECT bullfrog_tid, row_number() OVER (PARTITION BY %2$s ORDER BY bullfrog_tid) AS n FROM %1$s WHERE %3$s) AS same '
            'USING (bullfrog_tid) WHERE same.n > 1', bullfrog.rows_where(target, doubtful), (SELECT string_agg(k.term, ', ' ORDER BY k.n) FROM bullfrog.key_terms(index) k),
            bullfrog.has_key(index)));
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.check_keys(bullfrog.target, text, jsonb) IS 'Checks that no two rows of the old tables would have the same key in the new one: of those '
    'that bullfrog.begin_doubles and add_doubles have found, or else of all.';

CREATE FUNCTION bullfrog.named_by(target bullfrog.target) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attname LIKE 'bullfrog\_key\_%' DESC, a.attnum) FROM pg_attribute a
    WHERE a.attrelid = to_regclass(format('bullfrog.transformed_%s', target.id)) AND a.attname LIKE 'bullfrog\_%'
$$;
COMMENT ON FUNCTION bullfrog.named_by(bullfrog.target) IS 'The columns of the rows of old tables that tell of which granule each is: the key of a group, and the place.';

CREATE FUNCTION bullfrog.index_keys(kept text, columns text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('CREATE INDEX ON bullfrog.%I (%s)', kept, columns);
EXCEPTION WHEN program_limit_exceeded OR undefined_object THEN
    -- A key is too long (its row cannot move, which is told then), or nothing brings such keys into an order: they are compared all the same.
    NULL;
END
$$;
COMMENT ON FUNCTION bullfrog.index_keys(text, text) IS 'Lets what is kept of keys be found by these columns, if it can be.';

CREATE FUNCTION bullfrog.keep_keys(target bullfrog.target, burden jsonb, by_granule boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    granule CONSTANT text := bullfrog.named_by(target);
    index oid;
    kept text;
    terms record;
BEGIN
    FOREACH index IN ARRAY bullfrog.oids_of(burden, 'keys') LOOP
        kept := 'keys_' || index;
        SELECT string_agg(format('(%s) AS bullfrog_term_%s', k.term, k.n), ', ' ORDER BY k.n) AS named,
            string_agg('bullfrog_term_' || k.n, ', ' ORDER BY k.n) AS names INTO terms FROM bullfrog.key_terms(index) k;
        -- Of this transaction alone. Its owner is that of the old table: what the server calls of it, it calls as that one.
        EXECUTE format('CREATE UNLOGGED TABLE bullfrog.%I USING heap AS SELECT %s, %s FROM bullfrog.transformed_%s WITH NO DATA', kept, terms.named, granule, target.id);
        EXECUTE (SELECT format('ALTER TABLE bullfrog.%I OWNER TO %s', kept, c.relowner::regrole) FROM pg_class c WHERE c.oid = target.new_table);
        PERFORM bullfrog.add_keys(target, index, bullfrog.rows_where(target, 'true'));
        PERFORM bullfrog.index_keys(kept, terms.names);
        IF by_granule THEN
            PERFORM bullfrog.index_keys(kept, granule);
        END IF;
        EXECUTE format('ANALYZE bullfrog.%I', kept);
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.keep_keys(bullfrog.target, jsonb, boolean) IS 'Keeps the keys that rows would have in a new table, as this look sees them, with an index, so that a key of a row that is '
    'written later is found there; by granule: with one by which what was kept of a granule is found, too.';

CREATE FUNCTION bullfrog.add_keys(target bullfrog.target, index oid, transformed text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM bullfrog.change_as_looked(target.new_table, format('INSERT INTO bullfrog.keys_%s SELECT %s, %s FROM %s WHERE %s', index,
        (SELECT string_agg(k.term, ', ' ORDER BY k.n) FROM bullfrog.key_terms(index) k), bullfrog.named_by(target), transformed, bullfrog.has_key(index)));
END
$$;
COMMENT ON FUNCTION bullfrog.add_keys(bullfrog.target, oid, text) IS 'Adds the keys of rows, as bullfrog.rows_where names them, to those that are kept.';

CREATE FUNCTION bullfrog.check_kept_keys(target bullfrog.target, checks text, burden jsonb, chosen text) RETURNS void
    -- Each key is looked up.
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    index regclass;
    terms record;
BEGIN
    FOREACH index IN ARRAY bullfrog.oids_of(burden, 'keys') LOOP
        PERFORM bullfrog.add_keys(target, index, bullfrog.rows_where(target, chosen));
        SELECT string_agg(format('(%s) AS bullfrog_term_%s', k.term, k.n), ', ' ORDER BY k.n) AS named,
            string_agg(format('k.bullfrog_term_%s %s t.bullfrog_term_%1$s', k.n, k.equal), ' AND ' ORDER BY k.n) AS found,
            string_agg(format('o.bullfrog_term_%s %s t.bullfrog_term_%1$s', k.n, k.equal), ' AND ' ORDER BY k.n) AS same
        INTO terms FROM bullfrog.key_terms(index) k;
        -- What was kept may be gone, or another row may be in its place.
        PERFORM bullfrog.judge(target, checks, format('the unique index %s', index), format(
            'SELECT to_jsonb(t.bullfrog_tid) FROM (SELECT bullfrog_tid, %1$s FROM (SELECT * FROM bullfrog.transformed_%2$s WHERE %3$s) t WHERE %4$s) t '
            'WHERE EXISTS (SELECT FROM bullfrog.keys_%5$s k WHERE %6$s AND k.bullfrog_tid <> t.bullfrog_tid AND EXISTS (SELECT FROM ('
                'SELECT bullfrog_tid, %1$s FROM bullfrog.transformed_%2$s WHERE %4$s) o WHERE o.bullfrog_tid = k.bullfrog_tid AND %7$s))',
            terms.named, target.id, chosen, bullfrog.has_key(index), index::oid, terms.found, terms.same));
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.check_kept_keys(bullfrog.target, text, jsonb, text) IS 'Checks that rows that meet a condition, each of which is one old row, have no key in a new table that another '
    'row has.';

CREATE FUNCTION bullfrog.renew_keys(target bullfrog.target, burden jsonb, transformed text, named text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET random_page_cost = 1 AS $$
DECLARE
    index oid;
BEGIN
    IF named IS NULL THEN
        PERFORM bullfrog.forget_keys(burden);
        PERFORM bullfrog.keep_keys(target, burden, true);
        RETURN;
    END IF;
    FOREACH index IN ARRAY bullfrog.oids_of(burden, 'keys') LOOP
        PERFORM bullfrog.change(target.new_table, format('DELETE FROM bullfrog.keys_%s t USING %s WHERE %s', index, named, bullfrog.same_granule(target, burden)));
        PERFORM bullfrog.add_keys(target, index, transformed);
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.renew_keys(bullfrog.target, jsonb, text, text) IS 'Of groups and joins: keeps the keys that granules have now in place of those that they had. NULL: of all.';

CREATE FUNCTION bullfrog.require_unique(target bullfrog.target, burden jsonb, named text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET random_page_cost = 1 AS $$
DECLARE
    index regclass;
    terms record;
    found_rows bigint;
BEGIN
    FOREACH index IN ARRAY bullfrog.oids_of(burden, 'keys') LOOP
        SELECT string_agg('bullfrog_term_' || k.n, ', ' ORDER BY k.n) AS names,
            string_agg(format('o.bullfrog_term_%s %s t.bullfrog_term_%1$s', k.n, k.equal), ' AND ' ORDER BY k.n) AS same
        INTO terms FROM bullfrog.key_terms(index) k;
        SELECT e::bigint INTO found_rows FROM bullfrog.evaluate(target.new_table, CASE
            WHEN named IS NULL THEN format('SELECT to_jsonb(count(*)) FROM (SELECT row_number() OVER (PARTITION BY %s) AS n FROM bullfrog.keys_%s) t WHERE t.n > 1',
                terms.names, index::oid)
            ELSE format('SELECT to_jsonb(count(DISTINCT t.ctid)) FROM %s JOIN bullfrog.keys_%s t ON %s '
                'WHERE EXISTS (SELECT FROM bullfrog.keys_%2$s o WHERE o.ctid <> t.ctid AND %4$s)', named, index::oid, bullfrog.same_granule(target, burden), terms.same) END) e;
        PERFORM bullfrog.refuse_rows(target, format('the unique index %s', index), found_rows);
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.require_unique(bullfrog.target, jsonb, text) IS 'An error if, of the keys that are kept, those of some granules are there twice. NULL: of all.';

CREATE FUNCTION bullfrog.same_granule(target bullfrog.target, burden jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE target.granule WHEN 'group' THEN burden ->> 'same_group' ELSE 't.bullfrog_tid = k.bullfrog_tid' END
$$;
COMMENT ON FUNCTION bullfrog.same_granule(bullfrog.target, jsonb) IS 'When a row t is of a granule k.';

CREATE FUNCTION bullfrog.begin_doubles(target bullfrog.target, burden jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    index oid;
BEGIN
    PERFORM bullfrog.forget_keys(burden);
    PERFORM bullfrog.keep_keys(target, burden, true);
    FOREACH index IN ARRAY bullfrog.oids_of(burden, 'keys') LOOP
        EXECUTE format('CREATE UNLOGGED TABLE bullfrog.doubles_%s (bullfrog_tid tid) USING heap', index);
        EXECUTE (SELECT format('ALTER TABLE bullfrog.doubles_%s OWNER TO %s', index, c.relowner::regrole) FROM pg_class c WHERE c.oid = target.new_table);
        PERFORM bullfrog.change(target.new_table, format(
            'INSERT INTO bullfrog.doubles_%1$s SELECT bullfrog_tid FROM (SELECT bullfrog_tid, count(*) OVER (PARTITION BY %2$s) AS n FROM bullfrog.keys_%1$s) k WHERE n > 1',
            index, (SELECT string_agg('bullfrog_term_' || k.n, ', ' ORDER BY k.n) FROM bullfrog.key_terms(index) k)));
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.begin_doubles(bullfrog.target, jsonb) IS 'Keeps keys, and the places of rows that have one in common. Which of these stay is told behind the lock: it depends on '
    'all others that have the key then.';

CREATE FUNCTION bullfrog.add_doubles(target bullfrog.target, burden jsonb, chosen text) RETURNS void
    -- Each key is looked up.
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    index oid;
BEGIN
    FOREACH index IN ARRAY bullfrog.oids_of(burden, 'keys') LOOP
        PERFORM bullfrog.add_keys(target, index, bullfrog.rows_where(target, chosen));
        -- What was kept may be gone: then it is no row that stays.
        PERFORM bullfrog.change(target.new_table, format(
            'INSERT INTO bullfrog.doubles_%1$s SELECT DISTINCT d.place FROM (SELECT * FROM bullfrog.keys_%1$s WHERE %2$s) t '
            'JOIN bullfrog.keys_%1$s o ON %3$s AND o.bullfrog_tid <> t.bullfrog_tid CROSS JOIN LATERAL (VALUES (t.bullfrog_tid), (o.bullfrog_tid)) d (place)',
            index, chosen, (SELECT string_agg(format('o.bullfrog_term_%s %s t.bullfrog_term_%1$s', k.n, k.equal), ' AND ' ORDER BY k.n) FROM bullfrog.key_terms(index) k)));
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.add_doubles(bullfrog.target, jsonb, text) IS 'Adds the keys of rows that meet a condition, which were written, to those that are kept, and their places to those of rows that '
    'have one in common with another.';

CREATE FUNCTION bullfrog.drop_doubles(target bullfrog.target, burden jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    index oid;
BEGIN
    FOREACH index IN ARRAY bullfrog.oids_of(burden, 'keys') LOOP
        PERFORM bullfrog.change(target.new_table, format('DELETE FROM bullfrog.doubles_%1$s d WHERE NOT EXISTS (SELECT FROM %2$s WHERE t.bullfrog_tid = d.bullfrog_tid)',
            index, bullfrog.rows_where(target, format('bullfrog_tid = ANY (ARRAY(SELECT d.bullfrog_tid FROM bullfrog.doubles_%s d))', index))));
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.drop_doubles(bullfrog.target, jsonb) IS 'Forgets those of them that are not there any more, such as what a row was before it was written, so that few are left for the lock.';

CREATE FUNCTION bullfrog.forget_keys(burden jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kept text;
BEGIN
    FOR kept IN SELECT format(n, i) FROM unnest(bullfrog.oids_of(burden, 'keys')) i CROSS JOIN unnest(ARRAY['bullfrog.keys_%s', 'bullfrog.doubles_%s']) n LOOP
        IF to_regclass(kept) IS NOT NULL THEN
            EXECUTE 'DROP TABLE ' || kept;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.forget_keys(jsonb) IS 'Ends what bullfrog.keep_keys and begin_doubles began.';
