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
    LANGUAGE c STABLE STRICT PARALLEL SAFE COST 0.0001 AS 'MODULE_PATHNAME', 'is_row_or_page_moved_wrapper';
COMMENT ON FUNCTION bullfrog.is_place_moved(int, tid) IS
    'Whether the statement sees that an old row, or the group that begins with it, was moved.';

CREATE FUNCTION bullfrog.is_own(xid) RETURNS boolean
    LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'is_own_wrapper';
COMMENT ON FUNCTION bullfrog.is_own(xid) IS 'Whether the current transaction wrote a row.';

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
    'which have no NULL, as the old tables prove; which are keys of groups; what must be evaluated before the switch; by which columns moves look up '
        'rows. '
    'Of action release (foreign keys of other tables end): their names as columns. Actions refer and attach add foreign keys: to a new table, and to '
        'others. Tables that stay in use (live) are read by views '
        '(frozen), as they were at the switch. Tables that are named as driving drive joins, if they can.';

CREATE FUNCTION bullfrog.tables_named(definition text) RETURNS oid[]
    LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'tables_named_wrapper';
COMMENT ON FUNCTION bullfrog.tables_named(text) IS 'The relations that queries of a migration name, without a look at what they are, and without a lock.';

CREATE FUNCTION bullfrog.asker() RETURNS oid
    LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'asker_wrapper';
COMMENT ON FUNCTION bullfrog.asker() IS 'The role that called bullfrog.plan, migrate and so on, which do what they do with all rights.';

CREATE FUNCTION bullfrog.obey(statement text) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'obey_wrapper';
COMMENT ON FUNCTION bullfrog.obey(text) IS 'Runs a statement of a definition with the rights of who gave it, for whom names mean what they mean to that '
    'session.';

CREATE FUNCTION bullfrog.obey_part(statement text, of_keys boolean) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'obey_part_wrapper';
COMMENT ON FUNCTION bullfrog.obey_part(text, boolean) IS 'The same of the foreign keys that a statement adds to a table, or of all else that it adds, if there is any; other statements are '
    'run as they are.';

CREATE FUNCTION bullfrog.table_named(name text) RETURNS regclass
    LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'table_named_wrapper';
COMMENT ON FUNCTION bullfrog.table_named(text) IS 'The table that a name means to who gave it.';

CREATE FUNCTION bullfrog.log_at_commit(migration text, what text) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'log_at_commit_wrapper';
COMMENT ON FUNCTION bullfrog.log_at_commit(text, text) IS 'Writes what the transaction did to a migration into the server''s log, when it commits.';

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
    RETURNS TABLE (new_table text, kind text, columns text[], plain boolean, refers_to text, referred text[], proven boolean, proof text[],
        evaluated boolean)
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'demands_and_proofs_wrapper';
COMMENT ON FUNCTION bullfrog.demands(text) IS 'What a migration declares of new tables, above all what it asks of all rows: NOT NULL, keys (plain: they compare values as '
    'their columns do), checks, references, expressions of indexes, values (that all expressions have one); of those of rows that are made of one old table''s rows, whether that one proves it, or which statements would let it; and whether an index has expressions or a '
    'condition, which are evaluated for each row.';

CREATE FUNCTION bullfrog.domains_made(definition text) RETURNS TABLE (new_table text, domain oid)
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'domains_made_wrapper';
COMMENT ON FUNCTION bullfrog.domains_made(text) IS 'The domains of which the queries of a migration make values, for each new table. Not those of columns.';

-- Dear: only for what a query has chosen by all else.
CREATE FUNCTION bullfrog.check_is_proven(definition text, new_table text, condition text) RETURNS boolean
    LANGUAGE c STRICT COST 10000 AS 'MODULE_PATHNAME', 'check_is_proven_wrapper';
COMMENT ON FUNCTION bullfrog.check_is_proven(text, text, text) IS 'Whether constraints of an old table prove a check of a new one, whose condition '
    'is as the catalogs keep it.';

CREATE FUNCTION bullfrog.index_is_proven(definition text, new_table text, index oid) RETURNS boolean
    LANGUAGE c STRICT COST 10000 AS 'MODULE_PATHNAME', 'index_is_proven_wrapper';
COMMENT ON FUNCTION bullfrog.index_is_proven(text, text, oid) IS 'Whether constraints and indexes of an old table prove that an index of a new one has '
    'a place for every row.';

CREATE FUNCTION bullfrog.granted(definition text) RETURNS TABLE (new_table text, grantee oid, privilege text)
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'granted_wrapper';
COMMENT ON FUNCTION bullfrog.granted(text) IS
    'The rights on tables that a migration grants. No role: everybody; no privilege: all of them.';

