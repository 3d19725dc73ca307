-- The switch ----------------------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.naming(granule text) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE granule WHEN 'page' THEN 'page' ELSE 'place' END
$$;
COMMENT ON FUNCTION bullfrog.naming(text) IS 'What names the granule of a row: its page, or its place.';

CREATE FUNCTION bullfrog.key_lookups(target bullfrog.target) RETURNS TABLE (columns smallint[], by_columns smallint[], granules text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Columns that decide what a row's key is: those of keys, and of a partial index or one over expressions all that it is about.
    WITH decisive AS (
        SELECT x.indexrelid, u.attnum FROM pg_index x CROSS JOIN LATERAL (
            SELECT k FROM unnest((x.indkey::smallint[])[0:x.indnkeyatts - 1]) k WHERE k <> 0
            UNION SELECT d.refobjsubid::smallint FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = x.indexrelid
                AND d.refclassid = 'pg_class'::regclass AND d.refobjid = x.indrelid AND d.refobjsubid > 0
                AND (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL)) AS u (attnum)
        WHERE x.indrelid = target.new_table AND x.indisunique),
    -- Where a key of the driving table is among the columns, there is one row at most: it is looked for there alone.
    key AS (
        SELECT x.indexrelid, x.indexprs IS NOT NULL AS is_expression,
            ARRAY(SELECT d.attnum FROM decisive d WHERE d.indexrelid = x.indexrelid ORDER BY d.attnum) AS columns,
            x.indexprs IS NULL AND to_regclass(format('bullfrog.candidates_%s', target.id)) IS NOT NULL AND EXISTS (
                SELECT FROM pg_index d WHERE d.indrelid = target.old_tables[1] AND d.indisunique AND d.indpred IS NULL
                    AND (d.indkey::smallint[])[0:d.indnkeyatts - 1] <@ ARRAY(SELECT NULLIF(target.origins[k], 0)
                        FROM unnest((x.indkey::smallint[])[0:x.indnkeyatts - 1]) k)) AS in_candidates
        FROM pg_index x WHERE x.indrelid = target.new_table AND x.indisunique),
    -- Those that the query is given: $1 is the first of them, in the order of the table.
    parameter AS (
        SELECT k.indexrelid, a.attnum, quote_ident(a.attname) AS name, row_number() OVER (PARTITION BY k.indexrelid ORDER BY a.attnum) AS n
        FROM key k CROSS JOIN unnest(k.columns) c JOIN pg_attribute a ON a.attrelid = target.new_table AND a.attnum = c
        WHERE NOT k.in_candidates OR target.origins[a.attnum] <> 0),
    element AS (
        SELECT k.indexrelid, i.n, p.name, pg_get_indexdef(k.indexrelid, i.n::int, false) AS term,
            format('OPERATOR(%I.%s)', s.nspname, o.oprname) AS equal, p.n AS parameter,
            (SELECT format(' COLLATE %s', l.oid::regcollation) FROM pg_attribute a JOIN pg_collation l ON l.oid = a.attcollation
                WHERE a.attrelid = target.new_table AND a.attnum = i.attnum) AS compared
        FROM key k
        JOIN pg_index x ON x.indexrelid = k.indexrelid
        CROSS JOIN LATERAL unnest((x.indkey::smallint[])[0:x.indnkeyatts - 1], x.indclass::oid[]) WITH ORDINALITY AS i (attnum, opclass, n)
        LEFT JOIN parameter p ON p.indexrelid = k.indexrelid AND p.attnum = i.attnum
        JOIN pg_opclass c ON c.oid = i.opclass
        JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
            AND m.amopstrategy = 3
        JOIN pg_operator o ON o.oid = m.amopopr
        JOIN pg_namespace s ON s.oid = o.oprnamespace)
    SELECT k.columns, ARRAY(SELECT p.attnum FROM parameter p WHERE p.indexrelid = k.indexrelid ORDER BY p.n),
        CASE WHEN k.is_expression THEN format('SELECT bullfrog.%s(u.bullfrog_tid) FROM (SELECT bullfrog_tid, %s FROM bullfrog.unmoved_%s) u '
                'CROSS JOIN (SELECT %2$s FROM (SELECT %4$s) n) n WHERE %5$s', bullfrog.naming(target.granule),
                (SELECT string_agg(format('(%s) AS bullfrog_key_%s', e.term, e.n), ', ') FROM element e WHERE e.indexrelid = k.indexrelid),
                target.id,
                (SELECT string_agg(format('$%s AS %s', p.n, p.name), ', ') FROM parameter p WHERE p.indexrelid = k.indexrelid),
                (SELECT string_agg(format('u.bullfrog_key_%s %s n.bullfrog_key_%1$s', e.n, e.equal), ' AND ') FROM element e
                    WHERE e.indexrelid = k.indexrelid))
            ELSE format('SELECT bullfrog.%s(u.bullfrog_tid) FROM bullfrog.%s_%s u WHERE %s', bullfrog.naming(target.granule),
                CASE WHEN k.in_candidates THEN 'candidates' ELSE 'unmoved' END, target.id,
                (SELECT string_agg(format('u.%s %s $%s%s', e.name, e.equal, e.parameter, e.compared), ' AND ') FROM element e
                    WHERE e.indexrelid = k.indexrelid AND e.name IS NOT NULL)) END
    FROM key k
$$;
COMMENT ON FUNCTION bullfrog.key_lookups(bullfrog.target) IS
    'Of each unique index of a new table the columns that decide what a key is, and the query that finds old rows that have the key of given '
        'values, with the columns of which these are. It may find more: rows that a partial index leaves out.';

CREATE FUNCTION bullfrog.guard_keys(target bullfrog.target) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relation regclass := target.new_table;
    lookups text;
    names text;
BEGIN
    SELECT string_agg(format('%L, %L', array_to_string(l.by_columns, ' '), l.granules), ', '),
        (SELECT string_agg(quote_ident(a.attname), ', ') FROM pg_attribute a WHERE a.attrelid = relation
            AND a.attnum IN (SELECT c FROM bullfrog.key_lookups(target) d CROSS JOIN unnest(d.columns) c))
    INTO lookups, names FROM bullfrog.key_lookups(target) l;
    IF lookups IS NOT NULL THEN
        EXECUTE format('CREATE TRIGGER bullfrog_insert BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION bullfrog.guard(%s)', relation,
            lookups);
        EXECUTE format('CREATE TRIGGER bullfrog_update BEFORE UPDATE OF %s ON %s FOR EACH ROW EXECUTE FUNCTION bullfrog.guard(%s)',
            names, relation, lookups);
        -- Also for sessions whose session_replication_role is replica.
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER bullfrog_insert, ENABLE ALWAYS TRIGGER bullfrog_update', relation);
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.guard_keys(bullfrog.target) IS
    'Lets the unique indexes of a new table see the keys of rows that were not moved yet, by moving these first.';

CREATE FUNCTION bullfrog.own(target bullfrog.target) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owner name := (SELECT pg_get_userbyid(c.relowner) FROM pg_class c WHERE c.oid = target.old_tables[1]);
    view regclass;
BEGIN
    IF NOT has_schema_privilege(owner, (SELECT c.relnamespace FROM pg_class c WHERE c.oid = target.new_table), 'USAGE') THEN
        RAISE EXCEPTION 'the owner of the old tables, %, may not use the schema of %', owner, target.new_table
            USING ERRCODE = 'insufficient_privilege', HINT = 'Grant it USAGE on the schema: moves have its rights.';
    END IF;
    EXECUTE format('ALTER TABLE %s OWNER TO %I', target.new_table, owner);
    -- Who owns a view says what it reads, and clients read through these without being asked for rights.
    FOREACH view IN ARRAY target.views LOOP
        EXECUTE format('GRANT SELECT ON %s TO %I', view, owner);
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.own(bullfrog.target) IS
    'Gives a new table to the owner of the old tables, and lets it read the views: expressions are evaluated with that owner''s rights.';

CREATE FUNCTION bullfrog.require_secrecy(target bullfrog.target) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    secured CONSTANT regclass := bullfrog.secured(target.old_tables);
    holder record;
BEGIN
    SELECT COALESCE(quote_ident(r.rolname), 'PUBLIC') AS name INTO holder FROM pg_class c
        CROSS JOIN LATERAL (SELECT a.grantee FROM aclexplode(c.relacl) a
            UNION ALL SELECT a.grantee FROM pg_attribute t CROSS JOIN LATERAL aclexplode(t.attacl) a WHERE t.attrelid = c.oid) g
        LEFT JOIN pg_roles r ON r.oid = g.grantee
        WHERE c.oid = target.new_table AND g.grantee <> c.relowner LIMIT 1;
    IF FOUND AND secured IS NOT NULL THEN
        RAISE EXCEPTION '% would see all rows of %, which has row-level security', holder.name, secured USING ERRCODE = 'insufficient_privilege',
            DETAIL = format('%s has none until the migration has ended.', target.new_table),
            HINT = 'Grant rights on a view WITH (security_barrier) over it, which has the conditions; REVOKE in the definition what default privileges '
                'grant.';
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.require_secrecy(bullfrog.target) IS 'Refuses that others than its owner may use a new table whose old one shows them some of '
    'its rows only.';

CREATE FUNCTION bullfrog.advance_identities(target bullfrog.target, names name[], transformed text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    item record;
    reached record;
BEGIN
    FOR item IN
        SELECT a.attname, s.seqrelid, s.seqincrement > 0 AS ascends
        FROM pg_attribute a
        JOIN pg_sequence s ON s.seqrelid = pg_get_serial_sequence(target.new_table::text, a.attname)::regclass
        WHERE a.attrelid = target.new_table AND a.attidentity <> '' AND a.attname = ANY (names)
    LOOP
        EXECUTE format('SELECT last_value, is_called FROM %s', item.seqrelid::regclass) INTO reached;
        PERFORM setval(item.seqrelid::regclass, e::bigint)
            FROM bullfrog.evaluate(target.new_table, format('SELECT to_jsonb(%s(%I)) FROM %s',
                CASE WHEN item.ascends THEN 'max' ELSE 'min' END, item.attname, transformed)) e
            WHERE e <> 'null'
                AND (NOT reached.is_called OR CASE WHEN item.ascends THEN e::bigint > reached.last_value ELSE e::bigint < reached.last_value END);
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.advance_identities(bullfrog.target, name[], text)
    IS 'Lets identity columns of a new table go on behind the values that its rows have, those that bullfrog.rows_where names.';

CREATE FUNCTION bullfrog.keep_sequences(olds oid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    item record;
BEGIN
    FOR item IN
        SELECT s.oid::regclass AS sequence, COALESCE(min(format('%s.%I', t.oid::regclass, a.attname))
            FILTER (WHERE t.relowner = s.relowner AND t.relnamespace = s.relnamespace), 'NONE') AS column, count(*) AS users
        FROM pg_depend o
        JOIN pg_class s ON s.oid = o.objid AND s.relkind = 'S'
        JOIN pg_depend u ON u.classid = 'pg_attrdef'::regclass AND u.refclassid = 'pg_class'::regclass AND u.refobjid = o.objid
        JOIN pg_attrdef d ON d.oid = u.objid AND d.adrelid <> ALL (olds)
        JOIN pg_class t ON t.oid = d.adrelid
        JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
        WHERE o.classid = 'pg_class'::regclass AND o.refclassid = 'pg_class'::regclass AND o.deptype = 'a' AND o.refobjid = ANY (olds)
        GROUP BY s.oid
    LOOP
        EXECUTE format('ALTER SEQUENCE %s OWNED BY %s', item.sequence, CASE item.users WHEN 1 THEN item.column ELSE 'NONE' END);
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.keep_sequences(oid[]) IS 'Keeps sequences that belong to columns of old tables, as far as other tables take '
    'their defaults from them: each belongs to the one column that does, or to none.';

CREATE FUNCTION bullfrog.foreign_key(relation oid, columns smallint[], refers_to oid, referred smallint[]) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('FOREIGN KEY (%s) REFERENCES %s(%s)', string_agg(quote_ident(a.attname), ', ' ORDER BY n), refers_to::regclass,
        string_agg(quote_ident(r.attname), ', ' ORDER BY n))
    FROM ROWS FROM (unnest(columns), unnest(referred)) WITH ORDINALITY AS k (attnum, referred_attnum, n)
    JOIN pg_attribute a ON a.attrelid = relation AND a.attnum = k.attnum
    JOIN pg_attribute r ON r.attrelid = refers_to AND r.attnum = k.referred_attnum
    HAVING count(*) > 0
$$;
COMMENT ON FUNCTION bullfrog.foreign_key(oid, smallint[], oid, smallint[]) IS
    'How the definition of a foreign key begins, with the names that its tables and columns have now.';

CREATE FUNCTION bullfrog.claim(migration_id int, olds oid[], lives oid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old regclass;
    hindrance text;
BEGIN
    FOREACH old IN ARRAY olds || lives LOOP
        SELECT string_agg(o, '; ') INTO hindrance FROM bullfrog.obstacles(old, old = ANY (lives), migration_id) o;
        IF hindrance IS NOT NULL THEN
            RAISE EXCEPTION 'cannot migrate %: %', old, hindrance
                USING ERRCODE = 'feature_not_supported', HINT = 'Drop or change what stands in the way; bullfrog.plan lists it.';
        END IF;
        INSERT INTO bullfrog.old (old_table, migration, live) VALUES (old, migration_id, old = ANY (lives)) ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.claim(int, oid[], oid[]) IS 'Refuses old tables that cannot be migrated, and makes them part of a migration.';

CREATE FUNCTION bullfrog.releasing(olds oid[], lives oid[]) RETURNS oid[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT k.conrelid FROM bullfrog.referring(olds) k JOIN pg_class c ON c.oid = k.conrelid WHERE c.relkind = 'r'
            AND pg_has_role(bullfrog.asker(), c.relowner, 'USAGE')
        UNION SELECT k.confrelid FROM pg_constraint k JOIN pg_class c ON c.oid = k.confrelid WHERE k.contype = 'f' AND k.conrelid = ANY (olds) AND c.relkind = 'r'
            AND k.confrelid <> ALL (olds || lives) ORDER BY 1)
$$;
COMMENT ON FUNCTION bullfrog.releasing(oid[], oid[]) IS 'Other tables whose foreign keys from and to old tables end at the switch.';

CREATE FUNCTION bullfrog.close(migration_id int, definition text, olds oid[], lives oid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    releasing CONSTANT oid[] := bullfrog.releasing(olds, lives);
BEGIN
    -- All that the rest of the switch locks: nobody waits for the old ones while it waits for others.
    PERFORM bullfrog.lock_tables(olds || releasing, ARRAY(SELECT l FROM unnest(lives) l WHERE l <> ALL (releasing))
        || bullfrog.linking(migration_id, definition, olds || lives || releasing), own => olds || lives);
    PERFORM bullfrog.claim(migration_id, olds, lives);
    INSERT INTO bullfrog.released (migration, relation, name, refers_to, columns, referred, valid, options)
        SELECT migration_id, k.conrelid, k.conname, k.confrelid, k.conkey, k.confkey, k.convalidated,
            substr(pg_get_constraintdef(k.oid), 1 + length(bullfrog.foreign_key(k.conrelid, k.conkey, k.confrelid, k.confkey)))
        FROM pg_constraint k WHERE k.contype = 'f' AND (k.conrelid = ANY (olds) OR k.confrelid = ANY (olds)) ORDER BY k.oid;
END
$$;
COMMENT ON FUNCTION bullfrog.close(int, text, oid[], oid[]) IS
    'Locks old tables, and those that have foreign keys from and to them or to new ones, refuses what cannot be migrated, makes them part of a migration, and remembers foreign keys of those that end.';

CREATE FUNCTION bullfrog.release(olds oid[], statements text[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    statement text;
    key record;
    others bigint;
BEGIN
    SELECT pg_catalog.count(*) INTO others FROM pg_catalog.pg_constraint k;
    SELECT others - pg_catalog.count(*) INTO others FROM bullfrog.referring(olds);
    FOREACH statement IN ARRAY statements LOOP
        PERFORM bullfrog.obey(statement);
    END LOOP;
    IF others <> (SELECT pg_catalog.count(*) FROM pg_catalog.pg_constraint k) - (SELECT pg_catalog.count(*)
        FROM bullfrog.referring(olds)) THEN
        RAISE EXCEPTION 'a migration drops no other constraints than foreign keys that refer to its old tables'
            USING ERRCODE = 'feature_not_supported', HINT = 'Drop others before it or after it.';
    END IF;
    FOR key IN SELECT k.conname, k.conrelid::regclass AS relation, k.confrelid::regclass AS refers_to FROM bullfrog.referring(olds) k LOOP
        RAISE EXCEPTION 'cannot migrate %: foreign key % of % refers to it', key.refers_to, pg_catalog.quote_ident(key.conname),
            key.relation
            USING ERRCODE = 'feature_not_supported', HINT = pg_catalog.format(
                'Let it end in the migration: ALTER TABLE %s DROP CONSTRAINT %I; and refer to a new table: ALTER TABLE %1$s ADD FOREIGN '
                    'KEY ..', key.relation, key.conname);
    END LOOP;
    FOR key IN SELECT k.conname, k.conrelid::regclass AS relation FROM pg_catalog.pg_constraint k WHERE k.contype = 'f'
        AND k.conrelid = ANY (olds) LOOP
        EXECUTE pg_catalog.format('ALTER TABLE ONLY %s DROP CONSTRAINT %I', key.relation, key.conname);
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.release(oid[], text[]) IS
    'Lets foreign keys of old tables end, and by statements of the migration those that refer to them. Refuses if any is left.';

CREATE FUNCTION bullfrog.source_of(migration_id int, relation regclass, of_granule text, is_inside boolean, is_lenient boolean) RETURNS int
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found int;
BEGIN
    -- New tables that move by the pages or tuples of the same old table move together. Each grouping is for itself.
    SELECT s.id INTO found FROM bullfrog.source s WHERE s.old_table = relation AND s.granule <> 'group' AND of_granule <> 'group';
    IF found IS NULL THEN
        INSERT INTO bullfrog.source (migration, old_table, granule, inside, lenient, pages)
            VALUES (migration_id, relation, of_granule, is_inside, is_lenient,
                pg_relation_size(relation) / current_setting('block_size')::int)
            RETURNING id INTO found;
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION bullfrog.source_of(int, regclass, text, boolean, boolean)
    IS 'The source by which rows of an old table move, a new one if there is none.';

CREATE FUNCTION bullfrog.list_candidates(target_id int, driving regclass, new_table text, names text, origins smallint[], moved text)
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    frozen regclass := pg_catalog.to_regclass(pg_catalog.format('bullfrog.frozen_%s', driving::oid));
    place text := CASE WHEN frozen IS NULL THEN 't.ctid' ELSE 't.bullfrog_tid' END;
    columns text := (SELECT pg_catalog.string_agg(CASE WHEN o.attname IS NULL THEN pg_catalog.format('NULL::%s',
            pg_catalog.format_type(a.atttypid, a.atttypmod)) ELSE pg_catalog.format('t.%I', o.attname) END, ', ' ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute a
        LEFT JOIN pg_catalog.pg_attribute o ON o.attrelid = driving::oid AND o.attnum = origins[a.attnum] AND o.attnum > 0
        WHERE a.attrelid = new_table::regclass::oid AND a.attnum > 0);
BEGIN
    EXECUTE pg_catalog.format('CREATE OR REPLACE VIEW bullfrog.candidates_%s (%s, bullfrog_tid) AS SELECT %s, %s FROM %s t WHERE NOT %s', target_id,
        names, columns, place, COALESCE(frozen::text, 'ONLY ' || driving::text), pg_catalog.replace(moved, 't.bullfrog_tid', place));
    EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.candidates_%s IS %L', target_id,
        pg_catalog.format('Rows of %s with those columns of %s that it has, where rows may not have been moved.', driving, new_table));
END
$$;
COMMENT ON FUNCTION bullfrog.list_candidates(int, regclass, text, text, smallint[], text) IS
    'Creates the view by which a join''s rows are looked for in the driving table alone, where conditions are about its columns.';

CREATE FUNCTION bullfrog.prepare(target_id int, source bullfrog.source, item record, checks text, compatible boolean) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text := (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(c), ', ') FROM pg_catalog.unnest(item.columns) c);
    places text := 'bullfrog_tid' || (SELECT COALESCE(pg_catalog.string_agg(', bullfrog_key_' || k::text, ''), '')
        FROM pg_catalog.generate_series(1, pg_catalog.cardinality(item.keys)) k);
    views text[] := ARRAY['transformed', 'unmoved'];
    moved text := pg_catalog.format('bullfrog.is_%s_moved(%s, t.bullfrog_tid)', bullfrog.naming(source.granule), source.id);
    in_range CONSTANT text := 'bullfrog_tid >= $1 AND bullfrog_tid < $2';
    chosen CONSTANT text := 'bullfrog_tid = ANY ($1)';
    granules text;
    copy text;
BEGIN
    IF (SELECT pg_catalog.count(DISTINCT c.relowner) FROM pg_catalog.pg_class c WHERE c.oid = ANY (item.old_tables)) > 1 THEN
        RAISE EXCEPTION 'the tables of a join belong to several owners: %', pg_catalog.array_to_string(item.old_tables::regclass[], ', ')
            USING ERRCODE = 'feature_not_supported', HINT = 'Give them one owner: the new table belongs to it, and moves have its rights.';
    END IF;
    IF checks <> 'before' THEN
        IF bullfrog.hindrance_to_quarantine(item.single, item.grouped, checks) IS NOT NULL THEN
            RAISE EXCEPTION 'rows of % cannot be put into quarantine', item.new_table USING ERRCODE = 'feature_not_supported',
                HINT = bullfrog.hindrance_to_quarantine(item.single, item.grouped, checks);
        END IF;
        views := pg_catalog.array_append(views, 'all');
        EXECUTE pg_catalog.format('CREATE VIEW bullfrog.all_%s (%s, %s) AS %s', target_id, names, places, item.query);
        EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.all_%s IS %L', target_id,
            pg_catalog.format('All rows of the old tables in the form of %s, those in quarantine, too.', item.new_table));
        EXECUTE pg_catalog.format('CREATE VIEW bullfrog.transformed_%1$s AS SELECT t.* FROM bullfrog.all_%1$s t WHERE NOT EXISTS '
            '(SELECT FROM bullfrog.quarantined q WHERE q.target = %1$s AND q.place = bullfrog.place(t.bullfrog_tid))', target_id);
    ELSE
        EXECUTE pg_catalog.format('CREATE VIEW bullfrog.transformed_%s (%s, %s) AS %s', target_id, names, places, item.query);
    END IF;
    PERFORM bullfrog.obey(pg_catalog.format('CREATE TABLE %s (%s) AS SELECT %2$s FROM bullfrog.transformed_%s WITH NO DATA', item.new_table,
        names, target_id));
    -- Who creates a table has it locked. Schemas may have been renamed meanwhile.
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_locks l ON l.locktype = 'relation' AND l.relation = c.oid
        WHERE c.oid = item.new_table::regclass AND c.relkind = 'r' AND c.relpersistence = 'p' AND c.relowner = bullfrog.asker()
            AND l.pid = pg_catalog.pg_backend_pid() AND l.mode = 'AccessExclusiveLock') THEN
        RAISE EXCEPTION '% is not the table that the migration has created', item.new_table USING ERRCODE = 'object_in_use',
            HINT = 'Nothing was changed. Migrate again.';
    END IF;
    EXECUTE pg_catalog.format('CREATE VIEW bullfrog.unmoved_%1$s AS SELECT t.* FROM bullfrog.transformed_%1$s t WHERE NOT %2$s', target_id,
        moved);
    EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.transformed_%s IS %L', target_id,
        pg_catalog.format('All rows of the old tables in the form of %s.', item.new_table));
    EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.unmoved_%s IS %L', target_id,
        pg_catalog.format('Rows of the old tables that %s does not have yet.', item.new_table));
    IF item.members IS NOT NULL THEN
        views := pg_catalog.array_append(views, 'members');
        EXECUTE pg_catalog.format('CREATE VIEW bullfrog.members_%s AS %s', target_id, item.members);
        EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.members_%s IS %L', target_id,
            pg_catalog.format('The old rows of which rows of %s are made: where they lie, and the keys of groups.', item.new_table));
    END IF;
    IF item.grouped THEN
        -- The whole of a group, whatever made it move: its rows are found by its key. OFFSET keeps the key's lookup below the aggregate.
        granules := pg_catalog.format('(SELECT DISTINCT %1$s FROM bullfrog.members_%2$s WHERE {place}) AS k '
            'CROSS JOIN LATERAL (SELECT * FROM bullfrog.transformed_%2$s t WHERE %3$s OFFSET 0) AS t',
            pg_catalog.replace(places, 'bullfrog_tid, ', ''), target_id, item.same_group);
        copy := pg_catalog.format('WITH fresh AS MATERIALIZED (SELECT t.* FROM %s), '
            'copied AS (INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %3$s FROM fresh) SELECT bullfrog.place(bullfrog_tid) FROM fresh',
            pg_catalog.replace(granules, '{place}', chosen), item.new_table, names);
    ELSE
        IF pg_catalog.cardinality(item.old_tables) > 1 THEN
            views := pg_catalog.array_append(views, 'candidates');
            PERFORM bullfrog.list_candidates(target_id, item.old_tables[1], item.new_table, names, item.origins, moved);
        END IF;
        granules := pg_catalog.format('bullfrog.transformed_%s t WHERE {place}', target_id);
        copy := pg_catalog.format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM %s', item.new_table, names,
            pg_catalog.replace(granules, '{place}', CASE source.granule WHEN 'page' THEN in_range ELSE chosen END));
    END IF;
    granules := pg_catalog.format('SELECT bullfrog.place(t.bullfrog_tid) FROM (SELECT t.bullfrog_tid FROM %s) AS t WHERE NOT %s',
        pg_catalog.replace(granules, '{place}', in_range), moved);
    INSERT INTO bullfrog.target (id, source, granule, inside, old_tables, live_tables, readable, new_table, views, origins,
        complete, copy, names)
        OVERRIDING SYSTEM VALUE
        VALUES (target_id, source.id, source.granule, source.inside, item.old_tables,
            ARRAY(SELECT o.old_table::oid FROM bullfrog.old o WHERE o.live AND o.old_table::oid = ANY (item.old_tables)), compatible,
            item.new_table::regclass,
            ARRAY(SELECT pg_catalog.format('bullfrog.%s_%s', v, target_id)::regclass::oid
                FROM pg_catalog.unnest(views) v), item.origins, item.complete, copy,
            CASE WHEN source.granule <> 'page' THEN granules END);
    -- From here on nothing of it has the rights of who migrates.
    PERFORM bullfrog.own(t) FROM bullfrog.target t WHERE t.id = target_id;
