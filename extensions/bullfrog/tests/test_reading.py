"""Queries read new tables as if all rows had been there from the switch on."""

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, migrate, moved, setting
from server import needs
from test_estimates import plan


def test_the_new_tables_have_all_rows_at_once_and_nothing_was_moved(split):
    assert split.execute("SELECT count(*), sum(id) FROM customer_private").fetchone() == (CUSTOMERS, 500500)
    assert split.execute("SELECT nick, left(town, 6) FROM customer_public WHERE id = 42").fetchone() == ("nick 42", "CITY 2")
    assert moved(split) == 0


def test_old_and_new_rows_join(split):
    rows = split.execute(
        "SELECT count(*) FROM customer_private a JOIN customer_public b USING (id) WHERE a.name = replace(b.nick, 'nick', 'name')"
    ).fetchone()
    assert rows == (CUSTOMERS,)


FUNCTIONS = {
    "text": "AS 'SELECT id, nick FROM customer_public WHERE id >= low'",
    "body": "BEGIN ATOMIC SELECT id, nick FROM customer_public WHERE id >= low; END",
}


@pytest.mark.parametrize("volatility", ["STABLE", "IMMUTABLE", "VOLATILE"])
@pytest.mark.parametrize("form", FUNCTIONS)
def test_a_function_that_the_planner_might_take_in_reads_both_parts(split, form, volatility):
    split.execute(f"CREATE FUNCTION f(low int) RETURNS TABLE (id int, nick text) LANGUAGE sql {volatility} {FUNCTIONS[form]}")
    split.execute("CREATE VIEW v AS SELECT * FROM f(990)")
    split.execute("UPDATE customer_public SET town = '' WHERE id = 1")
    for query, count in {
        "SELECT count(*) FROM f(1)": CUSTOMERS,
        "SELECT count(*) FROM v": 11,
        "SELECT count(*) FROM generate_series(998, 1000) low, LATERAL f(low)": 6,
        "SELECT count(*) FROM (SELECT f(990)) s": 11,
        "WITH w AS (UPDATE customer_private p SET name = 'x' FROM f(991) WHERE f.id = p.id RETURNING 1) SELECT count(*) FROM w": 10,
    }.items():
        assert split.execute(query).fetchone() == (count,), query


def test_an_old_table_is_closed_also_for_a_function_that_the_planner_might_take_in(customers):
    customers.execute("CREATE FUNCTION f() RETURNS SETOF customer LANGUAGE sql STABLE AS 'SELECT * FROM customer'")
    migrate(customers, SPLIT)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="closed"):
        customers.execute("SELECT * FROM f()")


def test_merge_takes_rows_that_were_not_moved_from_a_new_table(customers):
    """Its condition tells which rows match; the others are inserted."""
    customers.execute("ALTER TABLE customer ADD COLUMN code numeric; UPDATE customer SET code = id")
    customers.execute("CREATE TABLE other AS SELECT id, code FROM customer WHERE id > 995")
    migrate(customers, "CREATE TABLE t AS SELECT id, code FROM customer; ALTER TABLE t ADD PRIMARY KEY (id)")
    customers.execute("MERGE INTO other o USING t ON o.id = t.id AND t.code > 990 WHEN MATCHED THEN UPDATE SET code = 0 "
        "WHEN NOT MATCHED THEN INSERT VALUES (t.id, t.code)")
    assert customers.execute("SELECT count(*), count(*) FILTER (WHERE code = 0) FROM other").fetchone() == (CUSTOMERS, 5)


def test_a_row_is_read_once_when_its_page_was_moved(split):
    split.execute("UPDATE customer_private SET name = 'new' WHERE id = 1")
    assert moved(split) == 1
    assert split.execute("SELECT count(*), count(DISTINCT id), sum((name = 'new')::int) FROM customer_private").fetchone() == (CUSTOMERS,
        CUSTOMERS, 1)
    assert split.execute("SELECT count(*) FROM customer_public").fetchone() == (CUSTOMERS,)


