"""Materialized views: whole epochs, each once, whenever they are read and however often the node is killed."""

import random
import subprocess
import threading
import time

import psycopg
import pytest

from node import SAVANNA, Node
from same_rows import assert_same_rows

SEED = random.randrange(1 << 32)
EVENTS = 1_500_000
NEXMARK = f"""CREATE TABLE events (event_type INT, bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
    dateTime TIMESTAMP(3), extra VARCHAR>, at AS bid.dateTime, WATERMARK FOR at AS at - INTERVAL '1' SECOND) WITH ('connector' = 'nexmark',
    'events.num' = '{EVENTS}', 'rate-limited' = 'true', 'first-event.rate' = '250000', 'base-time' = '2026-01-01 00:00:00')"""
BIDS = "CREATE VIEW bids AS SELECT bid.auction AS auction, at FROM events WHERE event_type = 2"
COUNTED = """SELECT window_end AS at, auction, count(*) AS bids FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '0.5' SECOND))
    GROUP BY window_start, window_end, auction"""


def connect(node):
    return psycopg.connect(host="127.0.0.1", port=node.ports["pgwire"], user="postgres", dbname="savanna_streams", autocommit=True)


def until(true, seconds=120):
    deadline = time.monotonic() + seconds
    while not (answer := true()):
        assert time.monotonic() < deadline, f"seed {SEED}"
        time.sleep(0.05)
    return answer


