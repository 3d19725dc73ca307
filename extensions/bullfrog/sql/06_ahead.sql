-- Rows are looked at before the switch, while clients go on ----------------------------------------------------------------

CREATE FUNCTION bullfrog.is_seen_ahead(target bullfrog.target, checks text, burden jsonb) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Each new row is one old row, and what it takes from that is the same later on. A domain may come to refuse what it took before.
    RETURN target.granule <> 'group' AND cardinality(target.old_tables) = 1 AND cardinality(target.live_tables) = 0
        AND NOT EXISTS (SELECT FROM pg_depend d JOIN pg_type t ON d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid AND t.typtype = 'd'
            WHERE d.classid = 'pg_rewrite'::regclass AND d.objid IN (SELECT r.oid FROM pg_rewrite r WHERE r.ev_class = ANY (target.views))
                OR d.classid = 'pg_constraint'::regclass AND d.objid IN (SELECT k.oid FROM pg_constraint k WHERE k.conrelid = target.new_table)
                OR d.classid = 'pg_class'::regclass AND d.objid IN (SELECT x.indexrelid FROM pg_index x WHERE x.indrelid = target.new_table))
        AND (EXISTS (SELECT FROM bullfrog.questions(target, burden, 'true') q WHERE q.what IS NULL OR checks <> 'warn')
            OR checks = 'before' AND burden -> 'keys' <> '[]' OR burden -> 'identities' <> '[]');
END
$$;
COMMENT ON FUNCTION bullfrog.is_seen_ahead(bullfrog.target, text, jsonb) IS 'Whether anything is to be found out of the rows of a new table that can be found out '
    'before its old table is locked.';

