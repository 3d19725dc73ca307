"""Databases that change their node while clients are connected: nobody notices but those whom something keeps at their node."""

import json
import os
import random
import signal
import subprocess
import threading
import time

import psycopg
import pytest

from conftest import NODES, SAVANNA, Loop
from test_kills import ACCOUNTS, Transfers, goes_on


def move(cluster, what, to, asked=NODES[0], *words):
    url = f"http://127.0.0.1:{cluster.ports[asked]['http']}"
    command = [SAVANNA, "move", what, "--to", to, "--url", url, "--output", "json", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def create(cluster, name):
    """Makes a database; its shard."""
    before = set(cluster.shards(NODES[0]))
    with cluster.tenants(NODES[0], autocommit=True) as client:
        client.execute(f"CREATE DATABASE {name}")
    cluster.until(lambda: set(cluster.shards(NODES[0])) - before, "its shard is there")
    return next(iter(set(cluster.shards(NODES[0])) - before))


def others(node):
    return [name for name in NODES if name != node]


def test_sessions_go_along_with_their_database_from_wherever_they_came(cluster):
    shard = create(cluster, "shop")
    clients = {node: cluster.tenants(node, "shop", autocommit=True) for node in NODES}
    first = clients[NODES[0]]
    first.execute("CREATE TABLE t (id serial PRIMARY KEY, name text)")
    pids = {}
    for node, client in clients.items():
        client.execute(f"SET application_name = 'at {node}'")
        client.execute("SET search_path = public, pg_catalog")
        client.execute(f"SET my.own = '{node}'")
        client.execute("PREPARE plus AS SELECT $1::int + 1")
        client.execute("INSERT INTO t (name) VALUES (%s)", [node], prepare=True)
        pids[node] = client.execute("SELECT currval('t_id_seq'), pg_backend_pid()").fetchone()
    for _ in range(2):
        for _ in NODES:
            owner = cluster.owner(shard)
            to = NODES[(NODES.index(owner) + 1) % 3]
            moved = move(cluster, "shop", to, others(to)[0])
            assert moved["stayed"] is None and (moved["from"], moved["to"]) == (owner, to), moved
            for node, client in clients.items():
                assert client.execute("SHOW application_name").fetchone() == (f"at {node}",)
                assert client.execute("SHOW search_path").fetchone() == ("public, pg_catalog",)
                assert client.execute("SHOW my.own").fetchone() == (node,)
                assert client.execute("EXECUTE plus(41)").fetchone() == (42,)
                assert client.execute("SELECT currval('t_id_seq'), pg_backend_pid()").fetchone() == pids[node]
                client.execute("INSERT INTO t (id, name) VALUES (1000 + (SELECT count(*) FROM t), %s)", [node], prepare=True)
    assert first.execute("SELECT count(*) FROM t").fetchone() == (3 + 2 * 3 * 3,)
    assert cluster.shards(NODES[1])[shard]["epoch"] == 7
    for client in clients.values():
        client.close()


def test_clients_hear_all_notifications_while_their_database_moves(cluster):
    shard = create(cluster, "news")
    listen = {node: cluster.tenants(node, "news", autocommit=True) for node in NODES}
    for client in listen.values():
        client.execute("LISTEN news")
    ends, said = threading.Event(), []

    def say():
        with cluster.tenants(NODES[0], "news", autocommit=True) as client:
            while not ends.is_set():
                client.execute("SELECT pg_notify('news', %s)", [str(len(said))])
                said.append(str(len(said)))

    heard = {node: [] for node in NODES}

    def hear(node):
        for note in listen[node].notifies(timeout=60):
            heard[node].append(note.payload)
            if note.payload == "end":
                return

    threads = [threading.Thread(target=hear, args=[node]) for node in NODES]
    saying = threading.Thread(target=say)
    for thread in [*threads, saying]:
        thread.start()
    for _ in range(2):
        for _ in NODES:
            owner = cluster.owner(shard)
            to = NODES[(NODES.index(owner) + 1) % 3]
            moved = move(cluster, "news", to)
            assert moved["stayed"] is None and moved["to"] == to, moved
    ends.set()
    saying.join()
    with cluster.tenants(NODES[1], "news", autocommit=True) as client:
        client.execute("NOTIFY news, 'end'")
    for thread in threads:
        thread.join()
    for client in listen.values():
        client.close()
    assert said
    for node in NODES:
        assert heard[node] == [*said, "end"], node


def test_what_keeps_a_session_ends_it_where_it_is_not_taken_along(cluster):
    shard = create(cluster, "kept")
    owner = cluster.owner(shard)
    with cluster.tenants(owner, "kept", autocommit=True) as client:
        client.execute("CREATE TABLE t (id int)")
    kept = []
    for words in ("BEGIN; INSERT INTO t VALUES (1)", "CREATE TEMPORARY TABLE mine (id int)", "SELECT pg_advisory_lock(1)"):
        for node in NODES:
            if "lock" in words and node != owner:
                continue
            client = cluster.tenants(node, "kept", autocommit=True)
            client.execute(words)
            kept.append(client)
    moved = move(cluster, shard, others(owner)[0], NODES[0], "--technique", "flush-and-move")
    assert (moved["stayed"], moved["failed"]) == (None, len(kept)), moved
    for client in kept:
        with pytest.raises(psycopg.OperationalError, match="moves to another node"):
            client.execute("SELECT 1")
    with cluster.tenants(owner, "kept") as client:
        assert client.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_transactions_that_end_soon_are_waited_for(cluster):
    shard = create(cluster, "soon")
    owner = cluster.owner(shard)
    clients = [cluster.tenants(node, "soon") for node in NODES]
    for number, client in enumerate(clients):
        client.execute(f"CREATE TABLE t{number} (id int)")
        client.commit()
        client.execute(f"INSERT INTO t{number} VALUES (1)")
    words = (NODES[0], "--technique", "stop-and-copy")
    moving = threading.Thread(target=move, args=(cluster, shard, others(owner)[1], *words))
    moving.start()
    time.sleep(1)
    for number, client in enumerate(clients):
        client.execute(f"INSERT INTO t{number} VALUES (2)")
        client.commit()
    moving.join()
    assert cluster.owner(shard) == others(owner)[1]
    for number, client in enumerate(clients):
        assert client.execute(f"SELECT sum(id) FROM t{number}").fetchone() == (3,)


def test_a_cancel_request_finds_a_session_that_has_moved(cluster):
    shard = create(cluster, "cancelled")
    for node in NODES:
        with cluster.tenants(node, "cancelled", autocommit=True) as client:
            client.execute("SELECT 1")
            move(cluster, shard, others(cluster.owner(shard))[0])
            timer = threading.Timer(1, client.cancel)
            timer.start()
            with pytest.raises(psycopg.errors.QueryCanceled):
                client.execute("SELECT count(*) FROM generate_series(1, 1000000000)")
            assert client.execute("SELECT 1").fetchone() == (1,)


def test_errors_say_what_was_expected(cluster):
    assert "nothing" in move(cluster, "nothing", "n2")
    assert "expected one of the nodes n1, n2, n3, came n9" in move(cluster, "postgres", "n9")
    owner = cluster.owner("tenants/1")
    assert f"the database is on node {owner} already" in move(cluster, "postgres", owner)


def go(cluster, shard):
    """Moves a database to the next node, with all that is open in it."""
    owner = cluster.owner(shard)
    moved = move(cluster, shard, NODES[(NODES.index(owner) + 1) % 3], owner)
    assert (moved["stayed"], moved["technique"]) == (None, "albatross"), moved
    return moved


def test_open_transactions_go_along_from_wherever_their_clients_came(cluster):
    shard = create(cluster, "opened")
    with cluster.tenants(NODES[0], "opened", autocommit=True) as client:
        client.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
        client.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 4) AS i")
    clients = [cluster.tenants(node, "opened") for node in NODES]
    for number, client in enumerate(clients, start=1):
        client.execute("UPDATE t SET n = n + 1 WHERE id = %s", [number])
        client.execute("SAVEPOINT a")
        client.execute("DELETE FROM t WHERE id = %s", [number])
    failed = cluster.tenants(NODES[1], "opened")
    with pytest.raises(psycopg.errors.UndefinedTable):
        failed.execute("SELECT * FROM nothing")
    for _ in range(4):
        go(cluster, shard)
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            failed.execute("SELECT 1")
        for number, client in enumerate(clients, start=1):
            assert client.execute("SELECT count(*) FROM t WHERE id = %s", [number]).fetchone() == (0,)
            client.execute("ROLLBACK TO a")
            assert client.execute("SELECT n FROM t ORDER BY id").fetchall() == [(int(id == number),) for id in range(1, 5)]
            client.execute("UPDATE t SET n = 9 WHERE id = %s", [number])
            client.execute("DELETE FROM t WHERE id = %s", [number])
    clients[0].commit()
    clients[1].rollback()
    clients[2].execute("ROLLBACK TO a")
    clients[2].commit()
    failed.rollback()
    assert failed.execute("SELECT id, n FROM t ORDER BY id").fetchall() == [(2, 0), (3, 1), (4, 0)]
    for client in [failed, *clients]:
        client.close()


