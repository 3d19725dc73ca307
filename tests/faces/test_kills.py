"""Queries of six kinds whose node is killed, at any moment and at each step of an epoch and of a snapshot, and that go on in groups of another size between: what is
in files, in Kafka or in PostgreSQL in the end is what the query gives undisturbed.

Each pair of two factors is in one of the cases; KILLS=product runs them all."""

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
import uuid

import psycopg
import pytest

from broker import Broker, table
from node import SAVANNA, Node, command
from pairs import covering
from postgresql import PostgreSQL
from same_rows import assert_same_rows
from test_survival import connect, lines, named, states

SEED = random.randrange(1 << 32)
PASSWORD = "open sesame"

# Where the process ends, and at how many times of that step at most.
OF_RECORDS = {"record-appended": 40, "record-durable": 40}
OF_CUTS = {"records-cut": 3}
OF_SNAPSHOTS = {"snapshot-part": 9, "snapshot-written": 3, "snapshot-switched": 3, "snapshot-tidied": 3}
OF_SINKS = {
    "files": {"file-sink-part-written": 6, "file-sink-part-visible": 6, "file-sink-marked": 6},
    "kafka": {"kafka-sink-before-commit": 6, "kafka-sink-after-commit": 6},
    "postgres": {"postgres-sink-before-commit": 6, "postgres-sink-after-commit": 6},
}
TIMES = {**OF_RECORDS, **OF_CUTS, **OF_SNAPSHOTS, **{point: times for points in OF_SINKS.values() for point, times in points.items()}}

COLUMNS = "kind INT, id BIGINT, who BIGINT, price BIGINT, n BIGINT, at TIMESTAMP(3)"
WATERMARK = "WATERMARK FOR at AS at - INTERVAL '1' SECOND"
FOUND = "a BIGINT, b BIGINT, c BIGINT, d BIGINT"
VIEWS = [
    "CREATE VIEW people AS SELECT id, n, at FROM events WHERE kind = 0",
    "CREATE VIEW auctions AS SELECT id, who, n, at FROM events WHERE kind = 1",
    "CREATE VIEW bids AS SELECT id, who, price, n, at, PROCTIME() AS p FROM events WHERE kind = 2",
]
START = "TIMESTAMPDIFF(MILLISECOND, TIMESTAMP '2026-01-01 00:00:00', {})"
OF_AUCTIONS = """SELECT id, count(*) AS num, window_start AS starttime, window_end AS endtime
    FROM TABLE(HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '0.5' SECOND, INTERVAL '2' SECOND)) GROUP BY id, window_start, window_end"""
KINDS = {
    # Query 5 of Nexmark: the hottest auctions of each window.
    "q5": f"""SELECT {START.format('B.starttime')}, B.id, B.num, M.maxn FROM ({OF_AUCTIONS}) AS B
        JOIN (SELECT max(num) AS maxn, starttime, endtime FROM ({OF_AUCTIONS}) AS C GROUP BY starttime, endtime) AS M
        ON B.starttime = M.starttime AND B.endtime = M.endtime AND B.num * 4 >= M.maxn * 3""",
    # Query 8: people who open auctions in the window in which they came.
    "q8": f"""SELECT {START.format('P.starttime')}, P.id, P.n, A.auctions FROM
        (SELECT id, sum(n) AS n, window_start AS starttime, window_end AS endtime FROM TABLE(TUMBLE(TABLE people, DESCRIPTOR(at), INTERVAL '2' SECOND))
            GROUP BY id, window_start, window_end) AS P
        JOIN (SELECT who, count(*) AS auctions, window_start AS starttime, window_end AS endtime FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(at), INTERVAL '2' SECOND))
            GROUP BY who, window_start, window_end) AS A
        ON P.id = A.who AND P.starttime = A.starttime AND P.endtime = A.endtime""",
    # Query 11: sessions of bidders.
    "q11": f"""SELECT {START.format('window_start')}, who, count(*), sum(n) FROM TABLE(SESSION(TABLE bids PARTITION BY who, DESCRIPTOR(at), INTERVAL '0.5' SECOND))
        GROUP BY who, window_start, window_end""",
    "interval": """SELECT a.n, a.id, COALESCE(b.n, -1), COALESCE(b.price, -1) FROM auctions a LEFT JOIN bids b
        ON a.id = b.id AND b.at BETWEEN a.at - INTERVAL '0.2' SECOND AND a.at + INTERVAL '0.3' SECOND WHERE mod(a.id, 4) = 0""",
    "lookup": f"""SELECT {START.format('window_start')}, kind, count(*), sum(n) FROM TABLE(TUMBLE(
        (SELECT at, n, k.kind FROM bids JOIN kinds FOR SYSTEM_TIME AS OF bids.p AS k ON mod(bids.id, 10) = k.place), DESCRIPTOR(at), INTERVAL '0.2' SECOND))
        GROUP BY window_start, window_end, kind""",
    # Query 12: windows by the clock.
    "clock": f"""SELECT {START.format('window_start')}, who, count(*), sum(n) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(p), INTERVAL '0.2' SECOND))
        GROUP BY window_start, window_end, who""",
}
# Results of the others reach back over any time: without snapshots, none of their records go.
WITHIN_BOUNDS = ("q5", "q8", "interval", "lookup")

