-- Tables on the move keep their form ----------------------------------------------------------------------------------

-- Settings of the session say how expressions, and values in them, are written as text.
CREATE FUNCTION bullfrog.form(relation oid) RETURNS text
    LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off SET datestyle = 'ISO, YMD' SET timezone = 'UTC'
    SET intervalstyle = 'postgres' SET standard_conforming_strings = on SET extra_float_digits = 1 SET bytea_output = 'hex' SET lc_monetary = 'C' AS $$
BEGIN
    -- Its plan is kept: it runs around each statement that may change a table.
    RETURN pg_catalog.concat_ws(E'\n',
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
        -- What of it lies in the schema of bullfrog. Only a superuser could let views read something else.
        (SELECT pg_catalog.string_agg(f.form, ';' ORDER BY f.form)
            FROM bullfrog.belongings(relation) b JOIN pg_catalog.pg_class c ON c.oid = b CROSS JOIN LATERAL pg_catalog.concat_ws(',',
                c.relname, c.relkind, c.relowner, c.relrowsecurity, c.reloptions,
                (SELECT pg_catalog.string_agg(x.indexrelid::text, ' ' ORDER BY x.indexrelid) FROM pg_catalog.pg_index x WHERE x.indrelid = c.oid),
                (SELECT pg_catalog.string_agg(k.conname, ' ' ORDER BY k.conname) FROM pg_catalog.pg_constraint k
                    WHERE k.conrelid = c.oid AND k.contype = 'c'),
                (SELECT pg_catalog.string_agg(g.tgname, ' ' ORDER BY g.tgname) FROM pg_catalog.pg_trigger g WHERE g.tgrelid = c.oid),
                (SELECT pg_catalog.string_agg(r.rulename, ' ' ORDER BY r.rulename) FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid),
                (SELECT pg_catalog.string_agg(DISTINCT (pg_catalog.pg_identify_object(d.classid, d.objid, 0)).identity, ' ')
                    FROM pg_catalog.pg_depend d WHERE d.deptype = 'n' AND (d.refclassid, d.refobjid) IN (
                        ('pg_catalog.pg_class'::regclass, c.oid), ('pg_catalog.pg_type'::regclass, c.reltype))
                    AND NOT EXISTS (SELECT FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class v ON v.oid = r.ev_class
                        WHERE d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
                            AND v.relnamespace = 'bullfrog'::regnamespace))) AS f (form)),
        (SELECT pg_catalog.string_agg(s, ';' ORDER BY s) FROM bullfrog.suspects(relation) s),
        -- Domains of its values, and those that values are cast to.
        (SELECT pg_catalog.string_agg(f.form, ';' ORDER BY f.form) FROM bullfrog.code_of(relation) c
            JOIN pg_catalog.pg_type d ON c.class = 'pg_catalog.pg_type'::regclass AND d.oid = c.object AND d.typtype = 'd'
            CROSS JOIN LATERAL pg_catalog.concat_ws(',', d.oid, d.typnotnull, (SELECT pg_catalog.string_agg(pg_catalog.pg_get_constraintdef(k.oid), ' '
                ORDER BY k.conname) FROM pg_catalog.pg_constraint k WHERE k.contypid = d.oid AND k.contype = 'c')) AS f (form)),
        -- What its rows are made by.
        -- The server's own are as the server is.
        (SELECT pg_catalog.string_agg(f.form, ';' ORDER BY f.form)
            FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang CROSS JOIN LATERAL pg_catalog.concat_ws(',',
                p.oid::regprocedure, p.provolatile, l.lanname, p.probin, p.prosrc, pg_catalog.pg_get_function_sqlbody(p.oid)) AS f (form)
            WHERE p.oid >= 16384 AND p.oid IN (
                SELECT d.refobjid FROM bullfrog.target t JOIN pg_catalog.pg_rewrite r ON r.ev_class = ANY (t.views)
                JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
                WHERE t.new_table = relation AND d.refclassid = 'pg_catalog.pg_proc'::regclass)));
END
$$;
COMMENT ON FUNCTION bullfrog.form(oid) IS 'The form of a table as far as a migration relies on it, but for its name. It names what pg_upgrade gives other '
    'numbers; those of tables, their files, types and roles stay.';

