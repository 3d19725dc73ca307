"""Runs the same question over the same rows in Savanna (as a stream) and in DuckDB (in batch)."""

import itertools
import os
import pathlib
import subprocess

import duckdb
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SAVANNA = pathlib.Path(os.environ.get("BINARY", TARGET / "debug" / "savanna"))


def savanna(*arguments, stdin=None):
    """Runs the binary; fails with its whole output when it fails."""
    done = subprocess.run(
        [SAVANNA, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"savanna {' '.join(map(str, arguments))}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


def modes():
    """A statement for each mode that a query can run in; nothing where there is only one."""
    settings = savanna("sql", "-c", "SHOW ALL", "--output", "json").stdout
    return [f"SET 'mode' = '{mode}';" for mode in ("serverless", "provisioned")] if '"mode"' in settings else [""]


MODES = modes()

# Random queries of each kind. The long suites ask for more of them, and for every combination of settings.
CASES = int(os.environ.get("DIFFERENTIAL_CASES", "24"))
THOROUGH = "DIFFERENTIAL_CASES" in os.environ

# Parallelism, events per epoch and mode.
SETTINGS = (
    list(itertools.product([1, 3], [1_000, 77_777], MODES)) if THOROUGH else [(1, 77_777, MODES[-1]), (3, 1_000, MODES[0])]
)


@pytest.fixture(scope="session")
def run_script(tmp_path_factory):
    """Runs a script of statements to its end."""
    path = tmp_path_factory.mktemp("script") / "script.sql"

    def run(script):
        path.write_text(script)
        return savanna("sql", "-f", path, "--output", "json")

    return run


@pytest.fixture
def duck():
    with duckdb.connect() as connection:
        yield connection


def assert_same_rows(duck, got, expected, context):
    """Both are relations or queries in DuckDB; equal as multisets, floating point to 12 digits."""
    columns = [name for name, *_ in duck.sql(f"DESCRIBE {expected}").fetchall()]
    types = {name: kind for name, kind, *_ in duck.sql(f"DESCRIBE {expected}").fetchall()}

    def normal(source):
        exprs = ", ".join(
            f'round("{c}"::DOUBLE, 6) AS "{c}"' if types[c] in ("DOUBLE", "FLOAT") else f'"{c}"::{types[c]} AS "{c}"'
            for c in columns
        )
        return f"SELECT {exprs} FROM ({source})"

    missing = duck.sql(f"{normal(expected)} EXCEPT ALL {normal(got)} ORDER BY ALL LIMIT 10").fetchall()
    extra = duck.sql(f"{normal(got)} EXCEPT ALL {normal(expected)} ORDER BY ALL LIMIT 10").fetchall()
    assert not missing and not extra, f"{context}\nmissing: {missing}\nextra: {extra}"
