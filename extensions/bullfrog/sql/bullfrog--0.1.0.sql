\echo Use "CREATE EXTENSION bullfrog" to load this file. \quit

-- The truth -----------------------------------------------------------------------------------------------------------

CREATE TABLE bullfrog.migration (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    definition text NOT NULL,
    phase text NOT NULL DEFAULT 'moving' CHECK (phase IN ('moving', 'paused', 'finished', 'aborted')),
    started timestamptz NOT NULL DEFAULT statement_timestamp(),
    ended timestamptz
);
CREATE UNIQUE INDEX migration_under_way ON bullfrog.migration (name) WHERE phase IN ('moving', 'paused');
COMMENT ON TABLE bullfrog.migration IS 'Migrations, those under way and those that ended.';
COMMENT ON COLUMN bullfrog.migration.name IS 'Its name, unique among those under way.';
COMMENT ON COLUMN bullfrog.migration.definition IS 'The statements, as they were given to bullfrog.migrate.';
COMMENT ON COLUMN bullfrog.migration.phase IS 'moving, paused (rows move only when a statement needs them), finished or aborted.';
COMMENT ON COLUMN bullfrog.migration.started IS 'When the schema was switched.';
COMMENT ON COLUMN bullfrog.migration.ended IS 'When it was finished or aborted.';

CREATE TABLE bullfrog.source (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    migration int NOT NULL REFERENCES bullfrog.migration,
    old_table regclass NOT NULL UNIQUE,
    pages bigint NOT NULL,
    fingerprint text
);
COMMENT ON TABLE bullfrog.source IS 'Old tables whose rows are on the move. Nobody but bullfrog reads or writes them.';
COMMENT ON COLUMN bullfrog.source.migration IS 'The migration it belongs to.';
COMMENT ON COLUMN bullfrog.source.old_table IS 'The old table.';
COMMENT ON COLUMN bullfrog.source.pages IS 'Pages that it had at the switch; pages are moved as a whole.';
COMMENT ON COLUMN bullfrog.source.fingerprint IS 'Its form at the switch, which must not change.';

CREATE TABLE bullfrog.target (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source int NOT NULL REFERENCES bullfrog.source,
    old_table regclass NOT NULL,
    new_table regclass NOT NULL UNIQUE,
    transformed regclass NOT NULL,
    unmoved regclass NOT NULL,
    fingerprint text
);
COMMENT ON TABLE bullfrog.target IS 'New tables that do not have all of their rows yet. Every query reads them with the rest from the old table.';
COMMENT ON COLUMN bullfrog.target.source IS 'The old table its rows come from.';
COMMENT ON COLUMN bullfrog.target.old_table IS 'The same, as a table.';
COMMENT ON COLUMN bullfrog.target.new_table IS 'The new table.';
COMMENT ON COLUMN bullfrog.target.transformed IS 'A view of all rows of the old table in the form of the new one, and where they lie.';
COMMENT ON COLUMN bullfrog.target.unmoved IS 'The same without those that were moved.';
COMMENT ON COLUMN bullfrog.target.fingerprint IS 'Its form at the switch, which must not change. NULL: the switch is under way.';

CREATE TABLE bullfrog.moved (
    source int NOT NULL,
    page bigint NOT NULL,
    moved_by xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (source, page)
);
COMMENT ON TABLE bullfrog.moved IS 'Pages of old tables whose rows are in the new tables: written by the transaction that moved them.';
COMMENT ON COLUMN bullfrog.moved.source IS 'The old table.';
COMMENT ON COLUMN bullfrog.moved.page IS 'The number of the page.';
COMMENT ON COLUMN bullfrog.moved.moved_by IS 'The transaction that moved it.';

-- What the library does -------------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.page(tid) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'page_wrapper';
COMMENT ON FUNCTION bullfrog.page(tid) IS 'The page on which a row lies.';

CREATE FUNCTION bullfrog.parse(definition text)
    RETURNS TABLE (action text, statement text, new_table text, old_table regclass, query text, columns text[], origins smallint[])
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'parse_wrapper';
COMMENT ON FUNCTION bullfrog.parse(text) IS
    'The statements of a migration: what each does to which new table; of those that create one, where its rows come from '
    'and which columns are plain columns of the old table (0: an expression).';

CREATE FUNCTION bullfrog.next_phase(phase text, event text) RETURNS text
    LANGUAGE c IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'next_phase_wrapper';
COMMENT ON FUNCTION bullfrog.next_phase(text, text) IS 'The phase of a migration after pause, resume, finish or abort; an error if it cannot be.';

