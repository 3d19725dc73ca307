"""A server of tenants that is killed while it works, and while it reads its log."""

import random
import threading
import time

import psycopg
import pytest

from conftest import CRASHES, Server


def transfer(server, seed, acknowledged, stop):
    """Moves money between accounts and writes down what was acknowledged, until the server is gone."""
    dice = random.Random(seed)
    try:
        with server.connect() as connection:
            number = 0
            while not stop.is_set():
                number += 1
                name = f"{server.epoch}-{seed}-{number}"
                a, b = dice.sample(range(10), 2)
                try:
                    connection.execute("UPDATE account SET n = n - 1 WHERE id = %s", (a,))
                    connection.execute("UPDATE account SET n = n + 1 WHERE id = %s", (b,))
                    connection.execute("INSERT INTO transfer VALUES (%s, %s, %s)", (name, a, b))
                    connection.commit()
                    acknowledged.append((name, a, b))
                except psycopg.errors.DeadlockDetected:
                    connection.rollback()
    except psycopg.OperationalError:
        pass


@pytest.mark.parametrize("seed", CRASHES)
def test_what_was_acknowledged_survives_kills(tmp_path, seed):
    server = Server(tmp_path)
    server.start()
    server.listen()
    with server.connect() as connection:
        connection.execute("CREATE TABLE account (id int PRIMARY KEY, n int)")
        connection.execute("INSERT INTO account VALUES " + ", ".join(f"({id}, 0)" for id in range(10)))
        connection.execute("CREATE TABLE transfer (name text PRIMARY KEY, a int, b int)")
    dice = random.Random(seed)
    acknowledged, early = [], 0
    for _ in range(3):
        stop = threading.Event()
        clients = [threading.Thread(target=transfer, args=(server, 4 * seed + client, acknowledged, stop)) for client in range(4)]
        for client in clients:
            client.start()
        time.sleep(dice.uniform(0.3, 1.0))
        server.kill()
        stop.set()
        for client in clients:
            client.join()
        early += server.crash_storm(dice)
        with server.connect() as connection:
            transfers = connection.execute("SELECT name, a, b FROM transfer").fetchall()
            assert set(acknowledged) <= set(transfers)
            expected = [sum(b == id for _, _, b in transfers) - sum(a == id for _, a, _ in transfers) for id in range(10)]
            assert [n for (n,) in connection.execute("SELECT n FROM account ORDER BY id")] == expected
    assert len(acknowledged) > 20
    assert early, "it was never killed while it read its log"
    server.kill()


def test_a_server_that_is_stopped_in_order_tells_of_no_error(tmp_path):
    server = Server(tmp_path)
    server.start()
    server.listen()
    with server.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (id int PRIMARY KEY)")
    server.stop()
    assert "ERROR" not in server.said()
    server.start()
    server.listen()
    with server.connect() as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    server.kill()
