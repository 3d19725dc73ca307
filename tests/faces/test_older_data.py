"""Data directories that former releases wrote are opened, with everything in them."""

import tarfile

import pytest

from node import Node
from older import contents

KEPT = sorted(path.name.removesuffix(".tar.gz") for path in contents.HERE.glob("*.tar.gz"))


@pytest.mark.parametrize("name", KEPT)
def test_a_directory_of_a_former_release_is_opened(tmp_path, name):
    with tarfile.open(contents.HERE / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    # The second time it is a directory that two releases have written to.
    for _ in range(2):
        node = Node(tmp_path)
        try:
            contents.check(node.ports)
        finally:
            assert node.stop() == 0, node.log.read_text()
    contents.check_sink(tmp_path / "parts")


def test_each_release_kept_a_directory_that_was_stopped_and_one_that_was_killed():
    assert {name.rpartition("-")[2] for name in KEPT} == {"killed", "stopped"}
