"""Runs the same question over the same rows in Savanna (as a stream) and in DuckDB (in batch)."""

import concurrent.futures
import itertools
import json
import os
import pathlib
import subprocess
import threading
import urllib.request

import duckdb
import pytest

from functions_server import STAGE, Server

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


# With DIFFERENTIAL_ON=functions the stages run as functions of a node, whose instances are ended all the time.
ON_FUNCTIONS = os.environ.get("DIFFERENTIAL_ON") == "functions"
MODES = ["SET 'mode' = 'serverless';"] if ON_FUNCTIONS else modes()

# Random queries of each kind. The long suites ask for more of them, and for every combination of settings.
CASES = int(os.environ.get("DIFFERENTIAL_CASES", "24"))
THOROUGH = "DIFFERENTIAL_CASES" in os.environ and not ON_FUNCTIONS

# Parallelism, events per epoch and mode.
SETTINGS = (
    list(itertools.product([1, 3], [1_000, 77_777], MODES)) if THOROUGH else [(1, 77_777, MODES[-1]), (3, 1_000, MODES[0])]
)


@pytest.fixture(scope="session")
def run_script(tmp_path_factory, on_functions):
    """Runs a script of statements to its end."""
    path = tmp_path_factory.mktemp("script") / "script.sql"

    def run(script):
        path.write_text(script)
        return savanna("sql", "-f", path, "--output", "json", *on_functions)

    return run


@pytest.fixture(scope="session")
def on_functions(tmp_path_factory):
    """The options for running stages as functions, if they are to."""
    if not ON_FUNCTIONS:
        yield ()
        return
    host, ended = Server(tmp_path_factory.mktemp("functions"), {"functions.concurrency": 1000}), threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        retiring = threads.submit(retire, host, ended)
        yield "--on", "functions", "--functions-url", host.url, "--stage", STAGE
        ended.set()
        # What has ended it too soon is an error here.
        retiring.result()
    # Those that hold state; the others have instances as they need them.
    members = [function for function in functions(host) if function["name"].count("-") == 3]
    host.kill()
    starts = sum(member["cold_starts"] for member in members)
    assert starts > 1.5 * len(members), f"{starts} instances of {len(members)} members: too few were ended for anything to be shown"


def functions(host):
    with urllib.request.urlopen(host.url + "/savanna/functions", timeout=60) as shown:
        return json.loads(shown.read())["functions"]


def retire(host, ended):
    """Each change of a function's settings ends its instances: its next call finds one without state."""
    turn = 0
    while not ended.wait(1):
        turn += 1
        for function in functions(host):
            if function["instances"]:
                body = json.dumps({"EphemeralStorage": {"Size": 512 + turn % 2}}).encode()
                url = f"{host.url}/2015-03-31/functions/{function['name']}/configuration"
                with urllib.request.urlopen(urllib.request.Request(url, body, method="PUT"), timeout=60) as answer:
                    answer.read()


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
