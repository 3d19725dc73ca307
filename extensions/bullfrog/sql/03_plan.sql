-- Looking before the switch ----------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.replication(relation oid) RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_catalog.format('publication %I has it (leave it out until the migration has ended)', p.pubname) FROM pg_catalog.pg_publication p
        WHERE p.puballtables OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = relation)
            OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace n JOIN pg_catalog.pg_class c ON c.relnamespace = n.pnnspid
                WHERE n.pnpubid = p.oid AND c.oid = relation)
    UNION ALL SELECT 'a subscription writes to it' FROM pg_catalog.pg_subscription_rel s WHERE s.srrelid = relation
$$;
COMMENT ON FUNCTION bullfrog.replication(oid) IS 'How a table takes part in logical replication. A subscriber copies the rows that are not '
    'moved yet, and would get them again when they move; what a subscription writes does not look for them.';

CREATE FUNCTION bullfrog.require_ownership(olds oid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    foreign_table record;
BEGIN
    SELECT c.oid::regclass AS name, pg_get_userbyid(c.relowner) AS owner INTO foreign_table FROM pg_class c
        WHERE c.oid = ANY (olds) AND NOT pg_has_role(bullfrog.asker(), c.relowner, 'USAGE') ORDER BY c.oid LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'must be owner of table %, which is %', foreign_table.name, quote_ident(foreign_table.owner)
            USING ERRCODE = 'insufficient_privilege',
                HINT = 'A migration is planned, started and ended by a superuser, or by a role that has the rights of the owner of all its old '
                    'tables.';
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.require_ownership(oid[]) IS 'An error unless who asks has the rights of the owners of these tables.';

CREATE FUNCTION bullfrog.obstacles(old_table oid, live boolean, own int DEFAULT 0) RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN c.relkind = 'p'
            THEN 'it is partitioned (ALTER TABLE .. DETACH PARTITION, migrate each partition to a new table, and ATTACH these in the end)'
            WHEN c.relkind <> 'r' THEN 'it is not an ordinary table'
            WHEN c.relispartition THEN 'it is a partition (ALTER TABLE .. DETACH PARTITION)'
            WHEN c.relpersistence <> 'p' THEN 'it is not a permanent table (ALTER TABLE .. SET LOGGED, if it is an unlogged one)' END
        FROM pg_catalog.pg_class c
        WHERE c.oid = old_table AND (c.relkind <> 'r' OR c.relpersistence <> 'p' OR c.relispartition)
    UNION ALL SELECT 'it is a table of the system' WHERE old_table < 16384
    UNION ALL SELECT 'its rows do not lie in a heap' FROM pg_catalog.pg_class c JOIN pg_catalog.pg_am a ON a.oid = c.relam
        WHERE c.oid = old_table AND a.amname <> 'heap'
    -- Its owner, with whose rights rows move, must see all of them.
    UNION ALL SELECT 'it has row-level security that is FORCEd (ALTER TABLE .. NO FORCE ROW LEVEL SECURITY)'
        FROM pg_catalog.pg_class c WHERE c.oid = old_table AND c.relrowsecurity AND c.relforcerowsecurity
    UNION ALL SELECT pg_catalog.format('it inherits from %s (ALTER TABLE .. NO INHERIT)', i.inhparent::regclass) FROM pg_catalog.pg_inherits i
        WHERE i.inhrelid = old_table
    UNION ALL SELECT pg_catalog.format('%s inherits from it (ALTER TABLE %1$s NO INHERIT ..)', i.inhrelid::regclass)
        FROM pg_catalog.pg_inherits i WHERE i.inhparent = old_table
    -- Of a live table, what may change or undo a change of a row after bullfrog kept it. Those of closed ones have nothing to fire for.
    UNION ALL SELECT pg_catalog.format('it has the trigger %I, which is BEFORE .. FOR EACH ROW (make it AFTER)', t.tgname)
        FROM pg_catalog.pg_trigger t
        WHERE t.tgrelid = old_table AND NOT t.tgisinternal AND live AND t.tgtype & 3 = 3 AND t.tgtype & 24 > 0
    UNION ALL SELECT pg_catalog.format('it has the rule %I (use a trigger)', r.rulename) FROM pg_catalog.pg_rewrite r
        WHERE r.ev_class = old_table
    UNION ALL SELECT DISTINCT pg_catalog.format('%s reads it (drop it and create it over the new tables, both in the transaction of the '
            'switch)', r.ev_class::regclass) FROM pg_catalog.pg_depend d
        JOIN pg_catalog.pg_rewrite r ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
        JOIN pg_catalog.pg_class v ON v.oid = r.ev_class
        WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = old_table AND r.ev_class <> old_table
            AND v.relnamespace <> 'bullfrog'::regnamespace AND NOT live
    UNION ALL SELECT DISTINCT pg_catalog.format('function %s reads it (drop it and create it over the new tables, both in the transaction of the '
            'switch)', d.objid::regprocedure) FROM pg_catalog.pg_depend d
        WHERE d.classid = 'pg_catalog.pg_proc'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = old_table
            AND NOT live
    UNION ALL SELECT r FROM bullfrog.replication(old_table) r WHERE NOT live
    -- Of PostgreSQL 18. Such a NOT NULL proves nothing; such a column is not in the row that is kept.
    UNION ALL SELECT pg_catalog.format('its NOT NULL %I is NOT VALID', k.conname) FROM pg_catalog.pg_constraint k
        WHERE k.conrelid = old_table AND k.contype = 'n' AND NOT k.convalidated
    UNION ALL SELECT pg_catalog.format('foreign key %I is over periods', k.conname) FROM pg_catalog.pg_constraint k
        WHERE old_table IN (k.conrelid, k.confrelid) AND (pg_catalog.to_jsonb(k) ->> 'conperiod')::boolean
    UNION ALL SELECT pg_catalog.format('its column %I is generated when it is read', a.attname) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = old_table AND a.attgenerated = 'v' AND live
    UNION ALL SELECT pg_catalog.format('the migration %I is moving it', m.name)
        FROM bullfrog.old o JOIN bullfrog.migration m ON m.id = o.migration WHERE o.old_table = obstacles.old_table AND m.id <> own
    UNION ALL SELECT pg_catalog.format('the migration %I is filling it', m.name)
        FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source JOIN bullfrog.migration m ON m.id = s.migration
        WHERE t.new_table = obstacles.old_table
$$;
COMMENT ON FUNCTION bullfrog.obstacles(oid, boolean, int) IS 'What of a table forbids to migrate it, or to migrate from it while it stays '
    'in use. No rows: nothing. That a migration has it, its own, does not.';

CREATE FUNCTION bullfrog.slow_lookups(tables oid[], columns smallint[]) RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_catalog.format('no index of %s begins with %s, by which moves look up its rows', l.relation::regclass,
        pg_catalog.string_agg(DISTINCT pg_catalog.quote_ident(a.attname), ' or '))
    FROM ROWS FROM (pg_catalog.unnest(tables), pg_catalog.unnest(columns)) AS l (relation, attnum)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = l.relation AND a.attnum = l.attnum
    GROUP BY l.relation
    HAVING NOT EXISTS (SELECT FROM pg_catalog.pg_index x WHERE x.indrelid = l.relation
        AND x.indkey[0] = ANY (pg_catalog.array_agg(l.attnum)))
$$;
COMMENT ON FUNCTION bullfrog.slow_lookups(oid[], smallint[])
    IS 'Of tables whose rows moves look up by these columns: those that have no index for it.';

CREATE FUNCTION bullfrog.slow_reads(old oid, alone boolean, columns text[], origins smallint[], indexed text[]) RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH named AS (SELECT n.name, n.origin FROM unnest(columns, origins) AS n (name, origin)),
    computed AS (SELECT string_agg(quote_ident(n.name), ' or ') AS names FROM named n WHERE n.origin = 0)
    SELECT 'while rows move, ORDER BY .. LIMIT, min and max read all that was not moved'
            || CASE WHEN alone THEN ', where a condition names ' || c.names ELSE '' END
        FROM computed c WHERE NOT alone OR c.names IS NOT NULL
    UNION ALL SELECT format('while rows move, conditions on %s read all that was not moved: %s has no index for them',
            string_agg(DISTINCT quote_ident(n.name), ' or '), old::regclass)
        -- A column of a join may be one of its other tables.
        FROM named n WHERE n.name = ANY (indexed) AND (alone OR n.origin > 0) AND NOT EXISTS (SELECT FROM pg_index x WHERE x.indrelid = old AND x.indisvalid
            AND CASE WHEN n.origin = 0 THEN x.indexprs IS NOT NULL ELSE x.indkey[0] = n.origin AND x.indpred IS NULL END)
        HAVING count(*) > 0
$$;
COMMENT ON FUNCTION bullfrog.slow_reads(oid, boolean, text[], smallint[], text[]) IS 'Which reads of a new table go by no index until its rows have '
    'moved: it has some of these columns indexed, and of the old table no index serves them. Alone: each row is one row of one old table.';

CREATE FUNCTION bullfrog.referring(olds oid[]) RETURNS SETOF pg_catalog.pg_constraint
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT k.* FROM pg_catalog.pg_constraint k WHERE k.contype = 'f' AND k.confrelid = ANY (olds) AND k.conrelid <> ALL (olds)
$$;
COMMENT ON FUNCTION bullfrog.referring(oid[]) IS 'Foreign keys of other tables that refer to these.';

CREATE FUNCTION bullfrog.named_tables(argument text, names text[], olds oid[]) RETURNS oid[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tables oid[] := ARRAY(SELECT DISTINCT bullfrog.table_named(n)::oid AS relation FROM pg_catalog.unnest(names) n ORDER BY relation);
    relation regclass;
BEGIN
    FOREACH relation IN ARRAY tables LOOP
        IF relation::oid <> ALL (olds) THEN
            RAISE EXCEPTION 'expected % => old tables of the migration, got %', argument, relation
                USING ERRCODE = 'invalid_parameter_value', HINT = pg_catalog.format('It takes rows from %s.',
                    pg_catalog.array_to_string(olds::regclass[], ', '));
        END IF;
    END LOOP;
    RETURN tables;
END
$$;
COMMENT ON FUNCTION bullfrog.named_tables(text, text[], oid[]) IS 'Those of the old tables that the user names in an argument.';

CREATE FUNCTION bullfrog.driving_tables(driving text[], definition text, olds oid[]) RETURNS oid[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tables oid[] := bullfrog.named_tables('driving', driving, olds);
    idle regclass;
BEGIN
    SELECT t INTO idle FROM pg_catalog.unnest(tables) t WHERE NOT EXISTS (SELECT FROM bullfrog.parse(definition, driving => tables) p
        WHERE p.old_tables[1] = t AND pg_catalog.cardinality(p.old_tables) > 1 AND NOT p.grouped);
    IF FOUND THEN
        RAISE EXCEPTION '% can drive no join of the migration', idle USING ERRCODE = 'invalid_parameter_value',
            HINT = 'One table drives a join, one of which an outer join keeps all rows. Aggregates are driven by the table of their groups.';
    END IF;
    RETURN tables;
END
$$;
COMMENT ON FUNCTION bullfrog.driving_tables(text[], text, oid[]) IS
    'The tables by whose pages joins shall move, by the names that the user gave.';

CREATE FUNCTION bullfrog.secured(olds oid[]) RETURNS regclass
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.oid::regclass FROM pg_class c WHERE c.oid = ANY (olds) AND c.relrowsecurity ORDER BY c.oid LIMIT 1
$$;
COMMENT ON FUNCTION bullfrog.secured(oid[]) IS 'One of these tables that has row-level security. New tables have none while rows move.';

CREATE FUNCTION bullfrog.missing_rights(new_table text, olds oid[], columns text[], origins smallint[], grantees oid[], privileges text[])
    RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH held AS (
        SELECT a.grantee, a.privilege_type, a.privilege_type AS named FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
            WHERE c.oid = ANY (olds) AND a.grantee <> c.relowner
        UNION SELECT a.grantee, a.privilege_type, format('%s (%s)', a.privilege_type, string_agg(DISTINCT quote_ident(n.name), ', '))
            FROM pg_attribute o CROSS JOIN LATERAL aclexplode(o.attacl) a JOIN unnest(columns, origins) AS n (name, origin)
                ON n.origin = o.attnum
            WHERE o.attrelid = olds[1] AND NOT o.attisdropped GROUP BY a.grantee, a.privilege_type),
    given AS (
        SELECT COALESCE(g.grantee, 0) AS grantee, g.privilege FROM unnest(grantees, privileges) AS g (grantee, privilege)
        UNION ALL SELECT a.grantee, a.privilege_type FROM pg_default_acl d CROSS JOIN LATERAL aclexplode(d.defaclacl) a
            WHERE d.defaclobjtype = 'r' AND d.defaclrole = bullfrog.asker()
                AND d.defaclnamespace IN (0, to_regnamespace(quote_ident((parse_ident(new_table))[1]))))
    SELECT format('GRANT %s ON %s TO %s', string_agg(h.named, ', ' ORDER BY h.named), new_table,
        CASE h.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(h.grantee)) END)
    FROM held h
    -- Of a table with row security these would show all rows.
    WHERE bullfrog.secured(olds) IS NULL AND NOT EXISTS (SELECT FROM given g WHERE g.grantee IN (0, h.grantee) AND COALESCE(g.privilege, h.privilege_type) = h.privilege_type)
    GROUP BY h.grantee ORDER BY h.grantee
$$;
COMMENT ON FUNCTION bullfrog.missing_rights(text, oid[], text[], smallint[], oid[], text[]) IS
    'What to GRANT on a new table so that those may use it who may use the old ones. It has columns with these origins, and the migration '
        'grants these privileges (NULL: all) to these roles (NULL: everybody).';

CREATE FUNCTION bullfrog.losses(new_table text, old oid, columns text[], origins smallint[], required boolean[], declared text[])
    RETURNS TABLE (kind int, object oid, lost text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH kept AS (
        SELECT n.name, a.attnum, a.attidentity, pg_get_expr(d.adbin, d.adrelid) AS default_value, n.number, required[n.number] AND a.attnotnull AS required
        FROM unnest(columns, origins) WITH ORDINALITY AS n (name, origin, number)
        JOIN pg_attribute a ON a.attrelid = old AND a.attnum = n.origin AND a.attnum > 0
        LEFT JOIN pg_attrdef d ON d.adrelid = old AND d.adnum = a.attnum AND a.attgenerated = ''),
    indexed AS (
        SELECT x.indexrelid, x.indisprimary, x.indisunique, m.amname, x.indpred IS NULL AND x.indexprs IS NULL AS plain,
            string_agg(k.name, ', ' ORDER BY i.n) AS names, string_agg(quote_ident(k.name), ', ' ORDER BY i.n) AS quoted
        FROM pg_index x
        JOIN pg_class c ON c.oid = x.indexrelid
        JOIN pg_am m ON m.oid = c.relam
        CROSS JOIN LATERAL unnest((x.indkey::smallint[])[0:x.indnkeyatts - 1]) WITH ORDINALITY AS i (attnum, n)
        LEFT JOIN kept k ON k.attnum = i.attnum
        -- With all columns that it is about, also in expressions and conditions.
        WHERE x.indrelid = old AND x.indisvalid AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass
            AND d.objid = x.indexrelid AND d.refobjid = old AND d.refobjsubid <> 0 AND d.refobjsubid NOT IN (SELECT k.attnum FROM kept k))
        GROUP BY x.indexrelid, m.amname HAVING count(k.name) = count(*) FILTER (WHERE i.attnum <> 0))
    SELECT l.kind, l.number, l.lost FROM (
        SELECT 1 AS kind, k.number::oid, format('ALTER TABLE %s ALTER %I SET NOT NULL', new_table, k.name) AS lost
            FROM kept k WHERE k.required AND 'NOT NULL ' || k.name <> ALL (declared)
        UNION ALL SELECT 2, k.number::oid, format('ALTER TABLE %s ALTER %I %s', new_table, k.name, CASE k.attidentity
                WHEN '' THEN 'SET DEFAULT ' || k.default_value
                WHEN 'a' THEN 'ADD GENERATED ALWAYS AS IDENTITY' ELSE 'ADD GENERATED BY DEFAULT AS IDENTITY' END)
            FROM kept k WHERE (k.default_value IS NOT NULL OR k.attidentity <> '')
                AND NOT ARRAY['DEFAULT ' || k.name, 'IDENTITY ' || k.name] && declared
        UNION ALL SELECT 3, x.indexrelid, CASE
                WHEN NOT x.plain THEN format('index %s', pg_get_indexdef(x.indexrelid))
                WHEN x.indisprimary THEN format('ALTER TABLE %s ADD PRIMARY KEY (%s)', new_table, x.quoted)
                WHEN x.indisunique THEN format('ALTER TABLE %s ADD UNIQUE (%s)', new_table, x.quoted)
                ELSE format('CREATE INDEX ON %s USING %s (%s)', new_table, x.amname, x.quoted) END
            FROM indexed x
            WHERE NOT (CASE WHEN NOT x.plain THEN ARRAY['INDEX', 'INDEX ' || x.names, 'UNIQUE ' || x.names]
                WHEN x.indisunique THEN ARRAY['PRIMARY KEY ' || x.names, 'UNIQUE ' || x.names]
                ELSE ARRAY['PRIMARY KEY ' || x.names, 'UNIQUE ' || x.names, 'PLAIN INDEX ' || x.names] END && declared)
        UNION ALL SELECT 4, c.oid, format('constraint %I %s', c.conname, pg_get_constraintdef(c.oid))
            FROM pg_constraint c WHERE c.conrelid = old AND c.contype = 'c' AND 'CHECK' <> ALL (declared)
                AND NOT EXISTS (SELECT FROM unnest(c.conkey) n WHERE n NOT IN (SELECT k.attnum FROM kept k))) l
    ORDER BY l.kind, l.number
$$;
COMMENT ON FUNCTION bullfrog.losses(text, oid, text[], smallint[], boolean[], text[]) IS
    'What an old table declares of columns that a new one has too, and the migration does not: what to add to the definition. Of checks and '
        'of indexes over expressions the text is that of the old table; they are told if the new one has none. Kinds are 1: NOT NULL, 2: a '
        'default or an identity, 3: an index, 4: a check.';

CREATE FUNCTION bullfrog.mentions(olds oid[]) RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('the text of function %s looks as if it named %s', p.oid::regprocedure, c.oid::regclass)
    FROM pg_class c
    CROSS JOIN LATERAL (SELECT format('(?<![[:alnum:]_$])%s(?![[:alnum:]_$])', regexp_replace(c.relname, '[^[:alnum:]_]', '\\\&', 'g')))
        AS w (word)
    JOIN pg_proc p ON CASE WHEN c.relname = lower(c.relname) THEN p.prosrc ~* w.word ELSE p.prosrc ~ w.word END
    JOIN pg_language l ON l.oid = p.prolang
    JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE c.oid = ANY (olds) AND p.prosqlbody IS NULL AND l.lanname NOT IN ('c', 'internal')
        AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'bullfrog')
    ORDER BY 1
$$;
COMMENT ON FUNCTION bullfrog.mentions(oid[]) IS
    'Functions in whose text there is the name of one of these tables. What a text means nobody knows before it runs.';

CREATE FUNCTION bullfrog.refers(child oid, columns smallint[], parent oid, referred smallint[]) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_constraint k WHERE k.contype = 'f' AND k.convalidated AND k.conrelid = child AND k.confrelid = parent
        AND k.conkey = columns AND k.confkey = referred)
