"""What others see in pg_stat_activity, beside PostgreSQL."""

import contextlib
import threading
import time

import psycopg
import pytest
from conftest import BUSY

PATIENCE = 60
SHOWN = "state, query, wait_event_type, xact_start IS NOT NULL, backend_start IS NOT NULL, query_start <= now(), application_name, client_addr, client_port > 0"


@pytest.fixture(params=["savanna", "postgresql"])
def cluster(request, server, postgresql):
    return server if request.param == "savanna" else postgresql


def activity(watcher, pid, shown=SHOWN):
    return watcher.execute(f"SELECT {shown} FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone()


def until(watcher, pid, expected):
    """Waits until the first columns that are shown are as expected, and gives all."""
    deadline = time.monotonic() + PATIENCE
    while (shown := activity(watcher, pid))[: len(expected)] != expected:
        assert time.monotonic() < deadline, shown
        time.sleep(0.02)
    return shown


@contextlib.contextmanager
def running(connection, statement):
    """A statement that runs meanwhile."""
    failed = []

    def run():
        try:
            connection.execute(statement)
        except psycopg.Error as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failed
    finally:
        connection.cancel()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_connection_is_idle_active_or_in_a_transaction(cluster):
    with cluster.connect(autocommit=True) as watcher, cluster.connect(autocommit=True, application_name="till") as connection:
        pid = connection.info.backend_pid
        connection.execute("SELECT 1")
        seen = until(watcher, pid, ("idle", "SELECT 1", "Client"))
        assert seen[3:7] == (False, True, True, "till")
        connection.execute("BEGIN")
        connection.execute("SELECT %s", ("value",))
        assert until(watcher, pid, ("idle in transaction", "SELECT $1", "Client"))[3]
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        until(watcher, pid, ("idle in transaction (aborted)", "SELECT 1 / 0", "Client"))
        connection.execute("ROLLBACK")
        connection.execute("SET application_name = 'other'")
        assert until(watcher, pid, ("idle",))[6] == "other"


def test_a_statement_says_for_what_it_waits(cluster):
    with cluster.connect(autocommit=True) as watcher, cluster.connect(autocommit=True) as holds, cluster.connect(autocommit=True) as waits:
        watcher.execute("DROP TABLE IF EXISTS watched")
        watcher.execute("CREATE TABLE watched (k int PRIMARY KEY, v int)")
        watcher.execute("INSERT INTO watched VALUES (1, 1)")
        holds.execute("BEGIN")
        holds.execute("UPDATE watched SET v = 2")
        update = "UPDATE watched SET v = 3"
        with running(waits, update) as failed:
            seen = until(watcher, waits.info.backend_pid, ("active", update, "Lock"))
            assert seen[3]
            assert activity(watcher, waits.info.backend_pid, "wait_event") == ("transactionid",)
        assert isinstance(failed[0], psycopg.errors.QueryCanceled)
        with running(waits, "SELECT pg_sleep(600)"):
            until(watcher, waits.info.backend_pid, ("active", "SELECT pg_sleep(600)", "Timeout"))
            assert activity(watcher, waits.info.backend_pid, "wait_event") == ("PgSleep",)
        holds.execute("ROLLBACK")
        watcher.execute("DROP TABLE watched")


def test_what_other_users_do_is_not_shown(server):
    with server.connect(autocommit=True) as administration:
        administration.execute("CREATE DATABASE others")
        try:
            with server.connect("others", autocommit=True) as owner:
                for name in ("ann", "bob"):
                    owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")

            def come(name):
                return server.connect("others", user=name, password="secret", autocommit=True)

            with come("ann") as ann, come("bob") as bob, come("ann") as also:
                ann.execute("SELECT 'a secret'")
                pid = ann.info.backend_pid
                assert until(also, pid, ("idle",))[1] == until(administration, pid, ("idle",))[1] == "SELECT 'a secret'"
                hidden = activity(bob, pid, "usename, state, query, wait_event, query_start, client_addr, client_port")
                assert hidden == ("ann", None, "<insufficient privilege>", None, None, None, None)
        finally:
            administration.execute("DROP DATABASE others")


def test_a_long_text_is_cut(cluster):
    with cluster.connect(autocommit=True) as watcher, cluster.connect(autocommit=True) as connection:
        connection.execute(f"SELECT '{'x' * 5000}'")
        pid = connection.info.backend_pid
        assert len(activity(watcher, pid, "query")[0]) == 1023


def test_where_a_client_is_connected_from_is_shown(server):
    with server.connect(autocommit=True) as watcher, server.connect(autocommit=True) as connection:
        shown = "host(client_addr), client_port > 0, backend_start <= now(), backend_type"
        assert activity(watcher, connection.info.backend_pid, shown) == ("127.0.0.1", True, True, "client backend")


def test_a_statement_of_a_busy_database_is_seen_from_another(server):
    with server.connect(autocommit=True) as administration:
        administration.execute("CREATE DATABASE watched")
        try:
            with server.connect("watched", autocommit=True) as connection, server.connect("watched", autocommit=True) as waits:
                with running(connection, BUSY):
                    until(administration, connection.info.backend_pid, ("active", BUSY))
                    with running(waits, "SELECT 1"):
                        deadline = time.monotonic() + PATIENCE
                        while activity(administration, waits.info.backend_pid, "state, query, wait_event_type") != ("active", None, "Place"):
                            assert time.monotonic() < deadline
                            time.sleep(0.01)
                    # It was cancelled, and waits for nothing while the database still does.
                    assert activity(administration, waits.info.backend_pid, "state, wait_event_type") == ("idle", "Client")
        finally:
            administration.execute("DROP DATABASE watched")