def test_a_prepared_statement_goes_on_from_before_a_move_to_after_the_end(split):
    split.prepare_threshold = 0
    split.execute("SET plan_cache_mode = force_generic_plan")
    query = "SELECT name FROM customer_private WHERE id = %s"
    assert split.execute(query, (7,)).fetchall() == [("name 7",)]
    split.execute("UPDATE customer_private SET name = 'moved' WHERE id = %s", (7,))
    assert split.execute(query, (7,)).fetchall() == [("moved",)]
    assert split.execute(query, (CUSTOMERS,)).fetchall() == [(f"name {CUSTOMERS}",)]
    split.execute("SELECT bullfrog.finish('split')")
    assert split.execute(query, (7,)).fetchall() == [("moved",)]
    assert split.execute(query, (CUSTOMERS,)).fetchall() == [(f"name {CUSTOMERS}",)]


def test_a_view_and_a_function_read_both_parts(split):
    split.execute("CREATE VIEW names AS SELECT name FROM customer_private")
    split.execute("CREATE FUNCTION many() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM customer_private'")
    assert split.execute("SELECT count(*), many() FROM names GROUP BY ()").fetchone() == (CUSTOMERS, CUSTOMERS)


def test_copy_reads_both_parts(split):
    with split.cursor().copy("COPY customer_public (id, nick) TO STDOUT") as copy:
        assert len(list(copy.rows())) == CUSTOMERS


@needs("pg_dump")
def test_a_dump_reads_both_parts(database, split):
    dump = database.server.run("pg_dump", "-h", database.server.root, "-U", "postgres", "-T", "customer", "-N", "bullfrog", database.name)
    assert dump.count("\tnick ") == CUSTOMERS


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_read_only_transaction_sees_each_row_once_while_rows_move(database, split, level):
    reader = database.connect()
    reader.execute(f"BEGIN ISOLATION LEVEL {level} READ ONLY")
    before = reader.execute("SELECT count(*), sum(id) FROM customer_private").fetchone()
    split.execute("UPDATE customer_private SET name = 'moved'")
    assert moved(split) > 1
    assert reader.execute("SELECT count(*), sum(id) FROM customer_private").fetchone() == before
    seen = reader.execute("SELECT count(*) FROM customer_private WHERE name = 'moved'").fetchone()[0]
    assert seen == (CUSTOMERS if level == "READ COMMITTED" else 0)


def test_a_snapshot_from_before_the_switch_reads_the_new_tables(database, customers):
    reader = database.connect()
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT 1")
    customers.execute("UPDATE customer SET name = 'later' WHERE id = 1")
    customers.execute("SELECT bullfrog.migrate('one', 'CREATE TABLE person AS SELECT id, name FROM customer')")
    customers.execute("DELETE FROM person WHERE id = 2")
    assert reader.execute("SELECT id, name FROM person WHERE id < 3 ORDER BY id").fetchall() == [(1, "name 1"), (2, "name 2")]


def test_rights_are_those_of_the_new_table(database, split):
    split.execute("DROP ROLE IF EXISTS clerk")
    split.execute("CREATE ROLE clerk")
    split.execute("GRANT SELECT, UPDATE ON customer_public TO clerk")
    try:
        split.execute("SET ROLE clerk")
        assert split.execute("SELECT count(*) FROM customer_public").fetchone() == (CUSTOMERS,)
        split.execute("UPDATE customer_public SET nick = 'x' WHERE id = 3")
        for statement in ("SELECT * FROM customer_private", "UPDATE customer_private SET name = ''", "SELECT * FROM bullfrog.unmoved_1"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                split.execute(statement)
        assert moved(split) == 1
    finally:
        split.execute("RESET ROLE")
        split.execute("DROP OWNED BY clerk; DROP ROLE clerk")


@pytest.mark.parametrize("statement", [
    "SELECT * FROM customer", "INSERT INTO customer VALUES (0, '')", "UPDATE customer SET name = ''", "DELETE FROM customer",
    "COPY customer TO STDOUT", "COPY customer FROM STDIN", "SELECT (SELECT max(id) FROM customer)",
    "WITH c AS (SELECT * FROM customer) SELECT 1 FROM c",
])
def test_a_statement_that_names_an_old_table_is_told_where_the_rows_are(shared_split, statement):
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="customer is closed") as error:
        shared_split.execute(statement)
    assert "customer_private" in error.value.diag.message_hint


@pytest.mark.parametrize("view", ["transformed_1", "unmoved_1"])
@pytest.mark.parametrize("statement", ["DELETE FROM bullfrog.{} WHERE id = 1", "UPDATE bullfrog.{} SET name = 'x' WHERE id = 1"])
def test_an_old_table_is_closed_also_behind_the_views_over_it(shared_split, statement, view):
    """They belong to its owner, and the server would pass a write on."""
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="table public.customer is closed"):
        shared_split.execute(statement.format(view))


