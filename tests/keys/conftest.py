"""Servers for the tests of the keys service: Savanna with one and several threads, and Debian's redis-server beside it."""

import pathlib
import shutil
import subprocess
import time

import pytest

from node import command, states
from ports import free_port
from resp import Client

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Options of a server of keys that a node has under names of its own.
OF_THE_NODE = {"--threads": "keys.threads", "--address": "address"}


class Process:
    """A process that answers on `port`."""

    def __init__(self, command, log):
        self.command, self.log = command, log
        self.start()

    def start(self):
        said_before = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                Client(self.port).call("PING")
                return
            except OSError:
                text = self.log.read_bytes()[said_before:].decode(errors="replace")
                if self.process.poll() is not None:
                    raise AssertionError(f"the server ended:\n{text}") from None
                is_refused = states(text).get("keys", ("", None))[0] == "failed"
                if is_refused or time.monotonic() > deadline:
                    self.kill()
                    raise AssertionError(f"the server does not answer:\n{text}") from None
                time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Redis(Process):
    """Debian's redis-server, without files."""

    def __init__(self, binary, folder):
        self.port = free_port()
        super().__init__([binary, "--save", "", "--dir", str(folder), "--port", str(self.port)], folder / "log")


class Server(Process):
    """A node that runs keys alone, on data in the folder; options are those of `redis-server`, and `--threads` and `--address`."""

    def __init__(self, folder, *options):
        self.folder, self.port = folder, free_port()
        settings = {"keys.port": self.port}
        for name, value in zip(options[::2], options[1::2], strict=True):
            settings[OF_THE_NODE.get(name, "keys." + name.removeprefix("--").replace("-", "_"))] = value
        super().__init__(command(folder / "data", ["keys"], settings), folder / "log")

    @classmethod
    def refusal(cls, folder, *options):
        """Why the service does not start with these options."""
        try:
            cls(folder, *options).kill()
        except AssertionError as error:
            return str(error)
        raise AssertionError("it started")


@pytest.fixture(scope="session")
def redis(tmp_path_factory):
    binary = shutil.which("redis-server")
    assert binary, "expected redis-server, found none; apt-get install redis-server"
    folder = tmp_path_factory.mktemp("redis")
    server = Redis(binary, folder)
    yield server
    server.kill()


# One thread has what several have but what goes between them: the long tests try both.
THREADS = [pytest.param(1, marks=pytest.mark.long), 3]


@pytest.fixture(scope="session", params=THREADS, ids=lambda threads: f"{threads}-threads")
def savanna(request, tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("savanna"), "--threads", request.param)
    yield server
    server.kill()
