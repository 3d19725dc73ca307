"""Clients that run at the same time get the answers, each about its own rows, that an eagerly migrated copy gives them.

Each session writes and asks for keys of its own only, and says everything to both databases, so that its answers do not depend on what
others do meanwhile. But rows of all of them lie on the same pages and move with each other. Some keys are nobody's: a reader looks
whether each snapshot has each key once, and nobody's rows as they were. The background moves, a sweeper goes over pages at random, movers
are told to end. Every other migration ends while clients are at work.

What a session says is told by kind and seed, which a failure names; who is first is not. Of each kind there are four times as many runs
as BULLFROG_SEEDS says (`seeds.py`), which go through the modes.
"""

import contextlib
import dataclasses
import itertools
import random
import threading

import psycopg
import pytest

import histories
from conftest import LIBRARY, SETTINGS, begin_template, database_from, finish_under_load, setting
from histories import Difference
from seeds import in_turn, seeds
from server import Server



@dataclasses.dataclass(frozen=True)
class Crowd:
    """How many there are, and how much each does. Keys are told apart by their remainders; those that are no client's are nobody's."""
    clients: int = 6
    owners: int = 10
    steps: int = 60


SIX = Crowd()
PAGES, TUPLES = ", granularity => 'page', moves => 'worker'", ", granularity => 'tuple', moves => 'worker'"
INSIDE = ", granularity => 'tuple', moves => 'transaction'"
MODES = [(conflicts, options) for options in (PAGES, TUPLES, PAGES.replace("worker", "transaction"), INSIDE, "") for conflicts in ("tracker", "on_conflict")]


@pytest.fixture(scope="module")
def crowd():
    """A server whose background comes to what is left after a while."""
    settings = {"bullfrog.start_delay": "200ms", "bullfrog.rest": "50ms", "bullfrog.sweepers": "2", "bullfrog.movers": "4"}
    server = Server(LIBRARY, SETTINGS | settings, in_memory=True)
    begin_template(server)
    yield server
    server.remove()


class Session(histories.Session):
    # Others make the server ask for another try: sessions that wait for each other, neighbours in an index at SERIALIZABLE.
    patience = 100

    def say_alone(self, sql, parameters, prepare):
        for _ in range(self.patience):
            lazy = self.sides[0].run(sql, parameters, prepare)
            if lazy[0] != "error" or lazy[1] not in histories.RETRIABLE:
                break
        eager = self.sides[1].run(sql, parameters, prepare)
        if lazy != eager:
            raise Difference(f"session {self.number}: {sql} {parameters}\nlazy:  {lazy}\neager: {eager}")


class Thread(threading.Thread):
    """Does something until it ends or fails."""

    failures = itertools.count()

    def __init__(self, action):
        super().__init__(daemon=True)
        self.action, self.failure, self.order = action, None, None

    def run(self):
        try:
            self.action()
        except Exception as failure:
            self.failure, self.order = failure, next(self.failures)


def join(threads):
    """Waits for the end of all; raises what went wrong first."""
    for thread in threads:
        thread.join(180)
        assert not thread.is_alive(), "a thread does not come to its end"
    failed = [thread for thread in threads if thread.failure]
    if failed:
        raise min(failed, key=lambda thread: thread.order).failure


class Client:
    """A session with a history of its own."""

    def __init__(self, number, kind, seed, lazy, eager, levels, may_truncate, size):
        self.may_truncate, self.steps, self.last = may_truncate, 0, size.steps
        self.generator = histories.Generator(kind, f"{seed} of {number}", size.owners)
        self.random, self.levels = self.generator.random, levels
        self.session = Session(number, lazy, eager, self.random.random() < 0.3, self.random.random() < 0.3)

    def run(self):
        with self.session.sides[0].connection, self.session.sides[1].connection:
            for self.steps in range(self.last):
                self.step()
            if self.session.level:
                self.session.end("COMMIT")

    def step(self):
        session, choice = self.session, self.random.random()
        if self.may_truncate and session.level is None and choice < 0.03:
            session.is_refused(f"TRUNCATE {self.random.choice(self.generator.kind.tables).name}")
        elif session.level is None and choice < 0.4:
            session.begin(self.random.choice(self.levels))
        elif session.level and choice < 0.2:
            session.end("COMMIT" if self.random.random() < 0.7 else "ROLLBACK")
        elif session.level and choice < 0.28:
            session.savepoint()
        elif session.level and choice < 0.34:
            session.undo()
        else:
            session.say(*self.generator.statement(session.number, reads_own=True), prepare=self.random.choice([True, None]))


