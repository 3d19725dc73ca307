"""What the balance does while the load of a cluster wanders, and why (bench/METHOD.md).

    bench/cluster/balance.py [--savanna PATH] [--minutes 10] [--databases 12] [--load 0.7] [--seed 1] [--dry]

Three nodes with as many databases each. All are asked a little, and three of them, which are neighbours in a circle, most: the middle of these goes round once in the
run, so that each node's turn comes. A request adds numbers up, and changes a row. Requests begin at fixed moments, whatever the cluster does with them; clients stay
connected to the node that they found their database at. `--load` is which share of a core all requests take together, by what one took at the beginning. The run is done
twice, with `cluster.balance` off and on, and the same requests at the same moments. Kept are, for each 5 seconds, what each node's process took and the longest request; what was decided,
with the reason; and what was lost. The figure is how much more the busiest node does than the idlest, in the mean over the run. Appends to
bench/results/cluster_balance.jsonl and prints a table; takes twice the minutes.
"""

import contextlib
import heapq
import math
import random
import selectors
import statistics
import time

from nodes import Session, client_alone, folders, keep, parser, record, say

NODES = ("n1", "n2", "n3")
SAMPLE_SECONDS = 5
WORK = "SELECT sum(i * i) FROM generate_series(1, 5000) AS s(i); UPDATE t SET n = n + 1 WHERE id = {}"
# How wide the busy part of the circle is, in databases, and what the others are asked beside the busiest.
WIDTH, BASE = 1.0, 0.05


class Client:
    """A client of one database."""

    def __init__(self, port, database):
        self.port, self.database = port, database
        self.session, self.due = Session(port, database), []

    def ask(self, due, row):
        self.due.append(due)
        self.session.send([WORK.format(row)])

    def connect_again(self):
        """What was asked and not answered is lost; how many requests these were."""
        self.session.close()
        self.session, lost = Session(self.port, self.database), len(self.due)
        self.due.clear()
        return lost

    def heard(self):
        """How long the requests took that were answered."""
        return [time.monotonic() - self.due.pop(0) for _ in range(self.session.receive())]


def weights(share, count):
    """How much each database is asked when so much of the run is over; the mean is 1."""
    middle = share * count
    away = [min(abs(place - middle), count - abs(place - middle)) for place in range(count)]
    raw = [BASE + math.exp(-((each / WIDTH) ** 2)) for each in away]
    return [each * count / sum(raw) for each in raw]


def cost(folder, clients):
    """The processor time of a request, in seconds, by one after the other."""
    before, count = folder.cpu_seconds(), 0
    ended = time.monotonic() + 3
    while time.monotonic() < ended:
        for client in clients:
            client.ask(time.monotonic(), 1)
            client.session.wait()
            client.due.clear()
            count += 1
    return (folder.cpu_seconds() - before) / count


def run(folder, clients, rate, options):
    """Asks as long as the run lasts; a sample of every few seconds, how long each request took, and how many were lost."""
    chance, began, length = random.Random(options.seed), time.monotonic(), options.minutes * 60
    due = [(chance.expovariate(rate), place) for place in range(len(clients))]
    heapq.heapify(due)
    samples, took, all_took, lost = [], [], [], 0
    spent, sampled = {name: node.cpu_seconds() for name, node in folder.nodes.items()}, began
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.session.socket, selectors.EVENT_READ, client)

        def fails(client, error):
            say(f"  {client.database}: {error}")
            selector.unregister(client.session.socket)
            count = client.connect_again()
            selector.register(client.session.socket, selectors.EVENT_READ, client)
            return count

        while (now := time.monotonic() - began) < length:
            while due[0][0] <= now:
                at, place = due[0]
                try:
                    clients[place].ask(began + at, chance.randint(1, 1_000))
                except OSError as error:
                    lost += fails(clients[place], error)
                each = rate * weights(at / length, len(clients))[place]
                heapq.heapreplace(due, (at + chance.expovariate(each), place))
            for key, _ in selector.select(max(0, due[0][0] - now)):
                try:
                    took += key.data.heard()
                except OSError as error:
                    lost += fails(key.data, error)
            if time.monotonic() - sampled >= SAMPLE_SECONDS:
                is_now = {name: node.cpu_seconds() for name, node in folder.nodes.items()}
                passed, sampled = time.monotonic() - sampled, time.monotonic()
                cores = {name: (is_now[name] - spent[name]) / passed for name in is_now}
                samples.append({"at": sampled - began, "cores": cores, "requests": len(took), "max_ms": 1e3 * max(took, default=0)})
                all_took += took
                spent, took = is_now, []
    return samples, sorted(all_took), lost + sum(len(client.due) for client in clients)


