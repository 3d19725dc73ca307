"""A node that serves files alone, and clients of it.

With FILES_DATABASE=postgresql the names of nodes that say nothing else are in a PostgreSQL 15, each in a database of its own; otherwise in their own database.
"""

import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import time

import pytest

from node import TARGET, command
from ports import free_port
from postgresql import PostgreSQL

# With FILES_SERVER=example the small server of the face's crate, which is built in a tenth of the time.
EXAMPLE = os.environ.get("FILES_SERVER") == "example"


# The PostgreSQL of all tests of a process, if they are to have one.
POSTGRESQL = []


def another_database():
    """The address of a new database, if names are to be in a PostgreSQL."""
    if os.environ.get("FILES_DATABASE") != "postgresql":
        return None
    if not POSTGRESQL:
        POSTGRESQL.append(PostgreSQL("open-sesame"))
    name = f"files_{secrets.token_hex(6)}"
    with POSTGRESQL[0].connect(autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgres://postgres:open-sesame@127.0.0.1:{POSTGRESQL[0].port}/{name}"


@pytest.fixture(scope="session", autouse=True)
def postgresql_of_all():
    yield
    for server in POSTGRESQL:
        server.kill()
        shutil.rmtree(server.root)


class Server:
    def __init__(self, folder, database=None, cache=1_000_000, services=("files",), trash=0, dead_after=630, port=None, replication=1):
        self.folder, self.port, self.data_port, self.http_port = folder, port or free_port(), free_port(), free_port()
        database = database or another_database()
        self.database, self.cache, self.services, self.trash = database, cache, services, trash
        self.dead_after, self.replication = dead_after, replication
        self.start()

    def start(self):
        environment = dict(os.environ)
        if EXAMPLE:
            environment |= {"FILES_TRASH": str(self.trash), "FILES_DEAD_AFTER": str(self.dead_after)}
            environment["FILES_REPLICATION"] = str(self.replication)
            words = [TARGET / "debug" / "examples" / "files_server", self.folder / "data", self.port, self.data_port, self.http_port]
            words += [self.database, self.cache] if self.database else []
        else:
            settings = {"files.port": self.port, "files.data_port": self.data_port, "files.http_port": self.http_port}
            settings |= {"files.cache": self.cache, "files.trash": self.trash, "files.dead_after": f"{self.dead_after}s"}
            settings |= {"files.datanodes": "127.0.0.1", "files.replication": self.replication}
            if self.database:
                settings["files.database"] = self.database
            words = command(self.folder / "data", self.services, settings)
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + 60
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port)) as connection:
                    connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    connection.settimeout(60)
                    assert connection.recv(12) == b"HTTP/1.1 404"
                    return
            except OSError:
                assert self.process.poll() is None and time.monotonic() < deadline, self.text()
                time.sleep(0.02)

    def text(self):
        return (self.folder / "log").read_text()

    @property
    def url(self):
        return f"hdfs://127.0.0.1:{self.port}"

    @property
    def web(self):
        return f"http://127.0.0.1:{self.http_port}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        self.kill()
        self.start()


@pytest.fixture
def server(tmp_path, request):
    server = Server(tmp_path, **getattr(request, "param", {}))
    yield server
    server.kill()


@pytest.fixture
def replicas(server):
    """The files of replicas that there are."""
    root = pathlib.Path(server.folder / "data")
    folder = root / "blocks" if EXAMPLE else root / "filesystem" / "blocks"
    return lambda: sorted(path.name for path in folder.glob("*/blk_*") if path.suffix != ".meta")
