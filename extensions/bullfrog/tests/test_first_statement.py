"""At REPEATABLE READ the first statement of a transaction moves what it writes before anybody has seen the transaction's snapshot: it
needs no other try. A later one does."""

import socket
import struct

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, migrate, moved, setting

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ"
WRITE = "UPDATE customer_private SET name = 'x' WHERE id = 500"
READ = "SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE name = 'x'), count(*) FILTER (WHERE name = 'y') FROM customer_private"


@pytest.fixture
def session(database, split):
    """A client of tables on the move; what the server warns of is an error."""
    session = database.connect()
    session.warned = []
    session.add_notice_handler(lambda notice: session.warned.append(notice.message_primary))
    yield session
    assert session.warned == []


def commit(session):
    """Nothing is left of the transaction, and the session goes on."""
    session.execute("COMMIT")
    session.execute("INSERT INTO customer_public VALUES (5000, 'n', 't')")


@pytest.mark.parametrize("before", ["", "SAVEPOINT a", "SAVEPOINT a; SAVEPOINT b; ROLLBACK TO a", "SET LOCAL work_mem = '8MB'; SHOW work_mem",
    "LOCK TABLE customer_public IN ROW EXCLUSIVE MODE", "PREPARE p AS SELECT 1"])
@pytest.mark.parametrize("statement", [
    WRITE, WRITE + " RETURNING id", "DELETE FROM customer_private WHERE id = 500", "SELECT FROM customer_private WHERE id = 500 FOR UPDATE",
    "WITH w AS (" + WRITE + " RETURNING id) SELECT * FROM w", "UPDATE customer_private SET name = 'x' WHERE id = abs(-500)",
    "UPDATE customer_private p SET name = 'x' FROM customer_public c WHERE c.id = p.id AND p.id = 500"])
def test_the_first_statement_needs_no_other_try(session, statement, before):
    session.execute(BEGIN)
    for other in filter(None, before.split("; ")):
        session.execute(other)
    assert session.execute(statement).rowcount == 1
    assert moved(session) >= 1
    commit(session)


@pytest.mark.parametrize("mode", ["auto", "force_generic_plan"])
def test_a_prepared_statement_needs_no_other_try(session, mode):
    session.execute(f"SET plan_cache_mode = {mode}")
    for id in (1, 400, 700, 1000):
        session.execute(BEGIN)
        assert session.execute("UPDATE customer_private SET name = 'x' WHERE id = %s", (id,), prepare=True).rowcount == 1
        session.execute("COMMIT")
    assert session.execute(READ).fetchone() == (CUSTOMERS, CUSTOMERS, 4, 0)


def test_a_statement_that_is_its_own_transaction_needs_no_other_try(session):
    session.execute("SET default_transaction_isolation = 'repeatable read'")
    assert session.execute(WRITE).rowcount == 1


def test_the_transaction_has_one_snapshot_from_then_on(database, session):
    """The one of its first statement: what was committed before is seen, what comes later is not."""
    other = database.connect()
    session.execute(BEGIN)
    session.execute("SAVEPOINT a")
    other.execute("UPDATE customer_private SET name = 'y' WHERE id IN (1, 501)")
    assert session.execute(WRITE).rowcount == 1
    session.execute("DECLARE c CURSOR FOR SELECT id FROM customer_private")
    assert session.execute(READ).fetchone() == (CUSTOMERS, CUSTOMERS, 1, 2)
    other.execute("UPDATE customer_private SET name = 'y' WHERE id IN (2, 502, 999)")
    other.execute("CREATE TABLE later AS SELECT 1")
    other.execute("INSERT INTO customer_private VALUES (7000, 'y')")
    for _ in range(2):
        assert session.execute(READ).fetchone() == (CUSTOMERS, CUSTOMERS, 1, 2)
    assert session.execute("SELECT count(*) FROM pg_catalog.pg_class c WHERE relname = 'later'").fetchone() == (0,)
    assert session.execute("FETCH ALL FROM c").rowcount == CUSTOMERS
    with pytest.raises(psycopg.errors.SerializationFailure):
        session.execute("UPDATE customer_private SET name = 'z' WHERE id = 999")
    session.execute("ROLLBACK TO a")
    assert session.execute(READ).fetchone() == (CUSTOMERS, CUSTOMERS, 0, 2)
    commit(session)


def test_an_old_snapshot_holds_up_nobody_after_the_first_statement(database, session):
    """The transaction gave its first snapshot back: it is counted no longer among those that need old rows."""
    session.execute(BEGIN)
    session.execute(WRITE)
    first = session.execute("SELECT backend_xmin::text::bigint, pg_snapshot_xmin(pg_current_snapshot())::text::bigint "
        "FROM pg_stat_activity WHERE pid = pg_backend_pid()").fetchone()
    assert first[0] == first[1]
    session.execute("COMMIT")


SHOWING = {
    "a query": "SELECT 1",
    "a query of the table": "SELECT count(*) FROM customer_private",
    "a write": "UPDATE customer_public SET nick = 'z' WHERE id = 1",
    "a block": "DO $$ BEGIN PERFORM 1; END $$",
    "a cursor": "DECLARE c CURSOR FOR SELECT 1",
    "an export": "SELECT pg_export_snapshot()",
    "a call": "CALL p()",
    "a copy": "COPY (SELECT 1) TO '/dev/null'",
}


