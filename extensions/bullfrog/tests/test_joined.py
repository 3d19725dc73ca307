"""Statements that are about several tables move the rows that they touch, not those that they could touch if the other tables were others."""

import pytest

from conftest import CUSTOMERS, SPLIT, answered, differing, migrate, moved, wait_until

TUPLES = ", granularity => 'tuple', moves => 'transaction'"
WAYS = [", granularity => 'tuple', moves => 'worker'", TUPLES]
TABLES = """
    CREATE TABLE visit (id int PRIMARY KEY, customer int, note text);
    INSERT INTO visit SELECT i, 10 * i, 'note ' || i FROM generate_series(1, 100) i; ANALYZE visit;
    CREATE TABLE expected AS SELECT id, name, ssn FROM customer"""

# Each with how many customers it is about.
WRITES = {
    "update from": ("UPDATE {} p SET name = v.note FROM visit v WHERE v.customer = p.id AND v.id = 5", 1),
    "update from a join": ("UPDATE {} p SET name = v.note FROM visit v LEFT JOIN visit w ON w.id = v.id + 1 "
        "WHERE v.customer = p.id AND w.id = 6", 1),
    "update from groups": ("UPDATE {} p SET name = 'x' || n FROM (SELECT customer, count(*) AS n FROM visit WHERE id < 4 GROUP BY 1) v "
        "WHERE v.customer = p.id", 3),
    "update from a cte": ("WITH v AS (SELECT customer FROM visit WHERE id = 5) UPDATE {} p SET name = 'x' FROM v WHERE v.customer = p.id", 1),
    "delete using": ("DELETE FROM {} p USING visit v WHERE v.customer = p.id AND v.note = 'note 7'", 1),
    "in": ("DELETE FROM {} WHERE id IN (SELECT customer FROM visit WHERE id BETWEEN 5 AND 8)", 4),
    "exists": ("UPDATE {} p SET name = 'x' WHERE EXISTS (SELECT FROM visit v WHERE v.customer = p.id AND v.id = 9)", 1),
    "scalar": ("UPDATE {} SET name = 'x' WHERE id = (SELECT max(customer) FROM visit)", 1),
    "time": ("UPDATE {} SET name = 'x' WHERE id < EXTRACT(year FROM now()) - 10000 OR id = 3", 1),
    "itself": ("UPDATE {0} p SET name = o.name FROM {0} o WHERE o.id = p.id + 1 AND p.id = 500 AND o.ssn = 's501'", 1),
    "values": ("UPDATE {} p SET name = v.name FROM (VALUES (7, 'seven'), (8, 'eight')) AS v (id, name) WHERE p.id = v.id", 2),
}


@pytest.fixture
def visits(customers):
    customers.execute(TABLES)
    return customers


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("what", WRITES)
def test_a_write_moves_the_rows_that_it_touches(visits, what, options):
    migrate(visits, SPLIT, options=options)
    write, rows = WRITES[what]
    assert visits.execute(write.format("customer_private")).rowcount == rows
    assert moved(visits) == rows
    visits.execute(write.format("expected"))
    assert differing(visits, "customer_private", "expected") == 0


def test_a_parameter_may_be_about_another_table(visits):
    migrate(visits, SPLIT, options=TUPLES)
    for number in range(1, 9):
        visits.execute("UPDATE customer_private p SET name = 'x' FROM visit v WHERE v.customer = p.id AND v.id = %s", (number,), prepare=True)
        assert moved(visits) == number


def test_rows_of_a_join_that_are_locked_are_moved_and_no_others(visits):
    migrate(visits, SPLIT, options=TUPLES)
    locked = "SELECT p.name, v.note FROM customer_private p JOIN visit v ON v.customer = p.id WHERE v.id < 3 ORDER BY v.id LIMIT 5 FOR UPDATE OF p"
    assert visits.execute(locked).fetchall() == [("name 10", "note 1"), ("name 20", "note 2")]
    assert moved(visits) == 2


