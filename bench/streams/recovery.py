"""What a snapshot of a query's state takes while the query runs, and how long it takes to go on from it after kill -9, by the size of the state (bench/METHOD.md).

    bench/streams/recovery.py [--sizes 10 100 1000 2000] [--snapshots 20] [--kills 3] [--binary target/release/savanna] [STATE ..]

A file that is followed fills a query with so many megabytes of state, as its snapshot has them: a row for each key. Then a hundredth of the keys come again before each of
the snapshots, of which these figures are taken: the bytes that were written, and how long the slowest member was held up: for its state alone, and with the rows of its
epoch. Then the node is killed, one more row is written, and another node begins: what is taken is the time from the start of its process to the first epoch that was not
there before. The bar: at most 10 ms for a state, at the 99th percentile of the snapshots, with 1 GB. Appends to bench/results/streams_recovery.jsonl.
"""

import argparse
import itertools
import pathlib
import statistics
import time

from nodes import Run, percentile, record

BAR_SECONDS = 0.010
BAR_MEGABYTES = 1000
COLUMNS = "at TIMESTAMP(3), id BIGINT, n BIGINT"
AGGREGATES = "count(*), sum(n), min(n), max(n), avg(n)"
RESULTS = "at TIMESTAMP(3), id BIGINT, a BIGINT, b BIGINT, c BIGINT, d BIGINT, e BIGINT"
# By kind of state: the columns of results, the query, and about how many bytes of a snapshot a key takes. No window closes, and no pair is found.
STATES = {
    "windows": (RESULTS, f"""SELECT window_start, id, {AGGREGATES} FROM TABLE(TUMBLE(TABLE log, DESCRIPTOR(at), INTERVAL '1' DAY))
        GROUP BY window_start, window_end, id""", 56),
    "sessions": (RESULTS, f"""SELECT window_start, id, {AGGREGATES} FROM TABLE(SESSION(TABLE log PARTITION BY id, DESCRIPTOR(at), INTERVAL '1' DAY))
        GROUP BY id, window_start, window_end""", 72),
    "join": ("at TIMESTAMP(3), id BIGINT, n BIGINT", """SELECT l.at, l.id, r.n FROM log l JOIN log r ON l.id = r.id
        AND l.at BETWEEN r.at - INTERVAL '1' DAY AND r.at + INTERVAL '1' DAY AND l.n > r.n""", 50),
}  # fmt: skip
# Rows are written so many at a time.
PORTION = 100_000
# What was read is in the epoch so many behind the last one that counts, at the latest.
IN_FLIGHT = 5
PATIENCE = 1800


class Log:
    """The file that the query reads."""

    def __init__(self, path):
        self.file = open(path, "wb", buffering=0)
        self.rows = 0

    def write(self, keys):
        """A row for each of these keys."""
        keys = iter(keys)
        while portion := list(itertools.islice(keys, PORTION)):
            self.file.write("".join(f"2026-01-01 00:00:01,{key},1\n" for key in portion).encode())
            self.rows += len(portion)


class Query:
    """A query with state, in a node of its own."""

    def __init__(self, run, kind, interval):
        self.run, self.log = run, Log(run.directory / "log.csv")
        # A join reads the file twice.
        self.readers = 2 if kind == "join" else 1
        columns, select, _ = STATES[kind]
        with run.connect() as connection:
            for statement in [
                f"""CREATE TABLE log ({COLUMNS}, WATERMARK FOR at AS at - INTERVAL '1' SECOND)
                    WITH ('connector' = 'file', 'path' = '{run.directory}/log.csv', 'format' = 'csv', 'csv.header' = 'false', 'follow' = 'true')""",
                f"CREATE TABLE written ({columns}) WITH ('connector' = 'file', 'path' = '{run.directory}/written', 'format' = 'csv')",
                "SET 'query.name' = 'kept'", f"SET 'snapshot-interval' = '{interval}'", f"INSERT INTO written {select}",
            ]:  # fmt: skip
                connection.execute(statement)

    def snapshots(self, keys):
        """Writes rows of these keys, and waits until there is a snapshot that has them all; the figures of each snapshot that was made meanwhile."""
        found = self.run.figures()
        seen = {found["more"]["snapshot_epoch"]: None} if found else {}
        self.log.write(keys)
        read = self.run.until(lambda found: found["events"] >= self.readers * self.log.rows, "the rows are read")
        begun = time.monotonic()
        while True:
            more = self.run.figures()["more"]
            seen.setdefault(more["snapshot_epoch"], more)
            if more["snapshot_epoch"] > read["epoch"] + IN_FLIGHT:
                return [figures for figures in seen.values() if figures]
            if time.monotonic() > begun + PATIENCE:
                raise SystemExit(f"no snapshot within {PATIENCE} s: {more}\n{self.run.node.log.read_text()[-4000:]}")
            # Of a query that rests none is made.
            self.log.write([0])
            time.sleep(0.1)

    def recovery(self):
        """Seconds from the start of a process to its first new epoch, and the most memory that it took until then."""
        before = self.run.figures()["epoch"]
        self.run.node.kill()
        self.log.write([0])
        begun = time.monotonic()
        self.run.start_again()
        self.run.until(lambda found: found["epoch"] > before, "an epoch that was not there")
        return time.monotonic() - begun, self.run.peak_bytes()


