"""A node of its own, on core 0, that runs a query, and the events that it reads."""

import json
import math
import os
import pathlib
import sys
import tempfile
import time
import urllib.request

import psycopg

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]

import node  # noqa: E402
import record  # noqa: E402

__all__ = ["Run", "nexmark", "percentile", "pinned", "query", "record"]
PATIENCE = 1800


def percentile(figures, share):
    """The lowest of the figures that so many of a hundred are at most."""
    return sorted(figures)[max(0, math.ceil(len(figures) * share / 100) - 1)]


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
    """A node that has done nothing yet, whose tables may use a folder: its own, unless another one is told."""

    def __init__(self, binary, files=None):
        node.SAVANNA = binary
        self.folder = tempfile.TemporaryDirectory()
        self.directory = pathlib.Path(self.folder.name)
        self.files = files or self.directory
        self.node = pinned(0, lambda: node.Node(self.directory, files=self.files))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.node.kill()
        self.folder.cleanup()

    def start_again(self):
        """The node is killed, and another one begins with what it has left."""
        self.node.kill()
        self.node = pinned(0, lambda: node.Node(self.directory, files=self.files))

    def figures(self):
        """All figures of the only query that is not over; none if there is none."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.node.ports['http']}/api/v1/queries", timeout=60) as reply:
            queries = json.load(reply)["queries"]
        ended = [found for found in queries if found["state"] in ("failed", "cancelled")]
        if ended:
            raise SystemExit(f"the query ended: {ended[0]}\n{self.node.log.read_text()[-4000:]}")
        return next((found for found in queries if found["state"] == "running"), None)

    def until(self, holds, what):
        """Asks for the figures until they are so; gives them."""
        begun = time.monotonic()
        while (found := self.figures()) is None or not holds(found):
            if time.monotonic() > begun + PATIENCE:
                raise SystemExit(f"{what}: not within {PATIENCE} s: {found}\n{self.node.log.read_text()[-4000:]}")
            time.sleep(0.02)
        return found

    def peak_bytes(self):
        """The most memory that the node's process had."""
        status = pathlib.Path(f"/proc/{self.node.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

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
