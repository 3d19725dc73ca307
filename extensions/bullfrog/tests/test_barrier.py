"""Conditions of clients see an old row only when it is known that it was not moved, and that it is one of the new table."""

import pytest

from conftest import CUSTOMERS, migrate, moved, setting

PAGES = "CREATE TABLE t AS SELECT id, nick, length(city) AS n FROM customer WHERE id <> 9; ALTER TABLE t ADD PRIMARY KEY (id)"
GROUPS = """
    CREATE TABLE t AS SELECT id / 2 AS id, max(nick) AS nick, count(*)::int AS n FROM customer WHERE id <> 9 GROUP BY 1;
    ALTER TABLE t ADD PRIMARY KEY (id)"""
JOIN = """
    CREATE TABLE t AS SELECT c.id, c.nick, o.id AS n FROM customer c JOIN customer o ON o.id = c.id + 1 WHERE c.id <> 9;
    ALTER TABLE t ADD PRIMARY KEY (id)"""
SHAPES = {
    "pages": (PAGES, ""),
    "tuples": (PAGES, ", granularity => 'tuple'"),
    "inside": (PAGES, ", moves => 'transaction'"),
    "quarantine": (PAGES + "; ALTER TABLE t ADD CHECK (nick <> 'nick 9')", ", checks => 'quarantine'"),
    "groups": (GROUPS, ""),
    "join": (JOIN, ""),
    "join by tuples": (JOIN, ", granularity => 'tuple'"),
}
# The referring table drives, and has the columns that conditions are about.
REFERRING = """
    CREATE TABLE t AS SELECT o.id, o.nick, c.id AS n FROM customer o JOIN place c ON c.id = o.id WHERE c.id <> 7 AND o.id <> 9;
    ALTER TABLE t ADD PRIMARY KEY (id)"""
# The server evaluates cheap conditions first. This one tells what it sees, and seems not to change.
WATCH = """
    CREATE FUNCTION watch(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE COST 0.00001 AS
        $$BEGIN RAISE NOTICE '%', $1; RETURN true; END$$"""
STATEMENTS = {
    "SELECT": "SELECT count(*) FROM t WHERE watch(nick)",
    "SELECT of some": "SELECT count(*) FROM t WHERE id < 20 AND watch(nick)",
    "join": "SELECT count(*) FROM t JOIN generate_series(1, 3) g ON g = t.id AND watch(nick)",
    "join by key": "SELECT count(*) FROM generate_series(1, 9) g JOIN t ON t.id = g AND watch(nick || left(g::text, 0))",
    "UPDATE": "UPDATE t SET n = 0 WHERE watch(nick)",
    "DELETE": "DELETE FROM t WHERE watch(nick)",
    "FOR UPDATE": "SELECT FROM t WHERE watch(nick) FOR UPDATE",
}


def seen(database, statement):
    """What the condition of a statement sees, in a session that plans everything anew."""
    session, rows = database.connect(), set()
    session.add_notice_handler(lambda notice: rows.add(notice.message_primary))
    session.execute(statement)
    return rows


def hide(connection, shape):
    """Moves a row and changes it. What it was, and what the definition leaves out, is in the old table only."""
    definition, options = SHAPES[shape]
    connection.execute(WATCH)
    migrate(connection, definition, options=options)
    assert connection.execute("UPDATE t SET nick = 'public' WHERE id = 3").rowcount == 1
    return {"nick 9", "nick 7"} if shape == "groups" else {"nick 9", "nick 3"}


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_cheap_condition_sees_no_row_that_the_new_table_does_not_have(database, customers, shape, statement):
    hidden = hide(customers, shape)
    rows = seen(database, STATEMENTS[statement])
    assert "public" in rows
    assert rows & hidden == set()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_condition_sees_no_row_of_a_join_that_has_no_partner(database, customers, statement):
    customers.execute(WATCH)
    customers.execute("CREATE TABLE place (id int PRIMARY KEY); INSERT INTO place SELECT id FROM customer")
    customers.execute("ALTER TABLE customer ADD FOREIGN KEY (id) REFERENCES place")
    migrate(customers, REFERRING)
    rows = seen(database, STATEMENTS[statement])
    assert "nick 3" in rows
    assert rows & {"nick 7", "nick 9"} == set()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_condition_sees_no_row_that_a_view_hides(database, customers, statement):
    """A view that is a security barrier, over another one."""
    customers.execute(WATCH)
    migrate(customers, PAGES)
    customers.execute("CREATE VIEW inner_view WITH (security_barrier) AS SELECT * FROM t WHERE id < 5")
    customers.execute("CREATE VIEW outer_view WITH (security_barrier) AS SELECT * FROM inner_view WHERE watch(nick) AND n > 0")
    rows = seen(database, STATEMENTS[statement].replace(" t ", " outer_view ").replace("t.id", "outer_view.id"))
    assert rows == {f"nick {id}" for id in range(1, 5)}


def test_a_view_that_is_a_security_barrier_moves_only_its_rows(customers):
    migrate(customers, PAGES, options=", granularity => 'tuple'")
    customers.execute("CREATE VIEW few WITH (security_barrier) AS SELECT * FROM t WHERE id < 5")
    assert customers.execute("UPDATE few SET n = 0 WHERE id > 2 AND nick LIKE '%'").rowcount == 2
    assert moved(customers) == 2


