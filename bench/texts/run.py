"""A long text of SQL is answered or refused in 2 s, whatever is in it, and health is told meanwhile (bench/METHOD.md).

    bench/texts/run.py [--runs 3] [--only WORD] [--tenants-alone]

Each text is sent to both PostgreSQL ports of one node. A run's figure is the time to the end of the answer, on a connection of
its own; the bar is met when the slowest run of each text meets it. With --tenants-alone the example server of tenants is asked, which
is built in a fraction of the time."""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import psycopg

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "tests" / "tenants"))

import record  # noqa: E402
from test_long_texts import TEXTS  # noqa: E402

BAR_SECONDS = 2.0
# What does not end by then is cancelled and counted as that long.
GIVEN_UP_SECONDS = 60
SERVICES = ("http", "pgwire", "keys", "tenants")
# The ports that take SQL.
TABLE = {
    "pgwire": "CREATE TABLE t (id INT) WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv')",
    "tenants": "CREATE TABLE t (id int PRIMARY KEY)",
}
DATABASE = {"pgwire": "savanna_streams", "tenants": "postgres"}


class Node:
    """A node of its own in an empty directory."""

    def __init__(self, binary, directory):
        flags = [f"--{service}-port=0" for service in SERVICES]
        self.log = directory / "node.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([binary, "dev", "--data-dir", directory / "data", "--files", directory, *flags], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while len(self.ports()) < len(SERVICES):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the node does not listen:\n{self.log.read_text()}")
            time.sleep(0.1)

    def ports(self):
        """Where each service listens, as the node prints it."""
        found = {name: re.search(rf"{name}\b[^\n]*?127\.0\.0\.1:(\d+)", self.log.read_text()) for name in SERVICES}
        return {name: int(port.group(1)) for name, port in found.items() if port}

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)


class TenantsAlone:
    """The example server of tenants in an empty directory; it tells no health."""

    def __init__(self, binary, directory):
        with open(directory / "server.log", "w") as log:
            command = [binary, directory / "data", "127.0.0.1:0", "1"]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on"):
            raise SystemExit(f"the server does not listen:\n{(directory / 'server.log').read_text()}")
        self.port = int(line.rsplit(":", 1)[1])

    def ports(self):
        return {"tenants": self.port}

    def stop(self):
        self.process.communicate("stop\n", timeout=60)


class Health(threading.Thread):
    """Asks for the node's health all the time, and keeps the longest wait."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.url, self.longest, self.is_over = f"http://127.0.0.1:{port}/healthz", 0.0, False

    def run(self):
        while not self.is_over:
            began = time.monotonic()
            urllib.request.urlopen(self.url, timeout=60).read()
            self.longest = max(self.longest, time.monotonic() - began)
            time.sleep(0.05)


def timed(port, database, text):
    """Seconds to the end of the answer, and its SQLSTATE."""
    with psycopg.connect(host="127.0.0.1", port=port, dbname=database, user="postgres", autocommit=True) as connection:
        connection.execute("SELECT 1")
        timer = threading.Timer(GIVEN_UP_SECONDS, connection.cancel)
        timer.start()
        began = time.monotonic()
        result = connection.pgconn.exec_(text.encode())
        took = time.monotonic() - began
        timer.cancel()
        return took, (result.error_field(67) or b"00000").decode()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=3, help="runs of each text on each port [3]")
    arguments.add_argument("--only", default="", help="only texts whose name contains the word")
    arguments.add_argument("--tenants-alone", action="store_true", help="ask the example server of tenants only")
    given = arguments.parse_args()
    release = record.target() / "release"
    binary = pathlib.Path(os.environ.get("BINARY") or (release / "examples" / "tenants_server" if given.tenants_alone else release / "savanna"))
    profile = "release" if "release" in binary.parts else "debug"
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        (directory / "t.csv").write_text("id\n1\n2\n")
        node = (TenantsAlone if given.tenants_alone else Node)(binary, directory)
        ports = node.ports()
        asked = [port for port in TABLE if port in ports]
        for port in asked:
            timed(ports[port], DATABASE[port], TABLE[port].format(path=directory / "t.csv"))
        health = Health(ports["http"]) if "http" in ports else None
        if health:
            health.start()
        results = []
        for name, text in TEXTS.items():
            if given.only not in name:
                continue
            for port in asked:
                runs = [timed(ports[port], DATABASE[port], text) for _ in range(given.runs)]
                seconds = [took for took, _ in runs]
                result = {"text": name, "bytes": len(text), "port": port, "sqlstate": runs[-1][1],
                          "seconds": round(statistics.median(seconds), 3), "slowest": round(max(seconds), 3)}  # fmt: skip
                results.append(result)
                print(json.dumps(result), file=sys.stderr)
        if health:
            health.is_over = True
            health.join()
        node.stop()
    record.keep("texts", record.circumstances(record.head(), profile), results)
    missed = [result for result in results if result["slowest"] > BAR_SECONDS]
    for port in asked:
        of_port = [result for result in results if result["port"] == port]
        slowest = max(of_port, key=lambda result: result["slowest"])
        over = sum(result in missed for result in of_port)
        print(f"{port}: {len(of_port)} texts, {over} above {BAR_SECONDS} s, the slowest {slowest['slowest']} s ({slowest['text']})")
    if health:
        print(f"health: told after {health.longest:.3f} s at most")


if __name__ == "__main__":
    main()