@pytest.mark.parametrize("query", ["SELECT ctid FROM customer_public", "SELECT * FROM customer_public TABLESAMPLE system (10)"])
def test_what_has_no_meaning_while_rows_move_is_refused(shared_split, query):
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        shared_split.execute(query)


# Look-ups by a key that another table gives, order, and the ends of an index: each reads the old table by its index.
BY_INDEX = {
    "join": "SELECT * FROM visit v JOIN customer_private p ON p.id = v.customer WHERE v.id = 3",
    "outer join": "SELECT * FROM visit v LEFT JOIN customer_private p ON p.id = v.customer WHERE v.id = 3",
    "join with a computed column": "SELECT * FROM visit v JOIN customer_public p ON p.id = v.customer WHERE v.id = 3",
    "subquery": "SELECT * FROM customer_private WHERE id IN (SELECT customer FROM visit WHERE id < 5)",
    "view": "SELECT * FROM visit v JOIN named n ON n.id = v.customer WHERE v.id = 3",
    "order": "SELECT id, name FROM customer_private ORDER BY id LIMIT 10",
    "max": "SELECT max(id), min(id) FROM customer_private",
}


@pytest.fixture
def visits(customers):
    """Many customers, of whom one was moved and changed, one was moved and deleted, and one is new."""
    customers.execute("""
        INSERT INTO customer SELECT n, 'name ' || n, 's' || n, 'nick ' || n, 'city ' || n % 10 FROM generate_series(2001, 30000) n;
        CREATE TABLE visit AS SELECT n AS id, n * 7 AS customer FROM generate_series(1, 2000) n;
        CREATE UNIQUE INDEX ON visit (id); ANALYZE""")
    migrate(customers, SPLIT, "split")
    customers.execute("CREATE VIEW named AS SELECT id, name FROM customer_private WHERE name <> ''")
    customers.execute("UPDATE customer_private SET name = 'changed' WHERE id = 21; DELETE FROM customer_private WHERE id IN (1, 30000)")
    customers.execute("INSERT INTO customer_private VALUES (0, 'first', '')")
    return customers


@pytest.mark.parametrize("query", BY_INDEX)
def test_the_old_table_is_read_by_its_index(visits, query):
    scans = {node["Node Type"] for node in plan(visits, BY_INDEX[query]) if node.get("Relation Name") == "customer"}
    assert scans and scans <= {"Index Scan", "Bitmap Heap Scan"}


@pytest.mark.parametrize("query", BY_INDEX)
def test_what_is_read_by_an_index_is_what_is_read_as_a_whole(visits, query):
    by_index = sorted(visits.execute(BY_INDEX[query]).fetchall())
    for setting in ("enable_indexscan", "enable_bitmapscan", "enable_nestloop"):
        visits.execute(f"SET {setting} = off")
    assert sorted(visits.execute(BY_INDEX[query], prepare=False).fetchall()) == by_index
    visits.execute("SELECT bullfrog.finish('split')")
    assert sorted(visits.execute(BY_INDEX[query], prepare=False).fetchall()) == by_index


def test_changed_deleted_and_new_rows_are_read_once_in_order(visits):
    assert visits.execute("SELECT id, name FROM customer_private WHERE id < 4 ORDER BY id LIMIT 3").fetchall() == [
        (0, "first"), (2, "name 2"), (3, "name 3")]
    assert visits.execute("SELECT min(id), max(id) FROM customer_private").fetchone() == (0, 29999)
    assert visits.execute(BY_INDEX["join"]).fetchall()[0][3] == "changed"


def test_rows_that_were_moved_and_are_read_in_the_old_table_too_are_noticed(server, database, visits):
    with setting(server, "bullfrog.flaw", "moved_appended"):
        session = database.connect()
        assert sorted(session.execute("SELECT name FROM customer_private WHERE id = 21").fetchall()) == [("changed",), ("name 21",)]
        assert len(session.execute(BY_INDEX["join"]).fetchall()) == 2
        assert session.execute("SELECT min(id), max(id) FROM customer_private").fetchone() == (0, 30000)