$$;
COMMENT ON FUNCTION bullfrog.refers(oid, smallint[], oid, smallint[]) IS 'Whether there is such a foreign key, and it holds for all rows.';

CREATE FUNCTION bullfrog.numbers_of(relation oid, columns text[]) RETURNS smallint[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN cardinality(columns) = 0
        THEN (SELECT (x.indkey::smallint[])[0:x.indnkeyatts - 1] FROM pg_index x WHERE x.indrelid = relation AND x.indisprimary)
        ELSE ARRAY(SELECT a.attnum FROM unnest(columns) WITH ORDINALITY AS c (name, n)
            JOIN pg_attribute a ON a.attrelid = relation AND a.attname = c.name ORDER BY c.n) END
$$;
COMMENT ON FUNCTION bullfrog.numbers_of(oid, text[]) IS 'Columns of a table by their names; of none, its primary key.';

CREATE FUNCTION bullfrog.reading_time(ahead boolean) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN ahead THEN 'before the switch, while clients go on,' ELSE 'at the switch, while clients wait,' END
$$;
COMMENT ON FUNCTION bullfrog.reading_time(boolean) IS 'When rows are read that are looked at ahead, or not.';

CREATE FUNCTION bullfrog.sizes_of(tables oid[]) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(format('%s%s', c.oid::regclass, CASE WHEN c.reltuples >= 0 THEN format(' (about %s)', c.reltuples::bigint) END), ', ' ORDER BY o.n)
    FROM unnest(tables) WITH ORDINALITY AS o (relation, n) JOIN pg_class c ON c.oid = o.relation
$$;
COMMENT ON FUNCTION bullfrog.sizes_of(oid[]) IS 'Tables, and about how many rows each has.';

CREATE FUNCTION bullfrog.reads_of(demands text[], olds oid[], ahead boolean, checked boolean DEFAULT true) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s rows of %s are read to %s %s', bullfrog.reading_time(ahead), bullfrog.sizes_of(olds), CASE WHEN checked THEN 'check' ELSE 'evaluate' END,
        array_to_string(demands, ', '))
    WHERE cardinality(demands) > 0
