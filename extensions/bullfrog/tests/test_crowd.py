"""What holds of a few clients holds of two hundred at once: their answers, and what is left when the server or one of its processes is killed."""

import os
import random
import signal
import threading
import time

import psycopg
import pytest

import histories
import test_concurrent
from conftest import LIBRARY, SETTINGS, begin_template, database_from, finish_under_load, reconnect, wait_for_crash, wait_until
from server import Server

CLIENTS = 200
CROWD = test_concurrent.Crowd(clients=CLIENTS, owners=210, steps=12)
SIDES = ("left_side", "right_side")


@pytest.fixture(scope="module")
def hall():
    """A server with room for two hundred clients of a migration, and as many of the copy that they are compared with."""
    settings = {"bullfrog.start_delay": "200ms", "bullfrog.rest": "50ms", "bullfrog.sweepers": "2", "bullfrog.movers": "4", "max_connections": str(2 * CLIENTS + 30),
        "deadlock_timeout": "1s"}
    server = Server(LIBRARY, SETTINGS | settings, in_memory=True)
    begin_template(server)
    yield server
    server.remove()


@pytest.mark.long
@pytest.mark.parametrize("seed, mode", list(enumerate(test_concurrent.MODES)))
@pytest.mark.parametrize("name", ["derive", "split"])
def test_two_hundred_clients_get_the_answers_of_an_eager_copy(hall, name, seed, mode):
    test_concurrent.run(hall, name, seed, mode, size=CROWD)


@pytest.mark.long
@pytest.mark.parametrize("flaw", ["nobody_waits", "marks_first"])
def test_a_flaw_is_noticed(hall, flaw):
    for seed in range(1, 6):
        try:
            test_concurrent.run(hall, "split", seed, ("tracker", test_concurrent.PAGES), test_concurrent.flaw(flaw), size=CROWD)
        except (histories.Difference, psycopg.Error):
            return
    pytest.fail("nothing was noticed")


class Adding(threading.Thread):
    """Adds one to a row of its own on each side, again and again. It knows how often that was certainly committed, and whether once more is in doubt."""

    def __init__(self, database, number):
        super().__init__(daemon=True)
        self.database, self.number, self.tables = database, number, ("new_left_side", "new_right_side")
        self.done, self.is_in_doubt, self.is_ended, self.failure = 0, False, False, None

    def run(self):
        chance = random.Random(self.number)
        try:
            while not self.is_ended:
                try:
                    self.add(chance)
                except psycopg.OperationalError:
                    # The server is down, or starts again; or asks for another try.
                    time.sleep(0.1)
        except Exception as failure:
            self.failure = failure

    def add(self, chance):
        with self.database.server.connect(self.database.name) as connection:
            if self.is_in_doubt:
                # What a commit has come to before the connection was lost.
                found = connection.execute("SELECT n FROM new_left_side WHERE k = %s", (self.number,)).fetchone()[0]
                assert found in (self.done, self.done + 1), (self.number, found, self.done)
                self.done, self.is_in_doubt = found, False
            while not self.is_ended:
                connection.execute("BEGIN")
                for table in chance.sample(self.tables, 2):
                    connection.execute(f"UPDATE {table} SET n = n + 1 WHERE k = %s", (self.number,))
                self.is_in_doubt = True
                connection.execute("COMMIT")
                self.done += 1
                self.is_in_doubt = False


def check(client, admin):
    """It has both of its rows, with all that was committed."""
    found = admin.execute("SELECT l.n, r.n FROM new_left_side l JOIN new_right_side r USING (k) WHERE k = %s", (client.number,)).fetchone()
    assert found[0] == found[1], f"half of a transaction of client {client.number}: {found}"
    assert client.done <= found[0] <= client.done + client.is_in_doubt, (client.number, found, client.done, client.is_in_doubt)


@pytest.mark.parametrize("moves", ["worker", pytest.param("transaction", marks=pytest.mark.long)])
@pytest.mark.parametrize("victim", ["server", pytest.param("mover", marks=pytest.mark.long), pytest.param("client", marks=pytest.mark.long)])
def test_a_crash_under_two_hundred_clients_loses_and_doubles_nothing(hall, victim, moves):
    with database_from(hall, "template", f"crowd {victim} {moves}") as database:
        admin = database.connect()
        for table in SIDES:
            admin.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, n int NOT NULL, pad text)")
            admin.execute(f"INSERT INTO {table} SELECT k, 0, repeat('.', 200) FROM generate_series(0, {20 * CLIENTS - 1}) k")
        admin.execute("SELECT bullfrog.migrate('m', %s, granularity => 'tuple', moves => %s)", ("; ".join(
            f"CREATE TABLE new_{table} AS SELECT k, n FROM {table}; ALTER TABLE new_{table} ADD PRIMARY KEY (k)" for table in SIDES), moves), prepare=False)
        # Each begins with a row that was not moved.
        clients = [Adding(database, 20 * number) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            wait_until(lambda: sum(client.done > 0 for client in clients) > CLIENTS / 4, "a part of the clients is at work")
            strike(hall, admin, victim)
            admin = reconnect(database)
            counts = [client.done for client in clients]
            wait_until(lambda: all(client.done > count for client, count in zip(clients, counts)), "all clients go on")
        finally:
            for client in clients:
                client.is_ended = True
            for client in clients:
                client.join(60)
        assert [client.failure for client in clients if client.failure] == []
        for client in clients:
            check(client, admin)
        finish_under_load(admin)
        for table in SIDES:
            whole = f"SELECT count(*), count(DISTINCT k), sum(n) FILTER (WHERE mod(k, 20) <> 0) FROM new_{table}"
            assert admin.execute(whole).fetchone() == (20 * CLIENTS, 20 * CLIENTS, 0)


def strike(server, admin, victim):
    """Kills the server, or one of its processes, which the server answers by ending all."""
    if victim == "server":
        server.kill()
        server.start()
        return
    kind = {"mover": "bullfrog mover", "client": "client backend"}[victim]
    found = "SELECT pid FROM pg_stat_activity WHERE backend_type = %s AND datname = current_database() AND pid <> pg_backend_pid() LIMIT 1"
    wait_until(lambda: admin.execute(found, (kind,)).fetchone(), f"there is a {kind}")
    os.kill(admin.execute(found, (kind,)).fetchone()[0], signal.SIGKILL)
    wait_for_crash(admin)
