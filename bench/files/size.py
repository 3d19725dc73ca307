"""What many files cost the name node of files beside Hadoop's own: memory, a start, and a deletion (bench/METHOD.md).

    bench/files/size.py [--files 5000000] [--dry]

Both get so many files, empty and closed, 1,000 in a directory. Memory of a file is that of all beyond the first fifth, divided by their number: what a
process has without files, and tables that do not grow with them, is left out. Savanna's is its resident set, Hadoop's what is in the heap after a
collection. Then the process is killed and started again (Hadoop's has saved its names before, so that it reads no edits), and all files are deleted with
one call. Appends to bench/results/files_size.jsonl and prints a table.
"""

import argparse
import json
import subprocess
import sys
import time

from run import load
from systems import CLIENT, Hadoop, Savanna, build, jars, record

# Bytes of a file, and seconds of a start: at most.
BYTES_BAR, START_BAR = 150, 2


def fill(binary, server, first, count):
    print(f"{type(server).__name__}: files {first:,} to {first + count:,}", file=sys.stderr, flush=True)
    load(binary, server, "fill", first, count)
    server.settle()


def delete_all(binary, server):
    """Seconds to the answer."""
    words = [*CLIENT, binary, "--address", f"127.0.0.1:{server.port}", "--operation", "clear", "--count", "1", "--connections", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"deleting all files failed: {done.stderr[-2_000:]}")
    return json.loads(done.stdout)["seconds"]


def measure(binary, server, files):
    first = files // 5
    fill(binary, server, 0, first)
    before = server.memory()
    fill(binary, server, first, files - first)
    bytes = (server.memory() - before) / (files - first)
    server.save()
    server.kill()
    start, start_cpu = server.start(), server.cpu_seconds()
    answer = delete_all(binary, server)
    begun = time.monotonic()
    server.wait_until_gone()
    return {"system": type(server).__name__, "files": files, "bytes": bytes, "start_seconds": start, "start_cpu_seconds": start_cpu,
            "delete_seconds": answer, "gone_seconds": answer + time.monotonic() - begun}  # fmt: skip


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--files", type=int, default=5_000_000, help="how many (default 5000000)")
    options.add_argument("--dry", action="store_true", help="write nothing to bench/results")
    options = options.parse_args()
    binary, where = build()
    Hadoop.jars = jars()
    results = []
    for system in (Savanna, Hadoop):
        server = system()
        try:
            results.append(measure(binary, server, options.files))
            print(results[-1], file=sys.stderr, flush=True)
        finally:
            server.stop()
    print("| name node | files | bytes per file | start, s | its CPU, s | delete all: answer, s | all gone, s |\n|---|---|---|---|---|---|---|")
    for it in results:
        print("| {system} | {files:,} | {bytes:.0f} | {start_seconds:.2f} | {start_cpu_seconds:.2f} | {delete_seconds:.2f} | {gone_seconds:.1f} |".format(**it))
    own = results[0]
    print(f"\nbars: {BYTES_BAR} bytes {'met' if own['bytes'] <= BYTES_BAR else 'missed'}, {START_BAR} s {'met' if own['start_seconds'] <= START_BAR else 'missed'}")
    if not options.dry:
        record.keep("files_size", where, results)


if __name__ == "__main__":
    main()