@pytest.mark.parametrize("text, values", [
    ("UPDATE t SET n = n + 1 WHERE id = 1", None),
    ("UPDATE t SET n = n + %s WHERE id = 1", [1]),
])
@pytest.mark.parametrize("begins", [False, True])
def test_who_waits_for_a_lock_goes_along_and_gets_it(cluster, text, values, begins):
    shard = create(cluster, f"waiting{begins}{len(text)}".lower())
    name = f"waiting{begins}{len(text)}".lower()
    with cluster.tenants(NODES[0], name, autocommit=True) as client:
        client.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
        client.execute("INSERT INTO t VALUES (1, 0)")
    holder = cluster.tenants(NODES[0], name)
    holder.execute("UPDATE t SET n = n + 1 WHERE id = 1")
    waiters = [cluster.tenants(node, name, autocommit=not begins) for node in NODES]
    done = []

    def wait(client):
        client.execute(text, values)
        if begins:
            client.commit()
        done.append(client)

    threads = [threading.Thread(target=wait, args=[client]) for client in waiters]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    for _ in range(3):
        go(cluster, shard)
        assert not done
        holder.execute("UPDATE t SET n = n + 1 WHERE id = 1")
    holder.commit()
    for thread in threads:
        thread.join(timeout=30)
    assert len(done) == 3
    assert holder.execute("SELECT n FROM t").fetchone() == (7,)
    for client in [holder, *waiters]:
        client.close()


