"""The tests that Redis and redis-py have themselves: where they are, and which of them are known to fail, with the reason."""

import os
import pathlib
import tomllib

HERE = pathlib.Path(__file__).parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[2] / "target"))
# `tools/install build test suites` puts them there.
FOLDER = TARGET / "suites"


def known_failures(name, threads):
    """Tests that fail, with the reason, and those that fail now and then: as in `name`.toml, by number of threads."""
    text = tomllib.loads((HERE / f"{name}.toml").read_text())
    is_several = threads > 1

    def of(*parts):
        return {test: reason for part in parts for reason, tests in text.get(part, {}).items() for test in tests}

    return of("always", *["several"] * is_several), of("sometimes", *["sometimes several"] * is_several)


def left_out(name):
    """Tests that are not run."""
    text = tomllib.loads((HERE / f"{name}.toml").read_text())
    return [test for tests in text.get("left out", {}).values() for test in tests]


def check(name, threads, ran, failed):
    """Fails if a test failed that is not known to, or did not that is: `ran` and `failed` are of tests' names."""
    always, sometimes = known_failures(name, threads)
    new = {test: why for test, why in failed.items() if test not in always and test not in sometimes}
    listing = "\n\n".join(f"{test}\n{why}" for test, why in new.items())
    assert not new, f"{len(new)} of {len(ran)} tests failed that are not in {name}.toml:\n\n{listing}"
    passed = sorted(test for test in always if test in ran and test not in failed)
    assert not passed, f"these passed, and stand in {name}.toml as tests that fail: {passed}"
