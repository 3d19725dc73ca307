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

CREATE TABLE bullfrog.old (
    old_table regclass PRIMARY KEY,
    migration int NOT NULL REFERENCES bullfrog.migration,
    fingerprint text
);
COMMENT ON TABLE bullfrog.old IS 'Old tables whose rows are on the move. Nobody but bullfrog reads or writes them.';
COMMENT ON COLUMN bullfrog.old.migration IS 'The migration it belongs to.';
COMMENT ON COLUMN bullfrog.old.fingerprint IS 'Its form at the switch, which must not change.';

CREATE TABLE bullfrog.source (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    migration int NOT NULL REFERENCES bullfrog.migration,
    old_table regclass NOT NULL REFERENCES bullfrog.old,
    granule text NOT NULL CHECK (granule IN ('page', 'tuple', 'group')),
    inside boolean NOT NULL,
    lenient boolean NOT NULL,
    pages bigint NOT NULL,
    swept bigint NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX source_of_pages ON bullfrog.source (old_table) WHERE granule <> 'group';
COMMENT ON TABLE bullfrog.source IS 'What is moved granule by granule: the pages of an old table, or the groups of its rows.';
COMMENT ON COLUMN bullfrog.source.migration IS 'The migration it belongs to.';
COMMENT ON COLUMN bullfrog.source.old_table IS 'The old table, of a join the driving one.';
COMMENT ON COLUMN bullfrog.source.granule IS 'What is moved at a time: a page or a tuple of the old table, with all new rows that its rows '
    'are in; or a group, which is one new row.';
COMMENT ON COLUMN bullfrog.source.inside IS 'Whether rows may move inside of the transaction that needs them.';
COMMENT ON COLUMN bullfrog.source.lenient IS 'Whether rows that violate a constraint go to quarantine when they move.';
COMMENT ON COLUMN bullfrog.source.pages IS 'Pages that the table had at the switch.';
COMMENT ON COLUMN bullfrog.source.swept IS 'Of tuples and groups: those with a row on the pages before this one were moved.';

CREATE TABLE bullfrog.target (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source int NOT NULL REFERENCES bullfrog.source,
    granule text NOT NULL,
    inside boolean NOT NULL,
    filled boolean NOT NULL DEFAULT false,
    old_tables oid[] NOT NULL,
    readable boolean NOT NULL,
    new_table regclass NOT NULL UNIQUE,
    views oid[] NOT NULL,
    rows float8,
    pages float8,
    origins smallint[] NOT NULL,
    complete boolean NOT NULL,
    copy text NOT NULL,
    names text,
    fingerprint text
);
COMMENT ON TABLE bullfrog.target IS 'New tables that do not have all of their rows yet. Every query reads them with the rest from the old '
    'tables.';
COMMENT ON COLUMN bullfrog.target.source IS 'By what its rows move.';
COMMENT ON COLUMN bullfrog.target.granule IS 'The same as of the source.';
COMMENT ON COLUMN bullfrog.target.inside IS 'The same as of the source.';
COMMENT ON COLUMN bullfrog.target.filled IS 'It has all rows, in every snapshot of the server: statements no longer look for others.';
COMMENT ON COLUMN bullfrog.target.old_tables IS 'The old tables its rows come from, the driving one first.';
COMMENT ON COLUMN bullfrog.target.readable IS 'Whether clients may read the old tables as of the switch.';
COMMENT ON COLUMN bullfrog.target.new_table IS 'The new table.';
COMMENT ON COLUMN bullfrog.target.views IS 'Views over the old tables: transformed_N has all rows in the form of the new one, and where '
    'their granules lie; '
    'unmoved_N those that were not moved; members_N, of groups, the rows that they are made of; all_N those in quarantine, too.';
COMMENT ON COLUMN bullfrog.target.rows IS 'How many rows it will have, as the planner estimates.';
COMMENT ON COLUMN bullfrog.target.pages IS 'How many pages it will have, as the planner estimates.';
COMMENT ON COLUMN bullfrog.target.origins IS 'Of each column, which column of the first old table it is; 0: more than that.';
COMMENT ON COLUMN bullfrog.target.complete IS 'Whether each row of its one old table gives a row.';
COMMENT ON COLUMN bullfrog.target.copy IS 'The statement that copies rows: by pages those from place $1 to before $2, else those of the '
    'places $1, or the groups that begin there.';
COMMENT ON COLUMN bullfrog.target.names IS 'Not by pages: the query that names the granules of rows from place $1 to before $2.';
COMMENT ON COLUMN bullfrog.target.fingerprint IS 'Its form at the switch, which must not change. NULL: the switch is under way.';

CREATE TABLE bullfrog.moved (
    source int NOT NULL,
    granule bigint NOT NULL,
    moved_by xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (source, granule)
) WITH (autovacuum_analyze_scale_factor = 100, autovacuum_analyze_threshold = 2000000000);
COMMENT ON TABLE bullfrog.moved IS 'Granules whose rows are in the new tables: written by the transaction that moved them.';
COMMENT ON COLUMN bullfrog.moved.source IS 'What it is a granule of.';
COMMENT ON COLUMN bullfrog.moved.granule IS 'The number of the page, or the place of the tuple, or of the group''s first row.';
COMMENT ON COLUMN bullfrog.moved.moved_by IS 'The transaction that moved it.';

CREATE TABLE bullfrog.released (
    migration int NOT NULL REFERENCES bullfrog.migration,
    relation regclass NOT NULL,
    name text NOT NULL,
    refers_to regclass NOT NULL,
    columns smallint[] NOT NULL,
    referred smallint[] NOT NULL,
    valid boolean NOT NULL,
    definition text NOT NULL
);
COMMENT ON TABLE bullfrog.released IS 'Foreign keys from and to old tables, which ended at the switch. abort brings them back.';
COMMENT ON COLUMN bullfrog.released.migration IS 'The migration under way.';
COMMENT ON COLUMN bullfrog.released.relation IS 'The referring table.';
COMMENT ON COLUMN bullfrog.released.name IS 'The name of the foreign key.';
COMMENT ON COLUMN bullfrog.released.refers_to IS 'The table referred to.';
COMMENT ON COLUMN bullfrog.released.columns IS 'The referring columns.';
COMMENT ON COLUMN bullfrog.released.referred IS 'The columns referred to.';
COMMENT ON COLUMN bullfrog.released.valid IS 'Whether it held for all rows.';
COMMENT ON COLUMN bullfrog.released.definition IS 'What creates it again.';

CREATE TABLE bullfrog.quarantined (
    migration int NOT NULL REFERENCES bullfrog.migration,
    target int NOT NULL,
    place bigint NOT NULL,
    new_table text NOT NULL,
    violates text NOT NULL,
    content jsonb NOT NULL,
    PRIMARY KEY (target, place)
);
COMMENT ON TABLE bullfrog.quarantined IS 'Rows that new tables do not have because they violate what these ask for. They stay here when '
    'the migration has ended.';
COMMENT ON COLUMN bullfrog.quarantined.migration IS 'The migration that left them out.';
COMMENT ON COLUMN bullfrog.quarantined.target IS 'The number of the new table in it.';
COMMENT ON COLUMN bullfrog.quarantined.place IS 'Where the old row, or the first row of a group, lay.';
COMMENT ON COLUMN bullfrog.quarantined.new_table IS 'The new table.';
COMMENT ON COLUMN bullfrog.quarantined.violates IS 'The constraint.';
COMMENT ON COLUMN bullfrog.quarantined.content IS 'The row, in the form of the new table.';

-- What the library does -------------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.page(tid) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'page_wrapper';
COMMENT ON FUNCTION bullfrog.page(tid) IS 'The page on which a row lies.';

CREATE FUNCTION bullfrog.place(tid) RETURNS bigint
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'place_wrapper';
COMMENT ON FUNCTION bullfrog.place(tid) IS 'Where a row lies, as a number.';

CREATE FUNCTION bullfrog.parse(definition text)
    RETURNS TABLE (action text, statement text, new_table text, old_tables oid[], grouped boolean, single boolean, complete boolean,
        query text,
        members text, same_group text, columns text[], origins smallint[], required boolean[], keys smallint[], evaluated text[],
        lookup_tables oid[], lookup_columns smallint[])
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'parse_wrapper';
COMMENT ON FUNCTION bullfrog.parse(text) IS
    'The statements of a migration: what each does to which new table; of those that create one, the old tables, the driving one first; '
        'whether '
    'its rows are groups; whether a row of the driving table gives one row at most, and whether each gives one; the query with the places '
        'of granules (and keys of groups); '
    'of groups, their member rows, and when two rows are of the same; which columns are plain columns of the driving table (0: more), and '
    'which come from NOT NULL ones; which are keys of groups; what must be evaluated before the switch; by which columns moves look up '
        'rows. '
    'Of action release (foreign keys of other tables end): their names as columns.';

CREATE FUNCTION bullfrog.next_phase(phase text, event text) RETURNS text
    LANGUAGE c IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'next_phase_wrapper';
COMMENT ON FUNCTION bullfrog.next_phase(text, text)
    IS 'The phase of a migration after pause, resume, finish or abort; an error if it cannot be.';

CREATE FUNCTION bullfrog.announce(changed regclass) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'announce_wrapper';
COMMENT ON FUNCTION bullfrog.announce(regclass) IS 'Tells every session that plans over this table are no longer valid.';

CREATE FUNCTION bullfrog.move(source int, granules bigint[]) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'move_granules_wrapper';
COMMENT ON FUNCTION bullfrog.move(int, bigint[]) IS
    'Has granules moved, by their names, and waits until they are, in transactions of their own.';

CREATE FUNCTION bullfrog.sweep(source int, pages bigint[]) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'sweep_wrapper';
COMMENT ON FUNCTION bullfrog.sweep(int, bigint[]) IS
    'Has what has a row on pages of an old table moved, and waits until it is, in transactions of their own.';

CREATE FUNCTION bullfrog.meter(source int)
    RETURNS TABLE (rows_moved bigint, rows_per_second float8, pages_per_second float8, touches bigint, last_touch float8,
        median_touch float8, p99_touch float8)
    LANGUAGE c STRICT ROWS 1 AS 'MODULE_PATHNAME', 'meter_wrapper';
COMMENT ON FUNCTION bullfrog.meter(int) IS
    'What was measured of moves since the server started: rows, rows and pages per second of the last ten seconds, statements that waited '
        'for rows, and how many milliseconds they did (quantiles are at most a quarter too high).';

CREATE FUNCTION bullfrog.evaluate(relation oid, query text, plain boolean DEFAULT false) RETURNS SETOF jsonb
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'evaluate_wrapper';
COMMENT ON FUNCTION bullfrog.evaluate(oid, text, boolean) IS
    'The rows that a query gives, one value each, run with the rights of a table''s owner in a security-restricted operation. Plain: '
        'of new tables it sees only the rows that were moved.';

CREATE FUNCTION bullfrog.change(statement text) RETURNS bigint
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'change_wrapper';
COMMENT ON FUNCTION bullfrog.change(text) IS
    'Runs a statement for which new tables have only the rows that were moved, and old ones are open. Tells how many rows it changed.';

CREATE FUNCTION bullfrog.is_mutable(expression text) RETURNS boolean
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'is_mutable_wrapper';
COMMENT ON FUNCTION bullfrog.is_mutable(text) IS 'Whether an expression, as the catalogs keep it, may have another value at another time.';

CREATE FUNCTION bullfrog.reach(point text) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'reach_point_wrapper';
COMMENT ON FUNCTION bullfrog.reach(text) IS 'Passes a named point, at which builds for tests can be made to stop.';

CREATE FUNCTION bullfrog.start_mover() RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'start_mover_wrapper';
COMMENT ON FUNCTION bullfrog.start_mover() IS 'Starts the process that moves rows of this database, unless it runs.';

-- Looking before the switch ----------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.replication(relation oid) RETURNS SETOF text
    LANGUAGE sql STABLE AS $$
    SELECT pg_catalog.format('publication %I has it', p.pubname) FROM pg_catalog.pg_publication p
        WHERE p.puballtables OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = relation)
            OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace n JOIN pg_catalog.pg_class c ON c.relnamespace = n.pnnspid
                WHERE n.pnpubid = p.oid AND c.oid = relation)
    UNION ALL SELECT 'a subscription writes to it' FROM pg_catalog.pg_subscription_rel s WHERE s.srrelid = relation
