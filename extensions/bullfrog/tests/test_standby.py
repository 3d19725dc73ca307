"""A standby reads new tables as the primary does, before, while and after rows move."""

import pathlib
import shutil
import signal
import subprocess

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, database_from, differing, migrate, moved, wait_until
from server import USER, config, needs, place_of_data

pytestmark = needs("pg_basebackup")


class Standby:
    """A copy of a server that follows it, with settings of its own."""

    def __init__(self, server, *settings):
        self.server = server
        self.root = place_of_data(in_memory=True)
        if USER:
            shutil.chown(self.root, USER, USER)
        self.backup()
        self.log = open(server.root / "standby.log", "a")
        self.process = subprocess.Popen(
            [server.programs / "postgres", "-D", self.root, *(f"--{name}" for name in (f"unix_socket_directories={self.root}", *settings))],
            user=USER, cwd=self.root, stdout=self.log, stderr=self.log,
        )
        wait_until(self.answers, "the standby takes connections")

    def backup(self):
        shutil.copy(pathlib.Path(config("bindir")) / "pg_basebackup", self.server.programs)
        self.server.run("pg_basebackup", "-h", self.server.root, "-U", "postgres", "-D", self.root, "-R", "--checkpoint=fast", "--no-sync")

    def answers(self):
        try:
            self.connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def connect(self, database):
        return psycopg.connect(host=str(self.root), user="postgres", dbname=database, autocommit=True)

    def caught_up(self, primary, standby):
        """Waits until the standby has all that was written."""
        # Moves commit without a flush, and only what was flushed is sent.
        primary.execute("CREATE TABLE IF NOT EXISTS flushed (); DROP TABLE flushed")
        place = primary.execute("SELECT pg_current_wal_lsn()").fetchone()[0]
        wait_until(lambda: standby.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (place,)).fetchone()[0],
            "the standby has caught up")

    def remove(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)
        self.log.close()
        shutil.rmtree(self.root, ignore_errors=True)


@pytest.fixture
def standby(server, database):
    standby = Standby(server)
    yield standby
    standby.remove()


@pytest.mark.parametrize("options", ["", ", granularity => 'tuple', moves => 'transaction'"], ids=["pages", "tuples"])
def test_a_standby_reads_each_row_once(database, standby, customers, options):
    migrate(customers, SPLIT, "split", options)
    split = customers
    reader = standby.connect(database.name)
    standby.caught_up(split, reader)
    assert reader.execute("SELECT count(*), sum(id) FROM customer_private").fetchone() == (CUSTOMERS, 500500)
    split.execute("UPDATE customer_private SET name = 'moved' WHERE id <= 500")
    split.execute("SELECT bullfrog.sweep(id, ARRAY[pages - 1]) FROM bullfrog.source")
    assert moved(split) > 1
    standby.caught_up(split, reader)
    assert moved(reader) == moved(split)
    rows = "SELECT count(*), sum(id), count(*) FILTER (WHERE name = 'moved') FROM customer_private"
    assert reader.execute(rows).fetchone() == (CUSTOMERS, 500500, 500)
    assert reader.execute("SELECT count(*) FROM customer_public").fetchone() == (CUSTOMERS,)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        reader.execute("UPDATE customer_private SET name = 'x' WHERE id = 1000")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="customer is closed"):
        reader.execute("SELECT * FROM customer")
    split.execute("SELECT bullfrog.finish('split')")
    standby.caught_up(split, reader)
    assert reader.execute("SELECT count(*), count(ctid) FROM customer_private").fetchone() == (CUSTOMERS, CUSTOMERS)
    reader.close()


def test_a_standby_reads_what_a_live_table_was_at_the_switch(database, standby, customers):
    query = "SELECT id % 100 AS rest, count(*) AS n, max(nick) AS nick FROM customer GROUP BY 1"
    customers.execute(f"CREATE TABLE expected AS {query}")
    migrate(customers, f"CREATE TABLE rests AS {query}", options=", live => '{customer}'")
    reader = standby.connect(database.name)
    writes = (
        "UPDATE customer SET nick = 'z' WHERE id < 300",
        "DELETE FROM customer WHERE id BETWEEN 200 AND 400",
        "INSERT INTO customer SELECT n, 'new' FROM generate_series(2000, 2100) n",
        "SELECT FROM rests WHERE rest < 50 FOR UPDATE",
    )
    for write in writes:
        customers.execute(write)
        standby.caught_up(customers, reader)
        assert differing(reader, "rests", "expected") == 0
    reader.close()


