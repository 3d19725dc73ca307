"""What queries cost whose stages are functions (bench/METHOD.md).

    bench/flock/queries.py cost   [--queries q1 q5 q7 q11 q12] [--rates 1000 100000 1000000] [--seconds 60]
    bench/flock/queries.py groups [--queries q7 q8 ysb] [--events 2000000] [--runs 7]
    bench/flock/queries.py silent [--seconds 3600]

cost    dollars for a billion events at a rate, as the host bills them, beside cores that are always there: as many as the same query needs in one process at that
        rate (by its own processor time, a whole number, at least one), and as many as Flink needs by bench/results/flink.jsonl. q12's windows are of the clock, and the source is in real time for all.
groups  a group of 8 functions against one: seconds, and billed seconds
silent  invocations of a query whose source has nothing new, after it has been read to its end; bar 0

All prices are those of functions.prices (AWS Lambda's by default), and USD_PER_CORE_HOUR. Results go to bench/results/flock_WHAT.jsonl."""

import argparse
import json
import math
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import record  # noqa: E402
from hosts import ROOT, Host, pin  # noqa: E402

# AWS c7i.large in us-east-1, on demand, by the core: as EXPLAIN has it.
USD_PER_CORE_HOUR = 0.0446
SETTLED_SECONDS = 5
YSB = """CREATE TABLE ysb (campaign BIGINT, starttime TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO ysb SELECT auction % 100, window_start, count(*) FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
    WHERE bidder % 3 = 0 GROUP BY auction % 100, window_start, window_end;"""


def script(query, options, settings=""):
    ddl = (ROOT / "cli/nexmark/ddl.sql").read_text().replace("${OPTIONS}", options).replace("${DELAY}", "4")
    return settings + ddl + (YSB if query == "ysb" else (ROOT / f"cli/nexmark/{query}.sql").read_text())


def words(savanna, path, host, given):
    on = ["--on", "functions", "--functions-url", host.url, "--function-memory", given.memory]
    on += ["--stage", given.stage or savanna.with_name("savanna-stage")]
    return [str(word) for word in [*pin(1), savanna, "sql", "-f", path, "--output", "json", *on]]


def used(host):
    """Requests, billed milliseconds and dollars of all functions so far."""
    rows = host.used().values()
    return {figure: sum(row[figure] for row in rows) for figure in ("requests", "billed_ms", "dollars")}


def summary(output):
    return json.loads(output.strip().splitlines()[-1])