def shown(connection, view):
    cursor = connection.execute("SHOW MATERIALIZED VIEWS")
    names = [column.name for column in cursor.description]
    return next(dict(zip(names, row)) for row in cursor.fetchall() if row[0] == view)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The rows of all windows, by another way: as fast as it goes, into a file."""
    out = tmp_path_factory.mktemp("expected")
    table = f"CREATE TABLE counted (at TIMESTAMP(3), auction BIGINT, bids BIGINT) WITH ('connector' = 'file', 'path' = '{out}/rows', 'format' = 'csv', 'csv.header' = 'false')"
    told = ";\n".join([NEXMARK.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'"), BIDS, table, f"INSERT INTO counted {COUNTED}"])
    subprocess.run([SAVANNA, "sql", "-c", told], check=True, capture_output=True, timeout=120)
    lines = [line.split(",") for part in out.glob("rows/part-*") for line in part.read_text().splitlines()]
    rows = sorted((at.replace("T", " "), int(auction), int(bids)) for at, auction, bids in lines)
    assert len(rows) > 1000
    return rows


def windows(rows):
    """The numbers of rows by window."""
    counts = {}
    for at, _, _ in rows:
        counts[at] = counts.get(at, 0) + 1
    return counts


class Reader(threading.Thread):
    """Reads while it can: windows must come whole, in order, and never go."""

    def __init__(self, whole):
        super().__init__()
        self.whole, self.node, self.ends, self.wrong, self.reads, self.last = whole, None, False, [], 0, 0

    def run(self):
        while not self.ends:
            node = self.node
            if node is None:
                time.sleep(0.01)
                continue
            try:
                with connect(node) as connection:
                    while not self.ends:
                        self.read(connection)
            except psycopg.OperationalError:
                time.sleep(0.02)

    def read(self, connection):
        counted = dict(connection.execute("SELECT CAST(at AS VARCHAR), count(*) FROM counted GROUP BY at").fetchall())
        counted = {at.replace("T", " "): rows for at, rows in counted.items()}
        half = {at: rows for at, rows in counted.items() if rows != self.whole.get(at)}
        total = sum(counted.values())
        if half or total < self.last:
            self.wrong.append((half, total, self.last))
        self.last, self.reads = max(total, self.last), self.reads + 1


def test_readers_see_whole_epochs_and_none_that_is_taken_back_however_often_the_node_is_killed(tmp_path, expected):
    dice = random.Random(SEED)
    reader = Reader(windows(expected))
    reader.start()
    node = Node(tmp_path)
    kills = 0
    try:
        with connect(node) as connection:
            for statement in [NEXMARK, BIDS, "SET 'parallelism' = '2'", f"CREATE MATERIALIZED VIEW counted AS {COUNTED}",
                              f"CREATE MATERIALIZED VIEW latest WITH ('key' = 'auction') AS {COUNTED}"]:
                connection.execute(statement)
        for _ in range(6):
            reader.node = node
            time.sleep(dice.uniform(0.5, 1.5))
            with connect(node) as connection:
                kills += shown(connection, "counted")["state"] == "running"
            reader.node = None
            node.kill()
            node = Node(tmp_path)
        reader.node = node
        with connect(node) as connection:
            until(lambda: all(shown(connection, view)["state"] == "finished" for view in ("counted", "latest")))
            rows = connection.execute("SELECT CAST(at AS VARCHAR), auction, bids FROM counted").fetchall()
            assert_same_rows([(at.replace("T", " "), *rest) for at, *rest in rows], expected, SEED)
            newest = {auction: (at, bids) for at, auction, bids in expected}
            rows = connection.execute("SELECT CAST(at AS VARCHAR), auction, bids FROM latest").fetchall()
            assert {auction: (at.replace("T", " "), bids) for at, auction, bids in rows} == newest, f"seed {SEED}"
            assert len(rows) == len(newest)
            for auction in dice.sample(sorted(newest), 50):
                found = connection.execute("SELECT CAST(bids AS BIGINT) FROM latest WHERE auction = %s", (auction,)).fetchall()
                looked_up = connection.execute("SELECT bids FROM latest WHERE auction = %s", (auction,), prepare=True).fetchall()
                assert found == looked_up == [(newest[auction][1],)]
            assert connection.execute("SELECT bids FROM latest WHERE auction = %s", (-1,)).fetchall() == []
        reader.ends = True
        reader.join()
        assert not reader.wrong and reader.reads > 10, f"seed {SEED}: {reader.wrong[:3]}, {reader.reads} reads"
        assert kills >= 3, f"seed {SEED}: it was over too soon"
        assert node.stop() == 0, node.log.read_text()
    finally:
        reader.ends = True
        if node.process.poll() is None:
            node.kill()


def test_a_view_is_told_in_the_system_tables_and_read_by_the_forms_of_clients(tmp_path):
    (tmp_path / "in.csv").write_text("id,name\n1,ada\n2,bob\n1,eve\n")
    node = Node(tmp_path)
    try:
        with connect(node) as connection:
            connection.execute(f"CREATE TABLE people (id BIGINT, name VARCHAR) WITH ('connector' = 'file', 'path' = '{tmp_path}/in.csv', 'format' = 'csv')")
            connection.execute("CREATE MATERIALIZED VIEW named WITH ('key' = 'id') AS SELECT id, name FROM people")
            until(lambda: connection.execute("SELECT count(*) FROM named").fetchone() == (2,))
            assert connection.execute("SELECT matviewname FROM pg_matviews").fetchall() == [("named",)]
            assert connection.execute("SELECT relkind FROM pg_class WHERE relname = 'named'").fetchall() == [("m",)]
            assert connection.execute("SELECT name FROM named WHERE id = %s", (1,)).fetchall() == [("eve",)]
            with connection.cursor().copy("COPY (SELECT id, name FROM named ORDER BY id) TO STDOUT") as copy:
                assert b"".join(copy) == b"1\teve\n2\tbob\n"
            with connection.cursor(name="held", withhold=True) as cursor:
                cursor.execute("SELECT id FROM named ORDER BY id")
                assert cursor.fetchall() == [(1,), (2,)]
        listed = subprocess.run(["psql", "-h", "127.0.0.1", "-p", str(node.ports["pgwire"]), "-U", "postgres", "-Atc", r"\dm", "savanna_streams"],
                                capture_output=True, text=True, timeout=60)
        assert listed.stdout.startswith("public|named|materialized view|"), listed
        assert node.stop() == 0, node.log.read_text()
    finally:
        if node.process.poll() is None:
            node.kill()
