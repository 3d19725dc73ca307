"""Statements whose client is gone, and those that another connection ends."""

import contextlib
import os
import subprocess
import threading
import time

import psycopg
import pytest
from conftest import BUSY, ENDLESS

PATIENCE = 60


@pytest.fixture
def names(server):
    """More databases than there are places for long statements."""
    names = [f"gone{number}" for number in range(2 + len(os.sched_getaffinity(0)))]
    with server.connect(autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}")
    yield names
    with server.connect(autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE {name}")


def within(patience, happens):
    """Waits until something is so; it hangs nobody if it never is."""
    deadline = time.monotonic() + patience
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def active(server, database):
    """The numbers of connections to a database whose statement runs."""
    with server.connect(autocommit=True) as administration:
        query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND state = 'active'"
        return [pid for (pid,) in administration.execute(query, (database,)).fetchall()]


def psql(server, database, statement=BUSY):
    command = ["psql", "-X", "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "-d", database, "-c", statement]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("statement", [ENDLESS, BUSY])
def test_a_statement_ends_with_its_client(server, names, statement):
    # As many as there are, so that each has a place or waits for one.
    clients = [psql(server, name, statement) for name in names]
    for name in names:
        within(PATIENCE, lambda name=name: active(server, name))
    for client in clients:
        client.kill()
        client.wait()
    for name in names:
        within(PATIENCE, lambda name=name: not active(server, name))
        with server.connect(name, autocommit=True) as connection:
            assert connection.execute("SELECT count(*) FROM generate_series(1, 100000)").fetchone() == (100_000,)


@pytest.mark.parametrize("statement", [ENDLESS, BUSY])
def test_one_database_never_has_all_places(server, names, statement):
    clients = [psql(server, names[0], statement) for _ in range(8)]
    try:
        within(PATIENCE, lambda: active(server, names[0]))
        with server.connect(names[1], autocommit=True) as other:
            other.execute("SET statement_timeout = '60s'")
            reads = statement.replace("1000000000000", "100000")
            assert other.execute(reads).fetchone() == (100_000,)
    finally:
        for client in clients:
            client.kill()
            client.wait()


@pytest.mark.parametrize("signal,state", [("pg_cancel_backend", "57014"), ("pg_terminate_backend", "57P01")])
@pytest.mark.parametrize("from_outside", [True, False])
@pytest.mark.parametrize("statement", [ENDLESS, BUSY])
def test_a_statement_is_ended_from_another_connection(server, names, signal, state, from_outside, statement):
    other = server.connect("postgres" if from_outside else names[0], autocommit=True)
    connection = server.connect(names[0], autocommit=True)
    with other, contextlib.closing(connection):
        pid = connection.info.backend_pid
        assert connection.execute("SELECT pg_backend_pid()").fetchone() == (pid,)
        failed = []

        def run():
            try:
                connection.execute(statement)
            except psycopg.Error as error:
                failed.append(error)

        running = threading.Thread(target=run)
        running.start()
        within(PATIENCE, lambda: pid in active(server, names[0]))
        # Simple text, as psql sends it, is answered though the database is busy with the statement.
        result = other.pgconn.exec_(f"SELECT {signal}({pid})".encode())
        assert result.get_value(0, 0) == b"t"
        running.join(PATIENCE)
        assert failed[0].sqlstate == state
        assert connection.closed == (signal == "pg_terminate_backend")
        assert other.execute("SELECT count(*) FROM generate_series(1, 100000)").fetchone() == (100_000,)
        assert other.execute(f"SELECT {signal}(2147483647)").fetchone() == (False,)


def test_a_client_that_does_nothing_is_sent_away(server):
    with server.connect(autocommit=True) as other, contextlib.closing(server.connect(autocommit=True)) as connection:
        assert other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,)).fetchone() == (True,)
        with pytest.raises(psycopg.OperationalError, match="terminating connection|closed"):
            while True:
                connection.execute("SELECT 1")


def test_statements_have_a_bound_that_clients_set(server, postgresql):
    with server.connect(autocommit=True) as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("10min",)
        connection.execute("SET statement_timeout = 0")
        connection.execute("RESET statement_timeout")
        assert connection.execute("SHOW statement_timeout").fetchone() == ("10min",)


def test_settings_are_reset_to_what_the_client_began_with(server, postgresql):
    options = "-c statement_timeout=5s -c search_path=a,b -c app.tenant=one"
    names = ["statement_timeout", "search_path", "app.tenant", "timezone", "application_name"]
    for cluster in (server, postgresql):
        with cluster.connect(autocommit=True, options=options, application_name="one") as connection:
            def shown():
                return [connection.execute(f"SHOW {name}").fetchone()[0] for name in names]

            begun = shown()
            for reset in (["RESET ALL"], ["DISCARD ALL"], [f"SET {name} TO DEFAULT" for name in names],
                          [f"RESET {name}" for name in names], [f"SELECT set_config('{name}', NULL, false)" for name in names]):
                for name, value in zip(names, ["1s", "c", "two", "Asia/Tokyo", "two"], strict=True):
                    connection.execute(f"SET {name} = '{value}'")
                assert shown() != begun
                for statement in reset:
                    connection.execute(statement)
                assert shown() == begun, (cluster, reset)


def test_a_transaction_that_is_begun_twice_has_the_modes_of_the_second(server, postgresql):
    for cluster in (server, postgresql):
        with cluster.connect(autocommit=True) as connection:
            for statement in ["BEGIN", "SET LOCAL application_name = 'two'", "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY"]:
                connection.execute(statement)
            assert connection.execute("SHOW transaction_isolation").fetchone() == ("serializable",)
            assert connection.execute("SHOW transaction_read_only").fetchone() == ("on",)
            assert connection.execute("SHOW application_name").fetchone() == ("two",)
            connection.execute("COMMIT")
            assert connection.execute("SHOW application_name").fetchone() != ("two",)
            connection.execute("BEGIN")
            connection.execute("SELECT 1")
            with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="before any query"):
                connection.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
            connection.execute("ROLLBACK")
            connection.execute("BEGIN")
            connection.execute("SAVEPOINT a")
            with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="in a subtransaction"):
                connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            connection.execute("ROLLBACK")
