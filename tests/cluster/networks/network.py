"""Three nodes, each in a network namespace of its own: what one hears of another can be cut and slowed down. Needs root."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time

import psycopg
import redis
import requests

from conftest import NODES, PATIENCE, SAVANNA, SERVICES

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
PORTS = {"http": 8080, "pgwire": 5434, "keys": 6380, "tenants": 5433}
# What a process ends with that is no longer its node.
NAME_LOST = 3


def run(*command):
    subprocess.run([str(word) for word in command], check=True, timeout=60)


class Network:
    """A bridge, and a namespace for each node with a link to it."""

    def __init__(self):
        self.tag = f"sv{os.getpid() % 100_000}"
        try:
            self.make()
        except BaseException:
            self.remove()
            raise

    def make(self):
        run("ip", "link", "add", self.tag, "type", "bridge")
        run("ip", "link", "set", self.tag, "up")
        for node in NODES:
            name, link = self.namespace(node), self.link(node)
            run("ip", "netns", "add", name)
            run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", link, "master", self.tag)
            run("ip", "link", "set", link, "up")
            inside = ["ip", "-n", name]
            run(*inside, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            run(*inside, "link", "set", "eth0", "up")
            run(*inside, "link", "set", "lo", "up")

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

    def remove(self):
        for node in NODES:
            subprocess.run(["ip", "netns", "del", self.namespace(node)], check=False)
        subprocess.run(["ip", "link", "del", self.tag], check=False)


def enter(namespace):
    if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class NetworkedCluster:
    """Nodes that are started again when they have lost their names, as whoever runs them would do."""

    def __init__(self, directory, *settings):
        self.directory, self.settings = directory, settings
        self.network = Network()
        self.processes = {}
        try:
            for node in NODES:
                self.start(node)
            self.until(lambda: all(self.is_served(node) for node in NODES), "all nodes serve")
        except BaseException:
            self.remove()
            raise

    def start(self, node):
        command = ["ip", "netns", "exec", self.network.namespace(node), SAVANNA, "node", "--join", self.directory, "--name", node]
        wanted = (f"cluster.address={self.network.address(node)}", "cluster.nodes=3", "keys.threads=1", "tenants.threads=1")
        for setting in (*wanted, *self.settings):
            command += ["--set", setting]
        with open(self.log(node), "a") as log:
            self.processes[node] = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)

    def log(self, node):
        return self.directory.parent / f"{self.directory.name}-{node}.log"

    def logs(self):
        return "\n".join(f"--- {node}\n{self.log(node).read_text()[-6000:]}" for node in NODES)

    def has_ended(self, node):
        """Whether the process has found out that it is no longer the node."""
        code = self.processes[node].poll()
        assert code in (None, NAME_LOST), self.logs()
        return code is not None

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
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                if holds():
                    return
            except (requests.RequestException, KeyError, ValueError):
                pass
            time.sleep(0.1)
        raise AssertionError(f"expected that {what}\n{self.logs()}")

    def kill(self, node):
        self.processes[node].kill()
        self.processes[node].wait()

    def remove(self):
        for process in self.processes.values():
            process.send_signal(signal.SIGKILL)
            process.wait()
        self.network.remove()
