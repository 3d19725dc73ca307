"""Processes that end at each named step of a switch, a move and an end. Builds for tests stop there until they are ended: one process by
SIGKILL, which the server answers by ending all and starting again; the whole server; or one is told to end, and the others go on.

A step that was ended has been done or not begun, never half. So each step has a database of its own, all of them are stopped at the same
time, one end is for all, and then each is looked at: all rows are there once, the migration goes on by itself and comes to its end.

With BULLFROG_SEEDS=1 (`seeds.py`) moves of each kind end in one of the three ways, with 3, or more, in all; everything else in each.
"""

import contextlib
import dataclasses
import os
import re
import signal

import psycopg
import pytest
from psycopg import pq

from conftest import CUSTOMERS, database_from, differing, migrate, moved, reconnect, setting, wait_for_crash, wait_until
from seeds import in_turn, seeds

VICTIMS = ("server", "process", "connection")


@dataclasses.dataclass(frozen=True)
class Kind:
    """New tables: of each its query and its key. A statement that writes the first of them."""
    tables: dict
    write: str
    options: str = ""
    # What ends is a sweep, not a write.
    is_swept: bool = False

    @property
    def definition(self):
        return "".join(f"CREATE TABLE {name} AS {query}; ALTER TABLE {name} ADD PRIMARY KEY ({key});\n"
            for name, (query, key) in self.tables.items())


SPLIT = {
    "customer_private": ("SELECT id, name, ssn FROM customer", "id"),
    "customer_public": ("SELECT id, nick, left(city, 6) AS city FROM customer", "id"),
}
GROUPS = {"town": ("SELECT left(city, 6) AS city, count(*) AS customers, max(id) AS latest FROM customer GROUP BY 1", "city")}
JOIN = {"sale": ("SELECT p.id, p.amount, c.name FROM purchase p JOIN customer c ON c.id = p.customer", "id")}
PAIRS = {"offered": ("SELECT c.id, o.number, o.price FROM customer c JOIN offer o ON o.town = left(c.city, 6)", "id, number")}
KINDS = {
    "rows": Kind(SPLIT, "UPDATE {customer_private} SET name = name || '!' WHERE id = 1000"),
    "tuples": Kind(SPLIT, "UPDATE {customer_private} SET name = name || '!' WHERE id IN (1, 1000)", ", granularity => 'tuple'"),
    "groups": Kind(GROUPS, "UPDATE {town} SET customers = customers + 1 WHERE city = 'city 7'"),
    "join": Kind(JOIN, "DELETE FROM {sale} WHERE id = 77"),
    "pairs": Kind(PAIRS, "UPDATE {offered} SET price = 0 WHERE id = 5"),
    "everything": Kind(SPLIT | GROUPS | JOIN | PAIRS, "DELETE FROM {customer_private} WHERE id = 1000"),
    "wholes": Kind(SPLIT, "UPDATE {customer_private} SET name = name || '!' WHERE id IN (1, 1000)", ", granularity => 'tuple', moves => 'transaction'", is_swept=True),
}
TABLES = KINDS["everything"].tables


@pytest.fixture(scope="module")
def prepared(server, template):
    """A database with old tables, and with what every kind of new table must have."""
    with server.connect() as admin:
        admin.execute(f"CREATE DATABASE crashes TEMPLATE {template} STRATEGY file_copy")
    with server.connect("crashes") as connection:
        connection.execute("""
            CREATE TABLE purchase (id int PRIMARY KEY, customer int NOT NULL, amount int);
            INSERT INTO purchase SELECT n, n * 7 % 1000 + 1, n FROM generate_series(1, 3000) n;
            CREATE INDEX ON purchase (customer);
            CREATE TABLE offer (number int PRIMARY KEY, town text, price int);
            INSERT INTO offer SELECT n, 'city ' || n % 10, n FROM generate_series(1, 20) n;
            CREATE INDEX ON offer (town); ANALYZE;
            CREATE TABLE expected_customer AS SELECT * FROM customer""")
        for name, (query, _) in TABLES.items():
            connection.execute(f"CREATE TABLE expected_{name} AS {query}")
    return "crashes"


