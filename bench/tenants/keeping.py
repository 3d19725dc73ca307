"""What many tenants on one server cost: waking, flushing, sleeping, neighbours (bench/METHOD.md).

    bench/tenants/keeping.py [make] [wake] [flushes] [many] [neighbour] [sleep] [--seconds 10] [--tenants 1000]

Builds `tenants_server` and measures it; TENANTS_SERVER names another one, whose commit is then not known.

make       CREATE DATABASE, its answer durable, and the first table in it
wake       from the connection to the first row of a tenant that sleeps, with a local storage, and with one whose requests take 20 ms
flushes    flushes of the log per transaction, and transactions a second, with 64 clients that update rows
many       updates by 64 clients of one tenant, and of 100 tenants: processor time per transaction
neighbour  how long updates of tenants take that use 60 % of the server together, with and without one that wants five times its share
sleep      memory and processor time of a server with 1,000 tenants that sleep, less those of one without

Appends to bench/results/tenants_keeping.jsonl and prints a line for each figure.
"""

import argparse
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
import time

import psycopg

from servers import CLIENT, PROGRAMS, Savanna, build, record

MEASUREMENTS = ("make", "wake", "flushes", "many", "neighbour", "sleep")
ROWS = 1_000
UPDATE = f"\\set id random(1, {ROWS})\nUPDATE t SET n = n + 1 WHERE id = :id;\n"
CLIENTS = 64
IDLE_MS = 200
DELAY_MS = 20
NEIGHBOURS = 4


