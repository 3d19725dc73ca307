"""How long databases are without service when their node is killed, and whether others notice (bench/METHOD.md).

    bench/cluster/failover.py [--savanna PATH] [--rounds 3] [--whom plain coordinator controller both] [--dry]

Each round starts three nodes with 100 databases, a third at each. 20 of them are busy: a client of each updates a row every 20 ms or so, through a node
that stays. Then a node is killed with SIGKILL and stays away: one that has nothing but its share (`plain`), the one that runs the coordinator, the
one that sees to the databases of nodes that are gone (`controller`), or one that does both. Nodes are started anew until they stand as the round needs them,
and who did what is kept. A database that the killed node had is without service from the kill to the first answer: to the client that was at work, or, of the
others, to one that begins to log in at the moment of the kill, and again when it fails. Of databases elsewhere, no statement may fail; each that is not busy
is logged in to after the kill, too. Appends to bench/results/cluster_failover.jsonl and prints a table; takes some minutes.
"""

import asyncio
import contextlib
import random
import time

import psycopg

from nodes import ROWS, client_alone, folders, keep, parser, record, say, verdict

NODES = ("n1", "n2", "n3")
DATABASES = 100
BUSY = 20
PAUSE_SECONDS = 0.02
TTL_SECONDS = 3.0
P50_BAR, P99_BAR = TTL_SECONDS + 0.5, TTL_SECONDS + 2.0
WHOM = ("plain", "coordinator", "controller", "both")
# So often nodes are started until they stand as a round needs them.
STARTS_MAX = 20
BEFORE_SECONDS = 3
# What is not answered by then never is.
GIVEN_UP_SECONDS = 30


class Client:
    """A client of a database, through a node that stays."""

    def __init__(self, name, port, is_busy):
        self.name, self.port, self.is_busy = name, port, is_busy
        self.answered, self.failures, self.began, self.back = 0, [], None, None
        self.connection = None

    async def connect(self):
        address = f"host=127.0.0.1 port={self.port} user=postgres dbname={self.name}"
        self.connection = await psycopg.AsyncConnection.connect(address, autocommit=True, connect_timeout=GIVEN_UP_SECONDS)

    async def ask(self):
        """A statement, and what became of it."""
        try:
            if self.connection is None:
                await self.connect()
            await self.connection.execute("UPDATE t SET n = n + 1 WHERE id = %s", [random.randint(1, ROWS)])
            self.answered += 1
            return True
        except psycopg.Error as error:
            self.failures.append((time.monotonic(), str(error).strip()))
            if self.connection:
                await self.connection.close()
            self.connection = None
            return False

    async def work(self, until_then):
        """Asks until the end, or, if it is not busy, until it is answered once."""
        self.began = time.monotonic()
        while time.monotonic() < until_then() and (self.is_busy or self.back is None):
            asked = time.monotonic()
            if await self.ask() and self.back is None and asked >= self.began:
                self.back = time.monotonic()
            await asyncio.sleep(PAUSE_SECONDS * random.uniform(0.5, 1.5))
        if self.connection:
            await self.connection.close()


def roles_of(folder):
    """Which node runs the coordinator, which sees to the databases of nodes that are gone, and which has the keys."""
    shards = folder.any().shards()
    return {"coordinator": folder.coordinator(), "controller": shards["tenants"]["owner"], "keys": shards["keys"]["owner"]}


def victim_of(roles, whom):
    """The node that is killed; none if no node stands like that."""
    coordinator, controller = roles["coordinator"], roles["controller"]
    if whom == "plain":
        return next(name for name in NODES if name not in (coordinator, controller))
    if (whom == "both") != (coordinator == controller):
        return None
    return coordinator if whom == "coordinator" else controller


async def disturb(folder, victim, names):
    """Lets clients work, kills the node, and waits until all are served again. The clients, and when it was killed."""
    stay = [node for name, node in folder.nodes.items() if name != victim]
    busy = set(random.sample(names, BUSY))
    clients = [Client(name, random.choice(stay).ports["tenants"], name in busy) for name in names]
    end = [time.monotonic() + 10 * GIVEN_UP_SECONDS]
    running = [asyncio.create_task(client.work(lambda: end[0])) for client in clients if client.is_busy]
    await asyncio.sleep(BEFORE_SECONDS)
    early = [client for client in clients if client.is_busy and (client.failures or not client.answered)]
    if early:
        raise SystemExit(f"{early[0].name} failed before anybody was killed: {early[0].failures}")
    for client in clients:
        client.back = None
    killed = time.monotonic()
    folder.nodes[victim].kill()
    for client in clients:
        client.began = killed
    end[0] = killed + GIVEN_UP_SECONDS
    running += [asyncio.create_task(client.work(lambda: end[0])) for client in clients if not client.is_busy]
    while any(client.back is None for client in clients) and time.monotonic() < end[0]:
        await asyncio.sleep(0.05)
    # What was slow to fail is heard of, too.
    await asyncio.sleep(1)
    end[0] = 0
    await asyncio.gather(*running)
    return clients, killed


