-- Whose code is evaluated for others ------------------------------------------------------------------------------------

CREATE FUNCTION bullfrog.belongings(relation oid) RETURNS SETOF oid
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    SELECT pg_catalog.unnest(t.views) FROM bullfrog.target t WHERE t.new_table = belongings.relation
    UNION SELECT pg_catalog.to_regclass('bullfrog.written_' || t.source) FROM bullfrog.target t WHERE t.new_table = belongings.relation
    UNION SELECT pg_catalog.to_regclass(n || belongings.relation::text) FROM pg_catalog.unnest('{bullfrog.frozen_,bullfrog.kept_}'::text[]) n;
END
$$;
COMMENT ON FUNCTION bullfrog.belongings(oid) IS 'Views and tables in the schema of bullfrog that belong to a table of a migration.';

CREATE FUNCTION bullfrog.code_of(relation oid) RETURNS TABLE (class oid, object oid)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    WITH RECURSIVE used (of, number) AS (
        SELECT 'pg_class'::regclass::oid, r.oid FROM (SELECT code_of.relation UNION SELECT bullfrog.belongings(code_of.relation)) AS r (oid)
        UNION SELECT n.class, n.object FROM used u CROSS JOIN LATERAL (
            SELECT d.refclassid, d.refobjid FROM pg_depend d WHERE d.classid = u.of AND d.objid = u.number
            UNION ALL SELECT 'pg_rewrite'::regclass, r.oid FROM pg_rewrite r WHERE u.of = 'pg_class'::regclass AND r.ev_class = u.number
            -- A row's type does not depend on what is in it.
            UNION ALL SELECT 'pg_class'::regclass, y.typrelid FROM pg_type y WHERE u.of = 'pg_type'::regclass AND y.oid = u.number AND y.typrelid <> 0
            UNION ALL SELECT 'pg_class'::regclass, x.indexrelid FROM pg_index x WHERE u.of = 'pg_class'::regclass AND x.indrelid = u.number
            UNION ALL SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint k WHERE k.contype = 'c'
                AND u.number = CASE u.of WHEN 'pg_class'::regclass THEN k.conrelid WHEN 'pg_type'::regclass THEN k.contypid END
            ) AS n (class, object)
        -- What a function calls is its own affair, and who owns an operator says which other one may stand for it.
        WHERE u.of IN ('pg_class'::regclass, 'pg_rewrite'::regclass, 'pg_constraint'::regclass, 'pg_type'::regclass) AND n.object >= 16384)
    SELECT u.of, u.number FROM used u;
END
$$;
COMMENT ON FUNCTION bullfrog.code_of(oid) IS 'What is not the server''s own and may be evaluated when somebody reads, writes or moves rows of a table of a '
    'migration: what its views, indexes, checks and the domains of its columns are made of.';

CREATE FUNCTION bullfrog.suspects(relation oid) RETURNS SETOF text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    SELECT pg_describe_object(c.class, c.object, 0) FROM bullfrog.code_of(relation) c
    WHERE EXISTS (SELECT FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner WHERE c.class = 'pg_proc'::regclass AND p.oid = c.object
            AND NOT r.rolsuper)
        OR EXISTS (SELECT FROM pg_operator o JOIN pg_roles r ON r.oid = o.oprowner WHERE c.class = 'pg_operator'::regclass AND o.oid = c.object
            AND NOT r.rolsuper)
        -- A function of the server's own may run what it is told.
        OR EXISTS (SELECT FROM pg_constraint k JOIN pg_type t ON t.oid = k.contypid JOIN pg_roles r ON r.oid = t.typowner
            WHERE c.class = 'pg_constraint'::regclass AND k.oid = c.object AND NOT r.rolsuper AND bullfrog.is_mutable(k.conbin::text))
    ORDER BY 1;
END
$$;
COMMENT ON FUNCTION bullfrog.suspects(oid) IS 'Code that may be evaluated when somebody uses a table of a migration, and is neither the server''s own nor a '
    'superuser''s.';

CREATE FUNCTION bullfrog.refuse_suspects(relation regclass) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    code text;
BEGIN
    SELECT pg_describe_object(c.class, c.object, 0) INTO code FROM bullfrog.code_of(relation) c
        WHERE (pg_identify_object(c.class, c.object, 0)).schema ~ '^pg_temp' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'cannot migrate to %: it would use %, which is temporary', relation, code
            USING ERRCODE = 'feature_not_supported', HINT = 'It goes with its session, and others use the table until the end of the migration.';
    END IF;
    IF NOT (SELECT r.rolsuper FROM pg_roles r WHERE r.oid = bullfrog.asker()) THEN
        SELECT s INTO code FROM bullfrog.suspects(relation) s LIMIT 1;
    END IF;
    IF code IS NOT NULL THEN
        RAISE EXCEPTION 'cannot migrate to %: it would use %, which is neither the server''s own nor a superuser''s', relation, code
            USING ERRCODE = 'insufficient_privilege', HINT = 'Until the end of the migration it would be evaluated by whoever reads the table. '
                'Let a superuser own it, or migrate.';
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.refuse_suspects(regclass) IS 'An error if a new table uses what is temporary, or if others would evaluate code of a new table that a role which is no superuser may '
    'have written, and such a role asks.';

CREATE FUNCTION bullfrog.mutable_domains(olds oid[], made oid[]) RETURNS SETOF regtype
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE used (domain) AS (
        SELECT c.object FROM unnest(olds) o CROSS JOIN bullfrog.code_of(o) c WHERE c.class = 'pg_type'::regclass
        UNION SELECT unnest(made)
        UNION SELECT t.typbasetype FROM used u JOIN pg_type t ON t.oid = u.domain WHERE t.typbasetype <> 0)
    SELECT DISTINCT k.contypid::regtype FROM pg_constraint k WHERE k.contypid IN (SELECT u.domain FROM used u) AND bullfrog.is_mutable(k.conbin::text)
$$;
COMMENT ON FUNCTION bullfrog.mutable_domains(oid[], oid[]) IS 'Domains of columns of tables, and of these, whose checks are not immutable: what they take is only known at the switch.';
