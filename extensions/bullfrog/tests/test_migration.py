"""From the plan to the end: what is taken and what is refused, pause, finish, abort."""

import threading

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, migrate, moved, wait_until

KEYED = "CREATE TABLE t AS SELECT id, {} FROM customer; ALTER TABLE t ADD PRIMARY KEY (id)"


def test_the_plan_tells_kinds_and_obstacles_and_changes_nothing(customers):
    customers.execute("CREATE VIEW names AS SELECT name FROM customer")
    plan = customers.execute("SELECT new_table, old_tables::text, kind, note FROM bullfrog.plan('split', %s)", (SPLIT,)).fetchall()
    assert [row[:3] for row in plan] == [("public.customer_private", "{customer}", "1:n"), ("public.customer_public", "{customer}", "1:n")]
    assert "refused: public.names reads it" in plan[0][3]
    assert "evaluate town" in plan[1][3]
    assert customers.execute("SELECT to_regclass('customer_private'), count(*) FROM customer").fetchone() == (None, CUSTOMERS)


@pytest.mark.parametrize("query, why", [
    ("SELECT count(*) AS n FROM customer", "aggregates without GROUP BY"),
    ("SELECT city, array_agg(id) AS ids FROM customer GROUP BY city", "order of rows"),
    ("SELECT city, nick, count(*) AS n FROM customer GROUP BY CUBE (city, nick)", "CUBE"),
    ("SELECT a.city, b.nick, count(*) AS n FROM customer a JOIN customer b USING (id) GROUP BY 1, 2", "several tables"),
    ("SELECT b.city, count(*) AS n FROM customer a LEFT JOIN customer b USING (id) GROUP BY 1", "leave out"),
    ("SELECT a.id FROM customer a FULL JOIN customer b USING (id)", "FULL JOIN"),
    ("SELECT id FROM customer LIMIT 5", "LIMIT"),
    ("SELECT DISTINCT city FROM customer", "DISTINCT"),
    ("SELECT id, now() AS at FROM customer", "not immutable"),
    ("SELECT id, random() AS r FROM customer", "not immutable"),
    ("SELECT id, nextval('s') AS n FROM customer", "not immutable"),
    ("SELECT id, ctid AS place FROM customer", "system columns"),
    ("SELECT customer AS row FROM customer", "whole rows"),
    ("SELECT id FROM customer WHERE id IN (SELECT 1)", "subqueries"),
    ("SELECT id FROM customer UNION SELECT 1", "UNION"),
    ("SELECT generate_series(1, 2) AS g FROM customer", "sets"),
    ("SELECT 1 AS one", "no table"),
    ("SELECT id FROM people", "ordinary table"),
])
def test_definitions_that_are_not_supported_are_refused(shared_customers, query, why):
    shared_customers.execute("CREATE SEQUENCE IF NOT EXISTS s; CREATE OR REPLACE VIEW people AS SELECT 1 AS id")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=why) as error:
        migrate(shared_customers, f"CREATE TABLE t AS {query}")
    assert error.value.diag.message_hint
    assert shared_customers.execute("SELECT count(*) FROM customer").fetchone() == (CUSTOMERS,)


@pytest.mark.parametrize("statement", [
    "DROP TABLE customer", "SELECT 1", "CREATE TABLE u (id int)", "ALTER TABLE customer ADD COLUMN x int", "ALTER TABLE t ADD COLUMN x int",
    "ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES customer", "ALTER TABLE customer DROP CONSTRAINT customer_pkey",
    "ALTER TABLE customer ADD FOREIGN KEY (id) REFERENCES customer", "ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES t DEFERRABLE",
    "CREATE UNIQUE INDEX ON t (id) NULLS NOT DISTINCT", "CREATE TEMPORARY TABLE u AS SELECT id FROM customer",
    "ALTER TABLE t ADD UNIQUE (id) DEFERRABLE", "CREATE MATERIALIZED VIEW v AS SELECT id FROM customer", "CREATE INDEX ON customer (name)",
])
def test_statements_that_are_not_supported_are_refused(shared_customers, statement):
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        migrate(shared_customers, f"CREATE TABLE t AS SELECT id FROM customer; {statement}")
    assert shared_customers.execute("SELECT to_regclass('t')").fetchone() == (None,)