Case = collections.namedtuple("Case", "kind recovery mode before after way moment")


def product():
    """All cases that there are."""
    for kind, recovery, mode, before, after, way in itertools.product(KINDS, ("records", "snapshots"), ("serverless", "provisioned"), (1, 3), (1, 3), OF_SINKS):
        moments = ["any", *OF_RECORDS, *OF_SINKS[way]]
        if recovery == "snapshots" or kind in WITHIN_BOUNDS:
            moments += OF_CUTS
        if recovery == "snapshots":
            moments += OF_SNAPSHOTS
        yield from (Case(kind, recovery, mode, before, after, way, moment) for moment in moments)


# Those of every change.
QUICK = [
    Case("q8", "snapshots", "provisioned", 1, 3, "files", "any"),
    Case("clock", "snapshots", "serverless", 3, 1, "files", "snapshot-switched"),
]


def chosen():
    everything = list(product())
    assert set(QUICK) <= set(everything)
    return everything if os.environ.get("KILLS") == "product" else covering(everything, QUICK)


@functools.cache
def events():
    """People, auctions and bids of 160 s, as lines: not in order, and none late."""
    dice = random.Random(SEED)
    people, opened, told = 1, 1, []
    for n in range(40_000):
        kind = dice.choices((0, 1, 2), (2, 4, 14))[0]
        id, who, price = 0, 0, dice.randrange(1000)
        if kind == 0:
            id, people = people, people + 1
        elif kind == 1:
            id, who, opened = opened, dice.randrange(max(people - 40, 0), people), opened + 1
        else:
            id, who = dice.randrange(max(opened - 20, 0), opened), dice.randrange(50)
        at = max(4 * n - dice.randrange(500), 0)
        told.append(f"{kind},{id},{who},{price},{n},2026-01-01 00:{at // 60_000:02}:{at // 1000 % 60:02}.{at % 1000:03}")
    return told


def bids():
    """The bidders and the numbers of bids."""
    return [(int(who), int(n)) for kind, _, who, _, n, _ in (line.split(",") for line in events()) if kind == "2"]


# They are none of what queries read, and their time closes all windows.
LAST = ["9,0,0,0,0,2026-01-02 00:00:00.000"] * 2


@contextlib.contextmanager
def fed(send):
    """Sends the events meanwhile, the last quarter slower, so that whoever is killed late has something to read; and what is left at once, when that is called."""
    calm = threading.Event()

    def feed():
        sent = 0
        while not calm.wait(0.02):
            more = 30 if sent < len(events()) * 3 // 4 else 2
            send(events()[sent:sent + more])
            sent += more
        send(events()[sent:] + LAST)

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        feeding = threads.submit(feed)

        def rest():
            calm.set()
            feeding.result(60)

        try:
            yield rest
        finally:
            calm.set()


class Files:
    """From a file that grows to files."""

    def __init__(self, directory, request):
        self.read, self.written = directory / "events.csv", directory / "found"
        self.read.touch()

    def tables(self):
        csv = "'connector' = 'file', 'format' = 'csv', 'csv.header' = 'false'"
        return [f"CREATE TABLE events ({COLUMNS}, {WATERMARK}) WITH ({csv}, 'path' = '{self.read}', 'follow' = 'true')",
                f"CREATE TABLE found ({FOUND}) WITH ({csv}, 'path' = '{self.written}')"]

    def send(self, told):
        with open(self.read, "a") as file:
            file.write("".join(f"{line}\n" for line in told))

    def found(self):
        return numbers(lines(self.written))