READS = ["TABLE {}", "SELECT count(*) FROM {}", "COPY {} TO STDOUT", "SELECT FROM {} WHERE id = 1"]
WRITES = ["INSERT INTO {} (id) VALUES (5000)", "UPDATE {} SET id = id", "DELETE FROM {}", "TRUNCATE {}", "ANALYZE {}",
    "COPY {} FROM STDIN", "SELECT FROM {} FOR UPDATE", "ALTER TABLE {} ADD COLUMN more int", "DROP TABLE {} CASCADE", "CREATE TABLE c () INHERITS ({})",
    "CREATE INDEX ON {} (id)"]


@pytest.fixture
def stranger(server, database):
    """A standby that does not load the library."""
    standby = Standby(server, "shared_preload_libraries=", "autovacuum=off")
    yield standby
    standby.remove()


def are_refused(connection, statements):
    for table in ("customer", "customer_private", "customer_public"):
        for statement in statements:
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="bullfrog must be loaded"):
                connection.execute(statement.format(table))


def test_a_server_without_the_library_gives_no_answer_while_rows_move(server, template, database, split, stranger):
    """Also to a superuser, on a standby and when it was promoted. What has ended it reads as any server does."""
    split.execute("UPDATE customer_private SET name = 'moved' WHERE id <= 500")
    with database_from(server, template, "finished") as finished, database_from(server, template, "aborted") as aborted:
        for ended, how in ((finished, "finish"), (aborted, "abort")):
            migrate(ended.connect(), SPLIT)
            ended.connect().execute("UPDATE customer_private SET name = 'moved' WHERE id <= 500")
            ended.connect().execute(f"SELECT bullfrog.{how}('m')")
        reader = stranger.connect(database.name)
        stranger.caught_up(split, reader)
        are_refused(reader, READS)
        with stranger.connect("postgres") as admin:
            admin.execute("SELECT pg_promote()")
        are_refused(reader, READS + WRITES)
        for ended, table in ((finished, "customer_private"), (aborted, "customer")):
            with stranger.connect(ended.name) as connection:
                connection.execute(f"UPDATE {table} SET name = 'again' WHERE id = 1")
                rows = f"SELECT count(*), count(*) FILTER (WHERE name = 'moved') FROM {table}"
                assert connection.execute(rows).fetchone() == (CUSTOMERS, 499)
    reader.close()
    assert split.execute("SELECT count(*) FROM customer_private").fetchone() == (CUSTOMERS,)


@pytest.mark.long
def test_tables_that_anybody_can_open_are_noticed(server, database, split):
    """Without their access method the answer is a wrong one, and the test above fails."""
    split.execute("UPDATE customer_private SET name = 'moved' WHERE id <= 203")
    with split.transaction():
        for table in ("customer", "customer_private", "customer_public"):
            split.execute("SELECT bullfrog.lock(o, 'ACCESS EXCLUSIVE'), bullfrog.set_access_method(o, 'heap') FROM (SELECT to_regclass(%s)::oid AS o) t", (table,))
    stranger = Standby(server, "shared_preload_libraries=", "autovacuum=off")
    try:
        with stranger.connect(database.name) as reader:
            assert 203 <= reader.execute("SELECT count(*) FROM customer_private").fetchone()[0] < CUSTOMERS
            with pytest.raises(pytest.fail.Exception):
                are_refused(reader, READS)
    finally:
        stranger.remove()


def test_who_may_not_change_how_tables_are_accessed(split):
    split.execute("DROP ROLE IF EXISTS meddler; CREATE ROLE meddler; SET ROLE meddler")
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            split.execute("SELECT bullfrog.set_access_method('customer'::regclass, 'heap')")
    finally:
        split.execute("RESET ROLE; DROP ROLE meddler")
