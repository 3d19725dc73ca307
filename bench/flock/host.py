"""What the host of functions costs beside the functions themselves (bench/METHOD.md).

    bench/flock/host.py [--runs 9] [--calls 2000] [--starts 30] [--seconds 5] [--only warm|cold|accept] [--savanna FILE] [--stage FILE]

warm    CPU of the node's process for each invocation that is waited for, of a function of Python that answers what it gets; bar 0.5 ms
cold    from the request to the first answer of a function without an instance: the program of stages (bar 50 ms), and Python (bar 100 ms)
accept  events per second that are in the log before they are answered, with 1 and 64 clients

The node is kept to core 0, the client to core 1. Results go to bench/results/flock_host.jsonl."""

import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import record  # noqa: E402
from hosts import Client, Host  # noqa: E402

WARM_MS, COLD_STAGE_MS, COLD_PYTHON_MS = 0.5, 50, 100
PROGRAM_BYTES, ZIP_BYTES = 60_000_000, 20_000_000
PAYLOAD = json.dumps({"text": "x" * 100}).encode()


def warm(host, client, given):
    client.python("echo")
    for _ in range(given.calls // 10 + 1):
        client.invoke("echo", PAYLOAD)
    cpu, medians, slow = [], [], []
    for _ in range(given.runs):
        before = host.cpu_seconds()
        took = sorted(client.invoke("echo", PAYLOAD)[0] for _ in range(given.calls))
        cpu.append((host.cpu_seconds() - before) / given.calls * 1e3)
        medians.append(statistics.median(took) * 1e3)
        slow.append(took[int(len(took) * 0.99)] * 1e3)
    figures = record.interval(cpu)
    return [{"what": "warm", "bar_ms": WARM_MS, "is_met": figures["high"] < WARM_MS, "calls": given.calls, "cpu_ms": figures,
             "median_ms": record.interval(medians), "p99_ms": record.interval(slow)}]  # fmt: skip


def cold(host, client, given):
    client.python("python")
    stage = given.stage.read_bytes()
    zipped = client.make("stage", "provided.al2023", {"bootstrap": (stage, 0o100755)}, MemorySize=512)
    took = {"stage": [], "python": []}
    # Both take turns; the first of each is not counted.
    for turn in range(given.starts + 1):
        for name, times in took.items():
            client.renew(name, turn)
            times.append(client.invoke(name, PAYLOAD)[0] * 1e3)
    bars = {"stage": COLD_STAGE_MS, "python": COLD_PYTHON_MS}
    results = []
    for name, times in took.items():
        figures = record.interval(times[1:])
        starts = host.used()[name]["cold_starts"]
        assert starts == len(times), f"{name}: {starts} instances for {len(times)} calls: not each was a cold one"
        median = statistics.median(times[1:])
        results.append({"what": f"cold {name}", "bar_ms": bars[name], "is_met": median < bars[name], "all_are_below": figures["high"] < bars[name], "ms": figures})
    sizes = {"program_bytes": len(stage), "zip_bytes": zipped}
    results.append({"what": "size", **sizes, "is_met": len(stage) <= PROGRAM_BYTES and zipped <= ZIP_BYTES})
    return results


def send(port, name, ends, counted):
    """Sends events until it is over."""
    if os.cpu_count() > 1:
        os.sched_setaffinity(0, {1})
    sent = 0
    with Client(port) as client:
        while time.monotonic() < ends:
            client.invoke(name, PAYLOAD, "Event")
            sent += 1
    counted.put(sent)


def accept(host, client, given):
    # One instance takes them; what counts is that they are kept.
    client.python("sink")
    client.json("PUT", "/2017-10-31/functions/sink/concurrency", {"ReservedConcurrentExecutions": 1})
    results = []
    for clients in (1, 64):
        rates = []
        for _ in range(given.runs):
            counted, ends = multiprocessing.Queue(), time.monotonic() + given.seconds
            before = host.cpu_seconds()
            senders = [multiprocessing.Process(target=send, args=(host.port, "sink", ends, counted)) for _ in range(clients)]
            for sender in senders:
                sender.start()
            sent = sum(counted.get(timeout=given.seconds + 120) for _ in senders)
            for sender in senders:
                sender.join()
            rates.append((sent / given.seconds, (host.cpu_seconds() - before) / max(sent, 1) * 1e3))
        results.append({"what": "accept", "clients": clients, "events_per_second": record.interval([rate for rate, _ in rates]),
                        "cpu_ms": record.interval([cpu for _, cpu in rates])})  # fmt: skip
    return results


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=9, help="runs of warm calls, and of events [9]")
    arguments.add_argument("--calls", type=int, default=2000, help="warm calls of a run [2000]")
    arguments.add_argument("--starts", type=int, default=30, help="cold starts of each kind [30]")
    arguments.add_argument("--seconds", type=float, default=5, help="length of a run of events [5]")
    arguments.add_argument("--only", choices=["warm", "cold", "accept"], help="one of them")
    arguments.add_argument("--savanna", type=pathlib.Path, help="the program [that of the release build, which is made]")
    arguments.add_argument("--stage", type=pathlib.Path, help="the program of stages [savanna-stage beside it]")
    arguments.add_argument("--dry", action="store_true", help="write nothing to bench/results")
    given = arguments.parse_args()
    savanna, commit, profile = record.savanna(given.savanna)
    given.stage = given.stage or savanna.with_name("savanna-stage")
    if os.cpu_count() > 1:
        os.sched_setaffinity(0, {1})
    results = []
    for name, measure in {"warm": warm, "cold": cold, "accept": accept}.items():
        if given.only in (None, name):
            # Each on a host of its own, so that none has the other's log to carry.
            with tempfile.TemporaryDirectory() as folder:
                host = Host(savanna, pathlib.Path(folder))
                try:
                    with Client(host.port) as client:
                        found = measure(host, client, given)
                finally:
                    host.stop()
            for result in found:
                print(json.dumps(result), flush=True)
            results += found
    if not given.dry:
        record.keep("flock_host", record.circumstances(commit, profile), results)
    missed = [result["what"] for result in results if not result.get("is_met", True)]
    if missed:
        raise SystemExit(f"bars that are not met: {', '.join(missed)}")


if __name__ == "__main__":
    main()
