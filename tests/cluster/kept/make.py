"""Makes a data directory of a cluster that was killed, with what `contents` of the faces fills in. One is kept for each form that such directories have had.

    python tests/cluster/kept/make.py NAME       # with the binary of today (or $BINARY): NAME.tar.gz

A release that changes a form adds its own; those that are here stay as they are.
"""

import os
import pathlib
import signal
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.extend([str(HERE.parent), str(HERE.parents[1] / "faces")])
from conftest import NODES, SAVANNA, Cluster  # noqa: E402 # found by the line above
from older import contents  # noqa: E402


def make(name):
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch) / "data"
        # Short, so that a database falls asleep while the directory is made.
        cluster = Cluster(directory, "tenants.idle=1s")
        pids = [cluster.status(node)["pid"] for node in NODES]
        try:
            contents.fill({"keys": cluster.ports[cluster.owner("keys")]["keys"], "tenants": cluster.ports[NODES[0]]["tenants"]})
        finally:
            cluster.kill()
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        with tarfile.open(HERE / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(directory, "data", filter=lambda entry: None if entry.name.endswith(".log") and "/nodes/" in entry.name else entry)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not os.access(SAVANNA, os.X_OK):
        sys.exit(f"usage: {sys.argv[0]} NAME, with a binary at {SAVANNA}")
    make(sys.argv[1])
