"""Processor time per new order of TPC-C, tenants beside PostgreSQL 15 (bench/METHOD.md).

    bench/tenants/tpcc.py [--pairs 7] [--count 20000] [--warehouses 2] [--clients 8] [--isolation "read committed" serializable]

Runs go-tpc (built from the Go module proxy, bench/tenants/go-tpc) without thinking time: the whole mix, prepared statements, a server on core 0
and the client on another, both servers flushing their log at each commit. Each isolation level begins with tables of its own; runs have
`--count` transactions, servers take turns after a warm-up of each, ratios are those of pairs. What counts is the processor time of all
transactions, failed ones included, per new order that was committed. A transaction that fails (40001, 40P01) is not tried again; how many did is
printed. TPC-C's conditions of consistency are checked in ours at the end. Appends to bench/results/tenants_tpcc.jsonl and prints a table.
"""

import argparse
import json
import os
import statistics
import time

from go_tpc import LEVELS, GoTpc, build as build_client
from servers import CLIENT, PostgreSQL, Savanna, build, record

# What our processor time per new order must be at most of PostgreSQL's.
BAR = 1.0


class Terminals:
    """go-tpc beside a server, in a database of a level."""

    def __init__(self, program, server, level, options):
        self.database = level.replace(" ", "_")
        made = server.psql(f"CREATE DATABASE {self.database}")
        if made.returncode != 0:
            raise SystemExit(f"cannot create a database: {made.stderr}")
        self.server = server
        self.terminals = GoTpc(program, server.port, self.database, level, options.clients, options.warehouses)
        self.count = options.count

    def go_tpc(self, action, *words):
        try:
            return self.terminals(action, *words, before=CLIENT)
        except RuntimeError as error:
            raise SystemExit(str(error)) from error

    def prepare(self):
        self.go_tpc("prepare", "--no-check")
        self.server.psql("VACUUM ANALYZE", self.database)

    def run(self):
        """The server's microseconds per committed new order, new orders per minute, and how many of 1,000 transactions failed."""
        before = self.server.cpu_seconds()
        lines = self.go_tpc("run", "--count", str(self.count), "--ignore-error", "--silence", "--output", "json").splitlines()
        # Processes that end are counted when their parent has noticed.
        time.sleep(0.1)
        cpu = self.server.cpu_seconds() - before
        kinds, total = [json.loads(line) for line in lines if line.startswith("[")][-2:]
        counts = {kind["Operation"]: int(kind["Count"]) for kind in kinds}
        failed = sum(count for kind, count in counts.items() if kind.endswith("_ERR"))
        return cpu / counts["NEW_ORDER"] * 1e6, float(total[0]["tpmC"]), 1000 * failed / sum(counts.values())


def compare(terminals, pairs):
    """Runs both in turns."""
    for each in terminals:
        each.run()
    rounds = [[each.run() for each in terminals] for _ in range(pairs)]
    terminals[0].go_tpc("check")
    named = {}
    for name, place in (("ours", 0), ("theirs", 1)):
        for figure, index in (("", 0), ("_tpmc", 1), ("_failed", 2)):
            named[name + figure] = statistics.median(each[place][index] for each in rounds)
    return {**named, "ratio": record.interval([ours[0] / theirs[0] for ours, theirs in rounds])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--warehouses", type=int, default=2)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--isolation", nargs="+", choices=LEVELS, default=list(LEVELS))
    options = parser.parse_args()
    Savanna.binary, commit, profile = build()
    program = build_client(record.target() / "go-tpc")
    where = {**record.circumstances(commit, profile), "pairs": options.pairs, "warehouses": options.warehouses,
             "clients": options.clients, "count": options.count, "cores": os.cpu_count()}  # fmt: skip
    print(f"{where['machine']}\ncommit {commit}, {where['date']}, {options.pairs} pairs\n")
    print("| isolation | ours, µs per new order | theirs | ratio | interval | bar | | ours, tpmC | theirs | failed of 1,000: ours | theirs |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    servers = [Savanna(), PostgreSQL()]
    results = []
    for level in options.isolation:
        terminals = [Terminals(program, server, level, options) for server in servers]
        for each in terminals:
            each.prepare()
        figure = compare(terminals, options.pairs)
        results.append({"isolation": level, "bar": BAR, **figure})
        ratio = figure["ratio"]
        print(f"| {level} | {figure['ours']:.0f} | {figure['theirs']:.0f} | {ratio['median']:.2f} | {ratio['low']:.2f}-{ratio['high']:.2f} | {BAR} "
              f"| {'met' if ratio['high'] <= BAR else 'missed'} | {figure['ours_tpmc']:.0f} | {figure['theirs_tpmc']:.0f} "
              f"| {figure['ours_failed']:.1f} | {figure['theirs_failed']:.1f} |", flush=True)  # fmt: skip
    for server in servers:
        server.stop()
    record.keep("tenants_tpcc", where, results)


if __name__ == "__main__":
    main()
