"""Random filters and windows over random out-of-order rows in several files: the stream equals the batch.

A row is late for a window when the window ended at or before the row's own partition's running watermark (largest event
time so far in that partition, less the delay). DuckDB computes that rule with a window function over the row numbers.
"""

import os
import random

import pyarrow
import pyarrow.parquet
import pytest

from conftest import assert_same_rows

CASES = int(os.environ.get("DIFFERENTIAL_CASES", "24"))
BASE_MS = 1_700_000_000_000


def write_rows(rng, directory, files, rows_per_file):
    """Rows that drift forward in time with random disorder; some values are NULL."""
    directory.mkdir()
    for number in range(files):
        clock = BASE_MS
        columns = {"ts": [], "k": [], "name": [], "v": [], "x": []}
        for _ in range(rows_per_file):
            clock += rng.choice([0, 1, 3, 10, 40])
            columns["ts"].append(clock - rng.choice([0, 0, 0, 5, 200, 3_000]))
            columns["k"].append(rng.choice([None, *range(12)]))
            columns["name"].append(rng.choice(["a", "b", "ä", "", None]))
            columns["v"].append(rng.choice([None, rng.randint(-1000, 1000)]))
            columns["x"].append(rng.random() * 100)
        table = pyarrow.table({
            "ts": pyarrow.array(columns["ts"], pyarrow.timestamp("ms")),
            "k": pyarrow.array(columns["k"], pyarrow.int64()),
            "name": pyarrow.array(columns["name"], pyarrow.string()),
            "v": pyarrow.array(columns["v"], pyarrow.int64()),
            "x": pyarrow.array(columns["x"], pyarrow.float64()),
        })
        pyarrow.parquet.write_table(table, directory / f"part-{number}.parquet")


AGGREGATES = [
    ("count(*)", "c", "BIGINT"),
    ("count(v)", "cv", "BIGINT"),
    ("sum(v)", "s", "BIGINT"),
    ("min(v)", "mn", "BIGINT"),
    ("max(name)", "mx", "VARCHAR"),
    ("avg(x)", "a", "DOUBLE"),
    ("count(DISTINCT v)", "d", "BIGINT"),
    ("count(*) FILTER (WHERE v > 0)", "f", "BIGINT"),
    ("sum(x) FILTER (WHERE k <> 3)", "fx", "DOUBLE"),
]
FILTERS = ["", "WHERE v > -500", "WHERE k IS NOT NULL AND k <> 5", "WHERE name LIKE 'a%' OR x < 30", "WHERE upper(name) = 'B'"]
KEYS = [[], ["k"], ["name"], ["k", "name"]]


@pytest.mark.parametrize("case", range(CASES))
def test_a_random_windowed_query_equals_the_batch(case, duck, stream, tmp_path):
    rng = random.Random(case)
    files = rng.choice([1, 2, 5])
    parallelism = rng.choice([1, 2, 3])
    write_rows(rng, tmp_path / "in", files, rng.choice([10, 500, 4_000]))
    size = rng.choice([50, 1_000, 10_000])
    slide = rng.choice([size, size, size // 2, size // 5, size // 5 * 2])
    delay = rng.choice([0, 100, 2_000, 10_000])
    keys = rng.choice(KEYS)
    chosen = rng.sample(AGGREGATES, rng.randint(1, 4))
    where = rng.choice(FILTERS)
    epoch_events = rng.choice([7, 100, 3_000, 1_000_000])

    key_list = "".join(f"{k}, " for k in keys)
    aggregates = ", ".join(f"{sql} AS {name}" for sql, name, _ in chosen)
    window = (
        f"TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '{size / 1000}' SECOND)"
        if slide == size
        else f"HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '{slide / 1000}' SECOND, INTERVAL '{size / 1000}' SECOND)"
    )
    types = {"k": "BIGINT", "name": "VARCHAR"}
    out_columns = "".join(f"{k} {types[k]}, " for k in keys) + ", ".join(f"{n} {t}" for _, n, t in chosen)
    stream(f"""
        SET 'parallelism' = '{parallelism}';
        SET 'group-size' = '{rng.choice([1, 2, 4])}';
        SET 'epoch-events' = '{epoch_events}';
        CREATE TABLE t (ts TIMESTAMP(3), k BIGINT, name VARCHAR, v BIGINT, x DOUBLE,
            WATERMARK FOR ts AS ts - INTERVAL '{delay / 1000}' SECOND)
            WITH ('connector' = 'file', 'path' = '{tmp_path}/in', 'format' = 'parquet');
        CREATE TABLE result (w TIMESTAMP(3), {out_columns})
            WITH ('connector' = 'file', 'path' = '{tmp_path}/out', 'format' = 'parquet');
        INSERT INTO result SELECT window_start, {key_list}{aggregates} FROM TABLE({window}) {where}
            GROUP BY window_start, window_end{''.join(', ' + k for k in keys)}
    """)

    # Files are dealt round-robin in the order of their names; a partition reads its files one after the other.
    partitions = min(parallelism, files)
    reads = " UNION ALL ".join(
        f"SELECT *, {n % partitions} AS part, {n} AS file, file_row_number AS row"
        f" FROM read_parquet('{tmp_path}/in/part-{n}.parquet', file_row_number = true)"
        for n in range(files)
    )
    duck.sql(f"""
        CREATE TABLE placed AS
        SELECT *, max(epoch_ms(ts)) OVER (PARTITION BY part ORDER BY file, row) - {delay} AS watermark FROM ({reads});
        CREATE TABLE windowed AS
        SELECT make_timestamp_ms(start) AS w, * FROM (
            SELECT *, unnest(range(
                (epoch_ms(ts) // {slide}) * {slide} - ({size} // {slide} + 1) * {slide},
                epoch_ms(ts) + 1, {slide})) AS start FROM placed)
        WHERE start <= epoch_ms(ts) AND epoch_ms(ts) < start + {size} AND start + {size} > watermark;
    """)
    expected = f"SELECT w, {key_list}{aggregates} FROM windowed {where} GROUP BY w{''.join(', ' + k for k in keys)}"
    context = f"case {case}: {window} delay {delay} parallelism {parallelism} files {files} epoch {epoch_events} {where}"
    assert_same_rows(duck, f"SELECT * FROM read_parquet('{tmp_path}/out/*.parquet')", expected, context)
