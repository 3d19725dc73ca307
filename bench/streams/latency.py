"""How long an event takes from when it was made until its result can be read, at half of the rate that all can do together (bench/METHOD.md).

    bench/streams/latency.py [--between kafka|files] [--seconds 30] [--epoch 200ms] [--binary target/release/savanna]

A query under a name, exactly once, reads events as JSON from a topic of Kafka (or lines of CSV from a file that is followed), and writes one of a hundred of them to another
topic (or to files). First two numbers of events are written as fast as that goes, and read meanwhile: what comes through a second between the two is the rate of all together.
Then half as many events a second are written, every 5 ms; each says when it was made. A reader of committed results notes when it gets it. The node has core 0; writer, reader and broker have the last one.
The bar: the 99th percentile is below two epochs and one commit. A commit is what the same takes without Savanna: a transaction of Kafka with as many rows as an epoch has (or the
flushes of a part, its name, and a mark), its 99th percentile of 50. Appends to bench/results/streams_latency.jsonl.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time

from nodes import ROOT, Run, percentile, pinned, record

sys.path.insert(0, str(ROOT / "tests"))

from broker import Broker  # noqa: E402

# Events in millions, to find the rate.
SIZES = (1, 5)
SHARE = 100
PORTION = 1000
EVERY = 0.005
# Results of so many seconds at the beginning do not count.
WARM_UP = 5
COMMITS = 50
COLUMNS = "at BIGINT, n BIGINT, extra VARCHAR"
EXTRA = "x" * 100
STATEMENT = "INSERT INTO written SELECT at, n FROM events WHERE n = 0"
EPOCHS = {"ms": 1e-3, "s": 1.0}


def seconds_of(text):
    unit = next((unit for unit in EPOCHS if text.endswith(unit) and text[: -len(unit)].isdigit()), None)
    if unit is None:
        raise argparse.ArgumentTypeError(f"expected a time such as 200ms or 1s, got {text}")
    return text, int(text[: -len(unit)]) * EPOCHS[unit]


def with_options(options):
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())


class Kafka:
    """Two topics of a broker of its own."""

    def __init__(self, directory):
        self.directory = directory
        self.broker = pinned(1, lambda: Broker(directory / "broker"))
        self.made = 0

    def table(self, name, columns, topic, **more):
        given = {"connector": "kafka", "topic": topic, "properties.bootstrap.servers": self.broker.servers, "format": "json", **more}
        return f"CREATE TABLE {name} ({columns}) WITH ({with_options(given)})"

    def topic(self):
        self.made += 1
        return self.broker.topic(f"t-{self.made}")

    def source(self):
        self.events = self.topic()
        return self.table("events", COLUMNS, self.events)

    def sink(self):
        self.results = self.topic()
        return self.table("written", "at BIGINT, n BIGINT", self.results)

    def writer(self):
        from confluent_kafka import Producer

        producer, topic = Producer(self.broker.client(linger_ms=1, queue_buffering_max_messages=1_000_000)), self.events

        def write(events):
            for event in events:
                while True:
                    try:
                        producer.produce(topic, event)
                        break
                    except BufferError:
                        producer.poll(0.01)
            producer.poll(0)

        return write, producer.flush

    @staticmethod
    def event(at, n):
        return json.dumps({"at": at, "n": n, "extra": EXTRA}).encode()

    def reader(self):
        return read_topic, (self.broker.client(group_id="reader", isolation_level="read_committed", auto_offset_reset="earliest", fetch_wait_max_ms=5), self.results)

    def commit(self, rows):
        """Times of transactions with so many rows."""
        from confluent_kafka import Producer

        producer = Producer(self.broker.client(transactional_id="probe", linger_ms=0))
        producer.init_transactions(30)
        topic, value, times = self.topic(), json.dumps({"at": 0, "n": 0}).encode(), []
        for _ in range(COMMITS):
            begun = time.monotonic()
            producer.begin_transaction()
            for _ in range(rows):
                producer.produce(topic, value)
            producer.commit_transaction(30)
            times.append(time.monotonic() - begun)
        return times

    def end(self):
        self.broker.kill()


def read_topic(client, topic, ends, told):
    """Of each message that counts: when it was made, and when it was there, in microseconds."""
    from confluent_kafka import Consumer, TopicPartition

    consumer, found = Consumer(client), []
    consumer.assign([TopicPartition(topic, 0, 0)])
    while not ends.is_set():
        for message in consumer.consume(1000, 0.02):
            if not message.error():
                found.append((json.loads(message.value())["at"], time.time_ns() // 1000))
    consumer.close()
    told.send(found)


class Files:
    """A file that is followed, and a folder."""

    def __init__(self, directory):
        self.directory, self.made = directory, 0

    def path(self):
        self.made += 1
        return self.directory / f"f-{self.made}"

    def table(self, name, columns, path, **more):
        given = {"connector": "file", "path": path, "format": "csv", "csv.header": "false", **more}
        return f"CREATE TABLE {name} ({columns}) WITH ({with_options(given)})"

    def source(self):
        self.events = self.path()
        self.events.touch()
        return self.table("events", COLUMNS, self.events, follow="true")

    def sink(self):
        self.results = self.path()
        self.results.mkdir()
        return self.table("written", "at BIGINT, n BIGINT", self.results)

    def writer(self):
        file = open(self.events, "ab")

        def write(events):
            file.write(b"".join(events))
            file.flush()

        return write, file.close

    @staticmethod
    def event(at, n):
        return f"{at},{n},{EXTRA}\n".encode()

    def reader(self):
        return read_folder, (str(self.results),)

    def commit(self, rows):
        """Times of what an epoch of files flushes: a part, its name, and a mark behind it."""
        folder, times = self.path(), []
        folder.mkdir()
        directory = os.open(folder, os.O_RDONLY)
        for number in range(COMMITS):
            begun = time.monotonic()
            for name, text in ((f"part-{number}", b"0000000000000000,0\n" * rows), (f"mark-{number}", b"0")):
                with open(folder / ".next", "wb", buffering=0) as file:
                    file.write(text)
                    os.fsync(file.fileno())
                os.rename(folder / ".next", folder / name)
                os.fsync(directory)
            times.append(time.monotonic() - begun)
        return times

    def end(self):
        pass


def read_folder(folder, ends, told):
    """Of each line of a part that is visible: when it was made, and when it was seen, in microseconds."""
    seen, found = set(), []
    while not ends.is_set():
        for entry in os.scandir(folder):
            if entry.name.startswith("part-") and entry.name not in seen:
                at = time.time_ns() // 1000
                seen.add(entry.name)
                with open(entry.path) as lines:
                    found += [(int(line.split(",")[0]), at) for line in lines]
        time.sleep(0.002)
    told.send(found)


BETWEEN = {"kafka": Kafka, "files": Files}


def begin(run, ways, epoch):
    with run.connect() as connection:
        for statement in (ways.source(), ways.sink(), f"SET 'epoch-target' = '{epoch}'", "SET 'query.name' = 'passing'", STATEMENT):
            connection.execute(statement)


def portion(event, first, behind):
    """Events that are made now, by their numbers. Of a hundred events one passes."""
    at = time.time_ns() // 1000
    passes, other = event(at, 0), event(at, 1)
    return [passes if n % SHARE == 0 else other for n in range(first, behind)]


def passed(ways, events, options):
    """Seconds until so many events are written, as fast as that goes, and read."""
    with Run(options.binary, ways.directory) as run:
        begin(run, ways, options.epoch[0])
        write, end = ways.writer()
        begun = time.monotonic()
        for first in range(0, events, PORTION):
            write(portion(ways.event, first, first + PORTION))
        end()
        run.until(lambda found: found["events"] >= events, "all events are read")
        return time.monotonic() - begun


def peak(ways, options):
    """Events a second."""
    small, large = (int(millions * 1e6 * options.scale) for millions in SIZES)
    less, more = passed(ways, small, options), passed(ways, large, options)
    return (large - small) / (more - less)


def paced(write, event, rate, seconds):
    """Writes so many events a second, and says how many."""
    begun, number, late = time.monotonic(), 0, 0.0
    while (passed := time.monotonic() - begun) < seconds:
        due = int(passed * rate)
        write(portion(event, number, due))
        number = due
        late = max(late, time.monotonic() - begun - passed)
        time.sleep(max(0.0, passed + EVERY - (time.monotonic() - begun)))
    return number, late


def measure(ways, rate, options):
    """Latencies in seconds, and how the writing went."""
    context = multiprocessing.get_context("spawn")
    with Run(options.binary, ways.directory) as run:
        begin(run, ways, options.epoch[0])
        read, arguments = ways.reader()
        ends, (told, tells) = context.Event(), context.Pipe(duplex=False)
        reader = context.Process(target=read, args=(*arguments, ends, tells))
        reader.start()
        write, end = ways.writer()
        begun = time.time_ns() // 1000
        number, late = paced(write, ways.event, rate, WARM_UP + options.seconds)
        ended = time.time_ns() // 1000
        end()
        run.until(lambda found: found["events"] >= number, "all events are read")
        behind = time.time_ns() / 1e9 - ended / 1e6
        time.sleep(4 * options.epoch[1] + 1)
        ends.set()
        found = told.recv()
        reader.join()
    latencies = [(there - at) / 1e6 for at, there in found if begun + WARM_UP * 1_000_000 <= at <= ended]
    if not latencies:
        raise SystemExit("nothing came out; give it more --seconds, or a higher --rate")
    return latencies, {"events": number, "results": len(latencies), "latest_write_seconds": late, "read_behind_seconds": behind}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--between", choices=list(BETWEEN), default="kafka")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--epoch", type=seconds_of, default=("200ms", 0.2), metavar="TIME")
    parser.add_argument("--rate", type=int, help="events per second, in place of half of what all can do together")
    parser.add_argument("--scale", type=float, default=1, help="times the usual numbers of events, to find the rate")
    parser.add_argument("--binary", type=pathlib.Path, help="in place of a release build that is made")
    parser.add_argument("--dry", action="store_true", help="keep nothing")
    options = parser.parse_args()
    options.binary, commit, profile = record.savanna(options.binary)
    where = record.circumstances(commit, profile)
    epoch = options.epoch[1]
    with tempfile.TemporaryDirectory() as directory:
        ways = BETWEEN[options.between](pathlib.Path(directory))
        try:
            most = None if options.rate else peak(ways, options)
            rate = options.rate or int(most / 2)
            latencies, how = measure(ways, rate, options)
            commit_seconds = percentile(ways.commit(max(1, int(rate * epoch / SHARE))), 99)
        finally:
            ways.end()
    bar = 2 * epoch + commit_seconds
    figures = {
        "between": options.between, "epoch_seconds": epoch, "peak_per_second": most, "rate_per_second": rate, **how, "commit_seconds": commit_seconds, "bar_seconds": bar,
        "keeps_up": max(how["read_behind_seconds"], how["latest_write_seconds"]) <= 2 * epoch, "seconds": {"p50": percentile(latencies, 50), "p99": percentile(latencies, 99), "max": max(latencies)},
    }  # fmt: skip
    print(f"{where['machine']}\ncommit {commit}, {where['date']}\n")
    print("| between | events per second, at most | in this run | keeps up | p50, ms | p99 | max | two epochs and a commit | bar |\n|---|---|---|---|---|---|---|---|---|")
    found, ms = figures["seconds"], 1e3
    print(f"| {options.between} | {most or 0:.0f} | {rate} | {'yes' if figures['keeps_up'] else 'no'} | {found['p50'] * ms:.0f} | {found['p99'] * ms:.0f} | {found['max'] * ms:.0f} "
          f"| {bar * ms:.0f} | {'met' if found['p99'] < bar else 'missed'} |")  # fmt: skip
    if not options.dry:
        record.keep("streams_latency", where, [figures])


if __name__ == "__main__":
    main()
