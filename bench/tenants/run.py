"""Processor time per transaction of tenants beside PostgreSQL 15 (bench/METHOD.md).

    bench/tenants/run.py [--pairs 7] [--seconds 2] [--scale 10] [--clients 1 8 32] [--workload read update tpcb] [--protocol prepared simple]

Builds `tenants_server` and measures it; TENANTS_SERVER names another one, whose commit is then not known. Both servers flush their log at
each commit and run at READ COMMITTED over the tables of `pgbench -i`, a server on core 0 and pgbench on another. Runs have a
fixed number of transactions, found by a run of `--seconds` that also warms up; servers take turns, ratios are those of pairs. The
processor time is that of all threads, or processes, of the server. Appends to bench/results/tenants.jsonl and prints a table.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

from servers import CLIENT, PostgreSQL, Savanna, build, record

WORKLOADS = {
    "read": "\\set aid random(1, 100000 * :scale)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n",
    "update": "\\set aid random(1, 100000 * :scale)\n\\set delta random(-5000, 5000)\n"
              "UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;\n",
    "tpcb": None,
}  # fmt: skip
# What a ratio must be at most (docs/design/0005-tenants.md), of prepared statements.
BARS = {"read": 0.6, "update": 1.0}


def fill(server, scale):
    subprocess.run([*server.client("pgbench"), "-i", "-q", "-s", str(scale), "postgres"], check=True, capture_output=True)


def run(server, script, protocol, clients, length):
    """A run of pgbench; gives its transactions, how many a second, and the server's processor time."""
    script = ["-b", "tpcb-like"] if script is None else ["-f", script]
    command = [*CLIENT, *server.client("pgbench"), *script, "-n", "-M", protocol,
               "-c", str(clients), *length, "postgres"]  # fmt: skip
    before = server.cpu_seconds()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # Processes that end are counted when their parent has noticed.
    time.sleep(0.1)
    count = re.search(r"actually processed: (\d+)", done.stdout)
    if done.returncode != 0 or not count:
        raise SystemExit(f"pgbench failed: {done.stderr}")
    return int(count[1]), float(re.search(r"tps = ([\d.]+)", done.stdout)[1]), server.cpu_seconds() - before


def compare(servers, script, protocol, clients, options):
    """Runs both in turns."""
    lengths = []
    for server in servers:
        transactions = run(server, script, protocol, clients, ["-T", str(options.seconds)])[0]
        lengths.append(["-t", str(max(1, transactions // clients))])
    rounds = []
    for _ in range(options.pairs):
        figures = [run(server, script, protocol, clients, length) for server, length in zip(servers, lengths, strict=True)]
        rounds.append([(cpu / count * 1e6, rate) for count, rate, cpu in figures])
    named = {}
    for name, place in (("ours", 0), ("theirs", 1)):
        named[name] = statistics.median(each[place][0] for each in rounds)
        named[f"{name}_per_second"] = statistics.median(each[place][1] for each in rounds)
    return {**named, "ratio": record.interval([ours[0] / theirs[0] for ours, theirs in rounds])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--scale", type=int, default=10)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--protocol", nargs="+", choices=("prepared", "simple"), default=["prepared", "simple"])
    options = parser.parse_args()
    Savanna.binary, commit, profile = build()
    where = {**record.circumstances(commit, profile), "pairs": options.pairs, "scale": options.scale}
    print(f"{where['machine']}\ncommit {commit}, {where['date']}, {options.pairs} pairs\n")
    servers = [Savanna(), PostgreSQL()]
    for server in servers:
        fill(server, options.scale)
    print("| workload | protocol | clients | ours, µs | theirs, µs | ratio | interval | bar | | ours, tps | theirs |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    results = []
    with tempfile.TemporaryDirectory() as scripts:
        for workload in options.workload:
            script = pathlib.Path(scripts, workload)
            if WORKLOADS[workload] is None:
                script = None
            else:
                script.write_text(WORKLOADS[workload])
            for protocol in options.protocol:
                for clients in options.clients:
                    figure = compare(servers, script, protocol, clients, options)
                    bar = BARS.get(workload) if protocol == "prepared" else None
                    results.append({"workload": workload, "protocol": protocol, "clients": clients, "bar": bar, **figure})
                    ratio = figure["ratio"]
                    verdict = "" if bar is None else "met" if ratio["high"] <= bar else "missed"
                    print(f"| {workload} | {protocol} | {clients} | {figure['ours']:.1f} | {figure['theirs']:.1f} | {ratio['median']:.2f} "
                          f"| {ratio['low']:.2f}-{ratio['high']:.2f} | {bar or ''} | {verdict} | {figure['ours_per_second']:.0f} "
                          f"| {figure['theirs_per_second']:.0f} |", flush=True)  # fmt: skip
    for server in servers:
        server.stop()
    record.keep("tenants", where, results)


if __name__ == "__main__":
    main()
