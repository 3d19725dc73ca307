"""Processor time per operation on streams, HyperLogLogs and places, and memory per stream entry, beside Redis (bench/METHOD.md).

    bench/keys/by_type.py [--pairs 7] [--requests 200000] [--entries 1000000] [--peer redis-server]

As `run.py`: servers without persistence with one thread and core 0, redis-benchmark with 50 connections and another core, 1 and 64
requests per write. XADD writes to 1,000 streams that keep about 1,000 entries, PFADD to 1,000 HyperLogLogs; GEOSEARCH looks for the 10 nearest
of 10,000 places; XREADGROUP gives one consumer each entry of a stream that is made anew before, which is not counted. A pipeline of 64 gets
four times as many requests. Appends to bench/results/keys_types.jsonl and prints a table.
"""

import argparse
import random
import shutil
import subprocess

from run import CORES, build, compare, peer, record, savanna, version

COMMANDS = {
    "XADD": ["XADD", "stream:__rand_int__", "MAXLEN", "~", "1000", "*", "item", "tea", "amount", "__rand_int__"],
    "XREADGROUP": ["XREADGROUP", "GROUP", "workers", "amina", "COUNT", "1", "STREAMS", "orders", ">"],
    "PFADD": ["PFADD", "visitors:__rand_int__", "__rand_int__"],
    "GEOSEARCH": ["GEOSEARCH", "places", "FROMMEMBER", "place:__rand_int__", "BYRADIUS", "20", "km", "ASC", "COUNT", "10"],
}
# Of how many names __rand_int__ is one.
NAMES = {"XADD": 1_000, "XREADGROUP": 1, "PFADD": 1_000, "GEOSEARCH": 10_000}
BAR_AT_64 = 0.7


def request(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def send(server, requests):
    """Sends requests, 500 at a time, and waits for a marker behind them."""
    client, batch = server.connect(), []

    def flush():
        client.sendall(b"".join(batch) + request("ECHO", "end"))
        batch.clear()
        reply = b""
        while not reply.endswith(b"$3\r\nend\r\n"):
            reply = reply[-16:] + client.recv(1 << 16)

    for each in requests:
        batch.append(each)
        if len(batch) == 500:
            flush()
    flush()
    client.close()


def prepare(server, command, requests):
    """What the requests of a run find."""
    if command == "XREADGROUP":
        send(server, [request("DEL", "orders"), request("XGROUP", "CREATE", "orders", "workers", "0", "MKSTREAM")])
        send(server, (request("XADD", "orders", "*", "item", "tea", "amount", number) for number in range(requests)))
    elif command == "GEOSEARCH":
        chance = random.Random(7)
        places = ((chance.uniform(5, 15), chance.uniform(45, 55), f"place:{number:012}") for number in range(NAMES[command]))
        send(server, (request("GEOADD", "places", *place) for place in places))


def micros_per_operation(server, command, pipeline, requests):
    prepare(server, command, requests)
    before = server.cpu_seconds()
    subprocess.run(
        ["taskset", "-c", str(min(1, CORES - 1)), "redis-benchmark", "-p", str(server.port), "-c", "50", "-n", str(requests),
         "-P", str(pipeline), "-r", str(NAMES[command]), "-q", *COMMANDS[command]],
        check=True, capture_output=True,
    )  # fmt: skip
    return (server.cpu_seconds() - before) / requests * 1e6


def bytes_per_entry(start, entries):
    """The peak of a server with a stream of so many entries, less that of the empty one."""
    server = start()
    before = server.peak_bytes()
    send(server, (request("XADD", "orders", "*", "item", "tea", "amount", number) for number in range(entries)))
    after = server.peak_bytes()
    server.stop()
    return (after - before) / entries


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--peer", default=shutil.which("redis-server"))
    options = parser.parse_args()
    if not options.peer or not shutil.which("redis-benchmark"):
        raise SystemExit("expected a Redis to compare with, and redis-benchmark: install redis-server, or name one with --peer")
    binary, commit, profile = build()
    where = {**record.circumstances(commit, profile), "peer": version(options.peer), "pairs": options.pairs}
    print(f"{where['machine']}\n{where['peer']}\ncommit {commit}, {where['date']}, {options.pairs} pairs\n")
    print("| pipeline | command | ours, µs | theirs, µs | ratio | interval | bar | |\n|---|---|---|---|---|---|---|---|")
    results = []
    for pipeline in (1, 64):
        requests = options.requests * (4 if pipeline > 1 else 1)
        for command in COMMANDS:
            ours, theirs = savanna(binary, 1), peer(options.peer)
            figure = compare(ours, theirs, lambda server, c=command, p=pipeline, n=requests: micros_per_operation(server, c, p, n), options.pairs)
            ours.stop(), theirs.stop()
            ratio, bar = figure["ratio"], BAR_AT_64 if pipeline > 1 else None
            results.append({"what": "cpu", "pipeline": pipeline, "command": command, "requests": requests, "bar": bar, **figure})
            verdict = "" if bar is None else "met" if ratio["high"] <= bar else "missed"
            print(f"| {pipeline} | {command} | {figure['ours']:.3f} | {figure['theirs']:.3f} | {ratio['median']:.2f} "
                  f"| {ratio['low']:.2f}-{ratio['high']:.2f} | {bar or ''} | {verdict} |", flush=True)  # fmt: skip
    starts = (lambda: savanna(binary, 1), lambda: peer(options.peer))
    figure = compare(*starts, lambda start: bytes_per_entry(start, options.entries), options.pairs)
    results.append({"what": "memory of a stream", "entries": options.entries, "bar": 1.0, **figure})
    ratio = figure["ratio"]
    print(f"\nbytes per stream entry of two fields, {options.entries} entries: ours {figure['ours']:.0f}, theirs {figure['theirs']:.0f}, "
          f"ratio {ratio['median']:.2f}, {ratio['low']:.2f}-{ratio['high']:.2f}")  # fmt: skip
    record.keep("keys_types", where, results)


if __name__ == "__main__":
    main()
