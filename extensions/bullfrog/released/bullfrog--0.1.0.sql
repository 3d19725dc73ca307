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
    live boolean NOT NULL,
    fingerprint text
);
COMMENT ON TABLE bullfrog.old IS 'Old tables whose rows are on the move. Nobody but bullfrog reads or writes them, unless they are live.';
COMMENT ON COLUMN bullfrog.old.migration IS 'The migration it belongs to.';
COMMENT ON COLUMN bullfrog.old.live IS 'It stays in use: new tables have its rows as they were at the switch.';
COMMENT ON COLUMN bullfrog.old.fingerprint IS 'Its form at the switch, which must not change.';

CREATE TABLE bullfrog.source (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    migration int NOT NULL REFERENCES bullfrog.migration,
    old_table regclass NOT NULL REFERENCES bullfrog.old,
    granule text NOT NULL CHECK (granule IN ('page', 'tuple', 'group')),
    inside boolean NOT NULL,
    lenient boolean NOT NULL,
    pages bigint NOT NULL,
    swept bigint NOT NULL DEFAULT 0,
    noted_for xid8
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
COMMENT ON COLUMN bullfrog.source.noted_for IS 'The transaction of the abort for which writes to its new tables are noted.';
COMMENT ON COLUMN bullfrog.source.swept IS 'Of tuples and groups: those with a row on the pages before this one were moved.';

CREATE TABLE bullfrog.target (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source int NOT NULL REFERENCES bullfrog.source,
    granule text NOT NULL,
    inside boolean NOT NULL,
    filled boolean NOT NULL DEFAULT false,
    old_tables oid[] NOT NULL,
    live_tables oid[] NOT NULL,
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
COMMENT ON COLUMN bullfrog.target.live_tables IS 'Those of them that stay in use.';
COMMENT ON COLUMN bullfrog.target.readable IS 'Whether clients may read the old tables as of the switch.';
COMMENT ON COLUMN bullfrog.target.new_table IS 'The new table.';
COMMENT ON COLUMN bullfrog.target.views IS 'Views over the old tables: transformed_N has all rows in the form of the new one, and where '
    'their granules lie; unmoved_N those that were not moved; candidates_N, of joins, the rows of the driving table where these can be; '
    'members_N, of groups, the rows that they are made of; all_N those in quarantine, too.';
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
);
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
    options text NOT NULL
);
COMMENT ON TABLE bullfrog.released IS 'Foreign keys from and to old tables, which ended at the switch. abort brings them back.';
COMMENT ON COLUMN bullfrog.released.migration IS 'The migration under way.';
COMMENT ON COLUMN bullfrog.released.relation IS 'The referring table.';
COMMENT ON COLUMN bullfrog.released.name IS 'The name of the foreign key.';
COMMENT ON COLUMN bullfrog.released.refers_to IS 'The table referred to.';
COMMENT ON COLUMN bullfrog.released.columns IS 'The referring columns.';
COMMENT ON COLUMN bullfrog.released.referred IS 'The columns referred to.';
COMMENT ON COLUMN bullfrog.released.valid IS 'Whether it held for all rows.';
COMMENT ON COLUMN bullfrog.released.options IS 'What follows the columns in its definition.';

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

-- The server evaluates cheap conditions first. These cost next to nothing for rows that follow each other.
CREATE FUNCTION bullfrog.is_page_moved(source int, tid) RETURNS boolean
    LANGUAGE c STABLE STRICT PARALLEL SAFE COST 0.0001 AS 'MODULE_PATHNAME', 'is_page_moved_wrapper';
COMMENT ON FUNCTION bullfrog.is_page_moved(int, tid) IS 'Whether the statement sees that the page of an old row was moved.';

CREATE FUNCTION bullfrog.is_place_moved(source int, tid) RETURNS boolean
    LANGUAGE c STABLE STRICT PARALLEL SAFE COST 0.0001 AS 'MODULE_PATHNAME', 'is_place_moved_wrapper';
COMMENT ON FUNCTION bullfrog.is_place_moved(int, tid) IS
    'Whether the statement sees that an old row, or the group that begins with it, was moved.';

CREATE FUNCTION bullfrog.is_in_progress(source int, granule bigint) RETURNS boolean
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'is_in_progress_wrapper';
COMMENT ON FUNCTION bullfrog.is_in_progress(int, bigint) IS 'Whether a client moves a granule in a transaction that has not ended.';

CREATE FUNCTION bullfrog.parse(definition text, live oid[] DEFAULT '{}', frozen oid[] DEFAULT '{}', driving oid[] DEFAULT '{}')
    RETURNS TABLE (action text, statement text, new_table text, old_tables oid[], grouped boolean, single boolean, complete boolean,
        query text,
        members text, same_group text, columns text[], origins smallint[], required boolean[], keys smallint[], evaluated text[],
        lookup_tables oid[], lookup_columns smallint[])
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'parse_wrapper';
COMMENT ON FUNCTION bullfrog.parse(text, oid[], oid[], oid[]) IS
    'The statements of a migration: what each does to which new table; of those that create one, the old tables, the driving one first; '
        'whether '
    'its rows are groups; whether a row of the driving table gives one row at most, and whether each gives one; the query with the places '
        'of granules (and keys of groups); '
    'of groups, their member rows, and when two rows are of the same; which columns are plain columns of the driving table (0: more), and '
    'which come from NOT NULL ones; which are keys of groups; what must be evaluated before the switch; by which columns moves look up '
        'rows. '
    'Of action release (foreign keys of other tables end): their names as columns. Tables that stay in use (live) are read by views '
        '(frozen), as they were at the switch. Tables that are named as driving drive joins, if they can.';

CREATE FUNCTION bullfrog.compares_as_columns(pg_catalog.pg_index) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT EXISTS (
        SELECT FROM ROWS FROM (pg_catalog.unnest($1.indkey::smallint[]), pg_catalog.unnest($1.indcollation::oid[]),
            pg_catalog.unnest($1.indclass::oid[])) AS k (attnum, compared_by, class)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = $1.indrelid AND a.attnum = k.attnum
        JOIN pg_catalog.pg_opclass c ON c.oid = k.class
        WHERE a.attcollation <> k.compared_by OR NOT c.opcdefault)
$$;
COMMENT ON FUNCTION bullfrog.compares_as_columns(pg_catalog.pg_index) IS
    'Whether an index takes the same values for equal as its columns do: it has their collations, and the operators of their types.';

CREATE FUNCTION bullfrog.identifies(definition text, new_table text, columns smallint[]) RETURNS boolean
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'identifies_wrapper';
COMMENT ON FUNCTION bullfrog.identifies(text, text, smallint[])
    IS 'Whether new rows that are equal in these columns are one row, because of unique keys of the old tables.';

CREATE FUNCTION bullfrog.demands(definition text)
    RETURNS TABLE (new_table text, kind text, columns text[], plain boolean, refers_to text, referred text[])
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'demands_wrapper';
COMMENT ON FUNCTION bullfrog.demands(text) IS 'What a migration declares of new tables, above all what it asks of all rows: NOT NULL, keys (plain: they compare values as '
    'their columns do), checks, references, expressions of indexes.';

CREATE FUNCTION bullfrog.granted(definition text) RETURNS TABLE (new_table text, grantee oid, privilege text)
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'granted_wrapper';
COMMENT ON FUNCTION bullfrog.granted(text) IS
    'The rights on tables that a migration grants. No role: everybody; no privilege: all of them.';

CREATE FUNCTION bullfrog.key_is_proven(definition text, new_table text, grouped boolean, group_keys smallint[], columns smallint[])
    RETURNS boolean
    LANGUAGE sql STABLE AS $$
    -- Names in the definition are those of the session that migrates. A group is there once.
    SELECT CASE WHEN grouped THEN group_keys OPERATOR(pg_catalog.<@) columns ELSE bullfrog.identifies(definition, new_table, columns) END
$$;
COMMENT ON FUNCTION bullfrog.key_is_proven(text, text, boolean, smallint[], smallint[]) IS
    'Whether no two rows of a new table can be equal in some columns, because of keys of the old tables.';

CREATE FUNCTION bullfrog.unfinished() RETURNS TABLE (horizon bigint, others bigint[])
    LANGUAGE c ROWS 1 AS 'MODULE_PATHNAME', 'unfinished_wrapper';
COMMENT ON FUNCTION bullfrog.unfinished() IS 'What tells rows that are there now from later ones: the number of the first transaction that '
    'had not begun, and those before it that have not ended.';

CREATE FUNCTION bullfrog.was_there(xid, horizon bigint, others bigint[]) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'was_there_wrapper';
COMMENT ON FUNCTION bullfrog.was_there(xid, bigint, bigint[])
    IS 'Whether a row of this transaction was there when bullfrog.unfinished told these numbers.';

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

CREATE FUNCTION bullfrog.guard() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'guard_wrapper';
COMMENT ON FUNCTION bullfrog.guard() IS 'Moves old rows whose key a new row may have. Arguments: for each unique index the columns, and '
    'the query for the granules of old rows that have given values there.';

CREATE FUNCTION bullfrog.keep() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'keep_wrapper';
COMMENT ON FUNCTION bullfrog.keep() IS 'Keeps a row of a table that stays in use as it was at the switch, if it was there. Arguments: '
    'what bullfrog.unfinished told at the switch, and the statement that keeps a row.';

CREATE FUNCTION bullfrog.note() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'note_wrapper';
COMMENT ON FUNCTION bullfrog.note() IS 'Notes the key of a row that a client writes, before and after. Arguments: the columns of the key, and the '
    'statement that notes one.';

CREATE FUNCTION bullfrog.have_writes_noted(migration int, reader text) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'have_writes_noted_wrapper';
COMMENT ON FUNCTION bullfrog.have_writes_noted(int, text) IS 'Has another process call bullfrog.begin_notes, in a transaction of its own, and waits '
    'until it has, or has given up.';

CREATE FUNCTION bullfrog.sweep(source int, pages bigint[]) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'sweep_wrapper';
COMMENT ON FUNCTION bullfrog.sweep(int, bigint[]) IS
    'Has what has a row on pages of an old table moved, and waits until it is, in transactions of their own.';

CREATE FUNCTION bullfrog.meter(source int)
    RETURNS TABLE (rows_moved bigint, rows_per_second float8, pages_per_second float8, touches bigint, last_touch float8,
        median_touch float8, p99_touch float8, last_failure text)
    LANGUAGE c STRICT ROWS 1 AS 'MODULE_PATHNAME', 'meter_wrapper';
COMMENT ON FUNCTION bullfrog.meter(int) IS
    'What was measured of moves since the server started: rows, rows and pages per second of the last ten seconds, statements that waited '
        'for rows, how many milliseconds they did (quantiles are at most a quarter too high), and what the background could not move.';

CREATE FUNCTION bullfrog.evaluate(relation oid, query text, plain boolean DEFAULT false) RETURNS SETOF jsonb
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'evaluate_wrapper';
COMMENT ON FUNCTION bullfrog.evaluate(oid, text, boolean) IS
    'The rows that a query gives, one value each, run with the rights of a table''s owner in a security-restricted operation. Plain: '
        'of new tables it sees only the rows that were moved.';

