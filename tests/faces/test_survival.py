"""Tables, views and queries of streams outlive their process, however it ends: what a query writes to files is there once."""

import collections
import csv
import json
import pathlib
import random
import shutil
import signal
import subprocess
import time

import psycopg
import pyarrow
import pytest
from pyarrow import parquet

from node import SAVANNA, Node
from same_rows import assert_same_rows

SEED = random.randrange(1 << 32)
# The hot items of Nexmark, query 5, in the part of it that is windows: bids of each auction in windows of 1 s that slide by 0.2 s.
EVENTS = 1_500_000
NEXMARK = f"""CREATE TABLE events (event_type INT, bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
    dateTime TIMESTAMP(3), extra VARCHAR>, at AS bid.dateTime, WATERMARK FOR at AS at - INTERVAL '1' SECOND) WITH ('connector' = 'nexmark',
    'events.num' = '{EVENTS}', 'rate-limited' = 'true', 'first-event.rate' = '250000', 'base-time' = '2026-01-01 00:00:00')"""
BIDS = "CREATE VIEW bids AS SELECT bid.auction AS auction, at FROM events WHERE event_type = 2"
HOT = """INSERT INTO hot SELECT window_start, auction, count(*) FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at),
    INTERVAL '0.2' SECOND, INTERVAL '1' SECOND)) GROUP BY window_start, window_end, auction"""


def hot(path):
    return f"""CREATE TABLE hot (at TIMESTAMP(3), auction BIGINT, bids BIGINT)
        WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv', 'csv.header' = 'false')"""


def connect(node):
    return psycopg.connect(host="127.0.0.1", port=node.ports["pgwire"], user="postgres", dbname="savanna_streams", autocommit=True)


def named(query):
    """Only queries that have a name outlive their process."""
    return f"SET 'query.name' = '{query}'"


def lines(path):
    """All visible lines of all parts, in some order."""
    return sorted(line for part in pathlib.Path(path).rglob("part-*") for line in part.read_text().splitlines())


def states(node):
    """State and error-free progress of queries by name."""
    with connect(node) as connection:
        shown = connection.execute("SHOW QUERIES")
        names = [column.name for column in shown.description]
        rows = [dict(zip(names, row)) for row in shown.fetchall()]
    return {row["name"] or row["query"]: row for row in rows}


def last_manifest(snapshots):
    """The manifest of the snapshot that counts, if there is one."""
    manifests = [path for path in snapshots.glob("*/manifest-*") if path.suffix != ".next"]
    return max(manifests, key=lambda path: [int(number) for number in path.name.split("-")[1:]], default=None)


def has_changes(snapshots):
    """Whether the snapshot that counts is a whole one and what has changed since: its manifest has another version then."""
    manifest = last_manifest(snapshots)
    return manifest is not None and manifest.read_bytes()[4] == 2


def killed_at_random(tmp_path, statements, out, query, rounds, pause=(0.3, 1.5), snapshots=None):
    """Starts a query and kills its node again and again; then lets it come to its end. Tells how often it was killed while it ran, and before each kill which
    snapshot counted, and whether it had changes."""
    dice = random.Random(SEED)
    kills = 0
    node = Node(tmp_path)
    try:
        with connect(node) as connection:
            for statement in [*statements[:-1], named(query), statements[-1]]:
                connection.execute(statement)
        for _ in range(rounds):
            time.sleep(dice.uniform(*pause))
            now = states(node)
            node.kill()
            kills += query in now
            if snapshots is not None and query in now:
                snapshots.append((now[query]["snapshot"], has_changes(tmp_path / "data/streams/snapshots")))
            node = Node(tmp_path)
        deadline = time.monotonic() + 120
        while query in (now := states(node)):
            assert now[query]["state"] == "running", (now, node.log.read_text())
            assert time.monotonic() < deadline, now
            time.sleep(0.2)
        assert node.stop() == 0, node.log.read_text()
    finally:
        if node.process.poll() is None:
            node.kill()
    assert not list(pathlib.Path(out).rglob(".part-*")), "nothing stays hidden"
    return kills