END
$$;
COMMENT ON FUNCTION bullfrog.prepare(int, bullfrog.source, record, text, boolean) IS
    'Creates a new table, empty, the views that have its rows until they are moved, and the statement that moves them.';

CREATE FUNCTION bullfrog.read_frozen(target bullfrog.target, item record) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text := (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(c), ', ') FROM pg_catalog.unnest(item.columns) c);
BEGIN
    EXECUTE pg_catalog.format('CREATE OR REPLACE VIEW bullfrog.%s_%s (%s, bullfrog_tid%s) AS %s',
        CASE WHEN pg_catalog.to_regclass(pg_catalog.format('bullfrog.all_%s', target.id)) IS NULL THEN 'transformed' ELSE 'all' END, target.id, names,
        (SELECT COALESCE(pg_catalog.string_agg(', bullfrog_key_' || k::text, ''), '') FROM pg_catalog.generate_series(1, pg_catalog.cardinality(item.keys)) k), item.query);
    IF item.members IS NOT NULL THEN
        EXECUTE pg_catalog.format('CREATE OR REPLACE VIEW bullfrog.members_%s AS %s', target.id, item.members);
    END IF;
    IF pg_catalog.to_regclass(pg_catalog.format('bullfrog.candidates_%s', target.id)) IS NOT NULL THEN
        PERFORM bullfrog.list_candidates(target.id, item.old_tables[1]::regclass, item.new_table, names, item.origins,
            pg_catalog.format('bullfrog.is_%s_moved(%s, t.bullfrog_tid)', bullfrog.naming(target.granule), target.source));
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.read_frozen(bullfrog.target, record) IS 'Lets the views of a new table have the rows that tables which stay in use have now, from now on.';