def test_a_conflict_of_serializable_transactions_is_found_after_a_move(cluster):
    shard = create(cluster, "doctors")
    level = psycopg.IsolationLevel.SERIALIZABLE
    clients = [cluster.tenants(node, "doctors") for node in NODES[:2]]
    with cluster.tenants(NODES[0], "doctors", autocommit=True) as client:
        client.execute("CREATE TABLE t (id int PRIMARY KEY, on_call bool)")
        client.execute("INSERT INTO t VALUES (1, true), (2, true)")
    for number, client in enumerate(clients, start=1):
        client.isolation_level = level
        assert client.execute("SELECT count(*) FROM t WHERE on_call").fetchone() == (2,)
        client.execute("UPDATE t SET on_call = false WHERE id = %s", [number])
    go(cluster, shard)
    clients[0].commit()
    go(cluster, shard)
    with pytest.raises(psycopg.errors.SerializationFailure):
        clients[1].commit()
    clients[1].rollback()
    assert clients[1].execute("SELECT id FROM t WHERE on_call").fetchall() == [(2,)]
    for client in clients:
        client.close()


def test_cursors_temporary_tables_and_advisory_locks_go_along(cluster):
    shard = create(cluster, "belongings")
    clients = [cluster.tenants(node, "belongings", autocommit=True) for node in NODES]
    for number, client in enumerate(clients):
        client.execute("CREATE TEMPORARY TABLE mine (n int)")
        client.execute("INSERT INTO mine VALUES (%s)", [number])
        client.execute("SELECT pg_advisory_lock(%s)", [number])
        client.execute("BEGIN")
        client.execute("DECLARE kept CURSOR WITH HOLD FOR SELECT * FROM generate_series(1, 9)")
        client.execute("COMMIT")
        client.execute("BEGIN")
        client.execute("DECLARE c CURSOR FOR SELECT * FROM generate_series(1, 9)")
    for round in range(1, 4):
        go(cluster, shard)
        for number, client in enumerate(clients):
            assert client.execute("FETCH 1 FROM c").fetchall() == [(round,)]
            assert client.execute("FETCH 1 FROM kept").fetchall() == [(round,)]
            assert client.execute("SELECT n FROM mine").fetchall() == [(number,)]
            other = (number + 1) % 3
            assert client.execute("SELECT pg_try_advisory_lock(%s)", [other]).fetchone() == (False,)
    for number, client in enumerate(clients):
        client.execute("COMMIT")
        assert client.execute("SELECT pg_advisory_unlock(%s)", [number]).fetchone() == (True,)
        client.close()


def test_a_statement_that_runs_goes_along_and_runs_again(cluster):
    shard = create(cluster, "running")
    told = []
    with cluster.tenants(NODES[1], "running", autocommit=True) as client, cluster.tenants(NODES[0], "running", autocommit=True) as other:
        other.execute("CREATE TABLE t (n int)")
        other.execute("INSERT INTO t VALUES (0)")
        for prepare in (False, True):
            text = "UPDATE t SET n = n + (SELECT count(*) FROM generate_series(1, 10000000)) RETURNING n"
            thread = threading.Thread(target=lambda: told.append(client.execute(text, prepare=prepare).fetchone()))
            thread.start()
            time.sleep(0.5)
            moved = go(cluster, shard)
            thread.join()
            assert other.execute("SELECT n FROM t").fetchone() == told[-1], moved
    assert told == [(10000000,), (20000000,)]


