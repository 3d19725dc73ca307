"""One running node for all tests of this folder, on ports that the system chose."""

import json
import os
import pathlib
import subprocess

import pytest

from node import Node

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Of nodes that ask for them.
USER, PASSWORD, TOKEN = "ann", "open sesame", "0123456789abcdef"


# What clients connect to: the node that has the tables of streams, or the `front`, another one that relays them.
THROUGH = os.environ.get("FACES_THROUGH", "owner")


# A table of values in values, and what it holds as JSON. A map's keys are texts in JSON, whatever they are in SQL.
NESTED = """CREATE TABLE {name} (id BIGINT, r ROW<a INT, b VARCHAR>, l ARRAY<INT>, m MAP<VARCHAR, INT>, numbered MAP<INT, VARCHAR>,
    rows ARRAY<ROW<a INT, t TIMESTAMP(3)>>, deep ROW<xs ARRAY<INT>, m MAP<VARCHAR, ARRAY<DOUBLE>>>)
    WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'ndjson')"""
NESTED_COLUMNS = ["id", "r", "l", "m", "numbered", "rows", "deep"]
NESTED_ROWS = [
    {
        "id": 1, "r": {"a": 1, "b": 'it\'s, {odd} \\ "q"'}, "l": [1, None, 3], "m": {"k": 1, "": None}, "numbered": {"7": "x", "-1": None},
        "rows": [{"a": 1, "t": "2026-01-01T00:00:01.123"}, {"a": None, "t": None}, None],
        "deep": {"xs": [1, None], "m": {"a b": [1.5, None], "c": None}},
    },
    {"id": 2, "r": None, "l": None, "m": None, "numbered": None, "rows": None, "deep": None},
    {"id": 3, "r": {"a": None, "b": None}, "l": [], "m": {}, "numbered": {}, "rows": [], "deep": {"xs": None, "m": None}},
]


def nested_table(name, directory):
    """The statement that makes the table, over a file with its rows."""
    path = directory / "nested.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in NESTED_ROWS))
    return NESTED.format(name=name, path=path)


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    directory = tmp_path_factory.mktemp("node")
    # The first node of a cluster has everything; the other one relays its clients.
    names = ("owner", "front") if THROUGH == "front" else (None,)
    nodes = [Node(directory, name=name) for name in names]
    yield nodes[-1]
    for node in reversed(nodes):
        assert node.stop() == 0, node.log.read_text()


@pytest.fixture(scope="session")
def papers(tmp_path_factory):
    """What a node needs to be reached from elsewhere: a certificate, an administrator, a token. As settings, and the folder."""
    folder = tmp_path_factory.mktemp("papers")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem",
         "-out", "server.pem"],
        cwd=folder, check=True, capture_output=True,
    )
    for name, text in (("users", f"{USER} {PASSWORD}\n"), ("token", f"{TOKEN}\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    settings = {"SAVANNA_AUTH_USERS": "users", "SAVANNA_AUTH_TOKEN": "token"}
    for face in ("HTTP", "PGWIRE", "TENANTS"):
        settings |= {f"SAVANNA_{face}_TLS_CERT": "server.pem", f"SAVANNA_{face}_TLS_KEY": "key.pem"}
    return {name: str(folder / value) for name, value in settings.items()}, folder


@pytest.fixture(scope="session")
def guarded(papers, tmp_path_factory):
    """A node that listens beyond the loopback."""
    settings, folder = papers
    (folder / "keys.conf").write_text("requirepass of-keys-alone\n")
    node = Node(tmp_path_factory.mktemp("guarded"), {**settings, "SAVANNA_ADDRESS": "0.0.0.0", "SAVANNA_KEYS_CONFIG": str(folder / "keys.conf")})
    yield node
    assert node.stop() == 0, node.log.read_text()
