"""Bytes that go from one function to another: in a call, in an event, or by way of an object store (Flock, table of section 4).

    bench/flock/payload.py [--runs 9] [--s3-url URL --bucket NAME] [--savanna FILE]

For each size: a call that is waited for (in as many as its limit of 6 MiB asks for), events until they are accepted (1 MiB each), and a PUT and a GET of
an object of the same bytes. Without --s3-url the store is moto's server on this machine, a simulation in Python: neither its network nor its speed is that
of a store, and what is told of it says so. Keys are those of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Results go to
bench/results/flock_payload.jsonl."""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import boto3

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "faces"))

import record  # noqa: E402
from hosts import Client, Host  # noqa: E402

SIZES = (1_500, 15_000, 150_000, 1_500_000, 15_000_000)
CALL_MAX, EVENT_MAX = 6 << 20, 1 << 20
# It takes a text of any length, and says how long it was.
TAKES = "def handler(event, context):\n    return len(event)\n"


def cut(size, most):
    """Texts of JSON of so many bytes together, each of at most `most`."""
    most -= 2
    return [b'"' + b"x" * min(most, size - at) + b'"' for at in range(0, size, most)]


def timed(work):
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=9, help="of each size and medium, in turns [9]")
    arguments.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    arguments.add_argument("--s3-url", help="a store with the API of S3")
    arguments.add_argument("--bucket", default="bucket", help="a bucket in it [bucket]")
    arguments.add_argument("--savanna", type=pathlib.Path, help="the program [that of the release build, which is made]")
    arguments.add_argument("--dry", action="store_true", help="write nothing to bench/results")
    given = arguments.parse_args()
    savanna, commit, profile = record.savanna(given.savanna)
    store = None
    if given.s3_url:
        s3, told = boto3.client("s3", endpoint_url=given.s3_url), given.s3_url
    else:
        from test_buckets import Store

        store = Store()
        s3, told = store.client, "moto on this machine, no real store"
    if os.cpu_count() > 1:
        os.sched_setaffinity(0, {1})
    results = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            host = Host(savanna, pathlib.Path(folder))
            try:
                with Client(host.port) as client:
                    client.python("takes", TAKES, MemorySize=512)
                    for size in given.sizes:
                        calls, events, body = cut(size, CALL_MAX), cut(size, EVENT_MAX), b"x" * size
                        media = {
                            "call": lambda: [client.invoke("takes", part) for part in calls],
                            "event": lambda: [client.invoke("takes", part, "Event") for part in events],
                            "put": lambda: s3.put_object(Bucket=given.bucket, Key="payload", Body=body),
                            "get": lambda: s3.get_object(Bucket=given.bucket, Key="payload")["Body"].read(),
                        }
                        times = {name: [] for name in media}
                        for run in range(given.runs + 1):
                            for name, work in media.items():
                                took = timed(work)
                                if run:
                                    times[name].append(took)
                            # Events run beside what comes next otherwise.
                            time.sleep(0.2)
                        over = [put + get for put, get in zip(times["put"], times["get"])]
                        ratio = record.interval([by_store / call for by_store, call in zip(over, times["call"])])
                        result = {"bytes": size, "calls": len(calls), "events": len(events), "store": told,
                                  **{f"{name}_ms": record.interval(took) for name, took in times.items()}, "store_to_call": ratio}  # fmt: skip
                        print(json.dumps(result), flush=True)
                        results.append(result)
            finally:
                host.stop()
    finally:
        if store:
            store.process.kill()
            store.process.wait()
    if not given.dry:
        record.keep("flock_payload", record.circumstances(commit, profile), results)


if __name__ == "__main__":
    main()
