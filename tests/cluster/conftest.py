"""Clusters of three nodes on this machine, each node a process."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import psycopg
import pytest
import redis
import requests

from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SAVANNA = pathlib.Path(os.environ.get("BINARY", TARGET / "debug" / "savanna"))
NODES = ["n1", "n2", "n3"]
# A shard each; beside them, each tenant is one.
SERVICES = {"keys", "streams", "tenants"}
PATIENCE = 60
FACES = ["http", "pgwire", "keys", "tenants", "cluster"]
ANY_PORTS = [word for face in FACES for word in (f"--{face}-port", "0")]
# Those of a node are so much above those of the one before.
PORTS_APART = 10


def ports_of_nodes():
    """Where the faces of the first node listen; those of the others are free, too."""
    first = free_port([node * PORTS_APART + face for node in range(len(NODES)) for face in range(len(FACES))])
    return [word for number, face in enumerate(FACES) for word in (f"--{face}-port", str(first + number))]


def wait_until(holds, what, logs):
    """Waits until something holds, of nodes that need not answer yet."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except (requests.RequestException, KeyError, ValueError):
            pass
        time.sleep(0.1)
    raise AssertionError(f"expected that {what}\n{logs()}")


class Cluster:
    """`savanna dev --nodes 3`, until it is stopped."""

    def __init__(self, directory, *settings):
        self.directory = directory
        command = [SAVANNA, "dev", "--nodes", "3", "--data-dir", directory, *ports_of_nodes(), "--output", "json"]
        # Three nodes with a thread or two for each service are enough for two cores.
        for setting in ("keys.threads=1", "tenants.threads=1", *settings):
            command += ["--set", setting]
        self.began = time.monotonic()
        self.log = directory.parent / f"{directory.name}.log"
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(self.log, "a"), text=True)
        lines = [self.process.stdout.readline() for _ in NODES]
        self.ready_after = time.monotonic() - self.began
        assert all(lines), self.logs()
        self.started = {status["node"]: status for status in map(json.loads, lines)}
        self.ports = {
            name: {service["service"]: int(service["address"].rsplit(":", 1)[1]) for service in status["services"] if service["address"]}
            for name, status in self.started.items()
        }

    def logs(self):
        texts = [self.log.read_text()]
        texts += [f"--- {path.name}\n{path.read_text()[-6000:]}" for path in sorted((self.directory / "nodes").glob("*.log"))]
        return "\n".join(texts)

    def get(self, node, path):
        return requests.get(f"http://127.0.0.1:{self.ports[node]['http']}{path}", timeout=10).json()

    def post(self, node, path, body):
        return requests.post(f"http://127.0.0.1:{self.ports[node]['http']}{path}", json=body, timeout=180).json()

    def status(self, node):
        return self.get(node, "/api/v1/status")

    def shards(self, node):
        return {shard["shard"]: shard for shard in self.get(node, "/api/v1/shards")["shards"]}

    def coordinator(self):
        """The node that runs the coordinator."""
        return json.loads((self.directory / "coordinator.address").read_text())["node"]

    def owner(self, shard, asked=None):
        return self.shards(asked or NODES[0])[shard]["owner"]

    def redis(self, node, **options):
        return redis.Redis(port=self.ports[node]["keys"], socket_timeout=30, decode_responses=True, **options)

    def tenants(self, node, database="postgres", **options):
        return psycopg.connect(host="127.0.0.1", port=self.ports[node]["tenants"], user="postgres", dbname=database, connect_timeout=30, **options)

    def streams(self, node):
        port = self.ports[node]["pgwire"]
        return psycopg.connect(host="127.0.0.1", port=port, user="postgres", dbname="savanna_streams", connect_timeout=30, autocommit=True)

    def signal(self, node, number):
        """Sends a signal to a node's process, and says which that is."""
        pid = self.status(node)["pid"]
        os.kill(pid, number)
        return pid

    def runs_again(self, node, pid):
        """Waits until another process is the node, and every shard is served."""
        self.until(lambda: self.status(node)["pid"] != pid and self.is_served(node), f"{node} is there again")

    def is_served(self, node):
        shards = self.shards(node)
        names = {entry["name"] for entry in self.get(node, "/api/v1/nodes")["nodes"]}
        return names == set(NODES) and set(shards) >= SERVICES and all(shard["state"] == "serving" for shard in shards.values())

    def until(self, holds, what):
        wait_until(holds, what, self.logs)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def kill(self):
        """Ends what is left; the nodes stop when they hear nothing of it any more."""
        self.process.kill()
        self.process.wait()


class Loop:
    """Something that is done again and again in a thread of its own, until it is told to end."""

    def __init__(self, step):
        self.ended = threading.Event()
        self.failure = None
        self.step, self.steps = step, 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.ended.is_set():
                self.step()
                self.steps += 1
        except BaseException as failure:
            self.failure = failure

    def end(self):
        self.ended.set()
        self.thread.join(timeout=2 * PATIENCE)
        assert not self.thread.is_alive(), "a step takes for ever"
        if self.failure:
            raise self.failure


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster") / "data")
    yield cluster
    if cluster.process.poll() is None:
        assert cluster.stop() == 0, cluster.logs()


@pytest.fixture
def start(tmp_path):
    """Starts clusters that end with the test."""
    clusters = []

    def start(*settings, directory=tmp_path / "data"):
        clusters.append(Cluster(directory, *settings))
        return clusters[-1]

    yield start
    for cluster in clusters:
        if cluster.process.poll() is None:
            cluster.kill()


@pytest.fixture
def start_machines(tmp_path):
    """Starts clusters over several machines that end with the test."""
    from machines import Machines

    clusters = []

    def start(*settings, signed=None):
        clusters.append(Machines(tmp_path / "machines", *settings, signed=signed))
        return clusters[-1]

    yield start
    for cluster in clusters:
        cluster.kill()
