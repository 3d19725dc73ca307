"""Anna's contention experiment in process: actors with private keys beside maps that threads share (bench/METHOD.md).

    bench/keys/contention.py [--rounds 7] [--threads 1 2] [--zipf 4 0.5] [--keys 1000000] [--operations 2000000] [--no-instructions]

Updates only, keys of 8 B and values of 1 KB, no network. The variants take turns, each in a process of its own; a round's ratio is
that of the variant's processor time to that of actors with one replica. Instructions are counted by valgrind, as the difference
of two sizes; valgrind runs one thread at a time, so that they do not show what threads wait for. For a larger machine say
`--threads 1 8 32`. Appends to bench/results/contention.jsonl and prints a table.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import record  # noqa: E402

VARIANTS = ("unsynchronised", "keyspace", "actors, 1 replica", "actors, 2 replicas", "actors, full",
            "sharded mutex", "dashmap", "papaya")  # fmt: skip
BESIDE = "actors, 1 replica"
# Keys and two numbers of operations under valgrind, which takes 50 times as long.
COUNTED_KEYS, COUNTED = 50_000, (300_000, 900_000)


def build():
    command = ["cargo", "bench", "--locked", "-p", "savanna-keys", "--bench", "contention", "--no-run",
               "--message-format", "json-render-diagnostics"]  # fmt: skip
    done = subprocess.run(command, cwd=record.ROOT, stdout=subprocess.PIPE, text=True, check=True)
    built = (json.loads(line) for line in done.stdout.splitlines())
    return next(each["executable"] for each in built if each.get("executable") and each["target"]["name"] == "contention")


def run(program, variant, threads, zipf, keys, operations, before=()):
    command = [*before, program, "--variant", variant, "--threads", str(threads), "--zipf", str(zipf), "--keys", str(keys),
               "--operations", str(operations)]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=True)


def instructions(program, variant, threads, zipf):
    """Per operation, of all threads."""
    valgrind = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--fair-sched=try")
    counts = []
    for operations in COUNTED:
        done = run(program, variant, threads, zipf, COUNTED_KEYS, operations, valgrind)
        counts.append(int(re.search(r"Collected : (\d+)", done.stderr)[1]))
    return (counts[1] - counts[0]) / (COUNTED[1] - COUNTED[0])


def variants(threads):
    """Two replicas are all where there are two threads, and there is but one where there is one."""
    return [name for name in VARIANTS if not ("2 replicas" in name and threads <= 2 or "full" in name and threads == 1)]


def compare(program, threads, zipf, options):
    names = variants(threads)
    rounds = []
    # After one that warms up.
    for number in range(options.rounds + 1 if options.rounds else 0):
        figures = {name: json.loads(run(program, name, threads, zipf, options.keys, options.operations).stdout) for name in names}
        if number > 0:
            rounds.append(figures)
    for name in names:
        figure = {"variant": name, "threads": threads, "zipf": zipf, "keys": options.keys, "operations": options.operations,
                  "rounds": options.rounds}  # fmt: skip
        if rounds:
            figure["cpu_ns"] = record.interval([each[name]["cpu_ns"] for each in rounds])
            figure["ratio"] = record.interval([each[name]["cpu_ns"] / each[BESIDE]["cpu_ns"] for each in rounds])
            figure["millions_per_second"] = record.interval([each[name]["millions_per_second"] for each in rounds])
        if not options.no_instructions:
            figure["instructions"] = instructions(program, name, threads, zipf)
        print(line(figure), flush=True)
        yield figure


def line(figure):
    """Of the table."""
    cells = [f"{figure['zipf']:g}", figure["threads"], figure["variant"]]
    if "cpu_ns" in figure:
        cpu, ratio = figure["cpu_ns"], figure["ratio"]
        cells += [f"{cpu['median']:.0f}", f"{cpu['low']:.0f}-{cpu['high']:.0f}", f"{ratio['median']:.2f}",
                  f"{ratio['low']:.2f}-{ratio['high']:.2f}", f"{figure['millions_per_second']['median']:.1f}"]  # fmt: skip
    else:
        cells += [""] * 5
    cells.append(f"{figure['instructions']:.0f}" if "instructions" in figure else "")
    return "| " + " | ".join(map(str, cells)) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="0 counts instructions only, which also a busy machine does right")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--zipf", type=float, nargs="+", default=[4.0, 0.5])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--operations", type=int, default=2_000_000)
    parser.add_argument("--no-instructions", action="store_true")
    options = parser.parse_args()
    if not options.no_instructions and not shutil.which("valgrind"):
        raise SystemExit("valgrind is not there: install it, or leave the instructions out with --no-instructions")
    where = record.circumstances(record.head(), "bench")
    program = build()
    print(f"{where['machine']}\ncommit {where['commit']}, {where['date']}, {options.rounds} rounds, {options.keys} keys\n")
    print("| Zipf | threads | variant | CPU ns | interval | ratio | interval | M/s | instructions |\n|---|---|---|---|---|---|---|---|---|")
    for zipf in options.zipf:
        for threads in options.threads:
            record.keep("contention", where, list(compare(program, threads, zipf, options)))


if __name__ == "__main__":
    main()
