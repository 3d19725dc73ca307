"""Processor time per statement of a cluster of one node beside `savanna dev` (bench/METHOD.md).

    bench/cluster/one_node.py [--savanna PATH] [--pairs 7] [--seconds 1.2] [--dry]

The same program twice, on one core: `savanna node --join`, which keeps a lease, runs the coordinator and asks it, and `savanna dev`, which does not. For each
pair both are started anew, and take turns with the same number of statements: of the simple protocol from 8 clients, one at a time and 16 at a time
(`pipeline`), and commands of keys from 50 clients of redis-benchmark, 1 and 64 at a time. At last, what each costs that nobody asks anything. Appends
to bench/results/cluster_one_node.jsonl and prints a table; takes about 5 minutes.
"""

import contextlib
import shutil
import statistics
import subprocess
import time

from nodes import CLIENT_CORE, Session, client_alone, count_for, fill, folders, keep, parser, record, run, say, shown, verdict

BAR = 1.02
CLIENTS = 8
CASES = [("tenants", kind, pipeline) for kind in ("SELECT", "UPDATE") for pipeline in (1, 16)]
CASES += [("keys", kind, pipeline) for kind in ("GET", "SET") for pipeline in (1, 64)]
# How often nodes take turns in a pair.
TURNS = 4
IDLE_SECONDS = 2


def redis_benchmark(node, command, pipeline, count):
    command = ["taskset", "-c", str(CLIENT_CORE), "redis-benchmark", "-p", str(node.ports["keys"]), "-c", "50", "-n", str(count), "-P", str(pipeline),
               "-d", "64", "-r", "100000", "-t", command.lower(), "-q"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return count


def work(service, node, kind, pipeline):
    """What runs so many statements of a case."""
    if service == "keys":
        return lambda count: redis_benchmark(node, kind, pipeline, count)
    sessions = [Session(node.ports["tenants"]) for _ in range(CLIENTS)]
    return lambda count: run(sessions, kind, pipeline, count)


def measure(nodes, case, seconds):
    """Microseconds of each node's processor time per statement; nodes take several turns."""
    works = [work(case[0], node, *case[1:]) for node in nodes]
    some = 5_000 * case[2] if case[0] == "keys" else 50 * case[2]
    count = min(count_for(seconds / TURNS, lambda work=work: work(some)) for work in works)
    spent, done = [0.0, 0.0], [0, 0]
    for _ in range(TURNS):
        for at, (node, work_of) in enumerate(zip(nodes, works)):
            before = node.cpu_seconds()
            done[at] += work_of(count)
            spent[at] += node.cpu_seconds() - before
    return [each / statements * 1e6 for each, statements in zip(spent, done)]


def idle(nodes):
    """Of each node, the share of a core that it takes when nobody asks anything."""
    before = [node.cpu_seconds() for node in nodes]
    time.sleep(IDLE_SECONDS)
    return [(node.cpu_seconds() - old) / IDLE_SECONDS for node, old in zip(nodes, before)]


def main():
    options = parser(__doc__)
    options.add_argument("--pairs", type=int, default=7)
    options.add_argument("--seconds", type=float, default=1.2)
    options = options.parse_args()
    if not shutil.which("redis-benchmark"):
        raise SystemExit("expected redis-benchmark: install redis-tools")
    binary, commit, profile = record.savanna(options.savanna)
    where = {**record.circumstances(commit, profile), "pairs": options.pairs}
    client_alone()
    print(f"{where['machine']}\ncommit {commit}, {where['date']}, {options.pairs} pairs\n")
    table = "| service | statement | pipeline | cluster, µs | dev, µs | ratio | bar | |\n|---|---|---|---|---|---|---|---|"
    pairs, shares = {case: [] for case in CASES}, []
    for number in range(options.pairs):
        with folders(binary, 2) as (one, other):
            [cluster], dev = one.join("n1"), other.alone()
            for node in (cluster, dev):
                fill(node.ports["tenants"])
            for case in CASES:
                pairs[case].append(measure([cluster, dev], case, options.seconds))
                say("pair {}, {} {}, {} at a time: cluster {:.2f} µs, dev {:.2f} µs".format(number + 1, *case, *pairs[case][-1]))
            shares.append(idle([cluster, dev]))
    results = []
    print(table)
    for (service, kind, pipeline), figures in pairs.items():
        cluster, dev = (statistics.median(figure[at] for figure in figures) for at in (0, 1))
        ratio = record.interval([cluster / dev for cluster, dev in figures])
        results.append({"service": service, "statement": kind, "pipeline": pipeline, "bar": BAR, "cluster": cluster, "dev": dev, "ratio": ratio})
        print(f"| {service} | {kind} | {pipeline} | {cluster:.2f} | {dev:.2f} | {shown(ratio, 3)} | {BAR} | {verdict(ratio['high'] <= BAR)} |")
    cluster, dev = (statistics.median(share[at] for share in shares) for at in (0, 1))
    results.append({"service": "none", "cluster_cores": cluster, "dev_cores": dev})
    print(f"\nwithout clients: cluster {cluster:.2%} of a core, dev {dev:.2%}")
    keep("cluster_one_node", options, where, results)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
