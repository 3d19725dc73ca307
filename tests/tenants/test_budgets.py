"""What tenants of one thread share of the log and of the storage."""

import os
import random
import threading
import time

from conftest import Server
from test_sleep import stored, until

CLIENTS = 8


def start(directory, settings):
    server = Server(directory, settings)
    server.start()
    server.listen()
    # The first and the last live on one thread.
    names = [f"t{number}" for number in range(1 + len(os.sched_getaffinity(0)))]
    with server.connect(autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}")
    return server, names[0], names[-1]


def beside(server, small, large, count, work):
    """How often clients of the large tenant do something while one of the small one does it so often."""
    done = []
    stop = threading.Event()

    def run(seed):
        dice = random.Random(seed)
        with server.connect(large, autocommit=True) as connection:
            while not stop.is_set():
                done.append(work(connection, True, dice))

    clients = [threading.Thread(target=run, args=(seed,)) for seed in range(CLIENTS)]
    for client in clients:
        client.start()
    until(lambda: done)
    before = len(done)
    dice = random.Random(CLIENTS)
    with server.connect(small, autocommit=True) as connection:
        for _ in range(count):
            work(connection, False, dice)
    after = len(done)
    stop.set()
    for client in clients:
        client.join()
    return after - before


def test_who_writes_much_leaves_others_their_share_of_the_log(tmp_path):
    server, small, large = start(tmp_path, {"tenants.log_rate": "400kB"})

    def write(connection, much, dice):
        connection.execute("INSERT INTO t (b) VALUES (repeat('x', %s))", (100_000 if much else 10,))

    for name in (small, large):
        with server.connect(name) as connection:
            connection.execute("CREATE TABLE t (id serial PRIMARY KEY, b text)")
    # Of what is big there are four a second, and as many as there are clients at a time.
    assert beside(server, small, large, 400, write) < 400 / 4
    server.kill()


def test_who_reads_much_that_is_not_in_memory_leaves_others_their_share_of_the_storage(tmp_path):
    server, small, large = start(tmp_path, {"tenants.store_rate": 40, "tenants.idle": "100ms", "tenants.blocks_memory": "1B"})
    rows = 200

    def read(connection, much, dice):
        assert connection.execute("SELECT length(b) FROM t WHERE id = %s", (dice.randrange(rows),)).fetchone() == (6_000,)

    for name in (small, large):
        with server.connect(name) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY, b text)")
            connection.execute("INSERT INTO t SELECT i, string_agg(md5((i * 1000 + j)::text), '') || repeat('x', 6000 - 180 * 32) "
                               "FROM generate_series(0, %s - 1) i, generate_series(1, 180) j GROUP BY i", (rows,))
    until(lambda: stored(server) >= 2)
    time.sleep(0.5)
    # Half of it is the small one's own. Without a share it has one of the places of all clients.
    assert beside(server, small, large, 60, read) < 60 * CLIENTS / 3
    server.kill()
