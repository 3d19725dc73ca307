"""Processor time per transaction by how many nodes a cluster has and how many tenants each node (bench/METHOD.md).

    bench/cluster/scale.py [--savanna PATH] [--rounds 7] [--seconds 3] [--nodes 1 2 4] [--tenants 10 50 100] [--rate 250] [--dry]

The shape of ElasTraS's figures 4.11 to 4.13: clusters of 1, 2 and 4 nodes, with 10, 50 and 100 tenants at each node, and the same load for each node. All
nodes have one core, so throughput says nothing; a transaction should cost the same in each cluster. So that the core is equally busy, there are four
nodes in each case, and no others: four clusters of one, two of two, or one of four. They are started anew for each case of each round, with that case's
tenants (one more at each node, which nobody asks, and `postgres`), and measured when what making these has left to do is done. A transaction is a text of
four SELECTs and an UPDATE by primary key, of any rows of the tenant; each tenant has a client, at the node that has it. Clients begin transactions at
`--rate` a second for each node, whose tenants take turns. The figure is the processor time of all nodes per transaction, and its ratio to that of
clusters of one node with fewest tenants in the same round; the bar is 10 %. Appends to bench/results/cluster_scale.jsonl and prints a table.
"""

import contextlib
import itertools
import random
import selectors
import statistics
import time

from nodes import ROWS, STATEMENTS, Session, client_alone, folders, keep, parser, record, say, shown, verdict

BAR = 0.10
READS = 4
WARM_UP_SECONDS = 0.5
SETTLE_SECONDS_MAX = 30


def transaction():
    ids = random.sample(range(1, ROWS + 1), READS + 1)
    kinds = ["SELECT"] * READS + ["UPDATE"]
    return "; ".join(STATEMENTS[kind].format(row) for kind, row in zip(kinds, ids))


def run_at(rate, sessions, seconds):
    """Begins so many transactions a second, one session after the other. How many were done, and how long each took from when it was due."""
    turns, due, waits, left = itertools.cycle(sessions), time.monotonic(), [], int(rate * seconds)
    late = {session: [] for session in sessions}
    with selectors.DefaultSelector() as selector:
        for session in sessions:
            selector.register(session.socket, selectors.EVENT_READ, session)
        while left or any(session.waiting for session in sessions):
            while left and time.monotonic() >= due:
                session = next(turns)
                session.send([transaction()])
                late[session].append(due)
                left, due = left - 1, due + 1 / rate
            for key, _ in selector.select(max(0, due - time.monotonic()) if left else 1):
                for _ in range(key.data.receive()):
                    waits.append(time.monotonic() - late[key.data].pop(0))
    return waits


class Cluster:
    """Nodes with databases, and a client of each."""

    def __init__(self, folder, nodes, tenants):
        self.folder = folder
        folder.join(*(f"n{number + 1}" for number in range(nodes)))
        # One more at each node, since databases are made where fewest are, and that of administrators counts.
        names = [f"d{number}" for number in range(nodes * tenants + nodes)]
        of_node = {name: [] for name in folder.nodes}
        for name, owner in folder.make_databases(names).items():
            of_node[owner].append(name)
        of_nodes = [len(mine) for mine in of_node.values()]
        if min(of_nodes) < tenants or max(of_nodes) > tenants + 2:
            raise SystemExit(f"expected {tenants} databases at each node, or one or two more; there are {of_nodes}")
        self.sessions = [[Session(folder.nodes[node].ports["tenants"], name) for name in mine[:tenants]] for node, mine in of_node.items()]


def settle(cpu_seconds):
    """Waits until nodes that nobody asks cost no less than in the second before, within a tenth of that or a hundredth of a core."""
    before = float("inf")
    for _ in range(SETTLE_SECONDS_MAX):
        began = cpu_seconds()
        time.sleep(1)
        spent = cpu_seconds() - began
        if spent >= min(before * 0.9, before - 0.01):
            return
        before = spent
    raise SystemExit(f"expected nodes to come to rest, waited {SETTLE_SECONDS_MAX} s; they still take {before:.0%} of a core")


def measure(binary, clusters, nodes, tenants, rate, seconds):
    """So many clusters of so many nodes each, with so many tenants at each node: what a transaction costs, and how long it takes."""
    with folders(binary, clusters) as made:
        of_nodes = [mine for folder in made for mine in Cluster(folder, nodes, tenants).sessions]
        # The nodes in turns.
        sessions = [session for together in zip(*of_nodes) for session in together]
        cpu_seconds = lambda: sum(folder.cpu_seconds() for folder in made)
        run_at(rate * len(of_nodes), sessions, WARM_UP_SECONDS)
        settle(cpu_seconds)
        before = cpu_seconds()
        waits = run_at(rate * len(of_nodes), sessions, seconds)
        figure = {"cpu": (cpu_seconds() - before) / len(waits) * 1e6, "time": statistics.median(waits) * 1e3}
        for session in sessions:
            session.close()
    return figure


def main():
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--seconds", type=float, default=3)
    options.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    options.add_argument("--tenants", type=int, nargs="+", default=[10, 50, 100])
    options.add_argument("--rate", type=float, default=250)
    options = options.parse_args()
    binary, commit, profile = record.savanna(options.savanna)
    where = {**record.circumstances(commit, profile), "rounds": options.rounds, "rate": options.rate}
    client_alone()
    print(f"{where['machine']}\ncommit {commit}, {where['date']}, {options.rounds} rounds, {options.rate:g} transactions per second and node\n")
    cases = [(nodes, tenants) for tenants in options.tenants for nodes in options.nodes]
    rounds, most = [], max(options.nodes)
    if any(most % nodes for nodes in options.nodes):
        raise SystemExit(f"expected numbers of nodes that {most} is a multiple of, came {options.nodes}")
    for number in range(options.rounds):
        rounds.append({})
        for nodes, tenants in cases:
            figure = rounds[-1][nodes, tenants] = measure(binary, most // nodes, nodes, tenants, options.rate, options.seconds)
            say(f"round {number + 1}, clusters of {nodes} nodes with {tenants} tenants each: {figure['cpu']:.1f} µs, in {figure['time']:.2f} ms")
    print("| nodes | tenants at each | CPU, µs per transaction | ratio | bar | | time, ms |\n|---|---|---|---|---|---|---|")
    results, first = [], cases[0]
    for nodes, tenants in cases:
        of = lambda what: [each[nodes, tenants][what] for each in rounds]
        cpu, took = record.interval(of("cpu")), record.interval(of("time"))
        ratio = record.interval([each[nodes, tenants]["cpu"] / each[first]["cpu"] for each in rounds])
        results.append({"nodes": nodes, "tenants": tenants, "bar": BAR, "cpu": cpu, "ratio": ratio, "time_ms": took})
        is_met = abs(ratio["low"] - 1) <= BAR and abs(ratio["high"] - 1) <= BAR
        print(f"| {nodes} | {tenants} | {shown(cpu, 1)} | {shown(ratio)} | ±{BAR:.0%} | {verdict(is_met)} | {shown(took)} |", flush=True)
    keep("cluster_scale", options, where, results)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
