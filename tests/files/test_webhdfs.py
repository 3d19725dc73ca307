"""Clients of WebHDFS: fsspec, which speaks HTTP by itself, and a few lines of http.client."""

import getpass
import http.client
import json
import os
import random
import socket
import struct
import threading
import time

import fsspec
import hdfs_native
import pytest


@pytest.fixture
def files(server):
    return fsspec.filesystem("webhdfs", host="127.0.0.1", port=server.http_port, user=getpass.getuser(), skip_instance_cache=True)


def names(files, path):
    return sorted(entry["name"].rsplit("/", 1)[-1] for entry in files.ls(path, detail=True))


def test_a_file_is_made_listed_read_moved_and_deleted(files, server):
    files.mkdir("/d/deep")
    content = random.Random(1).randbytes(3_000_001)
    with files.open("/d/deep/f", "wb", block_size=1 << 20, replication=1) as file:
        file.write(content)
    assert names(files, "/d") == ["deep"] and names(files, "/d/deep") == ["f"]
    assert files.info("/d/deep/f")["size"] == len(content)
    assert files.cat("/d/deep/f") == content
    with files.open("/d/deep/f") as file:
        file.seek(511)
        assert file.read(100_000) == content[511:100_511]
    with hdfs_native.Client(server.url).read("/d/deep/f") as file:
        assert file.read() == content
    assert files.ukey("/d/deep/f")["algorithm"] == "MD5-of-0MD5-of-512CRC32C"
    files.mv("/d/deep/f", "/d/moved")
    files.chmod("/d/moved", 640)
    files.set_replication("/d/moved", 2)
    server.restart()
    assert files.cat("/d/moved") == content
    assert files.info("/d/moved")["permission"] == "640"
    assert files.content_summary("/d")["fileCount"] == 1
    assert files.home_directory() == f"/user/{getpass.getuser()}"
    with pytest.raises(FileNotFoundError):
        files.info("/nothing")
    files.rm("/d", recursive=True)
    assert names(files, "/") == []


def test_names_are_any_text(files):
    odd = ["%", "_", "a b", "ü", "名前", "x" * 255, "'", '"', "+", "a?b", "a#b", "a&b=c"]
    for name in odd:
        with files.open(f"/d/{name}", "wb") as file:
            file.write(name.encode())
    assert names(files, "/d") == sorted(odd)
    for name in odd:
        assert files.cat_file(f"/d/{name}") == name.encode()


def ask(server, method, target, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    connection.request(method, target, body, headers)
    answer = connection.getresponse()
    return answer, answer.read()


def test_what_is_sent_in_parts_is_a_file(server):
    user = getpass.getuser()
    content = random.Random(2).randbytes(500_000)
    answer, _ = ask(server, "PUT", f"/webhdfs/v1/f?op=CREATE&user.name={user}&blocksize=65536")
    assert answer.status == 307
    target = answer.headers["Location"].removeprefix(server.web)
    parts = (content[at : at + 30_011] for at in range(0, len(content), 30_011))
    answer, _ = ask(server, "PUT", target, parts)
    assert answer.status == 201
    with hdfs_native.Client(server.url).read("/f") as file:
        assert file.read() == content
    answer, body = ask(server, "GET", f"/webhdfs/v1/f?op=GETFILESTATUS&user.name={user}")
    assert json.loads(body)["FileStatus"]["length"] == len(content)


def test_refusals_are_those_of_hadoop(server):
    answer, body = ask(server, "PUT", "/webhdfs/v1/d?op=MKDIRS&user.name=ann")
    said = json.loads(body)["RemoteException"]
    assert (answer.status, said["exception"], said["javaClassName"]) == (403, "AccessControlException", "org.apache.hadoop.security.AccessControlException")
    assert "user=ann, access=WRITE" in said["message"]


def test_monitors_read_beans(server):
    answer, body = ask(server, "GET", "/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo")
    [bean] = json.loads(body)["beans"]
    assert answer.status == 200 and bean["SoftwareVersion"] == "3.5.0" and len(json.loads(bean["LiveNodes"])) == 1


def test_what_was_acknowledged_over_http_is_there_after_kills(server):
    """Clients send files while the process is killed again and again: what was answered is there as a whole."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    user, there, sent, stop = getpass.getuser(), {}, {}, threading.Event()

    def work(number):
        random_ = random.Random(seed + number)
        count = 0
        while not stop.is_set():
            count += 1
            path, content = f"/{number}/{count}", random_.randbytes(random_.randrange(400_000))
            sent[path] = content
            query = f"op=CREATE&user.name={user}&blocksize=65536&namenoderpcaddress=here"
            try:
                answer, _ = ask(server, "PUT", f"/webhdfs/v1{path}?{query}", content)
                if answer.status == 201:
                    there[path] = content
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for _ in range(int(os.environ.get("FILES_KILLS", 4))):
        time.sleep(random.uniform(0.3, 1.5))
        server.restart()
    time.sleep(1)
    stop.set()
    for worker in workers:
        worker.join()
    server.restart()
    assert there, "it did something"
    for path, content in sent.items():
        answer, body = ask(server, "GET", f"/webhdfs/v1{path}?op=OPEN&user.name={user}&namenoderpcaddress=here")
        if path in there:
            assert answer.status == 200 and body == content, path
        else:
            # Nobody was told anything: it may be there as far as it came.
            assert answer.status == 404 or content.startswith(body), path


def delimited(*fields):
    """A message of texts, bytes and small numbers by their tags, with its length in front."""
    parts = b""
    for tag, value in fields:
        if isinstance(value, int):
            parts += bytes([tag << 3, value])
        else:
            value = value.encode() if isinstance(value, str) else value
            parts += bytes([tag << 3 | 2, len(value)]) + value
    return bytes([len(parts)]) + parts


def recover_lease(server, path):
    """Asks as a client of Hadoop's own for a file to be closed, which WebHDFS has no operation for. Whether it is."""
    protocol = "org.apache.hadoop.hdfs.protocol.ClientProtocol"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        def send(call, *messages):
            # Numbers of calls are written so that small negative ones are short.
            header = delimited((1, 2), (2, 0), (3, call * 2 if call >= 0 else call * -2 - 1), (4, bytes(16)), (5, 0))
            frame = b"".join((header, *messages))
            connection.sendall(struct.pack(">I", len(frame)) + frame)

        connection.sendall(b"hrpc\x09\0\0")
        send(-3, delimited((2, delimited((1, getpass.getuser()))[1:]), (3, protocol)))
        send(0, delimited((1, "recoverLease"), (2, protocol), (3, 1)), delimited((1, path), (2, "somebody else")))
        answer = connection.makefile("rb")
        [length] = struct.unpack(">I", answer.read(4))
        answer = answer.read(length)
        status = answer[answer.index(b"\x10") + 1]
        assert status == 0, answer
        return answer[-1] == 1


def begin(server, method, path, operation, body):
    """Begins to send what never comes to its end."""
    query = f"op={operation}&user.name={getpass.getuser()}&blocksize=65536&namenoderpcaddress=here"
    head = f"{method} /webhdfs/v1{path}?{query} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", server.http_port))
    connection.sendall(head.encode() + body)
    return connection