$$;
COMMENT ON FUNCTION bullfrog.replication(oid) IS 'How a table takes part in logical replication. A subscriber copies the rows that are not '
    'moved yet, and would get them again when they move; what a subscription writes does not look for them.';

CREATE FUNCTION bullfrog.obstacles(old_table oid) RETURNS SETOF text
    LANGUAGE sql STABLE AS $$
    SELECT 'it is not an ordinary, permanent table' FROM pg_catalog.pg_class c
        WHERE c.oid = old_table AND (c.relkind <> 'r' OR c.relpersistence <> 'p' OR c.relispartition)
    UNION ALL SELECT 'it is a table of the system' WHERE old_table < 16384
    UNION ALL SELECT 'its rows do not lie in a heap' FROM pg_catalog.pg_class c JOIN pg_catalog.pg_am a ON a.oid = c.relam
        WHERE c.oid = old_table AND a.amname <> 'heap'
    UNION ALL SELECT 'it has row-level security' FROM pg_catalog.pg_class c WHERE c.oid = old_table AND c.relrowsecurity
    UNION ALL SELECT pg_catalog.format('it inherits from %s', i.inhparent::regclass) FROM pg_catalog.pg_inherits i
        WHERE i.inhrelid = old_table
    UNION ALL SELECT pg_catalog.format('%s inherits from it', i.inhrelid::regclass) FROM pg_catalog.pg_inherits i
        WHERE i.inhparent = old_table
    UNION ALL SELECT pg_catalog.format('it has the trigger %I', t.tgname) FROM pg_catalog.pg_trigger t WHERE t.tgrelid = old_table
        AND NOT t.tgisinternal
    UNION ALL SELECT pg_catalog.format('it has the rule %I', r.rulename) FROM pg_catalog.pg_rewrite r WHERE r.ev_class = old_table
    UNION ALL SELECT DISTINCT pg_catalog.format('%s reads it', r.ev_class::regclass) FROM pg_catalog.pg_depend d
        JOIN pg_catalog.pg_rewrite r ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
        WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = old_table AND r.ev_class <> old_table
    UNION ALL SELECT DISTINCT pg_catalog.format('function %s reads it', d.objid::regprocedure) FROM pg_catalog.pg_depend d
        WHERE d.classid = 'pg_catalog.pg_proc'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = old_table
    UNION ALL SELECT r FROM bullfrog.replication(old_table) r
    UNION ALL SELECT pg_catalog.format('the migration %I is moving it', m.name)
        FROM bullfrog.old o JOIN bullfrog.migration m ON m.id = o.migration WHERE o.old_table = obstacles.old_table
    UNION ALL SELECT pg_catalog.format('the migration %I is filling it', m.name)
        FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source JOIN bullfrog.migration m ON m.id = s.migration
        WHERE t.new_table = obstacles.old_table
$$;
COMMENT ON FUNCTION bullfrog.obstacles(oid) IS 'What of a table forbids to migrate it. No rows: nothing.';

CREATE FUNCTION bullfrog.slow_lookups(tables oid[], columns smallint[]) RETURNS SETOF text
    LANGUAGE sql STABLE AS $$
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

CREATE FUNCTION bullfrog.referring(olds oid[]) RETURNS SETOF pg_catalog.pg_constraint
    LANGUAGE sql STABLE AS $$
    SELECT k.* FROM pg_catalog.pg_constraint k WHERE k.contype = 'f' AND k.confrelid = ANY (olds) AND k.conrelid <> ALL (olds)
$$;
COMMENT ON FUNCTION bullfrog.referring(oid[]) IS 'Foreign keys of other tables that refer to these.';

CREATE FUNCTION bullfrog.plan(name text, definition text)
    RETURNS TABLE (new_table text, old_tables regclass[], kind text, note text)
    LANGUAGE sql AS $$
    WITH parsed AS MATERIALIZED (SELECT * FROM bullfrog.parse(definition)),
    item AS (SELECT * FROM parsed p WHERE p.action = 'create'),
    olds AS (SELECT pg_catalog.array_agg(o) AS olds FROM item i CROSS JOIN pg_catalog.unnest(i.old_tables) o),
    obstacle AS (
        SELECT o.old, b.what FROM olds CROSS JOIN pg_catalog.unnest(olds.olds) AS o (old) CROSS JOIN bullfrog.obstacles(o.old) AS b (what)
        UNION SELECT k.confrelid, pg_catalog.format('foreign key %I of %s refers to it (ALTER TABLE %2$s DROP CONSTRAINT %1$I in the '
            'migration)', k.conname, k.conrelid::regclass)
            FROM olds CROSS JOIN bullfrog.referring(olds.olds) k
            WHERE NOT EXISTS (SELECT FROM parsed p WHERE p.action = 'release' AND pg_catalog.to_regclass(p.new_table) = k.conrelid
                AND k.conname = ANY (p.columns)))
    SELECT i.new_table, i.old_tables::regclass[],
        CASE WHEN i.grouped THEN 'n:1'
            WHEN pg_catalog.cardinality(i.lookup_tables) > 0 AND i.single THEN 'foreign-key join'
            WHEN NOT i.single THEN 'n:n'
            WHEN pg_catalog.count(*) FILTER (WHERE NOT i.grouped) OVER (PARTITION BY i.old_tables[1]) > 1 THEN '1:n'
            ELSE '1:1' END,
        pg_catalog.concat_ws('; ',
            (SELECT 'refused: ' || pg_catalog.string_agg(CASE WHEN pg_catalog.cardinality(i.old_tables) > 1 THEN o.old::regclass || ': '
                ELSE '' END || o.what, '; ')
                FROM obstacle o WHERE o.old = ANY (i.old_tables)),
            CASE WHEN i.grouped THEN pg_catalog.format('moves by groups of %s', i.old_tables[1]::regclass)
                WHEN pg_catalog.cardinality(i.old_tables) > 1 THEN pg_catalog.format('moves by pages of %s', i.old_tables[1]::regclass) END,
            'at the switch all rows are read once, to evaluate ' || NULLIF(pg_catalog.array_to_string(i.evaluated, ', '), ''),
            (SELECT pg_catalog.string_agg(pg_catalog.format('the foreign key %I of %s ends: declare it for the new table', k.conname,
                k.conrelid::regclass), '; ')
                FROM pg_catalog.pg_constraint k WHERE k.contype = 'f' AND k.conrelid = ANY (i.old_tables)),
            (SELECT pg_catalog.string_agg(l, '; ') FROM bullfrog.slow_lookups(i.lookup_tables, i.lookup_columns) l))
    FROM item i