@pytest.mark.parametrize("setup, why", [
    ("CREATE VIEW v AS SELECT * FROM customer", "v reads it"),
    ("CREATE TABLE o (c int REFERENCES customer)", "foreign key o_c_fkey of public.o refers to it"),
    ("ALTER TABLE customer ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY", "row-level security that is FORCEd"),
    ("CREATE TABLE child () INHERITS (customer)", "child inherits"),
    ("CREATE RULE r AS ON DELETE TO customer DO INSTEAD NOTHING", "rule"),
    ("CREATE PUBLICATION p FOR TABLE customer", "publication"),
    ("ALTER TABLE customer SET UNLOGGED", "not a permanent table"),
])
def test_tables_that_something_depends_on_are_refused(shared_customers, setup, why):
    shared_customers.execute("BEGIN")
    shared_customers.execute(setup)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=why):
        migrate(shared_customers, "CREATE TABLE t AS SELECT id FROM customer")
    shared_customers.execute("ROLLBACK")


@pytest.mark.parametrize("setup, before, after", [
    ("CREATE VIEW v AS SELECT id, name FROM customer", "DROP VIEW v", "CREATE VIEW v AS SELECT id, name FROM t"),
    ("CREATE FUNCTION v() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM customer; END", "DROP FUNCTION v()",
        "CREATE FUNCTION v() RETURNS bigint BEGIN ATOMIC SELECT count(*) FROM t; END"),
    ("CREATE TABLE child () INHERITS (customer)", "ALTER TABLE child NO INHERIT customer", ""),
    ("ALTER TABLE customer SET UNLOGGED", "ALTER TABLE customer SET LOGGED", ""),
    ("CREATE PUBLICATION p FOR TABLE customer", "ALTER PUBLICATION p DROP TABLE customer", ""),
    ("CREATE POLICY odd ON customer USING (id % 2 = 1); ALTER TABLE customer ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        "ALTER TABLE customer NO FORCE ROW LEVEL SECURITY", "CREATE VIEW odd WITH (security_barrier) AS SELECT * FROM t WHERE id % 2 = 1"),
    ("CREATE TABLE parts (LIKE customer) PARTITION BY RANGE (id); ALTER TABLE parts ATTACH PARTITION customer FOR VALUES FROM (0) TO (9999)",
        "ALTER TABLE parts DETACH PARTITION customer", ""),
])
def test_what_stands_in_the_way_of_a_switch_has_a_way_around_in_its_transaction(shared_customers, setup, before, after):
    shared_customers.execute("BEGIN")
    shared_customers.execute(setup)
    definition = "CREATE TABLE t AS SELECT id, name FROM customer"
    assert "refused: " in shared_customers.execute("SELECT note FROM bullfrog.plan('m', %s)", (definition,)).fetchone()[0]
    shared_customers.execute(before)
    migrate(shared_customers, definition)
    shared_customers.execute(after or "SELECT 1")
    assert shared_customers.execute("SELECT count(*) FROM t").fetchone() == (CUSTOMERS,)
    shared_customers.execute("ROLLBACK")


@pytest.mark.parametrize("options, rows", [(", granularity => 'tuple'", 1), ("", 28)])
def test_progress_is_told_in_rows_of_the_old_table(customers, options, rows):
    migrate(customers, KEYED.format("name"), options=options)
    told = "SELECT old_rows, old_rows_moved FROM bullfrog.progress"
    assert customers.execute(told).fetchone() == (CUSTOMERS, 0)
    customers.execute("UPDATE t SET name = 'x' WHERE id = 7")
    assert customers.execute(told).fetchone() == (CUSTOMERS, pytest.approx(rows, abs=rows // 4))
    customers.execute("UPDATE t SET name = 'x'")
    assert customers.execute(told).fetchone() == (CUSTOMERS, CUSTOMERS)


def test_views_that_go_along_read_cold_rows_and_moved_ones(customers):
    customers.execute("CREATE VIEW v AS SELECT id, name FROM customer; BEGIN; DROP VIEW v")
    migrate(customers, KEYED.format("name"))
    customers.execute("CREATE VIEW v AS SELECT id, name FROM t; COMMIT")
    assert customers.execute("UPDATE v SET name = 'x' WHERE id = 7").rowcount == 1
    assert customers.execute("SELECT count(*), count(*) FILTER (WHERE name = 'x') FROM v").fetchone() == (CUSTOMERS, 1)
    customers.execute("SELECT bullfrog.finish('m')")
    assert customers.execute("SELECT count(*) FROM v").fetchone() == (CUSTOMERS,)


@pytest.mark.parametrize("definition, why", [
    ("CREATE TABLE t AS SELECT id, city FROM customer; ALTER TABLE t ADD UNIQUE (city)", "unique index"),
    ("CREATE TABLE t AS SELECT id, nullif(id, 7) AS n FROM customer; ALTER TABLE t ALTER COLUMN n SET NOT NULL", "NOT NULL of n"),
    ("CREATE TABLE t AS SELECT id FROM customer; ALTER TABLE t ADD CONSTRAINT small CHECK (id < 1000)", "check small"),
])
def test_rows_that_would_violate_a_constraint_stop_the_switch(shared_customers, definition, why):
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match=why):
        migrate(shared_customers, definition)
    assert shared_customers.execute("SELECT count(*) FROM customer").fetchone() == (CUSTOMERS,)


@pytest.mark.parametrize("definition", [
    KEYED.format("1000 / (id - 7) AS share"), "CREATE TABLE t AS SELECT id FROM customer WHERE 1000 / (id - 7) > 0",
    "CREATE TABLE t AS SELECT city, sum(1000 / (id - 7)) AS n FROM customer GROUP BY city", "CREATE TABLE t AS SELECT count(*) AS n"
    " FROM customer GROUP BY 1000 / (id - 7)",
])
def test_an_expression_that_fails_for_a_row_stops_the_switch(shared_customers, definition):
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(shared_customers, definition)


def test_where_chooses_the_rows_that_move(customers):
    migrate(customers, "CREATE TABLE t (number, short) AS SELECT id, left(name, 6)::varchar(6) FROM customer WHERE id % 2 = 0")
    assert customers.execute("SELECT count(*), max(number) FROM t").fetchone() == (500, 1000)
    customers.execute("UPDATE t SET short = 'x' WHERE number <= 100")
    customers.execute("SELECT bullfrog.finish('m')")
    assert customers.execute("SELECT count(*), count(*) FILTER (WHERE short = 'x') FROM t").fetchone() == (500, 50)


def test_finish_leaves_ordinary_tables_and_nothing_else(split):
    split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    split.execute("SELECT bullfrog.finish('split')")
    assert split.execute("SELECT to_regclass('customer'), count(*) FROM bullfrog.progress").fetchone() == (None, 0)
    assert split.execute("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'bullfrog%'").fetchone() == (0,)
    wait_until(lambda: split.execute("SELECT count(*) FROM bullfrog.moved").fetchone() == (0,), "movers have forgotten what they moved")
    assert split.execute("SELECT count(ctid) FROM ONLY customer_private").fetchone() == (CUSTOMERS,)
    split.execute("ALTER TABLE customer_private ADD COLUMN more int")
    assert split.execute("SELECT phase FROM bullfrog.migration").fetchone() == ("finished",)
    with pytest.raises(psycopg.errors.UndefinedObject):
        split.execute("SELECT bullfrog.finish('split')")


def test_finish_may_keep_the_old_table(split):
    split.execute("SELECT bullfrog.finish('split', keep_old => true)")
    assert split.execute("SELECT count(*) FROM customer").fetchone() == (CUSTOMERS,)


def test_finish_waits_for_snapshots_that_do_not_see_the_last_move(database, split):
    reader = database.connect()
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT 1")
    with pytest.raises(psycopg.errors.ObjectInUse, match=f"process {reader.info.backend_pid}"):
        split.execute("SELECT bullfrog.finish('split')")
    assert reader.execute("SELECT count(*) FROM customer_private").fetchone() == (CUSTOMERS,)
    reader.execute("COMMIT")
    split.execute("SELECT bullfrog.finish('split')")


@pytest.mark.parametrize("end", ["finish", "abort"])
def test_a_migration_ends_under_load(database, split, end):
    """Clients lock both new tables, in either order: the end takes all of its locks or none."""
    clients = [database.connect() for _ in range(4)]
    has_ended = threading.Event()

    def work(number):
        tables = ["customer_private", "customer_public"]
        while not has_ended.is_set():
            try:
                with clients[number].transaction():
                    for table in tables if number % 2 else reversed(tables):
                        clients[number].execute(f"SELECT count(*) FROM {table} WHERE id % 4 = {number}")
            except (psycopg.errors.DeadlockDetected, psycopg.errors.UndefinedTable):
                pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        split.execute("SET lock_timeout = '60s'")
        if end == "finish":
            split.execute("SELECT bullfrog.sweep(id, ARRAY(SELECT generate_series(0, pages - 1))) FROM bullfrog.source")
        while True:
            try:
                split.execute(f"SELECT bullfrog.{end}('split')")
                break
            except psycopg.errors.ObjectInUse:
                pass
    finally:
        has_ended.set()
        for thread in threads:
            thread.join()
    assert split.execute("SHOW lock_timeout").fetchone() == ("1min",)
    assert split.execute(f"SELECT count(*) FROM {'customer_private' if end == 'finish' else 'customer'}").fetchone() == (CUSTOMERS,)


def test_abort_brings_the_old_schema_back(split):
    split.execute("SELECT FROM customer_private WHERE id = 1 FOR UPDATE")
    assert moved(split) == 1
    split.execute("SELECT bullfrog.abort('split')")
    assert split.execute("SELECT count(*), to_regclass('customer_private') FROM customer").fetchone() == (CUSTOMERS, None)
    split.execute("UPDATE customer SET name = 'x' WHERE id = 1")
    migrate(split, SPLIT, "split")
    assert split.execute("SELECT name FROM customer_private WHERE id = 1").fetchone() == ("x",)


def test_abort_is_refused_when_it_would_lose_writes(split):
    """An old row has no place for a town that is not that of its city."""
    split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1; UPDATE customer_public SET town = 'y' WHERE id = 2")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="written to public.customer_p"):
        split.execute("SELECT bullfrog.abort('split')")
    assert split.execute("SELECT name FROM customer_private WHERE id = 1").fetchone() == ("x",)
    split.execute("SELECT bullfrog.abort('split', discard_writes => true)")
    assert split.execute("SELECT name FROM customer WHERE id = 1").fetchone() == ("name 1",)


@pytest.mark.parametrize("statement", [
    "DROP TABLE customer_private CASCADE", "DROP TABLE customer CASCADE", "TRUNCATE customer_public", "TRUNCATE customer",
    "ALTER TABLE customer_private ADD COLUMN x int",
    "ALTER TABLE customer ADD COLUMN x int", "ALTER TABLE customer_private RENAME TO other", "ALTER TABLE customer_public ENABLE ROW"
    " LEVEL SECURITY",
    "CREATE TABLE o (c int REFERENCES customer_private)", "CREATE UNIQUE INDEX ON customer_public (nick)", "VACUUM FULL customer",
    "VACUUM FULL",
    "CLUSTER customer USING customer_pkey", "DROP EXTENSION bullfrog CASCADE", "ALTER TABLE customer_private DISABLE TRIGGER ALL",
    "CREATE RULE r AS ON DELETE TO customer_private DO INSTEAD NOTHING", "DROP SCHEMA public CASCADE",
    "CREATE TABLE child () INHERITS (customer_public)", "CREATE PUBLICATION p FOR TABLE customer_public",
    "CREATE PUBLICATION p FOR ALL TABLES", "CREATE PUBLICATION p FOR TABLES IN SCHEMA public",
    "REINDEX INDEX CONCURRENTLY customer_private_pkey", "REINDEX TABLE CONCURRENTLY customer", "REINDEX (CONCURRENTLY) SCHEMA public",
    "CREATE VIEW v AS SELECT * FROM customer", "CREATE MATERIALIZED VIEW v AS SELECT * FROM customer WITH NO DATA",
    "CREATE FUNCTION f() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM customer; END",
    "DROP INDEX CONCURRENTLY customer_public_nick_idx", "DROP INDEX CONCURRENTLY IF EXISTS public.customer_public_nick_idx",
])
def test_what_would_change_a_table_on_the_move_is_refused(shared_split, statement):
    with pytest.raises(psycopg.errors.ObjectInUse):
        shared_split.execute(statement)
    assert shared_split.execute("SELECT count(*) FROM customer_private JOIN customer_public USING (id)").fetchone() == (CUSTOMERS,)


@pytest.mark.parametrize("statement", [
    "VACUUM customer_public", "VACUUM ANALYZE customer", "ANALYZE customer_private", "CREATE INDEX ON customer_public (town)",
    "GRANT SELECT ON customer_public TO PUBLIC", "COMMENT ON TABLE customer_public IS 'new'", "CREATE TABLE other (id int)",
    "REINDEX TABLE customer_public", "CREATE VIEW public_names AS SELECT id, nick FROM customer_public",
    "CREATE TABLE one_more (id int PRIMARY KEY)", "REINDEX TABLE CONCURRENTLY unrelated", "CREATE INDEX ON unrelated (id)",
    "DROP INDEX CONCURRENTLY another", "DROP INDEX CONCURRENTLY IF EXISTS another",
])
def test_what_changes_nothing_that_a_migration_relies_on_is_done(shared_split, statement):
    shared_split.execute("CREATE TABLE IF NOT EXISTS unrelated (id int PRIMARY KEY)")
    shared_split.execute("CREATE INDEX IF NOT EXISTS another ON unrelated (id)")
    shared_split.execute(statement)
    assert shared_split.execute("SELECT count(*) FROM customer_private JOIN customer_public USING (id)").fetchone() == (CUSTOMERS,)


def test_a_rule_of_another_table_does_not_keep_an_old_one(split):
    split.execute("CREATE TABLE other (id int)")
    with pytest.raises(psycopg.errors.ObjectInUse):
        split.execute("CREATE RULE r AS ON INSERT TO other DO ALSO UPDATE customer SET name = '' WHERE id = NEW.id")
    split.execute("SELECT bullfrog.finish('split')")


def test_two_migrations_of_different_tables_at_once(split):
    split.execute("CREATE TABLE item AS SELECT i AS sku, i * 2 AS cap FROM generate_series(1, 100) i")
    migrate(split, "CREATE TABLE article AS SELECT sku AS code, cap, NULL AS note FROM item", "articles")
    split.execute("UPDATE article SET cap = 0 WHERE code = 1")
    split.execute("SELECT bullfrog.finish('articles')")
    assert split.execute("SELECT count(*), sum(cap) FROM article").fetchone() == (100, 10098)
    assert split.execute("SELECT count(*) FROM customer_private").fetchone() == (CUSTOMERS,)
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="is filling it"):
        migrate(split, "CREATE TABLE t AS SELECT id FROM customer_private", "second")


@pytest.mark.parametrize(("table", "why"), [("customer", "the migration split is moving it"),
    ("customer_private", "the migration split is filling it")])
def test_a_migration_on_top_of_an_unfinished_one_is_refused(split, table, why):
    with pytest.raises(psycopg.errors.FeatureNotSupported, match=why):
        migrate(split, f"CREATE TABLE next AS SELECT id FROM {table}", "next")
    (note,) = split.execute("SELECT note FROM bullfrog.plan('next', %s)", (f"CREATE TABLE next AS SELECT id FROM {table}",)).fetchone()
    assert why in note
    split.execute("SELECT bullfrog.finish('split')")
    migrate(split, "CREATE TABLE next AS SELECT id FROM customer_private", "next")
    assert split.execute("SELECT count(*) FROM next").fetchone() == (CUSTOMERS,)


def test_a_migration_starts_at_read_committed_by_who_may_start_it(customers):
    customers.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
    with pytest.raises(psycopg.errors.ActiveSqlTransaction):
        migrate(customers, SPLIT)
    customers.execute("ROLLBACK")
    customers.execute("CREATE ROLE nobody_special")
    try:
        customers.execute("SET ROLE nobody_special")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            migrate(customers, SPLIT)
    finally:
        customers.execute("RESET ROLE; DROP ROLE nobody_special")


def test_every_object_of_the_extension_has_a_comment(customers):
    without = customers.execute("""
        SELECT pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d
        WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'bullfrog')
            AND d.deptype = 'e'
            AND d.classid IN ('pg_proc'::regclass, 'pg_class'::regclass)
            AND (d.classid = 'pg_proc'::regclass OR (SELECT relkind FROM pg_class WHERE oid = d.objid) IN ('r', 'v'))
            AND obj_description(d.objid, d.classid::regclass::name) IS NULL""").fetchall()
    assert without == []