def until(what):
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_being_written(server, path):
    answer, body = ask(server, "GET", f"/webhdfs/v1{path}?op=GET_BLOCK_LOCATIONS&user.name={getpass.getuser()}")
    return answer.status == 200 and json.loads(body)["LocatedBlocks"]["isUnderConstruction"]


@pytest.mark.parametrize(("sent", "pause"), [(0, 0), (10_000, 1), (300_000, 0), (300_000, 1)])
def test_what_a_killed_node_had_of_a_new_file_goes_with_its_lease(server, replicas, sent, pause):
    with begin(server, "PUT", "/f", "CREATE", random.Random(3).randbytes(sent)):
        target = f"/webhdfs/v1/f?op=GETFILESTATUS&user.name={getpass.getuser()}"
        until(lambda: ask(server, "GET", target)[0].status == 200 and len(replicas()) >= sent // 65_536)
        # After a while the database has it, too.
        time.sleep(pause)
        server.restart()
    assert ask(server, "GET", target)[0].status == 200
    until(lambda: recover_lease(server, "/f"))
    assert ask(server, "GET", target)[0].status == 404
    until(lambda: replicas() == [])


@pytest.mark.parametrize("had", [0, 10_000, 65_536, 100_000])
@pytest.mark.parametrize(("sent", "pause"), [(10_000, 1), (300_000, 0)])
def test_what_a_killed_node_had_of_an_append_goes_with_its_lease(server, replicas, had, sent, pause):
    user, content = getpass.getuser(), random.Random(4).randbytes(had)
    answer, _ = ask(server, "PUT", f"/webhdfs/v1/f?op=CREATE&user.name={user}&blocksize=65536&namenoderpcaddress=here", content)
    assert answer.status == 201
    there = replicas()
    with begin(server, "POST", "/f", "APPEND", random.Random(5).randbytes(sent)):
        until(lambda: is_being_written(server, "/f") and len(replicas()) >= (had + sent) // 65_536)
        time.sleep(pause)
        server.restart()
    until(lambda: recover_lease(server, "/f"))
    answer, body = ask(server, "GET", f"/webhdfs/v1/f?op=OPEN&user.name={user}&namenoderpcaddress=here")
    assert answer.status == 200 and body == content
    until(lambda: len(replicas()) == len(there))
    # It may be written on, also after another end.
    server.restart()
    answer, _ = ask(server, "POST", f"/webhdfs/v1/f?op=APPEND&user.name={user}&namenoderpcaddress=here", b"more")
    assert answer.status == 200
    with hdfs_native.Client(server.url).read("/f") as file:
        assert file.read() == content + b"more"
