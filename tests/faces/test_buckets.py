"""Streams and buckets: what a query writes to a store with the API of S3 is there once, savepoints go through one, and queries are kept in one."""

import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import boto3
import psycopg
import pytest

from node import SAVANNA, Node
from test_survival import BIDS, HOT, NEXMARK, connect, hot, lines, named, states, until

SEED = random.randrange(1 << 32)
SESSIONS = """INSERT INTO hot SELECT window_start, auction, count(*) FROM TABLE(SESSION(TABLE bids PARTITION BY auction, DESCRIPTOR(at), INTERVAL '0.05' SECOND))
    GROUP BY auction, window_start, window_end"""


class Store:
    """A server with the API of S3, and a bucket in it."""

    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {"AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
                            "AWS_REGION": "us-east-1"}
        self.process = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(f"{self.url}/bucket", method="PUT"), timeout=5)
                break
            except OSError:
                assert self.process.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
        self.client = boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")

    def names(self, prefix):
        """All objects below a folder. A snapshot that goes takes its own along at any time."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix)
        return [found["Key"] for page in pages for found in page.get("Contents", [])]

    def objects(self, prefix):
        """What is in all objects below a folder, none of which goes meanwhile, by name."""
        return {name: self.client.get_object(Bucket="bucket", Key=name)["Body"].read() for name in self.names(prefix)}

    def lines(self, folder):
        """The lines of all parts."""
        parts = [body.decode() for name, body in self.objects(folder).items() if "/part-" in name]
        return sorted(line for part in parts for line in part.splitlines())


@pytest.fixture
def store():
    store = Store()
    yield store
    store.process.kill()
    store.process.wait()


@pytest.fixture
def start(tmp_path, store, monkeypatch):
    """Starts a node that may use the bucket's folders out, saved and kept."""
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    nodes = []

    def start(name="node"):
        (tmp_path / name).mkdir(exist_ok=True)
        node = Node(tmp_path / name, files=f"{tmp_path},s3://bucket/out,s3://bucket/saved,s3://bucket/kept")
        nodes.append(node)
        return node

    yield start
    for node in nodes:
        if node.process.poll() is None:
            node.kill()


def undisturbed(path, insert):
    told = ";\n".join([NEXMARK.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'"), BIDS, hot(path), insert])
    subprocess.run([SAVANNA, "sql", "-c", told], check=True, capture_output=True, timeout=120)
    return lines(path)


def test_windows_are_in_a_bucket_once_however_often_the_node_is_killed(tmp_path, store, start):
    node = start()
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, hot("s3://bucket/out/hot"), named("hot"), HOT]:
            connection.execute(statement)
    dice, kills = random.Random(SEED), 0
    for _ in range(5):
        time.sleep(dice.uniform(0.3, 1.5))
        kills += "hot" in states(node)
        node.kill()
        node = start()
    assert kills >= 3, f"seed {SEED}: it was over too soon"
    until(lambda: "hot" not in states(node), deadline=120)
    assert node.stop() == 0
    expected = undisturbed(tmp_path / "expected", HOT)
    assert len(expected) > 1000
    assert store.lines("out/hot") == expected, f"seed {SEED}"
    assert len([name for name in store.objects("out/hot") if "/_epochs/" in name]) <= 64


def test_each_folder_of_an_epoch_has_an_object_and_other_places_are_refused(tmp_path, store, start):
    node = start()
    table = "(n BIGINT, dt VARCHAR) PARTITIONED BY (dt) WITH ('connector' = 'file', 'path' = '{}', 'format' = 'json'{})"
    (tmp_path / "rows.csv").write_text("".join(f"{n},{'ab:'[n % 3]}\n" for n in range(30)))
    with connect(node) as connection:
        connection.execute(f"CREATE TABLE rows (n BIGINT, dt VARCHAR) WITH ('connector' = 'file', 'path' = '{tmp_path}/rows.csv', 'format' = 'csv', 'csv.header' = 'false')")
        for path, refused in [("s3://bucket/elsewhere", "lies outside of the folders that tables may use"), ("s3://bucket/out/../x", "a part of a URL cannot be")]:
            with pytest.raises(psycopg.Error, match=refused):
                connection.execute(f"CREATE TABLE wrong {table.format(path, '')}")
                connection.execute("INSERT INTO wrong SELECT n, dt FROM rows")
        connection.execute(f"CREATE TABLE out {table.format('s3://bucket/out/parts', '')}")
        connection.execute(named("parts"))
        connection.execute("INSERT INTO out SELECT n, dt FROM rows")
        until(lambda: "parts" not in states(node))
        with pytest.raises(psycopg.Error, match="written and not read"):
            connection.execute("SELECT * FROM out")
    folders = {name.split("/")[2] for name in store.objects("out/parts") if "/part-" in name}
    assert folders == {"dt=a", "dt=b", "dt=%3A"}
    assert store.lines("out/parts") == sorted(f'{{"n":{n}}}' for n in range(30))


def test_rows_of_many_epochs_are_one_object_and_there_once_however_often_the_node_is_killed(tmp_path, store, start):
    node = start()
    rolled = hot("s3://bucket/out/hot").replace("'csv.header' = 'false'", "'csv.header' = 'false', 'sink.rolling-policy.file-size' = '200KiB', 'sink.rolling-policy.rollover-interval' = '10min'")
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, rolled, named("hot"), HOT]:
            connection.execute(statement)
    dice, kills = random.Random(SEED), 0
    for _ in range(4):
        time.sleep(dice.uniform(0.5, 1.5))
        kills += "hot" in states(node)
        node.kill()
        node = start()
    assert kills >= 2, f"seed {SEED}: it was over too soon"
    until(lambda: "hot" not in states(node), deadline=120)
    expected = undisturbed(tmp_path / "expected", HOT)
    assert store.lines("out/hot") == expected, f"seed {SEED}"
    parts = {name: len(body) for name, body in store.objects("out/hot").items() if "/part-" in name}
    assert len(parts) >= 2 and sorted(parts.values())[1] >= 200 * 1024, parts
    assert not store.names("out/hot/_open"), "nothing stays that was gathered"


