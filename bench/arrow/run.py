"""Windows over ready-made Arrow batches: the whole engine beside LaminarDB, DuckDB and the engine's parts.

    python bench/arrow/run.py [--rounds 7] [--events 10000000]

All read the same 10 million rows of 4 numeric columns; CPU time is that of each process while it works, its preparation left out.
The systems take turns; printed is a JSON object for each case and system with the median of million events per CPU-second and
the interval from the second-lowest to the second-highest. Needs `pip install laminardb==0.17.0 numpy`.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH_ROWS, KEYS, EVENTS_PER_MS = 8192, 1_000, 100
AGGREGATES = {
    "count": "count(*) AS c",
    "count, sum, min, max, avg": "count(*) AS c, sum(a) AS s, min(a) AS lo, max(a) AS hi, avg(a) AS mean",
}
# The windows in the words of DuckDB and of LaminarDB, whose HOPPING gave no rows.
WINDOWS = {
    "tumble 10 s": ("(SELECT *, t // 10000 AS w FROM events)", "TUMBLE(t, 10000)"),
    "hop 10 s by 2 s": ("(SELECT *, unnest(range(t // 2000 - 4, t // 2000 + 1)) AS w FROM events)", None),
}
CASES = [
    (f"{window}, {names}", source, function, aggregates)
    for window, (source, function) in WINDOWS.items()
    for names, aggregates in AGGREGATES.items()
]


def batches(events):
    """The same rows as the benchmark in engines/streams/benches/windows.rs makes."""
    import numpy
    import pyarrow

    row = numpy.arange(events, dtype=numpy.uint64)
    x = (row + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> numpy.uint64(shift))) * numpy.uint64(factor)
    x = x ^ (x >> numpy.uint64(31))
    low, high = x & numpy.uint64(0xFFFFFFFF), x >> numpy.uint64(32)
    below = lambda bits, bound: ((bits * numpy.uint64(bound)) >> numpy.uint64(32)).astype(numpy.int64)
    table = pyarrow.table({
        "t": (row // numpy.uint64(EVENTS_PER_MS)).astype(numpy.int64),
        "k": below(high, KEYS),
        "a": below(low, 1_000_000),
        "b": (x % numpy.uint64(100)).astype(numpy.int64),
    })
    return table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def measure(system, events):
    """In a process of its own: prints an object per case."""
    rows = batches(events)

    def report(case, work):
        before = time.process_time()
        checksum = work()
        figures = {"system": system, "case": case, "events": events, "cpu_seconds": time.process_time() - before,
                   "checksum": checksum}
        print(json.dumps(figures), flush=True)

    {"DuckDB": duckdb_cases, "LaminarDB": laminardb_cases}[system](rows, report)


def duckdb_cases(rows, report):
    import duckdb
    import pyarrow

    connection = duckdb.connect(config={"threads": 1})
    arrow_table = pyarrow.Table.from_batches(rows)
    connection.sql("CREATE TABLE events AS SELECT * FROM arrow_table")
    for case, source, _, aggregates in CASES:
        query = f"CREATE OR REPLACE TEMP TABLE result AS SELECT w, k, {aggregates} FROM {source} GROUP BY w, k"
        report(case, lambda: connection.execute(query) and connection.execute("SELECT count(*) FROM result").fetchone()[0])


def laminardb_cases(rows, report):
    """Rows are pushed as fast as it takes them. What it has not processed when the watermark passes it drops, so its watermark
    is declared far behind, and a last row far ahead closes the windows."""
    import pyarrow

    import laminardb

    for case, _, function, aggregates in filter(lambda case: case[2], CASES):
        with laminardb.open(":memory:") as connection:
            connection.execute(
                "CREATE SOURCE events (t BIGINT, k BIGINT, a BIGINT, b BIGINT, WATERMARK FOR t AS t - INTERVAL '1000' SECOND)"
            )
            connection.execute(f"CREATE STREAM result AS SELECT k, {aggregates} FROM events GROUP BY k, {function}")
            results = connection.subscribe_stream("result")
            connection.start()

            def work():
                counted, waited = 0, 0
                for number, batch in enumerate(rows):
                    connection.insert("events", batch)
                    while number % 50 == 0 and (result := results.try_next()) is not None:
                        counted += sum(result.arrow().column("c").to_pylist())
                last = pyarrow.RecordBatch.from_pydict({"t": [10_000_000], "k": [0], "a": [0], "b": [0]}, rows[0].schema)
                connection.insert("events", last)
                while waited < 50:
                    time.sleep(0.02)
                    result = results.try_next()
                    waited = 0 if result is not None else waited + 1
                    counted += sum(result.arrow().column("c").to_pylist()) if result is not None else 0
                return counted

            report(case, work)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--events", type=int, default=10_000_000)
    arguments.add_argument("--measure")
    options = arguments.parse_args()
    if options.measure:
        measure(options.measure, options.events)
        return
    build = ["cargo", "bench", "--locked", "-p", "savanna-streams", "--bench", "windows"]
    subprocess.run([*build, "--no-run"], check=True, cwd=ROOT)
    figures = {}
    for _ in range(options.rounds):
        commands = [[*build, "-q", "--", "1", str(options.events)]]
        commands += [[sys.executable, __file__, "--events", str(options.events), "--measure", s] for s in ("DuckDB", "LaminarDB")]
        for command in commands:
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
            for line in filter(lambda line: line.startswith("{"), done.stdout.splitlines()):
                run = json.loads(line)
                rate = run["events"] / run["cpu_seconds"] / 1e6
                figures.setdefault((run["case"], run["system"]), []).append(rate)
    for (case, system), rates in figures.items():
        rates.sort()
        low, high = (rates[1], rates[-2]) if len(rates) > 3 else (rates[0], rates[-1])
        print(json.dumps({"case": case, "system": system, "median": statistics.median(rates), "low": low, "high": high}))


if __name__ == "__main__":
    main()
