"""How long a client waits at most while the log is rewritten, beside Redis, which forks (bench/METHOD.md).

    bench/keys/pause.py [--rounds 7] [--keys 1000000] [--size 1000] [--peer redis-server]

Fills both servers with keys whose values take `--size` bytes, both with an append-only log that is flushed every second. A client with a
core of its own then asks for one key after the other. It notes the longest wait in two seconds of rest, and while the log is
rewritten (`BGREWRITEAOF`). Servers take turns. Appends to bench/results/keys_pause.jsonl and prints a table.
"""

import argparse
import gc
import pathlib
import shutil
import statistics
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import record  # noqa: E402
import run  # noqa: E402


def ask(client, request):
    """Sends a request; gives the time until the whole reply, which ends a line, is there."""
    begin = time.perf_counter_ns()
    client.sendall(request)
    reply = client.recv(1 << 16)
    while not reply.endswith(b"\r\n"):
        reply += client.recv(1 << 16)
    return time.perf_counter_ns() - begin, reply


def is_rewriting(client):
    return b"aof_rewrite_in_progress:1" in ask(client, b"*2\r\n$4\r\nINFO\r\n$11\r\npersistence\r\n")[1]


def waits(client, keys, goes_on):
    """The waits of GETs in nanoseconds, of 1,000 at a time, as long as `goes_on`."""
    found, number = [], 0
    while goes_on():
        for _ in range(1000):
            number = (number + 7919) % keys
            found.append(ask(client, b"*2\r\n$3\r\nGET\r\n$16\r\nkey:%012d\r\n" % number)[0])
    return found


def measure(server, keys):
    """The longest wait at rest and during a rewrite, and the rewrite's time: in milliseconds."""
    with server.connect() as client:
        end = time.monotonic() + 2
        rest = waits(client, keys, lambda: time.monotonic() < end)
        begin = time.monotonic()
        # That the rewrite was begun is a part of what it costs.
        first, reply = ask(client, b"*1\r\n$12\r\nBGREWRITEAOF\r\n")
        assert reply.startswith(b"+"), reply
        during = [first, *waits(client, keys, lambda: is_rewriting(client))]
        seconds = time.monotonic() - begin
    during.sort()
    return {
        "rest": max(rest) / 1e6, "rewrite": during[-1] / 1e6, "rewrite_999": during[len(during) * 999 // 1000] / 1e6, "seconds": seconds,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--peer", default=shutil.which("valkey-server") or shutil.which("redis-server"))
    options = parser.parse_args()
    binary, commit, profile = run.build()
    where = {**record.circumstances(commit, profile), "peer": run.version(options.peer), "keys": options.keys, "size": options.size}
    commands = {
        "ours": [binary, "--threads", "1", "--dir", "log"],
        "theirs": [options.peer, "--save", "", "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"],
    }
    servers = {name: run.Server("0", command) for name, command in commands.items()}
    for server in servers.values():
        run.fill(server, options.keys, options.size)
        with server.connect() as client:
            while is_rewriting(client):
                time.sleep(0.1)
    gc.disable()
    figures = {name: [] for name in servers}
    for _ in range(options.rounds):
        for name, server in servers.items():
            figures[name].append(measure(server, options.keys))
    print(f"{where['machine']}\n{where['peer']}\ncommit {commit}, {where['date']}, {options.rounds} rounds\n")
    print("| | longest wait at rest, ms | during a rewrite | 99.9 % | worst of all rounds | rewrite, s |\n|---|---|---|---|---|---|")
    results = []
    for name, rounds in figures.items():
        median = {what: statistics.median(one[what] for one in rounds) for what in rounds[0]}
        worst = max(one["rewrite"] for one in rounds)
        results.append({"what": "pause", "server": name, **median, "worst": worst})
        print(f"| {name} | {median['rest']:.2f} | {median['rewrite']:.2f} | {median['rewrite_999']:.3f} | {worst:.2f} | {median['seconds']:.1f} |")
    for server in servers.values():
        server.stop()
    record.keep("keys_pause", where, results)


if __name__ == "__main__":
    main()
