"""Processor time per SET with a log, of the keys service beside Redis (bench/METHOD.md).

    bench/keys/durable.py [--pairs 7] [--requests 300000] [--peer redis-server]

As `run.py`, but both servers keep a log that is flushed about once a second (`appendfsync everysec`), and there is no
pipeline: one client that waits for each reply, and 50. Each server has core 0 and one thread; its helpers (Redis' flushing,
Savanna's log) are counted, and share the core. The client has the other core. Appends to bench/results/keys_durable.jsonl and
prints a table of CPU-seconds per million SETs.
"""

import argparse
import shutil
import subprocess

from run import NAMES, Server, build, compare, record, version

CLIENTS = (1, 50)


def savanna(binary):
    return Server("0", [binary, "--threads", "1", "--dir", "log", "--appendfsync", "everysec"])


def peer(binary):
    return Server("0", [binary, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"])


def seconds_per_million(server, clients, requests):
    before = server.cpu_seconds()
    subprocess.run(
        ["taskset", "-c", "1", "redis-benchmark", "-p", str(server.port), "-c", str(clients), "-n", str(requests), "-d", "64",
         "-r", str(NAMES), "-t", "set", "-q"],
        check=True, capture_output=True,
    )  # fmt: skip
    return (server.cpu_seconds() - before) / requests * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--requests", type=int, default=300_000)
    parser.add_argument("--peer", default=shutil.which("redis-server"))
    options = parser.parse_args()
    if not options.peer or not shutil.which("redis-benchmark"):
        raise SystemExit("expected a Redis to compare with, and redis-benchmark: install redis-server, or name one with --peer")
    binary, commit, profile = build()
    where = {**record.circumstances(commit, profile), "peer": version(options.peer), "pairs": options.pairs}
    print(f"{where['machine']}\n{where['peer']}\ncommit {commit}, {where['date']}, {options.pairs} pairs\n")
    print("| clients | ours, CPU-s per 1M SETs | theirs | ratio | interval |\n|---|---|---|---|---|")
    results = []
    for clients in CLIENTS:
        ours, theirs = savanna(binary), peer(options.peer)
        figure = compare(ours, theirs, lambda server, n=clients: seconds_per_million(server, n, options.requests), options.pairs)
        ours.stop(), theirs.stop()
        ratio = figure["ratio"]
        results.append({"what": "SET, everysec", "clients": clients, "requests": options.requests, **figure})
        print(f"| {clients} | {figure['ours']:.1f} | {figure['theirs']:.1f} | {ratio['median']:.2f} | {ratio['low']:.2f}-{ratio['high']:.2f} |",
              flush=True)  # fmt: skip
    record.keep("keys_durable", where, results)


if __name__ == "__main__":
    main()