class Tenants(Savanna):
    """A server that says how often it flushed its log."""

    def __init__(self, *more):
        self.more = more
        super().__init__()

    def start(self):
        command = ["taskset", "-c", "0", self.binary, self.folder / "data", f"127.0.0.1:{self.port}", "1", *self.more]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        process.stdout.readline()
        return process

    def connect(self, database="postgres"):
        return psycopg.connect(f"host=127.0.0.1 port={self.port} user=postgres dbname={database}", autocommit=True)

    def flushes(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline().split()[1])

    def create(self, names, rows=ROWS):
        with self.connect() as connection:
            for name in names:
                connection.execute(f"CREATE DATABASE {name}")
        for name in names:
            with self.connect(name) as connection:
                connection.execute("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)")
                connection.execute(f"INSERT INTO t SELECT g, 0 FROM generate_series(1, {rows}) AS g")

    def memory(self):
        """Resident bytes now."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) << 10

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder)


def bench(server, database, clients, seconds, rate=None):
    """pgbench's updates of one tenant: transactions, and how long they took on average and the slowest hundredth, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "update")
        script.write_text(UPDATE)
        limited = ["-R", str(rate)] if rate else []
        command = [*CLIENT, PROGRAMS / "pgbench", "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "-n", "-M", "prepared",
                   "-f", script, "-c", str(clients), "-T", str(seconds), "-l", "--log-prefix", f"{folder}/log",
                   *limited, database]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"pgbench failed: {done.stderr}")
        times = sorted(int(line.split()[2]) / 1e3 for log in pathlib.Path(folder).glob("log*") for line in log.read_text().splitlines())
    return {"transactions": len(times), "mean_ms": statistics.mean(times), "p99_ms": times[len(times) * 99 // 100]}


def bench_all(server, loads, seconds):
    """Several tenants at once: (name, clients, rate) of each."""
    found = {}

    def measure(name, clients, rate):
        found[name] = bench(server, name, clients, seconds, rate)

    threads = [threading.Thread(target=measure, args=load) for load in loads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def fall_asleep(server):
    """Waits until nobody is awake: the server has nothing more to do."""
    while True:
        before = server.cpu_seconds()
        time.sleep(5 * IDLE_MS / 1e3)
        if server.cpu_seconds() - before < 0.05 * 5 * IDLE_MS / 1e3:
            return


def spread(times):
    """The middle of some times, and what one in a hundred is above."""
    times = sorted(times)
    return {"median_ms": statistics.median(times), "p99_ms": times[len(times) * 99 // 100]}


def timed(work):
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def make(options):
    server = Tenants()
    names = [f"t{number}" for number in range(options.tenants)]
    with server.connect() as connection:
        yield {"what": "database"} | spread([timed(lambda: connection.execute(f"CREATE DATABASE {name}")) for name in names])

    def first_table(name):
        with server.connect(name) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)")

    yield {"what": "connection and first table"} | spread([timed(lambda: first_table(name)) for name in names])
    server.stop()


def wake(options):
    for delay in (0, DELAY_MS):
        server = Tenants(f"idle={IDLE_MS}", *([f"delay={delay}"] if delay else []))
        names = [f"t{number}" for number in range(min(100, options.tenants))]
        server.create(names)
        fall_asleep(server)

        def first_row(name):
            with server.connect(name) as connection:
                connection.execute("SELECT n FROM t WHERE id = 7").fetchone()

        yield {"delay_ms": delay} | spread([timed(lambda: first_row(name)) for name in names])
        server.stop()


def flushes(options):
    server = Tenants()
    server.create(["shop"])
    before = server.flushes()
    run = bench(server, "shop", CLIENTS, options.seconds)
    yield {"clients": CLIENTS, "flushes_per_transaction": (server.flushes() - before) / run["transactions"],
           "per_second": run["transactions"] / options.seconds}  # fmt: skip
    server.stop()


def many(options):
    for count in (1, 100):
        server = Tenants()
        names = [f"t{number}" for number in range(count)]
        server.create(names)
        # One client for each of 64 tenants at once, or 64 for the one; the others are awake and have nothing to do.
        loads = [(names[0], CLIENTS, None)] if count == 1 else [(name, 1, None) for name in names[:CLIENTS]]
        before = server.cpu_seconds()
        runs = bench_all(server, loads, options.seconds)
        transactions = sum(run["transactions"] for run in runs.values())
        cpu = server.cpu_seconds() - before
        yield {"tenants": count, "cpu_us": cpu / transactions * 1e6, "per_second": transactions / options.seconds}
        server.stop()


def neighbour(options):
    server = Tenants()
    names = [f"t{number}" for number in range(NEIGHBOURS)]
    server.create([*names, "greedy"])
    # What one core serves decides how much 60 % of it is.
    full = bench(server, names[0], 8, options.seconds)["transactions"] / options.seconds
    quiet = [(name, 2, 0.6 * full / NEIGHBOURS) for name in names]
    share = full / (NEIGHBOURS + 1)
    for greedy in ([], [("greedy", CLIENTS // 2, 5 * share)]):
        runs = bench_all(server, [*quiet, *greedy], options.seconds)
        others = [run for name, run in runs.items() if name != "greedy"]
        yield {
            "greedy_per_second": runs["greedy"]["transactions"] / options.seconds if greedy else 0,
            "others_per_second": sum(run["transactions"] for run in others) / options.seconds,
            "others_mean_ms": statistics.mean(run["mean_ms"] for run in others),
            "others_p99_ms": max(run["p99_ms"] for run in others),
        }
    server.stop()


def sleep(options):
    for count in (0, options.tenants):
        server = Tenants(f"idle={IDLE_MS}")
        server.create([f"t{number}" for number in range(count)], rows=10)
        fall_asleep(server)
        before = server.cpu_seconds()
        time.sleep(options.seconds)
        yield {"tenants": count, "memory_mib": server.memory() / (1 << 20), "cores": (server.cpu_seconds() - before) / options.seconds}
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurements", nargs="*", metavar="MEASUREMENT", help=", ".join(MEASUREMENTS) + " [default: all]")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--tenants", type=int, default=1_000)
    options = parser.parse_args()
    unknown = set(options.measurements) - set(MEASUREMENTS)
    if unknown:
        parser.error(f"expected measurements of {', '.join(MEASUREMENTS)}, came {', '.join(unknown)}")
    Tenants.binary, commit, profile = build()
    where = {**record.circumstances(commit, profile), "seconds": options.seconds}
    print(f"{where['machine']}\ncommit {commit}, {where['date']}\n")
    results = []
    for name in options.measurements or MEASUREMENTS:
        for figure in globals()[name](options):
            results.append({"measurement": name, **figure})
            shown = {what: value if isinstance(value, str) else f"{value:.3g}" for what, value in figure.items()}
            print(name, ", ".join(f"{what} {value}" for what, value in shown.items()), flush=True)
    record.keep("tenants_keeping", where, results)


if __name__ == "__main__":
    main()
