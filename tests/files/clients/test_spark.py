"""Spark writes and reads Parquet."""

import io
import json
import os
import pathlib
import subprocess

import hdfs_native
import pyarrow
import pyarrow.parquet
import pytest

from node import TARGET

PYTHON = TARGET / "suites-files" / "spark" / "bin" / "python"
ROWS = 100_000


def parquet(client, path):
    """All rows of a directory that Spark wrote, as another reader sees them."""
    tables = []
    for status in client.list_status(path, recursive=True):
        if status.path.endswith(".parquet"):
            with client.read(status.path) as file:
                tables.append(pyarrow.parquet.read_table(io.BytesIO(file.read())))
    return pyarrow.concat_tables(tables)


@pytest.mark.long
def test_spark_writes_and_reads_parquet(server, tmp_path):
    assert PYTHON.exists(), "tools/install suites has it"
    client = hdfs_native.Client(server.url)
    table = pyarrow.table({"id": range(ROWS), "part": [id % 7 for id in range(ROWS)], "name": [f"number {id}" for id in range(ROWS)]})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer, row_group_size=10_000)
    with client.create("/of-pyarrow/one.parquet", hdfs_native.WriteOptions(block_size=1 << 20)) as file:
        file.write(buffer.getvalue())
    job = pathlib.Path(__file__).parent / "spark_job.py"
    environment = {**os.environ, "PYSPARK_PYTHON": str(PYTHON), "SPARK_LOCAL_DIRS": str(tmp_path / "spark")}
    environment.pop("SPARK_HOME", None)
    words = [PYTHON, job, server.url, str(ROWS)]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=1_800, check=False)
    assert done.returncode == 0, done.stderr[-20_000:]
    said = json.loads(done.stdout.splitlines()[-1])

    def of(rows):
        return [[rows, rows * (rows - 1) // 2, rows, 6], len(range(3, rows, 7))]

    assert said["plain"] == said["parts"] == said["of pyarrow"] == of(ROWS)
    (rows, total, names, _), parts = said["appended"]
    assert (rows, total, names, parts) == (2 * ROWS, ROWS * (ROWS - 1), ROWS, 2 * of(ROWS)[1])
    assert said["overwritten"] == of(100)
    assert (said["table"], said["inserted"]) == (ROWS - 1, ROWS + 10)
    # Others see the same, and nothing else is left: no temporary folders of jobs.
    assert sorted(parquet(client, "/plain")["id"].to_pylist()) == list(range(100))
    assert parquet(client, "/parts").num_rows == ROWS
    left = [status.path for status in client.list_status("/", recursive=True)]
    assert not [path for path in left if "_temporary" in path or "numbers" in path], left
    server.restart()
    assert parquet(hdfs_native.Client(server.url), "/parts").num_rows == ROWS
