"""One user, one password, every face: with `auth.users` set, nobody comes in without one, on the loopback either."""

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from base64 import b64encode

import psycopg
import pytest
import redis

from conftest import PASSWORD, TOKEN, USER
from node import Node
from test_streams_login import comes_in, is_refused, outside, psql


def basic(name, password):
    return "Basic " + b64encode(f"{name}:{password}".encode()).decode()


def status_of(node, path, authorization=None, scheme="http", host="127.0.0.1"):
    """The status of the answer, and how a client could say who it is."""
    request = urllib.request.Request(f"{scheme}://{host}:{node.ports['http']}{path}", headers={"authorization": authorization} if authorization else {})
    context = ssl._create_unverified_context() if scheme == "https" else None
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as reply:
            return reply.status, None
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get_all("www-authenticate")


@pytest.fixture(scope="module")
def closed(papers, tmp_path_factory):
    """A node on the loopback with users, and nothing else."""
    node = Node(tmp_path_factory.mktemp("closed"), {"SAVANNA_AUTH_USERS": papers[0]["SAVANNA_AUTH_USERS"]})
    yield node
    assert node.stop() == 0, node.log.read_text()


def keys(node, **options):
    return redis.Redis(port=node.ports["keys"], decode_responses=True, retry=None, **options)


def test_no_face_answers_who_does_not_say_who_it_is(closed):
    for path in ("/api/v1/status", "/api/v1/tenants", "/metrics", "/nowhere"):
        assert status_of(closed, path) == (401, ['Basic realm="savanna", charset="UTF-8"'])
    assert status_of(closed, "/healthz") == status_of(closed, "/readyz") == (200, None)
    for port, database in (("pgwire", "savanna_streams"), ("tenants", "postgres")):
        is_refused(psql(closed, port=port, database=database, password=None), "no password supplied")
    for protocol in (2, 3):
        with keys(closed, protocol=protocol) as client, pytest.raises(redis.AuthenticationError):
            client.get("a")


@pytest.mark.parametrize(("name", "password"), [(USER, "wrong"), (USER, ""), ("nobody", PASSWORD), ("default", "")])
def test_no_face_lets_in_who_is_not_who_it_says(closed, name, password):
    assert status_of(closed, "/api/v1/status", basic(name, password))[0] == 401
    for port, database in (("pgwire", "savanna_streams"), ("tenants", "postgres")):
        done = psql(closed, port=port, database=database, user=name, password=password or "empty")
        is_refused(done, f'password authentication failed for user "{name}"')
    with keys(closed) as client, pytest.raises(redis.RedisError):
        client.execute_command("AUTH", name, password)
        client.get("a")


@pytest.mark.parametrize("protocol", [2, 3])
def test_one_name_and_password_come_in_at_every_face(closed, protocol):
    assert status_of(closed, "/api/v1/status", basic(USER, PASSWORD)) == (200, None)
    for port, database in (("pgwire", "savanna_streams"), ("tenants", "postgres")):
        comes_in(psql(closed, port=port, database=database))
    with keys(closed, username=USER, password=PASSWORD, protocol=protocol) as client:
        assert client.acl_whoami() == USER
        # Redis' `HELLO .. AUTH` is what protocol 3 begins with; an administrator may do everything.
        assert client.set("identity", "1") and client.config_get("maxmemory") and client.flushdb()
    curl = ["curl", "--silent", "--fail", "--user", f"{USER}:{PASSWORD}", f"http://127.0.0.1:{closed.ports['http']}/api/v1/status"]
    assert json.loads(subprocess.run(curl, capture_output=True, check=True, timeout=60).stdout)


def test_an_administrator_is_one_of_tenants(closed):
    options = {"host": "127.0.0.1", "port": closed.ports["tenants"], "user": USER, "password": PASSWORD, "autocommit": True}
    with psycopg.connect(dbname="postgres", **options) as connection:
        connection.execute("CREATE DATABASE identity")
    with psycopg.connect(dbname="identity", **options) as connection:
        assert connection.execute("SELECT current_user").fetchone() == (USER,)


