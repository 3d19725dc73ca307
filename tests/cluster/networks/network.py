"""Three nodes, each in a network namespace of its own: what one hears of another can be cut and slowed down. Needs root."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess

import psycopg
import redis
import requests

from conftest import NODES, PATIENCE, SAVANNA, SERVICES, wait_until

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
PORTS = {"http": 8080, "pgwire": 5434, "keys": 6380, "tenants": 5433}
# What a process ends with that is no longer its node.
NAME_LOST = 3


def run(*command):
    subprocess.run([str(word) for word in command], check=True, timeout=60)


class Network:
    """What `savanna dev --netns` has made: a bridge, and a namespace for each node with a link to it."""

    def __init__(self, process):
        self.tag = f"sv{process % 100_000}"

    def namespace(self, node):
        return f"{self.tag}-{node}"

    def link(self, node):
        return f"{self.tag}{node}"

    def address(self, node):
        return f"10.213.7.{NODES.index(node) + 1}"

    def cut(self, node):
        """Nobody hears of the node, nor it of anybody."""
        run("ip", "link", "set", self.link(node), "down")

    def mute(self, node):
        """The node hears the others, and is not heard."""
        for other in NODES:
            self.mute_towards(node, other)

    def mute_towards(self, node, other):
        if node != other:
            run("ip", "-n", self.namespace(node), "route", "replace", "blackhole", self.address(other))

    def slow(self, node):
        """What the node hears comes late, or not at all if there is much of it."""
        run("tc", "qdisc", "replace", "dev", self.link(node), "root", "tbf", "rate", "1mbit", "burst", "4kb", "latency", "100ms")

    def heal(self, node):
        run("ip", "link", "set", self.link(node), "up")
        subprocess.run(["tc", "qdisc", "del", "dev", self.link(node), "root"], check=False, capture_output=True)
        for other in NODES:
            gone = ["ip", "-n", self.namespace(node), "route", "del", "blackhole", self.address(other)]
            subprocess.run(gone, check=False, capture_output=True)

    @contextlib.contextmanager
    def inside(self, node):
        """Sockets that this thread makes meanwhile are the node's."""
        with open("/proc/thread-self/ns/net") as own, open(f"/run/netns/{self.namespace(node)}") as there:
            enter(there)
            try:
                yield
            finally:
                enter(own)


def enter(namespace):
    if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class NetworkedCluster:
    """Nodes that `savanna dev` starts again when they have lost their names."""

    def __init__(self, directory, *settings):
        self.directory = directory
        self.log = directory.parent / f"{directory.name}.log"
        command = [SAVANNA, "dev", "--nodes", len(NODES), "--netns", "--data-dir", directory, "--output", "json"]
        for setting in ("keys.threads=1", "tenants.threads=1", *settings):
            command += ["--set", setting]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=open(self.log, "a"), text=True)
        self.network = Network(self.process.pid)
        lines = [self.process.stdout.readline() for _ in NODES]
        assert all(lines), self.logs()
        self.pids = {status["node"]: status["pid"] for status in map(json.loads, lines)}
        try:
            self.until(lambda: all(self.is_served(node) for node in NODES), "all nodes serve")
        except BaseException:
            self.remove()
            raise

    def logs(self):
        logs = [self.log, *sorted((self.directory / "nodes").glob("*.log"))]
        return "\n".join(f"--- {log.name}\n{log.read_text()[-6000:]}" for log in logs)

    def has_ended(self, node):
        """Whether the process has found out that it is no longer the node."""
        if os.path.exists(f"/proc/{self.pids[node]}"):
            return False
        told = lambda: [line for line in self.log.read_text().splitlines() if line.startswith(f"node {node} ended:")]
        self.until(told, f"it is told that {node} has ended")
        assert f"exit status: {NAME_LOST}" in told()[-1] or "signal: 9" in told()[-1], self.logs()
        return True

    def get(self, node, path):
        with self.network.inside(node):
            return requests.get(f"http://127.0.0.1:{PORTS['http']}{path}", timeout=10).json()

    def shards(self, node):
        return {shard["shard"]: shard for shard in self.get(node, "/api/v1/shards")["shards"]}

    def coordinator(self):
        return json.loads((self.directory / "coordinator.address").read_text())["node"]

    def term(self):
        """Grows whenever a node begins to run the coordinator."""
        return json.loads((self.directory / "coordinator.address").read_text())["epoch"]

    def is_served(self, node):
        shards = self.shards(node)
        return set(shards) >= SERVICES and all(shard["state"] == "serving" for shard in shards.values())

    def serves_nothing(self, node, asked):
        """Whether another node knows that everything is served, and nothing by this one."""
        return self.is_served(asked) and all(shard["owner"] != node for shard in self.shards(asked).values())

    def redis(self, node, **options):
        client = redis.Redis(port=PORTS["keys"], socket_timeout=5, decode_responses=True, **options)
        with self.network.inside(node):
            client.ping()
        return client

    def tenants(self, node, database="postgres", **options):
        with self.network.inside(node):
            return psycopg.connect(host="127.0.0.1", port=PORTS["tenants"], user="postgres", dbname=database, connect_timeout=5, **options)

    def until(self, holds, what):
        wait_until(holds, what, self.logs)

    def comes_back(self, node):
        """The network is whole again: the node finds out what it has lost, and is started again."""
        self.network.heal(node)
        self.until(lambda: self.has_ended(node), f"{node} finds out")
        self.is_there(node)

    def is_there(self, node):
        """Waits until a node serves, and notes which process it is by now."""
        self.until(lambda: self.is_served(node), f"{node} is there again")
        self.pids[node] = self.get(node, "/api/v1/status")["pid"]

    def kill(self, node):
        os.kill(self.pids[node], signal.SIGKILL)

    def remove(self):
        """Ends all, of which nothing is left then."""
        self.process.send_signal(signal.SIGINT)
        try:
            assert self.process.wait(timeout=PATIENCE) == 0, self.logs()
        finally:
            self.process.kill()
        left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        assert f"{self.network.tag}-" not in left, left