CREATE FUNCTION bullfrog.announce(changed regclass) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'announce_wrapper';
COMMENT ON FUNCTION bullfrog.announce(regclass) IS 'Tells every session that plans over this table are no longer valid.';

CREATE FUNCTION bullfrog.move(source int, pages bigint[]) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'move_pages_wrapper';
COMMENT ON FUNCTION bullfrog.move(int, bigint[]) IS
    'Has pages of an old table moved, and waits until they are, in a transaction of their own.';

CREATE FUNCTION bullfrog.start_mover() RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'start_mover_wrapper';
COMMENT ON FUNCTION bullfrog.start_mover() IS 'Starts the process that moves rows of this database, unless it runs.';

-- Looking before the switch ----------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.obstacles(old_table oid) RETURNS SETOF text
    LANGUAGE sql STABLE AS $$
    SELECT 'it is not an ordinary, permanent table' FROM pg_catalog.pg_class c
        WHERE c.oid = old_table AND (c.relkind <> 'r' OR c.relpersistence <> 'p' OR c.relispartition)
    UNION ALL SELECT 'it is a table of the system' WHERE old_table < 16384
    UNION ALL SELECT 'its rows do not lie in a heap' FROM pg_catalog.pg_class c JOIN pg_catalog.pg_am a ON a.oid = c.relam
        WHERE c.oid = old_table AND a.amname <> 'heap'
    UNION ALL SELECT 'it has row-level security' FROM pg_catalog.pg_class c WHERE c.oid = old_table AND c.relrowsecurity
    UNION ALL SELECT pg_catalog.format('it inherits from %s', i.inhparent::regclass) FROM pg_catalog.pg_inherits i WHERE i.inhrelid = old_table
    UNION ALL SELECT pg_catalog.format('%s inherits from it', i.inhrelid::regclass) FROM pg_catalog.pg_inherits i WHERE i.inhparent = old_table
    UNION ALL SELECT pg_catalog.format('foreign key %I of %s refers to it', k.conname, k.conrelid::regclass) FROM pg_catalog.pg_constraint k
        WHERE k.contype = 'f' AND k.confrelid = old_table AND k.conrelid <> old_table
    UNION ALL SELECT pg_catalog.format('its foreign key %I refers to %s', k.conname, k.confrelid::regclass) FROM pg_catalog.pg_constraint k
        WHERE k.contype = 'f' AND k.conrelid = old_table
    UNION ALL SELECT pg_catalog.format('it has the trigger %I', t.tgname) FROM pg_catalog.pg_trigger t WHERE t.tgrelid = old_table AND NOT t.tgisinternal
    UNION ALL SELECT pg_catalog.format('it has the rule %I', r.rulename) FROM pg_catalog.pg_rewrite r WHERE r.ev_class = old_table
    UNION ALL SELECT DISTINCT pg_catalog.format('%s reads it', r.ev_class::regclass) FROM pg_catalog.pg_depend d
        JOIN pg_catalog.pg_rewrite r ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
        WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = old_table AND r.ev_class <> old_table
    UNION ALL SELECT DISTINCT pg_catalog.format('function %s reads it', d.objid::regprocedure) FROM pg_catalog.pg_depend d
        WHERE d.classid = 'pg_catalog.pg_proc'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = old_table
    UNION ALL SELECT pg_catalog.format('publication %I has it', p.pubname) FROM pg_catalog.pg_publication p
        WHERE p.puballtables OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = old_table)
            OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace n JOIN pg_catalog.pg_class c ON c.relnamespace = n.pnnspid
                WHERE n.pnpubid = p.oid AND c.oid = old_table)
    UNION ALL SELECT 'a subscription writes to it' FROM pg_catalog.pg_subscription_rel s WHERE s.srrelid = old_table
    UNION ALL SELECT pg_catalog.format('the migration %I is moving it', m.name)
        FROM bullfrog.source s JOIN bullfrog.migration m ON m.id = s.migration WHERE s.old_table = obstacles.old_table
    UNION ALL SELECT pg_catalog.format('the migration %I is filling it', m.name)
        FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source JOIN bullfrog.migration m ON m.id = s.migration
        WHERE t.new_table = obstacles.old_table
$$;
COMMENT ON FUNCTION bullfrog.obstacles(oid) IS 'What of a table forbids to migrate it. No rows: nothing.';