CREATE FUNCTION bullfrog.moving_alone(definition text, drivers oid[]) RETURNS oid[]
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT p.old_tables[1] FROM bullfrog.parse(definition, driving => drivers) p WHERE p.action = 'create' AND NOT p.grouped
        GROUP BY 1 HAVING pg_catalog.max(pg_catalog.cardinality(p.old_tables)) = 1)
$$;
COMMENT ON FUNCTION bullfrog.moving_alone(text, oid[]) IS 'Old tables whose rows are in new rows with no others.';

CREATE FUNCTION bullfrog.tables_meant(definition text, live text[], driving text[], OUT olds oid[], OUT lives oid[], OUT drivers oid[], OUT schemas text[])
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- To read a definition takes weak locks on its tables. Who keeps them from being taken is told.
    PERFORM bullfrog.lock_tables(ARRAY(SELECT c.oid FROM pg_class c WHERE c.oid = ANY (bullfrog.tables_named(definition)) AND c.relkind IN ('r', 'p') ORDER BY c.oid),
        mode => 'ACCESS SHARE', own => '{}');
    olds := ARRAY(SELECT DISTINCT o FROM bullfrog.parse(definition) p CROSS JOIN unnest(p.old_tables) o ORDER BY o);
    lives := bullfrog.named_tables('live', live, olds);
    drivers := bullfrog.driving_tables(driving, definition, olds);
    olds := ARRAY(SELECT o FROM unnest(olds) o WHERE o <> ALL (lives));
    schemas := ARRAY(SELECT DISTINCT (parse_ident(p.new_table))[1] FROM bullfrog.parse(definition) p WHERE p.new_table IS NOT NULL);
    -- They are given back: with these, who waits for a stronger one is in a circle with who has that and waits for the strongest, as another switch does.
    RAISE SQLSTATE 'BFROG';