@pytest.mark.long
def test_what_is_in_the_way_for_too_long_keeps_the_database_and_nobody_notices(cluster):
    shard = create(cluster, "long")
    owner = cluster.owner(shard)
    with cluster.tenants(NODES[0], "long") as opened, cluster.tenants(NODES[1], "long", autocommit=True) as client:
        opened.execute("CREATE TABLE t (id int)")
        told = []
        # Behind another one of its message it cannot be taken back.
        text = "SELECT 1; SELECT count(*) FROM generate_series(1, 30000000)"

        def run():
            rows = client.execute(text)
            rows.nextset()
            told.append(rows.fetchone())

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.5)
        moved = move(cluster, shard, others(owner)[0])
        thread.join()
        assert told == [(30000000,)]
        # On a fast machine it was over in time.
        assert moved["stayed"] is None or "is in the way" in moved["stayed"], moved
        # What stayed goes the next time, though its client has said nothing since.
        again = move(cluster, shard, others(cluster.owner(shard))[0])
        assert again["stayed"] is None, again
        opened.execute("INSERT INTO t VALUES (1)")
        opened.commit()
        assert client.execute("SELECT count(*) FROM t").fetchone() == (1,)


class Lasting(Transfers):
    """Transfers over a connection that stays, each of which stays open for 50 ms. Rows are locked in one order, so that nobody waits in a circle."""

    def __init__(self, cluster, name, node, base):
        self.cluster, self.name, self.node, self.base = cluster, name, node, base
        self.number, self.told, self.unknown, self.client = base, [], set(), None

    def step(self):
        self.client = self.client or self.cluster.tenants(self.node, self.name)
        self.transfer(self.client)

    def transfer(self, client):
        self.number += 1
        giver, taker = random.sample(range(1, 9), 2)
        for id, amount in sorted([(giver, -1), (taker, 1)]):
            client.execute("UPDATE accounts SET amount = amount + %s WHERE id = %s", [amount, id])
            time.sleep(0.025)
        client.execute(f"INSERT INTO transfers VALUES ({self.number})")
        self.commit(client)


class Reconnecting(Lasting):
    """The same, of clients that connect again when their node has ended."""

    def step(self):
        try:
            super().step()
        except psycopg.Error:
            if self.client:
                self.client.close()
            self.client = None
            time.sleep(0.05)


def check(cluster, name, jobs):
    with cluster.tenants(NODES[0], name) as client:
        done = [number for (number,) in client.execute("SELECT id FROM transfers").fetchall()]
        total = client.execute("SELECT sum(amount) FROM accounts").fetchone()
    told = {number for job in jobs for number in job.told}
    unknown = {number for job in jobs for number in job.unknown}
    assert len(done) == len(set(done)), "a transfer was done twice"
    assert told <= set(done), "a transfer that was acknowledged is lost"
    assert set(done) <= told | unknown, "a transfer was done that was not committed"
    assert total == (100 * ACCOUNTS,)


def lasting(cluster, name, kind, count):
    shard = create(cluster, name)
    Transfers(cluster, name)
    jobs = [kind(cluster, name, NODES[number % 3], 1_000_000 * number) for number in range(count)]
    return shard, jobs, [Loop(job.step) for job in jobs]


@pytest.mark.long
def test_transactions_that_last_go_along_again_and_again_and_none_fails(cluster):
    shard, jobs, loops = lasting(cluster, "lasting", Lasting, 6)
    told = lambda: sum(len(job.told) for job in jobs)
    windows = []
    try:
        goes_on(cluster, told, 10)
        for _ in range(int(os.environ.get("CLUSTER_MOVES", "12"))):
            windows.append(go(cluster, shard)["window_ms"])
            time.sleep(0.5)
        goes_on(cluster, told, 10)
    finally:
        for loop in loops:
            loop.end()
    print(sorted(windows), told())
    check(cluster, "lasting", jobs)


