-- Foreign keys of new tables, and to them --------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.is_its_text(kind oid) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT COALESCE(NULLIF(t.typbasetype, 0), t.oid) < 16384 OR t.typtype = 'e' FROM pg_type t WHERE t.oid = kind
$$;
COMMENT ON FUNCTION bullfrog.is_its_text(oid) IS 'Whether values of a type are the same again when they are read from their texts: the server''s own are.';

CREATE FUNCTION bullfrog.linking(migration_id int, definition text, others oid[]) RETURNS oid[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT DISTINCT h.relation FROM bullfrog.demands(definition) d
        CROSS JOIN LATERAL (VALUES (d.new_table, false), (d.refers_to, true)) AS r (name, is_referred)
        JOIN pg_class c ON c.oid = to_regclass(r.name)
        -- With a partitioned table its partitions.
        CROSS JOIN LATERAL (SELECT c.oid AS relation UNION SELECT p.relid FROM pg_partition_tree(c.oid) p) h
        WHERE d.kind = 'FOREIGN KEY' AND c.relkind IN ('r', 'p') AND h.relation <> ALL (others)
            AND NOT EXISTS (SELECT FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source WHERE t.new_table = c.oid AND s.migration = migration_id)
            AND (pg_has_role(bullfrog.asker(), c.relowner, 'USAGE') OR r.is_referred AND has_any_column_privilege(bullfrog.asker(), c.oid, 'REFERENCES'))
        ORDER BY h.relation)
$$;
COMMENT ON FUNCTION bullfrog.linking(int, text, oid[]) IS 'Tables, other than these and new ones, that have foreign keys from or to new tables, as far as who asks may give them such.';

CREATE FUNCTION bullfrog.reference_operators(child oid, columns smallint[], parent oid, referred smallint[]) RETURNS oid[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- As the server chooses them: of the index that keeps the referred columns apart, for the types at hand, else for that of the index.
    SELECT ARRAY(
        SELECT COALESCE((SELECT m.amopopr FROM pg_amop m WHERE m.amopfamily = o.opcfamily AND m.amopstrategy = 3 AND m.amoplefttype = o.opcintype
                AND m.amoprighttype = COALESCE(NULLIF(t.typbasetype, 0), t.oid)),
            (SELECT m.amopopr FROM pg_amop m WHERE m.amopfamily = o.opcfamily AND m.amopstrategy = 3 AND m.amoplefttype = o.opcintype
                AND m.amoprighttype = o.opcintype))
        FROM unnest(columns, referred) WITH ORDINALITY AS c (child, parent, n)
        JOIN pg_attribute a ON a.attrelid = reference_operators.child AND a.attnum = c.child
        JOIN pg_type t ON t.oid = a.atttypid
        JOIN pg_opclass o ON o.oid = (x.indclass::oid[])[array_position((x.indkey::smallint[])[0:x.indnkeyatts - 1], c.parent) - 1]
        ORDER BY c.n)
    FROM pg_index x
    WHERE x.indrelid = reference_operators.parent AND x.indisunique AND x.indimmediate AND x.indisvalid AND x.indexprs IS NULL AND x.indpred IS NULL
        AND x.indnkeyatts = cardinality(referred) AND (x.indkey::smallint[])[0:x.indnkeyatts - 1] @> referred
    ORDER BY x.indisprimary DESC, x.indexrelid LIMIT 1
$$;
COMMENT ON FUNCTION bullfrog.reference_operators(oid, smallint[], oid, smallint[]) IS 'The operators by which a foreign key will compare the referred columns '
    'with those of the referring table. NULL: no key keeps these apart.';

CREATE FUNCTION bullfrog.is_image(target bullfrog.target) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- A table may be joined with itself.
    SELECT pg_catalog.to_regclass(pg_catalog.format('bullfrog.members_%s', target.id)) IS NULL
$$;
COMMENT ON FUNCTION bullfrog.is_image(bullfrog.target) IS 'Whether each row of a new table is one row of one old table, while its switch is under way.';

CREATE FUNCTION bullfrog.has_places(target bullfrog.target) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = to_regclass(format('bullfrog.members_%s', target.id)) AND a.attname LIKE 'bullfrog\_place\_%')
$$;
COMMENT ON FUNCTION bullfrog.has_places(bullfrog.target) IS 'Of groups and joins: whether the old rows of new ones tell which of these come and go when others do.';

