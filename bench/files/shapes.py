"""What a name node of files does as directories grow, and when names are missing in memory (bench/METHOD.md).

    bench/files/shapes.py [--files 1000000] [--dry]

Directories of 10 files to as many as there are: processor time to make and close a file, and to ask for one. Then a cache that has room for a tenth of the
names: files are asked for one at a time, 0 to 30 of a hundred of which are not in memory, with and without others who make files meanwhile, so that the
database is written while it is read. Single runs: shapes, and no figures to hold against a bar. Appends to bench/results/files_shapes.jsonl.
"""

import argparse
import json
import subprocess

from systems import CLIENT, Savanna, build, record

SIZES = [10, 100, 1_000, 10_000, 100_000, 1_000_000]
MISSES = [0, 1, 10, 30]


def words(binary, server, operation, count, *more):
    return [*CLIENT, binary, "--address", f"127.0.0.1:{server.port}", "--operation", operation, "--count", str(count), *map(str, more)]


def load(*arguments):
    return json.loads(subprocess.run(words(*arguments), check=True, capture_output=True, text=True).stdout)


def by_size(binary, files):
    print("| files of a directory | make and close, µs per call | its database, µs | ask, µs |\n|---|---|---|---|")
    for size in [size for size in SIZES if size <= files]:
        server, costs = Savanna(), []
        try:
            for operation in ("fill", "status"):
                before, before_database = server.cpu_seconds(), server.database_seconds()
                calls = load(binary, server, operation, files, "--per-directory", size)["calls"]
                server.settle()
                costs += [1e6 * (server.cpu_seconds() - before) / calls, 1e6 * (server.database_seconds() - before_database) / calls]
        finally:
            server.stop()
        print(f"| {size:,} | {costs[0]:.1f} | {costs[1]:.1f} | {costs[2]:.1f} |", flush=True)
        yield {"directory": size, "files": files, "fill": costs[0], "fill_database": costs[1], "status": costs[2]}


def by_misses(binary, files):
    server, hot = Savanna(cache=files // 10), files // 20
    print("\n| not in memory | others make files | p50, µs | p99, µs | p99.9, µs | longest, µs |\n|---|---|---|---|---|---|")
    try:
        load(binary, server, "fill", files)
        server.settle()
        first = files
        for percent in MISSES:
            for is_written in (False, True):
                load(binary, server, "status", hot)
                writer = None
                if is_written:
                    writer = subprocess.Popen(words(binary, server, "fill", files // 4, "--first", first), stdout=subprocess.DEVNULL)
                    first += files // 4
                one = ["--connections", 1, "--in-flight", 1, "--hot", hot, "--others", files - hot, "--percent", percent]
                took = load(binary, server, "status", 5_000, *one)
                if writer and writer.wait() != 0:
                    raise SystemExit("files could not be made")
                server.settle()
                print(f"| {percent} % | {'yes' if is_written else 'no'} | {took['p50']:,} | {took['p99']:,} | {took['p999']:,} | {took['longest']:,} |", flush=True)
                yield {"missing": percent, "is_written": is_written, "files": files, **took}
    finally:
        server.stop()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--files", type=int, default=1_000_000, help="how many (default 1000000)")
    options.add_argument("--dry", action="store_true", help="write nothing to bench/results")
    options = options.parse_args()
    binary, where = build()
    results = [*by_size(binary, options.files), *by_misses(binary, options.files)]
    if not options.dry:
        record.keep("files_shapes", where, results)


if __name__ == "__main__":
    main()
