"""From Kafka to Kafka: Nexmark's queries over bids as JSON, exactly once and at least once, beside Flink (bench/METHOD.md).

    bench/streams/kafka.py [--pairs 7] [--binary target/release/savanna] [q0 q5]

A broker (Kafka of the version of the tests) has topics of bids of two sizes, as the generator makes them. Each system reads one to the end that it has when the query begins, and writes the results to
another topic: exactly once on both sides, or at least once with nothing kept. Epochs and checkpoints come once a second. The systems take turns; what is compared is the processor
time of the node's, or of Flink's, process per event between the two sizes. Savanna's and Flink's processes have core 0, broker and benchmark the last one. Savanna has a
new node for each run; Flink's runs are in one process that was warmed up. Afterwards the number of rows that both have written is the same. Needs a JDK 17 and Maven.
The bar: at least 3 times Flink's events per CPU-second with exactly once. Appends to bench/results/streams_kafka.jsonl.
"""

import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import uuid

from nodes import ROOT, Run, pinned, query, record

sys.path.insert(0, str(ROOT / "bench/flink"))

import run as flink  # noqa: E402
from broker import Broker  # noqa: E402

BAR = 3.0
# Events in millions, of Savanna and of Flink; of 50, 46 are bids.
SIZES = {"q0": ((1, 5), (1, 3)), "q5": ((1, 9), (1, 3))}
WARM_UPS = 2
BID = "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, `dateTime` TIMESTAMP(3), extra VARCHAR, WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND"
GUARANTEES = ("exactly-once", "at-least-once")
EPOCH = "1s"


def with_options(options):
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())


def bids(folder):
    """Of each event that was generated into a folder, in order: its bid, or none."""
    for part in sorted(folder.glob("part-*.ndjson")):
        with open(part, "rb") as lines:
            yield from (event["bid"] for event in map(json.loads, lines))


class Topics:
    """A broker with the bids of the first so many events, each number in a topic of its own."""

    def __init__(self, binary, directory):
        self.binary, self.directory = binary, directory
        self.broker = pinned(1, lambda: Broker(directory / "broker"))
        self.filled = {}

    def bids(self, events):
        if events not in self.filled:
            out = self.directory / str(events)
            subprocess.run([self.binary, "nexmark", "generate", "--events", str(events), "--format", "ndjson", "--out", out], check=True, stdout=sys.stderr)
            topic = self.broker.topic(f"bids-{events}")
            self.broker.write(topic, (json.dumps(bid).encode() for bid in bids(out) if bid))
            shutil.rmtree(out)
            self.filled[events] = topic
        return self.filled[events]

    def table(self, name, columns, topic, **more):
        given = {"connector": "kafka", "topic": topic, "properties.bootstrap.servers": self.broker.servers, "format": "json", **more}
        return f"CREATE TABLE {name} ({columns}) WITH ({with_options(given)})"

    def written(self, topic):
        """Messages of a topic that count."""
        return len(self.broker.read(topic))


class Savanna:
    def __init__(self, name, guarantee, topics, options):
        self.name, self.guarantee, self.topics, self.options = name, guarantee, topics, options
        self.rows = {}

    def cpu_seconds(self, events):
        columns, insert = query(self.name)
        out = self.topics.broker.topic(f"ours-{uuid.uuid4().hex[:8]}")
        statements = [
            self.topics.table("bid", BID, self.topics.bids(events), **{"scan.bounded.mode": "latest-offset"}),
            self.topics.table("written", columns, out, **{"sink.delivery-guarantee": self.guarantee}),
            "SET 'epoch-target' = '1000ms'",
        ]
        if self.guarantee == "exactly-once":
            statements += [f"SET 'query.name' = '{self.name}'", f"SET 'snapshot-interval' = '{EPOCH}'"]
        with Run(self.options.binary) as run:
            seconds, _ = run.to_its_end(*statements, insert)
        self.rows.setdefault(events, self.topics.written(out))
        return seconds