CREATE FUNCTION bullfrog.fingerprint(relation oid, named name DEFAULT NULL, form text DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off AS $$
BEGIN
    RETURN md5(concat_ws(E'\n',
        -- What a live table is called is for those who use it.
        (SELECT concat_ws(',', COALESCE(named, c.relname), c.relnamespace::regnamespace) FROM pg_class c WHERE c.oid = relation
            AND NOT EXISTS (SELECT FROM bullfrog.old o WHERE o.old_table = relation AND o.live)),
        COALESCE(form, bullfrog.form(relation))));
END
$$;
COMMENT ON FUNCTION bullfrog.fingerprint(oid, name, text) IS 'What tells the form of a table, or the one given, and its name from others; as if it were called otherwise, if that is said.';

CREATE FUNCTION bullfrog.deviating() RETURNS TABLE (relation regclass, migration int, what text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    SELECT p.relation, p.migration, p.relation::oid || ':' || f.form
    FROM (SELECT o.old_table AS relation, o.fingerprint, o.migration FROM bullfrog.old o
          UNION ALL SELECT t.new_table, t.fingerprint, s.migration FROM bullfrog.target t JOIN bullfrog.source s ON s.id = t.source) p
    CROSS JOIN LATERAL bullfrog.fingerprint(p.relation) AS f (form)
    WHERE p.fingerprint <> f.form;
END
$$;
COMMENT ON FUNCTION bullfrog.deviating() IS 'Tables of migrations under way that do not have the form any more that they had at the switch, and what '
    'they have.';

CREATE FUNCTION bullfrog.deviations() RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT COALESCE(string_agg(d.what, ' '), '') FROM bullfrog.deviating() d);
END
$$;
COMMENT ON FUNCTION bullfrog.deviations() IS 'What bullfrog.verify is told after a statement of which it asks before.';

CREATE FUNCTION bullfrog.verify(before text) RETURNS void
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changed record;
BEGIN
    -- What was so before is nothing that the statement has done.
    SELECT d.relation, m.name INTO changed FROM bullfrog.deviating() d JOIN bullfrog.migration m ON m.id = d.migration
        WHERE d.what <> ALL (string_to_array(before, ' ')) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'this would change %, which the migration % is moving', changed.relation, quote_ident(changed.name)
            USING ERRCODE = 'object_in_use', HINT = format('SELECT bullfrog.finish(%L) or bullfrog.abort(%1$L) first.', changed.name);
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.verify(text) IS 'Raises an error if a statement has changed the form of a table of a migration under way. Runs after each '
    'that may do it.';

CREATE FUNCTION bullfrog.follow_name(relation oid, before name) RETURNS boolean
    LANGUAGE plpgsql STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off AS $$
DECLARE
    migration bullfrog.migration;
    form text;
    known text;
    now_known text;
    inserts text;
    target bullfrog.target;
BEGIN
    -- Nobody else knows tables of such a migration as they are called so far. What the switch has written of old tables nobody writes later.
    SELECT m.* INTO migration FROM bullfrog.migration m WHERE m.id IN (SELECT o.migration FROM bullfrog.old o WHERE o.old_table = relation
            UNION ALL SELECT s.migration FROM bullfrog.source s JOIN bullfrog.target t ON t.source = s.id WHERE t.new_table = relation)
        AND EXISTS (SELECT FROM bullfrog.old o WHERE o.migration = m.id AND bullfrog.is_own(o.xmin));
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    form := bullfrog.form(relation);
    known := bullfrog.fingerprint(relation, before, form);
    now_known := bullfrog.fingerprint(relation, NULL, form);
    UPDATE bullfrog.old o SET fingerprint = now_known WHERE o.old_table = relation AND o.fingerprint = known;
    IF NOT FOUND THEN
        SELECT * INTO target FROM bullfrog.target t WHERE t.new_table = relation AND t.fingerprint = known;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        -- The statement that copies rows is the only one that is kept with the name of a new table; none is with that of an old one.
        inserts := format('INSERT INTO %s.%I (', (SELECT c.relnamespace::regnamespace FROM pg_class c WHERE c.oid = relation), before);
        IF cardinality(string_to_array(target.copy, inserts)) <> 2 THEN
            RAISE EXCEPTION 'names of columns of % contain the text %', target.new_table, quote_literal(inserts) USING ERRCODE = 'feature_not_supported',
                HINT = 'Rename the table when the migration has ended.';
        END IF;
        UPDATE bullfrog.target t SET fingerprint = now_known, copy = replace(t.copy, inserts, format('INSERT INTO %s (', t.new_table)) WHERE t.id = target.id;
        UPDATE bullfrog.quarantined q SET new_table = target.new_table::text WHERE q.target = target.id;
        PERFORM bullfrog.announce('bullfrog.target');
    END IF;
    -- The log has said what the switch called it.
    PERFORM bullfrog.log_at_commit(migration.name, format('%I is called %s', before, relation::regclass));
    RETURN true;
END
$$;
COMMENT ON FUNCTION bullfrog.follow_name(oid, name) IS 'Lets a migration go on whose table was called otherwise before and has got another name, and nothing else, in the transaction '
    'of the switch. Whether that is so.';
