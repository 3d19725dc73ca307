"""What a front that does not own the database adds to a statement, beside what pgbouncer adds (bench/METHOD.md).

    bench/cluster/relay.py [--savanna PATH] [--rounds 7] [--seconds 1.2] [--dry]

Two nodes, one of which has the database. Clients ask it there, through the other node, and through pgbouncer before the node that has it; all servers
share a core. The three ways take turns with the same number of statements of the simple protocol. What a way adds is the processor time of all
servers per statement, less that of asking directly in the same round. The bar is that the front adds at most what pgbouncer does: all servers together
take at most as much with the one as with the other (`ratio`; where statements are sent many at a time pgbouncer may save the server more wake-ups than
it costs, and adds less than nothing). A statement from one client may take at most 150 µs longer than directly, in the middle. Appends to bench/results/cluster_relay.jsonl and prints a table; takes about 5 minutes.
"""

import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import time

from nodes import SERVER_CORE, Session, client_alone, count_for, cpu_seconds, folders, free_port, keep, parser, record, run, say
from nodes import shown, socket_is_open, texts, until, verdict

WAYS = ("direct", "front", "pgbouncer")
# Clients, and how many statements each sends at once.
CASES = [(kind, clients, pipeline) for kind in ("SELECT", "UPDATE") for clients, pipeline in ((1, 1), (8, 1), (8, 16))]
DATABASE = "bench"
BAR = 1.0
LATENCY_BAR_US = 150
# How often ways take turns in a round.
TURNS = 4
CONFIGURATION = """
[databases]
{database} = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = session
default_pool_size = 100
server_tls_sslmode = disable
log_connections = 0
log_disconnections = 0
"""


def find_pgbouncer():
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if not found:
        raise SystemExit("expected pgbouncer: install the Debian package pgbouncer")
    return found


class Bouncer:
    """pgbouncer before a node, on the core of servers."""

    def __init__(self, program, folder, server):
        self.port = free_port()
        file = folder / "pgbouncer.ini"
        file.write_text(CONFIGURATION.format(database=DATABASE, server=server, port=self.port))
        # It refuses to run as root.
        user = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}
        if user:
            folder.chmod(0o755)
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(["taskset", "-c", SERVER_CORE, program, file], **silent, **user)
        until(lambda: socket_is_open(self.port), "pgbouncer listens")

    def stop(self):
        self.process.kill()
        self.process.wait()


def timed(sessions, kind, pipeline, count):
    """Runs so many statements; how many they were, and how long each took in microseconds if they came one by one."""
    if len(sessions) > 1 or pipeline > 1:
        return run(sessions, kind, pipeline, count), []
    [session], times = sessions, []
    for _ in range(count):
        began = time.perf_counter()
        session.run(*texts(kind, 1))
        times.append((time.perf_counter() - began) * 1e6)
    return count, times


def measure(processes, sessions, case, seconds):
    """Of each way, microseconds of all servers' processor time per statement, and the median time of one."""
    kind, _, pipeline = case
    count = min(count_for(seconds / TURNS, lambda mine=mine: timed(mine, kind, pipeline, 20 * pipeline)[0]) for mine in sessions.values())
    spent, done, times = dict.fromkeys(WAYS, 0.0), dict.fromkeys(WAYS, 0), {way: [] for way in WAYS}
    for _ in range(TURNS):
        for way, mine in sessions.items():
            before = cpu_seconds(*processes)
            statements, waits = timed(mine, kind, pipeline, count)
            spent[way] += cpu_seconds(*processes) - before
            done[way] += statements
            times[way] += waits
    return {way: {"cpu": spent[way] / done[way] * 1e6, "time": statistics.median(times[way]) if times[way] else None} for way in WAYS}


def figures(rounds):
    """What the rounds of a case come to."""
    added = [[each[way]["cpu"] - each["direct"]["cpu"] for way in ("front", "pgbouncer")] for each in rounds]
    found = {
        "cpu": {way: record.interval([each[way]["cpu"] for each in rounds]) for way in WAYS},
        "added": {way: record.interval([figure[at] for figure in added]) for at, way in enumerate(("front", "pgbouncer"))},
        "ratio": record.interval([each["front"]["cpu"] / each["pgbouncer"]["cpu"] for each in rounds]),
    }
    if rounds[0]["direct"]["time"] is not None:
        longer = {way: record.interval([each[way]["time"] - each["direct"]["time"] for each in rounds]) for way in ("front", "pgbouncer")}
        found |= {"time": {way: record.interval([each[way]["time"] for each in rounds]) for way in WAYS}, "longer": longer}
    return found


def main():
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--seconds", type=float, default=1.2)
    options = options.parse_args()
    program = find_pgbouncer()
    binary, commit, profile = record.savanna(options.savanna)
    peer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    where = {**record.circumstances(commit, profile), "rounds": options.rounds, "peer": peer}
    client_alone()
    print(f"{where['machine']}\n{peer}\ncommit {commit}, {where['date']}, {options.rounds} rounds\n")
    results = []
    with folders(binary) as [folder]:
        nodes = folder.join("n1", "n2")
        owner = folder.nodes[folder.make_databases([DATABASE])[DATABASE]]
        [front] = [node for node in nodes if node is not owner]
        bouncer = Bouncer(program, pathlib.Path(folder.path), owner.ports["tenants"])
        try:
            ports = {"direct": owner.ports["tenants"], "front": front.ports["tenants"], "pgbouncer": bouncer.port}
            processes = [owner.process, front.process, bouncer.process]
            rounds = {case: [] for case in CASES}
            sessions = {way: [Session(port, DATABASE) for _ in range(8)] for way, port in ports.items()}
            for number in range(options.rounds):
                for case in CASES:
                    some = {way: mine[: case[1]] for way, mine in sessions.items()}
                    rounds[case].append(measure(processes, some, case, options.seconds))
                    cpu = ", ".join(f"{way} {figure['cpu']:.1f} µs" for way, figure in rounds[case][-1].items())
                    say("round {}, {}, {} clients, {} at a time: {}".format(number + 1, *case, cpu))
        finally:
            bouncer.stop()
    print("| statement | clients | pipeline | direct, µs of CPU | front adds | pgbouncer adds | ratio | bar | | front, µs longer | pgbouncer | bar | |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for (kind, clients, pipeline), each in rounds.items():
        found = figures(each)
        results.append({"statement": kind, "clients": clients, "pipeline": pipeline, "bar": BAR, "latency_bar_us": LATENCY_BAR_US, **found})
        row = [kind, clients, pipeline, shown(found["cpu"]["direct"], 1), shown(found["added"]["front"], 1), shown(found["added"]["pgbouncer"], 1),
               shown(found["ratio"]), BAR, verdict(found["ratio"]["high"] <= BAR)]  # fmt: skip
        longer = found.get("longer")
        row += [shown(longer["front"], 0), shown(longer["pgbouncer"], 0), LATENCY_BAR_US, verdict(longer["front"]["high"] <= LATENCY_BAR_US)] if longer else [""] * 4
        print("|", " | ".join(map(str, row)), "|", flush=True)
    keep("cluster_relay", options, where, results)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
