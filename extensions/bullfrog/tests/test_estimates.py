"""Plans are good from the switch on, and while tables fill, without anybody's ANALYZE."""

import json

import psycopg
import pytest

from conftest import SPLIT, migrate


def nodes(plan):
    return [plan] + [node for child in plan.get("Plans", []) for node in nodes(child)]


def plan(connection, statement):
    """The nodes of a plan."""
    (explained,) = connection.execute(f"EXPLAIN (FORMAT JSON) {statement}", prepare=False).fetchone()
    return nodes((explained if isinstance(explained, list) else json.loads(explained))[0]["Plan"])


def scans(connection, statement, table):
    return {node["Node Type"] for node in plan(connection, statement)
        if node.get("Relation Name") == table and node["Node Type"] != "ModifyTable"}


@pytest.fixture
def many(customers):
    """Enough customers that nobody would read all of them for one; nothing analyses tables by itself."""
    customers.execute("""
        INSERT INTO customer SELECT n, 'name ' || n, 's' || n, 'nick ' || n, 'city ' || n % 10 FROM generate_series(2001, 20000) n;
        ANALYZE customer""")
    return customers


LOOKUPS = ["SELECT * FROM customer_private WHERE id = 5", "SELECT * FROM customer_public WHERE nick = 'nick 7'",
    "UPDATE customer_private SET name = 'x' WHERE id = 5"]


@pytest.mark.parametrize("statement", LOOKUPS)
def test_the_empty_new_table_is_read_by_its_index_right_after_the_switch(many, statement):
    migrate(many, SPLIT, "split")
    new = "customer_public" if "public" in statement else "customer_private"
    for table in [new] + ["customer"] * ("id" in statement):
        assert scans(many, statement, table) <= {"Index Scan", "Bitmap Heap Scan"}


def test_whether_a_row_was_moved_is_a_condition_of_its_scan(many):
    """Not a join: there is little to plan, and nothing to turn around."""
    migrate(many, SPLIT, "split")
    kinds = [node["Node Type"] for node in plan(many, LOOKUPS[0])]
    assert sorted(set(kinds)) == ["Append", "Index Scan"]
    assert [node["Relation Name"] for node in plan(many, LOOKUPS[0]) if "is_page_moved" in node.get("Filter", "")] == ["customer"]


def test_a_plan_that_was_kept_from_the_switch_on_reads_the_full_table_by_its_index(many):
    migrate(many, SPLIT, "split", ", granularity => 'tuple'")
    many.execute("ALTER TABLE customer_public SET (autovacuum_enabled = off); SET plan_cache_mode = force_generic_plan")
    many.execute("PREPARE one AS SELECT * FROM customer_public WHERE nick = $1")
    many.execute("EXECUTE one ('nick 1')")
    many.execute("SELECT bullfrog.sweep(id, ARRAY(SELECT generate_series(0, pages - 1))) FROM bullfrog.source")
    assert "Seq Scan" not in scans(many, "EXECUTE one ('nick 1')", "customer_public")


def test_without_the_expected_size_the_empty_table_would_be_read_as_a_whole(many):
    """The check of the tests above notices it."""
    migrate(many, SPLIT, "split")
    many.execute("UPDATE bullfrog.target SET rows = 0, pages = 0; SELECT bullfrog.announce('bullfrog.target')")
    many.execute("VACUUM customer_public")
    assert scans(many, LOOKUPS[1], "customer_public") == {"Seq Scan"}


def test_a_key_of_several_columns_is_used_as_a_whole(customers):
    """Not another index that begins with two of them: it would give all customers of a district."""
    customers.execute("""
        CREATE TABLE person (w int, d int, id int, name text, pad text, PRIMARY KEY (w, d, id));
        INSERT INTO person SELECT n % 4, n / 4 % 10, n / 40, 'name ' || n % 1000, repeat('.', 100) FROM generate_series(0, 39999) n;
        ANALYZE person""")
    migrate(customers, """
        CREATE TABLE slim AS SELECT w, d, id, name FROM person;
        CREATE INDEX ON slim (w, d, name); ALTER TABLE slim ADD PRIMARY KEY (w, d, id)""")
    customers.execute("SET plan_cache_mode = force_generic_plan")
    customers.execute("PREPARE one AS SELECT * FROM slim WHERE w = $1 AND d = $2 AND id = $3")
    used = {node["Index Name"] for node in plan(customers, "EXECUTE one (1, 2, 3)") if "Index Name" in node}
    assert used == {"slim_pkey", "person_pkey"}