CREATE FUNCTION bullfrog.explain(relation oid, query text) RETURNS json
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'explain_wrapper';
COMMENT ON FUNCTION bullfrog.explain(oid, text) IS
    'The plan of a query, made with the rights of a table''s owner: to plan is to evaluate what is constant.';

CREATE FUNCTION bullfrog.change(relation oid, statement text) RETURNS bigint
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'change_wrapper';
COMMENT ON FUNCTION bullfrog.change(oid, text) IS
    'Runs a statement with the rights of a table''s owner, for which new tables have only the rows that were moved, and old ones are open. '
        'Tells how many rows it changed.';

CREATE FUNCTION bullfrog.guarded_heap(internal) RETURNS table_am_handler
    LANGUAGE c AS 'MODULE_PATHNAME', 'guarded_heap_wrapper';
COMMENT ON FUNCTION bullfrog.guarded_heap(internal) IS 'The server''s heap, for who has the library.';
CREATE ACCESS METHOD bullfrog_heap TYPE TABLE HANDLER bullfrog.guarded_heap;
COMMENT ON ACCESS METHOD bullfrog_heap IS 'That of tables on the move: the server''s heap, but a server without the library cannot use them.';

CREATE FUNCTION bullfrog.set_access_method(relation oid, name text) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'set_access_method_wrapper';
COMMENT ON FUNCTION bullfrog.set_access_method(oid, text) IS 'Lets a table, which is locked exclusively, be used with the library only '
    '(bullfrog_heap), or be an ordinary one (heap). Its rows stay as they are.';

CREATE FUNCTION bullfrog.is_mutable(expression text) RETURNS boolean
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'is_mutable_wrapper';
COMMENT ON FUNCTION bullfrog.is_mutable(text) IS 'Whether an expression, as the catalogs keep it, may have another value at another time.';

CREATE FUNCTION bullfrog.copy_index(index oid, new_table oid, origins smallint[]) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'copy_index_wrapper';
COMMENT ON FUNCTION bullfrog.copy_index(oid, oid, smallint[]) IS 'Creates an index of a new table that is like one of its old table. Of each new '
    'column, origins tells the old one.';

CREATE FUNCTION bullfrog.expression_of(expression text, new_table oid, origins smallint[]) RETURNS text
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'expression_of_wrapper';
COMMENT ON FUNCTION bullfrog.expression_of(text, oid, smallint[]) IS 'An expression of an old table, as the catalogs keep it, as a text for a new table.';

CREATE FUNCTION bullfrog.reach(point text) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'reach_point_wrapper';
COMMENT ON FUNCTION bullfrog.reach(text) IS 'Passes a named point, at which builds for tests can be made to stop.';

CREATE FUNCTION bullfrog.start_mover() RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'start_mover_wrapper';
COMMENT ON FUNCTION bullfrog.start_mover() IS 'Starts the process that moves rows of this database, unless it runs.';
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

CREATE FUNCTION bullfrog.obstacles(old_table oid, live boolean) RETURNS SETOF text
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
    UNION ALL SELECT 'it has row-level security (ALTER TABLE .. DISABLE ROW LEVEL SECURITY, and let clients use the new table through a view '
            'WITH (security_barrier) that has the condition, until the migration has ended)'
        FROM pg_catalog.pg_class c WHERE c.oid = old_table AND c.relrowsecurity
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
        WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = old_table AND r.ev_class <> old_table
            AND NOT live
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
        FROM bullfrog.old o JOIN bullfrog.migration m ON m.id = o.migration WHERE o.old_table = obstacles.old_table
    UNION ALL SELECT pg_catalog.format('the migration %I is filling it', m.name)
        FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source JOIN bullfrog.migration m ON m.id = s.migration
        WHERE t.new_table = obstacles.old_table
$$;
COMMENT ON FUNCTION bullfrog.obstacles(oid, boolean) IS 'What of a table forbids to migrate it, or to migrate from it while it stays '
    'in use. No rows: nothing.';

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
    SELECT 'while rows move, joins by key, ORDER BY .. LIMIT, min and max read all that was not moved'
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
    LANGUAGE plpgsql AS $$
DECLARE
    tables oid[] := ARRAY(SELECT DISTINCT n::regclass::oid AS relation FROM pg_catalog.unnest(names) n ORDER BY relation);
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
    LANGUAGE plpgsql AS $$
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
            WHERE d.defaclobjtype = 'r' AND d.defaclrole = current_user::regrole
                AND d.defaclnamespace IN (0, to_regnamespace(quote_ident((parse_ident(new_table))[1]))))
    SELECT format('GRANT %s ON %s TO %s', string_agg(h.named, ', ' ORDER BY h.named), new_table,
        CASE h.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(h.grantee)) END)
    FROM held h
    WHERE NOT EXISTS (SELECT FROM given g WHERE g.grantee IN (0, h.grantee) AND COALESCE(g.privilege, h.privilege_type) = h.privilege_type)
    GROUP BY h.grantee ORDER BY h.grantee
$$;
COMMENT ON FUNCTION bullfrog.missing_rights(text, oid[], text[], smallint[], oid[], text[]) IS
    'What to GRANT on a new table so that those may use it who may use the old ones. It has columns with these origins, and the migration '
        'grants these privileges (NULL: all) to these roles (NULL: everybody).';

