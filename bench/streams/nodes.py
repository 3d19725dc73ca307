"""A node of its own, on core 0, that runs a query to its end, and the events that it reads."""

import os
import pathlib
import sys
import tempfile
import time

import psycopg

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]

import node  # noqa: E402
import record  # noqa: E402

__all__ = ["Run", "nexmark", "pinned", "query", "record"]
PATIENCE = 1800


def pinned(core, begin):
    """What `begin` starts stays on a core; the benchmark itself keeps to the last one."""
    if os.cpu_count() > 1:
        os.sched_setaffinity(0, {core})
    try:
        return begin()
    finally:
        if os.cpu_count() > 1:
            os.sched_setaffinity(0, {os.cpu_count() - 1})


def query(name):
    """The statement of a query of Nexmark that reads its rows, without where they go."""
    text = "\n".join(line for line in (ROOT / "cli/nexmark" / f"{name}.sql").read_text().splitlines() if not line.startswith("--"))
    made, _, statement = text.partition(";")
    columns = made[made.index("(") + 1 : made.rindex(") WITH")].strip()
    return columns, statement.strip().rstrip(";").replace(f"INSERT INTO nexmark_{name}", "INSERT INTO written")


def nexmark(events, seed=1):
    """The statements that declare the generator's tables with so many events."""
    text = (ROOT / "cli/nexmark/ddl.sql").read_text()
    text = text.replace("${DELAY}", "4").replace("${OPTIONS}", f"'events.num' = '{events}', 'seed' = '{seed}'")
    text = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return [statement for statement in map(str.strip, text.split(";")) if statement]


class Run:
    """A node that has done nothing yet."""

    def __init__(self, binary):
        node.SAVANNA = binary
        self.folder = tempfile.TemporaryDirectory()
        self.directory = pathlib.Path(self.folder.name)
        self.node = pinned(0, lambda: node.Node(self.directory, files=self.directory))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.node.kill()
        self.folder.cleanup()

    def connect(self):
        return psycopg.connect(host="127.0.0.1", port=self.node.ports["pgwire"], user="postgres", dbname="savanna_streams", autocommit=True)

    def to_its_end(self, *statements):
        """Runs statements, the last of which begins the only query; the node's processor time until that has finished, and the query's last status."""
        with self.connect() as connection:
            for statement in statements[:-1]:
                connection.execute(statement)
            before, begun = self.node.processor_seconds(), time.monotonic()
            connection.execute(statements[-1])
            last = {}
            while (status := self.status(connection)) and status["state"] not in ("finished", "failed", "cancelled"):
                last = status
                if time.monotonic() > begun + PATIENCE:
                    raise SystemExit(f"the query did not end within {PATIENCE} s:\n{self.node.log.read_text()[-4000:]}")
                time.sleep(0.05)
            if status and status["state"] != "finished":
                raise SystemExit(f"the query did not finish: {status}\n{self.node.log.read_text()[-4000:]}")
            return self.node.processor_seconds() - before, status or last

    def status(self, connection):
        """What is shown of the query; nothing of one with a name that has finished."""
        shown = connection.execute("SHOW QUERIES")
        names = [column.name for column in shown.description]
        rows = [dict(zip(names, row)) for row in shown.fetchall()]
        return rows[0] if rows else None
