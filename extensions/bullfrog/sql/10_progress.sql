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
    CROSS JOIN LATERAL (SELECT pg_catalog.count(*) FILTER (WHERE v.tuples IS NULL) + COALESCE(pg_catalog.sum(v.tuples), 0) AS granules
        FROM bullfrog.moved v WHERE v.source = s.id) d
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

CREATE VIEW bullfrog.quarantine WITH (security_barrier) AS
    SELECT m.name AS migration, q.new_table, q.violates, q.content
    FROM bullfrog.quarantined q JOIN bullfrog.migration m ON m.id = q.migration WHERE pg_catalog.pg_has_role(q.owner, 'USAGE');
COMMENT ON VIEW bullfrog.quarantine IS 'Rows in quarantine, of the tables of who reads it.';

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
    PERFORM bullfrog.require_ownership(ARRAY(SELECT o.old_table::oid FROM bullfrog.old o WHERE o.migration = found.id));
    RETURN found;
END
$$;
COMMENT ON FUNCTION bullfrog.under_way(text) IS 'The migration of this name that is under way; an error if there is none, or who asks may not end '
    'it.';

CREATE FUNCTION bullfrog.perform_pause(name text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    migration_id int := (bullfrog.under_way(perform_pause.name)).id;
BEGIN
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'pause') WHERE m.id = migration_id;
    PERFORM bullfrog.log_at_commit(perform_pause.name, 'paused');
END
$$;
COMMENT ON FUNCTION bullfrog.perform_pause(text) IS 'What bullfrog.pause does.';

CREATE FUNCTION bullfrog.perform_resume(name text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    migration_id int := (bullfrog.under_way(perform_resume.name)).id;
BEGIN
    UPDATE bullfrog.migration m SET phase = bullfrog.next_phase(m.phase, 'resume') WHERE m.id = migration_id;
    PERFORM bullfrog.start_mover();
    PERFORM bullfrog.log_at_commit(perform_resume.name, 'resumed');
END
$$;
COMMENT ON FUNCTION bullfrog.perform_resume(text) IS 'What bullfrog.resume does.';
