"""One running node for all tests of this folder, on ports that the system chose."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SAVANNA = pathlib.Path(os.environ.get("BINARY", TARGET / "debug" / "savanna"))


class Node:
    def __init__(self, directory):
        self.log = directory / "node.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [SAVANNA, "dev", "--data-dir", directory / "data", "--http-port", "0", "--pgwire-port", "0"],
                stdout=log, stderr=log,
            )
        self.ports = self.wait_for_ports()

    def wait_for_ports(self):
        """The node prints the address of each service when it listens."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            text = self.log.read_text()
            ports = {name: re.search(rf"{name}\b[^\n]*?127\.0\.0\.1:(\d+)", text) for name in ("http", "pgwire")}
            if all(ports.values()):
                return {name: int(found.group(1)) for name, found in ports.items()}
            assert self.process.poll() is None, f"the node ended:\n{text}"
            time.sleep(0.05)
        raise AssertionError(f"the node printed no ports:\n{self.log.read_text()}")

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    node = Node(tmp_path_factory.mktemp("node"))
    yield node
    assert node.stop() == 0, node.log.read_text()
