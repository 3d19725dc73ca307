"""Processor time per operation, and memory per key, of the keys service beside Redis or Valkey (bench/METHOD.md).

    bench/keys/run.py [--pairs 7] [--requests 300000] [--keys 1000000] [--peer redis-server]

Builds `keys_server` and measures it; KEYS_SERVER names another one, whose commit is then not known. Both servers run without
persistence, with keys of 16 and values of 64 bytes. redis-benchmark has 50 connections and a core of its own if there is one that the
server does not have; a server with one thread has core 0, one with two has both 0 and 1. Runs are interleaved; ratios are those of
pairs. A pipeline of 64 gets eight times as many requests. Memory is the peak of a server that was just started. Appends to
bench/results/keys.jsonl and prints a table.
"""

import argparse
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import record  # noqa: E402

NAMES = 100_000
CORES = os.cpu_count()
# What a figure must be at most (docs/design/0003-keys.md): threads, pipeline, command.
BARS = {
    (1, 1, "GET"): 0.85, (1, 1, "SET"): 0.85, (1, 64, "GET"): 0.45, (1, 64, "SET"): 0.60,
    (2, 1, "GET"): 1.0, (2, 1, "SET"): 1.0, (2, 64, "GET"): 0.6, (2, 64, "SET"): 0.6,
}  # fmt: skip


def build():
    """The server to be measured, its commit, and its build profile."""
    return record.build("KEYS_SERVER", "savanna-resp", "keys_server")


class Server:
    """A server on cores of its own."""

    def __init__(self, cores, command):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            ["taskset", "-c", cores, *command, "--port", str(self.port)],
            cwd=self.folder.name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while True:
            try:
                self.connect().close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{' '.join(map(str, command))} does not answer") from None
                time.sleep(0.05)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port))

    def cpu_seconds(self):
        """What the scheduler gave to all its threads, in nanoseconds' resolution."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def peak_bytes(self):
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def savanna(binary, threads):
    return Server("0" if threads == 1 else "0,1", [binary, "--threads", str(threads)])


def peer(binary):
    return Server("0", [binary, "--save", "", "--appendonly", "no"])


def micros_per_operation(server, client_core, command, pipeline, requests):
    before = server.cpu_seconds()
    subprocess.run(
        ["taskset", "-c", str(client_core), "redis-benchmark", "-p", str(server.port), "-c", "50", "-n", str(requests), "-P", str(pipeline),
         "-d", "64", "-r", str(NAMES), "-t", command.lower(), "-q"],
        check=True, capture_output=True,
    )  # fmt: skip
    return (server.cpu_seconds() - before) / requests * 1e6


def fill(server, keys, size=64):
    """SETs of `key:000000000000` and so on, with values of so many bytes."""
    client = server.connect()
    replies = 0
    for first in range(0, keys, 500):
        numbers = range(first, min(first + 500, keys))
        client.sendall(b"".join(b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$%d\r\n%0*d\r\n" % (n, size, size, n) for n in numbers))
        replies += len(numbers) * len(b"+OK\r\n")
        while replies > 0:
            replies -= len(client.recv(1 << 16))
    client.close()


def bytes_per_key(start, keys):
    """The peak of a server with so many keys, less that of the empty one."""
    server = start()
    before = server.peak_bytes()
    fill(server, keys)
    after = server.peak_bytes()
    server.stop()
    return (after - before) / keys


def compare(ours, theirs, measure, pairs):
    """Runs both in turns, after a warm-up of each."""
    measure(ours), measure(theirs)
    figures = [(measure(ours), measure(theirs)) for _ in range(pairs)]
    return {
        "ours": statistics.median(a for a, _ in figures),
        "theirs": statistics.median(b for _, b in figures),
        "ratio": record.interval([a / b for a, b in figures]),
    }


def version(binary):
    return subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--requests", type=int, default=300_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--peer", default=shutil.which("valkey-server") or shutil.which("redis-server"))
    options = parser.parse_args()
    if not options.peer or not shutil.which("redis-benchmark"):
        raise SystemExit("expected a Redis or Valkey to compare with, and redis-benchmark: install redis-server, or name one with --peer")
    binary, commit, profile = build()
    where = {**record.circumstances(commit, profile), "peer": version(options.peer), "pairs": options.pairs}
    print(f"{where['machine']}\n{where['peer']}\ncommit {commit}, {where['date']}, {options.pairs} pairs\n")
    print("| threads | pipeline | command | ours, µs | theirs, µs | ratio | interval | bar | |\n|---|---|---|---|---|---|---|---|---|")
    results = []
    for threads in (1, 2):
        ours, theirs = savanna(binary, threads), peer(options.peer)
        client_core = min(threads, CORES - 1)
        for server in (ours, theirs):
            fill(server, NAMES)
        for pipeline in (1, 64):
            for command in ("GET", "SET"):
                requests = options.requests * (8 if pipeline > 1 else 1)

                def measure(server, command=command, pipeline=pipeline, requests=requests):
                    return micros_per_operation(server, client_core, command, pipeline, requests)

                figure = compare(ours, theirs, measure, options.pairs)
                bar, ratio = BARS[threads, pipeline, command], figure["ratio"]
                results.append({"what": "cpu", "threads": threads, "pipeline": pipeline, "command": command,
                                "requests": requests, "bar": bar, **figure})  # fmt: skip
                print(f"| {threads} | {pipeline} | {command} | {figure['ours']:.3f} | {figure['theirs']:.3f} | {ratio['median']:.2f} "
                      f"| {ratio['low']:.2f}-{ratio['high']:.2f} | {bar} | {'met' if ratio['high'] <= bar else 'missed'} |", flush=True)  # fmt: skip
        ours.stop(), theirs.stop()
    starts = (lambda: savanna(binary, 1), lambda: peer(options.peer))
    figure = compare(*starts, lambda start: bytes_per_key(start, options.keys), options.pairs)
    results.append({"what": "memory", "keys": options.keys, "bar": 1.0, **figure})
    ratio = figure["ratio"]
    print(f"\nbytes per key of 16 B with a value of 64 B, {options.keys} keys: ours {figure['ours']:.0f}, theirs {figure['theirs']:.0f}, "
          f"ratio {ratio['median']:.2f}, {ratio['low']:.2f}-{ratio['high']:.2f}")  # fmt: skip
    record.keep("keys", where, results)


if __name__ == "__main__":
    main()