$$;
COMMENT ON FUNCTION bullfrog.plan(text, text) IS
    'What bullfrog.migrate would do: each new table, the old tables its rows come from (the first one drives), how they relate, and what '
        'stands in the way or takes time.';

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
    'Checks that the session may switch schemas, and limits how long it waits for a lock (5 s unless lock_timeout says otherwise) while '
        'others queue behind it.';

CREATE FUNCTION bullfrog.lock_tables(relations oid[]) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    tables text := (SELECT pg_catalog.string_agg('ONLY ' || r::regclass, ', ' ORDER BY n)
        FROM pg_catalog.unnest(relations) WITH ORDINALITY AS t (r, n));
    given text := pg_catalog.current_setting('lock_timeout');
    began timestamptz := pg_catalog.clock_timestamp();
BEGIN
    -- Whoever has one of the tables and waits for another one has time to get it between two tries, and nobody queues for long.
    LOOP
        BEGIN
            PERFORM pg_catalog.set_config('lock_timeout', '100ms', true);
            EXECUTE 'LOCK TABLE ' || tables || ' IN ACCESS EXCLUSIVE MODE';
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            IF pg_catalog.clock_timestamp() - began > given::interval THEN
                RAISE EXCEPTION 'could not lock % within %', pg_catalog.replace(tables, 'ONLY ', ''), given
                    USING ERRCODE = 'lock_not_available',
                        HINT = 'Nothing was changed. Try again when transactions that use them have ended, or SET lock_timeout.';
            END IF;
        END;
        PERFORM pg_catalog.pg_sleep(0.05 + 0.1 * pg_catalog.random());
    END LOOP;
    PERFORM pg_catalog.set_config('lock_timeout', given, true);
END
$$;
COMMENT ON FUNCTION bullfrog.lock_tables(oid[])
    IS 'Locks tables exclusively, all or none: tries for at most lock_timeout, a tenth of a second at a time.';

CREATE FUNCTION bullfrog.tables_of(migration_id int) RETURNS oid[]
    LANGUAGE sql STABLE AS $$
    -- In the order in which statements lock them.
    SELECT ARRAY(SELECT t.new_table::oid FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source WHERE s.migration = migration_id
            ORDER BY t.id)
        || ARRAY(SELECT o.old_table::oid FROM bullfrog.old o WHERE o.migration = migration_id ORDER BY o.old_table)
$$;
COMMENT ON FUNCTION bullfrog.tables_of(int) IS 'The new and old tables of a migration under way.';

CREATE FUNCTION bullfrog.fingerprint(relation oid) RETURNS text
    LANGUAGE sql STABLE AS $$
    SELECT pg_catalog.md5(pg_catalog.concat_ws(E'\n',
        (SELECT pg_catalog.concat_ws(',', c.relname, c.relnamespace, c.relfilenode, c.relkind, c.relpersistence, c.relrowsecurity,
            c.relowner)
            FROM pg_catalog.pg_class c WHERE c.oid = relation),
        (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(',', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated),
            ';' ORDER BY a.attnum)
            FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0),
        (SELECT pg_catalog.string_agg(k.oid::text, ',' ORDER BY k.oid) FROM pg_catalog.pg_constraint k
            WHERE relation IN (k.conrelid, k.confrelid)),
        (SELECT pg_catalog.string_agg(t.oid::text || t.tgenabled::text, ',' ORDER BY t.oid) FROM pg_catalog.pg_trigger t
            WHERE t.tgrelid = relation),
        (SELECT pg_catalog.string_agg(r.oid::text, ',' ORDER BY r.oid) FROM pg_catalog.pg_rewrite r WHERE r.ev_class = relation),
        (SELECT pg_catalog.string_agg(p.oid::text, ',' ORDER BY p.oid) FROM pg_catalog.pg_policy p WHERE p.polrelid = relation),
        (SELECT pg_catalog.string_agg(x.indexrelid::text, ',' ORDER BY x.indexrelid) FROM pg_catalog.pg_index x WHERE x.indrelid = relation
            AND x.indisunique),
        (SELECT pg_catalog.string_agg(r, ',' ORDER BY r) FROM bullfrog.replication(relation) r),
        (SELECT pg_catalog.string_agg(i.inhrelid::text || ',' || i.inhparent::text, ';' ORDER BY i.inhrelid, i.inhparent)
            FROM pg_catalog.pg_inherits i WHERE relation IN (i.inhrelid, i.inhparent)),
        -- What its rows are made by.
        (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(',', p.oid, p.provolatile, p.prolang, p.probin, p.prosrc, p.prosqlbody),
            ';' ORDER BY p.oid)
            FROM pg_catalog.pg_proc p WHERE p.oid IN (
                SELECT d.refobjid FROM bullfrog.target t JOIN pg_catalog.pg_rewrite r ON r.ev_class = ANY (t.views)
                JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
                WHERE t.new_table = relation AND d.refclassid = 'pg_catalog.pg_proc'::regclass))))
$$;
COMMENT ON FUNCTION bullfrog.fingerprint(oid) IS 'The form of a table as far as a migration relies on it.';

CREATE FUNCTION bullfrog.verify() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changed record;
BEGIN
    SELECT p.relation, m.name INTO changed
        FROM (SELECT o.old_table AS relation, o.fingerprint, o.migration FROM bullfrog.old o
              UNION ALL SELECT t.new_table, t.fingerprint, s.migration FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source) p
        JOIN bullfrog.migration m ON m.id = p.migration
        WHERE p.fingerprint <> bullfrog.fingerprint(p.relation) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'this would change %, which the migration % is moving', changed.relation, quote_ident(changed.name)
            USING ERRCODE = 'object_in_use', HINT = format('SELECT bullfrog.finish(%L) or bullfrog.abort(%1$L) first.', changed.name);
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.verify() IS 'Raises an error if a table of a migration under way has changed its form. Runs after each '
    'statement that may do it.';

CREATE FUNCTION bullfrog.put_aside(target bullfrog.target, violates text, query text) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_rows bigint;
BEGIN
    INSERT INTO bullfrog.quarantined (migration, target, place, new_table, violates, content)
        SELECT s.migration, target.id, bullfrog.place((e ->> 'bullfrog_tid')::tid), target.new_table::text, put_aside.violates,
            (SELECT jsonb_object_agg(key, value) FROM jsonb_each(e) WHERE key NOT LIKE 'bullfrog\_%')
        FROM bullfrog.source s CROSS JOIN bullfrog.evaluate(target.new_table, query) e WHERE s.id = target.source;
    GET DIAGNOSTICS found_rows = ROW_COUNT;
    RETURN found_rows;
END
$$;
COMMENT ON FUNCTION bullfrog.put_aside(bullfrog.target, text, text) IS 'Puts the rows that a query gives into quarantine. Tells how many.';

CREATE FUNCTION bullfrog.put_aside(target int, place tid, violates text) RETURNS void
    LANGUAGE sql AS $$
    SELECT bullfrog.put_aside(t, violates, pg_catalog.format('SELECT to_jsonb(t) FROM bullfrog.transformed_%s t WHERE bullfrog_tid = %L',
        t.id, place))
    FROM bullfrog.target t WHERE t.id = target