class Background:
    """Sweeps over pages and reads everything, as long as clients are at work."""

    def __init__(self, kind, seed, lazy, migrated, levels, size):
        self.kind, self.random, self.levels, self.size = kind, random.Random(seed), levels, size
        self.is_ended = self.is_finishing = False
        self.sweeping, self.reading, self.ending = (lazy.connect(options="-c statement_timeout=60s") for _ in range(3))
        self.of_nobody = {table: self.rows_of_nobody(migrated, table) for table in kind.tables}

    def sweep(self):
        sources = self.sweeping.execute("SELECT id, pages FROM bullfrog.source").fetchall()
        while not self.is_ended and not self.is_finishing:
            source, pages = self.random.choice(sources)
            some = self.random.sample(range(pages), min(pages, 2))
            with contextlib.suppress(psycopg.errors.DeadlockDetected):
                self.sweeping.execute("SELECT bullfrog.sweep(%s, %s::bigint[])", (source, some))
            self.sweeping.execute("SELECT pg_sleep(0.05)")
            self.sweeping.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'bullfrog mover'"
                " AND datname = current_database() ORDER BY random() LIMIT 1")

    def finish(self, clients):
        """Ends the migration when clients have done half of what they do, as often as somebody still needs the old rows."""
        while not self.is_ended and sum(client.steps for client in clients) < self.size.clients * self.size.steps / 2:
            self.ending.execute("SELECT pg_sleep(0.01)")
        self.is_finishing = True
        self.sweeper.join()
        while not self.is_ended:
            with contextlib.suppress(psycopg.errors.ObjectInUse, psycopg.errors.LockNotAvailable):
                self.ending.execute("SELECT bullfrog.finish('m')")
                return

    def read(self):
        while not self.is_ended:
            level = self.random.choice(self.levels)
            self.reading.execute(f"BEGIN ISOLATION LEVEL {level} READ ONLY")
            try:
                for table in self.random.choices(self.kind.tables, k=2):
                    self.check(table)
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                pass
            self.reading.execute("ROLLBACK")
        self.reading.close()

    def check(self, table):
        keys = ", ".join(table.key)
        twice = self.reading.execute(f"SELECT {keys} FROM {table.name} GROUP BY {keys} HAVING count(*) > 1").fetchall()
        if twice:
            raise Difference(f"{table.name} has rows twice: {twice}")
        rows, expected = self.rows_of_nobody(self.reading, table), self.of_nobody[table]
        if rows != expected:
            raise Difference(f"of nobody's rows of {table.name}, wrong: {set(rows) - set(expected)}, missing: {set(expected) - set(rows)}")

    def rows_of_nobody(self, connection, table):
        columns = ", ".join(table.columns)
        query = f"SELECT {columns} FROM {table.name} WHERE mod(k, {self.size.owners}) >= {self.size.clients}"
        return sorted(map(repr, connection.execute(query).fetchall()))


def run(server, name, seed, mode, sabotage=None, size=SIX):
    conflicts, options = mode
    kind = histories.KINDS[name]
    with contextlib.ExitStack() as stack:
        if conflicts != "tracker":
            stack.enter_context(setting(server, "bullfrog.conflicts", conflicts))
        lazy, eager = (stack.enter_context(database_from(server, "template", f"{side} {name} {seed}")) for side in ("lazy", "eager"))
        admin, copy = lazy.connect(), eager.connect()
        for connection in (admin, copy):
            connection.execute(kind.setup, prepare=False)
            connection.execute("ANALYZE")
        if sabotage:
            sabotage(admin)
        copy.execute(kind.definition, prepare=False)
        background = Background(kind, seed, lazy, copy, histories.LEVELS, size)
        ends_midway = (seed + seed // len(MODES)) % 2 == 1
        clients = [Client(number, kind, seed, lazy, eager, histories.LEVELS, not ends_midway, size) for number in range(size.clients)]
        admin.execute(f"SELECT bullfrog.migrate('m', %s, live => %s{options})", (kind.definition, list(kind.live)), prepare=False)
        background.sweeper = Thread(background.sweep)
        others = [background.sweeper, Thread(background.read)]
        if ends_midway:
            others.append(Thread(lambda: background.finish(clients)))
        threads = [Thread(client.run) for client in clients]
        for thread in others + threads:
            thread.start()
        try:
            join(threads)
        finally:
            background.is_ended = True
            for thread in others:
                thread.join()
        join(others)
        histories.compare(kind, admin, copy)
        if admin.execute("SELECT FROM bullfrog.progress").fetchone():
            finish_under_load(admin)
            histories.compare(kind, admin, copy)


@pytest.mark.parametrize("seed", seeds(of_each=4))
@pytest.mark.parametrize("name", histories.KINDS)
def test_clients_at_the_same_time_get_the_answers_of_an_eager_copy(crowd, name, seed):
    mode = MODES[(list(histories.KINDS).index(name) + seed) % len(MODES)]
    try:
        run(crowd, name, seed, mode)
    except (Difference, psycopg.Error) as failure:
        raise AssertionError(f"{name}, seed {seed}, mode {mode}: {failure}") from failure


def nobody_decides(admin):
    """The record of moves takes the same granule twice."""
    admin.execute("SET allow_system_table_mods = on")
    admin.execute("UPDATE pg_index SET indisunique = false WHERE indexrelid = 'bullfrog.moved_pkey'::regclass")


def flaw(name):
    return lambda admin: admin.execute(f"ALTER DATABASE \"{admin.info.dbname}\" SET bullfrog.flaw = '{name}'")


FLAWS = {
    "two move the same page": ("split", ("on_conflict", PAGES), nobody_decides),
    "two move the same tuple": ("derive", ("on_conflict", TUPLES), nobody_decides),
    "two move the same group": ("aggregate", ("on_conflict", PAGES), nobody_decides),
    "nobody waits for what another has claimed": ("foreign_key_join", ("tracker", PAGES), flaw("nobody_waits")),
    "pages are marked before they are there": ("split", ("tracker", PAGES), flaw("marks_first")),
    "who moves a page does not see its rows": ("derive", ("tracker", INSIDE), flaw("rows_unseen")),
}


@pytest.mark.parametrize("name", in_turn(FLAWS, 0, 3))
def test_a_flaw_is_noticed(crowd, name):
    """Within a few runs, by the answers, by the reader, or because a move fails."""
    kind, mode, sabotage = FLAWS[name]
    for seed in range(1, 11):
        try:
            run(crowd, kind, seed, mode, sabotage)
        except (Difference, psycopg.Error):
            return
    pytest.fail("nothing was noticed")
