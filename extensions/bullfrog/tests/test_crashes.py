"""Processes that are killed at each named step of a switch, a move and an end. Builds for tests stop there until they are killed."""

import os
import signal

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, differing, migrate, moved, reconnect, wait_for_crash, wait_until

DEFINITION = SPLIT + """
    CREATE TABLE town AS SELECT left(city, 6) AS city, count(*) AS customers, max(id) AS latest FROM customer GROUP BY 1;
    ALTER TABLE town ADD UNIQUE (city)"""
WRITES = {
    "rows": "UPDATE customer_private SET name = name || '!' WHERE id = 1000",
    "groups": "UPDATE town SET customers = customers + 1 WHERE city = 'city 7'",
}


@pytest.fixture
def expected(customers):
    """What the new tables have in the end: all rows, and what was written."""
    customers.execute("""
        CREATE TABLE expected_private AS SELECT id, name, ssn FROM customer;
        CREATE TABLE expected_town AS SELECT left(city, 6) AS city, count(*) AS customers, max(id) AS latest FROM customer GROUP BY 1""")
    return customers


def check(connection):
    assert differing(connection, "customer_private", "expected_private") == 0
    assert differing(connection, "town", "expected_town") == 0
    assert connection.execute("SELECT count(*), count(DISTINCT id) FROM customer_public").fetchone() == (CUSTOMERS, CUSTOMERS)


def setting(database):
    with database.connect() as connection:
        return connection.execute("SHOW bullfrog.stop_at").fetchone()[0]


def stopped(connection, point):
    """The process that stopped at a point."""
    def find():
        return connection.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", (f"stopped at {point}",)).fetchone()

    wait_until(find, f"something stopped at {point}")
    return find()[0]


def stop_in_session(database, point, statement):
    """Runs a statement in a session of its own until it has stopped; gives its process."""
    session, watcher = database.connect(), database.connect()
    session.execute(f"SET bullfrog.stop_at = '{point}'")
    session.pgconn.send_query(statement.encode())
    return stopped(watcher, point), watcher


@pytest.mark.parametrize("kind, victim", [("rows", "server"), ("groups", "mover")])
@pytest.mark.parametrize("point", ["begun", "copied", "marked", "committed"])
def test_a_move_that_is_killed_is_done_again_or_was_done(server, database, expected, point, kind, victim):
    expected.execute(f"ALTER SYSTEM SET bullfrog.stop_at = 'move: {point}'")
    expected.execute("SELECT pg_reload_conf()")
    wait_until(lambda: setting(database) == f"move: {point}", "new processes have the setting")
    migrate(expected, DEFINITION)
    client = database.connect()
    client.pgconn.send_query(WRITES[kind].encode())
    pid = stopped(expected, f"move: {point}")
    # The one that stopped has read the setting, those that come will not.
    expected.execute("ALTER SYSTEM RESET bullfrog.stop_at")
    expected.execute("SELECT pg_reload_conf()")
    if victim == "server":
        server.kill()
        server.start()
    else:
        os.kill(pid, signal.SIGKILL)
        wait_for_crash(expected)
    connection = reconnect(database)
    check(connection)
    # A move commits without a flush: its loss is none.
    assert moved(connection) in ((0, 1) if point == "committed" else (0,))
    assert connection.execute(WRITES[kind]).rowcount == 1
    connection.execute(WRITES[kind].replace("customer_private", "expected_private").replace("town", "expected_town"))
    check(connection)
    connection.execute("SELECT bullfrog.finish('m')")
    check(connection)


@pytest.mark.parametrize("point", ["tables closed", "tables created", "rows checked", "announced"])
def test_a_switch_that_is_killed_did_not_happen(database, expected, point):
    pid, watcher = stop_in_session(database, f"switch: {point}", f"SELECT bullfrog.migrate('m', $m${DEFINITION}$m$)")
    os.kill(pid, signal.SIGKILL)
    wait_for_crash(watcher)
    connection = reconnect(database)
    state = "SELECT count(*), to_regclass('town'), (SELECT count(*) FROM bullfrog.migration) FROM customer"
    assert connection.execute(state).fetchone() == (CUSTOMERS, None, 0)
    connection.execute("UPDATE customer SET name = name WHERE id = 1")
    migrate(connection, DEFINITION)
    check(connection)


@pytest.mark.parametrize("point, statement", [
    ("finish: rows moved", "SELECT bullfrog.finish('m')"), ("finish: tables dropped", "SELECT bullfrog.finish('m')"),
    ("abort: tables dropped", "SELECT bullfrog.abort('m')"),
])
def test_an_end_that_is_killed_did_not_happen(database, expected, point, statement):
    migrate(expected, DEFINITION)
    expected.execute("SELECT FROM customer_private WHERE id = 1 FOR UPDATE")
    pid, watcher = stop_in_session(database, point, statement)
    os.kill(pid, signal.SIGKILL)
    wait_for_crash(watcher)
    connection = reconnect(database)
    assert connection.execute("SELECT DISTINCT name FROM bullfrog.progress").fetchall() == [("m",)]
    check(connection)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        connection.execute("SELECT * FROM customer")
    connection.execute(statement)
    if "finish" in statement:
        check(connection)
    else:
        assert connection.execute("SELECT count(*) FROM customer").fetchone() == (CUSTOMERS,)
