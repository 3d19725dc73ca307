"""How long a recursive deletion takes until the last block is gone from the disk (bench/METHOD.md).

    bench/files/blocks.py [--files 1000000] [--dry]

Savanna's name node gets so many files of one block of 4 KiB, 1,000 in a directory, written by hdfs-native to its own data node, and deletes all of them
with one call. Then the replicas on the disk are counted each second. Appends to bench/results/files_blocks.jsonl and prints a table.
"""

import argparse
import os
import sys
import threading
import time

import hdfs_native
from systems import Savanna, build, record

BLOCK = b"b" * 4096
WRITERS = 16
IN_A_DIRECTORY = 1000


def write(url, numbers):
    client = hdfs_native.Client(url)
    for number in numbers:
        with client.create(f"/all/{number // IN_A_DIRECTORY}/{number}", hdfs_native.WriteOptions(replication=1)) as file:
            file.write(BLOCK)


def fill(server, files):
    client, done = hdfs_native.Client(server.url), 0
    for directory in range(-(-files // IN_A_DIRECTORY)):
        client.mkdirs(f"/all/{directory}", 0o755, True)
    while done < files:
        part = min(files - done, 20_000)
        writers = [threading.Thread(target=write, args=(server.url, range(done + at, done + part, WRITERS))) for at in range(WRITERS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        done += part
        print(f"{done:,} files", file=sys.stderr, flush=True)


def replicas(folder):
    """How many replicas are on the disk."""
    count = 0
    for base, _, names in os.walk(folder):
        count += sum(name.startswith("blk_") and not name.endswith(".meta") for name in names)
    return count


def measure(server, files):
    begun = time.monotonic()
    fill(server, files)
    seconds = time.monotonic() - begun
    server.settle()
    found = replicas(server.folder / "data")
    if found != files:
        raise SystemExit(f"expected {files} replicas on the disk, found {found}")
    cpu, begun = server.cpu_seconds(), time.monotonic()
    hdfs_native.Client(server.url).delete("/all", True)
    answer = time.monotonic() - begun
    while replicas(server.folder / "data"):
        time.sleep(1)
    gone = time.monotonic() - begun
    return {"files": files, "fill_seconds": seconds, "delete_seconds": answer, "blocks_gone_seconds": gone, "cpu_seconds": server.cpu_seconds() - cpu}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--files", type=int, default=1_000_000, help="how many (default 1000000)")
    options.add_argument("--dry", action="store_true", help="write nothing to bench/results")
    options = options.parse_args()
    _, where = build()
    server = Savanna()
    try:
        found = measure(server, options.files)
    finally:
        server.stop()
    print("| files | answer, s | last block gone, s | name node's CPU, s |\n|---|---|---|---|")
    print("| {files:,} | {delete_seconds:.2f} | {blocks_gone_seconds:.1f} | {cpu_seconds:.1f} |".format(**found))
    if not options.dry:
        record.keep("files_blocks", where, [found])


if __name__ == "__main__":
    main()
