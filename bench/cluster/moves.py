"""What it costs to move a database while it works, by each technique (bench/METHOD.md).

    bench/cluster/moves.py [--savanna PATH] [--moves 20] [--pause 30] [--techniques albatross flush-and-move stop-and-copy] [--rate 50] [--operations 10] [--reads 80]
                           [--rows 100000] [--cache-mib 32] [--clients 16] [--idle 0] [--neighbours 0] [--warm-up 20] [--dry]

Three nodes, one database, which goes back and forth between two of them; clients are at the third. Transactions arrive at random moments (a Poisson process) and wait for one
of the connections; their latency begins when they arrive. Each has so many operations, reads or updates of a row; 80 % of them are for a fifth of the rows. A client whose
connection ends connects again, and its transaction has failed; one that ends with an error on a connection that stays was aborted. `--idle` more connections ask nothing; a database has 100 in all. Techniques take turns, one move each. What the nodes
tell of a move (`savanna moves`) is kept; the latency before and after it is the mean over the pause before and as long behind it. The memory for blocks is smaller than the database, so that
the cache is full. With `--neighbours`, one of the two nodes has so many other databases, each of which is asked for sums all the time, so that its thread has no time left: only moves away from
there are measured. Appends to bench/results/cluster_moves.jsonl and prints a table; takes twice pause x moves x techniques.
"""

import asyncio
import contextlib
import json
import random
import statistics
import time
import urllib.error
import urllib.request

import psycopg

from nodes import client_alone, databases, folders, keep, make_database, parser, record, say, until, verdict

NODES = ("n1", "n2", "n3")
TECHNIQUES = ("albatross", "flush-and-move", "stop-and-copy")
VALUE_BYTES = 1_000
HOT_ROWS, HOT_OPERATIONS = 0.2, 0.8
# What a database has, as tenants.md says (`SHOW max_connections`).
CONNECTIONS_MAX = 100
# What neighbours are asked: some milliseconds, on the tenants' own thread.
SUM = "SELECT sum(i * i) FROM generate_series(1, 1000) AS s(i)"
# The bars of Albatross.
WINDOW_P50_BAR, WINDOW_P99_BAR, LATENCY_BAR, BYTES_BAR, ROUNDS_BAR = 30, 100, 15, 1.4, 10


class Load:
    """Clients of a database, through a node, and what became of their transactions."""

    def __init__(self, port, options):
        self.port, self.options = port, options
        self.due, self.ended = asyncio.Queue(), False
        # When each was answered, by this process's clock, and how long it took, in ms.
        self.done = []
        self.failed, self.aborted = [], []

    async def arrive(self):
        """Transactions arrive."""
        at = time.monotonic()
        while not self.ended:
            at += random.expovariate(self.options.rate)
            await asyncio.sleep(max(0, at - time.monotonic()))
            self.due.put_nowait(at)
        for _ in range(self.options.clients):
            self.due.put_nowait(None)

    async def work(self):
        """A client that takes them one after the other."""
        connection = None
        while (at := await self.due.get()) is not None:
            try:
                if connection is None:
                    connection = await self.connect()
                await self.transaction(connection)
                self.done.append((time.monotonic(), (time.monotonic() - at) * 1e3))
            except psycopg.Error as error:
                is_broken = connection is None or connection.broken or connection.closed
                (self.failed if is_broken else self.aborted).append(str(error).strip())
                if is_broken or not await rolls_back(connection):
                    connection = None
        if connection:
            await connection.close()

    async def connect(self):
        return await psycopg.AsyncConnection.connect(f"host=127.0.0.1 port={self.port} user=postgres dbname=moving", connect_timeout=30)

    async def transaction(self, connection):
        rows = self.options.rows
        # In one order, so that nobody waits in a circle.
        for id in sorted(random.randint(1, int(rows * HOT_ROWS) if random.random() < HOT_OPERATIONS else rows) for _ in range(self.options.operations)):
            if random.random() * 100 < self.options.reads:
                await connection.execute("SELECT value FROM t WHERE id = %s", [id])
            else:
                await connection.execute("UPDATE t SET n = n + 1 WHERE id = %s", [id])
        await connection.commit()

    def latency(self, begin, end):
        """The mean of those that were answered in that time, in ms."""
        times = [took for at, took in self.done if begin <= at < end]
        return statistics.mean(times) if times else None


async def rolls_back(connection):
    """Whether a connection goes on after an error."""
    try:
        await connection.rollback()
    except psycopg.Error:
        return False
    return True


def move(node, shard, to, technique):
    body = json.dumps({"shard": shard, "to": to, "technique": technique}).encode()
    address = f"http://127.0.0.1:{node.ports['http']}/api/v1/moves"
    request = urllib.request.Request(address, data=body, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=180) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return {"technique": technique, "stayed": error.read().decode(errors="replace")}