class Case:
    """A database in which a process stops."""

    def __init__(self, database, kind, point):
        self.database, self.kind, self.point = database, kind, point
        self.admin = database.connect()
        self.session = self.pid = None

    def migrate(self):
        migrate(self.admin, self.kind.definition, options=self.kind.options)

    def stop_processes(self):
        """New processes in this database stop at the point."""
        self.admin.execute(f"ALTER DATABASE \"{self.database.name}\" SET bullfrog.stop_at = '{self.point}'")

    def wait_for_stop(self, goes_on=lambda: None):
        def find():
            stopped = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
            return self.admin.execute(stopped, (f"stopped at {self.point}",)).fetchone()

        wait_until(lambda: find() or goes_on(), f"something stopped at {self.point}")
        self.pid = find()[0]
        # The one that stopped has read the setting, those that come will not.
        self.admin.execute(f"ALTER DATABASE \"{self.database.name}\" RESET bullfrog.stop_at")

    def send(self, *statements):
        """A session says something. It is the one that will be ended, if no other process stops."""
        self.session = self.database.connect()
        self.pid = self.session.info.backend_pid
        for statement in statements[:-1]:
            self.session.execute(statement)
        self.session.pgconn.send_query(statements[-1].encode())

    def wait_for_answer(self):
        """What the session said comes to a good end, whatever movers have stopped."""
        connection = self.session.pgconn

        def is_answered():
            connection.consume_input()
            if connection.is_busy():
                self.admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND application_name LIKE 'stopped%'")
            return not connection.is_busy()

        wait_until(is_answered, f"the session goes on after a stop at {self.point}")
        result = connection.get_result()
        assert result.error_message == b"", result.error_message

    def stop_session(self, statement, *before):
        self.send(*before, f"SET bullfrog.stop_at = '{self.point}'", statement)
        self.wait_for_stop(goes_on=lambda: self.say_again(statement))

    def say_again(self, statement):
        """What was refused because a mover or another session had a table."""
        connection = self.session.pgconn
        connection.consume_input()
        if connection.is_busy():
            return
        result = connection.get_result()
        assert result.error_field(pq.DiagnosticField.SQLSTATE) == b"55006", (result.status, result.error_message)
        connection.get_result()
        connection.send_query(statement.encode())

    @property
    def write(self):
        return self.kind.write.format_map({name: name for name in self.kind.tables})

    def expect_write(self):
        self.admin.execute(self.kind.write.format_map({name: f"expected_{name}" for name in self.kind.tables}))

    def write_again(self):
        assert self.admin.execute(self.write).rowcount > 0
        self.expect_write()
        self.check()

    def check(self):
        """Every row is there once."""
        for name in self.kind.tables:
            assert differing(self.admin, name, f"expected_{name}") == 0, f"{name}, which was stopped at {self.point}"

    def check_under_way(self):
        assert self.admin.execute("SELECT DISTINCT name FROM bullfrog.progress").fetchall() == [("m",)]
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            self.admin.execute("SELECT * FROM customer")
        self.check()

    def check_never_begun(self):
        """The switch has left nothing behind."""
        assert self.admin.execute("SELECT count(*) FROM customer").fetchone() == (CUSTOMERS,)
        self.admin.execute("UPDATE customer SET name = name WHERE id = 1")
        records = " UNION ALL ".join(f"SELECT count(*) FROM bullfrog.{name}" for name in ("migration", "old", "source", "target", "moved"))
        assert set(self.admin.execute(records).fetchall()) == {(0,)}
        left = "SELECT relname FROM pg_class WHERE relname = ANY (%s) OR relname SIMILAR TO '(unmoved|transformed|candidates)_%%'"
        assert self.admin.execute(left, (list(self.kind.tables),)).fetchall() == []

    def is_swept(self):
        return self.admin.execute("SELECT bool_and(bullfrog.is_swept(s)) FROM bullfrog.source s").fetchone()[0]

    def finish(self):
        def is_finished():
            try:
                self.admin.execute("SELECT bullfrog.finish('m')")
            except psycopg.errors.ObjectInUse:
                return False
            return True

        wait_until(is_finished, "the migration is finished")
        self.check()
        assert self.admin.execute("SELECT to_regclass('customer')").fetchone() == (None,)