CREATE FUNCTION bullfrog.references_ahead(migration_id int, definition text, checks text, burdens jsonb) RETURNS SETOF jsonb
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_build_object('child', c.id, 'table', k.child, 'columns', n.columns, 'parent', p.id, 'refers_to', k.parent, 'referred', n.referred, 'operators', o.operators)
        || jsonb_build_object('bases', COALESCE(c.old_tables, ARRAY[k.child]), 'parent_bases', COALESCE(p.old_tables, ARRAY[k.parent]),
            'of_granules', CASE WHEN NOT bullfrog.is_image(c) THEN burdens -> c.id::text END, 'to_granules', CASE WHEN NOT bullfrog.is_image(p) THEN burdens -> p.id::text END,
            'number', row_number() OVER (), 'what', format('the foreign key (%s) of %s', array_to_string(d.columns, ', '), k.child::regclass))
    FROM bullfrog.demands(definition) d
    CROSS JOIN LATERAL (SELECT to_regclass(d.new_table)::oid AS child, to_regclass(d.refers_to)::oid AS parent) k
    LEFT JOIN bullfrog.target c ON c.new_table::oid = k.child AND c.source IN (SELECT s.id FROM bullfrog.source s WHERE s.migration = migration_id)
    LEFT JOIN bullfrog.target p ON p.new_table::oid = k.parent AND p.source IN (SELECT s.id FROM bullfrog.source s WHERE s.migration = migration_id)
    CROSS JOIN LATERAL (SELECT bullfrog.numbers_of(k.child, d.columns) AS columns, bullfrog.numbers_of(k.parent, d.referred) AS referred,
        CASE WHEN c.id IS NULL THEN k.child ELSE c.old_tables[1] END AS child_base, CASE WHEN p.id IS NULL THEN k.parent ELSE p.old_tables[1] END AS parent_base) n
    CROSS JOIN LATERAL (SELECT bullfrog.reference_operators(k.child, n.columns, k.parent, n.referred) AS operators) o
    CROSS JOIN LATERAL (SELECT bullfrog.linking(migration_id, definition, '{}') AS others) l
    WHERE d.kind = 'FOREIGN KEY' AND (c.id IS NOT NULL OR k.child = ANY (l.others)) AND (p.id IS NOT NULL OR k.parent = ANY (l.others))
        AND COALESCE(c.id, p.id) IS NOT NULL
        AND (c.id IS NULL OR bullfrog.is_image(c) OR checks <> 'quarantine' AND bullfrog.has_places(c))
        AND (p.id IS NULL OR bullfrog.is_image(p) OR checks <> 'quarantine' AND bullfrog.has_places(p))
        AND cardinality(o.operators) = cardinality(n.columns) AND array_position(o.operators, NULL) IS NULL
        -- What is read of them is told by their pages.
        AND NOT EXISTS (SELECT FROM pg_class t LEFT JOIN pg_am m ON m.oid = t.relam WHERE t.oid IN (k.child, k.parent)
            AND (t.relkind <> 'r' OR m.amname <> 'heap' OR t.relpersistence <> 'p'))
        -- Those of the old tables prove it.
        AND NOT (COALESCE(p.complete, true) AND bullfrog.refers(n.child_base,
            CASE WHEN c.id IS NULL THEN n.columns ELSE ARRAY(SELECT c.origins[a] FROM unnest(n.columns) WITH ORDINALITY AS u (a, i) ORDER BY i) END, n.parent_base,
            CASE WHEN p.id IS NULL THEN n.referred ELSE ARRAY(SELECT p.origins[a] FROM unnest(n.referred) WITH ORDINALITY AS u (a, i) ORDER BY i) END))
$$;
COMMENT ON FUNCTION bullfrog.references_ahead(int, text, text, jsonb) IS 'Foreign keys that a migration will have, and that can be checked before its tables are locked: from and to new '
    'tables of which it is told which rows come and go with those of old tables, or others. Bases are the tables whose rows are looked at; granules are those of groups and joins.';

