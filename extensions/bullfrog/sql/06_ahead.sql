-- Rows are looked at before the switch, while clients go on ----------------------------------------------------------------

CREATE FUNCTION bullfrog.is_seen_ahead(target bullfrog.target, checks text, burden jsonb) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- What a domain refuses may depend on more than the value.
    RETURN NOT EXISTS (SELECT FROM bullfrog.code_of(target.new_table) c JOIN pg_constraint k ON c.class = 'pg_constraint'::regclass AND k.oid = c.object
            WHERE k.contypid <> 0 AND bullfrog.is_mutable(k.conbin::text))
        -- Of groups and joins not which rows are to be left out, nor those that come because others are gone, where their members do not tell.
        AND (bullfrog.is_image(target) OR checks = 'before' AND bullfrog.has_places(target))
        AND (EXISTS (SELECT FROM bullfrog.questions(target, burden, bullfrog.rows_where(target, 'true')) q WHERE q.what IS NULL OR checks <> 'warn')
            OR checks <> 'warn' AND burden -> 'keys' <> '[]' OR burden -> 'identities' <> '[]');
END
$$;
COMMENT ON FUNCTION bullfrog.is_seen_ahead(bullfrog.target, text, jsonb) IS 'Whether anything is to be found out of the rows of a new table that can be found out '
    'before its old tables are locked.';