$$;
COMMENT ON FUNCTION bullfrog.put_aside(int, tid, text) IS 'Puts the row of a place into quarantine.';

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
    IF found_rows > 0 THEN
        RAISE EXCEPTION 'rows would violate %', what
            USING ERRCODE = 'integrity_constraint_violation', DETAIL = format('%s rows do not satisfy it.', found_rows),
                TABLE = target.new_table::text,
                HINT = 'Nothing was changed. Correct the rows or the definition, then migrate again; or leave them out with checks => '
                    '''quarantine''.';
    END IF;
    RETURN 0;
END
$$;
COMMENT ON FUNCTION bullfrog.judge(bullfrog.target, text, text, text) IS
    'What becomes of rows that violate a constraint: the migration is refused, or they are left out. Tells how many were.';

CREATE FUNCTION bullfrog.check_rows(target bullfrog.target, checks text, required boolean[], keys smallint[], evaluated text[],
    single boolean)
    RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relation regclass := target.new_table;
    transformed text := format('bullfrog.transformed_%s', target.id);
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
    -- Expressions are immutable and the old tables no longer change: what can be evaluated now can be evaluated always.
    IF cardinality(evaluated) > 0 THEN
        PERFORM bullfrog.evaluate(relation, format('SELECT to_jsonb(%s) FROM %s',
            (SELECT string_agg(format('count(%I)', a.attname), ' + ') FROM pg_attribute a WHERE a.attrelid = relation
                AND a.attnum > 0), transformed));
    END IF;
    FOR item IN SELECT COALESCE(pg_get_expr(x.indexprs, relation), '') AS keys,
        COALESCE('WHERE ' || pg_get_expr(x.indpred, relation), '') AS condition
        FROM pg_index x WHERE x.indrelid = relation AND (x.indexprs IS NOT NULL OR x.indpred IS NOT NULL)
    LOOP
        PERFORM bullfrog.evaluate(relation, format('SELECT to_jsonb(count(ROW(%s))) FROM %s %s', item.keys, transformed, item.condition));
    END LOOP;
    FOR item IN SELECT a.attname FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND a.attnotnull
        AND NOT required[a.attnum] LOOP
        PERFORM bullfrog.judge(target, checks, format('NOT NULL of %I', item.attname),
            format('SELECT to_jsonb(t) FROM %s t WHERE %I IS NULL', transformed, item.attname));
    END LOOP;
    FOR item IN SELECT k.conname, pg_get_expr(k.conbin, k.conrelid) AS condition FROM pg_constraint k WHERE k.conrelid = relation
        AND k.contype = 'c' LOOP
        PERFORM bullfrog.judge(target, checks, format('the check %I', item.conname),
            format('SELECT to_jsonb(t) FROM %s t WHERE NOT (%s)', transformed, item.condition));
    END LOOP;
    FOR item IN
        SELECT x.indexrelid::regclass AS index, string_agg(quote_ident(a.attname), ', ') AS keys, array_agg(a.attnum) AS columns,
            string_agg(format('%I IS NOT NULL', a.attname), ' AND ') AS present, array_agg(target.origins[a.attnum]) AS origins
        FROM pg_index x JOIN pg_attribute a ON a.attrelid = relation AND a.attnum = ANY ((x.indkey::smallint[])[0:x.indnkeyatts - 1])
        WHERE x.indrelid = relation AND x.indisunique GROUP BY x.indexrelid
    LOOP
        -- A group is there once, and what the old table kept unique is unique, unless a join takes its rows several times.
        CONTINUE WHEN CASE WHEN target.granule = 'group' THEN keys <@ item.columns
            ELSE single AND EXISTS (
                SELECT FROM pg_index o WHERE o.indrelid = target.old_tables[1] AND o.indisunique AND o.indisvalid AND o.indimmediate
                    AND o.indpred IS NULL AND (o.indkey::smallint[])[0:o.indnkeyatts - 1] <@ item.origins AND NOT 0 = ANY (o.indkey)) END;
        PERFORM bullfrog.judge(target, checks, format('the unique index %s', item.index), format(
            'SELECT to_jsonb(t) FROM %1$s t JOIN (SELECT bullfrog_tid, row_number() OVER (PARTITION BY %2$s ORDER BY bullfrog_tid) AS n '
                'FROM %1$s WHERE %3$s) AS same '
            'USING (bullfrog_tid) WHERE same.n > 1', transformed, item.keys, item.present));
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.check_rows(bullfrog.target, text, boolean[], smallint[], text[], boolean) IS
    'Checks that every row of the old tables can be a row of the new one. Reads the old tables only for what their own constraints do not '
        'prove.';

CREATE FUNCTION bullfrog.is_proven(migration_id int, key pg_catalog.pg_constraint, child bullfrog.target, parent bullfrog.target)
    RETURNS boolean
    LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM bullfrog.released r
        WHERE r.migration = migration_id AND r.valid
            AND r.relation = COALESCE(child.old_tables[1], key.conrelid) AND r.refers_to = COALESCE(parent.old_tables[1], key.confrelid)
            AND r.columns = CASE WHEN child.id IS NULL THEN key.conkey
                ELSE ARRAY(SELECT child.origins[c.a] FROM pg_catalog.unnest(key.conkey) WITH ORDINALITY AS c (a, n) ORDER BY c.n) END
            AND r.referred = CASE WHEN parent.id IS NULL THEN key.confkey
                ELSE ARRAY(SELECT parent.origins[c.a] FROM pg_catalog.unnest(key.confkey) WITH ORDINALITY AS c (a, n) ORDER BY c.n) END)
        AND (parent.id IS NULL OR parent.complete AND NOT EXISTS (SELECT FROM bullfrog.quarantined q WHERE q.target = parent.id))
$$;
COMMENT ON FUNCTION bullfrog.is_proven(int, pg_catalog.pg_constraint, bullfrog.target, bullfrog.target) IS
    'Whether a foreign key holds because the old tables had it. No child or parent: that table is not one of the migration.';

CREATE FUNCTION bullfrog.check_foreign_keys(migration_id int, checks text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    news oid[] := ARRAY(SELECT t.new_table::oid FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source
        WHERE s.migration = migration_id);
    key pg_constraint;
    child bullfrog.target;
    parent bullfrog.target;
    columns record;
    violating text;
    found_rows bigint;
    -- The server does not check foreign keys of rows that move.
    key_checks text := CASE checks WHEN 'warn' THEN 'before' ELSE checks END;
BEGIN
    -- What is left out for one key may be referred to by another: until nothing is left out any more.
    LOOP
        found_rows := 0;
        FOR key IN SELECT * FROM pg_constraint k WHERE k.contype = 'f'
            AND (k.conrelid = ANY (news) OR k.confrelid = ANY (news)) ORDER BY k.oid LOOP
            IF EXISTS (SELECT FROM bullfrog.old o WHERE o.old_table = key.confrelid) THEN
                RAISE EXCEPTION 'foreign key % of % refers to %, an old table', quote_ident(key.conname), key.conrelid::regclass,
                    key.confrelid::regclass
                    USING ERRCODE = 'feature_not_supported', HINT = 'Let it refer to a new table.';
            END IF;
            SELECT * INTO child FROM bullfrog.target t WHERE t.new_table = key.conrelid AND t.fingerprint IS NULL;
            SELECT * INTO parent FROM bullfrog.target t WHERE t.new_table = key.confrelid AND t.fingerprint IS NULL;
            CONTINUE WHEN bullfrog.is_proven(migration_id, key, child, parent);
            SELECT string_agg(format('c.%I IS NOT NULL', f.attname), ' AND ') AS present,
                string_agg(format('p.%I OPERATOR(%I.%s) c.%I', p.attname, n.nspname, o.oprname, f.attname), ' AND ') AS equal
            INTO columns
            FROM unnest(key.conkey, key.confkey, key.conpfeqop) AS part (child, parent, operator)
            JOIN pg_attribute f ON f.attrelid = key.conrelid AND f.attnum = part.child
            JOIN pg_attribute p ON p.attrelid = key.confrelid AND p.attnum = part.parent
            JOIN pg_operator o ON o.oid = part.operator
            JOIN pg_namespace n ON n.oid = o.oprnamespace;
            violating := format('SELECT to_jsonb(c) FROM %s c WHERE %s AND NOT EXISTS (SELECT FROM %s p WHERE %s)',
                COALESCE('bullfrog.transformed_' || child.id, format('ONLY %s', key.conrelid::regclass)), columns.present,
                COALESCE('bullfrog.transformed_' || parent.id, format('ONLY %s', key.confrelid::regclass)), columns.equal);
            -- A row of a table that is not on the move cannot be left out.
            found_rows := found_rows + CASE WHEN child.id IS NULL
                THEN bullfrog.judge(parent, 'before', format('the foreign key %I', key.conname), violating)
                ELSE bullfrog.judge(child, key_checks, format('the foreign key %I', key.conname), violating) END;
        END LOOP;
        EXIT WHEN found_rows = 0;
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.check_foreign_keys(int, text) IS
    'Checks that foreign keys from and to new tables hold for all rows of the old tables. Reads only for what the foreign keys of these '
        'do not prove.';

CREATE FUNCTION bullfrog.guard_keys(target bullfrog.target) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relation regclass := target.new_table;
    moves text;
    changed text;
BEGIN
    SELECT string_agg(format(E'    PERFORM bullfrog.move(%s, ARRAY(SELECT DISTINCT bullfrog.%s(u.bullfrog_tid) FROM bullfrog.unmoved_%s u '
        'WHERE %s));\n',
            target.source, bullfrog.naming(target.granule), target.id, k.same), ''),
        string_agg(k.changed, ' OR ')
    INTO moves, changed
    FROM (
        SELECT string_agg(format('u.%1$I OPERATOR(%2$I.%3$s) NEW.%1$I', a.attname, n.nspname, o.oprname), ' AND ') AS same,
            string_agg(format('OLD.%1$I IS DISTINCT FROM NEW.%1$I', a.attname), ' OR ') AS changed
        FROM pg_index x
        CROSS JOIN LATERAL unnest(x.indkey::smallint[], x.indclass::oid[]) AS key (attnum, opclass)
        JOIN pg_attribute a ON a.attrelid = relation AND a.attnum = key.attnum
        JOIN pg_opclass c ON c.oid = key.opclass
        JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
            AND m.amopstrategy = 3
        JOIN pg_operator o ON o.oid = m.amopopr
        JOIN pg_namespace n ON n.oid = o.oprnamespace
        WHERE x.indrelid = relation AND x.indisunique
        GROUP BY x.indexrelid) k;
    IF moves IS NOT NULL THEN
        EXECUTE format(
            'CREATE FUNCTION bullfrog.guard_%s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp '
                'AS %L',
            target.id, E'BEGIN\n' || moves || E'    RETURN NEW;\nEND');
        EXECUTE format('COMMENT ON FUNCTION bullfrog.guard_%s() IS %L', target.id,
            format('Moves old rows whose key a new row of %s may have.', relation));
        EXECUTE format('CREATE TRIGGER bullfrog_insert BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION bullfrog.guard_%s()', relation,
            target.id);
        EXECUTE format('CREATE TRIGGER bullfrog_update BEFORE UPDATE ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION bullfrog.guard_%s()',
            relation, changed, target.id);
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
    FOREACH view IN ARRAY target.views LOOP
        EXECUTE format('ALTER VIEW %s OWNER TO %I', view, owner);
    END LOOP;
    IF to_regprocedure(format('bullfrog.guard_%s()', target.id)) IS NOT NULL THEN
        EXECUTE format('ALTER FUNCTION bullfrog.guard_%s() OWNER TO %I', target.id, owner);
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.own(bullfrog.target) IS
    'Gives a new table and what belongs to it to the owner of the old tables: expressions are evaluated with that owner''s rights.';

CREATE FUNCTION bullfrog.advance_identities(target bullfrog.target) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    item record;
BEGIN
    FOR item IN
        SELECT a.attname, s.seqrelid, CASE WHEN s.seqincrement > 0 THEN 'max' ELSE 'min' END AS extreme
        FROM pg_attribute a
        JOIN pg_sequence s ON s.seqrelid = pg_get_serial_sequence(target.new_table::text, a.attname)::regclass
        WHERE a.attrelid = target.new_table AND a.attidentity <> ''
    LOOP
        PERFORM setval(item.seqrelid::regclass, e::bigint)
            FROM bullfrog.evaluate(target.new_table, format('SELECT to_jsonb(%s(%I)) FROM bullfrog.transformed_%s', item.extreme,
                item.attname, target.id)) e
            WHERE e <> 'null';
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.advance_identities(bullfrog.target)
    IS 'Lets identity columns of a new table go on behind the values that its rows have.';

CREATE FUNCTION bullfrog.seed_estimates(target bullfrog.target) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    plan json;
    estimated float8;
    facts text;
BEGIN
    EXECUTE format('EXPLAIN (FORMAT JSON) SELECT * FROM bullfrog.transformed_%s', target.id) INTO plan;
    plan := plan -> 0 -> 'Plan';
    estimated := (plan ->> 'Plan Rows')::float8;
    -- A row has a header of 24 bytes and a pointer of 4.
    UPDATE bullfrog.target t
        SET rows = estimated, pages = ceil(estimated * ((plan ->> 'Plan Width')::float8 + 28) / current_setting('block_size')::float8)
        WHERE t.id = target.id;
    -- Columns that are those of the driving table have its statistics until the new table is analysed.
    SELECT string_agg(quote_ident(a.attname), ', ') INTO facts FROM pg_attribute a WHERE a.attrelid = 'pg_statistic'::regclass
        AND a.attnum > 0 AND a.attname NOT IN ('starelid', 'staattnum');
    EXECUTE format('INSERT INTO pg_statistic (starelid, staattnum, %1$s) SELECT $1, o.number, %1$s FROM pg_statistic s '
        'JOIN unnest($2) WITH ORDINALITY AS o (origin, number) ON s.staattnum = o.origin WHERE s.starelid = $3 AND NOT s.stainherit', facts)
        USING target.new_table::oid, CASE WHEN target.granule = 'group' THEN '{}' ELSE target.origins END, target.old_tables[1];
END
$$;
COMMENT ON FUNCTION bullfrog.seed_estimates(bullfrog.target) IS
    'Lets the planner know a new table before it has its rows: how large it will be, and what its columns have.';

CREATE FUNCTION bullfrog.seed_truth() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    none text := (SELECT string_agg(quote_ident(a.attname), ', ') FROM pg_attribute a WHERE a.attrelid = 'pg_statistic'::regclass
        AND a.attname ~ '^sta(kind|op|coll)[0-9]$');
BEGIN
    -- What is there is of the past: the source that begins would seem to have no rows, and be read as a whole for each of them.
    DELETE FROM pg_statistic s WHERE s.starelid = 'bullfrog.moved'::regclass;
    EXECUTE format('INSERT INTO pg_statistic (starelid, staattnum, stainherit, stanullfrac, stawidth, stadistinct, %s) '
        'SELECT a.attrelid, a.attnum, false, 0, a.attlen, CASE a.attname WHEN ''source'' THEN 1 ELSE -1 END, %s FROM pg_attribute a '
        'WHERE a.attrelid = $1 AND a.attname IN (''source'', ''granule'')', none, regexp_replace(none, '[a-z0-9]+', '0', 'g'))
        USING 'bullfrog.moved'::regclass;
END
$$;
COMMENT ON FUNCTION bullfrog.seed_truth() IS 'Lets the planner know that granules of the source that begins are found in bullfrog.moved by '
    'their names.';

CREATE FUNCTION bullfrog.keep_sequences(olds oid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    sequence regclass;
BEGIN
    FOR sequence IN
        SELECT DISTINCT o.objid::regclass FROM pg_depend o
        JOIN pg_depend u ON u.classid = 'pg_attrdef'::regclass AND u.refclassid = 'pg_class'::regclass AND u.refobjid = o.objid
        JOIN pg_attrdef d ON d.oid = u.objid
        WHERE o.classid = 'pg_class'::regclass AND o.refclassid = 'pg_class'::regclass AND o.deptype = 'a' AND o.refobjid = ANY (olds)
            AND d.adrelid <> ALL (olds)
            AND EXISTS (SELECT FROM pg_class c WHERE c.oid = o.objid AND c.relkind = 'S')
    LOOP
        EXECUTE format('ALTER SEQUENCE %s OWNED BY NONE', sequence);
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.keep_sequences(oid[]) IS 'Keeps sequences that belong to columns of old tables, as far as other tables take '
    'their defaults from them.';

CREATE FUNCTION bullfrog.close(migration_id int, olds oid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old regclass;
    hindrance text;
BEGIN
    PERFORM bullfrog.lock_tables(olds);
    FOREACH old IN ARRAY olds LOOP
        SELECT string_agg(o, '; ') INTO hindrance FROM bullfrog.obstacles(old) o;
        IF hindrance IS NOT NULL THEN
            RAISE EXCEPTION 'cannot migrate %: %', old, hindrance
                USING ERRCODE = 'feature_not_supported', HINT = 'Drop or change what stands in the way; bullfrog.plan lists it.';
        END IF;
        INSERT INTO bullfrog.old (old_table, migration) VALUES (old, migration_id);
    END LOOP;
    INSERT INTO bullfrog.released (migration, relation, name, refers_to, columns, referred, valid, definition)
        SELECT migration_id, k.conrelid, k.conname, k.confrelid, k.conkey, k.confkey, k.convalidated, pg_get_constraintdef(k.oid)
        FROM pg_constraint k WHERE k.contype = 'f' AND (k.conrelid = ANY (olds) OR k.confrelid = ANY (olds)) ORDER BY k.oid;
END
$$;
COMMENT ON FUNCTION bullfrog.close(int, oid[]) IS
    'Locks old tables, refuses what cannot be migrated, makes them part of a migration, and remembers their foreign keys.';

CREATE FUNCTION bullfrog.release(olds oid[], statements text[]) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    statement text;
    key record;
    others bigint;
BEGIN
    SELECT pg_catalog.count(*) INTO others FROM pg_catalog.pg_constraint k;
    SELECT others - pg_catalog.count(*) INTO others FROM bullfrog.referring(olds);
    FOREACH statement IN ARRAY statements LOOP
        EXECUTE statement;
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

CREATE FUNCTION bullfrog.naming(granule text) RETURNS text
    LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE granule WHEN 'page' THEN 'page' ELSE 'place' END
$$;
COMMENT ON FUNCTION bullfrog.naming(text) IS 'The function that names the granule of a row by its place.';

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

CREATE FUNCTION bullfrog.prepare(target_id int, source bullfrog.source, item record, checks text, compatible boolean) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    names text := (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(c), ', ') FROM pg_catalog.unnest(item.columns) c);
    places text := 'bullfrog_tid' || (SELECT COALESCE(pg_catalog.string_agg(', bullfrog_key_' || k, ''), '')
        FROM pg_catalog.generate_series(1, pg_catalog.cardinality(item.keys)) k);
    views text[] := ARRAY['transformed', 'unmoved'];
    moved text := pg_catalog.format('EXISTS (SELECT FROM bullfrog.moved m WHERE m.source = %s AND m.granule = bullfrog.%s(t.bullfrog_tid))',
        source.id, bullfrog.naming(source.granule));
    in_range CONSTANT text := 'bullfrog_tid >= $1 AND bullfrog_tid < $2';
    chosen CONSTANT text := 'bullfrog_tid = ANY ($1)';
    granules text;
    copy text;
BEGIN
    IF (SELECT pg_catalog.count(DISTINCT c.relowner) FROM pg_catalog.pg_class c WHERE c.oid = ANY (item.old_tables)) > 1 THEN
        RAISE EXCEPTION 'the tables of a join belong to several owners: %', pg_catalog.array_to_string(item.old_tables::regclass[], ', ')
            USING ERRCODE = 'feature_not_supported', HINT = 'Give them one owner: the new table belongs to it, and moves have its rights.';
    END IF;
    -- Names are those of the session that migrates, as in the definition.
    EXECUTE pg_catalog.format('CREATE TABLE %1$s (%2$s) AS SELECT %2$s FROM (%4$s) AS t (%2$s, %3$s) WITH NO DATA', item.new_table, names,
        places, item.query);
    IF checks <> 'before' THEN
        IF NOT item.single OR item.grouped AND checks = 'warn' THEN
            RAISE EXCEPTION 'rows of % cannot be put into quarantine', item.new_table USING ERRCODE = 'feature_not_supported',
                HINT = 'Each of them must come from one old row, or (not with ''warn'') from one group. Use checks => ''before''.';
        END IF;
        views := views || 'all'::text;
        EXECUTE pg_catalog.format('CREATE VIEW bullfrog.all_%s (%s, %s) AS %s', target_id, names, places, item.query);
        EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.all_%s IS %L', target_id,
            pg_catalog.format('All rows of the old tables in the form of %s, those in quarantine, too.', item.new_table));
        EXECUTE pg_catalog.format('CREATE VIEW bullfrog.transformed_%1$s AS SELECT t.* FROM bullfrog.all_%1$s t WHERE NOT EXISTS '
            '(SELECT FROM bullfrog.quarantined q WHERE q.target = %1$s AND q.place = bullfrog.place(t.bullfrog_tid))', target_id);
    ELSE
        EXECUTE pg_catalog.format('CREATE VIEW bullfrog.transformed_%s (%s, %s) AS %s', target_id, names, places, item.query);
    END IF;
    EXECUTE pg_catalog.format('CREATE VIEW bullfrog.unmoved_%1$s AS SELECT t.* FROM bullfrog.transformed_%1$s t WHERE NOT %2$s', target_id,
        moved);
    EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.transformed_%s IS %L', target_id,
        pg_catalog.format('All rows of the old tables in the form of %s.', item.new_table));
    EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.unmoved_%s IS %L', target_id,
        pg_catalog.format('Rows of the old tables that %s does not have yet.', item.new_table));
    IF item.grouped THEN
        views := views || 'members'::text;
        EXECUTE pg_catalog.format('CREATE VIEW bullfrog.members_%s AS %s', target_id, item.members);
        EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.members_%s IS %L', target_id,
            pg_catalog.format('The rows of which the groups of %s are made, with their keys.', item.new_table));
        -- The whole of a group, whatever made it move: its rows are found by its key. OFFSET keeps the key's lookup below the aggregate.
        granules := pg_catalog.format('(SELECT DISTINCT %1$s FROM bullfrog.members_%2$s WHERE {place}) AS k '
            'CROSS JOIN LATERAL (SELECT * FROM bullfrog.transformed_%2$s t WHERE %3$s OFFSET 0) AS t',
            pg_catalog.replace(places, 'bullfrog_tid, ', ''), target_id, item.same_group);
        copy := pg_catalog.format('WITH fresh AS MATERIALIZED (SELECT t.* FROM %s), '
            'copied AS (INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %3$s FROM fresh) SELECT bullfrog.place(bullfrog_tid) FROM fresh',
            pg_catalog.replace(granules, '{place}', chosen), item.new_table, names);
    ELSE
        granules := pg_catalog.format('bullfrog.transformed_%s t WHERE {place}', target_id);
        copy := pg_catalog.format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM %s', item.new_table, names,
            pg_catalog.replace(granules, '{place}', CASE source.granule WHEN 'page' THEN in_range ELSE chosen END));
    END IF;
    granules := pg_catalog.format('SELECT bullfrog.place(t.bullfrog_tid) FROM (SELECT t.bullfrog_tid FROM %s) AS t WHERE NOT %s',
        pg_catalog.replace(granules, '{place}', in_range), moved);
    INSERT INTO bullfrog.target (id, source, granule, inside, old_tables, readable, new_table, views, origins, complete, copy, names)
        OVERRIDING SYSTEM VALUE
        VALUES (target_id, source.id, source.granule, source.inside, item.old_tables, compatible, item.new_table::regclass,
            ARRAY(SELECT pg_catalog.format('bullfrog.%s_%s', v, target_id)::regclass::oid
                FROM pg_catalog.unnest(views) v), item.origins, item.complete, copy,
            CASE WHEN source.granule <> 'page' THEN granules END);
END
$$;
COMMENT ON FUNCTION bullfrog.prepare(int, bullfrog.source, record, text, boolean) IS
    'Creates a new table, empty, the views that have its rows until they are moved, and the statement that moves them.';

CREATE FUNCTION bullfrog.migrate(name text, definition text, checks text DEFAULT 'before', compatible boolean DEFAULT false,
    granularity text DEFAULT 'page', moves text DEFAULT 'worker')
    RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    migration_id int;
    olds oid[];
    item record;
    source_id int;
    source bullfrog.source;
    target bullfrog.target;
    choice record;
BEGIN
    PERFORM bullfrog.require_quiet_session();
    IF EXISTS (SELECT FROM bullfrog.migration m WHERE m.name = migrate.name AND m.phase IN ('moving', 'paused')) THEN
        RAISE EXCEPTION 'a migration named % is under way', pg_catalog.quote_ident(migrate.name) USING ERRCODE = 'duplicate_object';
    END IF;
    FOR choice IN SELECT * FROM (VALUES ('checks', checks, ARRAY['before', 'warn', 'quarantine']),
        ('granularity', granularity, ARRAY['page', 'tuple']), ('moves', moves, ARRAY['worker', 'transaction'])) AS c (name, given, known)
    LOOP
        IF choice.given <> ALL (choice.known) OR choice.given IS NULL THEN
            RAISE EXCEPTION 'expected % => %, got %', choice.name, pg_catalog.array_to_string(choice.known, ' or '),
                pg_catalog.quote_nullable(choice.given) USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END LOOP;
    IF checks = 'warn' AND moves = 'transaction' THEN
        RAISE EXCEPTION 'rows that move inside of a client''s transaction cannot be put into quarantine there'
            USING ERRCODE = 'feature_not_supported', HINT = 'Use checks => ''quarantine'', which puts them there at the switch.';
    END IF;
    INSERT INTO bullfrog.migration (name, definition) VALUES (migrate.name, migrate.definition) RETURNING id INTO migration_id;

    olds := ARRAY(SELECT DISTINCT o FROM bullfrog.parse(migrate.definition) p CROSS JOIN pg_catalog.unnest(p.old_tables) o ORDER BY o);
    PERFORM bullfrog.close(migration_id, olds);
    PERFORM bullfrog.release(olds, ARRAY(SELECT p.statement FROM bullfrog.parse(migrate.definition) p WHERE p.action = 'release'));
    PERFORM bullfrog.reach('switch: tables closed');
    FOR item IN SELECT * FROM bullfrog.parse(migrate.definition) p WHERE p.action <> 'release' LOOP
        IF item.action = 'create' THEN
            source_id := bullfrog.source_of(migration_id, item.old_tables[1]::regclass,
                CASE WHEN item.grouped THEN 'group' ELSE granularity END, moves = 'transaction', checks = 'warn');
            SELECT * INTO source FROM bullfrog.source s WHERE s.id = source_id;
            PERFORM bullfrog.prepare(pg_catalog.nextval('bullfrog.target_id_seq')::int, source, item, checks, compatible);
        ELSE
            EXECUTE item.statement;
        END IF;
    END LOOP;
    PERFORM bullfrog.reach('switch: tables created');

    FOR item IN SELECT * FROM bullfrog.parse(migrate.definition) p WHERE p.action = 'create' LOOP
        SELECT * INTO target FROM bullfrog.target t WHERE t.new_table = item.new_table::regclass;
        PERFORM bullfrog.guard_keys(target);
        PERFORM bullfrog.own(target);
        PERFORM bullfrog.check_rows(target, checks, item.required, item.keys, item.evaluated, item.single);
        PERFORM bullfrog.advance_identities(target);
        PERFORM bullfrog.seed_estimates(target);
    END LOOP;
    PERFORM bullfrog.seed_truth();
    PERFORM bullfrog.check_foreign_keys(migration_id, checks);
    PERFORM bullfrog.reach('switch: rows checked');

    UPDATE bullfrog.old o SET fingerprint = bullfrog.fingerprint(o.old_table) WHERE o.migration = migration_id;
    UPDATE bullfrog.target t SET fingerprint = bullfrog.fingerprint(t.new_table)
        FROM bullfrog.source s WHERE s.id = t.source AND s.migration = migration_id;
    PERFORM bullfrog.announce(o.old_table) FROM bullfrog.old o WHERE o.migration = migration_id;
    PERFORM bullfrog.announce(t.new_table) FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source
        WHERE s.migration = migration_id;
    PERFORM bullfrog.announce('bullfrog.target');
    PERFORM bullfrog.start_mover();
    PERFORM bullfrog.reach('switch: announced');
END
$$;
COMMENT ON FUNCTION bullfrog.migrate(text, text, text, boolean, text, text) IS
    'Switches to a new schema: from the commit on the new tables answer every query, and the old ones are closed (compatible: to writes). '
        'Rows move later. '
    'The text is CREATE TABLE new AS SELECT .. FROM old [JOIN ..] [WHERE ..] [GROUP BY ..], and what constrains the new tables. '
    'Rows that violate a constraint stop it (checks before), or are left out: at once (quarantine), or when they move (warn). '
    'Rows move by pages or by tuples (granularity), in transactions of their own (moves worker) or of who needs them (transaction).';

-- While it goes on ------------------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.measured(source int)
    RETURNS TABLE (rows_moved bigint, rows_per_second float8, pages_per_second float8, touches bigint, last_touch float8,
        median_touch float8, p99_touch float8)
    LANGUAGE sql SECURITY DEFINER ROWS 1 SET search_path = pg_catalog, pg_temp AS $$
    SELECT m.* FROM bullfrog.meter(source) m
$$;
COMMENT ON FUNCTION bullfrog.measured(int) IS 'What was measured of moves, for everybody who may see the progress.';

CREATE VIEW bullfrog.progress AS
    SELECT m.name, m.phase, s.old_table, s.granule, d.granules AS granules_moved, s.pages, p.done AS pages_moved,
        s.pages - p.done AS pages_left, m.started,
        CASE WHEN p.done >= s.pages THEN interval '0'
            WHEN r.pages_per_second > 0 THEN (s.pages - p.done) / r.pages_per_second * interval '1 second' END AS time_left,
        COALESCE(r.rows_moved, 0) AS rows_moved, COALESCE(r.rows_per_second, 0) AS rows_per_second,
        COALESCE(r.touches, 0) AS touches, r.last_touch, r.median_touch, r.p99_touch
    FROM bullfrog.migration m
    JOIN bullfrog.source s ON s.migration = m.id
    CROSS JOIN LATERAL (SELECT pg_catalog.count(*) AS granules FROM bullfrog.moved v WHERE v.source = s.id) d
    CROSS JOIN LATERAL (SELECT CASE WHEN s.granule = 'page' THEN d.granules ELSE s.swept END AS done) p
    LEFT JOIN LATERAL bullfrog.measured(s.id) r ON true;
COMMENT ON VIEW bullfrog.progress IS 'Migrations under way: of each old table, what moves at a time, how many were moved, and how many of '
    'its pages are done and left. '
    'Tuples and groups that a statement moved count as pages only when the background has come to their pages. The time left is that at '
        'the pace of the last ten seconds; NULL: nothing moves. '
    'Since the server started: rows that new tables got, statements that waited for rows (touches), and how many milliseconds.';

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
        FOR t IN DELETE FROM bullfrog.target g WHERE g.source = s.id RETURNING * LOOP
            PERFORM bullfrog.announce('bullfrog.target');
            PERFORM bullfrog.announce(t.new_table);
            EXECUTE format('DROP TRIGGER IF EXISTS bullfrog_insert ON %s', t.new_table);
            EXECUTE format('DROP TRIGGER IF EXISTS bullfrog_update ON %s', t.new_table);
            EXECUTE format('DROP FUNCTION IF EXISTS bullfrog.guard_%s()', t.id);
            EXECUTE format('DROP VIEW IF EXISTS bullfrog.unmoved_%1$s, bullfrog.transformed_%1$s, bullfrog.all_%1$s, bullfrog.members_%1$s',
                t.id);
        END LOOP;
    END LOOP;
    DELETE FROM bullfrog.source WHERE migration = migration_id;
    PERFORM bullfrog.announce(o.old_table) FROM bullfrog.old o WHERE o.migration = migration_id;
    DELETE FROM bullfrog.old WHERE migration = migration_id;
    DELETE FROM bullfrog.released WHERE migration = migration_id;
END
$$;
COMMENT ON FUNCTION bullfrog.forget(int) IS 'Removes everything of a migration except its tables and its record.';

CREATE FUNCTION bullfrog.readers(sources int[]) RETURNS text
    LANGUAGE sql AS $$
    WITH last AS MATERIALIZED (
        SELECT v.moved_by FROM bullfrog.moved v WHERE v.source = ANY (sources) ORDER BY v.moved_by DESC LIMIT 1)
    SELECT pg_catalog.string_agg(r.who, ', ') FROM last CROSS JOIN LATERAL (
        SELECT pg_catalog.format('process %s', a.pid) AS who FROM pg_catalog.pg_stat_activity a
            WHERE pg_catalog.age(a.backend_xmin) >= pg_catalog.age(last.moved_by::xid) AND a.pid <> pg_catalog.pg_backend_pid()
                AND (a.datname = pg_catalog.current_database() OR a.datname IS NULL)
                AND a.backend_type NOT IN ('autovacuum worker', 'bullfrog mover')
        UNION ALL SELECT pg_catalog.format('replication slot %I', l.slot_name) FROM pg_catalog.pg_replication_slots l
            WHERE pg_catalog.age(l.xmin) >= pg_catalog.age(last.moved_by::xid)) r
$$;
COMMENT ON FUNCTION bullfrog.readers(int[])
    IS 'Whose snapshots do not see the last move of these sources, and so still need the old tables.';

CREATE FUNCTION bullfrog.settle() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s record;
    t regclass;
BEGIN
    FOR s IN SELECT c.id FROM bullfrog.source c WHERE EXISTS (SELECT FROM bullfrog.target g WHERE g.source = c.id AND NOT g.filled)
        AND c.pages <= CASE WHEN c.granule = 'page' THEN (SELECT count(*) FROM bullfrog.moved v WHERE v.source = c.id) ELSE c.swept END
    LOOP
        CONTINUE WHEN bullfrog.readers(ARRAY[s.id]) IS NOT NULL;
        FOR t IN UPDATE bullfrog.target g SET filled = true WHERE g.source = s.id RETURNING g.new_table LOOP
            PERFORM bullfrog.announce(t);
        END LOOP;
        PERFORM bullfrog.announce('bullfrog.target');
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.settle() IS 'Lets statements read and write new tables that have all rows without looking for others, once '
    'every snapshot sees that.';

CREATE FUNCTION bullfrog.finish(name text, keep_old boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    migration bullfrog.migration;
    olds regclass[];
    s record;
    readers text;
BEGIN
    PERFORM bullfrog.require_quiet_session();
    -- Nothing is written until the old tables are free: a transaction that writes would make other snapshots look old.
    migration := bullfrog.under_way(finish.name);
    FOR s IN SELECT * FROM bullfrog.source c WHERE c.migration = migration.id LOOP
        PERFORM bullfrog.sweep(s.id, ARRAY(
            SELECT p FROM pg_catalog.generate_series(s.swept, s.pages - 1) p
            WHERE s.granule <> 'page' OR NOT EXISTS (SELECT FROM bullfrog.moved v WHERE v.source = s.id AND v.granule = p)));
    END LOOP;

    PERFORM bullfrog.reach('finish: rows moved');

    readers := bullfrog.readers(ARRAY(SELECT c.id FROM bullfrog.source c WHERE c.migration = migration.id));
    IF readers IS NOT NULL THEN
        RAISE EXCEPTION 'the old tables of % are still needed by %', pg_catalog.quote_ident(finish.name), readers
            USING ERRCODE = 'object_in_use', HINT = 'All rows are moved. Finish again when transactions that began before the last move '
                'have ended.';
    END IF;

    PERFORM bullfrog.lock_tables(bullfrog.tables_of(migration.id));
    olds := ARRAY(SELECT o.old_table FROM bullfrog.old o WHERE o.migration = migration.id);
    PERFORM bullfrog.forget(migration.id);
    IF NOT keep_old THEN
        PERFORM bullfrog.keep_sequences(olds::oid[]);
        EXECUTE 'DROP TABLE ' || pg_catalog.array_to_string(olds, ', ');
    END IF;
    PERFORM bullfrog.reach('finish: tables dropped');
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'finish'), ended = pg_catalog.statement_timestamp()
        WHERE m.id = migration.id;
END
$$;
COMMENT ON FUNCTION bullfrog.finish(text, boolean) IS
    'Moves the rows that are left, drops the old tables (or keeps them, with the rows they had at the switch), and leaves the new tables '
        'as ordinary ones.';

CREATE FUNCTION bullfrog.difference(target bullfrog.target) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text;
BEGIN
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) INTO names FROM pg_attribute a WHERE a.attrelid = target.new_table
        AND a.attnum > 0;
    RETURN (SELECT e::bigint FROM bullfrog.evaluate(target.new_table, format(
        'WITH new AS MATERIALIZED (SELECT ROW(%1$s)::text AS r FROM ONLY %2$s), old AS MATERIALIZED (SELECT ROW(%1$s)::text AS r FROM '
            'bullfrog.transformed_%3$s) '
        'SELECT to_jsonb(count(*)) FROM ((TABLE new EXCEPT ALL TABLE old) UNION ALL (TABLE old EXCEPT ALL TABLE new)) AS d',
        names, target.new_table, target.id)) e);
END
$$;
COMMENT ON FUNCTION bullfrog.difference(bullfrog.target) IS 'How many rows the new schema has and the old one not, or the other way round.';

CREATE FUNCTION bullfrog.key_columns(source bullfrog.source) RETURNS smallint[]
    LANGUAGE sql STABLE AS $$
    SELECT k.columns FROM (
        SELECT (x.indkey::smallint[])[0:x.indnkeyatts - 1] AS columns FROM pg_catalog.pg_index x
        WHERE x.indrelid = source.old_table AND x.indisunique AND x.indisvalid AND x.indimmediate AND x.indpred IS NULL
            AND x.indexprs IS NULL) k
    WHERE NOT EXISTS (SELECT FROM bullfrog.target t WHERE t.source = source.id AND NOT k.columns <@ t.origins)
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = source.old_table AND a.attnum = ANY (k.columns)
            AND NOT a.attnotnull)
    ORDER BY pg_catalog.cardinality(k.columns) LIMIT 1
$$;
COMMENT ON FUNCTION bullfrog.key_columns(bullfrog.source) IS 'The columns of a key of the old table that every new table has, too.';

CREATE FUNCTION bullfrog.same_key(target bullfrog.target, keys smallint[]) RETURNS text
    LANGUAGE sql STABLE AS $$
    SELECT pg_catalog.string_agg(pg_catalog.format('t.%I = o.%I', n.attname, o.attname), ' AND ')
    FROM pg_catalog.unnest(keys) k
    JOIN pg_catalog.pg_attribute o ON o.attrelid = target.old_tables[1] AND o.attnum = k
    JOIN pg_catalog.pg_attribute n ON n.attrelid = target.new_table AND n.attnum = pg_catalog.array_position(target.origins, k)
$$;
COMMENT ON FUNCTION bullfrog.same_key(bullfrog.target, smallint[])
    IS 'When row t of a new table and row o of the old one have the same key.';

CREATE FUNCTION bullfrog.carry_back(migration_id int) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source bullfrog.source;
    target bullfrog.target;
    keys smallint[];
    columns record;
    moved text;
    lost bigint;
BEGIN
    FOR target IN SELECT t.* FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source WHERE s.migration = migration_id LOOP
        IF target.granule = 'group' OR cardinality(target.old_tables) > 1 OR NOT target.complete THEN
            RETURN format('not every row of %s is one of %s', target.old_tables[1]::regclass, target.new_table);
        ELSIF EXISTS (SELECT FROM bullfrog.quarantined q WHERE q.target = target.id) THEN
            RETURN format('rows of %s are in quarantine', target.new_table);
        END IF;
    END LOOP;
    FOR source IN SELECT * FROM bullfrog.source s WHERE s.migration = migration_id LOOP
        keys := bullfrog.key_columns(source);
        IF keys IS NULL THEN
            RETURN format('no key of %s is in all new tables', source.old_table);
        END IF;
        moved := format('EXISTS (SELECT FROM bullfrog.moved m WHERE m.source = %s AND m.granule = bullfrog.%s(o.ctid))', source.id,
            bullfrog.naming(source.granule));
        SELECT string_agg(format('EXISTS (SELECT FROM ONLY %s t WHERE %s)', t.new_table, bullfrog.same_key(t, keys)), ' AND ') AS in_all,
            string_agg(format('EXISTS (SELECT FROM ONLY %s t WHERE %s)', t.new_table, bullfrog.same_key(t, keys)), ' OR ') AS in_any
            INTO columns FROM bullfrog.target t WHERE t.source = source.id;
        -- A row that was not moved is in the new tables as it is: those there that have its key are others.
        SELECT e::bigint INTO lost FROM bullfrog.evaluate(source.old_table, format('SELECT to_jsonb(count(*)) FROM ONLY %s o '
            'WHERE CASE WHEN %s THEN (%s) AND NOT (%s) ELSE %3$s END', source.old_table, moved, columns.in_any, columns.in_all),
            plain => true) e;
        IF lost > 0 THEN
            RETURN format('%s rows of %s are twice in a new table, or in some of them only', lost, source.old_table);
        END IF;
        PERFORM bullfrog.change(format('DELETE FROM ONLY %s o WHERE %s AND NOT (%s)', source.old_table, moved, columns.in_any));
        FOR target IN SELECT * FROM bullfrog.target t WHERE t.source = source.id ORDER BY t.id LOOP
            SELECT string_agg(quote_ident(o.attname), ', ' ORDER BY o.attnum) AS olds,
                string_agg('t.' || quote_ident(n.attname), ', ' ORDER BY o.attnum) AS news,
                string_agg(format('%I = t.%I', o.attname, n.attname), ', ') FILTER (WHERE o.attnum <> ALL (keys)) AS assigned,
                string_agg(format('o.%I IS DISTINCT FROM t.%I', o.attname, n.attname), ' OR ') FILTER (WHERE o.attnum <> ALL (keys))
                    AS differ
            INTO columns
            FROM pg_attribute o
            JOIN pg_attribute n ON n.attrelid = target.new_table AND n.attnum = array_position(target.origins, o.attnum)
            WHERE o.attrelid = source.old_table AND o.attnum > 0 AND NOT o.attisdropped AND o.attgenerated = '';
            PERFORM bullfrog.change(format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM ONLY %s t WHERE NOT EXISTS '
                '(SELECT FROM ONLY %1$s o WHERE %5$s)', source.old_table, columns.olds, columns.news, target.new_table,
                bullfrog.same_key(target, keys)));
            IF columns.assigned IS NOT NULL THEN
                PERFORM bullfrog.change(format('UPDATE ONLY %s o SET %s FROM ONLY %s t WHERE %s AND (%s)', source.old_table,
                    columns.assigned, target.new_table, bullfrog.same_key(target, keys), columns.differ));
            END IF;
        END LOOP;
        -- Whatever was done: the old table must give every row that new tables have.
        FOR target IN SELECT * FROM bullfrog.target t WHERE t.source = source.id ORDER BY t.id LOOP
            SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) AS names INTO columns FROM pg_attribute a
                WHERE a.attrelid = target.new_table AND a.attnum > 0;
            SELECT e::bigint INTO lost FROM bullfrog.evaluate(target.new_table, format(
                'WITH new AS MATERIALIZED (SELECT ROW(%1$s)::text AS r FROM ONLY %2$s), old AS MATERIALIZED (SELECT ROW(%1$s)::text AS r '
                    'FROM bullfrog.transformed_%3$s) SELECT to_jsonb(count(*)) FROM (TABLE new EXCEPT ALL TABLE old) AS d',
                columns.names, target.new_table, target.id), plain => true) e;
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
COMMENT ON FUNCTION bullfrog.carry_back(int) IS
    'Writes to the old tables what was written to new ones since the switch, where every new row is one old row with its key. Gives what '
        'stands in the way: then nothing of it counts, and the caller must fail.';

CREATE FUNCTION bullfrog.abort(name text, discard_writes boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    migration bullfrog.migration;
    news regclass[];
    t record;
    written bigint;
    hindrance text;
    keys text[];
    statement text;
BEGIN
    PERFORM bullfrog.require_quiet_session();
    migration := bullfrog.under_way(abort.name);
    PERFORM bullfrog.lock_tables(bullfrog.tables_of(migration.id));
    FOR t IN SELECT g.* FROM bullfrog.target g JOIN bullfrog.source c ON c.id = g.source WHERE c.migration = migration.id
        AND NOT discard_writes ORDER BY g.id LOOP
        SELECT bullfrog.difference(g) INTO written FROM bullfrog.target g WHERE g.id = t.id;
        CONTINUE WHEN written = 0;
        hindrance := bullfrog.carry_back(migration.id);
        EXIT WHEN hindrance IS NULL;
        RAISE EXCEPTION 'rows were written to % since the switch', t.new_table
            USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = pg_catalog.format('%s rows are in one of the two schemas only, and cannot be carried back: %s.', written,
                    hindrance),
                HINT = 'The old table does not have these changes. Finish the migration, or give them up: bullfrog.abort(name, '
                    'discard_writes => true).';
    END LOOP;
    news := ARRAY(SELECT g.new_table FROM bullfrog.target g JOIN bullfrog.source c ON c.id = g.source WHERE c.migration = migration.id);
    keys := ARRAY(SELECT pg_catalog.format('ALTER TABLE %s ADD CONSTRAINT %I %s', r.relation, r.name, r.definition)
        FROM bullfrog.released r WHERE r.migration = migration.id);
    PERFORM bullfrog.forget(migration.id);
    FOR t IN SELECT k.conname, k.conrelid::regclass AS relation FROM bullfrog.referring(news::oid[]) k LOOP
        EXECUTE pg_catalog.format('ALTER TABLE %s DROP CONSTRAINT %I', t.relation, t.conname);
    END LOOP;
    EXECUTE 'DROP TABLE ' || pg_catalog.array_to_string(news, ', ');
    FOREACH statement IN ARRAY keys LOOP
        BEGIN
            EXECUTE statement;
        EXCEPTION WHEN foreign_key_violation THEN
            RAISE EXCEPTION 'a foreign key of the old schema does not hold any more'
                USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = statement || ': ' || SQLERRM,
                    HINT = 'Rows of other tables were written since the switch. Correct them, then abort again; or finish the migration.';
        END;
    END LOOP;
    DELETE FROM bullfrog.quarantined q WHERE q.migration = migration.id;
    PERFORM bullfrog.reach('abort: tables dropped');
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'abort'), ended = pg_catalog.statement_timestamp()
        WHERE m.id = migration.id;
END
$$;
COMMENT ON FUNCTION bullfrog.abort(text, boolean) IS
    'Brings the old schema back and drops the new tables. What was written to them since the switch is carried back; refused if it cannot '
        'be, unless it may be given up.';

-- Who may do what -------------------------------------------------------------------------------------------------------

COMMENT ON SCHEMA bullfrog IS 'Schema changes at once: bullfrog.plan, migrate, progress, pause, resume, finish, abort.';
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA bullfrog FROM PUBLIC;
GRANT USAGE ON SCHEMA bullfrog TO PUBLIC;
GRANT SELECT ON bullfrog.moved, bullfrog.progress TO PUBLIC;
GRANT SELECT (target, place) ON bullfrog.quarantined TO PUBLIC;
GRANT EXECUTE ON FUNCTION bullfrog.page(tid), bullfrog.place(tid), bullfrog.move(int, bigint[]), bullfrog.sweep(int, bigint[]),
    bullfrog.measured(int), bullfrog.verify() TO PUBLIC;