def measure(kind, megabytes, options):
    keys = max(1, megabytes * 1_000_000 // STATES[kind][2])
    with Run(options.binary) as run:
        query = Query(run, kind, options.snapshot_interval)
        first = query.snapshots(range(keys))[-1]
        changed = max(1, keys // 100)
        rounds = [query.snapshots(key % keys for key in range(number * changed, (number + 1) * changed)) for number in range(options.snapshots)]
        state = run.figures()["state_bytes"]
        kills = [query.recovery() for _ in range(options.kills)]
    # The keys of a round may be in two snapshots, the second of which has little else.
    written = [sum(figures["snapshot_written_bytes"] for figures in each) for each in rounds]
    longest = lambda name: [max(figures[name] for figures in each) for each in rounds]
    pauses, epochs = longest("snapshot_pause_seconds"), longest("snapshot_epoch_seconds")
    return {
        "state": kind, "megabytes": megabytes, "keys": keys, "snapshot_bytes": rounds[-1][-1]["snapshot_bytes"], "first_snapshot_bytes": first["snapshot_bytes"], "state_bytes": state,
        "changed_keys": changed, "written_bytes": {"median": statistics.median(written), "max": max(written)},
        "pause_seconds": {"first": first["snapshot_pause_max_seconds"], "p50": percentile(pauses, 50), "p99": percentile(pauses, 99), "all": pauses},
        "epoch_seconds": {"first": first["snapshot_epoch_max_seconds"], "p99": percentile(epochs, 99)},
        "recovery_seconds": [seconds for seconds, _ in kills], "recovery_peak_bytes": max((peak for _, peak in kills), default=0),
    }  # fmt: skip


def known(state):
    if state not in STATES:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(STATES)}, got {state}")
    return state


def verdict(figures):
    if figures["megabytes"] < BAR_MEGABYTES:
        return ""
    return "met" if figures["pause_seconds"]["p99"] <= BAR_SECONDS else "missed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 1000, 2000], metavar="MB")
    parser.add_argument("--snapshots", type=int, default=20)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--snapshot-interval", default="1s")
    parser.add_argument("--binary", type=pathlib.Path, help="in place of a release build that is made")
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    parser.add_argument("states", nargs="*", type=known, default=["windows"], metavar="STATE", help=", ".join(STATES))
    options = parser.parse_args()
    options.binary, commit, profile = record.savanna(options.binary)
    where = {**record.circumstances(commit, profile), "snapshots": options.snapshots, "snapshot_interval": options.snapshot_interval}
    print(f"{where['machine']}\ncommit {commit}, {where['date']}, {options.snapshots} snapshots, of which a hundredth of the keys is new\n")
    print("| state | MB | of a whole snapshot, MB | of one with changes, MB, median | pause, ms: first | p50 | p99 | bar | with the rows of its epoch, p99 | goes on after, s | its memory, MB |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for kind in options.states:
        for megabytes in options.sizes:
            figures = measure(kind, megabytes, options)
            pause, ms, mb = figures["pause_seconds"], 1e3, 1e-6
            print(f"| {kind} | {megabytes} | {figures['snapshot_bytes'] * mb:.1f} | {figures['written_bytes']['median'] * mb:.2f} | {pause['first'] * ms:.2f} | {pause['p50'] * ms:.2f} "
                  f"| {pause['p99'] * ms:.2f} | {verdict(figures)} | {figures['epoch_seconds']['p99'] * ms:.2f} | {statistics.median(figures['recovery_seconds'] or [0]):.2f} "
                  f"| {figures['recovery_peak_bytes'] * mb:.0f} |", flush=True)  # fmt: skip
            if not options.dry:
                record.keep("streams_recovery", where, [figures])


if __name__ == "__main__":
    main()