CREATE FUNCTION bullfrog.reference_terms(reference jsonb) RETURNS TABLE (n int, child text, parent text, equal text, same text, kind text, is_its_text boolean)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Values are compared as the referred column compares them.
    SELECT part.n::int, format('c.%I', f.attname) || CASE WHEN f.attcollation <> p.attcollation AND p.attcollation <> 0 THEN format(' COLLATE %s', p.attcollation::regcollation)
        ELSE '' END, format('p.%I', p.attname), format('OPERATOR(%I.%s)', n.nspname, o.oprname), (
            SELECT format('OPERATOR(%I.%s)', e.nspname, q.oprname) FROM pg_amop m
            JOIN pg_amop w ON w.amopfamily = m.amopfamily AND w.amopstrategy = 3 AND w.amoplefttype = m.amoplefttype AND w.amoprighttype = m.amoplefttype
            JOIN pg_operator q ON q.oid = w.amopopr JOIN pg_namespace e ON e.oid = q.oprnamespace
            WHERE m.amopopr = o.oid AND m.amopstrategy = 3 AND m.amopmethod = 403 ORDER BY m.amopfamily LIMIT 1),
        format_type(p.atttypid, -1) || CASE WHEN p.attcollation NOT IN (0, 100) THEN format(' COLLATE %s', p.attcollation::regcollation) ELSE '' END,
        bullfrog.is_its_text(p.atttypid)
    FROM ROWS FROM (jsonb_array_elements_text(reference -> 'columns'), jsonb_array_elements_text(reference -> 'referred'),
        jsonb_array_elements_text(reference -> 'operators')) WITH ORDINALITY AS part (child, parent, operator, n)
    JOIN pg_attribute f ON f.attrelid = (reference ->> 'table')::oid AND f.attnum = part.child::smallint
    JOIN pg_attribute p ON p.attrelid = (reference ->> 'refers_to')::oid AND p.attnum = part.parent::smallint
    JOIN pg_operator o ON o.oid = part.operator::oid
    JOIN pg_namespace n ON n.oid = o.oprnamespace
$$;
COMMENT ON FUNCTION bullfrog.reference_terms(jsonb) IS 'The columns of a foreign key, of tables p and c, by which operator referred ones equal those that refer to them, by which each other, their types, and whether '
    'their values are known by their texts.';

CREATE FUNCTION bullfrog.rows_of(relation oid) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE c.relkind WHEN 'p' THEN '' ELSE 'ONLY ' END || c.oid::regclass FROM pg_class c WHERE c.oid = relation
$$;
COMMENT ON FUNCTION bullfrog.rows_of(oid) IS 'The rows that a foreign key of a table, or to it, is about, for FROM: a partitioned one has those of its partitions.';

CREATE FUNCTION bullfrog.referred_rows(reference jsonb) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT COALESCE('bullfrog.transformed_' || (reference ->> 'parent'), bullfrog.rows_of((reference ->> 'refers_to')::oid))
$$;
COMMENT ON FUNCTION bullfrog.referred_rows(jsonb) IS 'The rows that a foreign key refers to, for FROM.';