def test_acl_does_not_change_the_nodes_administrators(closed):
    with keys(closed, username=USER, password=PASSWORD) as client:
        assert f"user {USER} on ~* &* +@all" in client.acl_list()
        for command in (["SETUSER", USER, "on", "nopass"], ["SETUSER", USER], ["DELUSER", USER], ["DELUSER", "guest", USER]):
            with pytest.raises(redis.ResponseError, match="is an administrator of the node"):
                client.execute_command("ACL", *command)
        client.acl_setuser("guest", enabled=True, passwords=["+other"], keys=["*"], commands=["+get"])
        with keys(closed, username="guest", password="other") as guest:
            assert guest.get("a") is None
            with pytest.raises(redis.exceptions.NoPermissionError):
                guest.set("a", "1")
        client.acl_deluser("guest")


def test_requirepass_gives_the_default_user_a_password(closed):
    with keys(closed, username=USER, password=PASSWORD) as admin:
        with keys(closed) as client, pytest.raises(redis.AuthenticationError):
            client.execute_command("AUTH", "anything")
        admin.config_set("requirepass", "of-keys-alone")
        with keys(closed, password="of-keys-alone") as client:
            assert client.acl_whoami() == "default"
        # That there is none any more lets nobody in.
        admin.config_set("requirepass", "")
        for password in (None, "of-keys-alone"):
            with keys(closed, password=password) as client, pytest.raises(redis.AuthenticationError):
                client.get("a")


def test_a_token_and_a_user_come_in_beyond_the_loopback(guarded):
    for authorization in (basic(USER, PASSWORD), f"Bearer {TOKEN}"):
        assert status_of(guarded, "/api/v1/status", authorization, "https", outside()) == (200, None)
    code, challenges = status_of(guarded, "/api/v1/status", basic(USER, TOKEN), "https", outside())
    assert code == 401 and len(challenges) == 2


def test_an_administrators_password_is_not_taken_in_the_clear_from_elsewhere(guarded):
    local = keys(guarded, username=USER, password=PASSWORD)
    with local, redis.Redis(host=outside(), port=guarded.ports["keys"], retry=None, password="of-keys-alone") as client:
        assert local.ping()
        with pytest.raises(redis.ResponseError, match="expected an encrypted connection"):
            client.execute_command("AUTH", USER, PASSWORD)
        with pytest.raises(redis.AuthenticationError, match="invalid username-password pair"):
            client.execute_command("AUTH", USER, "wrong")
        assert client.acl_whoami() == "default", "the password of keys alone"
        local.config_set("protected-mode", "no")
        try:
            assert client.execute_command("AUTH", USER, PASSWORD)
        finally:
            local.config_set("protected-mode", "yes")


def test_a_file_of_acl_may_open_the_default_user_and_may_not_name_an_administrator(papers, tmp_path):
    acl = tmp_path / "users.acl"
    environment = {"SAVANNA_AUTH_USERS": papers[0]["SAVANNA_AUTH_USERS"], "SAVANNA_KEYS_ACLFILE": str(acl)}
    acl.write_text("user default on nopass ~open:* +@all\n")
    node = Node(tmp_path, environment)
    try:
        with keys(node) as client:
            assert client.get("open:a") is None
            client.execute_command("AUTH", USER, PASSWORD)
            client.execute_command("ACL", "SETUSER", "guest", "on", ">other", "+@all", "~*")
            assert client.acl_save() and client.acl_load()
            assert client.acl_whoami() == USER
        assert [line.split()[1] for line in acl.read_text().splitlines()] == ["default", "guest"]
    finally:
        node.kill()
    acl.write_text(f"user {USER} on nopass ~* +@all\n")
    with pytest.raises(AssertionError, match=f"'{USER}' is an administrator of the node"):
        Node(tmp_path, environment, patience=10)
