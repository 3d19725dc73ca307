"""Processor time per operation, and memory per key, of the keys service beside Redis or Valkey (bench/METHOD.md).

    bench/keys/run.py [--pairs 7] [--requests 300000] [--keys 1000000] [--peer redis-server]

Both servers run without persistence, with keys of 16 and values of 64 bytes. redis-benchmark is pinned to core 1 and has 50
connections; a server with one thread is pinned to core 0, one with two to both. Runs are interleaved; ratios are those of pairs. A pipeline of 64 gets
eight times as many requests. Appends to bench/results/keys.jsonl and prints a table.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SAVANNA = pathlib.Path(os.environ.get("KEYS_SERVER", TARGET / "release" / "examples" / "keys_server"))
RESULTS = ROOT / "bench" / "results" / "keys.jsonl"
NAMES = 100_000
# What a figure must be at most (docs/design/0003-keys.md): threads, pipeline, command.
BARS = {
    (1, 1, "GET"): 0.85, (1, 1, "SET"): 0.85, (1, 64, "GET"): 0.45, (1, 64, "SET"): 0.60,
    (2, 1, "GET"): 1.0, (2, 1, "SET"): 1.0, (2, 64, "GET"): 0.6, (2, 64, "SET"): 0.6,
}  # fmt: skip


class Server:
    """A server on cores of its own."""

    def __init__(self, name, cores, command):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.name = name
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

    def resident_bytes(self):
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def savanna(threads):
    return Server(f"savanna {threads}", "0" if threads == 1 else "0,1", [SAVANNA, "--threads", str(threads)])


def peer(binary):
    return Server(pathlib.Path(binary).name, "0", [binary, "--save", "", "--appendonly", "no"])


def micros_per_operation(server, command, pipeline, requests):
    before = server.cpu_seconds()
    subprocess.run(
        ["taskset", "-c", "1", "redis-benchmark", "-p", str(server.port), "-c", "50", "-n", str(requests), "-P", str(pipeline),
         "-d", "64", "-r", str(NAMES), "-t", command.lower(), "-q"],
        check=True, capture_output=True,
    )  # fmt: skip
    return (server.cpu_seconds() - before) / requests * 1e6


def fill(server, keys):
    """SETs of `key:000000000000` and so on."""
    client = server.connect()
    replies = 0
    for first in range(0, keys, 1000):
        count = min(1000, keys - first)
        sent = b"".join(b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$64\r\n%064d\r\n" % (n, n) for n in range(first, first + count))
        client.sendall(sent)
        replies += count * len(b"+OK\r\n")
        while replies > 0:
            replies -= len(client.recv(1 << 16))
    client.close()


def bytes_per_key(server, keys):
    before = server.resident_bytes()
    fill(server, keys)
    return (server.resident_bytes() - before) / keys


def interval(ratios):
    ratios = sorted(ratios)
    low, high = (ratios[1], ratios[-2]) if len(ratios) > 3 else (ratios[0], ratios[-1])
    return {"median": statistics.median(ratios), "low": low, "high": high}


def compare(ours, theirs, measure, pairs):
    """Runs both in turns, after a warm-up of each."""
    measure(ours), measure(theirs)
    figures = [(measure(ours), measure(theirs)) for _ in range(pairs)]
    return {
        "ours": statistics.median(a for a, _ in figures),
        "theirs": statistics.median(b for _, b in figures),
        "ratio": interval([a / b for a, b in figures]),
    }


def version(binary):
    return subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def circumstances(options):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"), "commit": commit.stdout.strip(),
        "machine": f"{model}, {os.cpu_count()} cores, kernel {platform.release()}", "peer": version(options.peer),
        "pairs": options.pairs, "requests": options.requests,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--requests", type=int, default=300_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--peer", default=shutil.which("valkey-server") or shutil.which("redis-server"))
    options = parser.parse_args()
    where = circumstances(options)
    print(f"{where['machine']}\n{where['peer']}\ncommit {where['commit']}, {where['date']}, {options.pairs} pairs\n")
    print("| threads | pipeline | command | ours, µs | theirs, µs | ratio | interval | bar | |\n|---|---|---|---|---|---|---|---|---|")
    results = []
    for threads in (1, 2):
        ours, theirs = savanna(threads), peer(options.peer)
        for server in (ours, theirs):
            fill(server, NAMES)
        for pipeline in (1, 64):
            for command in ("GET", "SET"):
                requests = options.requests * (8 if pipeline > 1 else 1)

                def measure(server, command=command, pipeline=pipeline, requests=requests):
                    return micros_per_operation(server, command, pipeline, requests)

                figure = compare(ours, theirs, measure, options.pairs)
                bar, ratio = BARS[threads, pipeline, command], figure["ratio"]
                results.append({"what": "cpu", "threads": threads, "pipeline": pipeline, "command": command, "bar": bar, **figure})
                print(f"| {threads} | {pipeline} | {command} | {figure['ours']:.3f} | {figure['theirs']:.3f} | {ratio['median']:.2f} "
                      f"| {ratio['low']:.2f}-{ratio['high']:.2f} | {bar} | {'met' if ratio['high'] <= bar else 'missed'} |", flush=True)  # fmt: skip
        ours.stop(), theirs.stop()
    figures = []
    for server in (savanna(1), peer(options.peer)):
        figures.append(bytes_per_key(server, options.keys))
        server.stop()
    results.append({"what": "memory", "keys": options.keys, "ours": figures[0], "theirs": figures[1]})
    print(f"\nbytes per key of 16 B with a value of 64 B, {options.keys} keys: ours {figures[0]:.0f}, theirs {figures[1]:.0f}")
    RESULTS.parent.mkdir(exist_ok=True)
    with open(RESULTS, "a") as file:
        for result in results:
            file.write(json.dumps({**where, **result}) + "\n")


if __name__ == "__main__":
    main()