CREATE FUNCTION bullfrog.plan(name text, definition text)
    RETURNS TABLE (new_table text, old_table regclass, kind text, note text)
    LANGUAGE sql AS $$
    WITH item AS MATERIALIZED (SELECT * FROM bullfrog.parse(definition) p WHERE p.action = 'create')
    SELECT i.new_table, i.old_table,
        CASE WHEN pg_catalog.count(*) OVER (PARTITION BY i.old_table) > 1 THEN '1:n' ELSE '1:1' END,
        pg_catalog.concat_ws('; ',
            (SELECT 'refused: ' || pg_catalog.string_agg(o, '; ') FROM bullfrog.obstacles(i.old_table) o),
            (SELECT 'at the switch all rows are read once, to evaluate ' || pg_catalog.string_agg(pg_catalog.quote_ident(c.name), ', ')
                FROM ROWS FROM (pg_catalog.unnest(i.columns), pg_catalog.unnest(i.origins)) AS c (name, origin) WHERE c.origin = 0))
    FROM item i
$$;
COMMENT ON FUNCTION bullfrog.plan(text, text) IS
    'What bullfrog.migrate would do: each new table, the old table its rows come from, how they relate, and what stands in the way or takes time.';

-- The switch ------------------------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.require_quiet_session() RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user) THEN
        RAISE EXCEPTION 'only a superuser may start or end a migration' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a migration starts and ends at READ COMMITTED, this transaction is at %',
            pg_catalog.upper(pg_catalog.current_setting('transaction_isolation'))
            USING ERRCODE = 'active_sql_transaction', HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED first.';
    END IF;
    IF pg_catalog.current_setting('lock_timeout') = '0' THEN
        PERFORM pg_catalog.set_config('lock_timeout', '5s', true);
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.require_quiet_session() IS
    'Checks that the session may switch schemas, and limits how long it waits for a lock (5 s unless lock_timeout says otherwise) while others queue behind it.';

CREATE FUNCTION bullfrog.fingerprint(relation oid) RETURNS text
    LANGUAGE sql STABLE AS $$
    SELECT pg_catalog.md5(pg_catalog.concat_ws(E'\n',
        (SELECT pg_catalog.concat_ws(',', c.relname, c.relnamespace, c.relfilenode, c.relkind, c.relpersistence, c.relrowsecurity, c.relowner)
            FROM pg_catalog.pg_class c WHERE c.oid = relation),
        (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(',', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated), ';' ORDER BY a.attnum)
            FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0),
        (SELECT pg_catalog.string_agg(k.oid::text, ',' ORDER BY k.oid) FROM pg_catalog.pg_constraint k WHERE relation IN (k.conrelid, k.confrelid)),
        (SELECT pg_catalog.string_agg(t.oid::text || t.tgenabled::text, ',' ORDER BY t.oid) FROM pg_catalog.pg_trigger t WHERE t.tgrelid = relation),
        (SELECT pg_catalog.string_agg(r.oid::text, ',' ORDER BY r.oid) FROM pg_catalog.pg_rewrite r WHERE r.ev_class = relation),
        (SELECT pg_catalog.string_agg(p.oid::text, ',' ORDER BY p.oid) FROM pg_catalog.pg_policy p WHERE p.polrelid = relation),
        (SELECT pg_catalog.string_agg(x.indexrelid::text, ',' ORDER BY x.indexrelid) FROM pg_catalog.pg_index x WHERE x.indrelid = relation AND x.indisunique),
        (SELECT pg_catalog.string_agg(i.inhrelid::text || ',' || i.inhparent::text, ';' ORDER BY i.inhrelid, i.inhparent)
            FROM pg_catalog.pg_inherits i WHERE relation IN (i.inhrelid, i.inhparent))))
$$;
COMMENT ON FUNCTION bullfrog.fingerprint(oid) IS 'The form of a table as far as a migration relies on it.';

CREATE FUNCTION bullfrog.verify() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changed record;
BEGIN
    SELECT p.relation, m.name INTO changed
        FROM (SELECT s.old_table AS relation, s.fingerprint, s.id AS source FROM bullfrog.source s
              UNION ALL SELECT t.new_table, t.fingerprint, t.source FROM bullfrog.target t) p
        JOIN bullfrog.source s ON s.id = p.source JOIN bullfrog.migration m ON m.id = s.migration
        WHERE p.fingerprint <> bullfrog.fingerprint(p.relation) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'this would change %, which the migration % is moving', changed.relation, quote_ident(changed.name)
            USING ERRCODE = 'object_in_use', HINT = format('SELECT bullfrog.finish(%L) or bullfrog.abort(%1$L) first.', changed.name);
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.verify() IS 'Raises an error if a table of a migration under way has changed its form. Runs after each statement that may do it.';