class Flink:
    def __init__(self, name, guarantee, topics, options):
        self.name, self.guarantee, self.topics, self.rows = name, guarantee, topics, {}
        self.checkpoints = tempfile.TemporaryDirectory()
        settings = ["parallelism.default=1", "state.backend.type=hashmap"]
        if guarantee == "exactly-once":
            settings += [f"execution.checkpointing.interval={EPOCH}", "execution.checkpointing.mode=EXACTLY_ONCE", f"execution.checkpointing.dir=file://{self.checkpoints.name}"]
        self.log = tempfile.TemporaryFile()
        self.process = pinned(0, lambda: subprocess.Popen(
            [*flink.JVM, "-cp", options.classpath, "savanna.bench.Script", *settings], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
        ))  # fmt: skip

    def cpu_seconds(self, events):
        columns, insert = query(self.name)
        out = self.topics.broker.topic(f"theirs-{uuid.uuid4().hex[:8]}")
        sink = {"sink.delivery-guarantee": self.guarantee, "properties.transaction.timeout.ms": "600000"}
        if self.guarantee == "exactly-once":
            sink["sink.transactional-id-prefix"] = out
        reading = {"scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset"}
        # A bid's time is as the generator writes it.
        script = ";\n".join([
            self.topics.table("bid", BID, self.topics.bids(events), **reading, **{"json.timestamp-format.standard": "ISO-8601"}),
            self.topics.table("written", columns, out, **sink), insert,
        ])  # fmt: skip
        path = self.topics.directory / "script.sql"
        path.write_text(script)
        print(path, file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if found := re.match(r"cpu_seconds (\S+)", line):
                self.rows.setdefault(events, self.topics.written(out))
                return float(found.group(1))
        self.log.seek(0)
        raise SystemExit(self.log.read().decode()[-4000:])

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.checkpoints.cleanup()


def rate(system, sizes):
    """Events per processor second between two sizes."""
    small, large = sizes
    less, more = system.cpu_seconds(small), system.cpu_seconds(large)
    return (large - small) / (more - less)


def compare(name, guarantee, topics, options):
    ours_sizes, theirs_sizes = ([int(millions * 1e6 * options.scale) for millions in sizes] for sizes in SIZES[name])
    ours, theirs = Savanna(name, guarantee, topics, options), Flink(name, guarantee, topics, options)
    try:
        for _ in range(WARM_UPS):
            theirs.cpu_seconds(theirs_sizes[0])
        pairs = [(rate(ours, ours_sizes), rate(theirs, theirs_sizes)) for _ in range(options.pairs)]
    finally:
        theirs.end()
    for events in ours.rows.keys() & theirs.rows.keys():
        if ours.rows[events] != theirs.rows[events]:
            raise SystemExit(f"{name} over {events} events: Savanna wrote {ours.rows[events]} rows, Flink {theirs.rows[events]}")
    return {
        "query": name, "guarantee": guarantee, "sizes": [ours_sizes, theirs_sizes], "ours": statistics.median(a for a, _ in pairs),
        "theirs": statistics.median(b for _, b in pairs), "ratio": record.interval([a / b for a, b in pairs]),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1, help="times the usual numbers of events")
    parser.add_argument("--guarantees", nargs="+", default=GUARANTEES, choices=GUARANTEES)
    parser.add_argument("--binary", type=pathlib.Path, help="in place of a release build that is made")
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    parser.add_argument("queries", nargs="*", default=list(SIZES), metavar="QUERY")
    options = parser.parse_args()
    options.binary, commit, profile = record.savanna(options.binary)
    options.classpath = flink.build()
    where = {**record.circumstances(commit, profile), "pairs": options.pairs, "epoch": EPOCH}
    print(f"{where['machine']}\ncommit {commit}, {where['date']}, {options.pairs} pairs\n")
    print("| query | delivery | ours, events per CPU-second | Flink's | ratio | interval | bar |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        topics = Topics(options.binary, pathlib.Path(directory))
        try:
            for name in options.queries:
                for guarantee in options.guarantees:
                    figures = compare(name, guarantee, topics, options)
                    ratio = figures["ratio"]
                    verdict = "" if guarantee != "exactly-once" else "met" if ratio["low"] >= BAR else "missed"
                    print(f"| {name} | {guarantee} | {figures['ours']:,.0f} | {figures['theirs']:,.0f} | {ratio['median']:.2f} | {ratio['low']:.2f}-{ratio['high']:.2f} | {verdict} |", flush=True)
                    if not options.dry:
                        record.keep("streams_kafka", where, [figures])
        finally:
            topics.broker.kill()


if __name__ == "__main__":
    main()