CREATE FUNCTION bullfrog.orphans(reference jsonb, what text, source text, chosen text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('SELECT %s FROM %s c WHERE %s AND %s AND NOT EXISTS (SELECT FROM %s p WHERE %s)', what,
        COALESCE(source, 'bullfrog.transformed_' || (reference ->> 'child'), bullfrog.rows_of((reference ->> 'table')::oid)), chosen,
        string_agg(format('%s IS NOT NULL', t.child), ' AND '), bullfrog.referred_rows(reference),
        string_agg(format('%s %s %s', t.parent, t.equal, t.child), ' AND '))
    FROM bullfrog.reference_terms(reference) t
$$;
COMMENT ON FUNCTION bullfrog.orphans(jsonb, text, text, text) IS 'The query for something of rows c of a referring table, or of some of these (for FROM), that meet a condition and refer to nothing.';

CREATE FUNCTION bullfrog.referring_place(reference jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN reference ->> 'child' IS NULL THEN 'c.ctid' ELSE 'c.bullfrog_tid' END
$$;
COMMENT ON FUNCTION bullfrog.referring_place(jsonb) IS 'Where a row c of a referring table lies.';

CREATE FUNCTION bullfrog.lost_keys(reference jsonb, owner_of oid, source text, gone text) RETURNS jsonb[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    parent CONSTANT text := bullfrog.referred_rows(reference);
    terms record;
    were jsonb[];
BEGIN
    SELECT string_agg(format('%s::text', t.parent), ', ' ORDER BY t.n) AS texts,
        string_agg(format('%s %s (k.k ->> %s)::%s', t.parent, t.same, t.n - 1, t.kind), ' AND ' ORDER BY t.n) AS same
    INTO terms FROM bullfrog.reference_terms(reference) t;
    -- What they were, nobody knows but the look before.
    were := ARRAY(SELECT k::jsonb FROM bullfrog.looked_up(owner_of, format('SELECT DISTINCT to_jsonb(ARRAY[%s])::text FROM %s p WHERE %s',
        terms.texts, COALESCE(source, parent), gone), true) k);
    -- Most were only changed, or are there again.
    RETURN ARRAY(SELECT k::jsonb FROM bullfrog.looked_up(owner_of, format('SELECT k.k::text FROM unnest(%L::jsonb[]) AS k (k) '
        'WHERE NOT EXISTS (SELECT FROM %s p WHERE %s)', were, parent, terms.same), false) k);
END
$$;
COMMENT ON FUNCTION bullfrog.lost_keys(jsonb, oid, text, text) IS 'Of rows p of a referred table, or of some of these (for FROM), that met a condition at the look before, the keys that no row has any more.';

CREATE FUNCTION bullfrog.require_none(target bullfrog.target, what text, violating text) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT bullfrog.refuse_rows(target, what, e::bigint)
    FROM bullfrog.looked_up(target.new_table, pg_catalog.format('SELECT pg_catalog.count(*) FROM (%s) AS violating', violating), false) e
$$;
COMMENT ON FUNCTION bullfrog.require_none(bullfrog.target, text, text) IS 'An error if a query gives rows in this look: they violate something.';

CREATE FUNCTION bullfrog.changed_granules(reference jsonb, are_referred boolean, changes jsonb, OUT transformed text, OUT named text)
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('(SELECT * FROM %s)', a.transformed), a.named
    FROM bullfrog.target t CROSS JOIN LATERAL bullfrog.affected(t, reference -> CASE WHEN are_referred THEN 'to_granules' ELSE 'of_granules' END, changes) a
    WHERE t.id = (reference ->> CASE WHEN are_referred THEN 'parent' ELSE 'child' END)::int AND a.transformed IS NOT NULL
$$;
COMMENT ON FUNCTION bullfrog.changed_granules(jsonb, boolean, jsonb) IS 'Rows of groups or of a join that refer, or are referred to, and that may be others than at the look before, for FROM, as bullfrog.affected tells them. '
    'NULL: there are none.';

CREATE FUNCTION bullfrog.changed_referrers(reference jsonb, owner_of oid, changes jsonb) RETURNS TABLE (source text, condition text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET random_page_cost = 1 AS $$
DECLARE
    are_granules CONSTANT boolean := reference -> 'of_granules' <> 'null';
    to_granules CONSTANT boolean := reference -> 'to_granules' <> 'null';
    places CONSTANT text := changes -> 'written' ->> (reference -> 'bases' ->> 0);
    lost_places CONSTANT text := changes -> 'gone' ->> (reference -> 'parent_bases' ->> 0);
    before text;
    named text;
    is_all boolean := changes IS NULL OR places IS NULL AND NOT are_granules OR lost_places IS NULL AND NOT to_granules;
    lost jsonb[] := '{}';
BEGIN
    IF NOT is_all AND to_granules THEN
        SELECT g.transformed, g.named INTO before, named FROM bullfrog.changed_granules(reference, true, changes) g;
        is_all := before IS NOT NULL AND named IS NULL;
    END IF;
    IF NOT is_all AND (before IS NOT NULL OR NOT to_granules AND lost_places <> '{}') THEN
        is_all := EXISTS (SELECT FROM bullfrog.reference_terms(reference) t WHERE NOT t.is_its_text);
        IF NOT is_all THEN
            lost := bullfrog.lost_keys(reference, owner_of, before, CASE WHEN to_granules THEN 'true' ELSE format('p.%s = ANY (%L::tid[])',
                CASE WHEN reference ->> 'parent' IS NULL THEN 'ctid' ELSE 'bullfrog_tid' END, lost_places) END);
        END IF;
    END IF;
    IF is_all THEN
        RETURN QUERY SELECT NULL, 'true';
        RETURN;
    END IF;
    IF are_granules THEN
        RETURN QUERY SELECT g.transformed, 'true' FROM bullfrog.changed_granules(reference, false, changes) g WHERE g.transformed IS NOT NULL;
    ELSIF places <> '{}' THEN
        RETURN QUERY SELECT NULL, format('%s = ANY (%L::tid[])', bullfrog.referring_place(reference), places);
    END IF;
    IF lost <> '{}' THEN
        RETURN QUERY SELECT NULL, format('EXISTS (SELECT FROM unnest(%L::jsonb[]) AS k (k) WHERE %s)', lost,
            string_agg(format('(k.k ->> %s)::%s %s %s', t.n - 1, t.kind, t.equal, t.child), ' AND ')) FROM bullfrog.reference_terms(reference) t;
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.changed_referrers(jsonb, oid, jsonb) IS 'Those rows c of a referring table, some of them (for FROM) and by a condition, that may have come to refer to nothing: they were written since the look '
    'before, or refer to what is gone since. NULL: all.';

CREATE FUNCTION bullfrog.check_reference(reference jsonb, changes jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET random_page_cost = 1 AS $$
DECLARE
    target bullfrog.target;
    chosen record;
BEGIN
    SELECT * INTO target FROM bullfrog.target t WHERE t.id = COALESCE(reference ->> 'child', reference ->> 'parent')::int;
    FOR chosen IN SELECT * FROM bullfrog.changed_referrers(reference, target.new_table, changes) LOOP
        PERFORM bullfrog.require_none(target, reference ->> 'what', bullfrog.orphans(reference, 'c', chosen.source, chosen.condition));
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.check_reference(jsonb, jsonb) IS 'Checks a foreign key that is not there yet: for rows that were written since the look before, and for those '
    'that refer to what is gone since. NULL: for all.';

CREATE FUNCTION bullfrog.orphanage(reference jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('bullfrog.orphans_%s_%s', COALESCE(reference ->> 'child', reference ->> 'parent'), reference ->> 'number')
$$;
COMMENT ON FUNCTION bullfrog.orphanage(jsonb) IS 'The table that bullfrog.note_orphans fills.';

CREATE FUNCTION bullfrog.note_orphans(reference jsonb, changes jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET random_page_cost = 1 AS $$
DECLARE
    noted CONSTANT text := bullfrog.orphanage(reference);
    target bullfrog.target;
    chosen record;
BEGIN
    SELECT * INTO target FROM bullfrog.target t WHERE t.id = COALESCE(reference ->> 'child', reference ->> 'parent')::int;
    IF changes IS NULL THEN
        EXECUTE format('CREATE UNLOGGED TABLE %s (place tid) USING heap', noted);
        EXECUTE (SELECT format('ALTER TABLE %s OWNER TO %s', noted, c.relowner::regrole) FROM pg_class c WHERE c.oid = target.new_table);
    END IF;
    FOR chosen IN SELECT * FROM bullfrog.changed_referrers(reference, target.new_table, changes) LOOP
        PERFORM bullfrog.change_as_looked(target.new_table, format('INSERT INTO %s %s', noted, bullfrog.orphans(reference, bullfrog.referring_place(reference), chosen.source,
            chosen.condition)));
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.note_orphans(jsonb, jsonb) IS 'Notes the places of rows that refer to nothing. Whether they still do when others have gone to quarantine, and where they go then, is told '
    'behind the lock.';

CREATE FUNCTION bullfrog.forget_orphans(reference jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF to_regclass(bullfrog.orphanage(reference)) IS NOT NULL THEN
        EXECUTE 'DROP TABLE ' || bullfrog.orphanage(reference);
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.forget_orphans(jsonb) IS 'Ends what bullfrog.note_orphans began.';

CREATE FUNCTION bullfrog.referrers_to_quarantine(reference jsonb) RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('EXISTS (SELECT FROM (SELECT * FROM bullfrog.all_%1$s WHERE bullfrog_tid = ANY (ARRAY(SELECT format(''(%%s,%%s)'', q.place >> 16, q.place & 65535)::tid '
        'FROM bullfrog.quarantined q WHERE q.target = %1$s))) p WHERE %2$s)', reference ->> 'parent', string_agg(format('%s %s %s', t.parent, t.equal, t.child), ' AND '))
    FROM bullfrog.reference_terms(reference) t
    WHERE EXISTS (SELECT FROM bullfrog.quarantined q WHERE q.target = (reference ->> 'parent')::int)
    HAVING count(*) > 0
$$;
COMMENT ON FUNCTION bullfrog.referrers_to_quarantine(jsonb) IS 'The condition that those rows c of a referring table meet that refer to a row that is in quarantine. No rows: none is.';

CREATE FUNCTION bullfrog.check_foreign_keys(migration_id int, checks text, seen jsonb[], changes jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    news oid[] := ARRAY(SELECT t.new_table::oid FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source
        WHERE s.migration = migration_id);
    key pg_constraint;
    child bullfrog.target;
    parent bullfrog.target;
    reference jsonb;
    ahead jsonb;
    conditions text[];
    condition text;
    violating text;
    found_rows bigint;
    -- The server does not check foreign keys of rows that move.
    key_checks text := CASE checks WHEN 'warn' THEN 'before' ELSE checks END;
BEGIN
    IF checks = 'quarantine' THEN
        PERFORM bullfrog.note_orphans(r, changes) FROM unnest(seen) r;
    END IF;
    -- What is left out for one key may be referred to by another: until nothing is left out any more.
    LOOP
        found_rows := 0;
        FOR key IN SELECT * FROM pg_constraint k WHERE k.contype = 'f'
            AND (k.conrelid = ANY (news) OR k.confrelid = ANY (news)) ORDER BY k.oid LOOP
            IF EXISTS (SELECT FROM bullfrog.old o WHERE o.old_table = key.confrelid AND NOT o.live) THEN
                RAISE EXCEPTION 'foreign key % of % refers to %, an old table', quote_ident(key.conname), key.conrelid::regclass,
                    key.confrelid::regclass
                    USING ERRCODE = 'feature_not_supported', HINT = 'Let it refer to a new table.';
            END IF;
            SELECT * INTO child FROM bullfrog.target t WHERE t.new_table = key.conrelid AND t.fingerprint IS NULL;
            SELECT * INTO parent FROM bullfrog.target t WHERE t.new_table = key.confrelid AND t.fingerprint IS NULL;
            reference := jsonb_build_object('child', child.id, 'table', key.conrelid, 'columns', key.conkey, 'parent', parent.id,
                'refers_to', key.confrelid, 'referred', key.confkey, 'operators', key.conpfeqop);
            ahead := (SELECT r FROM unnest(seen) r WHERE r - '{bases,parent_bases,of_granules,to_granules,number,what}'::text[] = reference LIMIT 1);
            IF bullfrog.is_proven(migration_id, key, child, parent) THEN
                conditions := '{}';
            ELSIF ahead IS NULL THEN
                conditions := '{true}';
            ELSIF checks <> 'quarantine' THEN
                PERFORM bullfrog.check_reference(ahead, changes);
                CONTINUE;
            ELSE
                conditions := ARRAY[format('%s = ANY (ARRAY(SELECT o.place FROM %s o))', bullfrog.referring_place(ahead), bullfrog.orphanage(ahead))];
            END IF;
            FOREACH condition IN ARRAY conditions || CASE WHEN conditions <> '{true}' THEN ARRAY(SELECT q FROM bullfrog.referrers_to_quarantine(reference) q) END LOOP
                violating := bullfrog.orphans(reference, 'to_jsonb(c)', NULL, condition);
                -- A row of a table that is not on the move cannot be left out.
                found_rows := found_rows + CASE WHEN child.id IS NULL
                    THEN bullfrog.judge(parent, 'before', format('the foreign key %I', key.conname), violating)
                    ELSE bullfrog.judge(child, key_checks, format('the foreign key %I', key.conname), violating) END;
            END LOOP;
        END LOOP;
        EXIT WHEN found_rows = 0;
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.check_foreign_keys(int, text, jsonb[], jsonb) IS
    'Checks that foreign keys from and to new tables hold for all rows of the old tables. Reads only for what the foreign keys of these '
        'do not prove, and only what has changed of those that were looked at before.';