CREATE FUNCTION bullfrog.violation(relation regclass, what text, detail text) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of the old table would violate %', what
        USING ERRCODE = 'integrity_constraint_violation', DETAIL = detail, TABLE = relation::text,
            HINT = 'Correct the rows or the definition, then migrate again. Nothing was changed.';
END
$$;
COMMENT ON FUNCTION bullfrog.violation(regclass, text, text) IS 'Refuses a migration whose rows do not satisfy what the new table asks for.';

CREATE FUNCTION bullfrog.check_rows(relation regclass, transformed regclass, old_table regclass, columns text[], origins smallint[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_rows bigint;
    item record;
BEGIN
    -- Expressions are immutable and the old table no longer changes: what can be evaluated now can be evaluated always.
    IF 0 = ANY (origins) THEN
        EXECUTE format('SELECT %s FROM %s', (SELECT string_agg(format('count(%I)', c), ' + ') FROM unnest(columns) c), transformed) INTO found_rows;
    END IF;
    FOR item IN
        SELECT a.attname FROM pg_attribute a
        LEFT JOIN pg_attribute o ON o.attrelid = old_table AND o.attnum = origins[a.attnum]
        WHERE a.attrelid = relation AND a.attnum > 0 AND a.attnotnull AND o.attnotnull IS NOT TRUE
    LOOP
        EXECUTE format('SELECT count(*) FROM %s WHERE %I IS NULL', transformed, item.attname) INTO found_rows;
        IF found_rows > 0 THEN
            PERFORM bullfrog.violation(relation, format('NOT NULL of %I', item.attname), format('%s rows have no value.', found_rows));
        END IF;
    END LOOP;
    FOR item IN SELECT k.conname, pg_get_expr(k.conbin, k.conrelid) AS condition FROM pg_constraint k WHERE k.conrelid = relation AND k.contype = 'c' LOOP
        EXECUTE format('SELECT count(*) FROM %s WHERE NOT (%s)', transformed, item.condition) INTO found_rows;
        IF found_rows > 0 THEN
            PERFORM bullfrog.violation(relation, format('the check %I', item.conname), format('%s rows do not satisfy it.', found_rows));
        END IF;
    END LOOP;
    FOR item IN
        SELECT x.indexrelid::regclass AS index, string_agg(quote_ident(a.attname), ', ') AS keys,
            string_agg(format('%I IS NOT NULL', a.attname), ' AND ') AS present, array_agg(origins[a.attnum]) AS key_origins
        FROM pg_index x JOIN pg_attribute a ON a.attrelid = relation AND a.attnum = ANY ((x.indkey::smallint[])[0:x.indnkeyatts - 1])
        WHERE x.indrelid = relation AND x.indisunique GROUP BY x.indexrelid
    LOOP
        -- What the old table kept unique is unique.
        CONTINUE WHEN EXISTS (
            SELECT FROM pg_index o WHERE o.indrelid = old_table AND o.indisunique AND o.indisvalid AND o.indimmediate AND o.indpred IS NULL
                AND (o.indkey::smallint[])[0:o.indnkeyatts - 1] <@ item.key_origins AND NOT 0 = ANY (o.indkey));
        EXECUTE format('SELECT count(*) FROM (SELECT FROM %s WHERE %s GROUP BY %s HAVING count(*) > 1) AS twice', transformed, item.present, item.keys) INTO found_rows;
        IF found_rows > 0 THEN
            PERFORM bullfrog.violation(relation, format('the unique index %s', item.index), format('%s keys would be there several times.', found_rows));
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.check_rows(regclass, regclass, regclass, text[], smallint[]) IS
    'Checks that every row of an old table can be a row of the new one. Reads the old table only for what its own constraints do not prove.';

CREATE FUNCTION bullfrog.guard_keys(target int, source int, relation regclass, unmoved regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moves text;
    changed text;
BEGIN
    SELECT string_agg(format(E'    PERFORM bullfrog.move(%s, ARRAY(SELECT DISTINCT bullfrog.page(u.bullfrog_tid) FROM %s u WHERE %s));\n',
            source, unmoved, k.same), ''),
        string_agg(k.changed, ' OR ')
    INTO moves, changed
    FROM (
        SELECT string_agg(format('u.%1$I OPERATOR(%2$I.%3$s) NEW.%1$I', a.attname, n.nspname, o.oprname), ' AND ') AS same,
            string_agg(format('OLD.%1$I IS DISTINCT FROM NEW.%1$I', a.attname), ' OR ') AS changed
        FROM pg_index x
        CROSS JOIN LATERAL unnest(x.indkey::smallint[], x.indclass::oid[]) AS key (attnum, opclass)
        JOIN pg_attribute a ON a.attrelid = relation AND a.attnum = key.attnum
        JOIN pg_opclass c ON c.oid = key.opclass
        JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype AND m.amopstrategy = 3
        JOIN pg_operator o ON o.oid = m.amopopr
        JOIN pg_namespace n ON n.oid = o.oprnamespace
        WHERE x.indrelid = relation AND x.indisunique
        GROUP BY x.indexrelid) k;
    IF moves IS NOT NULL THEN
        EXECUTE format(
            'CREATE FUNCTION bullfrog.guard_%s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L',
            target, E'BEGIN\n' || moves || E'    RETURN NEW;\nEND');
        EXECUTE format('COMMENT ON FUNCTION bullfrog.guard_%s() IS %L', target, format('Moves old rows whose key a new row of %s may have.', relation));
        EXECUTE format('CREATE TRIGGER bullfrog_insert BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION bullfrog.guard_%s()', relation, target);
        EXECUTE format('CREATE TRIGGER bullfrog_update BEFORE UPDATE ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION bullfrog.guard_%s()',
            relation, changed, target);
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.guard_keys(int, int, regclass, regclass) IS
    'Lets the unique indexes of a new table see the keys of rows that were not moved yet, by moving these first.';

CREATE FUNCTION bullfrog.own(source int, owner name) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t record;
BEGIN
    FOR t IN SELECT * FROM bullfrog.target g WHERE g.source = own.source LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO %I', t.new_table, owner);
        EXECUTE format('ALTER VIEW %s OWNER TO %I', t.transformed, owner);
        EXECUTE format('ALTER VIEW %s OWNER TO %I', t.unmoved, owner);
        IF to_regprocedure(format('bullfrog.guard_%s()', t.id)) IS NOT NULL THEN
            EXECUTE format('ALTER FUNCTION bullfrog.guard_%s() OWNER TO %I', t.id, owner);
        END IF;
    END LOOP;
    EXECUTE format('ALTER FUNCTION bullfrog.move_%s(tid, tid) OWNER TO %I', source, owner);
END
$$;
COMMENT ON FUNCTION bullfrog.own(int, name) IS
    'Gives what belongs to a migration to the owner of the old table: expressions are evaluated with that owner''s rights.';

CREATE FUNCTION bullfrog.migrate(name text, definition text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    migration_id int;
    source_id int;
    target_id int;
    item record;
    names text;
    hindrance text;
BEGIN
    PERFORM bullfrog.require_quiet_session();
    IF EXISTS (SELECT FROM bullfrog.migration m WHERE m.name = migrate.name AND m.phase IN ('moving', 'paused')) THEN
        RAISE EXCEPTION 'a migration named % is under way', pg_catalog.quote_ident(migrate.name) USING ERRCODE = 'duplicate_object';
    END IF;
    INSERT INTO bullfrog.migration (name, definition) VALUES (migrate.name, migrate.definition) RETURNING id INTO migration_id;

    FOR item IN SELECT * FROM bullfrog.parse(migrate.definition) LOOP
        IF item.action <> 'create' THEN
            EXECUTE item.statement;
            CONTINUE;
        END IF;
        EXECUTE pg_catalog.format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', item.old_table);
        SELECT s.id INTO source_id FROM bullfrog.source s WHERE s.old_table = item.old_table AND s.migration = migration_id;
        IF NOT FOUND THEN
            SELECT pg_catalog.string_agg(o, '; ') INTO hindrance FROM bullfrog.obstacles(item.old_table) o;
            IF hindrance IS NOT NULL THEN
                RAISE EXCEPTION 'cannot migrate %: %', item.old_table, hindrance
                    USING ERRCODE = 'feature_not_supported', HINT = 'Drop or change what stands in the way; bullfrog.plan lists it.';
            END IF;
            INSERT INTO bullfrog.source (migration, old_table, pages)
                VALUES (migration_id, item.old_table, pg_catalog.pg_relation_size(item.old_table) / pg_catalog.current_setting('block_size')::int)
                RETURNING id INTO source_id;
        END IF;
        SELECT pg_catalog.string_agg(pg_catalog.quote_ident(c), ', ') INTO names FROM pg_catalog.unnest(item.columns) c;
        target_id := pg_catalog.nextval('bullfrog.target_id_seq');
        EXECUTE pg_catalog.format('CREATE TABLE %1$s (%2$s) AS SELECT %2$s FROM (%3$s) AS t (%2$s, bullfrog_tid) WITH NO DATA', item.new_table, names, item.query);
        EXECUTE pg_catalog.format('CREATE VIEW bullfrog.transformed_%s (%s, bullfrog_tid) AS %s', target_id, names, item.query);
        EXECUTE pg_catalog.format('CREATE VIEW bullfrog.unmoved_%1$s AS SELECT t.* FROM bullfrog.transformed_%1$s t WHERE NOT EXISTS '
            '(SELECT FROM bullfrog.moved m WHERE m.source = %2$s AND m.page = bullfrog.page(t.bullfrog_tid))', target_id, source_id);
        EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.transformed_%s IS %L', target_id,
            pg_catalog.format('All rows of %s in the form of %s.', item.old_table, item.new_table));
        EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.unmoved_%s IS %L', target_id,
            pg_catalog.format('Rows of %s that %s does not have yet.', item.old_table, item.new_table));
        INSERT INTO bullfrog.target (id, source, old_table, new_table, transformed, unmoved) OVERRIDING SYSTEM VALUE
            VALUES (target_id, source_id, item.old_table, item.new_table::regclass, pg_catalog.format('bullfrog.transformed_%s', target_id)::regclass,
                pg_catalog.format('bullfrog.unmoved_%s', target_id)::regclass);
    END LOOP;

    FOR item IN
        SELECT t.*, p.columns, p.origins FROM bullfrog.parse(migrate.definition) p
        JOIN bullfrog.target t ON t.new_table = p.new_table::regclass WHERE p.action = 'create'
    LOOP
        PERFORM bullfrog.check_rows(item.new_table, item.transformed, item.old_table, item.columns, item.origins);
        PERFORM bullfrog.guard_keys(item.id, item.source, item.new_table, item.unmoved);
    END LOOP;
    FOR item IN SELECT s.*, pg_catalog.pg_get_userbyid(c.relowner) AS owner
        FROM bullfrog.source s JOIN pg_catalog.pg_class c ON c.oid = s.old_table WHERE s.migration = migration_id
    LOOP
        PERFORM bullfrog.prepare_moves(item.id);
        PERFORM bullfrog.own(item.id, item.owner);
        UPDATE bullfrog.source s SET fingerprint = bullfrog.fingerprint(s.old_table) WHERE s.id = item.id;
        UPDATE bullfrog.target t SET fingerprint = bullfrog.fingerprint(t.new_table) WHERE t.source = item.id;
        PERFORM bullfrog.announce(item.old_table);
        PERFORM bullfrog.announce(t.new_table) FROM bullfrog.target t WHERE t.source = item.id;
    END LOOP;
    PERFORM bullfrog.announce('bullfrog.target');
    PERFORM bullfrog.start_mover();
END
$$;
COMMENT ON FUNCTION bullfrog.migrate(text, text) IS
    'Switches to a new schema: from the commit on the new tables answer every query, and the old ones are closed. Rows move later. '
    'The text is CREATE TABLE new AS SELECT .. FROM old [WHERE ..], and what constrains the new tables.';

CREATE FUNCTION bullfrog.prepare_moves(source int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moves text;
BEGIN
    SELECT string_agg(format(E'    INSERT INTO %1$s (%2$s) SELECT %2$s FROM %3$s WHERE bullfrog_tid >= first AND bullfrog_tid < beyond;\n', t.new_table,
        (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = t.new_table AND a.attnum > 0),
        t.transformed), '' ORDER BY t.id)
    INTO moves FROM bullfrog.target t WHERE t.source = prepare_moves.source;
    EXECUTE format('CREATE FUNCTION bullfrog.move_%s(first tid, beyond tid) RETURNS void LANGUAGE plpgsql SECURITY DEFINER '
        'SET search_path = pg_catalog, pg_temp AS %L', source, E'BEGIN\n' || moves || 'END');
    EXECUTE format('REVOKE ALL ON FUNCTION bullfrog.move_%s(tid, tid) FROM PUBLIC', source);
    EXECUTE format('COMMENT ON FUNCTION bullfrog.move_%s(tid, tid) IS %L', source,
        format('Copies rows of %s to their new tables.', (SELECT s.old_table FROM bullfrog.source s WHERE s.id = source)));
END
$$;
COMMENT ON FUNCTION bullfrog.prepare_moves(int) IS 'Makes the function by which the mover copies rows of an old table to all of its new tables.';

-- While it goes on ------------------------------------------------------------------------------------------------------

CREATE VIEW bullfrog.progress AS
    SELECT m.name, m.phase, s.old_table, s.pages, d.pages AS pages_moved, s.pages - d.pages AS pages_left, m.started
    FROM bullfrog.migration m
    JOIN bullfrog.source s ON s.migration = m.id
    CROSS JOIN LATERAL (SELECT pg_catalog.count(*) AS pages FROM bullfrog.moved v WHERE v.source = s.id) d;
COMMENT ON VIEW bullfrog.progress IS 'Migrations under way: of each old table, how many of its pages were moved and how many are left.';

CREATE FUNCTION bullfrog.under_way(name text) RETURNS bullfrog.migration
    LANGUAGE plpgsql AS $$
DECLARE
    found bullfrog.migration;
BEGIN
    SELECT * INTO found FROM bullfrog.migration m WHERE m.name = under_way.name AND m.phase IN ('moving', 'paused');
    IF found.id IS NULL THEN
        RAISE EXCEPTION 'no migration named % is under way', pg_catalog.quote_ident(under_way.name)
            USING ERRCODE = 'undefined_object', HINT = 'SELECT name FROM bullfrog.progress lists those that are.';
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION bullfrog.under_way(text) IS 'The migration of this name that is under way; an error if there is none.';

CREATE FUNCTION bullfrog.pause(name text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    migration_id int := (bullfrog.under_way(pause.name)).id;
BEGIN
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'pause') WHERE m.id = migration_id;
END
$$;
COMMENT ON FUNCTION bullfrog.pause(text) IS 'Stops moving rows in the background. Statements that need a row still move its page.';

CREATE FUNCTION bullfrog.resume(name text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    migration_id int := (bullfrog.under_way(resume.name)).id;
BEGIN
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'resume') WHERE m.id = migration_id;
    PERFORM bullfrog.start_mover();
END
$$;
COMMENT ON FUNCTION bullfrog.resume(text) IS 'Goes on moving rows in the background.';

-- The end ---------------------------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.forget(migration_id int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s record;
    t record;
BEGIN
    FOR s IN SELECT * FROM bullfrog.source WHERE migration = migration_id LOOP
        DELETE FROM bullfrog.moved v WHERE v.source = s.id;
        EXECUTE format('DROP FUNCTION bullfrog.move_%s(tid, tid)', s.id);
        FOR t IN DELETE FROM bullfrog.target g WHERE g.source = s.id RETURNING * LOOP
            PERFORM bullfrog.announce('bullfrog.target');
            PERFORM bullfrog.announce(t.new_table);
            EXECUTE format('DROP TRIGGER IF EXISTS bullfrog_insert ON %s', t.new_table);
            EXECUTE format('DROP TRIGGER IF EXISTS bullfrog_update ON %s', t.new_table);
            EXECUTE format('DROP FUNCTION IF EXISTS bullfrog.guard_%s()', t.id);
            EXECUTE format('DROP VIEW %s, %s', t.unmoved, t.transformed);
        END LOOP;
        PERFORM bullfrog.announce(s.old_table);
    END LOOP;
    DELETE FROM bullfrog.source WHERE migration = migration_id;
END
$$;
COMMENT ON FUNCTION bullfrog.forget(int) IS 'Removes everything of a migration except its tables and its record.';

CREATE FUNCTION bullfrog.finish(name text, keep_old boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    migration bullfrog.migration;
    olds regclass[];
    s record;
    item record;
    last_move xid8;
    readers text;
BEGIN
    PERFORM bullfrog.require_quiet_session();
    -- Nothing is written until the old tables are free: a transaction that writes would make other snapshots look old.
    migration := bullfrog.under_way(finish.name);
    FOR s IN SELECT * FROM bullfrog.source c WHERE c.migration = migration.id LOOP
        PERFORM bullfrog.move(s.id, ARRAY(
            SELECT p FROM pg_catalog.generate_series(0, s.pages - 1) p
            WHERE NOT EXISTS (SELECT FROM bullfrog.moved v WHERE v.source = s.id AND v.page = p)));
    END LOOP;

    -- A snapshot that does not see the last move still needs the old table.
    SELECT v.moved_by INTO last_move FROM bullfrog.moved v JOIN bullfrog.source c ON c.id = v.source
        WHERE c.migration = migration.id ORDER BY v.moved_by DESC LIMIT 1;
    SELECT pg_catalog.string_agg(r.who, ', ') INTO readers FROM (
        SELECT pg_catalog.format('process %s', a.pid) AS who FROM pg_catalog.pg_stat_activity a
            WHERE pg_catalog.age(a.backend_xmin) >= pg_catalog.age(last_move::xid) AND a.pid <> pg_catalog.pg_backend_pid()
                AND (a.datname = pg_catalog.current_database() OR a.datname IS NULL) AND a.backend_type <> 'autovacuum worker'
        UNION ALL SELECT pg_catalog.format('replication slot %I', l.slot_name) FROM pg_catalog.pg_replication_slots l
            WHERE pg_catalog.age(l.xmin) >= pg_catalog.age(last_move::xid)) r;
    IF readers IS NOT NULL THEN
        RAISE EXCEPTION 'the old tables of % are still needed by %', pg_catalog.quote_ident(finish.name), readers
            USING ERRCODE = 'object_in_use', HINT = 'All rows are moved. Finish again when transactions that began before the last move have ended.';
    END IF;

    FOR item IN SELECT c.old_table AS relation FROM bullfrog.source c WHERE c.migration = migration.id
        UNION ALL SELECT t.new_table FROM bullfrog.target t JOIN bullfrog.source c ON c.id = t.source WHERE c.migration = migration.id
    LOOP
        EXECUTE pg_catalog.format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', item.relation);
    END LOOP;
    olds := ARRAY(SELECT c.old_table FROM bullfrog.source c WHERE c.migration = migration.id);
    PERFORM bullfrog.forget(migration.id);
    IF NOT keep_old THEN
        FOR item IN SELECT o FROM pg_catalog.unnest(olds) o LOOP
            EXECUTE pg_catalog.format('DROP TABLE %s', item.o);
        END LOOP;
    END IF;
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'finish'), ended = pg_catalog.statement_timestamp() WHERE m.id = migration.id;
END
$$;
COMMENT ON FUNCTION bullfrog.finish(text, boolean) IS
    'Moves the rows that are left, drops the old tables (or keeps them, with the rows they had at the switch), and leaves the new tables as ordinary ones.';

CREATE FUNCTION bullfrog.abort(name text, discard_writes boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    migration bullfrog.migration;
    news regclass[];
    t record;
    names text;
    written bigint;
BEGIN
    PERFORM bullfrog.require_quiet_session();
    migration := bullfrog.under_way(abort.name);
    FOR t IN SELECT g.* FROM bullfrog.target g JOIN bullfrog.source c ON c.id = g.source WHERE c.migration = migration.id ORDER BY g.id LOOP
        EXECUTE pg_catalog.format('LOCK TABLE ONLY %s, ONLY %s IN ACCESS EXCLUSIVE MODE', t.old_table, t.new_table);
        CONTINUE WHEN discard_writes;
        SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) INTO names
            FROM pg_catalog.pg_attribute a WHERE a.attrelid = t.new_table AND a.attnum > 0;
        EXECUTE pg_catalog.format('WITH new AS MATERIALIZED (SELECT ROW(%1$s)::text AS r FROM ONLY %2$s), old AS MATERIALIZED (SELECT ROW(%1$s)::text AS r FROM %3$s) '
            'SELECT pg_catalog.count(*) FROM ((TABLE new EXCEPT ALL TABLE old) UNION ALL (TABLE old EXCEPT ALL TABLE new)) AS d', names, t.new_table, t.transformed)
            INTO written;
        IF written > 0 THEN
            RAISE EXCEPTION 'rows were written to % since the switch', t.new_table
                USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = pg_catalog.format('%s rows are in one of the two schemas only.', written),
                    HINT = 'The old table does not have these changes. Finish the migration, or give them up: bullfrog.abort(name, discard_writes => true).';
        END IF;
    END LOOP;
    news := ARRAY(SELECT g.new_table FROM bullfrog.target g JOIN bullfrog.source c ON c.id = g.source WHERE c.migration = migration.id);
    PERFORM bullfrog.forget(migration.id);
    FOR t IN SELECT n FROM pg_catalog.unnest(news) n LOOP
        EXECUTE pg_catalog.format('DROP TABLE %s', t.n);
    END LOOP;
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'abort'), ended = pg_catalog.statement_timestamp() WHERE m.id = migration.id;
END
$$;
COMMENT ON FUNCTION bullfrog.abort(text, boolean) IS
    'Brings the old schema back and drops the new tables. Refused if rows were written to them since the switch, unless these may be given up.';

-- Who may do what -------------------------------------------------------------------------------------------------------

COMMENT ON SCHEMA bullfrog IS 'Schema changes at once: bullfrog.plan, migrate, progress, pause, resume, finish, abort.';
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA bullfrog FROM PUBLIC;
GRANT USAGE ON SCHEMA bullfrog TO PUBLIC;
GRANT SELECT ON bullfrog.moved, bullfrog.progress TO PUBLIC;
GRANT EXECUTE ON FUNCTION bullfrog.page(tid), bullfrog.move(int, bigint[]), bullfrog.verify() TO PUBLIC;