CREATE FUNCTION bullfrog.losses(new_table text, old oid, columns text[], origins smallint[], required boolean[], declared text[])
    RETURNS TABLE (kind int, object oid, lost text)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH kept AS (
        SELECT n.name, a.attnum, a.attidentity, pg_get_expr(d.adbin, d.adrelid) AS default_value, n.number, required[n.number] AS required
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

CREATE FUNCTION bullfrog.reads_of(demands text[], olds oid[]) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('at the switch rows of %s are read to check %s', (SELECT string_agg(format('%s%s', c.oid::regclass,
            CASE WHEN c.reltuples >= 0 THEN format(' (about %s)', c.reltuples::bigint) END), ', ' ORDER BY o.n)
            FROM unnest(olds) WITH ORDINALITY AS o (relation, n) JOIN pg_class c ON c.oid = o.relation),
        array_to_string(demands, ', '))
    WHERE cardinality(demands) > 0
$$;
COMMENT ON FUNCTION bullfrog.reads_of(text[], oid[]) IS 'Tells of checks that read all rows of tables, and about how many these are.';

CREATE FUNCTION bullfrog.plan(name text, definition text, live text[] DEFAULT '{}', driving text[] DEFAULT '{}')
    RETURNS TABLE (new_table text, old_tables regclass[], kind text, note text)
    LANGUAGE plpgsql AS $$
DECLARE
    olds oid[] := ARRAY(SELECT DISTINCT o FROM bullfrog.parse(plan.definition) p CROSS JOIN pg_catalog.unnest(p.old_tables) o ORDER BY o);
    lives oid[] := bullfrog.named_tables('live', plan.live, olds);
    drivers oid[] := bullfrog.driving_tables(plan.driving, plan.definition, olds);
    closed oid[] := ARRAY(SELECT o FROM pg_catalog.unnest(olds) o WHERE o <> ALL (lives));
BEGIN
    RETURN QUERY
    WITH parsed AS MATERIALIZED (SELECT * FROM bullfrog.parse(plan.definition, driving => drivers)),
    granted AS MATERIALIZED (SELECT * FROM bullfrog.granted(plan.definition)),
    demanded AS MATERIALIZED (SELECT * FROM bullfrog.demands(plan.definition)),
    demand AS (
        SELECT COALESCE(c.new_table, p.new_table) AS new_table, pg_catalog.concat(
                d.kind, ' (' || NULLIF(pg_catalog.array_to_string(d.columns, ', '), '') || ')',
                CASE WHEN c.new_table IS NULL THEN ' of ' || d.new_table END,
                CASE WHEN d.kind IN ('PRIMARY KEY', 'UNIQUE') THEN ' by sorting' WHEN d.kind = 'FOREIGN KEY'
                    THEN ' by looking into ' || d.refers_to END) AS what
        FROM (SELECT * FROM demanded d WHERE d.kind NOT IN ('DEFAULT', 'PLAIN INDEX')) d
        LEFT JOIN parsed c ON c.action = 'create' AND c.new_table = d.new_table
        LEFT JOIN parsed p ON p.action = 'create' AND p.new_table = d.refers_to
        CROSS JOIN LATERAL (SELECT
            ARRAY(SELECT pg_catalog.array_position(c.columns, n)::smallint FROM pg_catalog.unnest(d.columns) n) AS own,
            ARRAY(SELECT pg_catalog.array_position(p.columns, n)::smallint FROM pg_catalog.unnest(CASE
                WHEN pg_catalog.cardinality(d.referred) > 0 THEN d.referred
                ELSE (SELECT k.columns FROM demanded k WHERE k.new_table = d.refers_to AND k.kind = 'PRIMARY KEY' LIMIT 1) END) n)
                AS referred) AS number
        WHERE CASE
            WHEN d.kind = 'NOT NULL' THEN NOT c.required[number.own[1]]
            WHEN d.kind IN ('PRIMARY KEY', 'UNIQUE')
                THEN NOT (d.plain AND bullfrog.key_is_proven(plan.definition, c.new_table, c.grouped, c.keys, number.own))
            WHEN d.kind = 'FOREIGN KEY' THEN NOT (COALESCE(p.complete, true) AND bullfrog.refers(
                COALESCE(c.old_tables[1], pg_catalog.to_regclass(d.new_table)::oid),
                CASE WHEN c.new_table IS NULL THEN bullfrog.numbers_of(pg_catalog.to_regclass(d.new_table)::oid, d.columns)
                    ELSE ARRAY(SELECT c.origins[n] FROM pg_catalog.unnest(number.own) n) END,
                COALESCE(p.old_tables[1], pg_catalog.to_regclass(d.refers_to)::oid),
                CASE WHEN p.new_table IS NULL THEN bullfrog.numbers_of(pg_catalog.to_regclass(d.refers_to)::oid, d.referred)
                    ELSE ARRAY(SELECT p.origins[n] FROM pg_catalog.unnest(number.referred) n) END))
            ELSE true END),
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
            CASE WHEN i.grouped THEN pg_catalog.format('moves by groups of %s', i.old_tables[1]::regclass)
                WHEN pg_catalog.cardinality(i.old_tables) > 1 THEN pg_catalog.format('moves by pages of %s', i.old_tables[1]::regclass) END,
            (SELECT pg_catalog.string_agg(l::regclass::text, ', ') || ' stays in use' FROM pg_catalog.unnest(lives) l
                WHERE l = ANY (i.old_tables)),
            'at the switch all rows are read once, to evaluate ' || NULLIF(pg_catalog.array_to_string(i.evaluated, ', '), ''),
            bullfrog.reads_of(ARRAY(SELECT d.what FROM demand d WHERE d.new_table = i.new_table), i.old_tables),
            (SELECT pg_catalog.string_agg(pg_catalog.format('the foreign key %I of %s ends: declare it for the new table', k.conname,
                k.conrelid::regclass), '; ')
                FROM pg_catalog.pg_constraint k WHERE k.contype = 'f' AND k.conrelid = ANY (i.old_tables) AND k.conrelid = ANY (closed)),
            (SELECT pg_catalog.string_agg(pg_catalog.format('the trigger %I of %s has nothing more to fire for: CREATE TRIGGER for the new table',
                g.tgname, g.tgrelid::regclass), '; ')
                FROM pg_catalog.pg_trigger g WHERE NOT g.tgisinternal AND g.tgrelid = ANY (i.old_tables) AND g.tgrelid = ANY (closed)),
            (SELECT pg_catalog.string_agg(l, '; ') FROM bullfrog.slow_lookups(i.lookup_tables, i.lookup_columns) l),
            (SELECT pg_catalog.string_agg(r, '; ') FROM bullfrog.slow_reads(i.old_tables[1],
                NOT i.grouped AND pg_catalog.cardinality(i.old_tables) = 1 AND i.old_tables[1] <> ALL (lives), i.columns, i.origins,
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
    FROM parsed i WHERE i.action = 'create';
END
$$;
COMMENT ON FUNCTION bullfrog.plan(text, text, text[], text[]) IS
    'What bullfrog.migrate would do: each new table, the old tables its rows come from (the first one drives), how they relate, and what '
        'stands in the way or takes time.';
-- Tables are locked, all or none --------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.require_quiet_session() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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

CREATE FUNCTION bullfrog.lock_tables(closed oid[], live oid[] DEFAULT '{}', mode text DEFAULT 'ACCESS EXCLUSIVE') RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tables regclass[] := closed || live;
    given text := pg_catalog.current_setting('lock_timeout');
    detection interval := pg_catalog.current_setting('deadlock_timeout');
    patience interval := '100 ms';
    began timestamptz := pg_catalog.clock_timestamp();
    statements text;
BEGIN
    -- A circle, in which somebody has one of the tables and waits for another one, is for others to find and to be ended by.
    PERFORM pg_catalog.set_config('deadlock_timeout', '1h', true);
    LOOP
        -- Each try begins with another table: in the order in which clients take them there is no circle.
        statements := (SELECT pg_catalog.string_agg(pg_catalog.format('LOCK TABLE ONLY %s IN %s MODE', t,
            CASE WHEN t = ANY (live) THEN 'SHARE ROW EXCLUSIVE' ELSE mode END), '; ' ORDER BY n)
            FROM pg_catalog.unnest(tables) WITH ORDINALITY AS o (t, n));
        BEGIN
            PERFORM pg_catalog.set_config('lock_timeout', (1000 * EXTRACT(epoch FROM patience))::int::text, true);
            EXECUTE statements;
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF pg_catalog.clock_timestamp() - began > given::interval THEN
                RAISE EXCEPTION 'could not lock % within %', pg_catalog.array_to_string(closed::regclass[] || live::regclass[], ', '), given
                    USING ERRCODE = 'lock_not_available',
                        HINT = 'Nothing was changed. Try again when transactions that use them have ended, or SET lock_timeout.';
            END IF;
        END;
        PERFORM pg_catalog.pg_sleep(0.05 + 0.1 * pg_catalog.random());
        tables := tables[2:] || tables[1:1];
        patience := LEAST(2 * patience, 2 * detection + '100 ms');
    END LOOP;
    PERFORM pg_catalog.set_config('lock_timeout', given, true);
    PERFORM pg_catalog.set_config('deadlock_timeout', (1000 * EXTRACT(epoch FROM detection))::int::text, true);
END
$$;
COMMENT ON FUNCTION bullfrog.lock_tables(oid[], oid[], text)
    IS 'Locks tables in a mode, and live ones against writes, all or none: tries for at most lock_timeout, at first for a tenth of a '
        'second, then longer, in the end long enough for others to find that they wait in a circle; between tries everybody has time.';

CREATE FUNCTION bullfrog.tables_of(migration_id int) RETURNS oid[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- In the order in which statements lock them.
    SELECT ARRAY(SELECT t.new_table::oid FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source WHERE s.migration = migration_id
            ORDER BY t.id)
        || ARRAY(SELECT o.old_table::oid FROM bullfrog.old o WHERE o.migration = migration_id ORDER BY o.old_table)
$$;
COMMENT ON FUNCTION bullfrog.tables_of(int) IS 'The new and old tables of a migration under way.';
-- Tables on the move keep their form ----------------------------------------------------------------------------------

-- Settings of the session say how expressions, and values in them, are written as text.
CREATE FUNCTION bullfrog.fingerprint(relation oid) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off SET datestyle = 'ISO, YMD' SET timezone = 'UTC'
    SET intervalstyle = 'postgres' SET extra_float_digits = 1 SET bytea_output = 'hex' SET lc_monetary = 'C' AS $$
    SELECT pg_catalog.md5(pg_catalog.concat_ws(E'\n',
        -- What a live table is called is for those who use it.
        (SELECT pg_catalog.concat_ws(',', c.relname, c.relnamespace::regnamespace) FROM pg_catalog.pg_class c WHERE c.oid = relation
            AND NOT EXISTS (SELECT FROM bullfrog.old o WHERE o.old_table = relation AND o.live)),
        (SELECT pg_catalog.concat_ws(',', c.relfilenode, c.relkind, c.relpersistence, c.relrowsecurity, c.relowner)
            FROM pg_catalog.pg_class c WHERE c.oid = relation),
        (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(',', a.attnum, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated),
            ';' ORDER BY a.attnum)
            FROM pg_catalog.pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0),
        (SELECT pg_catalog.string_agg(f.form, ';' ORDER BY f.form) FROM pg_catalog.pg_constraint k CROSS JOIN LATERAL pg_catalog.concat_ws(',',
                k.conrelid, k.contype, k.convalidated, k.conkey::text, k.confrelid, k.confkey::text,
                k.confupdtype, k.confdeltype, k.confmatchtype, k.condeferrable, k.condeferred,
                CASE k.contype WHEN 'c' THEN pg_catalog.pg_get_constraintdef(k.oid) END) AS f (form)
            WHERE relation IN (k.conrelid, k.confrelid)),
        -- Triggers of foreign keys are named by numbers; how a trigger is defined names the table.
        (SELECT pg_catalog.string_agg(f.form, ';' ORDER BY f.form) FROM pg_catalog.pg_trigger t CROSS JOIN LATERAL pg_catalog.concat_ws(',',
                CASE WHEN NOT t.tgisinternal THEN t.tgname END, t.tgfoid::regproc, t.tgtype, t.tgenabled, t.tgattr::text, t.tgargs,
                t.tgoldtable, t.tgnewtable, pg_catalog.substring(pg_catalog.pg_get_triggerdef(t.oid), ' WHEN (.*) EXECUTE ')) AS f (form)
            WHERE t.tgrelid = relation),
        (SELECT pg_catalog.string_agg(f.form, ';' ORDER BY f.form) FROM pg_catalog.pg_rewrite r CROSS JOIN LATERAL
            pg_catalog.pg_get_ruledef(r.oid) AS f (form) WHERE r.ev_class = relation),
        (SELECT pg_catalog.string_agg(p.polname::text, ',' ORDER BY p.polname::text) FROM pg_catalog.pg_policy p WHERE p.polrelid = relation),
        (SELECT pg_catalog.string_agg(x.indexrelid::text, ',' ORDER BY x.indexrelid) FROM pg_catalog.pg_index x WHERE x.indrelid = relation
            AND x.indisunique),
        (SELECT pg_catalog.string_agg(r, ',' ORDER BY r) FROM bullfrog.replication(relation) r),
        (SELECT pg_catalog.string_agg(i.inhrelid::text || ',' || i.inhparent::text, ';' ORDER BY i.inhrelid, i.inhparent)
            FROM pg_catalog.pg_inherits i WHERE relation IN (i.inhrelid, i.inhparent)),
        -- Views, rules and functions over a closed table would keep it from being dropped.
        (SELECT pg_catalog.string_agg(DISTINCT (pg_catalog.pg_identify_object(d.classid, d.objid, 0)).identity, ';')
            FROM pg_catalog.pg_depend d WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = relation
            AND d.classid IN ('pg_catalog.pg_rewrite'::regclass, 'pg_catalog.pg_proc'::regclass)
            AND NOT EXISTS (SELECT FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class v ON v.oid = r.ev_class
                WHERE d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid AND v.relnamespace = 'bullfrog'::regnamespace)
            AND EXISTS (SELECT FROM bullfrog.old o WHERE o.old_table = relation AND NOT o.live)),
        -- What its rows are made by.
        -- The server's own are as the server is.
        (SELECT pg_catalog.string_agg(f.form, ';' ORDER BY f.form)
            FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang CROSS JOIN LATERAL pg_catalog.concat_ws(',',
                p.oid::regprocedure, p.provolatile, l.lanname, p.probin, p.prosrc, pg_catalog.pg_get_function_sqlbody(p.oid)) AS f (form)
            WHERE p.oid >= 16384 AND p.oid IN (
                SELECT d.refobjid FROM bullfrog.target t JOIN pg_catalog.pg_rewrite r ON r.ev_class = ANY (t.views)
                JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
                WHERE t.new_table = relation AND d.refclassid = 'pg_catalog.pg_proc'::regclass))))
$$;
COMMENT ON FUNCTION bullfrog.fingerprint(oid) IS 'The form of a table as far as a migration relies on it. It names what pg_upgrade gives other '
    'numbers; those of tables, their files, types and roles stay.';

CREATE FUNCTION bullfrog.verify() RETURNS void
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
-- Rows that would violate a constraint --------------------------------------------------------------------------------

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
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
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

CREATE FUNCTION bullfrog.proven_keys(target bullfrog.target, definition text, name text, group_keys smallint[]) RETURNS oid[]
    LANGUAGE sql STABLE AS $$
    SELECT ARRAY(SELECT x.indexrelid FROM pg_catalog.pg_index x
        CROSS JOIN LATERAL (SELECT (x.indkey::smallint[])[0:x.indnkeyatts - 1] AS columns) AS key
        WHERE x.indrelid = target.new_table::oid AND x.indisunique AND x.indexprs IS NULL
            AND bullfrog.compares_as_columns(x)
            AND bullfrog.key_is_proven(definition, name, target.granule = 'group', group_keys, key.columns))
$$;
COMMENT ON FUNCTION bullfrog.proven_keys(bullfrog.target, text, text, smallint[]) IS
    'Unique indexes of a new table that no rows can violate, because of keys of the old tables.';

CREATE FUNCTION bullfrog.check_rows(target bullfrog.target, checks text, required boolean[], proven oid[], evaluated text[]) RETURNS void
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
        SELECT x.indexrelid::regclass AS index, k.keys, concat_ws(' AND ', k.present, pg_get_expr(x.indpred, relation)) AS present
        FROM pg_index x CROSS JOIN LATERAL (
            SELECT string_agg(term, ', ') AS keys, string_agg(format('(%s) IS NOT NULL', term), ' AND ') AS present
            FROM generate_series(1, x.indnkeyatts) n CROSS JOIN pg_get_indexdef(x.indexrelid, n, false) AS term) k
        WHERE x.indrelid = relation AND x.indisunique AND x.indexrelid <> ALL (proven)
    LOOP
        PERFORM bullfrog.judge(target, checks, format('the unique index %s', item.index), format(
            'SELECT to_jsonb(t) FROM %1$s t JOIN (SELECT bullfrog_tid, row_number() OVER (PARTITION BY %2$s ORDER BY bullfrog_tid) AS n '
                'FROM %1$s WHERE %3$s) AS same '
            'USING (bullfrog_tid) WHERE same.n > 1', transformed, item.keys, item.present));
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.check_rows(bullfrog.target, text, boolean[], oid[], text[]) IS
    'Checks that every row of the old tables can be a row of the new one. Reads the old tables only for what their own constraints do not '
        'prove.';

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
            IF EXISTS (SELECT FROM bullfrog.old o WHERE o.old_table = key.confrelid AND NOT o.live) THEN
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
-- What the planner knows of tables that fill --------------------------------------------------------------------------

CREATE FUNCTION bullfrog.seed_estimates(target bullfrog.target) RETURNS void
    -- A plan that is only looked at is not compiled.
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    plan json;
    estimated float8;
    -- What its readers see in pg_stats are no values of rows that it does not get: the definition, or a quarantine, may leave some out.
    has_all CONSTANT boolean := target.complete AND to_regclass(format('bullfrog.all_%s', target.id)) IS NULL;
    names text;
    facts text;
BEGIN
    plan := bullfrog.explain(target.new_table, format('SELECT * FROM bullfrog.transformed_%s', target.id)) -> 0 -> 'Plan';
    estimated := (plan ->> 'Plan Rows')::float8;
    -- A row has a header of 24 bytes and a pointer of 4.
    UPDATE bullfrog.target t
        SET rows = estimated, pages = ceil(estimated * ((plan ->> 'Plan Width')::float8 + 28) / current_setting('block_size')::float8)
        WHERE t.id = target.id;
    -- Columns that are those of the driving table have its statistics until the new table is analysed.
    SELECT string_agg(quote_ident(a.attname), ', '),
            string_agg(CASE WHEN has_all OR a.attname !~ '^sta(kind|op|coll)\d$' THEN quote_ident(a.attname) ELSE '0' END, ', ')
        INTO names, facts FROM pg_attribute a WHERE a.attrelid = 'pg_statistic'::regclass
        AND a.attnum > 0 AND a.attname NOT IN ('starelid', 'staattnum') AND (has_all OR a.attname !~ '^sta(numbers|values)\d$');
    EXECUTE format('INSERT INTO pg_statistic (starelid, staattnum, %1$s) SELECT $1, o.number, %2$s FROM pg_statistic s '
        'JOIN unnest($2) WITH ORDINALITY AS o (origin, number) ON s.staattnum = o.origin WHERE s.starelid = $3 AND NOT s.stainherit', names,
        facts)
        USING target.new_table::oid, CASE WHEN target.granule = 'group' THEN '{}' ELSE target.origins END, target.old_tables[1];
END
$$;
COMMENT ON FUNCTION bullfrog.seed_estimates(bullfrog.target) IS
    'Lets the planner know a new table before it has its rows: how large it will be, and what its columns have.';
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
    EXECUTE format('CREATE TABLE bullfrog.kept_%s (LIKE %s INCLUDING INDEXES, bullfrog_tid tid NOT NULL UNIQUE)', number, live);
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
    EXECUTE format('ALTER TABLE bullfrog.kept_%s OWNER TO %I', number, owner);
    EXECUTE format('ALTER VIEW %s OWNER TO %I', view, owner);
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
    FOREACH view IN ARRAY target.views LOOP
        EXECUTE format('ALTER VIEW %s OWNER TO %I', view, owner);
    END LOOP;
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

CREATE FUNCTION bullfrog.close(migration_id int, olds oid[], lives oid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    old regclass;
    hindrance text;
BEGIN
    PERFORM bullfrog.lock_tables(olds, lives);
    FOREACH old IN ARRAY olds || lives LOOP
        SELECT string_agg(o, '; ') INTO hindrance FROM bullfrog.obstacles(old, old = ANY (lives)) o;
        IF hindrance IS NOT NULL THEN
            RAISE EXCEPTION 'cannot migrate %: %', old, hindrance
                USING ERRCODE = 'feature_not_supported', HINT = 'Drop or change what stands in the way; bullfrog.plan lists it.';
        END IF;
        INSERT INTO bullfrog.old (old_table, migration, live) VALUES (old, migration_id, old = ANY (lives));
    END LOOP;
    INSERT INTO bullfrog.released (migration, relation, name, refers_to, columns, referred, valid, options)
        SELECT migration_id, k.conrelid, k.conname, k.confrelid, k.conkey, k.confkey, k.convalidated,
            substr(pg_get_constraintdef(k.oid), 1 + length(bullfrog.foreign_key(k.conrelid, k.conkey, k.confrelid, k.confkey)))
        FROM pg_constraint k WHERE k.contype = 'f' AND (k.conrelid = ANY (olds) OR k.confrelid = ANY (olds)) ORDER BY k.oid;
END
$$;
COMMENT ON FUNCTION bullfrog.close(int, oid[], oid[]) IS
    'Locks old tables, refuses what cannot be migrated, makes them part of a migration, and remembers foreign keys of those that end.';

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
    LANGUAGE plpgsql AS $$
DECLARE
    frozen regclass := pg_catalog.to_regclass(pg_catalog.format('bullfrog.frozen_%s', driving::oid));
    place text := CASE WHEN frozen IS NULL THEN 't.ctid' ELSE 't.bullfrog_tid' END;
    columns text := (SELECT pg_catalog.string_agg(CASE WHEN o.attname IS NULL THEN pg_catalog.format('NULL::%s',
            pg_catalog.format_type(a.atttypid, a.atttypmod)) ELSE pg_catalog.format('t.%I', o.attname) END, ', ' ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute a
        LEFT JOIN pg_catalog.pg_attribute o ON o.attrelid = driving::oid AND o.attnum = origins[a.attnum] AND o.attnum > 0
        WHERE a.attrelid = new_table::regclass::oid AND a.attnum > 0);
BEGIN
    EXECUTE pg_catalog.format('CREATE VIEW bullfrog.candidates_%s (%s, bullfrog_tid) AS SELECT %s, %s FROM %s t WHERE NOT %s', target_id,
        names, columns, place, COALESCE(frozen::text, 'ONLY ' || driving::text), pg_catalog.replace(moved, 't.bullfrog_tid', place));
    EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.candidates_%s IS %L', target_id,
        pg_catalog.format('Rows of %s with those columns of %s that it has, where rows may not have been moved.', driving, new_table));
END
$$;
COMMENT ON FUNCTION bullfrog.list_candidates(int, regclass, text, text, smallint[], text) IS
    'Creates the view by which a join''s rows are looked for in the driving table alone, where conditions are about its columns.';

CREATE FUNCTION bullfrog.prepare(target_id int, source bullfrog.source, item record, checks text, compatible boolean) RETURNS void
    LANGUAGE plpgsql AS $$
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
    -- Names are those of the session that migrates, as in the definition.
    EXECUTE pg_catalog.format('CREATE TABLE %1$s (%2$s) AS SELECT %2$s FROM (%4$s) AS t (%2$s, %3$s) WITH NO DATA', item.new_table, names,
        places, item.query);
    IF checks <> 'before' THEN
        IF NOT item.single OR item.grouped AND checks = 'warn' THEN
            RAISE EXCEPTION 'rows of % cannot be put into quarantine', item.new_table USING ERRCODE = 'feature_not_supported',
                HINT = 'Each of them must come from one old row, or (not with ''warn'') from one group. Use checks => ''before''.';
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
    EXECUTE pg_catalog.format('CREATE VIEW bullfrog.unmoved_%1$s AS SELECT t.* FROM bullfrog.transformed_%1$s t WHERE NOT %2$s', target_id,
        moved);
    EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.transformed_%s IS %L', target_id,
        pg_catalog.format('All rows of the old tables in the form of %s.', item.new_table));
    EXECUTE pg_catalog.format('COMMENT ON VIEW bullfrog.unmoved_%s IS %L', target_id,
        pg_catalog.format('Rows of the old tables that %s does not have yet.', item.new_table));
    IF item.grouped THEN
        views := pg_catalog.array_append(views, 'members');
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
END
$$;
COMMENT ON FUNCTION bullfrog.prepare(int, bullfrog.source, record, text, boolean) IS
    'Creates a new table, empty, the views that have its rows until they are moved, and the statement that moves them.';

CREATE FUNCTION bullfrog.moving_alone(definition text, drivers oid[]) RETURNS oid[]
    LANGUAGE sql AS $$
    -- Names in the definition are those of the session that migrates.
    SELECT ARRAY(SELECT p.old_tables[1] FROM bullfrog.parse(definition, driving => drivers) p WHERE p.action = 'create' AND NOT p.grouped
        GROUP BY 1 HAVING pg_catalog.max(pg_catalog.cardinality(p.old_tables)) = 1)
$$;
COMMENT ON FUNCTION bullfrog.moving_alone(text, oid[]) IS 'Old tables whose rows are in new rows with no others.';

CREATE FUNCTION bullfrog.way_of(granularity text, moves text, checks text, grouped boolean, alone boolean, OUT granule text, OUT inside boolean)
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    -- A tuple that is in new rows alone is nobody's but of who writes it. Pages, groups and rows of joins are several sessions', which would
    -- wait for each other's transactions; and who quarantines a row cannot be a client.
    SELECT CASE WHEN grouped THEN 'group' WHEN granularity <> 'auto' THEN granularity
            WHEN alone AND moves <> 'worker' AND checks <> 'warn' THEN 'tuple' ELSE 'page' END,
        CASE moves WHEN 'auto' THEN alone AND NOT grouped AND granularity <> 'page' AND checks <> 'warn' ELSE moves = 'transaction' END
$$;
COMMENT ON FUNCTION bullfrog.way_of(text, text, text, boolean, boolean) IS 'How rows of an old table move, by what was asked for.';

CREATE FUNCTION bullfrog.migrate(name text, definition text, checks text DEFAULT 'before', compatible boolean DEFAULT false,
    granularity text DEFAULT 'auto', moves text DEFAULT 'auto', live text[] DEFAULT '{}', driving text[] DEFAULT '{}',
    like boolean DEFAULT false)
    RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    migration_id int;
    olds oid[];
    lives oid[];
    drivers oid[];
    frozen oid[];
    alone oid[];
    item record;
    way record;
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
        ('granularity', granularity, ARRAY['auto', 'page', 'tuple']), ('moves', moves, ARRAY['auto', 'worker', 'transaction']))
        AS c (name, given, known)
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
    IF pg_catalog.cardinality(live) > 0 AND pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RAISE EXCEPTION 'a migration with live tables is the first that its transaction writes' USING ERRCODE = 'active_sql_transaction',
            HINT = 'Rows that the transaction wrote before could not be told from those that it writes later. COMMIT first.';
    END IF;
    INSERT INTO bullfrog.migration (name, definition) VALUES (migrate.name, migrate.definition) RETURNING id INTO migration_id;

    olds := ARRAY(SELECT DISTINCT o FROM bullfrog.parse(migrate.definition) p CROSS JOIN pg_catalog.unnest(p.old_tables) o ORDER BY o);
    lives := bullfrog.named_tables('live', migrate.live, olds);
    drivers := bullfrog.driving_tables(migrate.driving, migrate.definition, olds);
    olds := ARRAY(SELECT o FROM pg_catalog.unnest(olds) o WHERE o <> ALL (lives));
    PERFORM bullfrog.close(migration_id, olds, lives);
    PERFORM bullfrog.release(olds, ARRAY(SELECT p.statement FROM bullfrog.parse(migrate.definition) p WHERE p.action = 'release'));
    alone := bullfrog.moving_alone(migrate.definition, drivers);
    frozen := ARRAY(SELECT bullfrog.freeze(l) FROM pg_catalog.unnest(lives) WITH ORDINALITY AS t (l, n) ORDER BY n);
    PERFORM bullfrog.reach('switch: tables closed');
    FOR item IN SELECT * FROM bullfrog.parse(migrate.definition, lives, frozen, drivers) p WHERE p.action <> 'release' LOOP
        IF item.action = 'create' THEN
            way := bullfrog.way_of(granularity, moves, checks, item.grouped, item.old_tables[1] = ANY (alone));
            source_id := bullfrog.source_of(migration_id, item.old_tables[1]::regclass, way.granule, way.inside, checks = 'warn');
            SELECT * INTO source FROM bullfrog.source s WHERE s.id = source_id;
            PERFORM bullfrog.prepare(pg_catalog.nextval('bullfrog.target_id_seq')::int, source, item, checks, compatible);
        ELSE
            EXECUTE item.statement;
        END IF;
    END LOOP;
    IF migrate.like THEN
        PERFORM bullfrog.carry_over(p, ARRAY(SELECT pg_catalog.concat_ws(' ', d.kind, NULLIF(pg_catalog.array_to_string(d.columns, ', '), ''))
                FROM bullfrog.demands(migrate.definition) d WHERE d.new_table = p.new_table),
            ARRAY(SELECT g.grantee FROM bullfrog.granted(migrate.definition) g WHERE g.new_table = p.new_table),
            ARRAY(SELECT g.privilege FROM bullfrog.granted(migrate.definition) g WHERE g.new_table = p.new_table))
            FROM bullfrog.parse(migrate.definition, lives, frozen, drivers) p WHERE p.action = 'create' AND NOT p.grouped;
    END IF;
    PERFORM bullfrog.reach('switch: tables created');

    FOR item IN SELECT * FROM bullfrog.parse(migrate.definition, lives, frozen, drivers) p WHERE p.action = 'create' LOOP
        SELECT * INTO target FROM bullfrog.target t WHERE t.new_table::oid = item.new_table::regclass::oid;
        PERFORM bullfrog.guard_keys(target);
        PERFORM bullfrog.own(target);
        PERFORM bullfrog.check_rows(target, checks, item.required,
            bullfrog.proven_keys(target, migrate.definition, item.new_table, item.keys), item.evaluated);
        PERFORM bullfrog.advance_identities(target);
        PERFORM bullfrog.seed_estimates(target);
    END LOOP;
    PERFORM bullfrog.check_foreign_keys(migration_id, checks);
    PERFORM bullfrog.reach('switch: rows checked');

    PERFORM bullfrog.set_access_method(r, 'bullfrog_heap') FROM pg_catalog.unnest(bullfrog.tables_of(migration_id)) r
        WHERE r <> ALL (lives);
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
COMMENT ON FUNCTION bullfrog.migrate(text, text, text, boolean, text, text, text[], text[], boolean) IS
    'Switches to a new schema: from the commit on the new tables answer every query, and the old ones are closed (compatible: to writes; '
        'live: those stay in use, and new tables have their rows as of the switch). '
        'Rows move later. '
    'The text is CREATE TABLE new AS SELECT .. FROM old [JOIN ..] [WHERE ..] [GROUP BY ..], and what constrains the new tables. '
    'Rows that violate a constraint stop it (checks before), or are left out: at once (quarantine), or when they move (warn). '
    'Rows move by pages or by tuples (granularity), in transactions of their own (moves worker) or of who needs them (transaction), or as it is '
        'best for each old table (auto); '
    'those of joins by the tables that are named as driving, where these can, else by the one that makes moves smallest. '
    'New tables take over what the old ones declare of their columns, and rights, if told to (like).';
-- While it goes on ------------------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.measured(source int)
    RETURNS TABLE (rows_moved bigint, rows_per_second float8, pages_per_second float8, touches bigint, last_touch float8,
        median_touch float8, p99_touch float8, last_failure text)
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
        COALESCE(r.touches, 0) AS touches, r.last_touch, r.median_touch, r.p99_touch, r.last_failure, o.old_rows,
        CASE WHEN s.granule = 'tuple' THEN d.granules ELSE (o.old_rows * LEAST(1, p.done::float8 / NULLIF(s.pages, 0)))::bigint END
            AS old_rows_moved
    FROM bullfrog.migration m
    JOIN bullfrog.source s ON s.migration = m.id
    CROSS JOIN LATERAL (SELECT pg_catalog.count(*) AS granules FROM bullfrog.moved v WHERE v.source = s.id) d
    CROSS JOIN LATERAL (SELECT CASE WHEN s.granule = 'page' THEN d.granules ELSE s.swept END AS done) p
    LEFT JOIN LATERAL (SELECT c.reltuples::bigint AS old_rows FROM pg_catalog.pg_class c WHERE c.oid = s.old_table AND c.reltuples >= 0) o
        ON true
    LEFT JOIN LATERAL bullfrog.measured(s.id) r ON true;
COMMENT ON VIEW bullfrog.progress IS 'Migrations under way: of each old table, what moves at a time, how many were moved, and how many of '
    'its pages are done and left. '
    'Tuples and groups that a statement moved count as pages only when the background has come to their pages. The time left is that at '
        'the pace of the last ten seconds; NULL: nothing moves. '
    'Since the server started: rows that new tables got, statements that waited for rows (touches), and how many milliseconds; why the '
        'background could not move a page, until it has come past all: it tries again after a pause, twice as long each time. '
    'About how many rows the old table has, and how many of them are in new tables, is told from what was moved, also after a restart.';

CREATE FUNCTION bullfrog.under_way(name text) RETURNS bullfrog.migration
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    migration_id int := (bullfrog.under_way(pause.name)).id;
BEGIN
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'pause') WHERE m.id = migration_id;
END
$$;
COMMENT ON FUNCTION bullfrog.pause(text) IS 'Stops moving rows in the background. Statements that need a row still move its page.';

CREATE FUNCTION bullfrog.resume(name text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    migration_id int := (bullfrog.under_way(resume.name)).id;
BEGIN
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'resume') WHERE m.id = migration_id;
    PERFORM bullfrog.start_mover();
END
$$;
COMMENT ON FUNCTION bullfrog.resume(text) IS 'Goes on moving rows in the background.';
-- The end ---------------------------------------------------------------------------------------------------------------

-- Not every migration has all that it drops: nobody has to be told.
CREATE FUNCTION bullfrog.forget(migration_id int) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
    s record;
    t record;
    o record;
BEGIN
    FOR s IN SELECT * FROM bullfrog.source WHERE migration = migration_id LOOP
        DELETE FROM bullfrog.moved v WHERE v.source = s.id;
        FOR t IN DELETE FROM bullfrog.target g WHERE g.source = s.id RETURNING * LOOP
            PERFORM bullfrog.announce('bullfrog.target');
            PERFORM bullfrog.announce(t.new_table);
            PERFORM bullfrog.set_access_method(t.new_table, 'heap');
            EXECUTE format('DROP TRIGGER IF EXISTS bullfrog_insert ON %s', t.new_table);
            EXECUTE format('DROP TRIGGER IF EXISTS bullfrog_update ON %s', t.new_table);
            EXECUTE format('DROP TRIGGER IF EXISTS bullfrog_note ON %s', t.new_table);
            EXECUTE format('DROP VIEW IF EXISTS bullfrog.unmoved_%1$s, bullfrog.candidates_%1$s, bullfrog.transformed_%1$s, '
                'bullfrog.all_%1$s, bullfrog.members_%1$s', t.id);
        END LOOP;
        EXECUTE format('DROP TABLE IF EXISTS bullfrog.written_%s', s.id);
    END LOOP;
    DELETE FROM bullfrog.source WHERE migration = migration_id;
    FOR o IN DELETE FROM bullfrog.old WHERE migration = migration_id RETURNING * LOOP
        PERFORM bullfrog.announce(o.old_table);
        IF o.live THEN
            PERFORM bullfrog.thaw(o.old_table);
        ELSE
            PERFORM bullfrog.set_access_method(o.old_table, 'heap');
        END IF;
    END LOOP;
    DELETE FROM bullfrog.released WHERE migration = migration_id;
END
$$;
COMMENT ON FUNCTION bullfrog.forget(int) IS 'Removes everything of a migration except its tables and its record.';

CREATE FUNCTION bullfrog.readers(sources int[]) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The server shows a transaction the sessions as they were when it first asked.
    PERFORM pg_stat_clear_snapshot();
    RETURN (
        WITH last AS MATERIALIZED (
            SELECT v.moved_by FROM bullfrog.moved v WHERE v.source = ANY (sources) ORDER BY v.moved_by DESC LIMIT 1)
        SELECT string_agg(r.who, ', ') FROM last CROSS JOIN LATERAL (
            SELECT format('process %s', a.pid) AS who FROM pg_stat_activity a
                WHERE age(a.backend_xmin) >= age(last.moved_by::xid) AND a.pid <> pg_backend_pid()
                    AND (a.datname = current_database() OR a.datname IS NULL)
                    AND a.backend_type NOT IN ('autovacuum worker', 'bullfrog mover')
            UNION ALL SELECT format('replication slot %I', l.slot_name) FROM pg_replication_slots l
                WHERE age(l.xmin) >= age(last.moved_by::xid)) r);
END
$$;
COMMENT ON FUNCTION bullfrog.readers(int[])
    IS 'Whose snapshots do not see the last move of these sources, and so still need the old tables.';

CREATE FUNCTION bullfrog.unguard_keys(relation regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = relation AND g.tgname IN ('bullfrog_insert', 'bullfrog_update')) THEN
        RETURN;
    END IF;
    -- One table at a time, and nobody queues for long: if it is in use, later.
    PERFORM set_config('lock_timeout', '100ms', true);
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', relation);
    UPDATE bullfrog.target t SET fingerprint = NULL WHERE t.new_table = relation;
    EXECUTE format('DROP TRIGGER bullfrog_insert ON %s', relation);
    EXECUTE format('DROP TRIGGER bullfrog_update ON %s', relation);
    UPDATE bullfrog.target t SET fingerprint = bullfrog.fingerprint(relation) WHERE t.new_table = relation;
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    NULL;
END
$$;
COMMENT ON FUNCTION bullfrog.unguard_keys(regclass) IS 'Ends what bullfrog.guard_keys began, of a new table that has all rows. If it is in '
    'use, nothing.';

CREATE FUNCTION bullfrog.is_swept(source bullfrog.source) RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT source.pages <= CASE WHEN source.granule = 'page'
        THEN (SELECT count(*) FROM bullfrog.moved v WHERE v.source = source.id) ELSE source.swept END
$$;
COMMENT ON FUNCTION bullfrog.is_swept(bullfrog.source) IS 'Whether all pages that the old table had at the switch are done.';

CREATE FUNCTION bullfrog.has_unmoved(source bullfrog.source) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target int;
BEGIN
    -- A closed table has no page more than at the switch; of one that stays in use, later pages do not count.
    IF bullfrog.is_swept(source) AND (EXISTS (SELECT FROM bullfrog.old o WHERE o.old_table = source.old_table AND o.live)
        OR pg_relation_size(source.old_table) / current_setting('block_size')::int <= source.pages) THEN
        RETURN false;
    END IF;
    FOR target IN SELECT t.id FROM bullfrog.target t WHERE t.source = source.id LOOP
        IF (SELECT e::boolean FROM bullfrog.evaluate(source.old_table,
            format('SELECT to_jsonb(EXISTS (SELECT FROM bullfrog.unmoved_%s))', target)) e) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;
COMMENT ON FUNCTION bullfrog.has_unmoved(bullfrog.source) IS 'Whether a row of the old table is in no new table yet. Reads the table only '
    'if the record of what was moved leaves it open.';

CREATE FUNCTION bullfrog.settle() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    s record;
    t regclass;
BEGIN
    -- As at the end: tables are locked before anything is written.
    FOR t IN SELECT g.new_table FROM bullfrog.target g WHERE g.filled LOOP
        PERFORM bullfrog.unguard_keys(t);
        PERFORM bullfrog.reach('settle: keys unguarded');
    END LOOP;
    FOR s IN SELECT c.id FROM bullfrog.source c WHERE EXISTS (SELECT FROM bullfrog.target g WHERE g.source = c.id AND NOT g.filled)
        AND bullfrog.is_swept(c) LOOP
        CONTINUE WHEN bullfrog.readers(ARRAY[s.id]) IS NOT NULL;
        -- Who ends the migration has these rows, and is not waited for: it may wait for us.
        CONTINUE WHEN (SELECT count(*) FROM bullfrog.target g WHERE g.source = s.id)
            > (SELECT count(*) FROM (SELECT FROM bullfrog.target g WHERE g.source = s.id FOR UPDATE SKIP LOCKED) free);
        FOR t IN UPDATE bullfrog.target g SET filled = true WHERE g.source = s.id RETURNING g.new_table LOOP
            PERFORM bullfrog.announce(t);
        END LOOP;
        PERFORM bullfrog.announce('bullfrog.target');
        PERFORM bullfrog.reach('settle: tables filled');
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.settle() IS 'Lets statements read and write new tables that have all rows without looking for others, once '
    'every snapshot sees that.';

CREATE FUNCTION bullfrog.finish(name text, keep_old boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    migration bullfrog.migration;
    olds regclass[];
    s record;
    readers text;
BEGIN
    PERFORM bullfrog.require_quiet_session();
    -- Nothing is written until the old tables are free: a transaction that writes would make other snapshots look old.
    migration := bullfrog.under_way(finish.name);
    IF EXISTS (SELECT FROM bullfrog.moved v JOIN bullfrog.source c ON c.id = v.source
        WHERE c.migration = migration.id AND v.moved_by = pg_current_xact_id_if_assigned()) THEN
        RAISE EXCEPTION 'this transaction has moved rows of % itself', quote_ident(finish.name)
            USING ERRCODE = 'active_sql_transaction', HINT = 'Snapshots that others take before it commits see these rows in the old '
                'tables only. COMMIT first.';
    END IF;
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
    PERFORM bullfrog.reach('finish: tables locked');
    FOR s IN SELECT c.old_table FROM bullfrog.source c WHERE c.migration = migration.id AND bullfrog.has_unmoved(c) LOOP
        RAISE EXCEPTION 'rows of % are in no new table yet', s.old_table
            USING ERRCODE = 'object_in_use', HINT = 'Nothing was dropped. Finish again when transactions that use the new tables have '
                'ended; bullfrog.progress tells what was moved.';
    END LOOP;
    olds := ARRAY(SELECT o.old_table FROM bullfrog.old o WHERE o.migration = migration.id AND NOT o.live);
    PERFORM bullfrog.forget(migration.id);
    PERFORM bullfrog.reach('finish: moves forgotten');
    IF NOT keep_old AND pg_catalog.cardinality(olds) > 0 THEN
        PERFORM bullfrog.keep_sequences(olds::oid[]);
        EXECUTE 'DROP TABLE ' || pg_catalog.array_to_string(olds, ', ');
    END IF;
    PERFORM bullfrog.reach('finish: tables dropped');
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'finish'), ended = pg_catalog.statement_timestamp()
        WHERE m.id = migration.id;
    PERFORM bullfrog.reach('finish: ended');
END
$$;
COMMENT ON FUNCTION bullfrog.finish(text, boolean) IS
    'Moves the rows that are left, drops the old tables (or keeps them, with the rows they had at the switch), and leaves the new tables '
        'as ordinary ones.';
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

CREATE FUNCTION bullfrog.same_key(target bullfrog.target, keys smallint[]) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_catalog.string_agg(pg_catalog.format('t.%I = o.%I', n.attname, o.attname), ' AND ')
    FROM pg_catalog.unnest(keys) k
    JOIN pg_catalog.pg_attribute o ON o.attrelid = target.old_tables[1] AND o.attnum = k
    JOIN pg_catalog.pg_attribute n ON n.attrelid = target.new_table AND n.attnum = pg_catalog.array_position(target.origins, k)
$$;
COMMENT ON FUNCTION bullfrog.same_key(bullfrog.target, smallint[])
    IS 'When row t of a new table and row o of the old one have the same key.';

CREATE FUNCTION bullfrog.key_names(target bullfrog.target, keys smallint[]) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_catalog.string_agg(pg_catalog.quote_ident(n.attname), ', ')
    FROM pg_catalog.unnest(keys) k
    JOIN pg_catalog.pg_attribute n ON n.attrelid = target.new_table AND n.attnum = pg_catalog.array_position(target.origins, k)
$$;
COMMENT ON FUNCTION bullfrog.key_names(bullfrog.target, smallint[]) IS 'What the columns of a key of the old table are called in a new one.';

CREATE FUNCTION bullfrog.carry_back(migration_id int, only_noted boolean) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
DECLARE
    source bullfrog.source;
    target bullfrog.target;
    keys smallint[];
    columns record;
    deferred text;
    moved text;
    chosen text;
    lost bigint;
    role CONSTANT text := current_setting('session_replication_role');
BEGIN
    FOR target IN SELECT t.* FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source WHERE s.migration = migration_id LOOP
        IF cardinality(target.live_tables) > 0 THEN
            RETURN format('%s is in use beside %s', target.live_tables[1]::regclass, target.new_table);
        ELSIF target.granule = 'group' OR cardinality(target.old_tables) > 1 OR NOT target.complete THEN
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
        -- What is deferred to the commit would be evaluated with the rights of who commits: the server does not let it.
        SELECT string_agg(format('%s.%I', k.connamespace::regnamespace, k.conname), ', ') INTO deferred
            FROM pg_constraint k WHERE k.conrelid = source.old_table AND k.condeferred;
        IF deferred IS NOT NULL THEN
            EXECUTE format('SET CONSTRAINTS %s IMMEDIATE', deferred);
        END IF;
        -- What is carried back was written once, and triggers of the new tables were there. The recheck of a deferrable key is a trigger, too.
        IF EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = source.old_table AND NOT t.tgisinternal) THEN
            IF EXISTS (SELECT FROM pg_index x WHERE x.indrelid = source.old_table AND NOT x.indimmediate) THEN
                RETURN format('%s has triggers and a deferrable key', source.old_table);
            END IF;
            PERFORM set_config('session_replication_role', 'replica', true);
        END IF;
        moved := format('bullfrog.is_%s_moved(%s, o.ctid)', bullfrog.naming(source.granule), source.id);
        chosen := CASE WHEN only_noted THEN bullfrog.is_noted(source, source.old_table, keys, 'o') ELSE 'true' END;
        SELECT string_agg(format('EXISTS (SELECT FROM ONLY %s t WHERE %s)', t.new_table, bullfrog.same_key(t, keys)), ' AND ') AS in_all,
            string_agg(format('EXISTS (SELECT FROM ONLY %s t WHERE %s)', t.new_table, bullfrog.same_key(t, keys)), ' OR ') AS in_any
            INTO columns FROM bullfrog.target t WHERE t.source = source.id;
        -- A row that was not moved is in the new tables as it is: those there that have its key are others.
        SELECT e::bigint INTO lost FROM bullfrog.evaluate(source.old_table, format('SELECT to_jsonb(count(*)) FROM ONLY %s o '
            'WHERE %s AND CASE WHEN %s THEN (%s) AND NOT (%s) ELSE %4$s END', source.old_table, chosen, moved, columns.in_any,
            columns.in_all), plain => true) e;
        IF lost > 0 THEN
            RETURN format('%s rows of %s are twice in a new table, or in some of them only', lost, source.old_table);
        END IF;
        PERFORM bullfrog.change(source.old_table, format('DELETE FROM ONLY %s o WHERE %s AND %s AND NOT (%s)', source.old_table, chosen,
            moved, columns.in_any));
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
            PERFORM bullfrog.change(source.old_table, format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM ONLY %s t '
                'WHERE %s AND NOT EXISTS (SELECT FROM ONLY %1$s o WHERE %6$s)', source.old_table, columns.olds, columns.news,
                target.new_table, CASE WHEN only_noted THEN bullfrog.is_noted(source, target.new_table,
                    bullfrog.new_columns(target, keys), 't') ELSE 'true' END, bullfrog.same_key(target, keys)));
            IF columns.assigned IS NOT NULL THEN
                PERFORM bullfrog.change(source.old_table, format('UPDATE ONLY %s o SET %s FROM ONLY %s t WHERE %s AND %s AND (%s)',
                    source.old_table, columns.assigned, target.new_table, chosen, bullfrog.same_key(target, keys), columns.differ));
            END IF;
        END LOOP;
        -- Whatever was done: the old table must give every row that new tables have.
        FOR target IN SELECT * FROM bullfrog.target t WHERE t.source = source.id ORDER BY t.id LOOP
            SELECT e::bigint INTO lost FROM bullfrog.evaluate(target.new_table, format(
                'WITH new AS MATERIALIZED (SELECT %1$s AS r FROM ONLY %2$s t WHERE %5$s), old AS MATERIALIZED (SELECT %1$s AS r '
                    'FROM bullfrog.transformed_%3$s t WHERE %5$s AND (%4$s) IN (SELECT %4$s FROM ONLY %2$s)) '
                    'SELECT to_jsonb(count(*)) FROM (TABLE new EXCEPT ALL TABLE old) AS d',
                bullfrog.content(target.new_table), target.new_table, target.id, bullfrog.key_names(target, keys),
                CASE WHEN only_noted THEN bullfrog.is_noted(source, target.new_table, bullfrog.new_columns(target, keys), 't')
                    ELSE 'true' END), plain => true) e;
            IF lost > 0 THEN
                RETURN format('%s rows of %s are none that the definition gives', lost, target.new_table);
            END IF;
        END LOOP;
        PERFORM set_config('session_replication_role', role, true);
    END LOOP;
    RETURN NULL;
