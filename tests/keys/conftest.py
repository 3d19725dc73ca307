"""Servers for the tests of the keys service: Savanna with one and several threads, and Debian's redis-server beside it."""

import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest

from resp import Client

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SERVER = pathlib.Path(os.environ.get("KEYS_SERVER", TARGET / "debug" / "examples" / "keys_server"))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A process that listens on `port`."""

    def __init__(self, command, log):
        self.command, self.log, self.port = command, log, free_port()
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*self.command, "--port", str(self.port)], stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            try:
                Client(self.port).call("PING")
                return
            except OSError:
                text = self.log.read_text(errors="replace")
                assert self.process.poll() is None, f"the server ended:\n{text}"
                assert time.monotonic() < deadline, f"the server does not answer:\n{text}"
                time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def redis(tmp_path_factory):
    binary = shutil.which("redis-server")
    assert binary, "expected redis-server, found none; apt-get install redis-server"
    folder = tmp_path_factory.mktemp("redis")
    server = Server([binary, "--save", "", "--dir", str(folder)], folder / "log")
    yield server
    server.kill()


@pytest.fixture(scope="session", params=[1, 3], ids=lambda threads: f"{threads}-threads")
def savanna(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("savanna")
    server = Server([SERVER, "--threads", str(request.param)], folder / "log")
    yield server
    server.kill()
