"""Tenants that sleep and wake, a log that is cut, and kills meanwhile."""

import os
import random
import threading
import time

import psycopg
import pytest
from conftest import CRASHES, Server
from log_size import log_bytes

# Tenants that have something to be redone when the server is killed.
DIRTY = int(os.environ.get("TENANTS_DIRTY", "30"))
IDLE_MS = 100
LIMITS = {"tenants.idle": f"{IDLE_MS}ms", "tenants.log_distance": "64KiB"}


def until(condition):
    """Waits for something that comes to be by itself."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stored(server):
    """How many tenants have segments."""
    return sum(any(tenant.glob("objects/*")) for tenant in (server.data / "store" / "tenants").glob("*"))


def create(server, names):
    with server.connect(autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}")


def test_a_tenant_wakes_as_it_fell_asleep(tmp_path):
    server = Server(tmp_path, LIMITS)
    server.start()
    server.listen()
    names = [f"t{number}" for number in range(8)]
    create(server, names)
    for round in range(3):
        for number, name in enumerate(names):
            with server.connect(name) as connection:
                if round == 0:
                    connection.execute("CREATE TABLE t (id serial PRIMARY KEY, tenant int, round int UNIQUE, b text)")
                connection.execute("INSERT INTO t (tenant, round, b) VALUES (%s, %s, %s)", (number, round, "x" * 20_000))
        until(lambda: stored(server) >= len(names))
        with server.connect(names[0]):
            until(lambda: server.awake() > 0)
        # `postgres` sleeps, too.
        until(lambda: server.awake() == 0)
    for number, name in enumerate(names):
        with server.connect(name) as connection:
            rows = connection.execute("SELECT tenant, round, length(b) FROM t ORDER BY round DESC").fetchall()
            assert rows == [(number, round, 20_000) for round in (2, 1, 0)]
            assert connection.execute("SELECT count(*) FROM t WHERE round = 1").fetchone() == (1,)
    server.kill()


def test_the_log_is_cut_and_removed_tenants_leave_nothing(tmp_path):
    server = Server(tmp_path, LIMITS)
    server.start()
    server.listen()
    create(server, ["kept", "gone"])
    for name in ("kept", "gone"):
        with server.connect(name) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY, b text)")
    with server.connect("kept", autocommit=True) as connection:
        for id in range(60):
            connection.execute("INSERT INTO t VALUES (%s, %s)", (id, "x" * 100_000))
            connection.execute("SELECT 1")
        # 6 MB were written; a file of the log ends at 1 MiB.
        until(lambda: log_bytes(server.data / "log") < 4 << 20)
    until(lambda: stored(server) >= 2)
    with server.connect(autocommit=True) as connection:
        connection.execute("DROP DATABASE gone")
    until(lambda: stored(server) <= 2)
    server.kill()
    server.start()
    server.listen()
    with server.connect("kept") as connection:
        assert connection.execute("SELECT count(*), sum(length(b)) FROM t").fetchone() == (60, 6_000_000)
    with server.connect() as connection:
        connection.execute("SELECT 1")
    try:
        server.connect("gone")
        raise AssertionError("it is gone")
    except psycopg.OperationalError as error:
        assert "does not exist" in str(error)
    server.kill()


def test_a_snapshot_that_is_too_old_does_not_hold_up_the_log(tmp_path):
    server = Server(tmp_path, {**LIMITS, "tenants.snapshot_age": "1s"})
    server.start()
    server.listen()
    with server.connect(autocommit=True) as writer, server.connect() as reader:
        writer.execute("CREATE TABLE t (id int PRIMARY KEY, b text)")
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (0,)
        for id in range(60):
            writer.execute("INSERT INTO t VALUES (%s, %s)", (id, "x" * 100_000))
        until(lambda: log_bytes(server.data / "log") < 4 << 20)
        with pytest.raises(psycopg.errors.SnapshotTooOld):
            reader.execute("SELECT count(*) FROM t")
        reader.rollback()
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (60,)
    server.kill()


def write(server, seed, names, acknowledged, stop):
    """Adds rows to tenants, one after the other, until the server is gone."""
    dice = random.Random(seed)
    number = 0
    try:
        while not stop.is_set():
            with server.connect(dice.choice(names), autocommit=True) as connection:
                for _ in range(3):
                    number += 1
                    row = (f"{server.epoch}-{seed}-{number}", number)
                    connection.execute("INSERT INTO t VALUES (%s, %s)", row)
                    acknowledged.append((connection.info.dbname, row[0]))
    except psycopg.OperationalError:
        pass


@pytest.mark.parametrize("seed", CRASHES)
def test_what_was_acknowledged_by_many_tenants_survives_kills(tmp_path, seed):
    server = Server(tmp_path, LIMITS)
    server.start()
    server.listen()
    names = [f"t{number}" for number in range(DIRTY)]
    create(server, names)
    for name in names:
        with server.connect(name, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (name text PRIMARY KEY, n int)")
    dice = random.Random(seed)
    acknowledged, early = [], 0
    for _ in range(3):
        stop = threading.Event()
        clients = [threading.Thread(target=write, args=(server, 4 * seed + client, names, acknowledged, stop))
                   for client in range(4)]
        for client in clients:
            client.start()
        time.sleep(dice.uniform(0.5, 1.5))
        server.kill()
        stop.set()
        for client in clients:
            client.join()
        early += server.crash_storm(dice)
        for name in names:
            with server.connect(name) as connection:
                there = {row for (row,) in connection.execute("SELECT name FROM t")}
                assert {row for tenant, row in acknowledged if tenant == name} <= there
    assert len(acknowledged) > 20
    assert early, "it was never killed while it read its log"
    server.kill()


@pytest.mark.parametrize("seed", CRASHES)
def test_dirty_tenants_come_back_from_the_log_however_often_the_server_is_killed(tmp_path, seed):
    """No tenant is flushed before the first kill: all of them are in the log alone."""
    server = Server(tmp_path)
    server.start()
    server.listen()
    names = [f"t{number}" for number in range(DIRTY)]
    create(server, names)
    dice = random.Random(seed)
    for round in range(3):
        for number, name in enumerate(names):
            with server.connect(name, autocommit=True) as connection:
                if round == 0:
                    connection.execute("CREATE TABLE t (round int PRIMARY KEY, tenant int)")
                connection.execute("INSERT INTO t VALUES (%s, %s)", (round, number))
        server.kill()
        # While it reads the log, and while it wakes somebody.
        server.kill_while_it_starts(dice, 1)
        server.start()
        server.listen()
        server.connect(dice.choice(names)).close()
        server.kill()
        began = time.monotonic()
        server.start()
        server.listen()
        with server.connect(names[-1]) as connection:
            connection.execute("SELECT 1 FROM t")
        print(f"{DIRTY} dirty tenants: {time.monotonic() - began:.2f} s from the start to the first row")
        for number, name in enumerate(names):
            with server.connect(name) as connection:
                rows = connection.execute("SELECT round, tenant FROM t ORDER BY round").fetchall()
                assert rows == [(each, number) for each in range(round + 1)]
    server.kill()