class Kafka:
    """From a topic of two partitions to another one."""

    def __init__(self, directory, request):
        from confluent_kafka import Producer

        self.broker = request.getfixturevalue("broker")
        name = uuid.uuid4().hex[:8]
        self.read, self.written = (self.broker.topic(f"{what}-{name}", 2) for what in ("events", "found"))
        self.producer, self.partitions = Producer(self.broker.client(linger_ms=1)), itertools.cycle((0, 1))

    def tables(self):
        return [table(self.broker, "events", f"{COLUMNS}, {WATERMARK}", self.read, format="csv"), table(self.broker, "found", FOUND, self.written, format="csv")]

    def send(self, told):
        failed = []
        for line in told:
            self.producer.produce(self.read, line.encode(), partition=next(self.partitions), on_delivery=lambda error, _: error and failed.append(error))
        assert self.producer.flush(60) == 0 and not failed, failed

    def found(self):
        return numbers(value.decode() for _, value in self.broker.read(self.written))


class Postgres(Kafka):
    """From such a topic to a table of a database."""

    def __init__(self, directory, request):
        super().__init__(directory, request)
        self.database, self.name = request.getfixturevalue("database"), f"found_{uuid.uuid4().hex[:8]}"
        with self.database.connect(autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {self.name} (a bigint, b bigint, c bigint, d bigint)")

    def tables(self):
        options = {"connector": "postgres", "host": "127.0.0.1", "port": self.database.port, "database": "postgres", "username": "postgres", "password": PASSWORD, "table": self.name}
        given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        return [super().tables()[0], f"CREATE TABLE found ({FOUND}) WITH ({given})"]

    def found(self):
        with self.database.connect() as connection:
            return collections.Counter(connection.execute(f"SELECT a, b, c, d FROM {self.name}").fetchall())


WAYS = {"files": Files, "kafka": Kafka, "postgres": Postgres}


def numbers(told):
    """How often each row is there."""
    return collections.Counter(tuple(map(int, line.split(","))) for line in told)


def of_all_windows(found):
    """Of windows by the clock, of which each run has others: how many events of each bidder there are, and the sum of their numbers; and which windows are there twice."""
    sums = collections.Counter()
    for (_, who, count, sum_of_numbers), times in found.items():
        sums["events", who] += times * count
        sums["numbers", who] += times * sum_of_numbers
    windows = collections.Counter()
    for (start, who, *_), times in found.items():
        windows["twice", start, who] += times
    return sums + collections.Counter({window: times - 1 for window, times in windows.items() if times > 1})


def measured(kind, found):
    """What is compared of what was found."""
    return of_all_windows(found) if kind == "clock" else found


def kinds(path, number):
    """The table of a look-up, put into its place: nobody reads half of one."""
    beside = path.with_suffix(".next")
    beside.write_text("".join(f"{place},{number(place)}\n" for place in range(8)))
    beside.rename(path)
    return f"CREATE TABLE kinds (place BIGINT, kind BIGINT) WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'csv', 'csv.header' = 'false')"


def by_three(place):
    return place % 3


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a query of a kind gives over all events without a node; of windows by the clock, what went in."""

    @functools.cache
    def undisturbed(kind):
        if kind == "clock":
            return of_all_windows(collections.Counter((n, who, 1, n) for who, n in bids()))
        directory = tmp_path_factory.mktemp("undisturbed")
        files = Files(directory, None)
        files.send(events() + LAST)
        source, sink = files.tables()
        statements = [source.replace(", 'follow' = 'true'", ""), sink, kinds(directory / "kinds.csv", by_three), *VIEWS, f"INSERT INTO found {KINDS[kind]}"]
        subprocess.run([SAVANNA, "sql", "-c", ";\n".join(statements)], check=True, capture_output=True, timeout=240)
        found = files.found()
        assert found.total() > 500 and len(found) == found.total(), (kind, found.total())
        return found

    return undisturbed


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.kill()


@pytest.fixture(scope="module")
def database():
    database = PostgreSQL(PASSWORD)
    yield database
    database.stop()


class Process:
    """A node of a case, the only one that there is, and how it ends."""

    def __init__(self, directory, case):
        self.directory, self.case = directory, case
        self.dice = random.Random(f"{SEED} {case}")
        self.node = None

    def crash(self):
        """Where the next process ends, if it ends by itself."""
        moment = self.case.moment
        return {} if moment == "any" else {"STREAMS_CRASH_AT": f"{moment}:{self.dice.randint(1, TIMES[moment])}"}

    def start(self, environment=None):
        self.node = Node(self.directory, environment)

    def shown(self):
        """The query, as the node shows it."""
        return states(self.node)["killed"]

    def told(self):
        """What there is to say of a failure."""
        return f"seed {SEED}\n{states(self.node)}\n{self.node.log.read_text()[-4000:]}"

    def until(self, is_so, patience=120):
        deadline = time.monotonic() + patience
        while not is_so():
            assert time.monotonic() < deadline, self.told()
            assert self.shown()["state"] in ("running", "loading"), self.told()
            time.sleep(0.1)

    def until_it_goes_on(self):
        self.until(lambda: self.shown()["state"] == "running")
        if self.case.recovery == "snapshots":
            self.until(lambda: self.shown()["snapshot"].startswith("epoch "))

    def ends(self, process):
        """Waits for the end of a process at its step, or kills it at any moment."""
        if self.case.moment == "any":
            time.sleep(self.dice.uniform(0, 3))
            assert process.poll() is None, f"seed {SEED}: it ended by itself, {process.returncode}"
            process.kill()
            process.wait()
        else:
            assert process.wait(120) == -signal.SIGABRT, f"seed {SEED}"

    def begins(self, statements):
        """Begins the query in a process that ends."""
        self.start(self.crash())
        with connect(self.node) as connection:
            for statement in statements[:-1]:
                connection.execute(statement)
            # A process may end before it has answered.
            with contextlib.suppress(psycopg.OperationalError):
                connection.execute(statements[-1])
        if self.case.moment == "any":
            self.until_it_goes_on()
        self.ends(self.node.process)

    def goes_on_in_groups_of_another_size(self):
        """Amid what follows, it is killed."""
        with connect(self.node) as connection:
            connection.execute("STOP QUERY 'killed'")
            deadline = time.monotonic() + 60
            while self.shown()["state"] == "running":
                assert time.monotonic() < deadline, self.told()
                time.sleep(0.02)
            assert self.shown()["state"] == "cancelled", self.told()
            connection.execute(f"SET 'group-size' = '{self.case.after}'")
            connection.execute("RESUME QUERY 'killed'")
        time.sleep(self.dice.uniform(0, 1.5))
        self.node.kill()

    def lives_and_ends(self):
        """A process that may end before it listens, as it goes on with the query."""
        with open(self.directory / "ended.log", "w") as log:
            words = command(self.directory / "data", files=tempfile.gettempdir())
            process = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **self.crash()})
        try:
            self.ends(process)
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("case", [pytest.param(case, id="-".join(map(str, case)), marks=[] if case in QUICK else pytest.mark.long) for case in chosen()])
def test_a_query_whose_node_is_killed_gives_what_it_gives_undisturbed(tmp_path, request, undisturbed, case):
    expected = undisturbed(case.kind)
    way, process = WAYS[case.way](tmp_path, request), Process(tmp_path, case)
    interval = "100ms" if case.recovery == "snapshots" else "none"
    settings = {"mode": case.mode, "group-size": case.before, "snapshot-interval": interval, "epoch-target": "50ms"}
    looked_up = kinds(tmp_path / "kinds.csv", by_three)
    found = lambda: measured(case.kind, way.found())
    try:
        with fed(way.send) as rest:
            process.begins([*way.tables(), looked_up, *VIEWS, *(f"SET '{name}' = '{value}'" for name, value in settings.items()), named("killed"), f"INSERT INTO found {KINDS[case.kind]}"])
            process.start()
            process.until_it_goes_on()
            process.until(way.found)
            # What the table has from now on is nothing to the query.
            kinds(tmp_path / "kinds.csv", lambda place: 100 + place)
            process.goes_on_in_groups_of_another_size()
            process.lives_and_ends()
            process.start()
            process.until_it_goes_on()
            rest()
            process.until(lambda: found().total() >= expected.total())
        # What is written twice may come later.
        time.sleep(0.5)
        now = found()
        assert_same_rows(now, expected, SEED)
        assert process.shown()["state"] == "running", process.told()
        assert process.node.stop() == 0, process.told()
    finally:
        if process.node and process.node.process.poll() is None:
            process.node.kill()


def test_rows_that_are_missing_or_there_twice_are_found_out(undisturbed):
    for kind in ("q8", "clock"):
        expected = undisturbed(kind)
        # By the clock, an event is a window as good as any.
        good = collections.Counter((n, who, 1, n) for who, n in bids()) if kind == "clock" else expected
        assert measured(kind, good) == expected
        one, other = list(good)[7], list(good)[8]
        assert measured(kind, good - collections.Counter([one])) != expected
        assert measured(kind, good + collections.Counter([one])) != expected
        assert measured(kind, good - collections.Counter([one]) + collections.Counter([other])) != expected
    # A window in two parts, though nothing is missing of it.
    assert measured("clock", collections.Counter({(0, 1, 2, 7): 1})) != measured("clock", collections.Counter({(0, 1, 1, 3): 1, (0, 1, 1, 4): 1}))
