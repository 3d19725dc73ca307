"""What the benchmarks of bench/cluster share: nodes on one core, and a client of the simple protocol on another."""

import argparse
import contextlib
import json
import os
import pathlib
import random
import selectors
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import record  # noqa: E402

SERVER_CORE = "0"
CLIENT_CORE = min(1, os.cpu_count() - 1)
SERVICES = ("http", "pgwire", "keys", "tenants")
PATIENCE = 60
ROWS = 1_000


def parser(text):
    """What all of these benchmarks can be told."""
    options = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--savanna", type=pathlib.Path, help="the program to be measured [default: target/release/savanna, which is built]")
    options.add_argument("--dry", action="store_true", help="keep nothing")
    return options


def say(text):
    print(text, file=sys.stderr, flush=True)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def cpu_seconds(*processes):
    """Of all threads of processes, also of those that have ended, in nanoseconds' resolution."""
    # The clock of a process, as clock_getcpuclockid(3) numbers it.
    return sum(time.clock_gettime((~process.pid << 3) | 2) for process in processes)


class Node:
    """A node on the core of servers."""

    def __init__(self, binary, folder, log, *words):
        self.ports = {service: free_port() for service in SERVICES}
        flags = [word for service, port in self.ports.items() for word in (f"--{service}-port", str(port))]
        # One core is enough for one thread of each service.
        flags += ["--set", "tenants.threads=1", "--set", "keys.threads=1", "--files", folder]
        self.log = log
        with open(log, "a") as file:
            self.process = subprocess.Popen(["taskset", "-c", SERVER_CORE, binary, *words, *flags], stdout=file, stderr=file)

    def cpu_seconds(self):
        return cpu_seconds(self.process)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['http']}{path}", timeout=10) as answer:
            return json.load(answer)

    def shards(self):
        return {shard["shard"]: shard for shard in self.get("/api/v1/shards")["shards"]}

    def is_serving(self):
        """Whether it answers, and everything has an owner."""
        assert self.process.poll() is None, f"a node ended:\n{self.log.read_text()[-4000:]}"
        with contextlib.suppress(OSError):
            Session(self.ports["tenants"]).close()
            socket.create_connection(("127.0.0.1", self.ports["keys"])).close()
            return all(shard["state"] == "serving" for shard in self.shards().values())
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()


class Folder:
    """A folder of nodes that share a directory, or of one that has it alone; all end with it."""

    def __init__(self, binary):
        self.binary = binary
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="bench-cluster-"))
        self.nodes = {}

    def alone(self):
        """`savanna dev`."""
        return self.add("dev", "dev", "--data-dir", self.path / "data")

    def join(self, *names, settings=()):
        """`savanna node --join` for each; they wait for each other."""
        for name in names:
            set_each = [word for setting in settings for word in ("--set", setting)]
            words = ("node", "--join", self.path / "data", "--name", name, "--cluster-port", "0", "--set", f"cluster.nodes={len(names)}")
            self.add(name, *words, *set_each)
        for node in self.nodes.values():
            until(node.is_serving, "everything is served")
        return [self.nodes[name] for name in names]

    def add(self, name, *words):
        node = self.nodes[name] = Node(self.binary, self.path, self.path / f"{name}.log", *words)
        if words[0] == "dev":
            until(lambda: socket_is_open(node.ports["tenants"]) and socket_is_open(node.ports["keys"]), "the node listens")
        return node

    def coordinator(self):
        """The node that runs the coordinator."""
        return json.loads((self.path / "data" / "coordinator.address").read_text())["node"]

    def make_databases(self, names):
        """Databases with a table of rows, and the name of the node that has each."""
        nodes, known, owners = list(self.nodes.values()), set(databases(self.any())), {}
        for number, name in enumerate(names):
            make_database(nodes[number % len(nodes)].ports["tenants"], name)
            until(lambda: len(databases(self.any())) > len(known), f"{name} is known")
            found = databases(self.any())
            [shard] = set(found) - known
            owners[name] = found[shard]["owner"]
            known.add(shard)
        return owners

    def any(self):
        return next(iter(self.nodes.values()))

    def cpu_seconds(self):
        return sum(node.cpu_seconds() for node in self.nodes.values())

    def remove(self):
        for node in self.nodes.values():
            node.kill()
        shutil.rmtree(self.path)


