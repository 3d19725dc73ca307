"""Latency of point reads beside a query of the same database that takes the whole time, of tenants beside PostgreSQL 15 (bench/METHOD.md).

    bench/tenants/readers.py [--pairs 3] [--seconds 30] [--rows 300000] [--clients 2] [--cores 0,1] [--query NAME ..]

Clients read rows by their keys (pgbench, prepared statements), alone and beside each of the queries, which is cancelled in the end. Servers may use the cores that
are named, pgbench all. Appends to bench/results/tenants_readers.jsonl and prints a table: times in microseconds, and how many times PostgreSQL's that is.
"""

import argparse
import contextlib
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

from servers import PostgreSQL, Savanna, build, record

# At most so many times PostgreSQL's.
P99 = 3.0

TABLE = """
CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL, name text NOT NULL);
INSERT INTO t SELECT g, g * 7919::bigint % 10007, 'name ' || g FROM generate_series(1, :rows) g;
"""

POINT = """
\\set id random(1, :rows)
SELECT n, name FROM t WHERE id = :id;
"""

QUERIES = {
    "alone": None,
    # Reads all rows again and again.
    "scan": "SELECT (SELECT count(*) FROM t WHERE n + g % 7 > 5) FROM generate_series(1, 1000000) g",
    # Reads row by row.
    "join": "SELECT count(*), sum(t.n) FROM generate_series(1, 1000000000) g JOIN t ON t.id = (1 + g * 7919::bigint % :rows)::int",
    # Reads them once and computes.
    "compute": "SELECT count(*), sum((t.n * g) % 1009) FROM t, generate_series(1, 100000) g",
}


def percentile(latencies, share):
    return sorted(latencies)[min(len(latencies) - 1, int(len(latencies) * share))]


@contextlib.contextmanager
def beside(server, query):
    """Has a query run that still runs in the end."""
    if query is None:
        yield
        return
    psql = subprocess.Popen([*server.client("psql"), "-qAtc", query], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(1)
        yield
        if psql.poll() is not None:
            raise SystemExit(f"{type(server).__name__}: the query was over too early: {query}: {psql.stderr.read()}")
    finally:
        # It has the server cancel the query: PostgreSQL does not notice that a client has gone.
        psql.send_signal(signal.SIGINT)
        psql.wait()


def measure(server, query, options):
    """Latencies in microseconds."""
    with tempfile.TemporaryDirectory() as folder, beside(server, query and query.replace(":rows", str(options.rows))):
        script = pathlib.Path(folder) / "point.sql"
        script.write_text(POINT)
        flags = ["-n", "-M", "prepared", "-c", str(options.clients), "-T", str(options.seconds), "-D", f"rows={options.rows}", "-f", script, "-l"]
        subprocess.run([*server.client("pgbench"), *flags, "postgres"], cwd=folder, check=True, capture_output=True)
        lines = [line for log in pathlib.Path(folder).glob("pgbench_log.*") for line in log.read_text().splitlines()]
        return [int(line.split()[2]) for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--query", nargs="+", choices=QUERIES, default=list(QUERIES))
    options = parser.parse_args()
    Savanna.binary, commit, profile = build()
    results = []
    with contextlib.ExitStack() as stack:
        servers = [Savanna(), PostgreSQL()]
        for server in servers:
            stack.callback(server.stop)
            subprocess.run(["taskset", "-a", "-p", "-c", options.cores, str(server.process.pid)], check=True, capture_output=True)
            loaded = server.psql(TABLE.replace(":rows", str(options.rows)))
            if loaded.returncode:
                raise SystemExit(loaded.stderr)
        print(f"{'':10}{'p50':>9}{'':>9}{'times':>7}{'p99':>9}{'':>9}{'times':>7}{'reads/s':>9}{'':>9}")
        for name in options.query:
            query = QUERIES[name]
            taken = {server: [] for server in servers}
            for _ in range(options.pairs):
                for server in servers:
                    latencies = measure(server, query, options)
                    reads = len(latencies) / options.seconds
                    taken[server].append((percentile(latencies, 0.5), percentile(latencies, 0.99), reads))
            ours, theirs = ([statistics.median(figures) for figures in zip(*taken[server])] for server in servers)
            result = {"query": name, "p50": ours[0], "p99": ours[1], "reads": ours[2],
                      "postgresql": {"p50": theirs[0], "p99": theirs[1], "reads": theirs[2]}}  # fmt: skip
            results.append(result)
            times = [mine / max(other, 1) for mine, other in zip(ours, theirs)]
            shown = "".join(f"{mine:9.0f}{other:9.0f}{ratio:7.2f}" for mine, other, ratio in zip(ours[:2], theirs[:2], times))
            print(f"{name:10}{shown}{ours[2]:9.0f}{theirs[2]:9.0f}", flush=True)
    record.keep("tenants_readers", {**record.circumstances(commit, profile), "options": vars(options)}, results)
    slow = [result["query"] for result in results if result["p99"] > P99 * result["postgresql"]["p99"]]
    if slow:
        raise SystemExit(f"p99 is above {P99} times PostgreSQL's beside: {', '.join(slow)}")


if __name__ == "__main__":
    main()
