"""Directories that one node had before, of this release or a former one, become a cluster's: every database is there, at each node."""

import pathlib
import sys
import tarfile

import pytest

from conftest import NODES

FACES = pathlib.Path(__file__).resolve().parents[1] / "faces"
sys.path.append(str(FACES))
from older import contents  # noqa: E402 # found by the line above

# The others name a process of another machine that was killed, of which no node knows that it is gone.
KEPT = sorted(path.name.removesuffix(".tar.gz") for path in contents.HERE.glob("*-stopped.tar.gz"))


@pytest.mark.parametrize("name", KEPT)
def test_the_databases_of_a_former_release_are_there_at_each_node(start, tmp_path, name):
    with tarfile.open(contents.HERE / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    # The second time, the log that they were in has ended.
    for _ in range(2):
        cluster = start(directory=tmp_path / "data")
        for node in NODES:
            contents.check_tenants(cluster.ports[node])
        assert cluster.stop() == 0, cluster.logs()
