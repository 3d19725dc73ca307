"""Databases that a long statement keeps busy, and places for such statements that others wait for."""

import os
import select
import subprocess
import threading
import time

import psycopg
import pytest

from conftest import BUSY, busy_with_endless, running
from test_gone_clients import active, psql, within

PATIENCE = 3.0


@pytest.fixture(scope="module")
def hurried(tmp_path_factory):
    with running(tmp_path_factory.mktemp("busy"), settings={"tenants.patience": f"{PATIENCE * 1000:.0f}ms"}) as server:
        with server.connect(autocommit=True) as connection:
            for number in range(2 + len(os.sched_getaffinity(0))):
                connection.execute(f"CREATE DATABASE busy{number}")
        yield server


def test_a_place_is_given_up_when_statements_of_other_databases_wait(hurried):
    names = [f"busy{number}" for number in range(1 + len(os.sched_getaffinity(0)))]
    failed = {}

    def run(name):
        with hurried.connect(name, autocommit=True) as connection:
            try:
                connection.execute(BUSY)
            except psycopg.Error as error:
                failed[name] = error

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    # One more than there are places: the first that had one gives it up.
    within(60, lambda: failed)
    for name, error in failed.items():
        assert error.sqlstate == "57014" and "wait for its place" in str(error), (name, error)
    for name in names:
        with hurried.connect("postgres", autocommit=True) as other:
            for pid in active(hurried, name):
                other.execute("SELECT pg_cancel_backend(%s)", (pid,))
    for thread in threads:
        thread.join(60)


def test_a_place_that_nobody_waits_for_is_kept(hurried):
    with hurried.connect("busy0", autocommit=True) as connection, busy_with_endless(connection):
        time.sleep(2 * PATIENCE)


def test_a_login_to_a_busy_database_is_told_so_and_refused_in_the_end(hurried):
    with hurried.connect("busy0", autocommit=True) as connection, busy_with_endless(connection):
        within(60, lambda: active(hurried, "busy0"))
        began = time.monotonic()
        code, _, told = hurried.run("psql", "-X", "-d", "busy0", "-c", "SELECT 1")
        assert code == 2 and PATIENCE - 0.5 < time.monotonic() - began < PATIENCE + 10
        assert "NOTICE:  the database is busy" in told
        assert "FATAL:  the database is busy" in told and "pg_cancel_backend" in told
    with hurried.connect("busy0") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_login_goes_on_when_the_database_is_free(hurried):
    command = ["psql", "-X", "-h", "127.0.0.1", "-p", str(hurried.port), "-U", "postgres", "-d", "busy0", "-Atc", "SELECT 1"]
    with hurried.connect("busy0", autocommit=True) as connection:
        with busy_with_endless(connection):
            within(60, lambda: active(hurried, "busy0"))
            client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert "NOTICE:  the database is busy" in client.stderr.readline()
        out, _ = client.communicate(timeout=60)
    assert (client.returncode, out.strip()) == (0, "1")


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("prepare", [False, True])
def test_a_short_statement_that_waits_for_its_database_has_its_timeout(hurried, prepare, begun):
    with hurried.connect("busy0", autocommit=True) as waiting, hurried.connect("busy0", autocommit=True) as connection:
        waiting.execute("SET statement_timeout = '300ms'")
        if begun:
            waiting.execute("BEGIN")
        with busy_with_endless(connection):
            within(60, lambda: active(hurried, "busy0"))
            for _ in range(2):
                began = time.monotonic()
                with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
                    waiting.execute("SELECT 1", prepare=prepare)
                assert time.monotonic() - began < 30
                status = psycopg.pq.TransactionStatus
                assert waiting.info.transaction_status == (status.INERROR if begun else status.IDLE)
        if begun:
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                waiting.execute("SELECT 1")
            waiting.execute("ROLLBACK")
        waiting.execute("SET statement_timeout = 0")
        assert waiting.execute("SELECT 1", prepare=prepare).fetchone() == (1,)


def test_a_short_statement_that_waits_for_its_database_is_cancelled(hurried):
    with hurried.connect("busy0", autocommit=True) as waiting, hurried.connect("busy0", autocommit=True) as connection:
        with busy_with_endless(connection):
            within(60, lambda: active(hurried, "busy0"))
            timer = threading.Timer(0.3, waiting.cancel_safe)
            timer.start()
            with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                waiting.execute("SELECT 1")
            timer.join()
        assert waiting.execute("SELECT 1").fetchone() == (1,)


def test_who_waits_for_a_busy_database_and_dies_is_gone(hurried):
    def connections():
        with hurried.connect(autocommit=True) as administration:
            query = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'busy0'"
            return administration.execute(query).fetchone()[0]

    with hurried.connect("busy0", autocommit=True) as connection:
        waiting = hurried.connect("busy0", autocommit=True)
        with busy_with_endless(connection):
            within(60, lambda: active(hurried, "busy0"))
            waiting.pgconn.send_query(b"SELECT 1")
            within(60, lambda: len(active(hurried, "busy0")) == 2)
            os.close(waiting.pgconn.socket)
            within(60, lambda: connections() == 1)


def test_who_waits_for_a_busy_database_is_terminated(hurried):
    with hurried.connect("busy0", autocommit=True) as connection, hurried.connect(autocommit=True) as administration:
        waiting = hurried.connect("busy0", autocommit=True)
        with busy_with_endless(connection):
            within(60, lambda: active(hurried, "busy0"))
            waiting.pgconn.send_query(b"SELECT 1")
            within(60, lambda: len(active(hurried, "busy0")) == 2)
            administration.execute("SELECT pg_terminate_backend(%s)", (waiting.info.backend_pid,))
            assert select.select([waiting.pgconn.socket], [], [], 30)[0]
            waiting.pgconn.consume_input()
            result = waiting.pgconn.get_result()
            assert result.error_field(67) == b"57P01"


def test_psql_that_is_killed_while_it_logs_in_is_gone(hurried):
    with hurried.connect("busy0", autocommit=True) as connection, busy_with_endless(connection):
        within(60, lambda: active(hurried, "busy0"))
        client = psql(hurried, "busy0")
        time.sleep(1.5)
        client.kill()
        client.wait()
        assert len(active(hurried, "busy0")) == 1
