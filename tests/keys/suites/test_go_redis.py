"""go-redis' own tests, of the version that `clients/go` uses: those of one server without modules, and of what Redis has up to 7.4."""

import json
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from conftest import Server
from suites import FOLDER, check

SOURCE = FOLDER / "go-redis"
# What is about clusters, sentinels, modules, TLS with certificates of its own, or types that only a later Redis has.
LEFT_OUT = "osscluster|race_test|ring_test|sentinel|universal|search|json_test|timeseries|probabilistic|vectorset|tls_|array_commands"


def run(port, folder, tests=()):
    """The tests that ran, and why those failed that did."""
    endpoints, report = folder / "endpoints.json", folder / "report.xml"
    endpoints.write_text(json.dumps({"server": {"raw_endpoints": [{"dns_name": "127.0.0.1", "port": port}]}}))
    # A server elsewhere, alone: else the suite wants one at port 6379, and a dozen more beside it.
    environment = os.environ | {"RE_CLUSTER": "true", "REDIS_ENDPOINTS_CONFIG_PATH": str(endpoints), "REDIS_VERSION": "7.4"}
    words = ["-test.run=TestGinkgoSuite$", "-ginkgo.no-color", "-ginkgo.seed=1", f"-ginkgo.skip-file={LEFT_OUT}", f"-ginkgo.junit-report={report}"]
    # The name of the suite comes first, and Go has no escaped spaces.
    words += ["-ginkgo.focus=" + re.escape(test).replace("\\ ", " ") for test in tests]
    done = subprocess.run(
        [SOURCE / "suite.test", *words], cwd=SOURCE, env=environment, capture_output=True, text=True, timeout=1500, check=False,
    )
    assert report.exists(), done.stdout[-4000:] + done.stderr[-4000:]
    ran, failed = set(), {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("skipped") is not None:
            continue
        name = name_of(case.get("name"))
        ran.add(name)
        for refusal in [*case.findall("failure"), *case.findall("error")]:
            failed[name] = (refusal.get("message") or "")[:1000]
    return ran, failed


def name_of(said):
    """A test without the kind of its node and its labels."""
    return re.sub(r" \[[^\]]*\]$", "", said.removeprefix("[It] "))


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2], ids=["1-thread", "2-threads"])
def test_go_redis_own_tests_pass(redis, tmp_path, threads):
    if not (SOURCE / "suite.test").exists():
        pytest.skip("go-redis' tests are missing: run tools/install build test suites")
    server = Server(tmp_path, "--threads", threads)
    try:
        ran, failed = run(server.port, tmp_path)
    finally:
        server.kill()
    if failed:
        # Some ask for what a later Redis has, for what nobody allows, or for a server at port 6379.
        _, too = run(redis.port, tmp_path, sorted(failed))
        failed = {test: why for test, why in failed.items() if test not in too}
    check("go-redis", threads, ran, failed)