def test_a_plan_that_is_kept_reads_each_row_once_while_rows_move_and_when_all_have(visits):
    visits.execute("SET plan_cache_mode = force_generic_plan")
    visits.execute("""
        PREPARE name_of(int) AS SELECT p.name FROM visit v JOIN customer_private p ON p.id = v.customer WHERE v.id = $1;
        PREPARE ends AS SELECT min(id), max(id), count(*) FROM customer_private""", prepare=False)

    def read():
        executions = ["name_of(3)", "name_of(300)", "name_of(2000)", "ends"]
        return [visits.execute(f"EXECUTE {execution}", prepare=False).fetchall() for execution in executions]

    before = read()
    assert before == [[("changed",)], [("name 2100",)], [("name 14000",)], [(0, 29999, 28999)]]
    visits.execute("UPDATE customer_private SET name = 'later' WHERE id = 2100")
    assert read() == [before[0], [("later",)], *before[2:]]
    visits.execute("SELECT bullfrog.finish('split')")
    assert read() == [before[0], [("later",)], *before[2:]]


def test_an_index_of_an_expression_that_is_a_column_now_is_used(customers):
    customers.execute("CREATE INDEX upper_nick ON customer (upper(nick)); ANALYZE customer")
    migrate(customers, "CREATE TABLE t AS SELECT id, upper(nick) AS nick FROM customer; ALTER TABLE t ADD PRIMARY KEY (id)")
    query = "SELECT * FROM t WHERE nick = 'NICK 7'"
    assert "upper_nick" in str(plan(customers, query))
    assert customers.execute(query).fetchall() == [(7, "NICK 7")]


def test_a_join_by_a_type_without_leakproof_equality_is_answered(customers):
    customers.execute("ALTER TABLE customer ADD COLUMN code numeric; UPDATE customer SET code = id")
    migrate(customers, "CREATE TABLE t AS SELECT id, code FROM customer; ALTER TABLE t ADD PRIMARY KEY (id)")
    customers.execute("UPDATE t SET code = 5000 WHERE id = 3")
    query = "SELECT t.id FROM generate_series(2, 4) n JOIN t ON t.code = n::numeric ORDER BY 1"
    assert customers.execute(query).fetchall() == [(2,), (4,)]


@pytest.mark.parametrize("condition, index", [
    ("nick LIKE 'nick 99%'", "by_prefix"), ("word LIKE 'word 99%'", "by_word"), ("facts @> '{\"n\": 7}'", "by_facts"), ("facts ? 'n7'", "by_facts"),
])
def test_a_search_in_a_text_or_a_document_uses_the_index_of_the_old_table(customers, condition, index):
    customers.execute("""
        INSERT INTO customer SELECT n, 'name ' || n, 's' || n, 'nick ' || n, 'city ' || n % 10 FROM generate_series(2001, 30000) n;
        ALTER TABLE customer ADD COLUMN facts jsonb, ADD COLUMN word varchar;
        UPDATE customer SET facts = jsonb_build_object('n', id, 'n' || id, 1), word = 'word ' || id;
        CREATE INDEX by_prefix ON customer (nick text_pattern_ops);
        CREATE INDEX by_word ON customer (word varchar_pattern_ops);
        CREATE INDEX by_facts ON customer USING gin (facts);""")
    customers.execute("VACUUM ANALYZE customer")
    expected = sorted(customers.execute(f"SELECT id FROM customer WHERE {condition}").fetchall())
    migrate(customers, "CREATE TABLE t AS SELECT id, nick, word, facts FROM customer; ALTER TABLE t ADD PRIMARY KEY (id)")
    query = f"SELECT id FROM t WHERE {condition}"
    assert index in {node.get("Index Name") for node in plan(customers, query)}
    assert sorted(customers.execute(query).fetchall()) == expected != []


def test_a_pattern_that_ends_with_an_escape_fails_for_no_row_that_is_not_there(customers):
    """The server says so when a text comes to the end of the pattern."""
    migrate(customers, "CREATE TABLE t AS SELECT id, nick FROM customer; ALTER TABLE t ADD PRIMARY KEY (id)")
    customers.execute("UPDATE t SET nick = '' WHERE id = 3")
    query = r"SELECT count(*) FROM t WHERE nick LIKE 'nick 3\'"
    customers.execute("DELETE FROM t WHERE nick LIKE 'nick 3_%'")
    assert customers.execute(query).fetchone() == (0,)