$$;
COMMENT ON FUNCTION bullfrog.reads_of(text[], oid[], boolean, boolean) IS 'Tells of checks that read all rows of tables, and about how many these are. Not checked: expressions are '
    'evaluated for each, and nothing more is asked.';

CREATE FUNCTION bullfrog.left_out(demands text[], keys boolean, ahead boolean, checks text) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE checks
        WHEN 'warn' THEN format('not checked, so that rows which violate it go to bullfrog.quarantined when they move: %s', array_to_string(demands, ', '))
        WHEN 'quarantine' THEN format('rows that violate these go to bullfrog.quarantined, and with them rows of new tables that refer to them: %s',
                array_to_string(demands, ', '))
            || CASE WHEN keys AND ahead THEN '; at the switch, while clients wait, rows that have a key in common or refer to nothing are looked at again' ELSE '' END
        END
    WHERE cardinality(demands) > 0
$$;
COMMENT ON FUNCTION bullfrog.left_out(text[], boolean, boolean, text) IS 'Tells what becomes of rows that violate constraints, by a choice of checks: NULL if they stop the switch. Keys: some of these '
    'are about several rows.';

CREATE FUNCTION bullfrog.require_choice(argument text, given text, known text[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF given <> ALL (known) OR given IS NULL THEN
        RAISE EXCEPTION 'expected % => %, got %', argument, array_to_string(known, ' or '), quote_nullable(given) USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.require_choice(text, text, text[]) IS 'An error unless what is given as an argument is one of these.';

CREATE FUNCTION bullfrog.ways_to_check() RETURNS text[]
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY['before', 'warn', 'quarantine']
$$;
COMMENT ON FUNCTION bullfrog.ways_to_check() IS 'What checks may be.';

CREATE FUNCTION bullfrog.hindrance_to_quarantine(single boolean, grouped boolean, checks text) RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'Each of them must come from one old row, or (not with ''warn'') from one group. Use checks => ''before''.'
    WHERE checks <> 'before' AND (NOT single OR grouped AND checks = 'warn')
$$;
COMMENT ON FUNCTION bullfrog.hindrance_to_quarantine(boolean, boolean, text) IS 'Why rows of a new table cannot be left out one by one. NULL: they can be, or are not to be.';

CREATE FUNCTION bullfrog.perform_plan(name text, definition text, live text[], driving text[], checks text)
    RETURNS TABLE (new_table text, old_tables regclass[], kind text, note text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    olds oid[] := ARRAY(SELECT DISTINCT o FROM bullfrog.parse(perform_plan.definition) p CROSS JOIN pg_catalog.unnest(p.old_tables) o ORDER BY o);
    lives oid[] := bullfrog.named_tables('live', perform_plan.live, olds);
    drivers oid[] := bullfrog.driving_tables(perform_plan.driving, perform_plan.definition, olds);
    closed oid[] := ARRAY(SELECT o FROM pg_catalog.unnest(olds) o WHERE o <> ALL (lives));
BEGIN
    PERFORM bullfrog.require_choice('checks', checks, bullfrog.ways_to_check());
    PERFORM bullfrog.require_ownership(olds);
    RETURN QUERY
    WITH parsed AS MATERIALIZED (SELECT * FROM bullfrog.parse(perform_plan.definition, driving => drivers)),
    granted AS MATERIALIZED (SELECT * FROM bullfrog.granted(perform_plan.definition)),
    demanded AS MATERIALIZED (SELECT d.*, pg_catalog.row_number() OVER () AS number FROM bullfrog.demands(perform_plan.definition) d),
    demand AS (
        SELECT COALESCE(c.new_table, p.new_table) AS new_table, said.named, pg_catalog.concat(said.named,
                CASE WHEN d.kind IN ('PRIMARY KEY', 'UNIQUE') THEN ' by sorting' WHEN d.kind = 'FOREIGN KEY'
                    THEN ' by looking into ' || d.refers_to END) AS what, d.proof, d.number, d.kind, c.new_table IS NOT NULL AS own,
            perform_plan.checks <> 'warn' OR d.kind IN ('FOREIGN KEY', 'IDENTITY') AS checked, d.evaluated,
            (c.members IS NULL OR perform_plan.checks <> 'quarantine' AND c.members LIKE '%bullfrog\_place\_%')
                AND (p.members IS NULL OR perform_plan.checks <> 'quarantine' AND p.members LIKE '%bullfrog\_place\_%') AS ahead
        FROM (SELECT * FROM demanded d WHERE d.kind NOT IN ('DEFAULT', 'PLAIN INDEX', 'VALUE') AND NOT d.proven) d
        LEFT JOIN parsed c ON c.action = 'create' AND c.new_table = d.new_table
        LEFT JOIN parsed p ON p.action = 'create' AND p.new_table = d.refers_to
        CROSS JOIN LATERAL (SELECT
            ARRAY(SELECT pg_catalog.array_position(c.columns, n)::smallint FROM pg_catalog.unnest(d.columns) n) AS own,
            ARRAY(SELECT pg_catalog.array_position(p.columns, n)::smallint FROM pg_catalog.unnest(CASE
                WHEN pg_catalog.cardinality(d.referred) > 0 THEN d.referred
                ELSE (SELECT k.columns FROM demanded k WHERE k.new_table = d.refers_to AND k.kind = 'PRIMARY KEY' LIMIT 1) END) n)
                AS referred) AS number
        CROSS JOIN LATERAL (SELECT pg_catalog.concat(d.kind, ' (' || NULLIF(pg_catalog.array_to_string(d.columns, ', '), '') || ')',
            CASE WHEN c.new_table IS NULL THEN ' of ' || d.new_table END) AS named) AS said
        WHERE CASE
            WHEN d.kind = 'NOT NULL' THEN NOT c.required[number.own[1]]
            WHEN d.kind IN ('PRIMARY KEY', 'UNIQUE')
                THEN NOT (d.plain AND bullfrog.key_is_proven(perform_plan.definition, c.new_table, c.grouped, c.keys, number.own))
            WHEN d.kind = 'FOREIGN KEY' THEN NOT (COALESCE(p.complete, true) AND bullfrog.refers(
                COALESCE(c.old_tables[1], pg_catalog.to_regclass(d.new_table)::oid),
                CASE WHEN c.new_table IS NULL THEN bullfrog.numbers_of(pg_catalog.to_regclass(d.new_table)::oid, d.columns)
                    ELSE ARRAY(SELECT c.origins[n] FROM pg_catalog.unnest(number.own) n) END,
                COALESCE(p.old_tables[1], pg_catalog.to_regclass(d.refers_to)::oid),
                CASE WHEN p.new_table IS NULL THEN bullfrog.numbers_of(pg_catalog.to_regclass(d.refers_to)::oid, d.referred)
                    ELSE ARRAY(SELECT p.origins[n] FROM pg_catalog.unnest(number.referred) n) END))
            ELSE true END),
    mutable AS MATERIALIZED (
        SELECT p.new_table, m.domain FROM parsed p CROSS JOIN LATERAL bullfrog.mutable_domains(p.old_tables, ARRAY(
            SELECT d.domain FROM bullfrog.domains_made(perform_plan.definition) d WHERE d.new_table = p.new_table)) m (domain) WHERE p.action = 'create'),
    obstacle AS (
        SELECT o.old, b.what FROM pg_catalog.unnest(olds) AS o (old)
            CROSS JOIN bullfrog.obstacles(o.old, o.old = ANY (lives)) AS b (what)
        UNION SELECT k.confrelid, pg_catalog.format('foreign key %I of %s refers to it (ALTER TABLE %2$s DROP CONSTRAINT %1$I in the '
            'migration)', k.conname, k.conrelid::regclass)
            FROM bullfrog.referring(closed) k
            WHERE NOT EXISTS (SELECT FROM parsed p WHERE p.action = 'release' AND pg_catalog.to_regclass(p.new_table)::oid = k.conrelid
                AND k.conname = ANY (p.columns)))
    SELECT i.new_table, i.old_tables::regclass[],
        CASE WHEN i.grouped THEN 'n:1'
            WHEN pg_catalog.cardinality(i.lookup_tables) > 0 AND i.single THEN 'foreign-key join'
            WHEN NOT i.single THEN 'n:n'
            WHEN pg_catalog.count(*) FILTER (WHERE NOT i.grouped) OVER (PARTITION BY i.old_tables[1]) > 1 THEN '1:n'
            ELSE '1:1' END,
        pg_catalog.concat_ws('; ',
            (SELECT 'refused: ' || pg_catalog.string_agg(CASE WHEN pg_catalog.cardinality(i.old_tables) > 1
                THEN o.old::regclass::text || ': ' ELSE '' END || o.what, '; ')
                FROM obstacle o WHERE o.old = ANY (i.old_tables)),
            'refused: its rows cannot be put into quarantine: ' || bullfrog.hindrance_to_quarantine(i.single, i.grouped, perform_plan.checks),
            CASE WHEN i.grouped THEN pg_catalog.format('moves by groups of %s', i.old_tables[1]::regclass)
                WHEN pg_catalog.cardinality(i.old_tables) > 1 THEN pg_catalog.format('moves by pages of %s', i.old_tables[1]::regclass) END,
            (SELECT pg_catalog.string_agg(l::regclass::text, ', ') || ' stays in use' FROM pg_catalog.unnest(lives) l
                WHERE l = ANY (i.old_tables)),
            (SELECT pg_catalog.format('row-level security of %s is not that of the new table: grant it to nobody until the migration has ended, and let clients '
                'use a view WITH (security_barrier) that has the conditions', s) FROM bullfrog.secured(i.old_tables) s
                WHERE s IS NOT NULL),
            bullfrog.reading_time(seen.ahead) || ' all rows are read once, to evaluate ' || NULLIF(pg_catalog.array_to_string(i.evaluated, ', '), '')
                || CASE WHEN seen.ahead THEN '' ELSE ', of ' || bullfrog.sizes_of(i.old_tables) END,
            bullfrog.reads_of(ARRAY(SELECT d.what FROM demand d WHERE d.new_table = i.new_table AND d.kind <> 'FOREIGN KEY' AND d.checked), i.old_tables, seen.ahead),
            bullfrog.reads_of(ARRAY(SELECT d.named FROM demand d WHERE d.new_table = i.new_table AND NOT d.checked AND d.evaluated), i.old_tables, seen.ahead, false),
            bullfrog.reads_of(ARRAY(SELECT d.what FROM demand d WHERE d.new_table = i.new_table AND d.kind = 'FOREIGN KEY' AND d.ahead), i.old_tables, true),
            bullfrog.reads_of(ARRAY(SELECT d.what FROM demand d WHERE d.new_table = i.new_table AND d.kind = 'FOREIGN KEY' AND NOT d.ahead), i.old_tables, false),
            bullfrog.left_out(ARRAY(SELECT d.named FROM demand d WHERE d.new_table = i.new_table AND d.own AND d.kind NOT IN ('INDEX', 'IDENTITY')
                    AND (perform_plan.checks <> 'warn' OR NOT d.checked)),
                EXISTS (SELECT FROM demand d WHERE d.new_table = i.new_table AND d.own AND d.kind IN ('PRIMARY KEY', 'UNIQUE', 'FOREIGN KEY')), seen.ahead, perform_plan.checks),
            'while clients wait for less: ' || (SELECT pg_catalog.string_agg(w.way, ', or ') FROM (
                SELECT pg_catalog.format('let the checks of %s be immutable, or give columns and expressions another type', pg_catalog.string_agg(m.domain::text, ', ' ORDER BY m.domain::text))
                    FROM mutable m WHERE m.new_table = i.new_table AND seen.asked AND NOT seen.ahead HAVING pg_catalog.count(*) > 0
                UNION ALL SELECT CASE WHEN i.grouped THEN 'ask for what an outer join lacks by FILTER (WHERE ..) of the aggregates'
                        ELSE 'select what an outer join lacks instead of asking for it, and delete such rows in the end' END
                    WHERE seen.asked AND i.members NOT LIKE '%bullfrog\_place\_%'
                UNION ALL SELECT 'use checks => ''before''' WHERE seen.asked AND i.members LIKE '%bullfrog\_place\_%' AND perform_plan.checks <> 'before'
                UNION ALL SELECT 'add the foreign key in the end, NOT VALID, and validate it'
                    WHERE EXISTS (SELECT FROM demand d WHERE d.new_table = i.new_table AND d.kind = 'FOREIGN KEY' AND NOT d.ahead)) w (way)),
            (SELECT 'run before the switch, while clients go on, this spares reading: ' || pg_catalog.string_agg(s.statement, '; ' ORDER BY s.number)
                FROM (SELECT u.statement, pg_catalog.min(ARRAY[d.number, u.n]) AS number
                    FROM (SELECT v.new_table, v.proof, v.number FROM demanded v WHERE v.kind = 'VALUE' AND NOT v.proven
                        UNION ALL SELECT d.new_table, d.proof, d.number FROM demand d WHERE d.checked OR d.evaluated) d
                    CROSS JOIN pg_catalog.unnest(d.proof) WITH ORDINALITY AS u (statement, n)
                    WHERE d.new_table = i.new_table GROUP BY u.statement) s),
            (SELECT pg_catalog.string_agg(pg_catalog.format('the foreign key %I of %s ends: declare it for the new table', k.conname,
                k.conrelid::regclass), '; ')
                FROM pg_catalog.pg_constraint k WHERE k.contype = 'f' AND k.conrelid = ANY (i.old_tables) AND k.conrelid = ANY (closed)),
            (SELECT pg_catalog.string_agg(pg_catalog.format('the trigger %I of %s has nothing more to fire for: CREATE TRIGGER for the new table',
                g.tgname, g.tgrelid::regclass), '; ')
                FROM pg_catalog.pg_trigger g WHERE NOT g.tgisinternal AND g.tgrelid = ANY (i.old_tables) AND g.tgrelid = ANY (closed)),
            (SELECT pg_catalog.string_agg(l, '; ') FROM bullfrog.slow_lookups(i.lookup_tables, i.lookup_columns) l),
            (SELECT pg_catalog.string_agg(r, '; ') FROM bullfrog.slow_reads(i.old_tables[1],
                NOT i.grouped AND pg_catalog.cardinality(i.old_tables) = 1 AND i.old_tables[1] <> ALL (lives) AND perform_plan.checks = 'before', i.columns, i.origins,
                ARRAY(SELECT d.columns[1] FROM demanded d WHERE d.new_table = i.new_table
                    AND d.kind IN ('PRIMARY KEY', 'UNIQUE', 'INDEX', 'PLAIN INDEX'))) r),
            'of the old table it will not have: ' || (SELECT pg_catalog.string_agg(l.lost, '; ' ORDER BY l.kind, l.object) FROM bullfrog.losses(
                i.new_table, i.old_tables[1], i.columns, i.origins, i.required,
                ARRAY(SELECT pg_catalog.concat_ws(' ', d.kind, NULLIF(pg_catalog.array_to_string(d.columns, ', '), '')) FROM demanded d
                    WHERE d.new_table = i.new_table)) l WHERE NOT i.grouped),
            'rights on the old tables that it will not have: ' || (SELECT pg_catalog.string_agg(r, '; ') FROM bullfrog.missing_rights(
                i.new_table, i.old_tables, i.columns, i.origins,
                ARRAY(SELECT g.grantee FROM granted g WHERE g.new_table = i.new_table),
                ARRAY(SELECT g.privilege FROM granted g WHERE g.new_table = i.new_table)) r),
            (SELECT pg_catalog.string_agg(m, '; ') FROM bullfrog.mentions(ARRAY(SELECT o FROM pg_catalog.unnest(i.old_tables) o
                WHERE o = ANY (closed))) m))
    FROM parsed i
    -- Not where it is not known which rows come when others go.
    CROSS JOIN LATERAL (SELECT (i.members IS NULL OR perform_plan.checks = 'before' AND i.members LIKE '%bullfrog\_place\_%') AND NOT EXISTS (
        SELECT FROM mutable m WHERE m.new_table = i.new_table) AS ahead,
        pg_catalog.cardinality(i.evaluated) > 0 OR EXISTS (SELECT FROM demand d WHERE d.new_table = i.new_table AND d.kind <> 'FOREIGN KEY'
            AND (d.checked OR d.evaluated)) AS asked) AS seen
    WHERE i.action = 'create';
END
$$;
COMMENT ON FUNCTION bullfrog.perform_plan(text, text, text[], text[], text) IS 'What bullfrog.plan tells.';