@contextlib.contextmanager
def folders(binary, count=1):
    """Folders of which nothing is left at the end."""
    made = [Folder(binary) for _ in range(count)]
    try:
        yield made
    finally:
        for folder in made:
            folder.remove()


def databases(node):
    """The shards of databases that have an owner, as a node knows them."""
    return {name: shard for name, shard in node.shards().items() if name.startswith("tenants/") and shard["owner"]}


def socket_is_open(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


def until(holds, what):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"expected that {what}, waited {PATIENCE} s")
        time.sleep(0.05)


class Session:
    """A connection of a client that speaks the simple protocol, and may send texts before earlier ones are answered."""

    def __init__(self, port, database="postgres"):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = b""
        # Texts that were sent and not answered.
        self.waiting = 1
        words = b"user\0postgres\0database\0" + database.encode() + b"\0\0"
        self.socket.sendall(struct.pack("!II", 8 + len(words), 196608) + words)
        try:
            self.wait()
        except BaseException:
            self.close()
            raise

    def send(self, texts):
        messages = [text.encode() + b"\0" for text in texts]
        self.socket.sendall(b"".join(b"Q" + struct.pack("!I", 4 + len(text)) + text for text in messages))
        self.waiting += len(messages)

    def receive(self):
        """Reads what has come; how many texts are answered by it."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server hung up")
        data, at, answered = self.unread + data, 0, 0
        while at + 5 <= len(data):
            end = at + 1 + int.from_bytes(data[at + 1 : at + 5], "big")
            if end > len(data):
                break
            kind = data[at]
            if kind == ord("Z"):
                answered += 1
            elif kind == ord("E"):
                raise ConnectionError(data[at + 5 : end].replace(b"\0", b" ").decode(errors="replace"))
            at = end
        self.unread = data[at:]
        self.waiting -= answered
        return answered

    def wait(self):
        """Reads until everything is answered."""
        while self.waiting:
            self.receive()

    def run(self, *texts):
        self.send(texts)
        self.wait()

    def close(self):
        self.socket.close()


def make_database(port, name):
    """A database with a table of rows."""
    with contextlib.closing(Session(port)) as session:
        session.run(f"CREATE DATABASE {name}")
    fill(port, name)


def fill(port, database="postgres"):
    with contextlib.closing(Session(port, database)) as session:
        session.run("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)", f"INSERT INTO t SELECT g, 0 FROM generate_series(1, {ROWS}) AS g")


STATEMENTS = {"SELECT": "SELECT n FROM t WHERE id = {}", "UPDATE": "UPDATE t SET n = n + 1 WHERE id = {}"}


def texts(kind, count):
    """Statements of a kind about any rows."""
    return [STATEMENTS[kind].format(random.randint(1, ROWS)) for _ in range(count)]


def run(sessions, kind, pipeline, count):
    """Runs so many statements, at least; each session sends as many at once as a pipeline has, and waits for their answers."""
    done, sent = 0, 0
    with selectors.DefaultSelector() as selector:
        for session in sessions:
            selector.register(session.socket, selectors.EVENT_READ, session)
            session.send(texts(kind, pipeline))
            sent += pipeline
        while done < sent:
            for key, _ in selector.select():
                session = key.data
                done += session.receive()
                if session.waiting == 0 and sent < count:
                    session.send(texts(kind, pipeline))
                    sent += pipeline
    return done


def count_for(seconds, measured):
    """How many statements take so long, by a run of some that also warms up."""
    began = time.monotonic()
    done = 0
    while time.monotonic() - began < seconds / 2:
        done += measured()
    return max(1, int(done / (time.monotonic() - began) * seconds))


def client_alone():
    """This process leaves the core of servers to them."""
    os.sched_setaffinity(0, {CLIENT_CORE})


def shown(interval, digits=2):
    return f"{interval['median']:.{digits}f} ({interval['low']:.{digits}f}-{interval['high']:.{digits}f})"


def verdict(is_met):
    return "met" if is_met else "missed"


def keep(name, options, where, results):
    if not options.dry:
        record.keep(name, where, results)
