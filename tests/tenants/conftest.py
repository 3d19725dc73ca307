"""A server of tenants, and PostgreSQL to compare it with."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import requests

from node import command, states
from postgresql import PostgreSQL

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Seconds that a node may take to start.
PATIENCE = 60
# Seeds of what is killed, which also decide when.
CRASHES = range(int(os.environ.get("TENANTS_CRASHES", "2")))
# What clients connect to: the node that has their databases, the `front`, another one that relays them, or one of two between
# which their databases `move`.
THROUGH = os.environ.get("TENANTS_THROUGH", "owner")
# They would take years. The first only reads, so that its database goes on meanwhile; the second takes its database along.
ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000000000)"
BUSY = "SELECT count(*) FROM generate_series(1, 1000000000000) WHERE random() < 2"


class Server:
    """A node that runs tenants alone; it can be killed and started again on the same data."""

    def __init__(self, directory, settings=None, name=None):
        self.directory = directory
        self.data = directory / "data" / "tenants"
        self.log = directory / f"{name or 'server'}.log"
        self.settings = settings or {}
        # In its cluster, if it has one.
        self.name = name
        # Counts starts.
        self.epoch = 0
        self.process = None
        # Seconds from a start until it listened, the last time that somebody waited for that.
        self.took = 0

    def start(self):
        self.epoch += 1
        self.began = time.monotonic()
        self.said_before = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as log:
            words = command(self.directory / "data", ["tenants"], self.settings, name=self.name)
            self.process = subprocess.Popen(words, stdout=log, stderr=log)

    def said(self):
        """What it has printed since its start."""
        return self.log.read_bytes()[self.said_before :].decode(errors="replace")

    def state(self):
        """How it stands with the service, once that is said: its state, and its port if it listens."""
        deadline = self.began + PATIENCE
        while "tenants" not in (found := states(self.said())):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.005)
        self.took = time.monotonic() - self.began
        return found["tenants"]

    def listen(self):
        _, self.port = self.state()
        assert self.port, self.said()

    def ask(self, method, path, **options):
        """What its control API says."""
        _, port = states(self.said())["http"]
        answer = requests.request(method, f"http://127.0.0.1:{port}{path}", timeout=60, **options)
        answer.raise_for_status()
        return answer

    def awake(self):
        """How many tenants are awake."""
        return int(float(re.search(r"^savanna_tenants_awake (\S+)$", self.ask("GET", "/metrics").text, re.MULTILINE)[1]))

    def serve(self):
        """Waits until somebody comes in, or is told why not."""
        while True:
            try:
                return self.connect(connect_timeout=PATIENCE).close()
            except psycopg.OperationalError as error:
                if any(word in str(error) for word in ("password", "TLS")):
                    return
                assert time.monotonic() < self.began + PATIENCE, f"{error}\n{self.said()}"
                time.sleep(0.05)

    def stop(self):
        """Stops in order."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0, self.said()

    def kill(self):
        """Whether it has said that it listens."""
        self.process.kill()
        self.process.wait()
        return "tenants" in states(self.said())

    def kill_while_it_starts(self, dice, times):
        """Starts, and is killed within so many times as long as it took to listen. Whether it listened already."""
        self.start()
        time.sleep(dice.uniform(0, times * self.took))
        return self.kill()

    def crash_storm(self, dice):
        """Comes back after a kill, and is killed twice before. How often it did not listen yet: it was reading its log."""
        early = [self.kill_while_it_starts(dice, times) for times in (1, 2)].count(False)
        self.start()
        self.listen()
        return early

    def connect(self, database="postgres", **options):
        return psycopg.connect(f"host=127.0.0.1 port={self.port} user=postgres dbname={database}", **options)

    def run(self, *command):
        environment = {**os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": "postgres", "PGDATABASE": "postgres"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout, done.stderr


class Foreign(Server):
    """Two nodes of a cluster. Clients connect to the one that has none of their databases, and relays them to the other."""

    def __init__(self, directory, settings=None):
        super().__init__(directory, settings)
        self.owner, self.front = (Server(directory, settings, name) for name in ("owner", "front"))

    def start(self):
        self.epoch += 1
        # The first has everything that there is.
        for node in (self.owner, self.front):
            node.start()
            node.listen()
            node.serve()
        self.process, self.port = self.front.process, self.front.port
        self.part()

    def part(self):
        """Sees to it that they are not at the node that clients connect to."""
        # It is not open to other machines if it has no API; then only `postgres` is certain to be at the other node.
        if self.has_api():
            self.front.ask("PUT", "/api/v1/nodes/front/drain")

    def has_api(self):
        _, port = states(self.front.said())["http"]
        return port is not None

    def connect(self, database="postgres", **options):
        connection = super().connect(database, **options)
        if self.has_api():
            # Nobody is told anything where there are no descriptors left.
            with contextlib.suppress(requests.ConnectionError):
                shards = self.front.ask("GET", "/api/v1/shards?prefix=tenants/").json()["shards"]
                own = [shard["shard"] for shard in shards if shard["owner"] == "front"]
                assert not own, f"expected that clients connect to a node without databases, it has {own}"
        return connection

    def listen(self):
        """It does by now."""

    def said(self):
        return self.owner.said() + self.front.said()

    def kill(self):
        for node in (self.owner, self.front):
            if node.process:
                node.kill()


class Moving(Foreign):
    """Two nodes of a cluster. Each database goes from the one to the other and back, a second after the last time; clients connect to one of them."""

    def __init__(self, directory, settings=None, at_once=True):
        super().__init__(directory, settings)
        self.at_once, self.moved, self.ends = at_once, [], threading.Event()
        self.mover = threading.Thread(target=self.move, daemon=True)

    def part(self):
        if self.at_once:
            self.move_from_now_on()

    def move_from_now_on(self):
        self.began = time.monotonic()
        self.mover.start()

    def move(self):
        while not self.ends.wait(1):
            # What is being dropped, or made, does not move; nor does anything when a node has ended.
            with contextlib.suppress(requests.RequestException, KeyError):
                shards = self.front.ask("GET", "/api/v1/shards?prefix=tenants/").json()["shards"]
                for shard in shards:
                    to = "front" if shard["owner"] == "owner" else "owner"
                    with contextlib.suppress(requests.HTTPError):
                        self.moved.append(self.front.ask("POST", "/api/v1/moves", json={"shard": shard["shard"], "to": to}).json())

    def connect(self, database="postgres", **options):
        return Server.connect(self, database, **options)

    def kill(self):
        self.ends.set()
        # Whoever waits for an answer of a node has none when that has ended.
        super().kill()
        if self.mover.ident is None:
            return
        self.mover.join()
        gone = [move for move in self.moved if move["stayed"] is None]
        print(f"{len(gone)} of {len(self.moved)} moves, windows of {[round(move['window_ms']) for move in gone]} ms", file=sys.stderr)
        # Where it has no API, nobody can ask for any.
        assert gone or not self.has_api() or time.monotonic() < self.began + 10, self.moved
        assert not [move for move in self.moved if move["failed"]], self.moved


@contextlib.contextmanager
def busy_with_endless(connection, statement=BUSY):
    """Has a connection run a statement that still runs at the end, where it is cancelled."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(connection.execute, statement)
        try:
            yield
            assert not running.done()
        finally:
            connection.cancel_safe()
            error = running.exception()
    assert isinstance(error, psycopg.errors.QueryCanceled)


@contextlib.contextmanager
def running(directory, settings=None):
    """A server that listens, and is killed at the end."""
    server = {"owner": Server, "front": Foreign, "moves": Moving}[THROUGH](directory, settings)
    try:
        server.start()
        server.listen()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("tenants")) as server:
        yield server


@pytest.fixture(scope="module")
def postgresql():
    postgresql = PostgreSQL()
    yield postgresql
    postgresql.stop()
