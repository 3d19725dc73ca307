"""Nexmark queries in Savanna and in Flink over the same events: CPU time of the whole process, by the difference of two sizes.

    python bench/flink/run.py [--pairs 7] [--parallelism 1] [--state hashmap] [--mode serverless] [QUERY ..]

Savanna runs each size in a process of its own. Flink runs all of a query's sizes in one process that was warmed up, so that
neither its start-up nor its compiling is counted. The two systems take turns; the ratio is taken pair by pair and printed as
the median and the interval from the second-lowest to the second-highest. Needs a JDK 17 and Maven; Flink comes from Maven
Central.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SAVANNA = pathlib.Path(os.environ.get("BINARY", TARGET / "release" / "savanna"))
SEED = 1

# The two sizes in millions of events, of Savanna and of Flink: several seconds of work between them.
SIZES = {
    "q0": ((4, 104), (10, 110)), "q1": ((4, 84), (10, 60)), "q2": ((4, 124), (10, 110)), "q5": ((4, 84), (1, 5)),
    "q7": ((4, 84), (1, 4)), "q8": ((4, 604), (5, 55)), "q11": ((4, 64), (1, 5)), "q12": ((4, 84), (2, 12)),
    "q14": ((4, 34), (5, 35)), "q21": ((1, 6), (2, 12)), "q22": ((2, 12), (4, 34)),
}
# How often Flink runs the smaller size before it is measured, and then once the larger one.
WARM_UPS = 3

JVM = [
    "java", "-Xms3g", "-Xmx3g", "-XX:+UseParallelGC",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED"
      for package in ("java.lang", "java.net", "java.io", "java.nio", "java.text", "java.time", "java.util",
                      "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks", "sun.nio.ch")),
]


def build():
    """Compiles the table source and returns the class path."""
    subprocess.run(["mvn", "-q", "-B", "-f", HERE / "pom.xml", "process-classes"], check=True, stdout=sys.stderr)
    return f"{HERE}/target/classes:{(HERE / 'target/classpath').read_text()}"


def rate(sizes, cpu_seconds):
    """Millions of events per CPU-second between two sizes."""
    small, large = sizes
    less, more = cpu_seconds(small), cpu_seconds(large)
    return (large - small) / (more - less)


class Savanna:
    def __init__(self, query, options):
        self.query, self.options, self.peak = query, options, 0

    def cpu_seconds(self, millions):
        """User and system time of a process that runs the query."""
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [SAVANNA, "nexmark", "run", "--query", self.query, "--events", str(int(millions * 1_000_000)),
                 "--seed", str(SEED), "--parallelism", str(self.options.parallelism),
                 "--group-size", str(self.options.parallelism), "--mode", self.options.mode],
                stdout=output, stderr=subprocess.STDOUT,
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            assert process.returncode == 0, output.read().decode()[-4000:]
        self.peak = max(self.peak, usage.ru_maxrss * 1024)
        return usage.ru_utime + usage.ru_stime


class Flink:
    def __init__(self, query, classpath, options):
        statements = ROOT / "cli/nexmark" / f"{query}.sql"
        arguments = [statements, SEED, options.parallelism, options.state]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*JVM, "-cp", classpath, "savanna.bench.Run", *map(str, arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
        )

    def cpu_seconds(self, millions):
        """User and system time of the process while it runs the query."""
        print(int(millions * 1_000_000), file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if found := re.match(r"cpu_seconds (\S+)", line):
                return float(found.group(1))
        self.log.seek(0)
        raise AssertionError(self.log.read().decode()[-4000:])

    def end(self):
        """Ends the process; its highest resident set in bytes."""
        self.process.stdin.close()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        assert self.process.returncode == 0
        return usage.ru_maxrss * 1024


def interval(values):
    values = sorted(values)
    low, high = (values[1], values[-2]) if len(values) > 3 else (values[0], values[-1])
    return {"median": statistics.median(values), "low": low, "high": high}


def compare(query, options):
    ours, theirs = SIZES[query]
    savanna, flink = Savanna(query, options), Flink(query, options.classpath, options)
    savanna.cpu_seconds(ours[0])
    for millions in [theirs[0]] * WARM_UPS + [theirs[1]]:
        flink.cpu_seconds(millions)
    pairs = [(rate(ours, savanna.cpu_seconds), rate(theirs, flink.cpu_seconds)) for _ in range(options.pairs)]
    return {
        "query": query, "parallelism": options.parallelism, "state": options.state, "mode": options.mode,
        "pairs": options.pairs,
        "savanna": interval([a for a, _ in pairs]), "flink": interval([b for _, b in pairs]),
        "ratio": interval([a / b for a, b in pairs]),
        "savanna_peak_mb": savanna.peak / 1e6, "flink_peak_mb": flink.end() / 1e6,
    }


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--pairs", type=int, default=7)
    arguments.add_argument("--parallelism", type=int, default=1)
    arguments.add_argument("--state", choices=["hashmap", "rocksdb"], default="hashmap")
    arguments.add_argument("--mode", choices=["serverless", "provisioned"], default="serverless")
    arguments.add_argument("queries", nargs="*", default=list(SIZES))
    options = arguments.parse_args()
    options.classpath = build()
    for query in options.queries:
        print(json.dumps(compare(query, options)), flush=True)


if __name__ == "__main__":
    main()
