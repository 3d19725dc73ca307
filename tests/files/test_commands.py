"""`savanna files`."""

import json
import os
import subprocess

import hdfs_native
import pytest
from conftest import EXAMPLE

from node import SAVANNA

pytestmark = pytest.mark.skipif(EXAMPLE, reason="it is a command of the whole program")


@pytest.fixture
def savanna(server):
    def run(*words, status=0, user=None):
        environment = {**os.environ, **({"HADOOP_USER_NAME": user} if user else {})}
        done = subprocess.run([SAVANNA, "files", *map(str, words), "--url", server.url], capture_output=True, text=True, timeout=60, env=environment)
        assert done.returncode == status, done
        return done.stdout if status == 0 else done.stderr

    return run


@pytest.fixture
def tree(server):
    client = hdfs_native.Client(server.url)
    for path, length in [("/d/small", 3), ("/d/deep/large", 5_000), ("/top", 10)]:
        with client.create(path, hdfs_native.WriteOptions()) as file:
            file.write(b"x" * length)
    client.set_permission("/d/small", 0o640)
    return client


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


def test_directories_are_listed(savanna, tree):
    lines = [line.split() for line in savanna("ls").splitlines()]
    assert [line[-1] for line in lines] == ["name", "d", "top"] and lines[1][0] == "drwxr-xr-x"
    listed = objects(savanna("ls", "/d", "--output", "json"))
    assert [(entry["path"], entry["kind"], entry["length"]) for entry in listed] == [("/d/deep", "directory", 0), ("/d/small", "file", 3)]
    assert savanna("ls", "/d/small").splitlines()[-1].split()[0] == "-rw-r-----"
    for number in range(1_100):
        tree.mkdirs(f"/many/{number:04}", create_parent=True)
    listed = objects(savanna("ls", "/many", "--output", "json"))
    assert [entry["path"] for entry in listed] == [f"/many/{number:04}" for number in range(1_100)]


def test_a_tree_is_shown_as_deep_as_one_wants(savanna, tree):
    assert savanna("tree") == "/\n  d/\n    deep/\n      large  5000\n    small  3\n  top  10\n"
    assert savanna("tree", "/d", "--depth", 1) == "/d/\n  deep/\n  small  3\n"
    assert [entry["path"] for entry in objects(savanna("tree", "/d", "--output", "json"))] == ["/d", "/d/deep", "/d/deep/large", "/d/small"]


def test_what_is_large_comes_first(savanna, tree):
    rows = [line.split() for line in savanna("du").splitlines()[1:]]
    assert [(row[0], row[2], row[3], row[4]) for row in rows] == [("5003", "2", "2", "/d"), ("10", "1", "0", "/top")]
    assert objects(savanna("du", "/d", "--output", "json"))[1] == {"path": "/d/small", "files": 1, "directories": 0, "length": 3, "space": 3}


def test_all_is_said_of_a_file(savanna, tree):
    tree.modify_acl_entries("/d/small", [hdfs_native.AclEntry("user", "access", "rw-", "ann")])
    [said] = objects(savanna("stat", "/d/small", "--output", "json"))
    assert (said["mode"], said["length"], said["acl"]) == ("660", 3, ["user:ann:rw-", "group::r--"])
    assert "-rw-rw----+" in savanna("stat", "/d/small")


def test_who_writes_is_shown_to_the_superuser(savanna, tree):
    file = tree.create("/open", hdfs_native.WriteOptions())
    file.write(b"x")
    [said] = objects(savanna("top", "--count", 1, "--output", "json"))
    assert [writing["path"] for writing in said["writing"]] == ["/open"] and said["capacity"] > 0
    assert "/open" in savanna("top", "--count", 1)
    assert "Superuser privilege is required" in savanna("top", "--count", 1, user="ann", status=1)
    file.close()


def test_what_cannot_be_shown_is_said(savanna, tree, server):
    assert "nothing is at /nothing" in savanna("ls", "/nothing", status=1)
    assert "nothing is at /nothing" in savanna("stat", "/nothing", status=1)
    tree.set_permission("/d", 0o700)
    assert "Permission denied" in savanna("ls", "/d", user="ann", status=1)
    done = subprocess.run([SAVANNA, "files", "ls", "--url", "hdfs://127.0.0.1:1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and "no node answers at hdfs://127.0.0.1:1" in done.stderr
    done = subprocess.run([SAVANNA, "files", "ls", "--url", "http://127.0.0.1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "hdfs://HOST:PORT" in done.stderr