@pytest.mark.long
def test_a_query_waits_for_a_store_that_is_away(tmp_path, store, start):
    node = start()
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, hot("s3://bucket/out/hot"), named("hot"), HOT]:
            connection.execute(statement)
    until(lambda: store.lines("out/hot"))
    store.process.send_signal(signal.SIGSTOP)
    time.sleep(1)
    before = node.processor_seconds()
    time.sleep(4)
    assert node.processor_seconds() - before < 2, "nobody spins"
    assert states(node)["hot"]["state"] == "running"
    store.process.send_signal(signal.SIGCONT)
    until(lambda: "hot" not in states(node), deadline=120)
    assert store.lines("out/hot") == undisturbed(tmp_path / "expected", HOT)


def test_a_query_goes_on_in_another_node_from_a_savepoint_in_a_bucket(tmp_path, store, start):
    first, second = start("first"), start("second")
    out = tmp_path / "out"
    with connect(first) as connection:
        for statement in [NEXMARK, BIDS, hot(out), "SET 'snapshot-interval' = '100ms'", named("hot"), SESSIONS]:
            connection.execute(statement)
        until(lambda: states(first)["hot"]["snapshot"].startswith("epoch"))
        with pytest.raises(psycopg.Error, match="lies outside of the folders"):
            connection.execute("STOP QUERY 'hot' WITH SAVEPOINT 's3://bucket/elsewhere'")
        connection.execute("STOP QUERY 'hot' WITH SAVEPOINT 's3://bucket/saved/hot'")
        with pytest.raises(psycopg.Error, match="there is something in it"):
            connection.execute("STOP QUERY 'hot' WITH SAVEPOINT 's3://bucket/saved/hot'")
        connection.execute("DROP QUERY 'hot'")
    names = {name.rsplit("/", 1)[1] for name in store.objects("saved/hot")}
    assert "savepoint" in names and "savepoint.next" not in names and len(names) >= 2, names
    with connect(second) as connection:
        with pytest.raises(psycopg.Error, match="read the savepoint s3://bucket/saved/none"):
            connection.execute("RESUME QUERY FROM SAVEPOINT 's3://bucket/saved/none'")
        connection.execute("RESUME QUERY FROM SAVEPOINT 's3://bucket/saved/hot'")
    until(lambda: "hot" not in states(second), deadline=120)
    assert lines(out) == undisturbed(tmp_path / "expected", SESSIONS)


KEPT = "s3://bucket/kept/hot"


def begin_kept(node, insert, *settings):
    """Starts a query that is kept in the bucket, with snapshots."""
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, hot("s3://bucket/out/hot"), "SET 'snapshot-interval' = '100ms'", *settings, "SET 'query.store' = 's3://bucket/kept'", named("hot"), insert]:
            connection.execute(statement)


def take_over(node, *settings):
    with connect(node) as connection:
        for statement in [*settings, f"RESUME QUERY FROM SAVEPOINT '{KEPT}'"]:
            connection.execute(statement)


