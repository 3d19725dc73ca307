"""Django's own tests of what it does with a database, unchanged, on a tenant.

`django.toml` names the tests that fail, by their reasons. One that fails and is not there fails this test, and so does one that is there and passes."""

import os
import pathlib
import re
import subprocess
import tomllib

import pytest

HERE = pathlib.Path(__file__).parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[2] / "target"))
# `tools/install build test suites` puts it there.
SOURCE = TARGET / "suites-tenants" / "django"
# How the runner names a test that failed: `ERROR: test_name (module.Class.test_name)`, perhaps with the parameters of a subtest.
REFUSED = re.compile(r"^(?:ERROR|FAIL): (?:\S+ \((\S+?)\)|setUpClass \((\S+)\))", re.MULTILINE)


def listed():
    text = tomllib.loads((HERE / "django.toml").read_text())
    return text["apps"], {test: reason for reason, tests in text["fail"].items() for test in tests}


@pytest.mark.long
def test_djangos_own_tests_pass(server):
    if not SOURCE.exists():
        pytest.skip("Django's tests are missing: run tools/install build test suites")
    apps, known = listed()
    with server.connect(autocommit=True) as connection:
        for name in ("first", "second"):
            connection.execute(f"CREATE DATABASE {name}")
    environment = {**os.environ, "PORT": str(server.port), "PYTHONPATH": str(HERE)}
    words = ["venv/bin/python", "tests/runtests.py", "--settings", "django_settings", "--noinput", "--parallel", "1", *apps]
    done = subprocess.run(words, cwd=SOURCE, env=environment, capture_output=True, text=True, timeout=3000, check=False)
    ran = re.search(r"^Ran (\d+) tests", done.stderr, re.MULTILINE)
    assert ran, done.stdout[-4000:] + done.stderr[-4000:]
    failed = {first or second for first, second in REFUSED.findall(done.stderr)}
    assert failed == set(known), (
        f"of {ran[1]} tests these failed that are not in django.toml: {sorted(failed - set(known))}; these stand there and passed: "
        f"{sorted(set(known) - failed)}\n{done.stderr[-4000:]}"
    )
