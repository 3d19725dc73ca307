"""Statements that wait for the switch see what it did, when they get their locks. None of them may change old rows unseen."""

import itertools
import threading

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, migrate
from server import wait_until

REFUSED = (psycopg.errors.ObjectInUse, psycopg.errors.ObjectNotInPrerequisiteState)


class Waiting:
    """A statement that another session runs, which waits for a lock."""

    def __init__(self, database, session, run):
        self.session = session
        self.error = None
        self.thread = threading.Thread(target=self.do, args=(run,))
        self.thread.start()
        watcher = database.connect()
        blocked = "SELECT pg_blocking_pids(%s) <> '{}'"
        wait_until(lambda: watcher.execute(blocked, (self.session.info.backend_pid,)).fetchone()[0], "the statement waits")

    def do(self, run):
        try:
            run(self.session)
        except psycopg.Error as error:
            self.error = error

    def outcome(self):
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.error


def during_switch(database, run, before=()):
    """The error of what another session begins while the tables are locked and nothing is committed yet. What it has said `before`, there
    is no lock left of."""
    switching, session = database.connect(), database.connect()
    for statement in before:
        session.execute(statement)
    with switching.transaction():
        migrate(switching, SPLIT, "split")
        waiting = Waiting(database, session, run)
    error = waiting.outcome()
    assert isinstance(error, REFUSED), error
    return switching


def finish(connection):
    """All rows are there, and nothing stands in the way of others or of the end."""
    connection.execute("CREATE TABLE unrelated (id int)")
    count = "SELECT count(*), count(*) FILTER (WHERE id > 9000) FROM customer_private JOIN customer_public USING (id)"
    assert connection.execute(count).fetchone() == (CUSTOMERS, 0)
    connection.execute("SELECT bullfrog.finish('split')")
    assert connection.execute(count).fetchone() == (CUSTOMERS, 0)


def copy_in(session):
    with session.cursor().copy("COPY customer FROM STDIN") as copy:
        for i in range(5000):
            copy.write_row((9001 + i, "late", "s", "n", "c"))


def test_a_copy_that_waits_for_the_switch_loses_no_row(database):
    finish(during_switch(database, copy_in))


def test_a_copy_out_that_waits_for_the_switch_is_told_where_the_rows_are(database):
    def copy_out(session):
        with session.cursor().copy("COPY customer TO STDOUT") as copy:
            assert list(copy) == []

    finish(during_switch(database, copy_out))


@pytest.mark.parametrize("statement", [
    "TRUNCATE customer",
    "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class; TRUNCATE customer",
    "VACUUM FULL customer",
    "CLUSTER customer USING customer_pkey",
    "ALTER TABLE customer ADD COLUMN more int",
    "CREATE UNIQUE INDEX ON customer (nick)",
    "CREATE UNIQUE INDEX CONCURRENTLY ON customer (nick)",
    "REINDEX TABLE CONCURRENTLY customer",
    "REINDEX INDEX CONCURRENTLY customer_pkey",
    "CREATE TRIGGER t BEFORE INSERT ON customer FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE TABLE child () INHERITS (customer)",
    "CREATE VIEW v AS SELECT * FROM customer",
])
def test_a_statement_that_waits_for_the_switch_is_refused(database, statement):
    def run(session):
        for part in statement.split("; "):
            session.execute(part)

    finish(during_switch(database, run))


@pytest.mark.parametrize("before", [[], ["PREPARE p AS SELECT * FROM f()", "EXECUTE p"]])
def test_a_function_that_the_planner_takes_in_and_that_waits_for_the_switch_is_refused(database, customers, before):
    customers.execute("CREATE FUNCTION f() RETURNS SETOF int LANGUAGE sql STABLE AS 'SELECT id FROM customer'")
    run = "EXECUTE p" if before else "SELECT * FROM f()"
    finish(during_switch(database, lambda session: session.execute(run), before))


PLANNED = [
    "SELECT * FROM customer",
    "SELECT * FROM customer WHERE id = 7 FOR UPDATE",
    "INSERT INTO customer VALUES (9001, 'late', 's', 'n', 'c')",
    "INSERT INTO customer VALUES (7, 'late', 's', 'n', 'c') ON CONFLICT (id) DO UPDATE SET name = excluded.name",
    "UPDATE customer SET name = 'late' WHERE id = 7",
    "DELETE FROM customer WHERE id = 7",
]
# How a client may say it: what it says before the switch, so that plans are kept, and what waits.
WAYS = {
    "alone": ((), ("{statement}",)),
    "with a snapshot from before": (("BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM pg_class"), ("{statement}",)),
    "prepared": (("SET plan_cache_mode = force_generic_plan", "PREPARE late AS {statement}", "BEGIN", "EXECUTE late", "ROLLBACK"),
        ("EXECUTE late",)),
    "in a function": (("CREATE FUNCTION late() RETURNS void LANGUAGE sql AS $${statement}$$", "BEGIN", "SELECT late()", "ROLLBACK"),
        ("SELECT late()",)),
    "in a function whose plan is kept": (("SET plan_cache_mode = force_generic_plan",
        "CREATE FUNCTION late() RETURNS void LANGUAGE plpgsql AS $$BEGIN {performed}; END$$", "BEGIN", "SELECT late()", "ROLLBACK"),
        ("SELECT late()",)),
    "in a block": ((), ("DO $$BEGIN {performed}; END$$",)),
}
CURSORS = {
    "by a cursor": ((), ("BEGIN", "DECLARE late CURSOR FOR {statement}", "FETCH ALL FROM late")),
    "by a cursor that holds": ((), ("DECLARE late CURSOR WITH HOLD FOR {statement}",)),
}


@pytest.mark.parametrize("statement, way", [*itertools.product(PLANNED, WAYS), *itertools.product(PLANNED[:1], CURSORS)])
def test_a_planned_statement_that_waits_for_the_switch_is_refused(database, statement, way):
    performed = statement.replace("SELECT", "PERFORM", 1) if statement.startswith("SELECT") else statement
    before, run = ([part.format(statement=statement, performed=performed) for part in parts] for parts in (WAYS | CURSORS)[way])

    def wait(session):
        for part in run:
            session.execute(part)

    finish(during_switch(database, wait, before))


def test_an_index_that_waits_to_be_dropped_stays(database):
    database.connect().execute("CREATE UNIQUE INDEX by_nick ON customer (nick)")
    finish(during_switch(database, lambda session: session.execute("DROP INDEX CONCURRENTLY by_nick")))