EXCEPTION WHEN SQLSTATE 'BFROG' THEN
    NULL;
END
$$;
COMMENT ON FUNCTION bullfrog.tables_meant(text, text[], text[]) IS 'The old tables that a definition means now, those of them that stay in use and those that are to drive, and the schemas of new ones. '
    'Keeps nothing locked.';

CREATE FUNCTION bullfrog.way_of(granularity text, moves text, checks text, grouped boolean, alone boolean, OUT granule text, OUT inside boolean)
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    -- A tuple that is in new rows alone is nobody's but of who writes it. Pages, groups and rows of joins are several sessions', which would
    -- wait for each other's transactions; and who quarantines a row cannot be a client.
    SELECT CASE WHEN grouped THEN 'group' WHEN granularity <> 'auto' THEN granularity
            WHEN alone AND moves <> 'worker' AND checks <> 'warn' THEN 'tuple' ELSE 'page' END,
        CASE moves WHEN 'auto' THEN alone AND NOT grouped AND granularity <> 'page' AND checks <> 'warn' ELSE moves = 'transaction' END
$$;
COMMENT ON FUNCTION bullfrog.way_of(text, text, text, boolean, boolean) IS 'How rows of an old table move, by what was asked for.';

CREATE FUNCTION bullfrog.target_named(item record) RETURNS bullfrog.target
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target bullfrog.target;
BEGIN
    SELECT * INTO target FROM bullfrog.target t WHERE t.new_table::oid = item.new_table::regclass::oid;
    IF target.old_tables IS DISTINCT FROM item.old_tables THEN
        RAISE EXCEPTION 'tables were renamed while the migration waited for them' USING ERRCODE = 'object_in_use',
            HINT = 'Nothing was changed. Migrate again.';
    END IF;
    RETURN target;
