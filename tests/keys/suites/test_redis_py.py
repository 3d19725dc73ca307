"""redis-py's own tests, of the version that the other tests use, in both protocols: those of one server without modules."""

import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from conftest import Server
from suites import FOLDER, check

SOURCE = FOLDER / "redis-py"
# What is about clusters, sentinels, modules, TLS with certificates of its own, other products (Entra ID among them), or no server at all.
MARKS = "not onlycluster and not redismod and not ssl and not cp_integration and not multidb_integration"
LEFT_OUT = """
    maint_notifications test_auth test_cluster.py test_credentials.py test_http test_multidb test_observability test_scenario test_sentinel.py test_ssl.py
    test_asyncio/test_cluster.py test_asyncio/test_credentials.py test_asyncio/test_multidb test_asyncio/test_observability
    test_asyncio/test_scenario test_asyncio/test_sentinel.py test_asyncio/test_ssl.py
""".split()


def run(port, protocol, report, tests=()):
    """The tests that ran, and why those failed that did."""
    words = ["--redis-url", f"redis://127.0.0.1:{port}/0", "--protocol", str(protocol), "-m", MARKS, f"--junitxml={report}"]
    words += ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "timeout=60"]
    words += list(tests) or [f"--ignore=tests/{name}" for name in LEFT_OUT]
    done = subprocess.run(
        [SOURCE / "venv/bin/python", "-m", "pytest", *words], cwd=SOURCE, capture_output=True, text=True, timeout=3000, check=False,
    )
    assert report.exists(), done.stdout[-4000:] + done.stderr[-4000:]
    ran, failed = set(), {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("skipped") is not None:
            continue
        name = name_of(case.get("classname"), case.get("name"))
        ran.add(name)
        for refusal in [*case.findall("failure"), *case.findall("error")]:
            failed[name] = (refusal.get("message") or "")[:1000]
    return ran, failed


def name_of(place, name):
    """A test as pytest names it on its command line; one of no place is a file that cannot be read."""
    if not place:
        return name.replace(".", "/") + ".py"
    parts = place.split(".")
    length = next((at for at, part in enumerate(parts) if part[0].isupper()), len(parts))
    return "::".join(["/".join(parts[:length]) + ".py", *parts[length:], name])


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2], ids=["1-thread", "2-threads"])
@pytest.mark.parametrize("protocol", [2, 3], ids=["resp2", "resp3"])
def test_redis_py_own_tests_pass(redis, tmp_path, protocol, threads):
    if not (SOURCE / "venv").exists():
        pytest.skip("redis-py's tests are missing: run tools/install build test suites")
    server = Server(tmp_path, "--threads", threads)
    try:
        ran, failed = run(server.port, protocol, tmp_path / "savanna.xml")
    finally:
        server.kill()
    if failed:
        # Some ask for what a later Redis has, or for what nobody allows.
        _, too = run(redis.port, protocol, tmp_path / "redis.xml", sorted(failed))
        failed = {test: why for test, why in failed.items() if test not in too}
    check("redis-py", threads, ran, failed)