@contextlib.contextmanager
def cases(server, prepared, kind, points):
    with contextlib.ExitStack() as stack:
        names = [f"crash {number} at {point}" for number, point in enumerate(points)]
        yield [Case(stack.enter_context(database_from(server, prepared, name)), KINDS[kind], point) for name, point in zip(names, points)]


def end(server, stopped, victim):
    """Ends what has stopped."""
    if victim == "server":
        server.kill()
        server.start()
    elif victim == "process":
        for case in stopped:
            # The server ends the others when it notices the first.
            with contextlib.suppress(ProcessLookupError):
                os.kill(case.pid, signal.SIGKILL)
        for case in stopped:
            wait_for_crash(case.admin)
    else:
        for case in stopped:
            assert case.admin.execute("SELECT pg_terminate_backend(%s, 60000)", (case.pid,)).fetchone() == (True,)
        return
    for case in stopped:
        case.admin = reconnect(case.database)


def go_on(server, stopped):
    """The background moves what is left, and asks nobody for it."""
    with setting(server, "bullfrog.start_delay", "0"):
        for case in stopped:
            wait_until(case.is_swept, f"all is moved after a stop at {case.point}")
    for case in stopped:
        case.check()
        case.finish()


MOVE = ("begun", "claimed", "marked", "begun to copy", "copied", "done", "committed")


def with_victims(choices):
    """Each choice, with so many victims as there are seeds."""
    return [(choice, VICTIMS[(number + seed) % len(VICTIMS)]) for seed in seeds()[:len(VICTIMS)] for number, choice in enumerate(choices)]


@pytest.mark.parametrize("kind, victim", in_turn(with_victims(KINDS), 2, 3))
def test_a_move_that_is_ended_is_done_again_or_was_done(server, prepared, kind, victim):
    points = [f"move: {point}" for point in MOVE]
    if kind in ("tuples", "groups", "wholes"):
        points.append("move: noted")
    with cases(server, prepared, kind, points) as stopped:
        for case in stopped:
            case.stop_processes()
            case.migrate()
            case.sweeps = case.kind.is_swept or case.point == "move: noted"
            case.send("SELECT bullfrog.sweep(id, '{0}') FROM bullfrog.source" if case.sweeps else case.write)
        for case in stopped:
            case.wait_for_stop()
        end(server, stopped, victim)
        for case in stopped:
            if victim == "connection":
                case.wait_for_answer()
                if not case.sweeps:
                    case.expect_write()
                case.check()
                continue
            # A move commits without a flush: its loss is none.
            assert moved(case.admin) == 0 or case.point in ("move: committed", "move: noted")
            case.check_under_way()
            if victim == "process":
                case.write_again()
        go_on(server, stopped)


@pytest.mark.parametrize("granularity, victim", in_turn(with_victims(["page", "tuple"]), 1, 2))
def test_a_move_inside_of_a_transaction_that_is_ended_did_not_happen(server, prepared, granularity, victim):
    points = [f"move: {point}" for point in ("marked", "begun to copy", "copied")] + ["the end of the statement", "a promise"]
    with cases(server, prepared, "rows", points) as stopped:
        for case in stopped:
            case.kind = dataclasses.replace(case.kind, options=f", granularity => '{granularity}', moves => 'transaction'")
            case.migrate()
            if case.point.startswith("move"):
                case.stop_session(case.write, "BEGIN")
            else:
                case.send("BEGIN", case.write, "PREPARE TRANSACTION 'promise'" if case.point == "a promise" else "SELECT 1")
                case.wait_for_answer()
        end(server, stopped, victim)
        for case in stopped:
            case.check_under_way()
            if case.point == "a promise":
                case.admin.execute("COMMIT PREPARED 'promise'")
                case.expect_write()
            else:
                assert case.admin.execute("SELECT count(*) FROM bullfrog.moved").fetchone() == (0,)
                case.write_again()
            case.check()
        go_on(server, stopped)