@pytest.mark.parametrize("shown", SHOWING)
def test_a_later_statement_moves_everything_and_asks_for_another_try(session, shown):
    session.execute("CREATE PROCEDURE p() LANGUAGE sql AS 'SELECT 1'")
    write = "UPDATE customer_private SET name = 'x' WHERE id IN (1, 500, 1000)"
    for attempt in range(2):
        session.execute(BEGIN)
        session.execute(SHOWING[shown])
        try:
            assert session.execute(write).rowcount == 3
            session.execute("COMMIT")
            break
        except psycopg.errors.SerializationFailure:
            assert attempt == 0
            session.execute("ROLLBACK")
    assert attempt == 1


@pytest.mark.parametrize("first", ["DO $$ BEGIN UPDATE customer_private SET name = 'x' WHERE id = 500; END $$", "SELECT f()",
    "EXECUTE statement", "EXPLAIN ANALYZE " + WRITE])
def test_a_statement_within_another_asks_for_another_try(session, first):
    """The outer one has a snapshot, too."""
    session.execute(f"CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$ {WRITE} $$")
    session.execute(f"PREPARE statement AS {WRITE}")
    for _ in range(2):
        session.execute(BEGIN)
        try:
            session.execute(first)
            break
        except psycopg.errors.SerializationFailure:
            session.execute("ROLLBACK")
    commit(session)
    assert session.execute(READ).fetchone() == (CUSTOMERS, CUSTOMERS, 1, 0)


def test_a_snapshot_of_another_transaction_stays(database, session):
    other = database.connect()
    other.execute(BEGIN)
    name = other.execute("SELECT pg_export_snapshot()").fetchone()[0]
    database.connect().execute("UPDATE customer_private SET name = 'y' WHERE id = 1")
    session.execute(BEGIN)
    session.execute(f"SET TRANSACTION SNAPSHOT '{name}'")
    with pytest.raises(psycopg.errors.SerializationFailure):
        session.execute(WRITE)
    session.execute("ROLLBACK")
    session.execute(BEGIN)
    session.execute(f"SET TRANSACTION SNAPSHOT '{name}'")
    assert session.execute(READ).fetchone() == (CUSTOMERS, CUSTOMERS, 0, 0)
    session.execute("ROLLBACK")


def test_a_serializable_transaction_asks_for_another_try(session):
    session.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
    with pytest.raises(psycopg.errors.SerializationFailure):
        session.execute(WRITE)


def test_a_new_snapshot_after_the_first_statement_is_noticed(server, database, session):
    """What a transaction sees would change."""
    with setting(server, "bullfrog.flaw", "anew_at_any_time"):
        session.execute(BEGIN)
        assert session.execute(READ).fetchone() == (CUSTOMERS, CUSTOMERS, 0, 0)
        database.connect().execute("UPDATE customer_private SET name = 'y' WHERE id = 1")
        session.execute(WRITE)
        assert session.execute(READ).fetchone() == (CUSTOMERS, CUSTOMERS, 1, 1)
        session.execute("COMMIT")


class Frontend:
    """The server's protocol, for what drivers hide: calls of functions that are no statements."""

    def __init__(self, server, name):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(f"{server.root}/.s.PGSQL.5432")
        self.send(b"", struct.pack("!i", 3 << 16) + b"user\0postgres\0database\0" + name.encode() + b"\0\0")
        self.answer()

    def send(self, kind, body):
        self.socket.sendall(kind + struct.pack("!i", len(body) + 4) + body)

    def receive(self, length):
        data = b""
        while len(data) < length:
            data += self.socket.recv(length - len(data))
        return data

    def answer(self):
        """The SQLSTATE of an error, if there is one."""
        code = None
        while True:
            kind, length = struct.unpack("!ci", self.receive(5))
            body = self.receive(length - 4)
            if kind == b"E":
                code = next(field[1:].decode() for field in body.split(b"\0") if field[:1] == b"C")
            if kind == b"Z":
                return code

    def query(self, sql):
        self.send(b"Q", sql.encode() + b"\0")
        return self.answer()

    def call(self, function):
        self.send(b"F", struct.pack("!ihhh", function, 0, 0, 0))
        return self.answer()


def test_a_function_that_the_client_calls_has_shown_the_snapshot(server, database, session):
    function = session.execute("SELECT 'pg_postmaster_start_time()'::regprocedure::int").fetchone()[0]
    frontend = Frontend(server, database.name)
    assert frontend.query(BEGIN) is None
    assert frontend.call(function) is None
    assert frontend.query(WRITE) == "40001"
    assert frontend.query("ROLLBACK; " + BEGIN) is None
    assert frontend.query("UPDATE customer_private SET name = 'x' WHERE id = 1") is None


@pytest.mark.parametrize("options", ["", ", moves => 'transaction'"])
def test_a_statement_does_not_see_what_it_writes(database, customers, options):
    """A function of the statement begins commands of its own, and the snapshot of the transaction goes on with them."""
    migrate(customers, SPLIT, "split", options)
    customers.execute("CREATE TABLE seen (id int)")
    customers.execute("""CREATE FUNCTION note(int) RETURNS text LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO seen VALUES ($1); RETURN repeat('z', 1000); END $$""")
    customers.execute("SET enable_bitmapscan = off; SET enable_seqscan = off")
    customers.execute(BEGIN)
    assert customers.execute("UPDATE customer_public SET nick = note(id) WHERE nick > 'nick 5'").rowcount > 400
    customers.execute("COMMIT")
    assert customers.execute("SELECT count(*) - count(DISTINCT id) FROM seen").fetchone() == (0,)
