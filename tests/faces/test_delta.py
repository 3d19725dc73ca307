"""Tables of Delta Lake that queries write: other readers find each row once, whoever is killed, and others may write and tend them meanwhile."""

import datetime
import random
import subprocess
import time

import psycopg
import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake

from node import SAVANNA, Node
from test_buckets import start, store  # noqa: F401 (fixtures)
from test_survival import BIDS, EVENTS, HOT, NEXMARK, connect, hot, lines, named, states, until

SEED = random.randrange(1 << 32)
FEWER = NEXMARK.replace(str(EVENTS), "600000")
SCHEMA = pyarrow.schema([("at", pyarrow.timestamp("us", "UTC")), ("auction", pyarrow.int64()), ("bids", pyarrow.int64())])


def into(path):
    return f"CREATE TABLE hot (at TIMESTAMP(3), auction BIGINT, bids BIGINT) WITH ('connector' = 'delta', 'path' = '{path}')"


def rows(path, **options):
    """What a reader of Delta finds, sorted."""
    found = DeltaTable(str(path), **options).to_pyarrow_table().to_pylist()
    return sorted((row["at"].replace(tzinfo=None), row["auction"], row["bids"]) for row in found)


def expected(tmp_path, nexmark=FEWER):
    """The same by a query that nobody disturbs."""
    out = tmp_path / "expected"
    told = ";\n".join([nexmark.replace("'rate-limited' = 'true'", "'rate-limited' = 'false'"), BIDS, hot(out), HOT])
    subprocess.run([SAVANNA, "sql", "-c", told], check=True, capture_output=True, timeout=120)
    cells = [line.split(",") for line in lines(out)]
    return sorted((datetime.datetime.fromisoformat(at.rstrip("Z")), int(auction), int(bids)) for at, auction, bids in cells)


def begin(node, path, *settings):
    with connect(node) as connection:
        for statement in [FEWER, BIDS, into(path), *settings, named("hot"), HOT]:
            connection.execute(statement)


def killed(start_node, path):
    """Starts the query and kills its node again and again; then lets it come to its end."""
    dice, kills = random.Random(SEED), 0
    node = start_node()
    try:
        begin(node, path)
        for _ in range(4):
            time.sleep(dice.uniform(0.2, 0.8))
            kills += "hot" in states(node)
            node.kill()
            node = start_node()
        until(lambda: "hot" not in states(node), deadline=120)
        assert node.stop() == 0, node.log.read_text()
    finally:
        node.kill()
    assert kills >= 2, f"seed {SEED}: it was over too soon"


def test_windows_are_in_a_directory_once_however_often_the_node_is_killed(tmp_path):
    killed(lambda: Node(tmp_path), tmp_path / "hot")
    wanted = expected(tmp_path)
    assert len(wanted) > 1000
    assert rows(tmp_path / "hot") == wanted, f"seed {SEED}"


@pytest.mark.long
def test_windows_are_in_a_bucket_once_however_often_the_node_is_killed(tmp_path, store, start):  # noqa: F811
    killed(start, "s3://bucket/out/hot")
    assert rows("s3://bucket/out/hot", storage_options=store.environment) == expected(tmp_path), f"seed {SEED}"


@pytest.mark.parametrize("point", ["delta-part", "delta-commit"])
def test_an_epoch_counts_once_when_the_node_ends_around_its_commit(tmp_path, point):
    node = Node(tmp_path, {"STREAMS_CRASH_AT": f"{point}:3"})
    try:
        begin(node, tmp_path / "hot")
        assert node.process.wait(60) != 0
        node = Node(tmp_path)
        until(lambda: "hot" not in states(node), deadline=120)
        assert node.stop() == 0, node.log.read_text()
    finally:
        node.kill()
    assert rows(tmp_path / "hot") == expected(tmp_path)


