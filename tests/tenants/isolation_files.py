"""Runs files in the form of PostgreSQL's isolation tests (`src/test/isolation/README` there) on PostgreSQL and on tenants, and compares
what each step answers and which steps wait.

    python tests/tenants/isolation_files.py FILE.spec ..      # a line per file; -v shows what differs
"""

import argparse
import collections
import itertools
import pathlib
import re
import select
import sys
import tempfile
import time

from psycopg import pq

TOKEN = re.compile(r'\s+|#[^\n]*|(?P<block>\{[^}]*\})|"(?P<quoted>[^"]*)"|(?P<word>[^\s{}(),"#]+)|(?P<mark>[(),])')
# Seconds within which an answer comes that PostgreSQL did not wait with, and after which one that it waited with is taken not to come.
PATIENCE, PAUSE = 5.0, 0.15
# Seconds for what is set up and cleaned up.
SETUP = 120

Spec = collections.namedtuple("Spec", "setups teardown sessions permutations")


class Session:
    def __init__(self, name):
        self.name, self.setup, self.teardown, self.steps = name, "", "", {}


def parse(text):
    """A file's parts."""
    tokens, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        assert match, f"expected a word, came {text[at:at + 20]!r}"
        at = match.end()
        if match.lastgroup:
            tokens.append((match.lastgroup, match[match.lastgroup]))
    spec = Spec([], [], [], [])
    tokens = collections.deque(tokens)
    take = lambda: tokens.popleft()[1]
    while tokens:
        word = take()
        if word == "setup":
            block = take()[1:-1]
            if spec.sessions:
                spec.sessions[-1].setup = block
            else:
                spec.setups.append(block)
        elif word == "teardown":
            block = take()[1:-1]
            if spec.sessions:
                spec.sessions[-1].teardown = block
            else:
                spec.teardown.append(block)
        elif word == "session":
            spec.sessions.append(Session(take()))
        elif word == "step":
            name = take()
            spec.sessions[-1].steps[name] = take()[1:-1]
        elif word == "permutation":
            steps = []
            while tokens and tokens[0] not in [("word", "permutation")]:
                kind, name = tokens.popleft()
                if kind == "mark" and name == "(":
                    while take() != ")":
                        pass
                else:
                    steps.append(name)
            spec.permutations.append(steps)
        else:
            raise AssertionError(f"expected setup, teardown, session, step or permutation, came {word!r}")
    return spec


def permutations(spec):
    """The orders that a file asks for; all, if it names none."""
    if spec.permutations:
        return spec.permutations
    turns = [[place] * len(session.steps) for place, session in enumerate(spec.sessions)]
    orders = sorted(set(itertools.permutations(sum(turns, []))))
    names = lambda order: [iter(session.steps) for session in spec.sessions]
    found = []
    for order in orders:
        steps = names(order)
        found.append([next(steps[place]) for place in order])
    return found


class Client:
    """A connection that is asked without waiting for the answer."""

    def __init__(self, connection):
        self.connection, self.raw, self.answers, self.message = connection, connection.pgconn, None, None

    def send(self, text):
        self.answers, self.message = [], None
        self.raw.send_query(text.encode())

    def answered(self, seconds):
        """What came of a text, if it comes within so many seconds: of each statement rows, tag or SQLSTATE."""
        deadline = time.monotonic() + seconds
        while True:
            self.raw.consume_input()
            while not self.raw.is_busy():
                result = self.raw.get_result()
                if result is None:
                    return self.answers
                self.answers.append(answer(result))
                self.message = self.message or message(result)
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            select.select([self.raw.socket], [], [], left)

    def run(self, text):
        if not text.strip():
            return []
        self.send(text)
        answers = self.answered(SETUP)
        if answers is None:
            raise Unsupported(f"no answer within {SETUP} s")
        return answers


class Error:
    """Errors of one SQLSTATE are equal."""

    def __init__(self, state, text):
        self.state, self.text = state, text

    def __eq__(self, other):
        return isinstance(other, Error) and self.state == other.state

    def __repr__(self):
        return f"{self.state} ({self.text})"


def answer(result):
    if result.status == pq.ExecStatus.TUPLES_OK:
        rows = [tuple(result.get_value(row, column) for column in range(result.nfields)) for row in range(result.ntuples)]
        # Without ORDER BY rows come in any order.
        return sorted(rows, key=repr)
    if result.status in (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.NONFATAL_ERROR):
        return Error(result.error_field(pq.DiagnosticField.SQLSTATE).decode(), message(result))
    return result.command_status.decode()


def message(result):
    text = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    return text and text.decode()


class Unsupported(Exception):
    pass