@pytest.mark.parametrize("victim", in_turn(VICTIMS, 0, 3))
def test_a_switch_that_is_ended_did_not_happen(server, prepared, victim):
    points = [f"switch: {point}" for point in ("tables created", "rows seen ahead", "tables closed", "rows checked", "announced", "committed")]
    with cases(server, prepared, "everything", points) as stopped:
        for case in stopped:
            statement = f"SELECT bullfrog.migrate('m', $m${case.kind.definition}$m$)"
            if case.point == "switch: committed":
                case.send(statement)
                case.wait_for_answer()
            else:
                case.stop_session(statement)
        end(server, stopped, victim)
        for case in stopped:
            if case.point != "switch: committed":
                case.check_never_begun()
                case.migrate()
            case.check_under_way()
            case.write_again()
        go_on(server, stopped)


@pytest.mark.parametrize("victim", in_turn(VICTIMS, 1, 3))
def test_a_finish_that_is_ended_did_not_happen(server, prepared, victim):
    points = [f"finish: {point}" for point in ("rows moved", "tables locked", "moves forgotten", "tables dropped", "ended")]
    with cases(server, prepared, "everything", points) as stopped:
        for case in stopped:
            case.migrate()
            case.write_again()
            case.stop_session("SELECT bullfrog.finish('m')")
        end(server, stopped, victim)
        for case in stopped:
            case.check_under_way()
            case.finish()


@pytest.mark.parametrize("victim", in_turn(VICTIMS, 2, 3))
def test_an_abort_that_is_ended_did_not_happen(server, prepared, victim):
    """It carries writes back."""
    points = [f"abort: {point}" for point in ("writes noted", "rows compared", "round carried back", "tables locked", "writes carried back", "moves forgotten", "tables dropped", "ended")]
    with cases(server, prepared, "rows", points) as stopped:
        for case in stopped:
            case.migrate()
            case.write_again()
            case.stop_session("SELECT bullfrog.abort('m')")
        end(server, stopped, victim)
        for case in stopped:
            case.check_under_way()
            case.admin.execute("SELECT bullfrog.abort('m')")
            case.admin.execute("UPDATE expected_customer SET name = name || '!' WHERE id = 1000")
            assert differing(case.admin, "customer", "expected_customer") == 0
            assert case.admin.execute("SELECT to_regclass('customer_private')").fetchone() == (None,)


@pytest.mark.parametrize("victim", in_turn(VICTIMS, 0, 3))
def test_an_abort_that_is_ended_when_it_has_given_its_lock_back_did_not_happen(server, prepared, victim):
    with cases(server, prepared, "rows", ["abort: tables given back"]) as (case,):
        body = case.admin.execute("SELECT pg_get_functiondef('bullfrog.is_more_left'::regproc)").fetchone()[0]
        assert "RETURN rows > than" in body
        case.admin.execute(body.replace("RETURN rows > than", "RETURN true"), prepare=False)
        case.migrate()
        case.write_again()
        case.stop_session("SELECT bullfrog.abort('m')")
        end(server, [case], victim)
        case.check_under_way()
        case.admin.execute("SELECT bullfrog.abort('m')")
        case.admin.execute("UPDATE expected_customer SET name = name || '!' WHERE id = 1000")
        assert differing(case.admin, "customer", "expected_customer") == 0
        assert case.admin.execute("SELECT to_regclass('customer_private')").fetchone() == (None,)


@pytest.mark.parametrize("victim", in_turn(VICTIMS, 1, 3))
def test_an_abort_does_without_the_notes_of_a_process_that_was_ended(server, prepared, victim):
    with cases(server, prepared, "rows", ["notes: begun"]) as (case,):
        case.migrate()
        case.write_again()
        case.stop_processes()
        case.send("SELECT bullfrog.abort('m')")
        case.wait_for_stop()
        end(server, [case], victim)
        if victim == "connection":
            case.wait_for_answer()
        else:
            case.check_under_way()
            case.admin.execute("SELECT bullfrog.abort('m')")
        case.admin.execute("UPDATE expected_customer SET name = name || '!' WHERE id = 1000")
        assert differing(case.admin, "customer", "expected_customer") == 0