def test_columns_of_the_old_table_keep_their_statistics(many):
    # Of a column that nobody knows, half a percent of the rows are taken to be equal to something.
    migrate(many, SPLIT, "split")
    estimate = "SELECT * FROM customer_public WHERE nick = 'nick 7'"
    assert plan(many, estimate)[0]["Plan Rows"] <= 3
    assert many.execute("SELECT count(*) FROM pg_stats WHERE tablename = 'customer_private'").fetchone() == (3,)
    many.execute("DELETE FROM pg_statistic WHERE starelid = 'customer_public'::regclass; SELECT bullfrog.announce('customer_public')")
    assert plan(many, estimate)[0]["Plan Rows"] > 50
    many.execute("SELECT bullfrog.finish('split'); ANALYZE customer_private")


def test_a_check_that_is_not_immutable_is_refused(customers):
    customers.execute("CREATE FUNCTION fickle(int) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT now() IS NOT NULL AND $1 > 0'")
    for check in ("fickle(id)", "id < extract(epoch FROM now())", "random() < 2"):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="not immutable"):
            migrate(customers, f"CREATE TABLE t AS SELECT id, name FROM customer; ALTER TABLE t ADD CONSTRAINT c CHECK ({check})")
    migrate(customers, """
        CREATE TABLE t AS SELECT id, name, NULL::timestamptz AS since FROM customer; ALTER TABLE t ADD CHECK (id > 0 AND length(name) < 50);
        ALTER TABLE t ALTER COLUMN since SET DEFAULT now()""")
    # A default is for rows that clients insert: rows that move have all their values.
    customers.execute("INSERT INTO t (id, name) VALUES (5000, 'new'); SELECT bullfrog.finish('m')")
    assert customers.execute("SELECT id FROM t WHERE since IS NOT NULL").fetchall() == [(5000,)]


@pytest.mark.parametrize("index", ["CREATE INDEX ON t ((1 / (id - 7)))", "CREATE INDEX ON t (name) WHERE 1 / (id - 7) > 0"])
def test_an_index_that_has_no_value_for_a_row_stops_the_switch(customers, index):
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(customers, f"CREATE TABLE t AS SELECT id, name FROM customer; {index}")
    assert customers.execute("SELECT count(*) FROM customer").fetchone() == (1000,)


def test_new_tables_that_are_replicated_are_refused(customers):
    """A subscriber would copy the rows that are not moved yet, and get them again when they move."""
    customers.execute("CREATE SCHEMA new; CREATE PUBLICATION p FOR TABLES IN SCHEMA new")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="publication p has it"):
        migrate(customers, "CREATE TABLE new.t AS SELECT id, name FROM customer")
    migrate(customers, "CREATE TABLE t AS SELECT id, name FROM customer")
    for statement in ("ALTER PUBLICATION p ADD TABLE t", "ALTER PUBLICATION p ADD TABLES IN SCHEMA public"):
        with pytest.raises(psycopg.errors.ObjectInUse):
            customers.execute(statement)
    customers.execute("SELECT bullfrog.finish('m')")
    customers.execute("ALTER PUBLICATION p ADD TABLE t")


@pytest.mark.parametrize("definition, options, shown", [
    ("SELECT id, nick FROM customer", "", True),
    ("SELECT id, nick FROM customer WHERE id > 50", "", False),
    ("SELECT c.id, c.nick FROM customer c JOIN shown s ON s.id = c.id", "", False),
    ("SELECT id, nick FROM customer", ", checks => 'quarantine'", False),
])
def test_statistics_tell_no_values_of_rows_that_the_new_table_does_not_get(customers, definition, options, shown):
    customers.execute("UPDATE customer SET nick = 'hidden' WHERE id <= 50; ALTER TABLE customer ALTER nick SET STATISTICS 1000; ANALYZE customer")
    customers.execute("CREATE TABLE shown AS SELECT id FROM customer WHERE id > 50; ALTER TABLE shown ADD PRIMARY KEY (id)")
    check = "; ALTER TABLE t ADD CHECK (nick <> 'hidden')" if options else ""
    migrate(customers, f"CREATE TABLE t AS {definition}; ALTER TABLE t ADD PRIMARY KEY (id){check}", options=options)
    told = "SELECT string_agg(s::text, '') LIKE '%hidden%', max(n_distinct) < 0 FROM pg_stats s WHERE tablename = 't' AND attname = 'nick'"
    assert customers.execute(told).fetchone() == (shown, True)
