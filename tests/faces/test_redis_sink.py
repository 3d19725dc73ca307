"""What a query writes to Redis, or to the keys of another node, is there once, whoever is killed; and rows are looked up there."""

import json
import random
import subprocess
import time

import pytest
import redis

from node import SAVANNA, Node, command
from ports import free_port
from same_rows import assert_same_rows
from test_survival import BIDS, EVENTS, HOT, NEXMARK, connect, hot, lines, named, states, until

SEED = random.randrange(1 << 32)


class Target:
    """A server of the Redis protocol that answers when its disk has what it answers for."""

    def __init__(self, kind, folder):
        self.kind, self.folder, self.port = kind, folder, free_port()
        folder.mkdir()
        self.start()

    def start(self):
        if self.kind == "redis":
            words = ["redis-server", "--port", self.port, "--dir", self.folder, "--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        else:
            settings = {"keys.port": self.port, "keys.threads": 2, "keys.appendfsync": "always", "http.port": 0}
            words = command(self.folder / "data", ["keys"], settings)
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                redis.Redis(port=self.port).ping()
                return
            except redis.RedisError:
                assert self.process.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def rows(self):
        entries = redis.Redis(port=self.port).lrange("hot", 0, -1)
        return sorted(told(row["at"], row["auction"], row["bids"]) for row in map(json.loads, entries))


def told(at, auction, bids):
    return at.replace("T", " ").rstrip("Z"), int(auction), int(bids)


@pytest.mark.parametrize("kind", [pytest.param("redis", marks=pytest.mark.long), "savanna"])
def test_windows_are_written_once_however_often_both_sides_are_killed(tmp_path, kind):
    dice = random.Random(SEED)
    target = Target(kind, tmp_path / "target")
    node = Node(tmp_path)
    kills = 0
    try:
        table = f"""CREATE TABLE hot (at TIMESTAMP(3), auction BIGINT, bids BIGINT)
            WITH ('connector' = 'redis', 'url' = 'redis://127.0.0.1:{target.port}', 'type' = 'list', 'key' = 'hot')"""
        with connect(node) as connection:
            for statement in [NEXMARK, BIDS, table, named("hot"), HOT]:
                connection.execute(statement)
        for _ in range(6):
            time.sleep(dice.uniform(0.3, 1.2))
            kills += "hot" in states(node)
            if dice.random() < 0.5:
                target.kill()
                target.start()
            else:
                node.kill()
                node = Node(tmp_path)
        deadline = time.monotonic() + 120
        while "hot" in (now := states(node)):
            assert now["hot"]["state"] in ("running", "loading"), (now, SEED, node.log.read_text())
            assert time.monotonic() < deadline, now
            time.sleep(0.2)
        rows = target.rows()
    finally:
        node.kill()
        target.kill()
    assert kills >= 3, f"seed {SEED}: it was over too soon"
    statements = [NEXMARK.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'"), BIDS, hot(tmp_path / "expected"), HOT]
    subprocess.run([SAVANNA, "sql", "-c", ";\n".join(statements)], check=True, capture_output=True, timeout=120)
    expected = sorted(told(*line.split(",")) for line in lines(tmp_path / "expected"))
    assert len(expected) > 1000
    assert_same_rows(rows, expected, SEED)


def test_a_server_that_is_away_is_waited_for_without_spinning(tmp_path):
    target = Target("redis", tmp_path / "target")
    node = Node(tmp_path)
    try:
        table = f"""CREATE TABLE hot (at TIMESTAMP(3), auction BIGINT, bids BIGINT)
            WITH ('connector' = 'redis', 'url' = 'redis://127.0.0.1:{target.port}', 'type' = 'list', 'key' = 'hot')"""
        slow = NEXMARK.replace("'first-event.rate' = '250000'", "'first-event.rate' = '2000'")
        assert slow != NEXMARK
        with connect(node) as connection:
            for statement in [slow, BIDS, table, named("hot"), HOT]:
                connection.execute(statement)
        until(target.rows)
        target.kill()
        time.sleep(1)
        before = node.processor_seconds()
        time.sleep(4)
        assert node.processor_seconds() - before < 2, "nobody spins"
        assert states(node)["hot"]["state"] in ("running", "loading")
        target.start()
        had = len(target.rows())
        until(lambda: len(target.rows()) > had)
    finally:
        node.kill()
        target.kill()


@pytest.mark.parametrize("kind", [pytest.param("redis", marks=pytest.mark.long), "savanna"])
def test_rows_are_looked_up_in_keys_as_they_were_read_however_often_the_node_is_killed(tmp_path, kind):
    dice, count = random.Random(SEED), 400_000
    target, out = Target(kind, tmp_path / "target"), tmp_path / "out"
    keys = redis.Redis(port=target.port)
    for number in range(50):
        keys.hset(f"name:{number}", mapping={"name": f"name {number}", "other": "x"})
    nexmark = NEXMARK.replace(str(EVENTS), str(count)).replace("250000", "100000")
    names = f"""CREATE TABLE names (id BIGINT, name VARCHAR)
        WITH ('connector' = 'redis', 'url' = 'redis://127.0.0.1:{target.port}', 'key' = 'name:', 'key.fields' = 'id')"""
    found = f"CREATE TABLE found (auction BIGINT, name VARCHAR) WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'csv', 'csv.header' = 'false')"
    asked = """INSERT INTO found SELECT B.auction, N.name FROM (SELECT *, PROCTIME() AS p FROM bids) B
        LEFT JOIN names FOR SYSTEM_TIME AS OF B.p AS N ON mod(B.auction, 100) = N.id"""
    node, kills = Node(tmp_path), 0
    try:
        with connect(node) as connection:
            for statement in [nexmark, BIDS, names, found, named("found"), asked]:
                connection.execute(statement)
        until(lambda: lines(out))
        # What was read is kept: a row that is computed again is what it was.
        keys.hset("name:1", "name", "another")
        keys.delete("name:2")
        for _ in range(3):
            kills += "found" in states(node)
            node.kill()
            node = Node(tmp_path)
            time.sleep(dice.uniform(0.3, 1))
        until(lambda: "found" not in states(node), deadline=120)
        assert node.stop() == 0, node.log.read_text()
    finally:
        node.kill()
        target.kill()
    assert kills >= 2, f"seed {SEED}: it was over too soon"
    rows = [line.split(",") for line in lines(out)]
    assert len(rows) == count * 46 // 50, f"seed {SEED}"
    assert all(name == (f"name {int(auction) % 100}" if int(auction) % 100 < 50 else "") for auction, name in rows), f"seed {SEED}"