@pytest.mark.parametrize("insert, before, after", [pytest.param(SESSIONS, 1, 3, id="sessions", marks=pytest.mark.long), pytest.param(HOT, 2, 1, id="windows")])
def test_a_query_that_is_kept_in_a_bucket_goes_on_in_other_nodes_when_its_own_is_lost(tmp_path, store, start, insert, before, after):
    node, dice = start("node-0"), random.Random(SEED)
    begin_kept(node, insert, f"SET 'group-size' = '{before}'")
    until(lambda: states(node)["hot"]["snapshot"].startswith("epoch"))
    lost = 0
    for number in range(1, 4):
        time.sleep(dice.uniform(0.2, 0.8))
        is_over = "hot" not in states(node)
        node.kill()
        if is_over:
            break
        lost += 1
        # Nothing of the former node is left but what is in the bucket.
        node = start(f"node-{number}")
        take_over(node, f"SET 'group-size' = '{after}'")
    assert lost >= 2, f"seed {SEED}: it was over too soon"
    # A node that is killed goes on with it by itself.
    node.kill()
    node = start(f"node-{lost}")
    until(lambda: "hot" not in states(node), deadline=120)
    assert store.lines("out/hot") == undisturbed(tmp_path / "expected", insert), f"seed {SEED}"
    assert store.names("kept") == [], "what is over leaves nothing"


def test_a_node_that_was_paused_while_another_one_took_its_query_over_writes_no_more(tmp_path, store, start):
    first, second = start("first"), start("second")
    begin_kept(first, SESSIONS)
    until(lambda: states(first)["hot"]["snapshot"].startswith("epoch"))
    first.process.send_signal(signal.SIGSTOP)
    take_over(second)
    first.process.send_signal(signal.SIGCONT)
    until(lambda: states(first)["hot"]["state"] == "failed")
    assert "another process has" in states(first)["hot"]["error"], states(first)["hot"]
    # It does not take it back by itself, nor by a RESUME, and what it forgets is its own.
    with connect(first) as connection:
        with pytest.raises(psycopg.Error, match="another node has taken"):
            connection.execute("RESUME QUERY 'hot'")
        connection.execute("DROP QUERY 'hot'")
        with pytest.raises(psycopg.Error, match="query hot is kept in s3://bucket/kept/hot/[0-9]+ already"):
            connection.execute("SET 'snapshot-interval' = '100ms'")
            connection.execute("SET 'query.store' = 's3://bucket/kept'")
            connection.execute(named("hot"))
            connection.execute(SESSIONS)
    until(lambda: "hot" not in states(second), deadline=120)
    assert store.lines("out/hot") == undisturbed(tmp_path / "expected", SESSIONS)


def test_a_query_that_is_kept_in_a_bucket_waits_for_it_and_may_be_dropped_without_it(tmp_path, store, start):
    node = start()
    with connect(node) as connection:
        with pytest.raises(psycopg.Error, match="lies outside of the folders"):
            begin_kept(node, SESSIONS, "SET 'query.name' = 'other'", "SET 'query.store' = 's3://bucket/elsewhere'", SESSIONS)
        connection.execute("DROP TABLE hot")
        connection.execute("DROP VIEW bids")
        connection.execute("DROP TABLE events")
    begin_kept(node, SESSIONS)
    until(lambda: states(node)["hot"]["snapshot"].startswith("epoch"))
    store.process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    assert states(node)["hot"]["state"] == "running"
    store.process.send_signal(signal.SIGCONT)
    snapshot = states(node)["hot"]["snapshot"]
    until(lambda: states(node).get("hot", {}).get("snapshot") != snapshot)
    with connect(node) as connection:
        connection.execute("STOP QUERY 'hot'")
        assert any("/log/" in name for name in store.names("kept/hot"))
        connection.execute("DROP QUERY 'hot'")
    assert store.names("kept") == []


def test_a_query_that_does_not_fit_is_not_taken_from_the_node_that_has_it(tmp_path, store, start):
    first, second = start("first"), start("second")
    parts = tmp_path / "parts"
    parts.mkdir()
    for number in range(2):
        (parts / f"{number}.csv").write_text(f"2026-01-01 00:00:00,{number},2\n" * 10)
    numbers = f"""CREATE TABLE numbers (at TIMESTAMP(3), auction BIGINT, bids BIGINT)
        WITH ('connector' = 'file', 'path' = '{parts}', 'format' = 'csv', 'csv.header' = 'false')"""
    insert = "INSERT INTO hot SELECT at, auction, CAST(1 AS BIGINT) FROM bids WHERE auction % 50 = 7 UNION ALL SELECT at, auction, bids FROM numbers"
    begin_kept(first, insert, numbers, "SET 'parallelism' = '2'")
    until(lambda: store.lines("out/hot"))
    lost = (parts / "1.csv").read_text()
    (parts / "1.csv").unlink()
    with pytest.raises(psycopg.Error, match="read 4 source partitions before and would read 3 now"):
        take_over(second, "SET 'parallelism' = '2'")
    assert "hot" not in states(second)
    assert states(first)["hot"]["state"] == "running"
    # In as many parts as before it is, whatever is asked for.
    (parts / "1.csv").write_text(lost)
    take_over(second, "SET 'parallelism' = '3'")
    until(lambda: "hot" not in states(second), deadline=120)
    assert store.lines("out/hot") == undisturbed(tmp_path / "expected", f"{numbers};\n{insert}")
