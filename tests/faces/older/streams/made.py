"""What is in the directories of streams that this folder keeps, one for each form that records, snapshots, tables of look-ups, views and savepoints have had.

    python tests/faces/older/streams/made.py NAME       # with the binary of today (or $BINARY): NAME-killed.tar.gz, NAME-stopped.tar.gz

A release that changes a form adds its own two; those that are here stay as they are. All paths are relative: a node is started in the directory.
"""

import os
import pathlib
import sys
import tarfile
import tempfile
import time

import psycopg

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from node import SAVANNA, Node  # noqa: E402 # found by the line above

KEYS, ROWS = 7, 2_000
NAMES, OTHER_NAMES = [{key: f"{word} {key}" for key in range(KEYS)} for word in ("name", "another")]
SOURCE = """CREATE TABLE rows (at TIMESTAMP(3), k BIGINT, amount BIGINT, WATERMARK FOR at AS at - INTERVAL '1' SECOND)
    WITH ('connector' = 'file', 'path' = 'rows.csv', 'format' = 'csv', 'csv.header' = 'false', 'follow' = 'true')"""
LOOKED_UP = "CREATE TABLE names (k BIGINT, name VARCHAR) WITH ('connector' = 'file', 'path' = 'names.csv', 'format' = 'csv', 'csv.header' = 'false')"
TIMED = "CREATE VIEW timed AS SELECT k, amount, PROCTIME() AS p FROM rows"
COUNT = "SELECT k, min(amount) AS lowest, count(*) AS n FROM TABLE({}) GROUP BY window_start, window_end, k"
WINDOWS = COUNT.format("TUMBLE(TABLE rows, DESCRIPTOR(at), INTERVAL '1' SECOND)")
SESSIONS = COUNT.format("SESSION(TABLE rows PARTITION BY k, DESCRIPTOR(at), INTERVAL '0.5' SECOND)")
# Each query by its name: what it has that outlives a process beside its records, and its columns.
QUERIES = {
    "passed": ("k BIGINT, amount BIGINT", "SELECT k, amount FROM rows WHERE mod(amount, 2) = 0", "none"),
    "named": ("amount BIGINT, name VARCHAR", "SELECT t.amount, n.name FROM timed t JOIN names FOR SYSTEM_TIME AS OF t.p AS n ON t.k = n.k", "none"),
    "counted": ("k BIGINT, lowest BIGINT, n BIGINT", WINDOWS, "100ms"),
    "sessions": ("k BIGINT, lowest BIGINT, n BIGINT", SESSIONS, "100ms"),
    "saved": ("k BIGINT, lowest BIGINT, n BIGINT", SESSIONS, "100ms"),
}


def moment(row):
    """When a row was, in ms: rows come every 10 ms, and after each 500 of them there is a pause."""
    return row * 10 + row // 500 * 2_000


def write_rows(directory, begin, end):
    """Appends rows to the file that is followed."""
    def line(row):
        at = moment(row)
        return f"2026-01-01 00:{at // 60_000:02}:{at // 1_000 % 60:02}.{at % 1_000:03},{row % KEYS},{row}\n"

    with open(directory / "rows.csv", "a") as rows:
        rows.write("".join(map(line, range(begin, end))))


def write_names(directory, names):
    (directory / "names.csv").write_text("".join(f"{key},{name}\n" for key, name in names.items()))