def make(folder, options):
    """The database; its shard."""
    node = folder.any()
    known = set(databases(node))
    address = f"host=127.0.0.1 port={node.ports['tenants']} user=postgres"
    with psycopg.connect(f"{address} dbname=postgres", autocommit=True) as client:
        client.execute("CREATE DATABASE moving")
    with psycopg.connect(f"{address} dbname=moving", autocommit=True) as client:
        client.execute("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL, value text NOT NULL)")
        for first in range(1, options.rows + 1, 10_000):
            last = min(first + 9_999, options.rows)
            client.execute(f"INSERT INTO t SELECT g, 0, repeat('x', {VALUE_BYTES}) FROM generate_series({first}, {last}) AS g")
    until(lambda: set(databases(node)) - known, "the database is known")
    [shard] = set(databases(node)) - known
    return shard


def make_neighbours(folder, count):
    """So many other databases of the first node; their names."""
    node, names = folder.nodes[NODES[0]], [f"neighbour{number}" for number in range(count)]
    for name in names:
        known = set(databases(node))
        make_database(node.ports["tenants"], name)
        until(lambda: set(databases(node)) - known, f"{name} is known")
        [shard] = set(databases(node)) - known
        if owner_of(node, shard) != NODES[0]:
            move(node, shard, NODES[0], "flush-and-move")
    return names


async def keep_busy(port, database, load):
    """Asks a neighbour as long as there is load."""
    async with await psycopg.AsyncConnection.connect(f"host=127.0.0.1 port={port} user=postgres dbname={database}", autocommit=True) as connection:
        while not load.ended:
            await connection.execute(SUM)


async def measure(folder, shard, options, neighbours=()):
    """Moves the database by each technique in turn; each move, with the latencies before and after it, and what failed."""
    node, front = folder.any(), folder.nodes[NODES[2]]
    load = Load(front.ports["tenants"], options)
    running = [asyncio.create_task(load.arrive()), *(asyncio.create_task(load.work()) for _ in range(options.clients))]
    port = folder.nodes[NODES[0]].ports["tenants"]
    running += [asyncio.create_task(keep_busy(port, name, load)) for name in neighbours]
    idle, moves = [], []
    try:
        idle += [await load.connect() for _ in range(options.idle)]
        # The first move brings it to one of the two nodes, with nothing but the cache in memory.
        await go(node, shard, "albatross")
        await asyncio.sleep(options.warm_up)
        for number in range(options.moves):
            for technique in options.techniques:
                if neighbours and owner_of(node, shard) != NODES[0]:
                    await go(node, shard, "albatross")
                await asyncio.sleep(options.pause)
                moved = await measure_one(node, shard, technique, load)
                moves.append(moved)
                what = f"{number + 1}, {technique}: {moved['clients_failed']} failed, {moved['clients_aborted']} aborted"
                if moved["stayed"] is None:
                    say(f"{what}, window {moved['window_ms']:.1f} ms, {moved['waited']} waited, {moved['wait_max_ms']:.1f} ms at most")
                else:
                    say(f"{what}, stayed: {moved['stayed']}")
    finally:
        load.ended = True
        await asyncio.gather(*running)
        for connection in idle:
            await connection.close()
    for error in sorted(set(load.failed + load.aborted))[:5]:
        say(f"  {error}")
    return moves


async def measure_one(node, shard, technique, load):
    """A move, with the latencies of a pause before and behind it, and what failed."""
    pause = load.options.pause
    failed, aborted, began = len(load.failed), len(load.aborted), time.monotonic()
    moved = await go(node, shard, technique)
    ended = time.monotonic()
    await asyncio.sleep(pause)
    before, after = load.latency(began - pause, began), load.latency(ended, ended + pause)
    failed, aborted = len(load.failed) - failed, len(load.aborted) - aborted
    return {**moved, "clients_failed": failed, "clients_aborted": aborted, "latency_before_ms": before, "latency_after_ms": after}


def owner_of(node, shard):
    return databases(node)[shard]["owner"]


async def go(node, shard, technique):
    to = NODES[1] if owner_of(node, shard) == NODES[0] else NODES[0]
    return await asyncio.to_thread(move, node, shard, to, technique)


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))]


def median_of(key, moves):
    values = [moved[key] for moved in moves if moved[key] is not None]
    return statistics.median(values) if values else None