@pytest.mark.parametrize("mode, members, parallelism", [("serverless", 1, 1), ("provisioned", 2, 2)])
def test_windows_over_nexmark_are_written_once_however_often_the_node_is_killed(tmp_path, mode, members, parallelism):
    settings = [f"SET 'mode' = '{mode}'", f"SET 'group-size' = '{members}'", f"SET 'parallelism' = '{parallelism}'"]
    out = tmp_path / "out"
    kills = killed_at_random(tmp_path, [NEXMARK, BIDS, hot(out), *settings, HOT], out, "hot-items", rounds=6)
    assert kills >= 3, f"seed {SEED}: it was over too soon"
    # The same without a kill, and as fast as it goes.
    told = ";\n".join([NEXMARK.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'"), BIDS, hot(tmp_path / "expected"), HOT])
    subprocess.run([SAVANNA, "sql", "-c", told], check=True, capture_output=True, timeout=120)
    expected = lines(tmp_path / "expected")
    assert len(expected) > 1000
    assert_same_rows(lines(out), expected, SEED)


# Where the process ends, and at which time.
POINTS = {"record-appended": 5, "record-durable": 5, "records-cut": 1, "file-sink-part-written": 3, "file-sink-part-visible": 3, "file-sink-marked": 5,
          "snapshot-part": 4, "snapshot-written": 2, "snapshot-switched": 2, "snapshot-tidied": 2}


@pytest.mark.parametrize("point", POINTS)
def test_a_query_whose_node_ends_at_a_step_writes_each_window_once(tmp_path, point):
    out = tmp_path / "out"
    # On a busy machine the first snapshot behind which records go may be late.
    nexmark = NEXMARK.replace(str(EVENTS), str(2 * EVENTS)) if point == "records-cut" else NEXMARK
    node = Node(tmp_path, {"STREAMS_CRASH_AT": f"{point}:{POINTS[point]}"})
    try:
        with connect(node) as connection:
            for statement in [nexmark, BIDS, hot(out), named("hot"), "SET 'snapshot-interval' = '100ms'", "SET 'epoch-target' = '20ms'", HOT]:
                connection.execute(statement)
        assert node.process.wait(60) == -signal.SIGABRT, "it has not come to this step"
        node = Node(tmp_path)
        until(lambda: "hot" not in (now := states(node)) or now["hot"]["state"] == "failed")
        assert "hot" not in (now := states(node)), now["hot"]["error"]
    finally:
        node.kill()
    told = ";\n".join([nexmark.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'"), BIDS, hot(tmp_path / "expected"), HOT])
    subprocess.run([SAVANNA, "sql", "-c", told], check=True, capture_output=True, timeout=120)
    expected = lines(tmp_path / "expected")
    assert len(expected) > 1000
    assert_same_rows(lines(out), expected, None)


SHAPES = {
    "a filter": "SELECT at, auction, price FROM priced WHERE auction % 50 = 0",
    "sessions": """SELECT window_start, auction, count(*) FROM TABLE(SESSION(TABLE priced PARTITION BY auction, DESCRIPTOR(at), INTERVAL '0.05' SECOND))
        GROUP BY auction, window_start, window_end""",
    "a join of streams": """SELECT l.at, l.auction, r.price FROM priced l LEFT JOIN priced r
        ON l.auction = r.auction AND l.at BETWEEN r.at - INTERVAL '0.02' SECOND AND r.at + INTERVAL '0.01' SECOND AND l.price > 10 * r.price
        WHERE l.auction % 20 = 7""",
    "the first of windows over windows": """SELECT window_start, auction, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end
        ORDER BY n DESC) AS place FROM TABLE(TUMBLE((SELECT auction, window_time AS t, count(*) AS n FROM TABLE(TUMBLE(TABLE priced, DESCRIPTOR(at),
        INTERVAL '0.1' SECOND)) GROUP BY auction, window_start, window_end, window_time), DESCRIPTOR(t), INTERVAL '0.3' SECOND))) WHERE place <= 20""",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_queries_of_many_shapes_write_each_row_once(tmp_path, shape):
    out, expected = tmp_path / "out", tmp_path / "expected"
    priced = "CREATE VIEW priced AS SELECT bid.auction AS auction, bid.price AS price, at FROM events WHERE event_type = 2"
    insert = f"INSERT INTO hot {SHAPES[shape]}"
    kills = killed_at_random(tmp_path, [NEXMARK, priced, hot(out), "SET 'parallelism' = '2'", insert], out, "hot", rounds=4)
    assert kills >= 2, f"seed {SEED}: it was over too soon"
    told = ";\n".join([NEXMARK.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'"), priced, hot(expected), insert])
    subprocess.run([SAVANNA, "sql", "-c", told], check=True, capture_output=True, timeout=120)
    assert len(lines(expected)) > 100
    assert lines(out) == lines(expected), f"seed {SEED}"


LONG = {
    "windows longer than all that is read": """SELECT window_start, auction, count(*) FROM TABLE(HOP(TABLE priced, DESCRIPTOR(at), INTERVAL '10' MINUTE,
        INTERVAL '1' HOUR)) GROUP BY window_start, window_end, auction""",
    "sessions": SHAPES["sessions"],
    "a join of streams": SHAPES["a join of streams"].replace("'0.02' SECOND", "'0.5' SECOND").replace("% 20 = 7", "% 100 = 7"),
    "the first of windows over windows": SHAPES["the first of windows over windows"],
}


@pytest.mark.parametrize("mode, shape", [("provisioned", "windows longer than all that is read"), ("serverless", "sessions"), ("serverless", "a join of streams"),
                                         ("provisioned", "the first of windows over windows")])
def test_queries_go_on_from_their_snapshots_and_write_each_row_once(tmp_path, mode, shape):
    out, expected = tmp_path / "out", tmp_path / "expected"
    priced = "CREATE VIEW priced AS SELECT bid.auction AS auction, bid.price AS price, at FROM events WHERE event_type = 2"
    insert = f"INSERT INTO hot {LONG[shape]}"
    settings = [f"SET 'mode' = '{mode}'", "SET 'group-size' = '2'", "SET 'parallelism' = '2'", "SET 'snapshot-interval' = '50ms'"]
    snapshots = []
    kills = killed_at_random(tmp_path, [NEXMARK, priced, hot(out), *settings, insert], out, "hot", rounds=6, pause=(0.5, 1.5), snapshots=snapshots)
    assert kills >= 2, f"seed {SEED}: it was over too soon"
    assert [told for told, _ in snapshots if told.startswith("epoch ")], f"seed {SEED}: {snapshots}"
    if shape == "windows longer than all that is read":
        assert any(changes for _, changes in snapshots), f"seed {SEED}: {snapshots}"
    told = ";\n".join([NEXMARK.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'"), priced, hot(expected), insert])
    subprocess.run([SAVANNA, "sql", "-c", told], check=True, capture_output=True, timeout=120)
    assert len(lines(expected)) > 100
    assert lines(out) == lines(expected), f"seed {SEED}"
    assert not list((tmp_path / "data/streams/snapshots").iterdir()), "the snapshots of a query go with it"


def test_what_is_behind_a_snapshot_is_not_read_again_and_its_records_go(tmp_path):
    out = tmp_path / "out"
    insert = LONG["windows longer than all that is read"].replace("TABLE priced", "TABLE bids")
    node = Node(tmp_path)
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, hot(out), named("hot"), "SET 'snapshot-interval' = '100ms'", f"INSERT INTO hot {insert}"]:
            connection.execute(statement)
    until(lambda: int(states(node)["hot"]["events"]) > EVENTS // 2 and states(node)["hot"]["snapshot"].startswith("epoch "))
    node.kill()
    node = Node(tmp_path)
    assert states(node)["hot"]["snapshot"].startswith("epoch "), "it is that of the former process"
    until(lambda: next(iter(states(node).values()))["state"] == "finished")
    row = next(iter(states(node).values()))
    assert int(row["events"]) < EVENTS * 2 // 3, row
    assert node.stop() == 0
    assert len(set(lines(out))) == len(lines(out)) > 1000


def test_a_damaged_snapshot_is_told_of_with_its_place_and_the_query_is_computed_from_its_records(tmp_path):
    out = tmp_path / "out"
    insert = LONG["sessions"].replace("TABLE priced", "TABLE bids")
    node = Node(tmp_path)
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, hot(out), named("hot"), "SET 'snapshot-interval' = '100ms'", f"INSERT INTO hot {insert}"]:
            connection.execute(statement)
    until(lambda: states(node)["hot"]["snapshot"].startswith("epoch "))
    node.kill()
    manifest = last_manifest(tmp_path / "data/streams/snapshots")
    good = manifest.read_bytes()
    manifest.write_bytes(good[:-5] + b"?" + good[-4:])
    node = Node(tmp_path)
    try:
        assert states(node)["hot"]["state"] == "running"
        assert str(manifest) in node.log.read_text() and "it is damaged" in node.log.read_text()
        until(lambda: next(iter(states(node).values()))["state"] == "finished")
        assert len(set(lines(out))) == len(lines(out)) > 1000
        assert node.stop() == 0
    finally:
        node.kill()


def test_a_query_goes_on_in_another_node_from_a_savepoint(tmp_path):
    out, expected, saved = tmp_path / "out", tmp_path / "expected", tmp_path / "saved"
    insert = LONG["sessions"].replace("TABLE priced", "TABLE bids")

    def queries(node, *words):
        return subprocess.run([SAVANNA, "queries", *words, "--url", f"http://127.0.0.1:{node.ports['http']}"], capture_output=True, text=True, timeout=60)

    nodes = []
    try:
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            nodes.append(Node(tmp_path / name))
        first, second = nodes
        with connect(first) as connection:
            for statement in [NEXMARK, BIDS, hot(out), named("hot"), f"INSERT INTO hot {insert}"]:
                connection.execute(statement)
        until(lambda: len(lines(out)) > 100)
        before = queries(second, "resume", "--from-savepoint", saved)
        assert before.returncode != 0 and str(saved) in before.stderr, before.stderr
        stopped = queries(first, "stop", "hot", "--with-savepoint", saved)
        assert (stopped.returncode, stopped.stdout) == (0, f"query hot is stopped, and is in {saved}\n"), stopped.stderr
        again = queries(first, "stop", "hot", "--with-savepoint", saved)
        assert again.returncode != 0 and "empty" in again.stderr, again.stderr
        assert queries(first, "drop", "hot").returncode == 0
        resumed = queries(second, "resume", "--from-savepoint", saved, "--output", "json")
        assert json.loads(resumed.stdout) == {"savepoint": str(saved), "done": "resume"}, resumed.stderr
        assert states(second)["hot"]["state"] == "running"
        until(lambda: next(iter(states(second).values()))["state"] == "finished")
    finally:
        for node in nodes:
            node.kill()
    told = ";\n".join([NEXMARK.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'"), BIDS, hot(expected), f"INSERT INTO hot {insert}"])
    subprocess.run([SAVANNA, "sql", "-c", told], check=True, capture_output=True, timeout=120)
    assert lines(out) == lines(expected)


PRICED = "CREATE VIEW priced AS SELECT bid.auction AS auction, at, PROCTIME() AS p FROM events WHERE event_type = 2"
KINDS = """SELECT window_start, kind, count(*) FROM TABLE(TUMBLE((SELECT at, kind FROM priced JOIN kinds FOR SYSTEM_TIME AS OF priced.p AS k
    ON mod(priced.auction, 10) = k.id), DESCRIPTOR(at), INTERVAL '0.2' SECOND)) GROUP BY window_start, window_end, kind"""


def kinds(path, more=""):
    return f"CREATE TABLE kinds (id BIGINT, kind BIGINT) WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv', 'csv.header' = 'false'{more})"


def write_kinds(path, kind):
    """Puts another file in the place of a table: nobody reads half of one."""
    beside = path.with_suffix(".next")
    beside.write_text("".join(f"{id},{kind(id)}\n" for id in range(8)))
    beside.rename(path)


@pytest.mark.parametrize("mode, members, interval", [("serverless", 1, "none"), ("provisioned", 2, "100ms")])
def test_rows_are_looked_up_in_the_table_as_it_was_read_however_often_the_node_is_killed(tmp_path, mode, members, interval):
    out, expected, table = tmp_path / "out", tmp_path / "expected", tmp_path / "kinds.csv"
    write_kinds(table, lambda id: id % 3)
    settings = [f"SET 'mode' = '{mode}'", f"SET 'group-size' = '{members}'", f"SET 'snapshot-interval' = '{interval}'"]
    insert = f"INSERT INTO hot {KINDS}"
    told = ";\n".join([NEXMARK.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'"), PRICED, kinds(table), hot(expected), insert])
    subprocess.run([SAVANNA, "sql", "-c", told], check=True, capture_output=True, timeout=120)
    node = Node(tmp_path)
    with connect(node) as connection:
        for statement in [NEXMARK, PRICED, kinds(table), hot(out), *settings, named("hot"), insert]:
            connection.execute(statement)
    try:
        until(lambda: lines(out))
        # What the table has from now on is nothing to the query.
        write_kinds(table, lambda id: 100 + id)
        dice, kills = random.Random(SEED), 0
        for _ in range(5):
            time.sleep(dice.uniform(0.3, 1.2))
            kills += "hot" in states(node)
            node.kill()
            node = Node(tmp_path)
        assert kills >= 3, f"seed {SEED}: it was over too soon"
        until(lambda: "hot" not in states(node), deadline=120)
        assert node.stop() == 0
    finally:
        if node.process.poll() is None:
            node.kill()
    assert len(lines(expected)) > 50
    assert lines(out) == lines(expected), f"seed {SEED}"
    assert not list((tmp_path / "data/streams/lookups").iterdir()), "nothing is kept of a query that is over"


@pytest.mark.long
def test_a_table_that_is_read_anew_is_another_one_from_an_epoch_on_and_each_row_is_written_once(tmp_path):
    out, table = tmp_path / "out", tmp_path / "kinds.csv"
    write_kinds(table, lambda id: 0)
    ids = "CREATE VIEW ids AS SELECT bid.auction AS auction, bid.price AS price, at, PROCTIME() AS p FROM events WHERE event_type = 2 AND mod(bid.auction, 10) < 8"
    select = "SELECT i.at, i.auction * 1000000 + i.price, k.kind FROM ids i JOIN kinds FOR SYSTEM_TIME AS OF i.p AS k ON mod(i.auction, 10) = k.id"
    nexmark = NEXMARK.replace(str(EVENTS), str(2 * EVENTS))
    kind_of = lambda line: int(line.rsplit(",", 1)[1])
    parts = lambda: sorted(out.glob("part-*"), key=lambda part: int(part.stem.rsplit("-", 1)[1]))
    node = Node(tmp_path)
    with connect(node) as connection:
        for statement in [nexmark, ids, kinds(table, ", 'lookup.refresh' = '100ms'"), hot(out), named("hot")]:
            connection.execute(statement)
        explained = "\n".join(row[0] for row in connection.execute(f"EXPLAIN INSERT INTO hot {select}").fetchall())
        assert "table kinds, read anew every 100ms" in explained, explained
        connection.execute(f"INSERT INTO hot {select}")
    try:
        dice, generation, kills = random.Random(SEED), 0, 0
        for _ in range(5):
            for _ in range(dice.randrange(2, 6)):
                generation += 1
                write_kinds(table, lambda id: generation)
                time.sleep(dice.uniform(0.05, 0.25))
            until(lambda: "hot" not in states(node) or parts() and kind_of(parts()[-1].read_text().splitlines()[-1]) == generation)
            kills += "hot" in states(node)
            node.kill()
            node = Node(tmp_path)
        assert kills >= 3, f"seed {SEED}: it was over too soon"
        until(lambda: "hot" not in states(node), deadline=120)
        assert node.stop() == 0
    finally:
        if node.process.poll() is None:
            node.kill()
    expected = tmp_path / "expected"
    told = ";\n".join([nexmark.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'"), ids, hot(expected),
                       "INSERT INTO hot SELECT at, auction * 1000000 + price, 0 FROM ids"])
    subprocess.run([SAVANNA, "sql", "-c", told], check=True, capture_output=True, timeout=120)
    row = lambda line: line.rsplit(",", 1)[0]
    assert sorted(map(row, lines(out))) == sorted(map(row, lines(expected))), f"seed {SEED}"
    of_part = [{kind_of(line) for line in part.read_text().splitlines()} for part in parts()]
    assert all(len(kinds) <= 1 for kinds in of_part), f"seed {SEED}: an epoch has one version of the table"
    seen = [kind for kinds in of_part for kind in kinds]
    assert seen == sorted(seen) and len(set(seen)) >= kills, (seen, f"seed {SEED}")


def test_a_table_that_is_read_anew_has_the_files_and_row_groups_that_are_there_then(tmp_path):
    out, table = tmp_path / "out", tmp_path / "kinds"
    table.mkdir()

    def write(name, ids, rows_of_group):
        """Files that are written have their names only when they are whole."""
        parquet.write_table(pyarrow.table({"id": pyarrow.array(ids, pyarrow.int64())}), tmp_path / "next", row_group_size=rows_of_group)
        (tmp_path / "next").rename(table / name)

    written = lambda: {int(line.split(",")[1]) for line in lines(out)}
    write("a.parquet", [0], 1)
    node = Node(tmp_path)
    with connect(node) as connection:
        kinds = f"CREATE TABLE kinds (id BIGINT) WITH ('connector' = 'file', 'path' = '{table}', 'format' = 'parquet', 'lookup.refresh' = '100ms')"
        ids = "CREATE VIEW ids AS SELECT bid.auction AS auction, at, PROCTIME() AS p FROM events WHERE event_type = 2"
        select = "SELECT i.at, k.id, 0 FROM ids i JOIN kinds FOR SYSTEM_TIME AS OF i.p AS k ON mod(i.auction, 10) = k.id"
        for statement in [NEXMARK.replace(str(EVENTS), str(40 * EVENTS)), ids, kinds, hot(out), named("hot"), f"INSERT INTO hot {select}"]:
            connection.execute(statement)
    try:
        until(lambda: written() == {0})
        write("a.parquet", [0, 1, 2, 3, 4, 5], 2)
        until(lambda: written() == {0, 1, 2, 3, 4, 5})
        write("b.parquet", [6, 7], 2)
        until(lambda: written() == {0, 1, 2, 3, 4, 5, 6, 7})
        assert states(node)["hot"]["state"] == "running"
        node.kill()
        node = Node(tmp_path)
        assert states(node)["hot"]["state"] == "running"
    finally:
        node.kill()


def test_windows_over_files_are_those_of_the_definition_however_often_the_node_is_killed(tmp_path):
    dice = random.Random(SEED)
    source = tmp_path / "source"
    source.mkdir()
    counts = collections.Counter()
    for number in range(3):
        with open(source / f"{number}.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["second", "key"])
            for step in range(150_000):
                second, key = step // 50 - dice.randrange(3), dice.randrange(20)
                rows.writerow([f"2026-01-01 {second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}" if second >= 0 else "2026-01-01 00:00:00", key])
                counts[(max(second, 0) // 10, key)] += 1
    out = tmp_path / "out"
    statements = [
        f"""CREATE TABLE input (second TIMESTAMP(3), key BIGINT, WATERMARK FOR second AS second - INTERVAL '5' SECOND)
            WITH ('connector' = 'file', 'path' = '{source}', 'format' = 'csv')""",
        f"""CREATE TABLE counted (at BIGINT, key BIGINT, n BIGINT)
            WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'csv', 'csv.header' = 'false', 'sink.rolling-policy.file-size' = '100KiB')""",
        "SET 'epoch-events' = '500'",
        """INSERT INTO counted SELECT EXTRACT(EPOCH FROM window_start) / 10 - 176722560, key, count(*)
            FROM TABLE(TUMBLE(TABLE input, DESCRIPTOR(second), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, key""",
    ]
    kills = killed_at_random(tmp_path, statements, out, "counted", rounds=5, pause=(0.1, 0.6))
    assert kills >= 1, f"seed {SEED}: it was over too soon"
    assert lines(out) == sorted(f"{window},{key},{n}" for (window, key), n in counts.items()), f"seed {SEED}"


def test_a_file_that_grows_is_followed_across_kills(tmp_path):
    dice = random.Random(SEED)
    log, out, passed = tmp_path / "log.csv", tmp_path / "out", tmp_path / "passed"
    log.write_text("at,n\n")
    statements = [
        f"""CREATE TABLE log (at TIMESTAMP(3), n BIGINT, WATERMARK FOR at AS at - INTERVAL '2' SECOND)
            WITH ('connector' = 'file', 'path' = '{log}', 'format' = 'csv', 'follow' = 'true')""",
        f"CREATE TABLE counted (at TIMESTAMP(3), n BIGINT) WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'csv', 'csv.header' = 'false')",
        f"CREATE TABLE passed (n BIGINT) WITH ('connector' = 'file', 'path' = '{passed}', 'format' = 'csv', 'csv.header' = 'false')",
        named("counted"),
        "INSERT INTO counted SELECT window_start, count(*) FROM TABLE(TUMBLE(TABLE log, DESCRIPTOR(at), INTERVAL '1' SECOND)) GROUP BY window_start, window_end",
        named("passed"),
        "INSERT INTO passed SELECT n FROM log WHERE n % 2 = 0",
    ]
    node = Node(tmp_path)
    try:
        with connect(node) as connection:
            for statement in statements:
                connection.execute(statement)
        written = 0
        for _ in range(6):
            for _ in range(dice.randrange(5, 40)):
                with open(log, "a") as file:
                    for _ in range(dice.randrange(1, 60)):
                        second = max(written // 100 - dice.randrange(2), 0)
                        file.write(f"2026-01-01 00:{second // 60:02}:{second % 60:02},{written}\n")
                        written += 1
                    # It is no row.
                    file.write("\n" * dice.randrange(3))
                time.sleep(0.02)
            node.kill()
            node = Node(tmp_path)
        last = written
        with open(log, "a") as file:
            file.write(f"2026-01-02 00:00:00,{last}\n")
        deadline = time.monotonic() + 60
        while str(last if last % 2 == 0 else last - 1) not in lines(passed) or sum(int(line.split(",")[1]) for line in lines(out)) < last:
            assert time.monotonic() < deadline, (states(node), node.log.read_text())
            time.sleep(0.1)
        assert lines(passed) == sorted(str(n) for n in range(0, last + 1, 2)), f"seed {SEED}"
        counts = collections.Counter(line.split(",")[0] for line in log.read_text().splitlines()[1:-1] if line)
        assert [line.split(",")[1] for line in lines(out)] == [str(count) for _, count in sorted(counts.items())], f"seed {SEED}"
        assert node.stop() == 0
    finally:
        node.kill()


def test_a_query_over_windows_does_not_begin_at_the_beginning_again(tmp_path):
    out, expected = tmp_path / "out", tmp_path / "expected"
    windows = "DESCRIPTOR(at),\n    INTERVAL '0.1' SECOND, INTERVAL '0.2' SECOND)"
    query = HOT.replace("DESCRIPTOR(at),\n    INTERVAL '0.2' SECOND, INTERVAL '1' SECOND)", windows)
    assert query != HOT
    node = Node(tmp_path)
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, hot(out), named("hot"), query]:
            connection.execute(statement)
    deadline = time.monotonic() + 60
    while int(states(node)["hot"]["events"]) < EVENTS * 2 // 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    node.kill()
    node = Node(tmp_path)
    while (row := next(iter(states(node).values())))["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert row["state"] == "finished" and int(row["events"]) < EVENTS * 9 // 10, row
    assert node.stop() == 0
    told = ";\n".join([NEXMARK.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'"), BIDS, hot(expected), query])
    subprocess.run([SAVANNA, "sql", "-c", told], check=True, capture_output=True, timeout=120)
    assert lines(out) == lines(expected)


def test_tables_views_and_stopped_queries_are_there_again_and_a_query_goes_on_when_it_is_told(tmp_path):
    out = tmp_path / "out"
    node = Node(tmp_path)
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, hot(out), "CREATE VIEW gone AS SELECT * FROM bids", "DROP VIEW gone", named("hot"), HOT]:
            connection.execute(statement)
        table = connection.execute("DESCRIBE events").fetchall()
        time.sleep(1)
        connection.execute("STOP QUERY 'hot'")
        with pytest.raises(psycopg.Error, match="exists already"):
            connection.execute(HOT)
    node.kill()
    before = lines(out)
    node = Node(tmp_path)
    with connect(node) as connection:
        assert connection.execute("DESCRIBE events").fetchall() == table
        assert [row[0] for row in connection.execute("SHOW VIEWS").fetchall()] == ["bids"]
        # What a query began with is its own.
        connection.execute("DROP VIEW bids")
        connection.execute("DROP TABLE hot")
        assert states(node)["hot"]["state"] == "cancelled"
        time.sleep(1)
        assert lines(out) == before
        connection.execute("RESUME QUERY 'hot'")
        deadline = time.monotonic() + 60
        while "hot" in states(node):
            assert time.monotonic() < deadline
            time.sleep(0.2)
    assert len(lines(out)) > len(before) and len(set(lines(out))) == len(lines(out))
    assert not list((tmp_path / "data/streams/queries").iterdir()), "the records of a query go with it"
    assert node.stop() == 0


def test_queries_are_stopped_resumed_and_dropped_by_name_from_the_command_line(tmp_path):
    node = Node(tmp_path)
    url = f"http://127.0.0.1:{node.ports['http']}"

    def savanna(*words):
        return subprocess.run([SAVANNA, "queries", *words, "--url", url], capture_output=True, text=True, timeout=60)

    def listed():
        ran = savanna("list", "--output", "json")
        assert ran.returncode == 0, ran.stderr
        return {query["name"]: query for query in json.loads(ran.stdout)["queries"]}

    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, hot(tmp_path / "out"), "SET 'query.name' = 'hot_items'", HOT]:
            connection.execute(statement)
    assert listed()["hot_items"]["state"] == "running"
    assert savanna("resume", "hot_items").returncode != 0, "it runs"
    assert savanna("stop", "hot_items").stdout == "query hot_items stops\n"
    deadline = time.monotonic() + 30
    while listed()["hot_items"]["state"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert savanna("resume", "hot_items").stdout == "query hot_items goes on\n"
    shown = json.loads(savanna("show", "hot_items", "--output", "json").stdout)
    assert (shown["name"], shown["state"]) == ("hot_items", "running")
    assert savanna("drop", "hot_items").stdout == "query hot_items is gone\n"
    assert "hot_items" not in listed()
    unknown = savanna("resume", "hot_items")
    assert unknown.returncode != 0 and "hot_items does not exist" in unknown.stderr, unknown
    assert node.stop() == 0


def test_a_query_that_is_dropped_or_whose_rows_are_gone_does_not_go_on(tmp_path):
    out, other = tmp_path / "out", tmp_path / "other"
    node = Node(tmp_path)
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, hot(out), named("hot"), HOT, hot(other).replace("TABLE hot", "TABLE other"), named("other"), HOT.replace("INTO hot", "INTO other")]:
            connection.execute(statement)
        connection.execute("DROP QUERY 'other'")
        deadline = time.monotonic() + 60
        while len(lines(out)) == 0:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1)
    node.kill()
    shutil.rmtree(out)
    node = Node(tmp_path)
    now = states(node)
    assert "other" not in now and now["hot"]["state"] == "failed", now
    assert "what it wrote was removed or moved away" in node.log.read_text()
    assert node.stop() == 0
    assert not out.exists() or lines(out) == []


def followed(path, name="log"):
    return f"""CREATE TABLE {name} (at TIMESTAMP(3), n BIGINT, WATERMARK FOR at AS at - INTERVAL '1' SECOND)
        WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv', 'follow' = 'true')"""


def until(what, deadline=60):
    end = time.monotonic() + deadline
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def append(path, *numbers):
    with open(path, "a") as file:
        for number in numbers:
            file.write(f"2026-01-01 00:{number // 60:02}:{number % 60:02},{number}\n")


def test_a_file_that_had_its_header_alone_when_an_epoch_ended_does_not_keep_a_query_from_going_on(tmp_path):
    early, late, out = tmp_path / "early.csv", tmp_path / "late.csv", tmp_path / "out"
    for path in (early, late):
        path.write_text("at,n\n")
    append(early, 1, 2, 3)
    node = Node(tmp_path)
    with connect(node) as connection:
        for statement in [
            followed(early, "early"), followed(late, "late"), "CREATE VIEW both_files AS SELECT at, n FROM early UNION ALL SELECT at, n FROM late",
            f"CREATE TABLE counted (at TIMESTAMP(3), n BIGINT) WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'csv', 'csv.header' = 'false')",
            named("counted"), """INSERT INTO counted SELECT window_start, count(*)
                FROM TABLE(TUMBLE(TABLE both_files, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end""",
        ]:
            connection.execute(statement)
    time.sleep(1.5)
    node.kill()
    append(late, 4, 5)
    node = Node(tmp_path)
    try:
        assert states(node)["counted"]["state"] == "running", node.log.read_text()
        append(early, 100)
        append(late, 100)
        until(lambda: lines(out))
        assert [line.split(",")[1] for line in lines(out)] == ["5"]
        assert node.stop() == 0
    finally:
        node.kill()


def passing(node, log, out):
    """A query that passes on the even numbers of a file."""
    with connect(node) as connection:
        for statement in [
            followed(log), f"CREATE TABLE passed (n BIGINT) WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'csv', 'csv.header' = 'false')",
            named("passed"), "INSERT INTO passed SELECT n FROM log WHERE n % 2 = 0",
        ]:
            connection.execute(statement)


def test_a_followed_file_that_was_replaced_meanwhile_is_not_read_on(tmp_path):
    log, out = tmp_path / "log.csv", tmp_path / "out"
    log.write_text("at,n\n")
    append(log, 2, 4)
    node = Node(tmp_path)
    passing(node, log, out)
    until(lambda: lines(out) == ["2", "4"])
    time.sleep(0.5)
    node.kill()
    (tmp_path / "next.csv").write_text("at,n\n")
    append(tmp_path / "next.csv", *range(10, 20))
    (tmp_path / "next.csv").rename(log)
    node = Node(tmp_path)
    try:
        until(lambda: states(node)["passed"]["state"] == "failed")
        assert lines(out) == ["2", "4"]
        assert "the file was replaced" in json.dumps(states(node)["passed"]) + node.log.read_text()
        assert node.stop() == 0
    finally:
        node.kill()


def test_parts_that_were_moved_away_are_not_written_again(tmp_path):
    log, out, moved = tmp_path / "log.csv", tmp_path / "out", tmp_path / "moved"
    log.write_text("at,n\n")
    moved.mkdir()
    append(log, 1, 3)
    node = Node(tmp_path)
    passing(node, log, out)
    until(lambda: list(out.glob("_epoch-*")))
    append(log, 4, 6)
    until(lambda: lines(out) == ["4", "6"])
    time.sleep(0.5)
    node.kill()
    for part in out.glob("part-*"):
        part.rename(moved / part.name)
    node = Node(tmp_path)
    try:
        append(log, 8)
        until(lambda: "8" in lines(out) or states(node)["passed"]["state"] == "failed")
        assert sorted(lines(out) + lines(moved)) == ["4", "6", "8"]
        assert node.stop() == 0
    finally:
        node.kill()


def test_a_query_that_cannot_be_written_once_is_refused_under_a_name_and_ends_with_its_process_without_one(tmp_path):
    node = Node(tmp_path)
    count = "INSERT INTO nowhere SELECT auction FROM bids"
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, "CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole')"]:
            connection.execute(statement)
        connection.execute(count)
        connection.execute("SET 'query.name' = 'kept'")
        with pytest.raises(psycopg.Error, match="query kept cannot outlive its process: its sink does not store which epochs it holds"):
            connection.execute(count)
    node.kill()
    node = Node(tmp_path)
    assert states(node) == {}
    assert node.stop() == 0


def records(tmp_path):
    """The records of epochs of the only query, oldest first."""
    return sorted(path for path in (tmp_path / "data/streams").rglob("segment-*") if "catalog" not in path.parts)


def test_a_query_whose_records_are_damaged_says_where_and_the_others_go_on(tmp_path):
    node = Node(tmp_path)
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS, hot(tmp_path / "out"), named("hot"), HOT]:
            connection.execute(statement)
    until(lambda: lines(tmp_path / "out"))
    node.kill()
    log = records(tmp_path)[0]
    text = log.read_bytes()
    # Within one of the first records, behind which there are others.
    place = len(text.rstrip(b"\0")) // 4
    log.write_bytes(text[:place] + bytes([text[place] ^ 0xFF]) + text[place + 1:])
    node = Node(tmp_path)
    try:
        now = states(node)["hot"]
        assert now["state"] == "failed" and log.name in now["error"] and "byte" in now["error"], now
        with connect(node) as connection:
            other = hot(tmp_path / "other").replace("TABLE hot", "TABLE other")
            for statement in [other, named("other"), HOT.replace("INTO hot", "INTO other")]:
                connection.execute(statement)
        until(lambda: lines(tmp_path / "other"))
        log.write_bytes(text)
        with connect(node) as connection:
            connection.execute("RESUME QUERY 'hot'")
        until(lambda: "hot" not in states(node))
        assert len(set(lines(tmp_path / "out"))) == len(lines(tmp_path / "out")) > 1000
    finally:
        node.kill()


def test_a_damaged_catalog_is_said_and_the_other_services_run(tmp_path):
    node = Node(tmp_path)
    with connect(node) as connection:
        for statement in [NEXMARK, BIDS]:
            connection.execute(statement)
    node.kill()
    segments = sorted((tmp_path / "data/streams/catalog").glob("segment-*"))
    text = segments[0].read_bytes()
    place = text.index(b"CREATE TABLE events")
    segments[0].write_bytes(text[:place] + b"X" + text[place + 1:])
    node = Node(tmp_path)
    try:
        with pytest.raises(psycopg.Error, match="read the catalog of streams from .*segment-"):
            connect(node)
        with psycopg.connect(host="127.0.0.1", port=node.ports["tenants"], user="postgres", dbname="postgres", autocommit=True) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        node.stop()
