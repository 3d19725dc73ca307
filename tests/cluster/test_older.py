"""Directories of this release or a former one become a cluster's, or are one's: everything is there, at each node."""

import pathlib
import sys
import tarfile

import pytest
import redis

from conftest import NODES

FACES = pathlib.Path(__file__).resolve().parents[1] / "faces"
sys.path.append(str(FACES))
from older import contents  # noqa: E402 # found by the line above

# The others name a process of another machine that was killed, of which no node knows that it is gone.
OF_ONE_NODE = sorted(path.name.removesuffix(".tar.gz") for path in contents.HERE.glob("*-stopped.tar.gz"))


OF_CLUSTERS = sorted((pathlib.Path(__file__).resolve().parent / "kept").glob("*.tar.gz"))


@pytest.mark.parametrize("name", OF_ONE_NODE)
def test_the_databases_of_a_former_release_are_there_at_each_node(start, tmp_path, name):
    with tarfile.open(contents.HERE / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    # The second time, the log that they were in has ended.
    for _ in range(2):
        cluster = start(directory=tmp_path / "data")
        for node in NODES:
            contents.check_tenants(cluster.ports[node])
        assert cluster.stop() == 0, cluster.logs()


@pytest.mark.parametrize("kept", OF_CLUSTERS, ids=lambda path: path.name)
def test_the_directory_of_a_cluster_that_was_killed_is_opened_with_all_that_is_in_it(start, tmp_path, kept):
    with tarfile.open(kept) as archive:
        archive.extractall(tmp_path, filter="data")
    for _ in range(2):
        cluster = start(directory=tmp_path / "data")
        port = cluster.ports[cluster.owner("keys")]["keys"]
        contents.check_keys(redis.Redis(port=port, decode_responses=True), redis.Redis(port=port))
        for node in NODES:
            contents.check_tenants(cluster.ports[node])
        assert cluster.stop() == 0, cluster.logs()


def test_a_directory_of_a_cluster_is_kept():
    assert OF_CLUSTERS
