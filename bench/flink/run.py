"""Nexmark queries in Savanna and in Flink over the same events: CPU time of the whole process, by the difference of two sizes.

    python bench/flink/run.py [--pairs 7] [--parallelism 1] [--state hashmap] [--mode serverless] [QUERY ..]

The runs of the two systems are interleaved; the ratio is taken pair by pair and printed as the median and the interval from
the second-lowest to the second-highest. Needs a JDK 17 and Maven; Flink comes from Maven Central.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SAVANNA = pathlib.Path(os.environ.get("BINARY", TARGET / "release" / "savanna"))
SEED = 1

# The two sizes in millions of events: of Savanna, then of Flink, which takes much longer for each. Flink's smaller one is
# several seconds of work, so that what it compiles while it runs is compiled before the difference begins.
SIZES = {
    "q0": ((4, 44), (2, 8)), "q1": ((4, 44), (2, 8)), "q2": ((4, 84), (2, 8)), "q5": ((4, 44), (0.5, 1.5)),
    "q7": ((4, 44), (0.5, 1.5)), "q8": ((4, 84), (1, 3)), "q11": ((4, 44), (0.5, 2)), "q12": ((4, 84), (1, 4)),
    "q14": ((4, 44), (2, 8)), "q21": ((2, 12), (1, 4)), "q22": ((4, 24), (2, 6)),
}

ARCHIVE = HERE / "target" / "classes.jsa"
JVM = [
    "java", "-Xms3g", "-Xmx3g", "-XX:+UseParallelGC",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED"
      for package in ("java.lang", "java.net", "java.io", "java.nio", "java.text", "java.time", "java.util",
                      "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks", "sun.nio.ch")),
]


def build():
    """Compiles the table source and returns the class path. Writes an archive of loaded classes, which spares Flink a third
    of its start-up."""
    subprocess.run(["mvn", "-q", "-B", "-f", HERE / "pom.xml", "process-classes"], check=True)
    jar = HERE / "target" / "source.jar"
    subprocess.run(["jar", "--create", "--file", jar, "-C", HERE / "target" / "classes", "."], check=True)
    classpath = f"{jar}:{(HERE / 'target/classpath').read_text()}"
    ARCHIVE.unlink(missing_ok=True)
    cpu_seconds([*JVM, f"-XX:ArchiveClassesAtExit={ARCHIVE}", *job(classpath, "q0", 1)])
    return classpath


def job(classpath, query, millions, parallelism=1, state="hashmap"):
    """The arguments of the virtual machine that run one query."""
    events = int(millions * 1_000_000)
    return ["-cp", classpath, "savanna.bench.Run", ROOT / "cli/nexmark" / f"{query}.sql", events, SEED, parallelism, state]


def cpu_seconds(command):
    """Runs a command; user and system time of its process, and its highest resident set in bytes."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        assert process.returncode == 0, output.read().decode()[-4000:]
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def savanna(query, millions, options):
    return cpu_seconds([
        SAVANNA, "nexmark", "run", "--query", query, "--events", int(millions * 1_000_000), "--seed", SEED,
        "--parallelism", options.parallelism, "--group-size", options.parallelism, "--mode", options.mode,
    ])


def flink(query, millions, options):
    arguments = job(options.classpath, query, millions, options.parallelism, options.state)
    return cpu_seconds([*JVM, f"-XX:SharedArchiveFile={ARCHIVE}", *arguments])


def rate(system, query, sizes, options):
    """Millions of events per CPU-second between the two sizes, and the highest resident set."""
    (small, _), (large, peak) = (system(query, size, options) for size in sizes)
    return (sizes[1] - sizes[0]) / (large - small), peak


def interval(values):
    values = sorted(values)
    low, high = (values[1], values[-2]) if len(values) > 3 else (values[0], values[-1])
    return {"median": statistics.median(values), "low": low, "high": high}


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
        ours, theirs = SIZES[query]
        savanna(query, ours[0], options)
        flink(query, theirs[0], options)
        pairs = [
            (rate(savanna, query, ours, options), rate(flink, query, theirs, options)) for _ in range(options.pairs)
        ]
        print(json.dumps({
            "query": query, "parallelism": options.parallelism, "state": options.state, "mode": options.mode,
            "pairs": options.pairs,
            "savanna": interval([a for (a, _), _ in pairs]), "flink": interval([b for _, (b, _) in pairs]),
            "ratio": interval([a / b for (a, _), (b, _) in pairs]),
            "savanna_peak_mb": max(peak for (_, peak), _ in pairs) / 1e6,
            "flink_peak_mb": max(peak for _, (_, peak) in pairs) / 1e6,
        }), flush=True)


if __name__ == "__main__":
    main()