END
$$;
COMMENT ON FUNCTION bullfrog.target_named(record) IS 'The new table of a definition, as it was made. An error if names have come to mean other tables since.';

CREATE FUNCTION bullfrog.settle_rows(target bullfrog.target, checks text, burden jsonb, changes jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_seen CONSTANT boolean := COALESCE((burden ->> 'ahead')::boolean, false);
BEGIN
    IF is_seen AND bullfrog.is_image(target) THEN
        PERFORM bullfrog.check_written(target, checks, burden, changes -> 'written' ->> target.old_tables[1]::text);
    ELSIF is_seen THEN
        PERFORM bullfrog.check_looked_at(target, burden, changes);
    ELSE
        PERFORM bullfrog.check_rows(target, checks, burden, bullfrog.rows_where(target, 'true'));
    END IF;
    IF checks <> 'before' OR NOT is_seen THEN
        PERFORM bullfrog.check_keys(target, checks, burden);
    END IF;
    PERFORM bullfrog.forget_keys(burden);
    PERFORM bullfrog.advance_identities(target, ARRAY(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = target.new_table AND a.attidentity <> ''
        AND NOT (is_seen AND burden -> 'identities' ? a.attname::text)), bullfrog.rows_where(target, 'true'));
END
$$;
COMMENT ON FUNCTION bullfrog.settle_rows(bullfrog.target, text, jsonb, jsonb) IS 'Checks that every row of the old tables, which are locked, can be a row of the new one: those '
    'that were not seen ahead.';

CREATE FUNCTION bullfrog.forget_members(target bullfrog.target) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    view CONSTANT oid := to_regclass(format('bullfrog.members_%s', target.id));
BEGIN
    IF view IS NOT NULL THEN
        UPDATE bullfrog.target t SET views = array_remove(t.views, view) WHERE t.id = target.id;
        EXECUTE format('DROP VIEW bullfrog.members_%s', target.id);
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.forget_members(bullfrog.target) IS 'Ends a view of the old rows of joined ones, which only the switch asks.';

CREATE FUNCTION bullfrog.perform_migrate(name text, definition text, checks text, compatible boolean, granularity text, moves text, live text[],
    driving text[], like boolean)
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    migration_id int;
    olds oid[];
    lives oid[];
    drivers oid[];
    schemas text[];
    frozen oid[];
    alone oid[];
    item record;
    way record;
    source_id int;
    source bullfrog.source;
    target bullfrog.target;
    -- Statements that wait for the lock.
    late text[] := '{}';
    statement text;
    burdens jsonb := '{}';
    burden jsonb;
    refs jsonb[] := '{}';
    since jsonb;
    changes jsonb;
BEGIN
    PERFORM bullfrog.require_quiet_session();
    IF EXISTS (SELECT FROM bullfrog.migration m WHERE m.name = perform_migrate.name AND m.phase IN ('moving', 'paused')) THEN
        RAISE EXCEPTION 'a migration named % is under way', pg_catalog.quote_ident(perform_migrate.name) USING ERRCODE = 'duplicate_object';
    END IF;
    PERFORM bullfrog.require_choice('checks', checks, bullfrog.ways_to_check());
    PERFORM bullfrog.require_choice('granularity', granularity, ARRAY['auto', 'page', 'tuple']);
    PERFORM bullfrog.require_choice('moves', moves, ARRAY['auto', 'worker', 'transaction']);
    IF checks = 'warn' AND moves = 'transaction' THEN
        RAISE EXCEPTION 'rows that move inside of a client''s transaction cannot be put into quarantine there'
            USING ERRCODE = 'feature_not_supported', HINT = 'Use checks => ''quarantine'', which puts them there at the switch.';
    END IF;
    IF pg_catalog.cardinality(live) > 0 AND pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'a migration with live tables is the first that its transaction writes' USING ERRCODE = 'active_sql_transaction',
            HINT = 'Rows that the transaction wrote before could not be told from those that it writes later. COMMIT first.';
    END IF;
    INSERT INTO bullfrog.migration (name, definition) VALUES (perform_migrate.name, perform_migrate.definition) RETURNING id INTO migration_id;

    SELECT m.* INTO olds, lives, drivers, schemas FROM bullfrog.tables_meant(perform_migrate.definition, perform_migrate.live, perform_migrate.driving) m;
    PERFORM bullfrog.require_ownership(olds || lives);
    -- Schemas are not renamed before the end of the transaction: tables are named below.
    PERFORM FROM pg_catalog.pg_namespace n WHERE n.oid IN (SELECT c.relnamespace FROM pg_catalog.pg_class c WHERE c.oid = ANY (olds || lives))
        OR n.nspname = ANY (schemas) FOR SHARE;
    -- Their rows are read and written. Nobody changes their form, and no vacuum says that what was changed is as it was.
    PERFORM bullfrog.lock_tables(olds || lives, mode => 'SHARE UPDATE EXCLUSIVE');
    PERFORM bullfrog.claim(migration_id, olds, lives);
    alone := bullfrog.moving_alone(perform_migrate.definition, drivers);
    FOR item IN SELECT * FROM bullfrog.parse(perform_migrate.definition, driving => drivers) p WHERE p.action <> 'release' LOOP
        IF item.action = 'create' THEN
            IF NOT item.old_tables <@ (olds || lives) THEN
                RAISE EXCEPTION 'tables were renamed while the migration waited for them' USING ERRCODE = 'object_in_use',
                    HINT = 'Nothing was changed. Migrate again.';
            END IF;
            way := bullfrog.way_of(granularity, moves, checks, item.grouped, item.old_tables[1] = ANY (alone));
            source_id := bullfrog.source_of(migration_id, item.old_tables[1]::regclass, way.granule, way.inside, checks = 'warn');
            SELECT * INTO source FROM bullfrog.source s WHERE s.id = source_id;
            PERFORM bullfrog.prepare(pg_catalog.nextval('bullfrog.target_id_seq')::int, source, item, checks, compatible);
        ELSIF item.action IN ('refer', 'attach') OR item.action = 'comment' AND late <> '{}' THEN
            -- A foreign key locks the other table, too. A comment may be about it.
            late := pg_catalog.array_append(late, item.statement);
            IF item.action = 'refer' THEN
                PERFORM bullfrog.obey_part(item.statement, false);
            END IF;
        ELSE
            PERFORM bullfrog.obey(item.statement);
        END IF;
    END LOOP;
    IF perform_migrate.like THEN
        PERFORM bullfrog.carry_over(p, ARRAY(SELECT pg_catalog.concat_ws(' ', d.kind, NULLIF(pg_catalog.array_to_string(d.columns, ', '), ''))
                FROM bullfrog.demands(perform_migrate.definition) d WHERE d.new_table = p.new_table))
            FROM bullfrog.parse(perform_migrate.definition, driving => drivers) p WHERE p.action = 'create' AND NOT p.grouped;
    END IF;
    PERFORM bullfrog.reach('switch: tables created');

    FOR item IN SELECT * FROM bullfrog.parse(perform_migrate.definition, driving => drivers) p WHERE p.action = 'create' LOOP
        target := bullfrog.target_named(item);
        PERFORM bullfrog.require_secrecy(target);
        PERFORM bullfrog.refuse_suspects(target.new_table);
        PERFORM bullfrog.require_checkable(target.new_table);
        burden := bullfrog.burden(target, perform_migrate.definition, item) || pg_catalog.jsonb_build_object('same_group', item.same_group);
        burdens := burdens || pg_catalog.jsonb_build_object(target.id::text, burden || pg_catalog.jsonb_build_object('ahead',
            bullfrog.is_seen_ahead(target, checks, burden)));
    END LOOP;
    refs := ARRAY(SELECT r FROM bullfrog.references_ahead(migration_id, perform_migrate.definition, checks, burdens) r);
    -- Those tables as the old ones; and what is evaluated stays as it is.
    PERFORM bullfrog.lock_tables(olds || lives || ARRAY(SELECT b.relation FROM bullfrog.bases('{}', refs) b WHERE b.relation <> ALL (olds || lives)),
        mode => 'SHARE UPDATE EXCLUSIVE', own => olds || lives);
    since := bullfrog.look_ahead(burdens, refs, checks);
    -- Its plan is made before anybody waits.
    PERFORM bullfrog.form(o) FROM pg_catalog.unnest(olds || lives) o;
    PERFORM bullfrog.close(migration_id, perform_migrate.definition, olds, lives);
    PERFORM bullfrog.release(olds, ARRAY(SELECT p.statement FROM bullfrog.parse(perform_migrate.definition) p WHERE p.action = 'release'));
    FOREACH statement IN ARRAY late LOOP
        PERFORM bullfrog.obey_part(statement, true);
    END LOOP;
    UPDATE bullfrog.source s SET pages = pg_catalog.pg_relation_size(s.old_table) / pg_catalog.current_setting('block_size')::int
        WHERE s.migration = migration_id;
    frozen := ARRAY(SELECT bullfrog.freeze(l) FROM pg_catalog.unnest(lives) WITH ORDINALITY AS t (l, n) ORDER BY n);
    PERFORM bullfrog.reach('switch: tables closed');
    IF since IS NOT NULL THEN
        PERFORM bullfrog.begin_look(false);
        changes := bullfrog.changes(burdens, refs, since);
    END IF;

    FOR item IN SELECT * FROM bullfrog.parse(perform_migrate.definition, lives, frozen, drivers) p WHERE p.action = 'create' LOOP
        target := bullfrog.target_named(item);
        burden := burdens -> target.id::text;
        IF burden ->> 'form' <> bullfrog.form_of_checks(target) THEN
            -- Something else is asked of the rows, or by other functions.
            PERFORM bullfrog.forget_keys(burden);
            DELETE FROM bullfrog.quarantined q WHERE q.target = target.id;
            burden := bullfrog.burden(target, perform_migrate.definition, item);
            PERFORM bullfrog.forget_orphans(r) FROM pg_catalog.unnest(refs) r WHERE target.id::text IN (r ->> 'child', r ->> 'parent');
            refs := ARRAY(SELECT r FROM pg_catalog.unnest(refs) r WHERE target.id::text NOT IN (COALESCE(r ->> 'child', ''), COALESCE(r ->> 'parent', '')));
        END IF;
        PERFORM bullfrog.require_secrecy(target);
        PERFORM bullfrog.refuse_suspects(target.new_table);
        PERFORM bullfrog.require_checkable(target.new_table);
        IF target.live_tables <> '{}' THEN
            PERFORM bullfrog.read_frozen(target, item);
        END IF;
        PERFORM bullfrog.guard_keys(target);
        PERFORM bullfrog.settle_rows(target, checks, burden, changes);
        PERFORM bullfrog.seed_estimates(target);
    END LOOP;
    PERFORM bullfrog.check_foreign_keys(migration_id, checks, refs, changes);
    PERFORM bullfrog.forget_orphans(r) FROM pg_catalog.unnest(refs) r;
    IF since IS NOT NULL THEN
        PERFORM bullfrog.end_looks();
    END IF;
    PERFORM bullfrog.forget_members(t) FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source WHERE s.migration = migration_id AND t.granule <> 'group';
    PERFORM bullfrog.reach('switch: rows checked');

    PERFORM bullfrog.set_access_method(r, 'bullfrog_heap') FROM pg_catalog.unnest(bullfrog.tables_of(migration_id)) r
        WHERE r <> ALL (lives);
    IF perform_migrate.like THEN
        -- The old tables' entries in the catalog were written just now: rights on these, which others change, are told before that, or refused to them.
        PERFORM bullfrog.carry_rights(p, perform_migrate.definition)
            FROM bullfrog.parse(perform_migrate.definition, lives, frozen, drivers) p WHERE p.action = 'create' AND NOT p.grouped;
    END IF;
    UPDATE bullfrog.old o SET fingerprint = bullfrog.fingerprint(o.old_table) WHERE o.migration = migration_id;
    UPDATE bullfrog.target t SET fingerprint = bullfrog.fingerprint(t.new_table)
        FROM bullfrog.source s WHERE s.id = t.source AND s.migration = migration_id;
    PERFORM bullfrog.announce(o.old_table) FROM bullfrog.old o WHERE o.migration = migration_id;
    PERFORM bullfrog.announce(t.new_table) FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source
        WHERE s.migration = migration_id;
    PERFORM bullfrog.announce('bullfrog.target');
    PERFORM bullfrog.start_mover();
    PERFORM bullfrog.log_at_commit(perform_migrate.name, pg_catalog.format('switched from %s to %s',
        pg_catalog.array_to_string((olds || lives)::regclass[], ', '), (SELECT pg_catalog.string_agg(t.new_table::text, ', ' ORDER BY t.id)
            FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source WHERE s.migration = migration_id)));
    PERFORM bullfrog.reach('switch: announced');
END
$$;
COMMENT ON FUNCTION bullfrog.perform_migrate(text, text, text, boolean, text, text, text[], text[], boolean) IS 'What bullfrog.migrate does.';