def a_round(binary, whom):
    # The first to start mostly runs the coordinator, and the last by name is the controller.
    order = NODES[::-1] if whom == "both" else NODES
    for _ in range(STARTS_MAX):
        with folders(binary) as [folder]:
            folder.join(*order)
            roles = roles_of(folder)
            victim = victim_of(roles, whom)
            if victim:
                seen = fail_over(folder, victim, roles)
                return {"killed": victim, **roles, **seen}
            say(f"{whom}: no node stands like that, all start anew: {roles}")
    raise SystemExit(f"expected a node to kill as {whom}; {STARTS_MAX} starts had none")


def fail_over(folder, victim, roles):
    """Kills the node, and what databases and their clients saw of it."""
    owners = folder.make_databases([f"d{number}" for number in range(DATABASES)])
    lost = {name for name, owner in owners.items() if owner == victim}
    if roles_of(folder) != roles:
        raise SystemExit(f"expected nodes to do what they did, {roles}, came {roles_of(folder)}")
    clients, killed = asyncio.run(disturb(folder, victim, list(owners)))
    waits = [client.back - killed if client.back else GIVEN_UP_SECONDS for client in clients if client.name in lost]
    elsewhere = [client for client in clients if client.name not in lost]
    failed = [f"{client.name}: {what}" for client in elsewhere for _, what in client.failures]
    longest = max(client.back - killed if client.back else GIVEN_UP_SECONDS for client in elsewhere)
    return {"waits": waits, "elsewhere_answered": sum(client.answered for client in elsewhere), "elsewhere_failed": failed, "elsewhere_longest": longest}


def percentile(times, share):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * share))]


def main():
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--whom", nargs="+", choices=WHOM, default=WHOM)
    options = options.parse_args()
    binary, commit, profile = record.savanna(options.savanna)
    where = {**record.circumstances(commit, profile), "rounds": options.rounds, "databases": DATABASES, "busy": BUSY, "ttl": TTL_SECONDS}
    client_alone()
    print(f"{where['machine']}\ncommit {commit}, {where['date']}, {options.rounds} rounds of each kind\n")
    print("| killed | databases | p50, s | p99, s | longest, s | bars | | elsewhere: answers | failed | longest login, s | |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    results = []
    for whom in options.whom:
        rounds = []
        for number in range(options.rounds):
            rounds.append(a_round(binary, whom))
            waits, failed = rounds[-1]["waits"], rounds[-1]["elsewhere_failed"]
            say(f"{whom}, round {number + 1}, {rounds[-1]['killed']}: {len(waits)} databases, {min(waits):.2f}-{max(waits):.2f} s without service, {len(failed)} failures elsewhere")
            for failure in failed[:3]:
                say(f"  {failure}")
        waits = sorted(wait for each in rounds for wait in each["waits"])
        figure = {
            "killed": whom, "waits": [round(wait, 3) for wait in waits], "p50": percentile(waits, 0.5), "p99": percentile(waits, 0.99),
            "p50_bar": P50_BAR, "p99_bar": P99_BAR,
            "rounds_of": [{name: each[name] for name in ("killed", "coordinator", "controller", "keys")} for each in rounds],
            "elsewhere_answered": sum(each["elsewhere_answered"] for each in rounds),
            "elsewhere_failed": [failure for each in rounds for failure in each["elsewhere_failed"]],
            "elsewhere_longest": max(each["elsewhere_longest"] for each in rounds),
        }  # fmt: skip
        results.append(figure)
        is_met = figure["p50"] <= P50_BAR and figure["p99"] <= P99_BAR
        print(f"| {whom} | {len(waits)} | {figure['p50']:.2f} | {figure['p99']:.2f} | {waits[-1]:.2f} | {P50_BAR}, {P99_BAR} | {verdict(is_met)} "
              f"| {figure['elsewhere_answered']} | {len(figure['elsewhere_failed'])} | {figure['elsewhere_longest']:.2f} "
              f"| {verdict(not figure['elsewhere_failed'])} |", flush=True)  # fmt: skip
    keep("cluster_failover", options, where, results)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
