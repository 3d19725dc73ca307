"""Processor time of bringing a file of Redis into the keys service, beside Redis that loads it (bench/METHOD.md).

    bench/keys/load.py [--pairs 7] [--keys 10000000] [--peer redis-server] [--savanna target/release/savanna]

Redis writes the file once: strings of 64 bytes. Ours is `savanna keys import` into an empty server; the importer and the server are counted.
Theirs is a Redis that starts on the file, less one that starts on nothing. Appends to bench/results/keys_load.jsonl and prints a table.
"""

import argparse
import pathlib
import resource
import shutil
import subprocess
import tempfile
import time

from run import Server, build, compare, fill, record, version


def ask(server, line):
    client = server.connect()
    client.sendall(line + b"\r\n")
    reply = client.recv(1 << 16)
    client.close()
    return reply


def wait_until_loaded(server):
    while not ask(server, b"PING").startswith(b"+PONG"):
        time.sleep(0.05)


def write_file(binary, keys, folder):
    """A file of Redis with so many keys."""
    server = Server("0", [binary, "--save", "", "--dir", str(folder)])
    fill(server, keys)
    client = server.connect()
    client.sendall(b"SAVE\r\n")
    assert client.recv(64).startswith(b"+OK")
    client.close()
    server.stop()
    return folder / "dump.rdb"


def ours(binary, savanna, file):
    server = Server("0", [binary, "--threads", "1"])
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["taskset", "-c", "1", str(savanna), "keys", "import", str(file), "--to", f"redis://127.0.0.1:{server.port}"]
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    importer = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
    spent = server.cpu_seconds() + importer
    server.stop()
    return spent


def theirs(binary, file):
    def start(*words):
        server = Server("0", [binary, "--save", "", *words])
        wait_until_loaded(server)
        spent = server.cpu_seconds()
        server.stop()
        return spent

    return start("--dir", str(file.parent)) - start()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--peer", default=shutil.which("redis-server"))
    parser.add_argument("--savanna", type=pathlib.Path)
    options = parser.parse_args()
    if not options.peer:
        raise SystemExit("expected a Redis to compare with: install redis-server, or name one with --peer")
    binary, commit, profile = build()
    savanna, _, _ = record.savanna(options.savanna)
    where = {**record.circumstances(commit, profile), "peer": version(options.peer), "pairs": options.pairs}
    with tempfile.TemporaryDirectory() as folder:
        file = write_file(options.peer, options.keys, pathlib.Path(folder))
        sides = (lambda: ours(binary, savanna, file), lambda: theirs(options.peer, file))
        figure = compare(*sides, lambda side: side(), options.pairs)
    ratio = figure["ratio"]
    print(f"{where['machine']}\n{where['peer']}\ncommit {commit}, {where['date']}, {options.pairs} pairs\n")
    print("| keys | ours, CPU-s | theirs, CPU-s | ratio | interval |\n|---|---|---|---|---|")
    print(f"| {options.keys} | {figure['ours']:.2f} | {figure['theirs']:.2f} | {ratio['median']:.2f} | {ratio['low']:.2f}-{ratio['high']:.2f} |")
    record.keep("keys_load", where, [{"what": "load of a file", "keys": options.keys, **figure}])


if __name__ == "__main__":
    main()
