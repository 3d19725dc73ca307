-- Old tables that stay in use ------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.freeze(live regclass) RETURNS oid
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number CONSTANT text := live::oid::text;
    owner name;
    seen record;
    was_there text;
    columns record;
    view text := 'bullfrog.frozen_' || number;
    ambiguous boolean;
BEGIN
    SELECT pg_get_userbyid(c.relowner) INTO owner FROM pg_class c WHERE c.oid = live;
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FILTER (WHERE NOT a.attisdropped) AS names,
        (SELECT string_agg('$' || n, ', ' ORDER BY n) FROM generate_series(1, count(*) FILTER (WHERE NOT a.attisdropped) + 1) n)
            AS parameters,
        string_agg(CASE WHEN a.attisdropped THEN 'NULL::int AS ' ELSE 'u.' END || quote_ident(a.attname), ', ' ORDER BY a.attnum)
            AS numbered
    INTO columns FROM pg_attribute a WHERE a.attrelid = live AND a.attnum > 0;
    SELECT * INTO seen FROM bullfrog.unfinished();
    was_there := format('bullfrog.was_there({}, %s, %L)', seen.horizon, seen.others);
    -- Only a server that has had more than half of all numbers of transactions can have rows that bear one of a later transaction.
    IF seen.horizon >= 2147483648 THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %s WHERE NOT %s)', live, replace(was_there, '{}', 'xmin')) INTO ambiguous;
        IF ambiguous THEN
            RAISE EXCEPTION 'rows of % are too old to stay in use beside a new table', live USING ERRCODE = 'feature_not_supported',
                HINT = 'Their transactions have the numbers of coming ones. Update these rows, or migrate the table, too.';
        END IF;
    END IF;
    EXECUTE format('CREATE TABLE bullfrog.kept_%s (LIKE %s, bullfrog_tid tid NOT NULL UNIQUE)', number, live);
    EXECUTE format('ALTER TABLE bullfrog.kept_%s OWNER TO %I', number, owner);
    -- What is constant in an index is evaluated with the rights of its table's owner.
    PERFORM bullfrog.copy_index(x.indexrelid, format('bullfrog.kept_%s', number)::regclass, ARRAY(SELECT a.attnum FROM pg_attribute a
            WHERE a.attrelid = live AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum))
        FROM pg_index x WHERE x.indrelid = live AND x.indisvalid;
    EXECUTE format('COMMENT ON TABLE bullfrog.kept_%s IS %L', number,
        format('Rows of %s that were changed or deleted since the switch, as they were.', live));
    EXECUTE format('CREATE VIEW %s AS SELECT %s, u.bullfrog_tid FROM (SELECT %s, ctid AS bullfrog_tid, xmin AS bullfrog_xmin FROM ONLY %s '
        'UNION ALL SELECT %3$s, bullfrog_tid, ''2''::xid FROM bullfrog.kept_%5$s) AS u WHERE %6$s', view, columns.numbered, columns.names,
        live, number, replace(was_there, '{}', 'u.bullfrog_xmin'));
    EXECUTE format('COMMENT ON VIEW %s IS %L', view, format('%s as it was at the switch.', live));
    -- Whether the row was there is asked by the function: a condition would be read anew for each statement.
    EXECUTE format('CREATE TRIGGER bullfrog_keep BEFORE UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION bullfrog.keep(%L, %L, %L)',
        live, seen.horizon, array_to_string(seen.others, ' '),
        format('INSERT INTO bullfrog.kept_%s (%s, bullfrog_tid) VALUES (%s)', number, columns.names, columns.parameters));
    -- Also for what replication writes.
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER bullfrog_keep', live);
    EXECUTE format('GRANT SELECT ON %s TO %I', view, owner);
    RETURN view::regclass;
END
$$;
COMMENT ON FUNCTION bullfrog.freeze(regclass) IS 'Lets a table that stays in use be read as it was at the switch: rows of '
    'transactions that had ended by then, and what was kept of those that are changed or deleted later, by the transaction that does it. '
    'Gives the view.';

CREATE FUNCTION bullfrog.thaw(live regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number CONSTANT text := live::oid::text;
BEGIN
    EXECUTE format('DROP TRIGGER bullfrog_keep ON %s', live);
    EXECUTE format('DROP VIEW bullfrog.frozen_%s', number);
    EXECUTE format('DROP TABLE bullfrog.kept_%s', number);
END
$$;
COMMENT ON FUNCTION bullfrog.thaw(regclass) IS 'Ends what bullfrog.freeze began.';