@pytest.mark.parametrize("statement", ["SELECT", "UPDATE"])
@pytest.mark.parametrize("shape", ["pages", "tuples", "quarantine", "join"])
def test_that_there_is_no_barrier_is_noticed(server, database, customers, shape, statement):
    hidden = hide(customers, shape)
    with setting(server, "bullfrog.flaw", "no_barrier"):
        assert seen(database, STATEMENTS[statement]) & hidden != set()


def test_a_cheap_condition_in_a_parallel_plan_or_deep_in_a_query_sees_no_hidden_row(database, customers):
    hidden = hide(customers, "pages")
    customers.execute("ALTER FUNCTION watch PARALLEL SAFE")
    force = "force_parallel_mode" if customers.info.server_version < 160000 else "debug_parallel_query"
    parallel = f"""
        SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET min_parallel_index_scan_size = 0;
        SET {force} = on; """
    for query in (
        STATEMENTS["SELECT"],
        "SELECT max(id), min(id) FROM t WHERE watch(nick)",
        "SELECT id FROM t WHERE watch(nick) ORDER BY id LIMIT 20",
        "SELECT count(*) FROM t a WHERE EXISTS (SELECT FROM t b WHERE b.id = a.id AND watch(b.nick))",
        "SELECT count(*) FROM (SELECT * FROM t UNION ALL SELECT * FROM t OFFSET 0) a WHERE watch(nick)",
        "SELECT count(*) FROM generate_series(1, 10) g LEFT JOIN t ON t.id = g AND watch(nick) WHERE nick IS NULL OR watch(nick)",
        "SELECT (SELECT max(b.n) FROM t b WHERE b.id = a.id AND watch(b.nick)) FROM t a WHERE a.id < 30",
        "SELECT count(*) FROM (SELECT id, nick, row_number() OVER () FROM t) a WHERE watch(nick)",
    ):
        rows = seen(database, parallel + query)
        assert rows and rows & hidden == set(), query


@pytest.mark.parametrize("shape", SHAPES)
def test_a_condition_does_not_fail_for_what_a_row_was_before_it_moved(customers, shape):
    definition, options = SHAPES[shape]
    customers.execute("UPDATE customer SET city = '' WHERE id = 3")
    migrate(customers, definition, options=options)
    was = customers.execute("SELECT n FROM t WHERE id = 3").fetchone()[0]
    customers.execute("UPDATE t SET n = 7000 WHERE n = %s", (was,))
    everything = customers.execute("SELECT count(*) FROM t").fetchone()
    condition = f"10 / (n - {was}) < 100"
    assert customers.execute(f"SELECT count(*) FROM t WHERE {condition}").fetchone() == everything
    assert customers.execute(f"UPDATE t SET nick = 'x' WHERE {condition}").rowcount == everything[0]


def looked_up(connection, index):
    """How often this session has looked into an index, and how many entries it read, those that are not with the server's statistics yet: within
    a transaction they stay so."""
    numbers = "SELECT pg_stat_get_xact_numscans(%(index)s::regclass), pg_stat_get_xact_tuples_returned(%(index)s::regclass)"
    return connection.execute(numbers, {"index": index}).fetchone()


@pytest.mark.parametrize("condition", [
    "id = 3", "id < 3", "nick = 'nick 3'", "nick > 'nick 99' AND watch(nick)", "code = 3", "code BETWEEN 3 AND 4.5 AND watch(nick)",
    "mood = 'high' AND watch(nick)"])
@pytest.mark.parametrize("shape", ["pages", "join"])
def test_comparisons_look_rows_up_in_indexes(customers, shape, condition):
    customers.execute("CREATE TYPE mood AS ENUM ('low', 'high'); ALTER TABLE customer ADD COLUMN code numeric, ADD COLUMN mood mood")
    customers.execute("UPDATE customer SET code = id, mood = 'low'")
    customers.execute("CREATE INDEX nick ON customer (nick); CREATE INDEX code ON customer (code); CREATE INDEX mood ON customer (mood)")
    customers.execute("ANALYZE customer; SET enable_seqscan = off; SET jit = off")
    customers.execute(WATCH)
    definition, options = SHAPES[shape]
    migrate(customers, definition.replace(" AS n ", " AS n, c.code, c.mood " if shape == "join" else " AS n, code, mood "), options=options)
    column = condition.split()[0]
    index = "customer_pkey" if column == "id" else column
    for statement in ("SELECT * FROM t WHERE {}", "DELETE FROM t WHERE {}"):
        with customers.transaction(force_rollback=True):
            before = looked_up(customers, index)
            customers.execute(statement.format(condition))
            after = looked_up(customers, index)
        looks, entries = (new - old for new, old in zip(after, before))
        assert looks > 0 and entries < CUSTOMERS / 10, (statement, looks, entries)


def test_who_may_read_the_new_table_only_reads_no_more(database, customers):
    customers.execute("DROP ROLE IF EXISTS reader; CREATE ROLE reader; GRANT CREATE ON SCHEMA public TO reader")
    try:
        migrate(customers, PAGES + "; GRANT SELECT ON t TO reader")
        customers.execute("SET ROLE reader")
        customers.execute(WATCH)
        customers.execute("RESET ROLE")
        assert "nick 9" not in seen(database, "SET ROLE reader; SELECT FROM t WHERE watch(nick)")
    finally:
        customers.execute("DROP OWNED BY reader; DROP ROLE reader")