def figure_of(technique, moves, options):
    """What all moves of a technique come to."""
    mine = [moved for moved in moves if moved["technique"] == technique]
    went = [moved for moved in mine if moved["stayed"] is None]
    windows = [moved["window_ms"] for moved in went] or [0.0]
    changes = [(moved["latency_after_ms"] / moved["latency_before_ms"] - 1) * 100 for moved in went if moved["latency_before_ms"] and moved["latency_after_ms"]]
    along = [moved["log_bytes"] + moved["open_bytes"] + moved["block_bytes"] for moved in went] or [0]
    return {
        "technique": technique, "moves": len(went), "stayed": len(mine) - len(went),
        "window_p50_ms": percentile(windows, 0.5), "window_p99_ms": percentile(windows, 0.99),
        "wait_p50_ms": statistics.median([moved["wait_p50_ms"] for moved in went] or [0]), "wait_max_ms": max((moved["wait_max_ms"] for moved in went), default=0),
        "waited": sum(moved["waited"] for moved in went), "sent_again": sum(moved["sent_again"] for moved in went),
        "failed": sum(moved["clients_failed"] for moved in mine), "aborted": sum(moved["clients_aborted"] for moved in mine),
        "latency_before_ms": median_of("latency_before_ms", went), "latency_after_ms": median_of("latency_after_ms", went),
        "latency_change_percent": statistics.median(changes) if changes else None, "took_ms": median_of("took_ms", went),
        "rounds": max((moved["rounds"] for moved in went), default=0),
        "bytes": statistics.median(along), "bytes_of_cache": statistics.median(along) / (options.cache_mib << 20),
        "each": mine,
    }  # fmt: skip


def is_met(figure):
    """Whether the bars are; only Albatross has some."""
    if figure["technique"] != "albatross":
        return None
    latency = figure["latency_change_percent"]
    return (figure["stayed"] == figure["failed"] == figure["aborted"] == 0 and figure["window_p50_ms"] <= WINDOW_P50_BAR and figure["window_p99_ms"] <= WINDOW_P99_BAR
            and latency is not None and latency <= LATENCY_BAR and figure["bytes_of_cache"] <= BYTES_BAR and figure["rounds"] <= ROUNDS_BAR)  # fmt: skip


def add_options(options):
    """What a run of moves can be told."""
    options.add_argument("--moves", type=int, default=20, help="by each technique")
    options.add_argument("--pause", type=float, default=30, help="seconds before and after each move")
    options.add_argument("--warm-up", type=float, default=20, help="seconds before the first")
    options.add_argument("--techniques", nargs="+", choices=TECHNIQUES, default=TECHNIQUES)
    options.add_argument("--rate", type=float, default=50, help="transactions per second")
    options.add_argument("--operations", type=int, default=10, help="of a transaction")
    options.add_argument("--reads", type=float, default=80, help="of these, in per cent")
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--cache-mib", type=int, default=32, help="memory for blocks of each node")
    options.add_argument("--clients", type=int, default=16)
    options.add_argument("--idle", type=int, default=0, help=f"connections beside these that ask nothing; {CONNECTIONS_MAX} in all")
    options.add_argument("--neighbours", type=int, default=0, help="databases that keep the source busy")


def read_options(options):
    """The options of this run, if it can be made."""
    read = options.parse_args()
    read.techniques = list(read.techniques)
    if read.clients + read.idle > CONNECTIONS_MAX:
        options.error(f"a database has {CONNECTIONS_MAX} connections at most: --clients and --idle are {read.clients + read.idle} together")
    return read


def start(folder, options):
    """Three nodes and the database, whose shard is returned."""
    folder.join(*NODES, settings=(f"tenants.blocks_memory={options.cache_mib}MiB",))
    return make(folder, options)


def main():
    options = parser(__doc__)
    add_options(options)
    options = read_options(options)
    binary, commit, profile = record.savanna(options.savanna)
    how = {name: value for name, value in vars(options).items() if name not in ("savanna", "dry")}
    where = {**record.circumstances(commit, profile), **how}
    client_alone()
    with folders(binary) as [folder]:
        shard = start(folder, options)
        neighbours = make_neighbours(folder, options.neighbours)
        moves = asyncio.run(measure(folder, shard, options, neighbours))
    print(f"{where['machine']}\ncommit {commit}, {where['date']}, {options.moves} moves by each technique, {options.rate:g} transactions/s\n")
    print("| technique | moves | window p50, ms | p99, ms | felt p50, ms | longest, ms | failed | aborted | latency after, % | rounds | bytes / cache | bars |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    results = [figure_of(technique, moves, options) for technique in options.techniques]
    for figure in results:
        latency, met = figure["latency_change_percent"], is_met(figure)
        print(f"| {figure['technique']} | {figure['moves']} | {figure['window_p50_ms']:.1f} | {figure['window_p99_ms']:.1f} | {figure['wait_p50_ms']:.1f} | {figure['wait_max_ms']:.1f} "
              f"| {figure['failed']} | {figure['aborted']} | {'-' if latency is None else f'{latency:+.1f}'} | {figure['rounds']} | {figure['bytes_of_cache']:.2f} "
              f"| {'' if met is None else verdict(met)} |")  # fmt: skip
    keep("cluster_moves", options, where, results)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
