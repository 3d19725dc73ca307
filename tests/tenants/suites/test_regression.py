"""PostgreSQL's own regression files get from tenants as many of PostgreSQL's answers as `regression.toml` says, or more.

tests/tenants/regression.py says what differs, and why."""

import os
import pathlib
import tomllib

import pytest

from regression import play

HERE = pathlib.Path(__file__).parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[2] / "target"))
# `tools/install build test suites` puts them there.
FILES = TARGET / "suites-tenants" / "sql"
ALIKE = tomllib.loads((HERE / "regression.toml").read_text())["alike"]


@pytest.fixture(scope="module")
def connects(server, postgresql):
    made = []
    for system in (postgresql, server):
        with system.connect(autocommit=True) as connection:
            connection.execute("CREATE DATABASE regression")
        made.append(lambda system=system: system.connect("regression", autocommit=True))
    return made


@pytest.mark.long
@pytest.mark.parametrize("name", ALIKE)
def test_a_regression_file_gets_postgresqls_answers(connects, name):
    if not FILES.exists():
        pytest.skip("PostgreSQL's regression files are missing: run tools/install build test suites")
    played = play(FILES / f"{name}.sql", connects)
    assert played.alike >= ALIKE[name], f"expected at least {ALIKE[name]} answers as PostgreSQL's, came {played}; {played.messages.most_common(5)}"
