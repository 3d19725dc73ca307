"""Statements that take too long: cancelled by their client, or by a timeout."""

import select
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from conftest import BUSY, ENDLESS
from test_gone_clients import names  # noqa: F401 (a fixture)


@pytest.mark.parametrize("statement", [ENDLESS, BUSY])
def test_a_statement_that_runs_is_cancelled(server, statement):
    with server.connect(autocommit=True) as connection:
        timer = threading.Timer(0.2, connection.cancel)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
            connection.execute(statement)
        timer.join()
        connection.cancel()
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("prepare", [False, True])
def test_statements_and_waits_have_timeouts(server, prepare):
    options = "-c statement_timeout=150ms -c lock_timeout=50"
    with server.connect(autocommit=True, options=options) as connection, server.connect(autocommit=True) as other:
        shown = [connection.execute(f"SHOW {name}").fetchone() for name in ("statement_timeout", "lock_timeout")]
        assert shown == [("150ms",), ("50ms",)]
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            connection.execute(ENDLESS, prepare=prepare)
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            connection.execute(BUSY, prepare=prepare)
        other.execute(f"CREATE TABLE late_{prepare} (id int PRIMARY KEY)")
        other.execute(f"INSERT INTO late_{prepare} VALUES (1)")
        with other.transaction():
            other.execute(f"SELECT * FROM late_{prepare} FOR UPDATE")
            with pytest.raises(psycopg.errors.LockNotAvailable, match="lock timeout"):
                connection.execute(f"DELETE FROM late_{prepare}", prepare=prepare)
            connection.execute("SET lock_timeout = 0")
            with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
                connection.execute(f"DELETE FROM late_{prepare}", prepare=prepare)
        connection.execute("SET statement_timeout TO DEFAULT")
        connection.execute("RESET ALL")
        assert connection.execute(f"DELETE FROM late_{prepare}", prepare=prepare).rowcount == 1


# Each row takes long, and no number of rows tells so.
COSTLY = [
    "SELECT sum(length(regexp_replace(repeat('a', 100000), 'a', 'bb', 'g'))) FROM generate_series(1, 100000000)",
    "SELECT sum(length(replace(repeat('a', 1000000), 'a', 'bb' || i))) FROM generate_series(1, 100000000) i",
    "SELECT count(*) FROM generate_series(1, 100000000) i WHERE repeat('a', 1000000) || i LIKE '%b%c%d'",
    "SELECT sum(length((repeat('1,', 100000) || i)::bytea::text)) FROM generate_series(1, 100000000) i",
]


@pytest.mark.parametrize("statement", COSTLY)
def test_a_statement_of_few_costly_rows_has_its_timeout_and_shuts_nobody_out(server, names, statement):
    """It gives the thread of its database up, on which others wait, and is watched from then on."""
    first, *others = names
    with server.connect(first, autocommit=True, options="-c statement_timeout=3s") as connection:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(connection.execute, statement)
            for name in others:
                with server.connect(name, autocommit=True, connect_timeout=20) as other:
                    assert other.execute("SELECT 1").fetchone() == (1,)
            assert isinstance(running.exception(60), psycopg.errors.QueryCanceled)


@pytest.mark.parametrize("name,state,begin", [("idle_in_transaction_session_timeout", "25P03", "BEGIN"),
                                              ("idle_session_timeout", "57P05", "SELECT 1")])
def test_a_client_that_pauses_for_too_long_is_sent_away(server, postgresql, name, state, begin):
    for cluster in (server, postgresql):
        with cluster.connect(autocommit=True) as connection:
            connection.execute(f"SET {name} = '50ms'")
            connection.execute(begin)
            heard = connection.pgconn.socket
            # Nothing is asked: the server speaks first, and then hangs up.
            assert select.select([heard], [], [], 30)[0]
            with pytest.raises(psycopg.Error) as told:
                connection.execute("SELECT 1")
            assert told.value.sqlstate in (state, None)
            assert connection.closed
