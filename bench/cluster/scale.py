"""Processor time per transaction by how many nodes a cluster has and how many tenants each node (bench/METHOD.md).

    bench/cluster/scale.py [--savanna PATH] [--rounds 7] [--seconds 3] [--nodes 1 2 4] [--tenants 10 50 100] [--rate 250] [--dry]

The shape of ElasTraS's figures 4.11 to 4.13: clusters of 1, 2 and 4 nodes, with 10, 50 and 100 tenants at each node, and the same load for each node. All
nodes have one core, so throughput says nothing; a transaction should cost the same in each cluster. So that the core is equally busy, there are four
nodes at work in each case: four clusters of one, two of two, or one of four. A transaction is a text of four SELECTs and an UPDATE by primary
key, of any rows of the tenant; each tenant has a client, at the node that has it. Clients begin transactions at `--rate` a second for each node, whose
tenants take turns. The figure is the processor time of all nodes per transaction, and its ratio to that of clusters of one node with fewest tenants in
the same round; the bar is 10 %. Appends to bench/results/cluster_scale.jsonl and prints a table; takes about 5 minutes.
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
        fewest = min(map(len, of_node.values()))
        if fewest < tenants:
            raise SystemExit(f"expected {tenants} databases at each node, there are {[len(mine) for mine in of_node.values()]}")
        self.sessions = [[Session(folder.nodes[node].ports["tenants"], name) for name in mine[:tenants]] for node, mine in of_node.items()]


class Group:
    """Clusters of so many nodes each, together always of as many nodes."""

    def __init__(self, folders, nodes, tenants):
        self.clusters = [Cluster(folder, nodes, tenants) for folder in folders]
        self.nodes = nodes * len(self.clusters)

    def sessions(self, tenants):
        """Of each node as many, the nodes in turns."""
        of_nodes = [mine for cluster in self.clusters for mine in cluster.sessions]
        return [session for together in zip(*of_nodes) for session in together][: tenants * self.nodes]

    def cpu_seconds(self):
        return sum(cluster.folder.cpu_seconds() for cluster in self.clusters)

    def measure(self, tenants, rate, seconds):
        sessions, before = self.sessions(tenants), self.cpu_seconds()
        waits = run_at(rate * self.nodes, sessions, seconds)
        return {"cpu": (self.cpu_seconds() - before) / len(waits) * 1e6, "time": statistics.median(waits) * 1e3}


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
    rounds = []
    most = max(options.nodes)
    if any(most % nodes for nodes in options.nodes):
        raise SystemExit(f"expected numbers of nodes that {most} is a multiple of, came {options.nodes}")
    with folders(binary, sum(most // nodes for nodes in options.nodes)) as made:
        free, groups = iter(made), {}
        for nodes in options.nodes:
            groups[nodes] = Group(list(itertools.islice(free, most // nodes)), nodes, max(options.tenants))
            say(f"{most // nodes} clusters of {nodes} nodes are there, with {max(options.tenants)} tenants at each")
        for nodes, tenants in cases:
            groups[nodes].measure(tenants, options.rate, 0.5)
        for number in range(options.rounds):
            rounds.append({(nodes, tenants): groups[nodes].measure(tenants, options.rate, options.seconds) for nodes, tenants in cases})
            for (nodes, tenants), figure in rounds[-1].items():
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
