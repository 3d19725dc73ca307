"""The process that moves rows: in the background, after crashes, in several databases."""

import os
import signal

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, moved, reconnect, wait_for_crash, wait_until


def pages_left(connection):
    return connection.execute("SELECT sum(pages_left)::int FROM bullfrog.progress").fetchone()[0]


def mover(connection):
    row = connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'bullfrog mover' AND datname = current_database()"
    ).fetchone()
    return row and row[0]


@pytest.fixture
def at_once(server):
    """The background starts without delay."""
    with server.connect() as admin:
        admin.execute("ALTER SYSTEM SET bullfrog.start_delay = 0")
        admin.execute("SELECT pg_reload_conf()")
    yield
    with server.connect() as admin:
        admin.execute("ALTER SYSTEM RESET bullfrog.start_delay")
        admin.execute("SELECT pg_reload_conf()")


def check_all(connection):
    assert connection.execute("SELECT count(*), count(DISTINCT id) FROM customer_private").fetchone() == (CUSTOMERS, CUSTOMERS)
    assert connection.execute("SELECT count(*), count(DISTINCT id) FROM customer_public").fetchone() == (CUSTOMERS, CUSTOMERS)


def test_the_background_moves_everything(at_once, split):
    wait_until(lambda: pages_left(split) == 0, "all pages were moved")
    check_all(split)
    split.execute("SELECT bullfrog.finish('split')")
    check_all(split)


def test_progress_tells_the_time_left(split):
    progress = "SELECT time_left > interval '0', time_left = interval '0' FROM bullfrog.progress"
    assert split.execute(progress).fetchall() == [(None, None)]
    split.execute("SELECT FROM customer_private WHERE id = 1 FOR UPDATE")
    assert split.execute(progress).fetchall() == [(True, False)]
    split.execute("SELECT bullfrog.move(id, ARRAY(SELECT generate_series(0, pages - 1))) FROM bullfrog.source")
    assert split.execute(progress).fetchall() == [(False, True)]


def test_a_paused_migration_moves_only_what_is_touched(at_once, customers):
    customers.execute("BEGIN")
    customers.execute("SELECT bullfrog.migrate('split', %s)", (SPLIT,), prepare=False)
    customers.execute("SELECT bullfrog.pause('split')")
    customers.execute("COMMIT")
    # The mover has looked for work at least once when it has answered.
    customers.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    customers.execute("UPDATE customer_private SET name = 'x' WHERE id = 1000")
    assert moved(customers) == 2
    customers.execute("SELECT bullfrog.resume('split')")
    wait_until(lambda: pages_left(customers) == 0, "all pages were moved")


def test_deleted_rows_stay_deleted_when_the_background_passes(at_once, customers):
    customers.execute("BEGIN")
    customers.execute("SELECT bullfrog.migrate('split', %s)", (SPLIT,), prepare=False)
    customers.execute("SELECT bullfrog.pause('split')")
    customers.execute("COMMIT")
    customers.execute("DELETE FROM customer_private WHERE id BETWEEN 100 AND 900")
    customers.execute("SELECT bullfrog.resume('split')")
    wait_until(lambda: pages_left(customers) == 0, "all pages were moved")
    assert customers.execute("SELECT count(*) FROM customer_private").fetchone() == (199,)


def test_a_mover_that_is_terminated_is_replaced(split):
    split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    first = mover(split)
    split.execute("SELECT pg_terminate_backend(%s)", (first,))
    wait_until(lambda: mover(split) != first, "the mover ended")
    split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1000")
    assert moved(split) == 2
    check_all(split)


def test_a_session_that_gives_up_leaves_the_move_to_the_mover(database, split):
    blocker = database.connect()
    blocker.execute("BEGIN")
    blocker.execute("LOCK TABLE customer_public IN SHARE MODE")
    split.execute("SET statement_timeout = '200ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    blocker.execute("COMMIT")
    split.execute("RESET statement_timeout")
    assert split.execute("UPDATE customer_private SET name = 'x' WHERE id = 1").rowcount == 1
    check_all(split)


@pytest.mark.parametrize("victim", ["session", "mover", "server"])
def test_a_crash_in_the_middle_of_moves_loses_nothing(server, database, split, victim):
    """The victim is killed while a mover waits in the middle of a page: the first new table has its rows, the second not."""
    split.execute("UPDATE customer_private SET name = 'before' WHERE id = 1")
    blocker, waiting = database.connect(), database.connect()
    blocker.execute("BEGIN")
    blocker.execute("LOCK TABLE customer_public IN SHARE MODE")
    waiting.pgconn.send_query(b"UPDATE customer_private SET name = 'after' WHERE id = 1000")
    wait_until(
        lambda: split.execute("SELECT FROM pg_locks WHERE relation = 'customer_public'::regclass AND NOT granted").rowcount == 1,
        "the mover waits in the middle of a page",
    )
    if victim == "server":
        server.kill()
        server.start()
    else:
        os.kill(mover(split) if victim == "mover" else waiting.info.backend_pid, signal.SIGKILL)
        wait_for_crash(split)
    connection = reconnect(database)
    check_all(connection)
    assert connection.execute("SELECT id FROM customer_private WHERE name IN ('before', 'after')").fetchall() == [(1,)]
    connection.execute("UPDATE customer_private SET name = 'again' WHERE id = 1000")
    check_all(connection)
    connection.execute("SELECT bullfrog.finish('split')")
    check_all(connection)


def test_after_a_crash_the_background_goes_on_by_itself(at_once, server, database, customers):
    customers.execute("BEGIN")
    customers.execute("SELECT bullfrog.migrate('split', %s)", (SPLIT,), prepare=False)
    customers.execute("SELECT bullfrog.pause('split')")
    customers.execute("COMMIT")
    customers.execute("UPDATE customer_private SET name = 'x' WHERE id = 1")
    customers.execute("UPDATE bullfrog.migration SET phase = 'moving'")
    server.kill()
    server.start()
    connection = reconnect(database)
    wait_until(lambda: pages_left(connection) == 0, "all pages were moved")
    check_all(connection)
