"""Redis' own tests in Tcl, of the version whose answers Savanna gives, in their mode for a server that is there already."""

import re
import shutil
import subprocess

import pytest

from conftest import Server
from ports import free_port
from suites import FOLDER, HERE, check, known_failures, left_out

SOURCE = FOLDER / "redis"
# Files of the suite that run against a server that is there; of the others every test starts servers of its own.
FILES = """
    unit/acl unit/aofrw unit/auth unit/bitfield unit/bitops unit/dump unit/expire unit/functions unit/geo unit/hyperloglog unit/info
    unit/info-command unit/introspection unit/introspection-2 unit/keyspace unit/latency-monitor unit/lazyfree unit/limits unit/maxmemory
    unit/memefficiency unit/multi unit/other unit/pause unit/protocol unit/pubsub unit/pubsubshard unit/querybuf unit/quit unit/scan
    unit/scripting unit/slowlog unit/sort unit/tracking unit/type/hash unit/type/incr unit/type/list unit/type/list-2 unit/type/list-3
    unit/type/set unit/type/stream unit/type/stream-cgroups unit/type/string unit/type/zset unit/violations integration/redis-cli
""".split()
# What needs replicas of Redis, its DEBUG and PFDEBUG, or its cluster.
TAGS = "-needs:repl -needs:debug -needs:pfdebug -cluster"
PROGRAMS = ("redis-cli", "redis-benchmark", "redis-server")
# A line that says what became of a test; what is behind it, up to the next one, says why.
SAID = re.compile(r"^\[(ok|err|skip|ignore|ready|testing|exception|TIMEOUT|\d+/\d+ done)\]:? ?", re.MULTILINE)


def outcomes(text):
    """The tests that ran, and why those failed that did. A name may be there more than once; then one failure counts."""
    body = re.sub(r"\x1b\[[0-9;]*m", "", text).split("\n                   The End\n")[0]
    pieces = SAID.split(body)
    ran, failed = set(), {}
    for said, rest in zip(pieces[1::2], pieces[2::2], strict=True):
        if said == "ok":
            ran.add(re.sub(r" \(\d+ ms\)\s*$", "", rest.split("\n")[0]))
        elif said in ("err", "exception"):
            name, is_of_test, why = rest.partition(".tcl\n")
            name = re.sub(r" in tests/\S+$", "", name) if is_of_test and said == "err" else "the file breaks off"
            ran.add(name)
            failed[name] = why.strip() or rest.strip()
    return ran, failed


def run(path, port, folder):
    """What the suite says of one of its files."""
    shutil.copytree(SOURCE / "tests", folder / "tests")
    (folder / "src").mkdir()
    for program in PROGRAMS:
        (folder / "src" / program).symlink_to(shutil.which(program))
    words = ["--host", "127.0.0.1", "--port", port, "--single", path, "--durable", "--timeout", 150, "--tags", TAGS, "--baseport", free_port()]
    for test in left_out("redis"):
        file, _, name = test.partition(": ")
        words += ["--skiptest", name] if file == path else []
    done = subprocess.run(
        ["tclsh", "tests/test_helper.tcl", *map(str, words)], cwd=folder, capture_output=True, text=True, errors="replace", timeout=900, check=False,
    )
    text = done.stdout + done.stderr
    assert "The End" in text or "[exception]" in re.sub(r"\x1b\[[0-9;]*m", "", text), f"the suite broke off:\n{text[-4000:]}"
    return text


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2], ids=["1-thread", "2-threads"])
@pytest.mark.parametrize("path", FILES)
def test_redis_own_tests_pass(tmp_path, path, threads):
    if not SOURCE.exists() or not shutil.which("tclsh"):
        pytest.skip("Redis' tests are missing: run tools/install build test suites")
    server = Server(tmp_path, "--threads", threads)
    try:
        ran, failed = outcomes(run(path, server.port, tmp_path / "suite"))
    finally:
        server.kill()
    check("redis", threads, {f"{path}: {name}" for name in ran}, {f"{path}: {name}": why for name, why in failed.items()})


def test_the_documentation_names_each_test_that_fails():
    page = (HERE.parents[2] / "docs/keys.md").read_text()
    named = {test for known in known_failures("redis", 2) for test in known} | set(left_out("redis"))
    missing = [test for test in named if f"`{test}`" not in page]
    assert not missing, f"expected all tests of redis.toml in docs/keys.md, missing: {missing}"
