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

CREATE FUNCTION bullfrog.carry_over(item record, declared text[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_table CONSTANT regclass := item.new_table::regclass;
    loss record;
    hindrance text;
BEGIN
    FOR loss IN SELECT * FROM bullfrog.losses(item.new_table, item.old_tables[1], item.columns, item.origins, item.required, declared) LOOP
        hindrance := bullfrog.hindrance(loss.kind, loss.object);
        IF hindrance IS NOT NULL THEN
            RAISE WARNING '% does not get %', new_table, hindrance USING HINT = 'Add it when the migration has ended.';
        ELSIF loss.kind = 3 THEN
            PERFORM bullfrog.copy_index(loss.object, new_table, item.origins);
        ELSIF loss.kind = 4 THEN
            -- The server evaluates what is constant.
            PERFORM bullfrog.change(new_table, (SELECT format('ALTER TABLE %s ADD CONSTRAINT %I CHECK (%s)', new_table, k.conname,
                bullfrog.expression_of(k.conbin::text, new_table, item.origins)) FROM pg_constraint k WHERE k.oid = loss.object));
        ELSE
            -- It was written for this path: by that of who asks, a name could mean something else.
            PERFORM bullfrog.obey('SET LOCAL search_path = pg_catalog, pg_temp; ' || loss.lost);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.carry_over(record, text[]) IS
    'Lets a new table have what its old one (of a join, the driving one) declares of the columns that both have, and the migration does not: NOT '
        'NULL, defaults, identities, keys, indexes, checks. What it cannot have while rows move is a warning.';

CREATE FUNCTION bullfrog.carry_rights(item record, definition text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lost_right text;
BEGIN
    FOR lost_right IN SELECT r.* FROM (SELECT array_agg(g.grantee) AS grantees, array_agg(g.privilege) AS privileges FROM bullfrog.granted(definition) g
            WHERE g.new_table = item.new_table) g
        CROSS JOIN LATERAL bullfrog.missing_rights(item.new_table, item.old_tables, item.columns, item.origins, g.grantees, g.privileges) r
    LOOP
        PERFORM bullfrog.obey(lost_right);
    END LOOP;
END
$$;
COMMENT ON FUNCTION bullfrog.carry_rights(record, text) IS 'Grants on a new table what its old ones grant, as far as the migration does not. No lock keeps '
    'these from being granted and revoked: it comes last.';