CREATE FUNCTION bullfrog.moment(tables oid[]) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- In this order: what was written before the place in the log is of transactions that have ended, and what comes next sees it.
    place CONSTANT bigint := (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint;
BEGIN
    PERFORM bullfrog.wait_for_writers(tables);
    RETURN jsonb_build_object('position', place, 'horizon', pg_snapshot_xmin(pg_current_snapshot())::text::bigint);
END
$$;
COMMENT ON FUNCTION bullfrog.moment(oid[]) IS 'A moment from which on bullfrog.changes_since tells what is written to some tables. Statements that begin now see '
    'all that was written before.';

CREATE FUNCTION bullfrog.bases(burdens jsonb, refs jsonb[]) RETURNS TABLE (relation oid, of_written boolean, of_gone boolean)
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT b.relation, bool_or(b.of_written), bool_or(b.of_gone) FROM (
        SELECT o, true, NOT bullfrog.is_image(t) FROM bullfrog.target t CROSS JOIN unnest(t.old_tables) o WHERE (burdens -> t.id::text ->> 'ahead')::boolean
        UNION ALL SELECT b::oid, true, r -> 'of_granules' <> 'null' FROM unnest(refs) r CROSS JOIN jsonb_array_elements_text(r -> 'bases') b
        UNION ALL SELECT b::oid, r -> 'to_granules' <> 'null', true FROM unnest(refs) r CROSS JOIN jsonb_array_elements_text(r -> 'parent_bases') b) AS b (relation, of_written, of_gone)
    GROUP BY b.relation ORDER BY b.relation
$$;
COMMENT ON FUNCTION bullfrog.bases(jsonb, jsonb[]) IS 'The tables whose rows are looked at before the switch, for new tables and for foreign keys: whether for rows that are written, and for those '
    'that go.';

CREATE FUNCTION bullfrog.changes(burdens jsonb, refs jsonb[], since jsonb) RETURNS jsonb
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_catalog.jsonb_build_object('written', COALESCE(pg_catalog.jsonb_object_agg(b.relation, c.written), '{}'),
        'gone', COALESCE(pg_catalog.jsonb_object_agg(b.relation, c.gone), '{}'))
    FROM bullfrog.bases(burdens, refs) b
    CROSS JOIN LATERAL bullfrog.changes_since(b.relation, (since ->> 'position')::bigint, (since ->> 'horizon')::bigint, b.of_written, b.of_gone) c
$$;
COMMENT ON FUNCTION bullfrog.changes(jsonb, jsonb[], jsonb) IS 'Of each table that is looked at the places of rows that were written since a moment, and of those that are gone; NULL: of too many.';

CREATE FUNCTION bullfrog.most_places() RETURNS int
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 100000
$$;
COMMENT ON FUNCTION bullfrog.most_places() IS 'More new rows than these are not looked at one by one.';

CREATE FUNCTION bullfrog.reconsider(target bullfrog.target, places tid[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    there CONSTANT bigint[] := ARRAY(SELECT e::bigint FROM bullfrog.evaluate(target.new_table, format(
        'SELECT to_jsonb(bullfrog.place(bullfrog_tid)) FROM bullfrog.all_%s WHERE bullfrog_tid = ANY (ARRAY(SELECT format(''(%%s,%%s)'', q.place >> 16, '
            'q.place & 65535)::tid FROM bullfrog.quarantined q WHERE q.target = %1$s))', target.id)) e);
BEGIN
    DELETE FROM bullfrog.quarantined q WHERE q.target = target.id
        AND (q.place <> ALL (there) OR q.place IN (SELECT bullfrog.place(p) FROM unnest(places) p));
END
$$;
COMMENT ON FUNCTION bullfrog.reconsider(bullfrog.target, tid[]) IS 'Takes rows out of quarantine that are gone, or that were written since: these are looked at '
    'again.';

CREATE FUNCTION bullfrog.check_written(target bullfrog.target, checks text, burden jsonb, places text) RETURNS void
    -- What was written just now is in memory.
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET random_page_cost = 1 AS $$
DECLARE
    chosen CONSTANT text := CASE WHEN places IS NULL THEN 'true' ELSE format('bullfrog_tid = ANY (%L::tid[])', places) END;
BEGIN
    IF checks = 'quarantine' THEN
        IF places IS NULL THEN
            DELETE FROM bullfrog.quarantined q WHERE q.target = target.id;
        ELSE
            PERFORM bullfrog.reconsider(target, places::tid[]);
        END IF;
    END IF;
    IF places = '{}' THEN
        RETURN;
    END IF;
    IF checks = 'warn' THEN
        PERFORM bullfrog.evaluate(target.new_table, q.query) FROM bullfrog.questions(target, burden, bullfrog.rows_where(target, chosen)) q
            WHERE q.what IS NULL;
    ELSE
        PERFORM bullfrog.check_rows(target, checks, burden, bullfrog.rows_where(target, chosen));
    END IF;
    IF checks = 'before' AND places IS NULL THEN
        PERFORM bullfrog.check_keys(target, checks, burden);
        PERFORM bullfrog.add_keys(target, k, bullfrog.rows_where(target, 'true')) FROM unnest(bullfrog.oids_of(burden, 'keys')) k;
    ELSIF checks = 'before' THEN
        PERFORM bullfrog.check_kept_keys(target, checks, burden, chosen);
    ELSIF checks = 'quarantine' AND places IS NULL THEN
        PERFORM bullfrog.begin_doubles(target, burden);
    ELSIF checks = 'quarantine' THEN
        PERFORM bullfrog.add_doubles(target, burden, chosen);
    END IF;
    PERFORM bullfrog.advance_identities(target, ARRAY(SELECT jsonb_array_elements_text(burden -> 'identities'))::name[], bullfrog.rows_where(target, chosen));
END
$$;
COMMENT ON FUNCTION bullfrog.check_written(bullfrog.target, text, jsonb, text) IS 'Looks at those rows again that were written since others looked at them. NULL: these are '
    'too many to be told, so at all.';

CREATE FUNCTION bullfrog.cost(target bullfrog.target, transformed text) RETURNS float8
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT (bullfrog.explain(target.new_table, 'SELECT * FROM ' || transformed) -> 0 -> 'Plan' ->> 'Total Cost')::float8
$$;
COMMENT ON FUNCTION bullfrog.cost(bullfrog.target, text) IS 'What it costs to read rows, as bullfrog.rows_where names them, as the planner estimates.';

CREATE FUNCTION bullfrog.least_cost() RETURNS float8
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 100000.0::float8
$$;
COMMENT ON FUNCTION bullfrog.least_cost() IS 'What the planner says of what takes about a second: what costs less is done, whatever else would be cheaper.';

CREATE FUNCTION bullfrog.affected(target bullfrog.target, burden jsonb, changes jsonb, OUT transformed text, OUT named text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET random_page_cost = 1 AS $$
DECLARE
    members CONSTANT text := format('bullfrog.members_%s', target.id);
    is_grouped CONSTANT boolean := target.granule = 'group';
    keys record;
    place record;
    is_gone boolean;
    places text;
    found text[] := '{}';
    by_key text;
    query text;
BEGIN
    transformed := bullfrog.rows_where(target, 'true');
    SELECT string_agg(format('%I::text', a.attname), ', ' ORDER BY a.attnum) AS texts, string_agg(format('(k.k ->> %s)::%s AS %I', a.n - 1,
            format_type(a.atttypid, -1), a.attname), ', ' ORDER BY a.attnum) AS named, bool_and(bullfrog.is_its_text(a.atttypid)) AS are_texts
        INTO keys FROM (SELECT a.*, row_number() OVER (ORDER BY a.attnum) AS n FROM pg_attribute a WHERE a.attrelid = members::regclass
            AND a.attname LIKE 'bullfrog\_key\_%') a;
    IF is_grouped AND NOT keys.are_texts THEN
        RETURN;
    END IF;
    FOR place IN SELECT a.attname AS name, split_part(a.attname, '_', 3) AS relation FROM pg_attribute a WHERE a.attrelid = members::regclass
        AND a.attname LIKE 'bullfrog\_place\_%' ORDER BY a.attnum LOOP
        FOREACH is_gone IN ARRAY ARRAY[false, true] LOOP
            places := changes -> CASE WHEN is_gone THEN 'gone' ELSE 'written' END ->> place.relation;
            IF places IS NULL THEN
                RETURN;
            END IF;
            -- What is gone was a part of new rows at the look before.
            IF places <> '{}' THEN
                query := format('SELECT DISTINCT %s FROM %s WHERE %I = ANY (%L::tid[])',
                    CASE WHEN is_grouped THEN format('to_jsonb(ARRAY[%s])::text', keys.texts) ELSE 'bullfrog_tid::text' END, members, place.name, places);
                -- Each of these rows may be joined with very many.
                IF bullfrog.cost(target, format('(%s) q', query)) > greatest(bullfrog.cost(target, transformed), bullfrog.least_cost()) THEN
                    RETURN;
                END IF;
                found := found || ARRAY(SELECT e FROM bullfrog.looked_up(target.new_table, query || format(' LIMIT %s', bullfrog.most_places() + 1), is_gone) e);
            END IF;
            IF cardinality(found) > bullfrog.most_places() THEN
                RETURN;
            END IF;
        END LOOP;
    END LOOP;
    IF found = '{}' THEN
        transformed := NULL;
    ELSIF is_grouped THEN
        -- Keys that are equal may have several texts.
        named := format('(SELECT %s FROM unnest(%L::jsonb[]) AS k (k)) k', keys.named, ARRAY(SELECT DISTINCT f::jsonb FROM unnest(found) f));
        by_key := format('(SELECT DISTINCT ON (t.bullfrog_tid) t.* FROM %s CROSS JOIN LATERAL (SELECT * FROM bullfrog.transformed_%s t WHERE %s OFFSET 0) AS t) t',
            named, target.id, burden ->> 'same_group');
        -- Without an index of the key each group reads the whole table.
        IF bullfrog.cost(target, by_key) < bullfrog.cost(target, transformed) THEN
            transformed := by_key;
        ELSE
            named := NULL;
        END IF;
    ELSE
        named := format('(SELECT unnest(%L::tid[]) AS bullfrog_tid) k', found);
        transformed := bullfrog.rows_where(target, format('bullfrog_tid = ANY (%L::tid[])', found));
    END IF;
END
$$;
COMMENT ON FUNCTION bullfrog.affected(bullfrog.target, jsonb, jsonb) IS 'Those rows of a new table, made of groups or by a join, that may be others than at the look before, '
    'for FROM: one of their old rows was written or is gone since; NULL: there are none. And the granules k whose rows these are, or were, for FROM, too; NULL: all.';

CREATE FUNCTION bullfrog.check_looked_at(target bullfrog.target, burden jsonb, changes jsonb) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET random_page_cost = 1 AS $$
DECLARE
    transformed text := bullfrog.rows_where(target, 'true');
    named text;
    question record;
BEGIN
    IF changes IS NOT NULL THEN
        SELECT a.transformed, a.named INTO transformed, named FROM bullfrog.affected(target, burden, changes) a;
    END IF;
    IF transformed IS NULL THEN
        RETURN;
    END IF;
    FOR question IN SELECT * FROM bullfrog.questions(target, burden, transformed) LOOP
        IF question.what IS NULL THEN
            PERFORM bullfrog.looked_up(target.new_table, question.query, false);
        ELSE
            PERFORM bullfrog.require_none(target, question.what, question.query);
        END IF;
    END LOOP;
    PERFORM bullfrog.renew_keys(target, burden, transformed, named);
    PERFORM bullfrog.require_unique(target, burden, named);
    PERFORM bullfrog.advance_identities(target, ARRAY(SELECT jsonb_array_elements_text(burden -> 'identities'))::name[], transformed);
END
$$;
COMMENT ON FUNCTION bullfrog.check_looked_at(bullfrog.target, jsonb, jsonb) IS 'Checks that groups, or rows of a join, can be rows of the new table: those that may be '
    'others than at the look before. NULL: all.';

CREATE FUNCTION bullfrog.look_ahead(burdens jsonb, refs jsonb[], checks text) RETURNS jsonb
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tables CONSTANT oid[] := ARRAY(SELECT b.relation FROM bullfrog.bases(burdens, refs) b);
    target bullfrog.target;
    reference jsonb;
    burden jsonb;
    since jsonb;
    now_seen jsonb;
    changes jsonb;
    began timestamptz;
    took interval;
    longest interval;
BEGIN
    IF tables = '{}' THEN
        RETURN NULL;
    END IF;
    FOR round IN 1..10 LOOP
        began := clock_timestamp();
        BEGIN
            now_seen := bullfrog.moment(tables);
        EXCEPTION WHEN lock_not_available THEN
            -- What was seen before somebody took that long is not lost.
            IF since IS NULL THEN
                RAISE;
            END IF;
            EXIT;
        END;
        PERFORM bullfrog.begin_look(since IS NULL);
        changes := CASE WHEN since IS NOT NULL THEN bullfrog.changes(burdens, refs, since) END;
        FOR target IN SELECT * FROM bullfrog.target t WHERE (burdens -> t.id::text ->> 'ahead')::boolean ORDER BY t.id LOOP
            burden := burdens -> target.id::text;
            IF NOT bullfrog.is_image(target) THEN
                PERFORM bullfrog.check_looked_at(target, burden, changes);
                CONTINUE;
            END IF;
            IF since IS NOT NULL THEN
                PERFORM bullfrog.check_written(target, checks, burden, changes -> 'written' ->> target.old_tables[1]::text);
                IF checks = 'quarantine' THEN
                    PERFORM bullfrog.drop_doubles(target, burden);
                END IF;
                CONTINUE;
            END IF;
            PERFORM bullfrog.check_rows(target, checks, burden, bullfrog.rows_where(target, 'true'));
            IF checks = 'before' THEN
                PERFORM bullfrog.check_keys(target, checks, burden);
                PERFORM bullfrog.keep_keys(target, burden, false);
            ELSIF checks = 'quarantine' THEN
                PERFORM bullfrog.begin_doubles(target, burden);
            END IF;
            PERFORM bullfrog.advance_identities(target, ARRAY(SELECT jsonb_array_elements_text(burden -> 'identities'))::name[],
                bullfrog.rows_where(target, 'true'));
        END LOOP;
        FOREACH reference IN ARRAY refs LOOP
            IF checks = 'quarantine' THEN
                PERFORM bullfrog.note_orphans(reference, changes);
            ELSE
                PERFORM bullfrog.check_reference(reference, changes);
            END IF;
        END LOOP;
        since := now_seen;
        took := clock_timestamp() - began;
        PERFORM bullfrog.reach('switch: rows seen ahead');
        EXIT WHEN took < '50 ms' OR took > longest;
        longest := took * 0.75;
    END LOOP;
    RETURN since;
END
$$;
COMMENT ON FUNCTION bullfrog.look_ahead(jsonb, jsonb[], text) IS 'Looks at all rows of old tables, and of those that foreign keys are about, while clients go on, then in rounds at what was written '
    'during the one before, as long as they get shorter. Tells since when rows were not looked at; NULL: there is nothing to be seen ahead.';