EXCEPTION WHEN integrity_constraint_violation THEN
    RETURN SQLERRM;
END
$$;
COMMENT ON FUNCTION bullfrog.carry_back(int, boolean) IS
    'Writes to the old tables what was written to new ones since the switch, where every new row is one old row with its key; of that what was '
        'noted, if only that can be. Gives what stands in the way: then nothing of it counts, and the caller must fail.';

CREATE FUNCTION bullfrog.abort(name text, discard_writes boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    migration bullfrog.migration;
    news regclass[];
    t record;
    ahead boolean := false;
    written bigint;
    hindrance text;
    keys bullfrog.released[];
    key bullfrog.released;
    definition text;
BEGIN
    PERFORM bullfrog.require_quiet_session();
    migration := bullfrog.under_way(abort.name);
    IF NOT discard_writes THEN
        ahead := bullfrog.compare_ahead(migration.id);
    END IF;
    -- Meanwhile it may have ended.
    PERFORM bullfrog.under_way(abort.name);
    -- Nobody writes while the rest is compared, and everybody reads.
    PERFORM bullfrog.lock_tables(bullfrog.tables_of(migration.id), mode => 'EXCLUSIVE');
    PERFORM bullfrog.under_way(abort.name);
    PERFORM bullfrog.reach('abort: tables locked');
    FOR t IN SELECT g.* FROM bullfrog.target g JOIN bullfrog.source c ON c.id = g.source WHERE c.migration = migration.id
        AND NOT discard_writes ORDER BY g.id LOOP
        written := bullfrog.left_to_carry(t.id, ahead);
        CONTINUE WHEN written = 0;
        hindrance := bullfrog.carry_back(migration.id, ahead);
        EXIT WHEN hindrance IS NULL;
        RAISE EXCEPTION 'rows were written to % since the switch', t.new_table
            USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = pg_catalog.format('%s rows are in one of the two schemas only, and cannot be carried back: %s.', written,
                    hindrance),
                HINT = 'The old table does not have these changes. Finish the migration, or give them up: bullfrog.abort(name, '
                    'discard_writes => true).';
    END LOOP;
    PERFORM bullfrog.reach('abort: writes carried back');
    PERFORM bullfrog.lock_tables(bullfrog.tables_of(migration.id));
    news := ARRAY(SELECT g.new_table FROM bullfrog.target g JOIN bullfrog.source c ON c.id = g.source WHERE c.migration = migration.id);
    -- A table that is not there any more took its foreign keys along.
    keys := ARRAY(SELECT r FROM bullfrog.released r WHERE r.migration = migration.id
        AND EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = r.relation));
    PERFORM bullfrog.forget(migration.id);
    PERFORM bullfrog.reach('abort: moves forgotten');
    FOR t IN SELECT k.conname, k.conrelid::regclass AS relation FROM bullfrog.referring(news::oid[]) k LOOP
        EXECUTE pg_catalog.format('ALTER TABLE %s DROP CONSTRAINT %I', t.relation, t.conname);
    END LOOP;
    EXECUTE 'DROP TABLE ' || pg_catalog.array_to_string(news, ', ');
    FOREACH key IN ARRAY keys LOOP
        definition := bullfrog.foreign_key(key.relation, key.columns, key.refers_to, key.referred) || key.options;
        BEGIN
            IF definition IS NULL THEN
                RAISE EXCEPTION USING ERRCODE = 'undefined_table', MESSAGE = 'the table that it referred to was dropped';
            END IF;
            EXECUTE pg_catalog.format('ALTER TABLE %s ADD CONSTRAINT %I %s', key.relation, key.name, definition);
        EXCEPTION
            WHEN foreign_key_violation THEN
                RAISE EXCEPTION 'a foreign key of the old schema does not hold any more'
                    USING ERRCODE = 'object_not_in_prerequisite_state',
                        DETAIL = pg_catalog.format('%s of %s, %s: %s', pg_catalog.quote_ident(key.name), key.relation, definition, SQLERRM),
                        HINT = 'Rows of other tables were written since the switch. Correct them, then abort again; or finish the '
                            'migration.';
            WHEN syntax_error_or_access_rule_violation THEN
                RAISE EXCEPTION 'a foreign key of the old schema cannot come back'
                    USING ERRCODE = 'object_not_in_prerequisite_state',
                        DETAIL = pg_catalog.format('%s of %s: %s', pg_catalog.quote_ident(key.name), key.relation, SQLERRM),
                        HINT = 'Other tables were changed since the switch. Bring back what it needs, then abort again; or finish the '
                            'migration.';
        END;
    END LOOP;
    DELETE FROM bullfrog.quarantined q WHERE q.migration = migration.id;
    PERFORM bullfrog.reach('abort: tables dropped');
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'abort'), ended = pg_catalog.statement_timestamp()
        WHERE m.id = migration.id;
    PERFORM bullfrog.reach('abort: ended');
