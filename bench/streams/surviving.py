"""What it costs that a query outlives its process: Nexmark's queries into files, with records of epochs and with snapshots, beside none of it (bench/METHOD.md).

    bench/streams/surviving.py [--pairs 7] [--snapshot-interval 1s] [--binary target/release/savanna] [q0 q5 q8]

The same events come from the generator in the process and go to files of CSV on a local disk:

    off        the query has no name, and ends with its process
    records    it has one: each epoch is recorded and flushed before its rows count
    snapshots  and its state is kept every --snapshot-interval

The three take turns, each run in a node that was just started, at two sizes; what is compared is the node's processor time per event between them. The generator's own
time, which is the same in all, is told by the engine and taken away, so that a cost is not made small by it. The bar: at most 10 % more than `off`.
Appends to bench/results/streams_surviving.jsonl.
"""

import argparse
import json
import pathlib
import statistics
import subprocess

from nodes import Run, nexmark, query, record

ARMS = ("off", "records", "snapshots")
BAR = 1.10
# Events in millions: seconds of work between the two.
SIZES = {"q0": (1, 9), "q5": (2, 22), "q8": (2, 62)}


def statements(name, arm, events, folder, interval):
    columns, insert = query(name)
    yield from nexmark(events)
    yield f"CREATE TABLE written ({columns}) WITH ('connector' = 'file', 'path' = '{folder}', 'format' = 'csv')"
    if arm != "off":
        yield f"SET 'query.name' = '{name}'"
    if arm == "snapshots":
        yield f"SET 'snapshot-interval' = '{interval}'"
    yield insert


def cpu_seconds(name, arm, events, options):
    with Run(options.binary) as run:
        return run.to_its_end(*statements(name, arm, events, run.directory / "written", options.snapshot_interval))[0]


def generator_seconds(name, events, options):
    """Processor time of the generator alone, for so many events."""
    command = [options.binary, "nexmark", "run", "--query", name, "--events", str(events), "--output", "json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["generator_cpu_seconds"]


def measure(name, options):
    small, large = (int(millions * 1e6 * options.scale) for millions in SIZES[name])
    rounds, generator = {arm: [] for arm in ARMS}, []
    for number in range(options.pairs):
        generator.append((generator_seconds(name, large, options) - generator_seconds(name, small, options)) / (large - small))
        for arm in ARMS if number % 2 == 0 else ARMS[::-1]:
            rounds[arm].append((cpu_seconds(name, arm, large, options) - cpu_seconds(name, arm, small, options)) / (large - small))
    own = statistics.median(generator)
    ratios = {arm: record.interval([(ours - own) / (off - own) for ours, off in zip(rounds[arm], rounds["off"], strict=True)]) for arm in ARMS[1:]}
    nanoseconds = {arm: statistics.median(rounds[arm]) * 1e9 for arm in ARMS}
    return {"query": name, "sizes": [small, large], "nanoseconds": nanoseconds, "generator_nanoseconds": own * 1e9, "ratios": ratios}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--snapshot-interval", default="1s")
    parser.add_argument("--scale", type=float, default=1, help="times the usual numbers of events")
    parser.add_argument("--binary", type=pathlib.Path, help="in place of a release build that is made")
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    parser.add_argument("queries", nargs="*", default=list(SIZES), metavar="QUERY")
    options = parser.parse_args()
    options.binary, commit, profile = record.savanna(options.binary)
    where = {**record.circumstances(commit, profile), "pairs": options.pairs, "snapshot_interval": options.snapshot_interval}
    print(f"{where['machine']}\ncommit {commit}, {where['date']}, {options.pairs} pairs\n")
    print("| query | off, ns an event | of these the generator | what | ns | times off, without the generator | interval | bar |\n|---|---|---|---|---|---|---|---|")
    for name in options.queries:
        figures = measure(name, options)
        for arm in ARMS[1:]:
            ratio, ns = figures["ratios"][arm], figures["nanoseconds"]
            print(f"| {name} | {ns['off']:.0f} | {figures['generator_nanoseconds']:.0f} | {arm} | {ns[arm]:.0f} | {ratio['median']:.2f} | {ratio['low']:.2f}-{ratio['high']:.2f} "
                  f"| {'met' if ratio['high'] <= BAR else 'missed'} |", flush=True)  # fmt: skip
        if not options.dry:
            record.keep("streams_surviving", where, [figures])


if __name__ == "__main__":
    main()