@pytest.mark.parametrize("whom", ["source", pytest.param("target", marks=pytest.mark.long)])
def test_whoever_is_killed_while_transactions_are_open_none_is_lost_or_doubled(start, whom):
    cluster = start()
    shard, jobs, loops = lasting(cluster, "lasting", Reconnecting, 6)
    told = lambda: sum(len(job.told) for job in jobs)
    try:
        for round in range(int(os.environ.get("CLUSTER_KILLS", "4"))):
            goes_on(cluster, told, 10)
            owner = cluster.owner(shard)
            to = others(owner)[round % 2]
            node = {"source": owner, "target": to}[whom]
            pid = cluster.status(node)["pid"]
            moving = subprocess.Popen(
                [SAVANNA, "move", shard, "--to", to, "--url", f"http://127.0.0.1:{cluster.ports[owner]['http']}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            # At any moment of it, by the clock.
            time.sleep(0.02 + 0.04 * round)
            os.kill(pid, signal.SIGKILL)
            cluster.runs_again(node, pid)
            moving.wait(timeout=180)
            goes_on(cluster, told, 10)
    finally:
        for loop in loops:
            loop.end()
    cluster.until(lambda: all(cluster.is_served(node) for node in NODES), "every shard is served")
    check(cluster, "lasting", jobs)


class Unnoticing(Transfers):
    """Transfers over connections that stay, of which not one may fail."""

    def __init__(self, cluster, name, node):
        super().__init__(cluster, name, through=[node])
        self.client = cluster.tenants(node, name)

    def step(self):
        self.transfer(self.client)


def test_a_database_that_moves_again_and_again_loses_and_doubles_nothing(cluster):
    names = [f"bank{number}" for number in range(3)]
    shards = [create(cluster, name) for name in names]
    jobs = [Unnoticing(cluster, name, node) for name, node in zip(names, NODES)]
    loops = [Loop(job.step) for job in jobs]
    told = lambda: sum(len(job.told) for job in jobs)
    windows = []
    try:
        for round in range(int(os.environ.get("CLUSTER_MOVES", "8"))):
            goes_on(cluster, told, 10)
            for shard in shards:
                moved = move(cluster, shard, others(cluster.owner(shard))[round % 2])
                assert moved["stayed"] is None, moved
                windows.append(moved["window_ms"])
        goes_on(cluster, told, 10)
    finally:
        for loop in loops:
            loop.end()
    print(sorted(windows))
    assert all(job.check() > 0 for job in jobs)


def test_a_node_that_was_drained_can_be_killed_and_no_client_of_the_others_notices(cluster):
    names = [f"drained{number}" for number in range(6)]
    shards = [create(cluster, name) for name in names]
    node = cluster.owner(shards[0])
    jobs = [Unnoticing(cluster, name, others(node)[number % 2]) for number, name in enumerate(names)]
    loops = [Loop(job.step) for job in jobs]
    told = lambda: sum(len(job.told) for job in jobs)
    try:
        goes_on(cluster, told, 10)
        url = f"http://127.0.0.1:{cluster.ports[others(node)[0]]['http']}"
        done = subprocess.run([SAVANNA, "drain", node, "--url", url], capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert node not in {shard["owner"] for name, shard in cluster.shards(NODES[0]).items() if name.startswith("tenants/")}
        pid = cluster.signal(node, signal.SIGKILL)
        goes_on(cluster, told, 100)
        cluster.runs_again(node, pid)
        goes_on(cluster, told, 10)
    finally:
        for loop in loops:
            loop.end()
    assert all(job.check() > 0 for job in jobs)


@pytest.mark.parametrize("whom", ["source", *(pytest.param(whom, marks=pytest.mark.long) for whom in ("target", "coordinator"))])
def test_whoever_is_killed_during_moves_nothing_that_was_told_is_lost(start, whom):
    cluster = start()
    shard = create(cluster, "bank")
    job = Transfers(cluster, "bank")
    loop = Loop(job.step)
    told = lambda: len(job.told)
    try:
        for round in range(3):
            goes_on(cluster, told, 10)
            owner = cluster.owner(shard)
            to = others(owner)[round % 2]
            node = {"source": owner, "target": to, "coordinator": cluster.coordinator()}[whom]
            pid = cluster.status(node)["pid"]
            # At any moment of it, by the clock: which it was, nobody knows.
            moving = subprocess.Popen(
                [SAVANNA, "move", shard, "--to", to, "--url", f"http://127.0.0.1:{cluster.ports[owner]['http']}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.02 + 0.03 * round)
            os.kill(pid, signal.SIGKILL)
            cluster.runs_again(node, pid)
            moving.wait(timeout=180)
            goes_on(cluster, told, 10)
    finally:
        loop.end()
    cluster.until(lambda: all(cluster.is_served(node) for node in NODES), "every shard is served")
    assert job.check() > 0