END
$$;
COMMENT ON FUNCTION bullfrog.abort(text, boolean) IS
    'Brings the old schema back and drops the new tables. What was written to them since the switch is carried back; refused if it cannot '
        'be, unless it may be given up.';
-- What clients write while abort compares -----------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.new_columns(target bullfrog.target, columns smallint[]) RETURNS smallint[]
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(SELECT array_position(target.origins, c)::smallint FROM unnest(columns) WITH ORDINALITY AS o (c, n) ORDER BY n)
$$;
COMMENT ON FUNCTION bullfrog.new_columns(bullfrog.target, smallint[]) IS 'Which columns of a new table some of the old one are.';

CREATE FUNCTION bullfrog.column_list(relation oid, columns smallint[], form text DEFAULT '%s') RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(replace(form, '%s', quote_ident(a.attname)), ', ' ORDER BY n)
    FROM unnest(columns) WITH ORDINALITY AS c (attnum, n)
    JOIN pg_attribute a ON a.attrelid = relation AND a.attnum = c.attnum
$$;
COMMENT ON FUNCTION bullfrog.column_list(oid, smallint[], text) IS 'The names of columns, each in a form, in the order given.';

CREATE FUNCTION bullfrog.noted_key(source bullfrog.source) RETURNS smallint[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT COALESCE((SELECT k.columns FROM (SELECT bullfrog.key_columns(source) AS columns) k
        WHERE NOT EXISTS (SELECT FROM bullfrog.target t WHERE t.source = source.id AND NOT EXISTS (
            SELECT FROM pg_index x WHERE x.indrelid = t.new_table AND x.indisunique AND x.indisvalid AND x.indimmediate
                AND x.indpred IS NULL AND x.indexprs IS NULL
                AND (x.indkey::smallint[])[0:x.indnkeyatts - 1] <@ bullfrog.new_columns(t, k.columns)
                AND bullfrog.compares_as_columns(x)
                AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = t.new_table AND NOT a.attnotnull
                    AND a.attnum = ANY (bullfrog.new_columns(t, k.columns)))))), '{}')
