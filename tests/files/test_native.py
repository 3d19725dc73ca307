"""hdfs-native, which has no Java in it, by itself and through fsspec."""

import getpass
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

import fsspec
import hdfs_native
import pytest
from kills import check_what_is_acknowledged
from shapes import check_a_thousand_levels

# As its own file system: it registers itself for hdfs:// where it is asked for.
from hdfs_native.fsspec import HdfsFileSystem


@pytest.fixture
def files(server):
    fsspec.register_implementation("hdfs", HdfsFileSystem, clobber=True)
    return fsspec.filesystem("hdfs", host="127.0.0.1", port=server.port, skip_instance_cache=True)


def names(files, path):
    return sorted(entry["name"].rsplit("/", 1)[-1] for entry in files.ls(path, detail=True))


def test_a_file_is_made_listed_read_moved_and_deleted(files, server, replicas):
    files.makedirs("/d/deep")
    content = random.Random(1).randbytes(3_000_001)
    with files.open("/d/deep/f", "wb") as file:
        file.write(content)
    assert names(files, "/d") == ["deep"] and names(files, "/d/deep") == ["f"]
    assert files.info("/d/deep/f")["size"] == len(content)
    assert files.cat("/d/deep/f") == content
    assert files.cat_file("/d/deep/f", start=511, end=100_000) == content[511:100_000]
    files.mv("/d/deep/f", "/d/moved")
    assert names(files, "/d") == ["deep", "moved"] and names(files, "/d/deep") == []
    assert files.cat("/d/moved") == content
    assert not files.exists("/d/deep/f")
    with pytest.raises(FileNotFoundError):
        files.cat("/d/deep/f")
    files.rm("/d", recursive=True)
    assert names(files, "/") == []
    deadline = time.monotonic() + 60
    while replicas():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_files_of_many_blocks_and_of_none(server):
    client = hdfs_native.Client(server.url)
    content = random.Random(2).randbytes(100_000)
    options = hdfs_native.WriteOptions(block_size=30_208, replication=1, overwrite=True)
    for length in (0, 1, 511, 512, 30_208, 30_209, len(content)):
        with client.create(f"/{length}", options) as file:
            file.write(content[:length])
        with client.read(f"/{length}") as file:
            assert file.read() == content[:length], length
        assert client.get_file_info(f"/{length}").length == length
    with client.read(f"/{len(content)}") as file:
        file.seek(30_000)
        assert file.read(500) == content[30_000:30_500]


def test_a_file_is_written_on(server):
    content = random.Random(4).randbytes(100_000)
    client = hdfs_native.Client(server.url)
    with client.create("/f", hdfs_native.WriteOptions(block_size=30_208)) as file:
        file.write(content[:700])
    begin = 700
    for end in (701, 1_024, 30_208, 30_209, 70_000, len(content)):
        with client.append("/f") as file:
            file.write(content[begin:end])
        with client.read("/f") as file:
            assert file.read() == content[:end], end
        begin = end
    server.restart()
    with hdfs_native.Client(server.url).read("/f") as file:
        assert file.read() == content


def test_names_are_any_text(files):
    odd = ["%", "_", "a b", "ü", "名前", "x" * 255, "'", '"']
    for name in odd:
        files.pipe_file(f"/d/{name}", name.encode())
    assert names(files, "/d") == sorted(odd)
    for name in odd:
        assert files.cat_file(f"/d/{name}") == name.encode()


def test_a_directory_of_many_files_is_listed_in_pages(server):
    client = hdfs_native.Client(server.url)
    options = hdfs_native.WriteOptions()
    for number in range(1_234):
        client.create(f"/many/{number:05}", options).close()
    listed = [status.path.rsplit("/", 1)[-1] for status in client.list_status("/many")]
    assert listed == [f"{number:05}" for number in range(1_234)]
    summary = client.get_content_summary("/many")
    assert (summary.file_count, summary.directory_count, summary.length) == (1_234, 1, 0)
    assert client.delete("/many", True)
    assert client.get_content_summary("/").file_count == 0


@pytest.mark.long
def test_a_directory_of_very_many_names_is_listed_and_deleted(server):
    count, workers = int(os.environ.get("FILES_NAMES", 100_000)) // 10, 8

    def make(worker):
        client = hdfs_native.Client(server.url)
        for number in range(worker, count, workers):
            client.mkdirs(f"/many/{number:07}", create_parent=True)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(make, range(workers)))
    client = hdfs_native.Client(server.url)
    assert [status.path.rsplit("/", 1)[-1] for status in client.list_status("/many")] == [f"{number:07}" for number in range(count)]
    for number in range(0, count, 997):
        assert client.get_file_info(f"/many/{number:07}").isdir
    server.restart()
    client = hdfs_native.Client(server.url)
    assert sum(1 for _ in client.list_status("/many")) == count
    assert client.delete("/many", True)
    assert list(client.list_status("/")) == []
    client.mkdirs("/many/0000000", create_parent=True)
    server.restart()
    assert hdfs_native.Client(server.url).get_content_summary("/many").directory_count == 2


def test_a_thousand_levels_are_a_path(server):
    check_a_thousand_levels(server)


def test_attributes(server):
    client = hdfs_native.Client(server.url)
    client.create("/f", hdfs_native.WriteOptions()).close()
    client.set_permission("/f", 0o640)
    client.set_owner("/f", "ann", "staff")
    client.set_times("/f", 1_000, 2_000)
    assert client.set_replication("/f", 2)
    status = client.get_file_info("/f")
    assert (status.permission, status.owner, status.group, status.replication) == (0o640, "ann", "staff", 2)
    assert (status.modification_time, status.access_time) == (1_000, 2_000)


def test_access_control_lists_let_in_whom_they_name(server, monkeypatch):
    def client(user):
        monkeypatch.setenv("HADOOP_USER_NAME", user)
        return hdfs_native.Client(server.url)

    root = hdfs_native.Client(server.url)
    with root.create("/f", hdfs_native.WriteOptions(permission=0o600)) as file:
        file.write(b"secret")
    root.set_permission("/f", 0o600)
    with pytest.raises(RuntimeError, match="Permission denied"):
        client("ann").read("/f")
    root.modify_acl_entries("/f", [hdfs_native.AclEntry("user", "access", "r--", "ann")])
    server.restart()
    root = client(getpass.getuser())
    status = root.get_acl_status("/f")
    assert [(entry.type, entry.scope, entry.permissions, entry.name) for entry in status.entries] == [
        ("user", "access", "r--", "ann"), ("group", "access", "---", None)]
    with client("ann").read("/f") as file:
        assert file.read() == b"secret"
    with pytest.raises(RuntimeError, match="Permission denied"):
        client("ann").append("/f")
    with pytest.raises(RuntimeError, match="Permission denied"):
        client("eve").read("/f")
    root.remove_acl("/f")
    with pytest.raises(RuntimeError, match="Permission denied"):
        client("ann").read("/f")


def test_what_was_acknowledged_is_there_after_kills(server):
    check_what_is_acknowledged(server, 200_000, lambda _: server.restart())