def windows(count):
    """What of the first rows is in windows that are closed: key, first amount, rows."""
    found = {}
    for row in range(count):
        found.setdefault((moment(row) // 1_000, row % KEYS), []).append(row)
    closed = moment(count - 1) - 1_000
    return sorted((key, rows[0], len(rows)) for (second, key), rows in found.items() if (second + 1) * 1_000 <= closed)


def sessions(count):
    """The same of sessions."""
    found = []
    for key in range(KEYS):
        for row in range(key, count, KEYS):
            if row == key or moment(row) - moment(found[-1][-1]) >= 500:
                found.append([])
            found[-1].append(row)
    closed = moment(count - 1) - 1_000
    return sorted((rows[0] % KEYS, rows[0], len(rows)) for rows in found if moment(rows[-1]) + 500 <= closed)


def expected(count):
    """What each query has written, when it has read so many rows."""
    return {
        "passed": sorted((row % KEYS, row) for row in range(0, count, 2)),
        "named": sorted((row, NAMES[row % KEYS]) for row in range(count)),
        "counted": windows(count), "sessions": sessions(count), "saved": sessions(count),
    }


def written(directory, name):
    cells = [line.split(",") for part in (directory / name).glob("part-*") for line in part.read_text().splitlines()]
    return sorted(tuple(int(cell) if cell.isdigit() else cell for cell in line) for line in cells)


def connect(node):
    return psycopg.connect(host="127.0.0.1", port=node.ports["pgwire"], user="postgres", dbname="savanna_streams", autocommit=True)


def states(node):
    with connect(node) as connection:
        shown = connection.execute("SHOW QUERIES")
        names = [column.name for column in shown.description]
        return {row["name"]: row for row in (dict(zip(names, row)) for row in shown.fetchall())}


def until(is_so, wrong):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, wrong()
        time.sleep(0.1)


def wait(node, directory, count, names):
    """Until these queries and the views have what so many rows give, each once."""
    wanted = expected(count)
    for name in names:
        until(lambda: written(directory, name) == wanted[name], lambda: (name, states(node).get(name), len(written(directory, name)), len(wanted[name])))
    latest = {key: (key, first, n) for key, first, n in sorted(wanted["counted"], key=lambda row: row[1])}
    for view, rows in [("closed", wanted["counted"]), ("latest", sorted(latest.values()))]:
        def held():
            with connect(node) as connection:
                return sorted(connection.execute(f"SELECT k, lowest, n FROM {view}").fetchall())

        until(lambda: held() == rows, lambda: (view, states(node), held()))


def start(directory):
    return Node(directory, files=directory, cwd=directory)


def begin(node, name):
    columns, select, interval = QUERIES[name]
    with connect(node) as connection:
        connection.execute(f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'file', 'path' = '{name}', 'format' = 'csv', 'csv.header' = 'false')")
        connection.execute(f"SET 'snapshot-interval' = '{interval}'")
        connection.execute(f"SET 'query.name' = '{name}'")
        connection.execute(f"INSERT INTO {name} {select}")


def fill(node, directory):
    with connect(node) as connection:
        for statement in [SOURCE, LOOKED_UP, TIMED]:
            connection.execute(statement)
        connection.execute(f"CREATE MATERIALIZED VIEW closed AS {WINDOWS}")
        connection.execute(f"CREATE MATERIALIZED VIEW latest WITH ('key' = 'k') AS {WINDOWS}")
    for name in QUERIES:
        begin(node, name)
    for end in range(100, ROWS + 1, 100):
        write_rows(directory, end - 100, end)
        time.sleep(0.1)
    wait(node, directory, ROWS, QUERIES)
    for name, (_, _, interval) in QUERIES.items():
        until(lambda: interval == "none" or states(node)[name]["snapshot"].startswith("epoch"), lambda: states(node)[name])
    with connect(node) as connection:
        connection.execute("STOP QUERY 'saved' WITH SAVEPOINT 'savepoint'")
        connection.execute("DROP QUERY 'saved'")


def check(node, directory, before, count):
    """What former releases have written is there, and goes on when there are more rows."""
    names = [name for name in QUERIES if name != "saved" or name in states(node)]
    wait(node, directory, before, names)
    if "saved" not in names:
        with connect(node) as connection:
            connection.execute("RESUME QUERY FROM SAVEPOINT 'savepoint'")
    write_rows(directory, before, count)
    wait(node, directory, count, QUERIES)
    assert {row["state"] for row in states(node).values()} == {"running"}, states(node)


def make(name):
    for end in ("killed", "stopped"):
        with tempfile.TemporaryDirectory() as scratch:
            directory = pathlib.Path(scratch)
            directory.joinpath("rows.csv").touch()
            write_names(directory, NAMES)
            node = start(directory)
            try:
                fill(node, directory)
            finally:
                if end == "killed":
                    node.kill()
                else:
                    assert node.stop() == 0
            with tarfile.open(HERE / f"{name}-{end}.tar.gz", "w:gz") as archive:
                for part in ("data", "rows.csv", "names.csv", "savepoint", *QUERIES):
                    archive.add(directory / part, part)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not os.access(SAVANNA, os.X_OK):
        sys.exit(f"usage: {sys.argv[0]} NAME, with a binary at {SAVANNA}")
    make(sys.argv[1])