$$;
COMMENT ON FUNCTION bullfrog.noted_key(bullfrog.source) IS 'The columns of a key of the old table by which written rows are noted: it is one of '
    'every new table, too. Empty: there is none.';

CREATE FUNCTION bullfrog.is_noted(source bullfrog.source, relation oid, columns smallint[], alias text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN k.columns = '{}' THEN 'true' ELSE format('(%s) IN (SELECT %s FROM bullfrog.written_%s w)',
        bullfrog.column_list(relation, is_noted.columns, alias || '.%s'), bullfrog.column_list(source.old_table, k.columns, 'w.%s'),
        source.id) END
    FROM bullfrog.noted_key(source) AS k (columns)
$$;
COMMENT ON FUNCTION bullfrog.is_noted(bullfrog.source, oid, smallint[], text) IS
    'When a row of an old or a new table, whose key these columns are, was noted. Without a key, every row may have been.';

CREATE FUNCTION bullfrog.begin_notes(migration_id int, reader xid8) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source bullfrog.source;
    target bullfrog.target;
    keys smallint[];
BEGIN
    -- Who has written before, and not been noted, ends first.
    PERFORM bullfrog.lock_tables(ARRAY(SELECT t.new_table::oid FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source
        WHERE s.migration = migration_id ORDER BY t.id), mode => 'SHARE ROW EXCLUSIVE');
    FOR source IN SELECT * FROM bullfrog.source s WHERE s.migration = migration_id ORDER BY s.id LOOP
        UPDATE bullfrog.source s SET noted_for = reader WHERE s.id = source.id;
        -- What was noted for an abort that has ended counts for this one, too: it may be more than has to be compared.
        CONTINUE WHEN source.noted_for IS NOT NULL;
        keys := bullfrog.noted_key(source);
        EXECUTE format('CREATE TABLE bullfrog.written_%s AS SELECT %s FROM ONLY %s WITH NO DATA', source.id,
            bullfrog.column_list(source.old_table, keys), source.old_table);
        EXECUTE format('COMMENT ON TABLE bullfrog.written_%s IS %L', source.id,
            format('Keys of rows that may differ from those of %s.', source.old_table));
        EXECUTE (SELECT format('ALTER TABLE bullfrog.written_%s OWNER TO %s', source.id, c.relowner::regrole) FROM pg_class c
            WHERE c.oid = source.old_table);
        FOR target IN SELECT * FROM bullfrog.target t WHERE t.source = source.id ORDER BY t.id LOOP
            UPDATE bullfrog.target t SET fingerprint = NULL WHERE t.id = target.id;
            EXECUTE (SELECT format('CREATE TRIGGER bullfrog_note AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW '
                    'EXECUTE FUNCTION bullfrog.note(%L, %L)', target.new_table, COALESCE(string_agg(k.new::text, ' ' ORDER BY k.new), ''),
                    format('INSERT INTO bullfrog.written_%s ', source.id) || COALESCE('(' || bullfrog.column_list(source.old_table,
                            array_agg(k.old ORDER BY k.new)) || ') VALUES (' || string_agg('$' || k.n, ', ' ORDER BY k.n) || ')',
                        'DEFAULT VALUES'))
                FROM (SELECT c.old, c.new, row_number() OVER (ORDER BY c.new) AS n
                    FROM unnest(keys, bullfrog.new_columns(target, keys)) AS c (old, new)) k);
            -- Also for sessions whose session_replication_role is replica.
            EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER bullfrog_note', target.new_table);
            UPDATE bullfrog.target t SET fingerprint = bullfrog.fingerprint(t.new_table) WHERE t.id = target.id;
        END LOOP;
    END LOOP;
    PERFORM bullfrog.reach('notes: begun');
END
$$;
COMMENT ON FUNCTION bullfrog.begin_notes(int, xid8) IS 'Lets every write to the new tables of a migration be noted from the commit on, for a '
    'transaction that reads them.';

CREATE FUNCTION bullfrog.end_stale_notes() RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stale int;
    news regclass[];
    relation regclass;
BEGIN
    FOR stale IN SELECT s.id FROM bullfrog.source s WHERE s.noted_for IS NOT NULL
        AND pg_xact_status(s.noted_for) IS DISTINCT FROM 'in progress' LOOP
        news := ARRAY(SELECT t.new_table FROM bullfrog.target t WHERE t.source = stale ORDER BY t.id);
        -- Nobody queues for long: if they are in use, later.
        PERFORM set_config('lock_timeout', '100ms', true);
        EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', array_to_string(news, ', ONLY '));
        -- Another abort may have taken the notes over meanwhile.
        UPDATE bullfrog.source s SET noted_for = NULL WHERE s.id = stale AND pg_xact_status(s.noted_for) IS DISTINCT FROM 'in progress';
        CONTINUE WHEN NOT FOUND;
        UPDATE bullfrog.target t SET fingerprint = NULL WHERE t.source = stale;
        FOREACH relation IN ARRAY news LOOP
            EXECUTE format('DROP TRIGGER bullfrog_note ON %s', relation);
        END LOOP;
        EXECUTE format('DROP TABLE bullfrog.written_%s', stale);
        UPDATE bullfrog.target t SET fingerprint = bullfrog.fingerprint(t.new_table) WHERE t.source = stale;
    END LOOP;
EXCEPTION WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
    NULL;
END
$$;
COMMENT ON FUNCTION bullfrog.end_stale_notes() IS 'Ends notes for transactions that have ended. If the tables are in use, nothing.';

CREATE FUNCTION bullfrog.note_differences(source bullfrog.source) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
DECLARE
    target bullfrog.target;
    keys CONSTANT smallint[] := bullfrog.noted_key(source);
    news smallint[];
BEGIN
    FOR target IN SELECT * FROM bullfrog.target t WHERE t.source = source.id ORDER BY t.id LOOP
        IF keys = '{}' THEN
            IF bullfrog.difference(target, 'true') > 0 THEN
                RETURN false;
            END IF;
            CONTINUE;
        END IF;
        news := bullfrog.new_columns(target, keys);
        PERFORM bullfrog.change(target.new_table, format(
            'INSERT INTO bullfrog.written_%s (%s) SELECT %s FROM (SELECT %s, %s AS bullfrog_row FROM ONLY %s) n '
                'FULL JOIN (SELECT %4$s, %5$s AS bullfrog_row FROM bullfrog.transformed_%7$s WHERE bullfrog.is_%8$s_moved(%1$s, bullfrog_tid)) o '
                'ON (%9$s) = (%10$s) WHERE n.bullfrog_row IS DISTINCT FROM o.bullfrog_row',
            source.id, bullfrog.column_list(source.old_table, keys),
            bullfrog.column_list(target.new_table, news, 'COALESCE(n.%s, o.%s)'), bullfrog.column_list(target.new_table, news),
            bullfrog.content(target.new_table), target.new_table, target.id, bullfrog.naming(target.granule),
            bullfrog.column_list(target.new_table, news, 'n.%s'), bullfrog.column_list(target.new_table, news, 'o.%s')));
    END LOOP;
    EXECUTE format('ANALYZE bullfrog.written_%s', source.id);
    RETURN true;
END
$$;
COMMENT ON FUNCTION bullfrog.note_differences(bullfrog.source) IS 'Notes the keys of rows that differ between the old schema and the new one, as far as '
    'they were moved. False: some do, and have no key by which they could be noted.';

CREATE FUNCTION bullfrog.compare_ahead(migration_id int) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reader CONSTANT xid8 := pg_current_xact_id();
    source bullfrog.source;
BEGIN
    -- The process that begins the notes cannot wait for who waits for it.
    IF EXISTS (SELECT FROM pg_locks l JOIN bullfrog.target t ON t.new_table = l.relation JOIN bullfrog.source s ON s.id = t.source
        WHERE s.migration = migration_id AND l.pid = pg_backend_pid() AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')) THEN
        RETURN false;
    END IF;
    FOR source IN SELECT * FROM bullfrog.source s WHERE s.migration = migration_id AND s.noted_for <> reader
        AND pg_xact_status(s.noted_for) = 'in progress' LOOP
        RAISE EXCEPTION 'another session is about to abort the migration of %', source.old_table USING ERRCODE = 'object_in_use',
            HINT = 'Wait for its end.';
    END LOOP;
    PERFORM bullfrog.have_writes_noted(migration_id, reader::text);
    -- Who ends the notes needs the tables for himself: from here on the triggers stay until this transaction ends.
    EXECUTE 'LOCK TABLE ONLY ' || (SELECT string_agg(t.new_table::text, ', ONLY ' ORDER BY t.id) FROM bullfrog.target t
        JOIN bullfrog.source s ON s.id = t.source WHERE s.migration = migration_id) || ' IN ACCESS SHARE MODE';
    IF EXISTS (SELECT FROM bullfrog.source s WHERE s.migration = migration_id AND s.noted_for IS DISTINCT FROM reader) THEN
        RETURN false;
    END IF;
    PERFORM bullfrog.reach('abort: writes noted');
    FOR source IN SELECT * FROM bullfrog.source s WHERE s.migration = migration_id ORDER BY s.id LOOP
        IF NOT bullfrog.note_differences(source) THEN
            RETURN false;
        END IF;
    END LOOP;
    PERFORM bullfrog.reach('abort: rows compared');
    RETURN true;
END
$$;
COMMENT ON FUNCTION bullfrog.compare_ahead(int) IS 'Compares what was moved with the old rows while clients go on: what differs, or is written from '
    'now on, is noted. False: that was not possible.';

CREATE FUNCTION bullfrog.left_to_carry(target_id int, only_noted boolean) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target bullfrog.target;
    source bullfrog.source;
    any_noted boolean := true;
BEGIN
    SELECT * INTO target FROM bullfrog.target t WHERE t.id = target_id;
    SELECT * INTO source FROM bullfrog.source s WHERE s.id = target.source;
    IF only_noted THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM bullfrog.written_%s)', source.id) INTO any_noted;
    END IF;
    IF NOT any_noted THEN
        RETURN 0;
    END IF;
    RETURN bullfrog.difference(target, CASE WHEN only_noted THEN bullfrog.is_noted(source, target.new_table,
        bullfrog.new_columns(target, bullfrog.noted_key(source)), 't') ELSE 'true' END);
END
$$;
COMMENT ON FUNCTION bullfrog.left_to_carry(int, boolean) IS 'How many rows differ between the old schema and the new one, of those that were '
    'noted, or of all that were moved.';
-- What new tables take over ---------------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.hindrance(kind int, object oid) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
            WHEN x.indisexclusion THEN format('the exclusion constraint %I', c.relname)
            WHEN NOT x.indimmediate THEN format('the deferrable key %I', c.relname)
            WHEN x.indisunique AND x.indnullsnotdistinct THEN format('the index %I, for which NULLs are equal', c.relname) END
        FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid WHERE hindrance.kind = 3 AND x.indexrelid = object
    UNION ALL SELECT CASE
            WHEN NOT k.convalidated THEN format('the check %I, which is NOT VALID', k.conname)
            WHEN bullfrog.is_mutable(k.conbin::text) THEN format('the check %I, which is not immutable', k.conname) END
        FROM pg_constraint k WHERE hindrance.kind = 4 AND k.oid = object
$$;
COMMENT ON FUNCTION bullfrog.hindrance(int, oid) IS 'What of an old table no new one can have while rows move, with its name; NULL: nothing is in '
    'the way. Kinds are those of bullfrog.losses.';

CREATE FUNCTION bullfrog.carry_over(item record, declared text[], grantees oid[], privileges text[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_table CONSTANT regclass := item.new_table::regclass;
    loss record;
    hindrance text;
    lost_right text;
BEGIN
    FOR loss IN SELECT * FROM bullfrog.losses(item.new_table, item.old_tables[1], item.columns, item.origins, item.required, declared) LOOP
        hindrance := bullfrog.hindrance(loss.kind, loss.object);
        IF hindrance IS NOT NULL THEN
            RAISE WARNING '% does not get %', new_table, hindrance USING HINT = 'Add it when the migration has ended.';
        ELSIF loss.kind = 3 THEN
            PERFORM bullfrog.copy_index(loss.object, new_table, item.origins);
        ELSIF loss.kind = 4 THEN
            EXECUTE (SELECT format('ALTER TABLE %s ADD CONSTRAINT %I CHECK (%s)', new_table, k.conname,
                bullfrog.expression_of(k.conbin::text, new_table, item.origins)) FROM pg_constraint k WHERE k.oid = loss.object);
        ELSE
            EXECUTE loss.lost;
        END IF;
    END LOOP;
    FOR lost_right IN SELECT * FROM bullfrog.missing_rights(item.new_table, item.old_tables, item.columns, item.origins, grantees, privileges)
    LOOP
        EXECUTE lost_right;
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.carry_over(record, text[], oid[], text[]) IS
    'Lets a new table have what its old one (of a join, the driving one) declares of the columns that both have, and the migration does not: NOT '
        'NULL, defaults, identities, keys, indexes, checks; and rights. What it cannot have while rows move is a warning.';
-- Who may do what -------------------------------------------------------------------------------------------------------

COMMENT ON SCHEMA bullfrog IS 'Schema changes at once: bullfrog.plan, migrate, progress, pause, resume, finish, abort.';
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA bullfrog FROM PUBLIC;
GRANT USAGE ON SCHEMA bullfrog TO PUBLIC;
GRANT SELECT ON bullfrog.moved, bullfrog.progress TO PUBLIC;
GRANT SELECT (target, place) ON bullfrog.quarantined TO PUBLIC;
GRANT EXECUTE ON FUNCTION bullfrog.page(tid), bullfrog.place(tid), bullfrog.is_page_moved(int, tid), bullfrog.is_place_moved(int, tid), bullfrog.is_in_progress(int, bigint),
    bullfrog.was_there(xid, bigint, bigint[]), bullfrog.measured(int), bullfrog.verify() TO PUBLIC;