CREATE FUNCTION bullfrog.key_is_proven(definition text, new_table text, grouped boolean, group_keys smallint[], columns smallint[])
    RETURNS boolean
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- A group is there once.
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

CREATE FUNCTION bullfrog.change(relation oid, statement text, quiet boolean DEFAULT false) RETURNS bigint
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'change_or_quietly_wrapper';
COMMENT ON FUNCTION bullfrog.change(oid, text, boolean) IS
    'Runs a statement with the rights of a table''s owner, for which new tables have only the rows that were moved, and old ones are open. '
        'Tells how many rows it changed. Quiet: it fires no triggers of the tables that it writes.';

CREATE FUNCTION bullfrog.guarded_heap(internal) RETURNS table_am_handler
    LANGUAGE c AS 'MODULE_PATHNAME', 'guarded_heap_wrapper';
COMMENT ON FUNCTION bullfrog.guarded_heap(internal) IS 'The server''s heap, for who has the library.';
CREATE ACCESS METHOD bullfrog_heap TYPE TABLE HANDLER bullfrog.guarded_heap;
COMMENT ON ACCESS METHOD bullfrog_heap IS 'That of tables on the move: the server''s heap, but a server without the library cannot use them.';

CREATE FUNCTION bullfrog.set_access_method(relation oid, name text) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'set_access_method_wrapper';
COMMENT ON FUNCTION bullfrog.set_access_method(oid, text) IS 'Lets a table, which is locked exclusively, be used with the library only '
    '(bullfrog_heap), or be an ordinary one (heap). Its rows stay as they are.';

CREATE FUNCTION bullfrog.lock(relation oid, mode text) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'lock_wrapper';
COMMENT ON FUNCTION bullfrog.lock(oid, text) IS 'Locks a table until the transaction ends, whatever it is called.';

CREATE FUNCTION bullfrog.lock_domain(domain oid) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'lock_domain_wrapper';
COMMENT ON FUNCTION bullfrog.lock_domain(oid) IS 'Keeps others from changing a domain until the transaction ends.';

CREATE FUNCTION bullfrog.slow_down(relation oid) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'slow_down_wrapper';
COMMENT ON FUNCTION bullfrog.slow_down(oid) IS 'Lets each transaction that writes a table whose writes are noted rest once for a moment, until this one ends.';

CREATE FUNCTION bullfrog.await_writers(relation oid) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'await_writers_wrapper';
COMMENT ON FUNCTION bullfrog.await_writers(oid) IS 'Waits until transactions have ended that have written a table, or have a lock to do so.';

CREATE FUNCTION bullfrog.changes_since(relation oid, "position" bigint, horizon bigint, of_written boolean, of_gone boolean) RETURNS TABLE (written text, gone text)
    LANGUAGE c STRICT ROWS 1 AS 'MODULE_PATHNAME', 'changes_since_wrapper';
COMMENT ON FUNCTION bullfrog.changes_since(oid, bigint, bigint, boolean, boolean) IS 'The places of rows that were written since a moment, an array of tid, and of rows that were deleted since, or that others '
    'have taken the place of; some of these may only have been locked. The moment: a place in the log, and the number of the first transaction that had not ended. NULL: there are too many, or nobody asks. '
    'The caller has kept the table from vacuum since then.';

CREATE FUNCTION bullfrog.begin_look(is_first boolean) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'begin_look_wrapper';
COMMENT ON FUNCTION bullfrog.begin_look(boolean) IS 'Begins a look at rows before the switch, the first one or another. What the one before has seen can be read until '
    'the next.';

CREATE FUNCTION bullfrog.looked_up(relation oid, query text, before boolean) RETURNS SETOF text
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'looked_up_wrapper';
COMMENT ON FUNCTION bullfrog.looked_up(oid, text, boolean) IS 'The texts that a query gives, with the rights of a table''s owner in a security-restricted operation, as this '
    'look sees rows, or the one before.';

CREATE FUNCTION bullfrog.change_as_looked(relation oid, statement text) RETURNS bigint
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'change_as_looked_wrapper';
COMMENT ON FUNCTION bullfrog.change_as_looked(oid, text) IS 'Runs a statement with the rights of a table''s owner, as this look sees rows of others; of this transaction''s own it sees all. '
    'Tells how many rows it changed.';

CREATE FUNCTION bullfrog.end_looks() RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'end_looks_wrapper';
COMMENT ON FUNCTION bullfrog.end_looks() IS 'Ends what bullfrog.begin_look began.';

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
