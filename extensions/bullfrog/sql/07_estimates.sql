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
