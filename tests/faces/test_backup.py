"""Backups of tenants to files and to S3, and tenants that are kept in S3."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from node import SAVANNA, Node
from test_tenants import connect


@pytest.fixture(scope="module")
def s3():
    """A bucket of a store with the API of S3, as the environment tells clients of it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT"), timeout=5)
            break
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
    yield {"AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
           "AWS_REGION": "us-east-1"}
    server.kill()
    server.wait()


def tenants(node, *arguments, environment=None):
    """Runs `savanna tenants`; its answer, or why it failed."""
    command = [SAVANNA, "tenants", *arguments, "--url", f"http://127.0.0.1:{node.ports['http']}", "--output", "json"]
    done = subprocess.run(command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, timeout=120, check=False)
    return (json.loads(done.stdout), None) if done.returncode == 0 else (None, done.stderr)


def fill(node, name):
    with connect(node, "postgres") as connection:
        connection.execute(f"CREATE DATABASE {name}")
    with connect(node, name) as connection:
        connection.execute("CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL, filler text)")
        connection.execute("INSERT INTO account SELECT g, 100, repeat('x', 500) FROM generate_series(1, 1000) AS g")


def transfer(node, name, stop):
    """Moves money about, so that its sum is the same at every commit."""
    with connect(node, name) as connection:
        at = 0
        while not stop.is_set():
            at = at % 999 + 1
            with connection.transaction():
                connection.execute("UPDATE account SET balance = balance - 1 WHERE id = %s", (at,))
                connection.execute("UPDATE account SET balance = balance + 1 WHERE id = %s", (at + 1,))


def test_a_backup_under_load_has_one_commit_and_all_that_was_acknowledged(node, tmp_path):
    fill(node, "bank")
    with connect(node, "bank") as connection:
        connection.execute("INSERT INTO account VALUES (0, 0, 'the last before')")
    stop = threading.Event()
    client = threading.Thread(target=transfer, args=(node, "bank", stop))
    client.start()
    for round in range(3):
        file = tmp_path / f"bank{round}.backup"
        answer, error = tenants(node, "backup", "bank", str(file))
        assert error is None and answer["backed_up"], error
        assert tenants(node, "restore", f"bank{round}", str(file)) == ({"tenant": f"bank{round}", "restored": True}, None)
    stop.set()
    client.join()
    for round in range(3):
        with connect(node, f"bank{round}") as copy:
            assert copy.execute("SELECT count(*), sum(balance) FROM account").fetchone() == (1001, 100_000)
            copy.execute("UPDATE account SET balance = 0")
    with connect(node, "bank") as connection:
        assert connection.execute("SELECT sum(balance) FROM account").fetchone() == (100_000,)


def test_what_is_no_whole_backup_makes_no_tenant(node, tmp_path):
    fill(node, "whole")
    file = tmp_path / "whole.backup"
    assert tenants(node, "backup", "whole", str(file))[1] is None
    assert "is there already" in tenants(node, "backup", "whole", str(file))[1]
    content = file.read_bytes()
    for name, bad in {"cut": content[:-1], "none": b"", "other": b"x" * 100, "longer": content + b"x"}.items():
        (tmp_path / name).write_bytes(bad)
        assert "expected the backup of a tenant" in tenants(node, "restore", f"t_{name}", str(tmp_path / name))[1]
    assert "already exists" in tenants(node, "restore", "whole", str(file))[1]
    assert "does not exist" in tenants(node, "backup", "nobody", str(tmp_path / "nobody"))[1]
    assert not (tmp_path / "nobody").exists()
    listed = {tenant["name"] for tenant in tenants(node, "list")[0]["tenants"]}
    assert "whole" in listed and not any(name.startswith("t_") for name in listed)


def test_a_backup_goes_to_s3_and_comes_back(node, s3):
    fill(node, "far")
    url = "s3://bucket/backups/far"
    assert tenants(node, "backup", "far", url, environment=s3)[1] is None
    assert "is there already" in tenants(node, "backup", "far", url, environment=s3)[1]
    assert tenants(node, "restore", "near", url, environment=s3)[1] is None
    with connect(node, "near") as copy:
        assert copy.execute("SELECT count(*), sum(balance) FROM account").fetchone() == (1000, 100_000)
    assert "s3://bucket/backups/nothing" in tenants(node, "restore", "nothing", "s3://bucket/backups/nothing", environment=s3)[1]


@pytest.mark.long
def test_tenants_are_kept_in_s3(tmp_path, s3):
    environment = {**s3, "SAVANNA_TENANTS_STORE": "s3://bucket/kept"}
    node = Node(tmp_path, environment)
    fill(node, "shop")
    assert tenants(node, "backup", "shop", str(tmp_path / "shop.backup"))[1] is None
    node.kill()
    assert not (tmp_path / "data" / "tenants" / "store").exists()
    with urllib.request.urlopen(f"{s3['AWS_ENDPOINT_URL']}/bucket?prefix=kept/tenants/", timeout=5) as listing:
        assert b"/objects/" in listing.read()
    node = Node(tmp_path, environment)
    with connect(node, "shop") as shop:
        assert shop.execute("SELECT count(*), sum(balance) FROM account").fetchone() == (1000, 100_000)
    assert node.stop() == 0
    # Another directory does not get what belongs to this one.
    (tmp_path / "other").mkdir()
    with pytest.raises(AssertionError, match="found the store of another one"):
        Node(tmp_path / "other", environment)