@pytest.mark.parametrize("victim", in_turn(VICTIMS, 2, 3))
def test_notes_whose_end_is_ended_are_there_or_not(server, prepared, victim):
    """A mover ends them, for an abort that was refused or cancelled."""
    with cases(server, prepared, "rows", ["notes: ended"]) as (case,):
        case.stop_processes()
        case.migrate()
        case.admin.execute("SELECT bullfrog.begin_notes(id, pg_current_xact_id()) FROM bullfrog.migration")
        case.wait_for_stop()
        end(server, [case], victim)
        case.check_under_way()
        case.write_again()
        case.admin.execute("SELECT bullfrog.abort('m')")
        case.admin.execute("UPDATE expected_customer SET name = name || '!' WHERE id = 1000")
        assert differing(case.admin, "customer", "expected_customer") == 0


@pytest.mark.parametrize("victim", in_turn(VICTIMS, 0, 3))
def test_what_ends_while_full_tables_are_opened_leaves_them_open_or_not(server, prepared, victim):
    """A mover does it, when all is moved."""
    points = [f"settle: {point}" for point in ("tables filled", "keys unguarded")]
    with cases(server, prepared, "everything", points) as stopped:
        with setting(server, "bullfrog.start_delay", "0"):
            for case in stopped:
                case.stop_processes()
                case.migrate()
            for case in stopped:
                case.wait_for_stop()
        end(server, stopped, victim)
        for case in stopped:
            case.check_under_way()
            case.write_again()
        go_on(server, stopped)


def mark_first(case):
    case.admin.execute(f"ALTER DATABASE \"{case.database.name}\" SET bullfrog.flaw = 'marks_first'")


def log_no_moves(case):
    case.admin.execute("ALTER TABLE bullfrog.moved SET UNLOGGED")


@pytest.mark.parametrize("point, flaw", [("begun to copy", mark_first), ("copied", mark_first), ("committed", log_no_moves)])
def test_a_move_in_two_steps_is_noticed(server, prepared, point, flaw):
    with cases(server, prepared, "rows", [f"move: {point}"]) as (case,):
        flaw(case)
        case.stop_processes()
        case.migrate()
        case.send(case.write)
        case.wait_for_stop()
        # Also on disk.
        case.admin.execute("CREATE TABLE flushed ()")
        end(server, [case], "process")
        with pytest.raises(AssertionError, match="customer_private"):
            case.check()


def test_a_switch_in_two_transactions_is_noticed(server, prepared):
    with cases(server, prepared, "everything", ["switch: rows checked"]) as (case,):
        source = case.admin.execute("SELECT pg_get_functiondef('bullfrog.perform_migrate'::regproc)").fetchone()[0]
        # Who commits has no settings of its own.
        broken = source.replace("FUNCTION bullfrog.perform_migrate", "PROCEDURE broken.perform_migrate").replace("RETURNS void", "", 1)
        broken = broken.replace("SET search_path TO 'pg_catalog', 'pg_temp'", "")
        case.admin.execute("CREATE SCHEMA broken")
        case.admin.execute(broken.replace("PERFORM bullfrog.reach('switch: tables closed')", "COMMIT"), prepare=False)
        # Nobody asked: names are those of bullfrog.
        definition = re.sub(r"\b(TABLE|FROM|JOIN|INDEX ON) (?=[a-z])", r"\1 public.", case.kind.definition)
        case.stop_session(f"CALL broken.perform_migrate('m', $m${definition}$m$, 'before', false, 'auto', 'auto', '{{}}', '{{}}', false)",
            "SET search_path = pg_catalog, pg_temp")
        end(server, [case], "process")
        with pytest.raises((AssertionError, psycopg.errors.ObjectNotInPrerequisiteState)):
            case.check_never_begun()


def test_a_prepared_transaction_does_not_outlive_its_test(server, template):
    with database_from(server, template, "left prepared") as database:
        session = database.connect()
        session.execute("BEGIN")
        session.execute("LOCK TABLE customer")
        session.execute("PREPARE TRANSACTION 'left'")
    with server.connect() as admin:
        assert admin.execute("SELECT FROM pg_prepared_xacts").fetchall() == []
        admin.execute(f'DROP DATABASE "{database.name}" WITH (FORCE)')
