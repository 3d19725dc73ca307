"""The tests that hdfs-native has itself, against a server of ours: they start Hadoop's mini cluster with `mvn`, and get another one."""

import json
import os
import pathlib
import shutil
import subprocess
import time
import urllib.request

import pytest
from conftest import Server
from test_datanode import DataNode
from test_hadoop import jars  # noqa: F401 # a fixture

from node import TARGET

HERE = pathlib.Path(__file__).parent / "native"
# The port that its tests expect.
PORT = 9000
# The others ask for what is not here: Kerberos, tokens and encryption, erasure coding, several name nodes (observers, standbys, routers), views of
# several file systems, blocks with CRC32 of old.
TESTS = [
    ("test_integration", "test_basic_non_ha"),
    ("test_integration", "test_no_tokio"),
    ("test_integration", "test_basic_sync_client"),
    ("test_read", "test_read_simple"),
    ("test_trash", "test_trash"),
    ("test_trash", "test_trash_disabled"),
    ("test_write", "test_write_simple"),
    ("test_write_resiliency", "test_lease_renewal"),
]
# Those that go on with other data nodes when one fails: three of Hadoop are beside the one in the process, so that there are four, as in its mini cluster.
AMONG_SEVERAL = [
    ("test_write_resiliency", "test_write_failures_basic"),
    ("test_write_resiliency", "test_replace_failed_datanode"),
    ("test_read_resiliency", "test_read_resiliency"),
]
OTHERS = 3
LIVE = "jmx?get=Hadoop:service=NameNode,name=FSNamesystemState::NumLiveDataNodes"
# Writes what clients read, says that it is there, and waits: the server was started before.
SHIM = """#!/bin/sh
mkdir -p target/test
cat > target/test/core-site.xml <<XML
<configuration><property><name>fs.defaultFS</name><value>hdfs://127.0.0.1:{port}</value></property></configuration>
XML
echo 'Ready!'
read -r _
"""


@pytest.fixture(scope="session")
def suite(tmp_path_factory):
    """Its source, and an executable for each file of tests."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET / "clients")}

    def cargo(*words, folder):
        done = subprocess.run(["cargo", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=1_800, check=False)
        assert done.returncode == 0, done.stderr[-20_000:]
        return done.stdout

    beside = tmp_path_factory.mktemp("names")
    shutil.copytree(HERE, beside, dirs_exist_ok=True)
    metadata = json.loads(cargo("metadata", "--format-version", "1", folder=beside))
    [manifest] = [package["manifest_path"] for package in metadata["packages"] if package["name"] == "hdfs-native"]
    source = tmp_path_factory.mktemp("hdfs-native")
    shutil.copytree(pathlib.Path(manifest).parent, source, dirs_exist_ok=True)
    files = [word for name in sorted({file for file, _ in TESTS + AMONG_SEVERAL}) for word in ("--test", name)]
    said = cargo("test", "--locked", "--features", "integration-test", "--no-run", "--message-format=json", *files, folder=source)
    built = [json.loads(line) for line in said.splitlines()]
    executables = {line["target"]["name"]: line["executable"] for line in built if line.get("executable")}
    shim = source / "shim" / "mvn"
    shim.parent.mkdir()
    shim.write_text(SHIM.format(port=PORT))
    shim.chmod(0o755)
    return source, executables, {**environment, "PATH": f"{shim.parent}:{environment['PATH']}", "CARGO_MANIFEST_DIR": str(source)}


@pytest.mark.long
@pytest.mark.parametrize(("file", "name"), TESTS, ids=[name for _, name in TESTS])
def test_its_own_tests_pass(suite, tmp_path, file, name):
    server = Server(tmp_path, port=PORT, trash=60 if name == "test_trash" else 0)
    try:
        passes(suite, server, file, name)
    finally:
        server.kill()


@pytest.mark.long
@pytest.mark.parametrize(("file", "name"), AMONG_SEVERAL, ids=[name for _, name in AMONG_SEVERAL])
def test_its_own_tests_pass_among_several_data_nodes(suite, jars, tmp_path, file, name):  # noqa: F811 # fixtures
    server, nodes = Server(tmp_path, port=PORT, replication=3), []
    try:
        nodes += [DataNode(server, jars, tmp_path / f"datanode{number}") for number in range(OTHERS)]
        deadline = time.monotonic() + 120
        while live(server) != 1 + OTHERS:
            assert time.monotonic() < deadline, nodes[0].text()
            time.sleep(0.5)
        passes(suite, server, file, name)
    finally:
        for node in nodes:
            node.kill()
        server.kill()


def live(server):
    """How many data nodes are there."""
    with urllib.request.urlopen(f"{server.web}/{LIVE}", timeout=60) as answer:
        return json.load(answer)["beans"][0]["NumLiveDataNodes"]


def passes(suite, server, file, name):
    source, executables, environment = suite
    words = [executables[file], "--exact", f"test::{name}", "--nocapture"]
    done = subprocess.run(words, cwd=source, env=environment, capture_output=True, text=True, timeout=1_200, check=False)
    said = (done.stdout + done.stderr)[-20_000:]
    assert done.returncode == 0 and "1 passed" in said, f"{said}\n{server.text()[-5_000:]}"