# What gives something else each time that it is asked moves all that it may be about.
UNSETTLED = {
    "limit": "UPDATE {} p SET name = 'x' FROM (SELECT customer FROM visit ORDER BY note LIMIT 1) v WHERE v.customer = p.id",
    "window": "UPDATE {} p SET name = 'x' FROM (SELECT customer, row_number() OVER (ORDER BY note) AS n FROM visit) v "
        "WHERE v.customer = p.id AND n = 1",
    "order": "UPDATE {} p SET name = 'x' WHERE id = (SELECT (array_agg(customer ORDER BY note))[1] FROM visit)",
    "volatile": "UPDATE {} p SET name = 'x' FROM visit v WHERE v.customer = p.id + floor(random())::int AND v.id = 1",
    "locked": "UPDATE {} p SET name = 'x' FROM (SELECT customer FROM visit WHERE id = 1 FOR UPDATE) v WHERE v.customer = p.id",
    "sample": "UPDATE {} p SET name = 'x' FROM visit v TABLESAMPLE BERNOULLI (100) WHERE v.customer = p.id AND v.id = 1",
    "sequence": "UPDATE {} p SET name = 'x' WHERE id = (SELECT last_value FROM number)",
    # One of equal numbers, with whatever scale.
    "distinct": "UPDATE {} p SET name = 'x' FROM (SELECT DISTINCT customer::numeric AS c FROM visit WHERE id = 1) v WHERE v.c = p.id",
    "group": "UPDATE {} p SET name = 'x' FROM (SELECT customer::numeric AS c FROM visit WHERE id = 1 GROUP BY 1) v WHERE v.c = p.id",
    "union": "UPDATE {} p SET name = 'x' WHERE id IN (SELECT customer::numeric FROM visit WHERE id = 1 UNION SELECT -1)",
    "max": "UPDATE {} p SET name = 'x' WHERE id = (SELECT max(customer::numeric) FROM visit WHERE id = 1)",
    "row": "UPDATE {} p SET name = 'x' FROM visit v WHERE v.customer = p.id AND p IS NOT NULL AND v.id = 1",
}


@pytest.mark.parametrize("what", UNSETTLED)
def test_what_is_not_the_same_each_time_touches_all_that_it_could(visits, what):
    visits.execute("CREATE SEQUENCE number")
    migrate(visits, SPLIT, options=TUPLES)
    assert visits.execute(UNSETTLED[what].format("customer_private")).rowcount == 1
    assert moved(visits) == CUSTOMERS
    visits.execute(UNSETTLED[what].format("expected"))
    assert differing(visits, "customer_private", "expected") == 0


def test_an_update_from_another_table_looks_rows_up(visits):
    migrate(visits, SPLIT, options=TUPLES)
    read = "SELECT pg_stat_get_xact_tuples_returned('customer'::regclass)"
    visits.execute("BEGIN")
    before = visits.execute(read).fetchone()[0]
    visits.execute("UPDATE customer_private p SET name = v.note FROM visit v WHERE v.customer = p.id AND v.id = 5")
    assert visits.execute(read).fetchone()[0] - before <= 1
    visits.execute("COMMIT")


@pytest.mark.parametrize("flaw, found", [("none", [("x", 700)]), ("looks_once", [])])
def test_another_table_may_change_while_rows_move(database, visits, flaw, found):
    """The statement is about what the other table holds when it runs, and so are the rows that it has moved."""
    migrate(visits, SPLIT, options=TUPLES)
    first, updating = database.connect(), database.connect()
    first.execute("BEGIN; UPDATE customer_private SET ssn = 'first' WHERE id = 50")
    updating.execute(f"SET bullfrog.flaw = '{flaw}'")
    updating.pgconn.send_query(b"UPDATE customer_private p SET name = 'x' FROM visit v WHERE v.customer = p.id AND v.id = 5")
    waits = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
    wait_until(lambda: visits.execute(waits, (updating.info.backend_pid,)).fetchone() == (1,), "the update waits for the row's move")
    visits.execute("UPDATE visit SET customer = 700 WHERE id = 5")
    first.execute("COMMIT")
    answered(updating)
    assert visits.execute("SELECT name, id FROM customer_private WHERE name = 'x'").fetchall() == found


def test_at_repeatable_read_the_other_table_is_that_of_the_snapshot(database, visits):
    migrate(visits, SPLIT, options=TUPLES)
    session = database.connect()
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM visit")
    visits.execute("UPDATE visit SET customer = 700 WHERE id = 5")
    assert session.execute("UPDATE customer_private p SET name = 'x' FROM visit v WHERE v.customer = p.id AND v.id = 5").rowcount == 1
    session.execute("COMMIT")
    assert visits.execute("SELECT id FROM customer_private WHERE name = 'x'").fetchall() == [(50,)]
    assert moved(visits) == 1


def test_a_condition_on_another_table_sees_no_row_that_is_not_the_clients(visits):
    """A row that was moved has been changed since: what it was is nobody's to see."""
    visits.execute("""
        CREATE FUNCTION fails(text, text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS
            $$ BEGIN IF $1 = 'name 50' THEN RAISE 'it sees %', $1; END IF; RETURN true; END $$ STABLE""")
    migrate(visits, SPLIT, options=TUPLES)
    visits.execute("UPDATE customer_private SET name = 'changed' WHERE id = 50")
    write = "UPDATE customer_private p SET ssn = 'x' FROM visit v WHERE v.customer = p.id AND fails(p.name, v.note) AND v.id IN (5, 6)"
    assert visits.execute(write).rowcount == 2
    assert moved(visits) == 2
