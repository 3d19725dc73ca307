"""Processor time per call of the name node of files beside Hadoop's own (bench/METHOD.md).

    bench/files/run.py [--pairs 7] [--files 100000] [--dry]

Both serve the same calls of `files_load`, in turns: directories that are made, files that are made, made and closed, asked for, looked up, renamed and
deleted, each of so many files. Savanna has a PostgreSQL of its own, whose time is given beside, and counted for the files that are made. Then Hadoop's
NNThroughputBenchmark, unmodified, with 64 threads, counts the calls per second. Appends to bench/results/files.jsonl and prints two tables.
"""

import argparse
import contextlib
import json
import re
import statistics
import subprocess
import sys

from systems import CLIENT, Hadoop, Savanna, build, configuration, jars, record

# What is called, how many calls that is for a file, and by how many times less it has to cost than Hadoop's.
CASES = {"mkdirs": (1, 3), "create": (1, 3), "fill": (2, 3), "status": (1, 3), "open": (1, 3), "rename": (1, 3), "delete": (1, 3)}
# With the database's time.
CREATE_BAR = 2
THROUGHPUT = ["create", "mkdirs", "open", "fileStatus", "rename", "delete"]
THREADS = 64


def load(binary, server, operation, first, count):
    words = [*CLIENT, binary, "--address", f"127.0.0.1:{server.port}", "--operation", operation, "--first", str(first), "--count", str(count)]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def take_turn(binary, server, number, files):
    """Microseconds of the name node and of its database per call, and calls per second, of each case. Names are those of this turn."""
    first, figures = number * 3 * files, {}
    for operation, (calls, _) in CASES.items():
        at = {"create": first + 2 * files, "delete": first + files}.get(operation, first)
        count = 2 * files if operation == "fill" else files
        before, before_database = server.cpu_seconds(), server.database_seconds()
        seconds = load(binary, server, operation, at, count)["seconds"]
        server.settle()
        spent = [server.cpu_seconds() - before, server.database_seconds() - before_database]
        figures[operation] = [1e6 * each / (count * calls) for each in spent] + [count * calls / seconds]
    return figures


def throughput(server, operation, files):
    """Calls per second, as Hadoop's benchmark counts them."""
    settings = configuration(server.folder / "client", server.url, "INFO", **{"dfs.blocksize": 16, "dfs.namenode.fs-limits.min-block-size": 16})
    program = [*CLIENT, "java", "-Xmx4g", "-cp", f"{settings}:{Hadoop.jars}", "org.apache.hadoop.hdfs.server.namenode.NNThroughputBenchmark"]
    words = [*program, "-fs", server.url, "-op", operation, "-threads", str(THREADS), "-logLevel", "INFO"]
    words += ["-dirs", str(files), "-dirsPerDir", "1000"] if operation == "mkdirs" else ["-files", str(files), "-filesPerDir", "1000"]
    run = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    found = re.search(r"Ops per sec: ([\d.]+)", run.stdout + run.stderr)
    if run.returncode or not found:
        raise SystemExit(f"NNThroughputBenchmark {operation} failed: {(run.stdout + run.stderr)[-2_000:]}")
    return float(found[1])


def shown(ratio):
    return "{median:.2f} ({low:.2f} to {high:.2f})".format(**ratio)


def say(words):
    print(words, file=sys.stderr, flush=True)


def compare_calls(binary, options):
    pairs = []
    with contextlib.ExitStack() as stack:
        servers = [Savanna(), Hadoop()]
        for server in servers:
            stack.callback(server.stop)
        for number in range(-1, options.pairs):
            pair = [take_turn(binary, server, number + 1, options.files) for server in servers]
            say(f"{'warm-up' if number < 0 else f'pair {number + 1}'}: " + ", ".join(f"{name} {pair[0][name][0]:.1f} and {pair[1][name][0]:.1f} µs" for name in CASES))
            if number >= 0:
                pairs.append(pair)
    results = []
    print("| call | Savanna, µs | its database, µs | Hadoop, µs | Hadoop / Savanna | with the database | calls/s | Hadoop's | bar | |\n|---|---|---|---|---|---|---|---|---|---|")
    for name, (_, bar) in CASES.items():
        own, database, rate = (statistics.median(pair[0][name][at] for pair in pairs) for at in range(3))
        peer, _, peer_rate = (statistics.median(pair[1][name][at] for pair in pairs) for at in range(3))
        ratio = record.interval([pair[1][name][0] / pair[0][name][0] for pair in pairs])
        whole = record.interval([pair[1][name][0] / sum(pair[0][name][:2]) for pair in pairs])
        is_met = ratio["low"] >= bar and (name != "create" or whole["low"] >= CREATE_BAR)
        results.append({"call": name, "savanna": own, "database": database, "hadoop": peer, "ratio": ratio, "with_database": whole, "rate": rate,
                        "hadoop_rate": peer_rate, "bar": bar, "pairs": len(pairs), "files": options.files})  # fmt: skip
        print(f"| {name} | {own:.1f} | {database:.1f} | {peer:.1f} | {shown(ratio)} | {shown(whole)} | {rate:,.0f} | {peer_rate:,.0f} | {bar} | {'met' if is_met else 'missed'} |")
    return results


def compare_throughput(options):
    figures = {name: [] for name in THROUGHPUT}
    for number in range(-1, options.pairs):
        with contextlib.ExitStack() as stack:
            servers = [Savanna(), Hadoop()]
            for server in servers:
                stack.callback(server.stop)
            for name in THROUGHPUT:
                pair = [throughput(server, name, options.files) for server in servers]
                say(f"{'warm-up' if number < 0 else f'pair {number + 1}'}, NNThroughputBenchmark {name}: {pair[0]:,.0f} and {pair[1]:,.0f}/s")
                if number >= 0:
                    figures[name].append(pair)
    print("\n| NNThroughputBenchmark | Savanna, calls/s | Hadoop, calls/s | Savanna / Hadoop | bar | |\n|---|---|---|---|---|---|")
    results = []
    for name, pairs in figures.items():
        own, peer = (statistics.median(pair[at] for pair in pairs) for at in (0, 1))
        ratio = record.interval([own / peer for own, peer in pairs])
        results.append({"benchmark": name, "savanna": own, "hadoop": peer, "ratio": ratio, "bar": 1, "pairs": len(pairs), "files": options.files})
        print(f"| {name} | {own:,.0f} | {peer:,.0f} | {shown(ratio)} | 1 | {'met' if ratio['low'] >= 1 else 'missed'} |")
    return results


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=int, default=7)
    options.add_argument("--files", type=int, default=100_000, help="files of a case (default 100000)")
    options.add_argument("--only", choices=["calls", "throughput"], help="one of the two tables")
    options.add_argument("--dry", action="store_true", help="write nothing to bench/results")
    options = options.parse_args()
    binary, where = build()
    Hadoop.jars = jars()
    results = compare_calls(binary, options) if options.only != "throughput" else []
    results += compare_throughput(options) if options.only != "calls" else []
    if not options.dry:
        record.keep("files", where, results)


if __name__ == "__main__":
    main()