def measure(binary, balance, rate, options):
    """A run with the balance on or off, at so many requests per second and database; the first run measures how many these are to be."""
    settings = ("cluster.balance=on",) if balance else ()
    with folders(binary) as [folder]:
        nodes = folder.join(*NODES, settings=settings)
        names = [f"d{number}" for number in range(options.databases)]
        owners = folder.make_databases(names)
        # The databases of a node are neighbours.
        circle = sorted(names, key=lambda name: owners[name])
        clients = [Client(folder.nodes[owners[name]].ports["tenants"], name) for name in circle]
        rate = rate or options.load / cost(folder, clients) / len(clients)
        say(f"balance {'on' if balance else 'off'}: {rate * len(clients):.0f} requests/s")
        began = time.time()
        samples, took, lost = run(folder, clients, rate, options)
        told = nodes[0].get("/api/v1/moves/decisions")["decisions"]
        moves = [each for each in nodes[0].get("/api/v1/moves")["moves"] if each["stayed"] is None]
        decisions = [{"at": each["at_unix_ms"] / 1e3 - began, **{key: each[key] for key in ("shard", "from", "to", "why", "outcome")}} for each in told]
    busiest = [max(sample["cores"].values()) for sample in samples]
    spread = [max(sample["cores"].values()) - min(sample["cores"].values()) for sample in samples]
    return {
        "balance": balance, "rate": rate, "spread_cores": statistics.mean(spread), "busiest_cores": statistics.mean(busiest),
        "p50_ms": 1e3 * took[len(took) // 2], "p99_ms": 1e3 * took[int(len(took) * 0.99)], "max_ms": 1e3 * took[-1], "requests": len(took), "lost": lost,
        "moves": len(moves), "windows_ms": [each["window_ms"] for each in moves], "decisions": decisions, "samples": samples,
    }  # fmt: skip


def main():
    options = parser(__doc__)
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--databases", type=int, default=12)
    options.add_argument("--load", type=float, default=0.7, help="of a core")
    options.add_argument("--seed", type=int, default=1)
    options = options.parse_args()
    binary, commit, profile = record.savanna(options.savanna)
    where = {**record.circumstances(commit, profile), "minutes": options.minutes, "databases": options.databases, "load": options.load}
    client_alone()
    print(f"{where['machine']}\ncommit {commit}, {where['date']}, {options.minutes:g} minutes, {options.databases} databases, {options.load:g} of a core\n")
    print("| balance | busiest - idlest, cores | busiest, cores | p50, ms | p99, ms | longest, ms | requests | lost | moves |\n|---|---|---|---|---|---|---|---|---|")
    results, rate = [], None
    for balance in (False, True):
        figure = measure(binary, balance, rate, options)
        rate = figure["rate"]
        results.append(figure)
        print(f"| {'on' if balance else 'off'} | {figure['spread_cores']:.2f} | {figure['busiest_cores']:.2f} | {figure['p50_ms']:.2f} | {figure['p99_ms']:.2f} | {figure['max_ms']:.0f} "
              f"| {figure['requests']} | {figure['lost']} | {figure['moves']} |", flush=True)  # fmt: skip
    print()
    for decision in results[-1]["decisions"]:
        print(f"{decision['at']:7.0f} s  {decision['shard'] or 'all stays'}  {decision['from'] or ''} -> {decision['to'] or ''}: {decision['why']} ({decision['outcome']})")
    keep("cluster_balance", options, where, results)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
