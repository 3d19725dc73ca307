"""Clusters over several machines: etcd and a bucket, and nodes that share nothing else. The machines are folders of this one."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

import boto3
import pytest
import requests

from conftest import ANY_PORTS, NODES, PATIENCE, SAVANNA, Cluster
from ports import free_port

BUCKET = "cluster"
ETCD_PASSWORD = "correct horse"


class Server:
    """A server that the nodes need, until it is stopped."""

    def __init__(self, command, is_ready):
        self.command, self.is_ready = command, is_ready
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE
        while not self.is_ready():
            assert self.process.poll() is None and time.monotonic() < deadline, self.command
            time.sleep(0.1)

    def restart(self):
        """Ends it as a crash does, and starts it again."""
        self.stop()
        self.start()

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        self.process.kill()
        self.process.wait()


def etcd(directory, signed=None):
    """
    An etcd of one member, and the address of its clients. With a folder of certificates it speaks TLS there to who shows one,
    and has the users `savanna`, who may use the records of clusters, and `nobody`.
    """
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed")
    client, plain, peer = (f"127.0.0.1:{free_port()}" for _ in range(3))
    urls = f"https://{client},http://{plain}" if signed else f"http://{client}"

    def is_ready():
        try:
            return requests.get(f"http://{plain if signed else client}/health", timeout=2).json()["health"] == "true"
        except requests.RequestException:
            return False

    command = ["etcd", "--data-dir", directory, "--name", "it", "--initial-cluster", f"it=http://{peer}", "--log-level", "error"]
    command += ["--listen-client-urls", urls, "--advertise-client-urls", urls]
    command += ["--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}"]
    if signed:
        command += ["--cert-file", signed / "etcd.pem", "--key-file", signed / "etcd.key"]
        command += ["--trusted-ca-file", signed / "ca.pem", "--client-cert-auth", "--bcrypt-cost", "4", "--auth-token-ttl", "2"]
    server = Server(command, is_ready)
    if signed:
        add_users(f"http://{plain}/v3/auth")
    return server, client


def add_users(url):
    """As `docs/cluster.md` does with etcdctl."""

    def ask(what, **values):
        requests.post(f"{url}/{what}", json=values, timeout=PATIENCE).raise_for_status()

    prefix, end = (base64.b64encode(text).decode() for text in (b"/savanna/", b"/savanna0"))
    for role in ("root", "nodes"):
        ask("role/add", name=role)
    ask("role/grant", name="nodes", perm={"permType": "READWRITE", "key": prefix, "range_end": end})
    for user, role in (("root", "root"), ("savanna", "nodes"), ("nobody", None)):
        ask("user/add", name=user, password=ETCD_PASSWORD)
        if role:
            ask("user/grant", user=user, role=role)
    ask("enable")


def bucket():
    """A store with the API of S3, and the environment that tells clients of it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    def is_ready():
        try:
            urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT"), timeout=5)
            return True
        except OSError:
            return False

    server = Server([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], is_ready)
    environment = {"AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return server, {**environment, "AWS_REGION": "us-east-1"}


class Machines(Cluster):
    """Three nodes that join etcd, each with a folder of its own. With a folder of certificates, etcd asks for them and for a password."""

    def __init__(self, directory, *settings, signed=None):
        self.directory, self.settings = directory, settings
        directory.mkdir()
        self.etcd, self.member = etcd(directory / "etcd", signed)
        self.scheme = "etcds" if signed else "etcd"
        self.bucket, self.environment = bucket()
        if signed:
            self.settings += (f"cluster.etcd_ca={signed / 'ca.pem'}", "cluster.etcd_user=savanna")
            self.settings += (f"cluster.etcd_cert={signed / 'node.pem'}", f"cluster.etcd_key={signed / 'node.key'}")
            self.environment["SAVANNA_ETCD_PASSWORD"] = ETCD_PASSWORD
        self.secret = directory / "secret"
        self.secret.touch(0o600)
        self.secret.write_text(os.urandom(32).hex())
        self.processes, self.ports = {}, {}
        for name in NODES:
            self.begin(name)
        for name in NODES:
            self.wait_for(name)

    def command(self, name, join=None, store=f"s3://{BUCKET}/data", secret=None, settings=()):
        words = [SAVANNA]
        defaults = ("keys.threads=1", "tenants.threads=1", "cluster.nodes=3", *self.settings)
        files = (f"cluster.secret_file={secret or self.secret}", *([f"cluster.store={store}"] if store else []))
        for setting in (*defaults, *files, *settings):
            words += ["--set", setting]
        words += ["node", "--join", join or f"{self.scheme}://{self.member}/it", "--name", name, "--data-dir", self.directory / name]
        return [*words, *ANY_PORTS, "--output", "json"]

    def begin(self, name, **options):
        """Starts a node's process."""
        log = open(self.directory / f"{name}.log", "a")
        environment = {**os.environ, **self.environment}
        command = self.command(name, **options)
        self.processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)

    def wait_for(self, name):
        """Waits until a node says where it listens."""
        line = self.processes[name].stdout.readline()
        assert line, self.logs()
        services = json.loads(line)["services"]
        self.ports[name] = {found["service"]: int(found["address"].rsplit(":", 1)[1]) for found in services if found["address"]}

    def refused(self, name, environment=None, **options):
        """Why a node does not join; a variable without a value is not in its environment."""
        environment = {**os.environ, **self.environment, **(environment or {})}
        environment = {variable: value for variable, value in environment.items() if value is not None}
        done = subprocess.run(self.command(name, **options), env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode != 0 and done.stdout == ""
        return done.stderr

    def logs(self):
        return "\n".join(f"--- {path.name}\n{path.read_text()[-6000:]}" for path in sorted(self.directory.glob("*.log")))

    def lose(self, name):
        """A machine is gone, with what is on its disk."""
        self.processes[name].kill()
        self.processes[name].wait()
        shutil.rmtree(self.directory / name)

    def replace(self, name, **options):
        """Another machine takes the place of one that is gone."""
        self.begin(name, **options)
        self.wait_for(name)
        self.until(lambda: self.is_served(name), f"{name} is there again")

    def living(self):
        return [name for name, process in self.processes.items() if process.poll() is None]

    def until_served(self, nodes):
        """Waits until all shards are served by some of these nodes, and they know it."""

        def is_served(node):
            shards = self.shards(node)
            return len(shards) > 3 and all(shard["state"] == "serving" and shard["owner"] in nodes for shard in shards.values())

        self.until(lambda: all(is_served(node) for node in nodes), f"{nodes} serve all")

    def s3(self):
        """A client of the store."""
        environment = self.environment
        keys = {"aws_access_key_id": environment["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": environment["AWS_SECRET_ACCESS_KEY"]}
        return boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"], region_name=environment["AWS_REGION"], **keys)

    def objects(self, prefix):
        """The names of the objects below a prefix."""
        pages = self.s3().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"data/{prefix}")
        return [found["Key"] for page in pages for found in page.get("Contents", [])]

    def stop(self):
        for name in self.living():
            self.processes[name].send_signal(signal.SIGINT)
        codes = {name: process.wait(timeout=PATIENCE) for name, process in self.processes.items()}
        self.kill()
        return codes

    def kill(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
        for server in (self.etcd, self.bucket):
            server.stop()
