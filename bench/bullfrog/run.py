"""TPC-C while its schema changes: throughput and latency over time of bullfrog and of other ways (bench/METHOD.md).

    bench/bullfrog/run.py [--changes split totals joined] [--arms none bullfrog eager copy] [--rate 400] ..

Three changes of schema:
    split   the customers become two tables, private and public ones
    totals  the amount of each order gets a table of its own, beside the order lines
    joined  order lines and stock, joined by item, become one table, beside the stock

Four ways:
    none      no change, once before and once after the others, to see how far two runs of the same differ
    bullfrog  this project's extension: the application switches at once, rows move as they are needed and in the background
    eager     one transaction locks the old tables, copies all rows and ends the old schema; the application waits
    copy      triggers keep the new tables up to date while batches fill them, then the application switches

Builds the extension and the client (savanna-bench-bullfrog) in release. A server of PostgreSQL 15 in a temporary directory has core 0 (all
of its processes), the client core 1. Each run begins with a copy of the same tables, read into memory; the load goes on for --before
seconds, then the change is submitted, and the window begins. A rate of 0 is the closed loop: each terminal runs one transaction after the
other, as many as the server can do. With any other rate transactions arrive at random moments, whatever the server does. Afterwards the
conditions of TPC-C are checked. Appends a line per run to bench/results/bullfrog.jsonl; bench/plot.py draws them.
"""

import argparse
import json
import pathlib

from tables import EXTENSION_LOADED, Tables, add_options, prepare, record

ARMS = ["none", "bullfrog", "eager", "copy"]


def run(tables, change, arm, arguments):
    """One run on fresh tables."""
    tables.start(EXTENSION_LOADED if arm == "bullfrog" else {})
    report = json.loads(tables.client("run", *(["--change", change, "--arm", arm] if change else []), *arguments))
    is_switched = any(name == "switched" for name, _ in report["events"])
    tables.client("check", *(["--change", change] if is_switched else []))
    tables.server.stop()
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", nargs="+", default=["split"], choices=["split", "totals", "joined"])
    parser.add_argument("--arms", nargs="+", default=ARMS, choices=ARMS)
    parser.add_argument("--rate", type=float, default=0, help="transactions per second; 0: as many as can be done")
    parser.add_argument("--warehouses", type=int, default=4)
    parser.add_argument("--terminals", type=int, default=16)
    parser.add_argument("--before", type=int, default=10)
    parser.add_argument("--window", type=int, default=120)
    parser.add_argument("--options", help="further arguments of bullfrog.migrate, as \"granularity => 'tuple'\"")
    parser.add_argument("--finish", action="store_true", help="bullfrog ends the old schema in the window, too")
    add_options(parser)
    options = parser.parse_args()
    prepare(options)
    tables = Tables(options.warehouses, options.data)
    where = record.circumstances(record.head(), "release")
    shape = {"warehouses": options.warehouses, "terminals": options.terminals, "before": options.before, "window": options.window}
    arguments = [word for name, value in shape.items() for word in (f"--{name}", value)]
    arguments += ["--rate", options.rate] if options.rate else []
    arguments += ["--options", options.options] if options.options else []
    arguments += ["--finish"] if options.finish else []
    none = [(None, "none")] if "none" in options.arms else []
    runs = [*none, *((change, arm) for change in options.changes for arm in options.arms if arm != "none"), *none]
    heads = ["change", "way", "done", "per s", "p50 ms", "p99 ms", "max ms", "waiting", "server µs", "server busy", "client busy",
             "events"]  # fmt: skip
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    try:
        for change, arm in runs:
            report = run(tables, change, arm, arguments)
            latency, cores = report["latency"], report["processor"]["cores"]
            events = ", ".join(f"{name} {at:.1f}" for name, at in report["events"])
            cells = [change or "", arm, report["completed"], round(report["throughput"]), *latency.values(), report["waiting"],
                     round(report["server_micros"]), *(f"{core['busy']:.2f}" for core in cores[:2]), events]  # fmt: skip
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
            if not options.dry:
                what = {"change": change, "arm": arm, "options": options.options, "rate": options.rate}
                record.keep("bullfrog", where, [{**what, **shape, **report}])
    finally:
        tables.server.remove()


if __name__ == "__main__":
    main()
