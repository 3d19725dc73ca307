"""A switch and an end of a migration while clients use its tables all the time, in every order."""

import random
import threading

import psycopg
import pytest

from conftest import CUSTOMERS, SPLIT, answered, finish_under_load, migrate, moved, setting, wait_until

CLIENTS = 8
KEYS = 40
COUNTERS = ("left_side", "right_side")


class Client(threading.Thread):
    """Adds one to rows of both tables in transactions of several statements, and remembers how often."""

    def __init__(self, database, number):
        super().__init__()
        self.random, self.number = random.Random(number), number
        # As servers have it: a circle goes on for longer than a short try for locks.
        self.connection = database.connect(options="-c deadlock_timeout=1s")
        self.tables, self.added, self.is_ended, self.failure = COUNTERS, 0, False, None

    def run(self):
        try:
            while not self.is_ended:
                self.attempt()
        except psycopg.Error as failure:
            self.failure = failure

    def attempt(self):
        tables = self.tables
        try:
            with self.connection.transaction():
                for table in self.random.sample(tables, 2):
                    key = self.random.randrange(KEYS) * CLIENTS + self.number
                    self.connection.execute(f"UPDATE {table} SET n = n + 1 WHERE k = %s", (key,))
                    self.connection.execute("SELECT pg_sleep(0.01)")
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            return
        except psycopg.errors.ObjectNotInPrerequisiteState:
            assert tables == COUNTERS
            self.tables = tuple(f"new_{table}" for table in COUNTERS)
            return
        self.added += 2


@pytest.fixture
def clients(server, database):
    with setting(server, "bullfrog.movers", "2"):
        admin = database.connect()
        for table in COUNTERS:
            admin.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, n int NOT NULL, pad text)")
            admin.execute(f"INSERT INTO {table} SELECT k, 0, repeat('.', 200) FROM generate_series(0, {KEYS * CLIENTS - 1}) k")
        clients = [Client(database, number) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        wait_until(lambda: all(client.added > 0 for client in clients), "all clients are at work")
        yield clients
        for client in clients:
            client.is_ended = True
            client.join()


@pytest.mark.parametrize("way", ["finish", "abort"])
def test_a_switch_and_an_end_under_steady_load_come_to_an_end(database, clients, way):
    admin = database.connect()
    admin.execute("SET lock_timeout = '60s'; SET deadlock_timeout = '1s'")
    migrate(admin, "; ".join(f"CREATE TABLE new_{table} AS SELECT k, n FROM {table}; ALTER TABLE new_{table} ADD PRIMARY KEY (k)"
        for table in COUNTERS))
    before = [client.added for client in clients]
    wait_until(lambda: all(client.added > before[number] for number, client in enumerate(clients)), "all clients use the new tables")
    assert moved(admin) > 0
    if way == "finish":
        finish_under_load(admin)
    for client in clients:
        client.is_ended = True
        client.join()
        assert client.failure is None
    if way == "abort":
        admin.execute("SELECT bullfrog.abort('m')")
    tables = COUNTERS if way == "abort" else [f"new_{table}" for table in COUNTERS]
    total = " UNION ALL ".join(f"SELECT n FROM {table}" for table in tables)
    assert admin.execute(f"SELECT sum(n) FROM ({total}) t").fetchone() == (sum(client.added for client in clients),)


SESSIONS = 150


def test_more_sessions_than_movers_could_ever_be_have_their_rows_moved_at_once(database):
    """Each has a place on the board: none waits for one."""
    admin, watcher = database.connect(), database.connect()
    sessions = [database.connect() for _ in range(SESSIONS)]
    migrate(admin, SPLIT)
    # Nothing moves before all of them wait.
    with admin.transaction():
        admin.execute("LOCK TABLE bullfrog.moved IN SHARE ROW EXCLUSIVE MODE")
        for number, session in enumerate(sessions):
            key = 1 + number * CUSTOMERS // SESSIONS
            session.pgconn.send_query(f"UPDATE customer_private SET name = 'mine' WHERE id = {key}".encode())
        wait_until(lambda: waiting(watcher) >= SESSIONS, "all sessions wait")
    for session in sessions:
        answered(session)
    assert admin.execute("SELECT count(*) FROM customer_private WHERE name = 'mine'").fetchone() == (SESSIONS,)
    admin.execute("SELECT bullfrog.finish('m')")
    assert admin.execute("SELECT count(*), count(DISTINCT id) FROM customer_private").fetchone() == (CUSTOMERS, CUSTOMERS)


def waiting(watcher):
    """How many sessions wait for a mover, or for its transaction."""
    return watcher.execute("""SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND state = 'active'
        AND (wait_event_type, wait_event) IN (('Extension', 'Extension'), ('Lock', 'transactionid'))""").fetchone()[0]