def test_others_write_and_tend_a_table_meanwhile(tmp_path):
    path = tmp_path / "hot"
    # It is there already, with a column more.
    more = SCHEMA.append(pyarrow.field("note", pyarrow.string()))
    row = lambda number: {"at": datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc), "auction": number, "bids": 0, "note": "mine"}
    write_deltalake(str(path), pyarrow.Table.from_pylist([row(0)], more))
    node, dice = Node(tmp_path), random.Random(SEED)
    try:
        begin(node, path)
        for number in range(1, 9):
            time.sleep(dice.uniform(0.1, 0.4))
            write_deltalake(str(path), pyarrow.Table.from_pylist([row(number)], more), mode="append")
            if number % 3 == 0:
                DeltaTable(str(path)).optimize.compact()
                DeltaTable(str(path)).create_checkpoint()
            if number == 5:
                node.kill()
                node = Node(tmp_path)
        until(lambda: "hot" not in states(node), deadline=120)
        assert node.stop() == 0, node.log.read_text()
    finally:
        node.kill()
    mine = [(datetime.datetime(2020, 1, 1), number, 0) for number in range(9)]
    assert rows(path) == sorted(mine + expected(tmp_path)), f"seed {SEED}"
    assert len(DeltaTable(str(path)).to_pyarrow_table(filters=[("note", "=", "mine")])) == 9


def test_a_table_has_the_columns_that_were_declared_whatever_the_first_query_gives(tmp_path):
    given = tmp_path / "rows.csv"
    given.write_text("1,7\n2,\n")
    node = Node(tmp_path)
    try:
        with connect(node) as connection:
            connection.execute(f"CREATE TABLE rows (a BIGINT, b BIGINT) WITH ('connector' = 'file', 'path' = '{given}', 'format' = 'csv', 'csv.header' = 'false')")
            connection.execute(f"CREATE TABLE out (a BIGINT, b BIGINT, c VARCHAR, d BIGINT NOT NULL) WITH ('connector' = 'delta', 'path' = '{tmp_path}/out')")
            for number, select in enumerate(["a, 0, 'x', 1", "a, b, NULL, 2"]):
                connection.execute(named(f"q{number}"))
                connection.execute(f"INSERT INTO out SELECT {select} FROM rows")
                until(lambda number=number: f"q{number}" not in states(node))
            connection.execute(named("q2"))
            connection.execute("INSERT INTO out (d, a) SELECT 3, a FROM rows")
            until(lambda: "q2" not in states(node))
        assert node.stop() == 0, node.log.read_text()
    finally:
        node.kill()
    table = DeltaTable(str(tmp_path / "out"))
    assert [(field.name, field.nullable) for field in table.schema().fields] == [("a", True), ("b", True), ("c", True), ("d", False)]
    found = sorted((tuple(row.values()) for row in table.to_pyarrow_table().to_pylist()), key=lambda row: (row[3], row[0]))
    assert found == [(1, 0, "x", 1), (2, 0, "x", 1), (1, 7, None, 2), (2, None, None, 2), (1, None, None, 3), (2, None, None, 3)]


def test_tables_that_do_not_fit_are_refused(tmp_path):
    other = pyarrow.schema([("at", pyarrow.timestamp("us", "UTC")), ("auction", pyarrow.string()), ("bids", pyarrow.int64())])
    for name, schema, options, wrong in [
        ("types", other, {}, "its column auction is string, and long is written"),
        ("missing", pyarrow.schema([("at", pyarrow.timestamp("us", "UTC"))]), {}, "it has no column auction"),
        ("parts", SCHEMA, {"partition_by": ["auction"]}, "it is partitioned by auction"),
        ("features", SCHEMA, {"configuration": {"delta.enableDeletionVectors": "true"}}, "version 7 of the protocol"),
    ]:
        DeltaTable.create(str(tmp_path / name), schema, **options)
        node = Node(tmp_path)
        try:
            with connect(node) as connection:
                connection.execute(FEWER)
                connection.execute(BIDS)
                connection.execute(into(tmp_path / name))
                with pytest.raises(psycopg.Error, match=wrong):
                    connection.execute(HOT)
                for statement in ("DROP TABLE hot", "DROP VIEW bids", "DROP TABLE events"):
                    connection.execute(statement)
            assert node.stop() == 0
        finally:
            node.kill()