def run(savanna, text, host, given, folder):
    """A query to its end: what it says, and what it has used."""
    path = folder / "query.sql"
    path.write_text(text)
    before = used(host)
    done = subprocess.run(words(savanna, path, host, given), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    after = used(host)
    return summary(done.stderr or done.stdout), {figure: after[figure] - before[figure] for figure in after}


def cpu_per_event(savanna, query, given):
    """Processor seconds of an event in one process without the generator's, by the difference of two sizes."""
    small, large = given.sizes
    took = []
    for events in (small, large):
        command = [savanna, "nexmark", "run", "--query", query, "--events", str(events), "--output", "json"]
        told = json.loads(subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout)
        took.append(told["cpu_seconds"] - told["generator_cpu_seconds"])
    return max(took[1] - took[0], 0) / (large - small)


def flink_rates():
    """Events of a processor second of Flink, by query, as bench/flink/run.py has kept them: the last of each."""
    lines = (ROOT / "bench/results/flink.jsonl").read_text().splitlines()
    return {row["query"]: row["flink"]["median"] * 1e6 for row in map(json.loads, lines) if "flink" in row}


def always_on(rate, each):
    """Cores that keep up with a rate, and what they cost for a billion events."""
    cores = max(1, math.ceil(rate * each))
    return cores, cores * USD_PER_CORE_HOUR / 3600 / rate * 1e9


def cost(savanna, given, folder):
    by_flink = flink_rates()
    for query in given.queries or ["q1", "q5", "q7", "q11", "q12"]:
        each = cpu_per_event(savanna, query, given)
        for rate in given.rates:
            (folder / f"{query}-{rate}").mkdir()
            host = Host(savanna, folder / f"{query}-{rate}", given.settings)
            try:
                path = folder / "query.sql"
                path.write_text(script(query, f"'first-event.rate' = '{rate}', 'next-event.rate' = '{rate}', 'seed' = '1'"))
                running = subprocess.Popen(words(savanna, path, host, given), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                time.sleep(SETTLED_SECONDS + given.seconds)
                running.send_signal(signal.SIGTERM)
                output, errors = running.communicate(timeout=120)
                told = summary(errors if errors.strip() else output)
                [status] = told["queries"]
                spent = used(host)
            finally:
                host.stop()
            events = status["events"]
            cores, dollars = always_on(rate, each)
            flink = dict(zip(("flink_cores", "flink_dollars_per_billion"), always_on(rate, 1 / by_flink[query]))) if query in by_flink else {}
            yield {
                "query": query, "rate": rate, "reached": round(events / status["seconds"]), "keeps_up": events / status["seconds"] > 0.9 * rate,
                "events": events, **spent, "dollars_per_billion": spent["dollars"] / max(events, 1) * 1e9,
                "cpu_us_per_event": each * 1e6, "cores": cores, "cores_dollars_per_billion": dollars, **flink,
            }  # fmt: skip


def groups(savanna, given, folder):
    (folder / "host").mkdir()
    host = Host(savanna, folder / "host", given.settings)
    try:
        for query in given.queries or ["q7", "q8", "ysb"]:
            text = {size: script(query, f"'events.num' = '{given.events}', 'seed' = '1'", f"SET 'group-size' = '{size}';") for size in (1, 8)}
            pairs = []
            for turn in range(given.runs + 1):
                pair = {size: run(savanna, text[size], host, given, folder) for size in text}
                if turn:
                    pairs.append(pair)
            ratio = lambda figure: record.interval([figure(pair[8]) / figure(pair[1]) for pair in pairs])
            yield {
                "query": query, "events": given.events,
                **{f"seconds_{size}": record.interval([pair[size][0]["seconds"] for pair in pairs]) for size in text},
                **{f"billed_seconds_{size}": record.interval([pair[size][1]["billed_ms"] / 1e3 for pair in pairs]) for size in text},
                "seconds_8_to_1": ratio(lambda one: one[0]["seconds"]), "billed_8_to_1": ratio(lambda one: one[1]["billed_ms"]),
            }  # fmt: skip
    finally:
        host.stop()


def silent(savanna, given, folder):
    (folder / "host").mkdir()
    (folder / "in").mkdir()
    host = Host(savanna, folder / "host", given.settings)
    rows = "\n".join(json.dumps({"n": n, "at": f"2026-01-01 00:00:{n:02}"}) for n in range(30))
    (folder / "in" / "a.ndjson").write_text(rows + "\n")
    text = f"""CREATE TABLE rows_in (n BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at)
            WITH ('connector' = 'file', 'path' = '{folder / "in"}', 'format' = 'ndjson', 'follow' = 'true');
        CREATE TABLE rows_out (at TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
        INSERT INTO rows_out SELECT window_start, count(*) FROM TABLE(TUMBLE(TABLE rows_in, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;"""
    path = folder / "query.sql"
    path.write_text(text)
    try:
        running = subprocess.Popen(words(savanna, path, host, given), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not used(host)["requests"]:
            if running.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the query calls nothing: {running.communicate()[1][-2000:]}")
            time.sleep(0.1)
        time.sleep(SETTLED_SECONDS)
        before = used(host)
        time.sleep(given.seconds)
        after = used(host)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=120)
    finally:
        host.stop()
    invocations = after["requests"] - before["requests"]
    yield {"seconds": given.seconds, "requests_before": before["requests"], "invocations": invocations, "is_met": invocations == 0}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", choices=["cost", "groups", "silent"])
    arguments.add_argument("--queries", nargs="+", help="Nexmark's, or ysb")
    arguments.add_argument("--rates", type=int, nargs="+", default=[1_000, 100_000, 1_000_000], help="events per second")
    arguments.add_argument("--seconds", type=float, help="of each rate [60]; of silence [3600]")
    arguments.add_argument("--events", type=int, default=2_000_000, help="of a run of groups")
    arguments.add_argument("--sizes", type=int, nargs=2, default=[4_000_000, 34_000_000], help="events by whose difference the processor time in one process is taken")
    arguments.add_argument("--runs", type=int, default=7, help="pairs of groups [7]")
    arguments.add_argument("--memory", type=int, default=512, help="of each function, in MB [512]")
    arguments.add_argument("--savanna", type=pathlib.Path, help="the program [that of the release build, which is made]")
    arguments.add_argument("--stage", type=pathlib.Path, help="the program of stages [savanna-stage beside it]")
    arguments.add_argument("--dry", action="store_true", help="write nothing to bench/results")
    given = arguments.parse_args()
    given.seconds = given.seconds or (3600 if given.what == "silent" else 60)
    given.settings = {"functions.concurrency": 1000}
    savanna, commit, profile = record.savanna(given.savanna)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for result in {"cost": cost, "groups": groups, "silent": silent}[given.what](savanna, given, pathlib.Path(folder)):
            print(json.dumps(result), flush=True)
            results.append(result)
    if not given.dry:
        record.keep(f"flock_{given.what}", record.circumstances(commit, profile), results)
    if not all(result.get("is_met", True) for result in results):
        raise SystemExit("the bar is not met")


if __name__ == "__main__":
    main()