CREATE FUNCTION bullfrog.moment(tables oid[]) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- In this order: what was written before the place in the log is of transactions that have ended, and what comes next sees it.
    place CONSTANT bigint := (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint;
BEGIN
    PERFORM bullfrog.wait_for_writers(tables);
    RETURN jsonb_build_object('position', place, 'horizon', pg_snapshot_xmin(pg_current_snapshot())::text::bigint);
END
$$;
COMMENT ON FUNCTION bullfrog.moment(oid[]) IS 'A moment from which on bullfrog.written_since tells what is written to some tables. Statements that begin now see '
    'all that was written before.';

CREATE FUNCTION bullfrog.written(tables oid[], since jsonb) RETURNS jsonb
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT COALESCE(pg_catalog.jsonb_object_agg(t, bullfrog.written_since(t, (since ->> 'position')::bigint, (since ->> 'horizon')::bigint)), '{}')
    FROM pg_catalog.unnest(tables) t
$$;
COMMENT ON FUNCTION bullfrog.written(oid[], jsonb) IS 'Of each table the places of rows that were written since a moment; NULL: of too many.';

CREATE FUNCTION bullfrog.keep_keys(target bullfrog.target, burden jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    index oid;
    terms record;
BEGIN
    FOREACH index IN ARRAY bullfrog.oids_of(burden, 'keys') LOOP
        SELECT string_agg(format('(%s) AS bullfrog_key_%s', k.term, k.n), ', ' ORDER BY k.n) AS named,
            string_agg('bullfrog_key_' || k.n, ', ' ORDER BY k.n) AS names INTO terms FROM bullfrog.key_terms(index) k;
        -- Of this transaction alone. Its owner is that of the old table: what the server calls of it, it calls as that one.
        EXECUTE format('CREATE UNLOGGED TABLE bullfrog.keys_%s USING heap AS SELECT %s, bullfrog_tid FROM bullfrog.transformed_%s WITH NO DATA', index,
            terms.named, target.id);
        EXECUTE (SELECT format('ALTER TABLE bullfrog.keys_%s OWNER TO %s', index, c.relowner::regrole) FROM pg_class c WHERE c.oid = target.new_table);
        PERFORM bullfrog.add_keys(target, index, 'true');
        BEGIN
            EXECUTE format('CREATE INDEX ON bullfrog.keys_%s (%s)', index, terms.names);
        EXCEPTION WHEN program_limit_exceeded THEN
            -- A key is too long. Its row cannot move, which is told then; keys are compared all the same.
            NULL;
        END;
        EXECUTE format('ANALYZE bullfrog.keys_%s', index);
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.keep_keys(bullfrog.target, jsonb) IS 'Keeps the keys that rows would have in a new table, and an index of them, so that a key of a row that is '
    'written later is found there.';

CREATE FUNCTION bullfrog.add_keys(target bullfrog.target, index oid, chosen text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM bullfrog.change(target.new_table, format('INSERT INTO bullfrog.keys_%s SELECT %s, bullfrog_tid FROM (SELECT * FROM bullfrog.transformed_%s WHERE %s) t '
        'WHERE %s', index, (SELECT string_agg(k.term, ', ' ORDER BY k.n) FROM bullfrog.key_terms(index) k), target.id, chosen, bullfrog.has_key(index)));
END
$$;
COMMENT ON FUNCTION bullfrog.add_keys(bullfrog.target, oid, text) IS 'Adds the keys of rows that meet a condition to those that are kept.';

CREATE FUNCTION bullfrog.check_kept_keys(target bullfrog.target, checks text, burden jsonb, chosen text) RETURNS void
    -- Each key is looked up.
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    index regclass;
    terms record;
BEGIN
    FOREACH index IN ARRAY bullfrog.oids_of(burden, 'keys') LOOP
        PERFORM bullfrog.add_keys(target, index, chosen);
        SELECT string_agg(format('(%s) AS bullfrog_key_%s', k.term, k.n), ', ' ORDER BY k.n) AS named,
            string_agg(format('k.bullfrog_key_%s %s t.bullfrog_key_%1$s', k.n, k.equal), ' AND ' ORDER BY k.n) AS found,
            string_agg(format('o.bullfrog_key_%s %s t.bullfrog_key_%1$s', k.n, k.equal), ' AND ' ORDER BY k.n) AS same
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
COMMENT ON FUNCTION bullfrog.check_kept_keys(bullfrog.target, text, jsonb, text) IS 'Checks that rows that meet a condition have no key in a new table that another '
    'row has.';

CREATE FUNCTION bullfrog.forget_keys(burden jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    index oid;
BEGIN
    FOREACH index IN ARRAY bullfrog.oids_of(burden, 'keys') LOOP
        IF to_regclass(format('bullfrog.keys_%s', index)) IS NOT NULL THEN
            EXECUTE format('DROP TABLE bullfrog.keys_%s', index);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.forget_keys(jsonb) IS 'Ends what bullfrog.keep_keys began.';

CREATE FUNCTION bullfrog.reconsider(target bullfrog.target, places tid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    there CONSTANT bigint[] := ARRAY(SELECT e::bigint FROM bullfrog.evaluate(target.new_table, format(
        'SELECT to_jsonb(bullfrog.place(bullfrog_tid)) FROM bullfrog.all_%s WHERE bullfrog_tid = ANY (ARRAY(SELECT format(''(%%s,%%s)'', q.place >> 16, '
            'q.place & 65535)::tid FROM bullfrog.quarantined q WHERE q.target = %1$s))', target.id)) e);
BEGIN
    DELETE FROM bullfrog.quarantined q WHERE q.target = target.id
        AND (q.place <> ALL (there) OR q.place IN (SELECT bullfrog.place(p) FROM unnest(places) p));
END
$$;
COMMENT ON FUNCTION bullfrog.reconsider(bullfrog.target, tid[]) IS 'Takes rows out of quarantine that are gone, or that were written since: these are looked at '
    'again.';

CREATE FUNCTION bullfrog.check_written(target bullfrog.target, checks text, burden jsonb, places text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    chosen CONSTANT text := CASE WHEN places IS NULL THEN 'true' ELSE format('bullfrog_tid = ANY (%L::tid[])', places) END;
BEGIN
    IF checks = 'quarantine' THEN
        IF places IS NULL THEN
            DELETE FROM bullfrog.quarantined q WHERE q.target = target.id;
        ELSE
            PERFORM bullfrog.reconsider(target, places::tid[]);
        END IF;
    END IF;
    IF places = '{}' THEN
        RETURN;
    END IF;
    IF checks = 'warn' THEN
        PERFORM bullfrog.evaluate(target.new_table, q.query) FROM bullfrog.questions(target, burden, chosen) q WHERE q.what IS NULL;
    ELSE
        PERFORM bullfrog.check_rows(target, checks, burden, chosen);
    END IF;
    IF checks = 'before' AND places IS NULL THEN
        PERFORM bullfrog.check_keys(target, checks, burden);
        PERFORM bullfrog.add_keys(target, k, 'true') FROM unnest(bullfrog.oids_of(burden, 'keys')) k;
    ELSIF checks = 'before' THEN
        PERFORM bullfrog.check_kept_keys(target, checks, burden, chosen);
    END IF;
    PERFORM bullfrog.advance_identities(target, ARRAY(SELECT jsonb_array_elements_text(burden -> 'identities'))::name[], chosen);
END
$$;
COMMENT ON FUNCTION bullfrog.check_written(bullfrog.target, text, jsonb, text) IS 'Looks at those rows again that were written since others looked at them. NULL: these are '
    'too many to be told, so at all.';

CREATE FUNCTION bullfrog.look_ahead(burdens jsonb, checks text) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tables CONSTANT oid[] := ARRAY(SELECT DISTINCT t.old_tables[1] FROM bullfrog.target t WHERE (burdens -> t.id::text ->> 'ahead')::boolean ORDER BY 1);
    target bullfrog.target;
    burden jsonb;
    since jsonb;
    now_seen jsonb;
    written jsonb;
    began timestamptz;
    took interval;
    longest interval;
BEGIN
    IF tables = '{}' THEN
        RETURN NULL;
    END IF;
    FOR round IN 1..10 LOOP
        began := clock_timestamp();
        now_seen := bullfrog.moment(tables);
        written := CASE WHEN since IS NOT NULL THEN bullfrog.written(tables, since) END;
        FOR target IN SELECT * FROM bullfrog.target t WHERE (burdens -> t.id::text ->> 'ahead')::boolean ORDER BY t.id LOOP
            burden := burdens -> target.id::text;
            IF since IS NOT NULL THEN
                PERFORM bullfrog.check_written(target, checks, burden, written ->> target.old_tables[1]::text);
                CONTINUE;
            END IF;
            PERFORM bullfrog.check_rows(target, checks, burden, 'true');
            IF checks = 'before' THEN
                PERFORM bullfrog.check_keys(target, checks, burden);
                PERFORM bullfrog.keep_keys(target, burden);
            END IF;
            PERFORM bullfrog.advance_identities(target, ARRAY(SELECT jsonb_array_elements_text(burden -> 'identities'))::name[], 'true');
        END LOOP;
        since := now_seen;
        took := clock_timestamp() - began;
        PERFORM bullfrog.reach('switch: rows seen ahead');
        EXIT WHEN took < '50 ms' OR took > longest;
        longest := took * 0.75;
    END LOOP;
    RETURN since;
END
$$;
COMMENT ON FUNCTION bullfrog.look_ahead(jsonb, text) IS 'Looks at all rows of old tables while clients go on, then in rounds at what was written during the one before, as long as '
    'they get shorter. Tells since when rows were not looked at; NULL: there is nothing to be seen ahead.';