class Cluster:
    """One of the two servers, for one file."""

    def __init__(self, connect, blocked):
        self.connect, self.blocked = connect, blocked

    def play(self, spec, order, expected=None):
        """Runs an order of steps: for each whether it waited, and what it answered. What PostgreSQL did with them says how long to wait."""
        control = Client(self.connect())
        clients = {session.name: Client(self.connect()) for session in spec.sessions}
        texts = {name: (session.name, text) for session in spec.sessions for name, text in session.steps.items()}
        seen = [[name, False, None] for name in order]
        try:
            for text in spec.setups:
                self.set_up(control, text)
            for session in spec.sessions:
                self.set_up(clients[session.name], session.setup)
            waiting = {}
            for place, name in enumerate(order):
                session, text = texts[name]
                client = clients[session]
                if session in waiting:
                    # It cannot be asked before it has answered.
                    late = waiting.pop(session)
                    seen[late][2] = client.answered(PATIENCE) or "never"
                    if seen[late][2] == "never":
                        return seen
                client.send(self.prepared(text))
                self.first(client, seen[place], expected and expected[place])
                if seen[place][1]:
                    waiting[session] = place
                for other, late in list(waiting.items()):
                    if late != place:
                        self.later(clients[other], seen[late], waiting, other)
            for other, late in list(waiting.items()):
                seen[late][2] = clients[other].answered(PATIENCE) or "never"
            for session in spec.sessions:
                clients[session.name].run(session.teardown)
        finally:
            for client in clients.values():
                client.raw.finish()
            for text in spec.teardown if control.answers is not None else ():
                control.run(text)
            control.raw.finish()
        return seen

    def set_up(self, client, text):
        client.run(self.prepared(text))
        if client.message:
            raise Unsupported(client.message)

    def prepared(self, text):
        """A text without settings that only say when PostgreSQL looks for circles."""
        return text if self.blocked else re.sub(r"(?i)SET (LOCAL )?deadlock_timeout[^;]*(;|$)", "", text)

    def first(self, client, seen, expected):
        """Waits until a step is answered or known to wait."""
        if self.blocked:
            while (answers := client.answered(0.005)) is None:
                if self.blocked(client.raw.backend_pid):
                    seen[1] = True
                    return
        else:
            answers = client.answered(PAUSE if expected[1] else PATIENCE)
            seen[1] = answers is None
        seen[2] = answers

    def later(self, client, seen, waiting, session):
        """Whether a step that waited is answered now."""
        answers = client.answered(0.05)
        if answers is not None:
            seen[2] = answers
            del waiting[session]


# What is refused because tenants do not have it.
MISSING = {"0A000", "42601", "42704", "42883"}
Played = collections.namedtuple("Played", "orders differences")


def compare(ours, theirs, path, most=None):
    """Plays a file on both, about `most` of its orders: how many, and what differs of them by the kind of difference: SQL that is missing,
    another transaction that could not be serialized (or the same one, told at another step), anything else."""
    spec = parse(path.read_text())
    orders = permutations(spec)
    orders = orders[::max(1, len(orders) // most)] if most else orders
    played = Played(len(orders), {"missing": [], "serialization": [], "other": []})
    for order in orders:
        expected = theirs.play(spec, order)
        got = ours.play(spec, order, expected)
        differing = [(a, b) for a, b in zip(got, expected) if a != b]
        if differing:
            lines = [f"        {b[0]}: got {'wait, ' if a[1] else ''}{a[2]}; expected {'wait, ' if b[1] else ''}{b[2]}" for a, b in differing]
            played.differences[kind(got, expected)].append("\n".join([f"    {' '.join(order)}", *lines]))
    return played


def kind(got, expected):
    states = lambda steps: {one.state for step in steps for one in step[2] or [] if isinstance(one, Error)}
    if (states(got) - states(expected)) & MISSING:
        return "missing"
    return "serialization" if "40001" in states(got) | states(expected) else "other"


def clusters(server, postgresql, name):
    """Both servers with an empty database of a name."""
    for cluster in (server, postgresql):
        with cluster.connect(autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
    watch = postgresql.connect(name, autocommit=True)
    question = "SELECT cardinality(pg_blocking_pids(%s) || pg_safe_snapshot_blocking_pids(%s)) > 0"
    blocked = lambda pid: watch.execute(question, [pid, pid]).fetchone()[0]
    return (Cluster(lambda: server.connect(name, autocommit=True), None),
            Cluster(lambda: postgresql.connect(name, autocommit=True), blocked))


def main():
    import conftest

    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("files", nargs="+", type=pathlib.Path)
    arguments.add_argument("-v", "--verbose", action="store_true")
    arguments.add_argument("--orders", type=int, help="about how many of a file's orders are played")
    arguments = arguments.parse_args()
    server, postgresql = conftest.Server(pathlib.Path(tempfile.mkdtemp(prefix="isolation-"))), conftest.PostgreSQL()
    server.start()
    server.listen()
    try:
        for path in arguments.files:
            try:
                played = compare(*clusters(server, postgresql, path.stem), path, arguments.orders)
                counts = ", ".join(f"{len(texts)} {kind}" for kind, texts in played.differences.items() if texts)
                print(f"{path.stem}: {played.orders} orders: {counts or 'same'}", flush=True)
                if arguments.verbose:
                    print("".join(f"{text}\n" for texts in played.differences.values() for text in texts), end="", flush=True)
            except Unsupported as error:
                print(f"{path.stem}: not set up: {error}", flush=True)
    finally:
        server.kill()
        postgresql.stop()


if __name__ == "__main__":
    sys.exit(main())
