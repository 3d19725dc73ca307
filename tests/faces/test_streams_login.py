"""Who reaches streams beyond the loopback: administrators of the node, over encrypted connections."""

import os
import socket
import subprocess

import psycopg
import pytest

from conftest import PASSWORD, USER
from node import Node


def psql(node, *options, port="pgwire", password=PASSWORD, user=USER, host="127.0.0.1", database="savanna_streams"):
    address = " ".join([f"host={host} port={node.ports[port]} user={user} dbname={database}", *options])
    environment = {key: value for key, value in os.environ.items() if key != "PGPASSWORD"}
    if password is not None:
        environment["PGPASSWORD"] = password
    command = ["psql", "-X", "-w", "-At", "-c", "SELECT 1 AS one", address]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def comes_in(done):
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def is_refused(done, words):
    assert done.returncode == 2 and words in done.stderr, done.stderr


def outside():
    """An address of this machine that is not its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]


@pytest.mark.parametrize("host", ["127.0.0.1", outside()])
def test_psql_comes_in_with_a_password_over_an_encrypted_connection(guarded, host):
    comes_in(psql(guarded, "sslmode=require", host=host))
    comes_in(psql(guarded, "sslmode=require channel_binding=require", host=host))
    comes_in(psql(guarded, "sslmode=require channel_binding=disable", host=host))


def test_the_certificate_can_be_verified(guarded, papers):
    comes_in(psql(guarded, f"sslmode=verify-full sslrootcert={papers[1] / 'server.pem'}", host="localhost"))


@pytest.mark.parametrize("binding", ["require", "disable"])
def test_who_does_not_know_the_password_is_refused(guarded, binding):
    encrypted = f"sslmode=require channel_binding={binding}"
    is_refused(psql(guarded, encrypted, password="wrong"), f'password authentication failed for user "{USER}"')
    is_refused(psql(guarded, encrypted, password=None), "no password supplied")
    is_refused(psql(guarded, encrypted, user="nobody"), 'password authentication failed for user "nobody"')
    is_refused(psql(guarded, encrypted, user="nobody", database="nowhere"), 'password authentication failed for user "nobody"')
    is_refused(psql(guarded, encrypted, database="nowhere"), 'database "nowhere" does not exist')


def test_nothing_is_said_in_the_clear(guarded):
    is_refused(psql(guarded, "sslmode=disable"), "expected an encrypted connection, got one without encryption")


def test_administrators_of_the_node_are_those_of_tenants(guarded):
    comes_in(psql(guarded, "sslmode=require channel_binding=require", port="tenants", database="postgres"))
    is_refused(psql(guarded, "sslmode=require", port="tenants", database="postgres", password="wrong"), "password authentication failed")
    is_refused(psql(guarded, "sslmode=require", port="tenants", database="postgres", user="postgres"), "password authentication failed")


def test_a_query_is_cancelled_over_encryption(guarded):
    options = {"port": guarded.ports["pgwire"], "password": PASSWORD, "user": USER, "dbname": "savanna_streams", "sslmode": "require"}
    with psycopg.connect(host="127.0.0.1", autocommit=True, **options) as connection:
        connection.execute("CREATE TABLE endless WITH ('connector' = 'nexmark')")
        with connection.cursor() as cursor:
            rows = cursor.stream("SELECT bid.auction FROM endless WHERE event_type = 2")
            assert next(rows)
            connection.cancel_safe()
            with pytest.raises(psycopg.errors.QueryCanceled):
                for _ in rows:
                    pass
        # More than fits into one record, or into the buffers on the way.
        text = "x" * 3_000_000
        assert connection.execute(f"SELECT '{text}' AS t").fetchone() == (text,)


def test_on_the_loopback_passwords_and_encryption_can_be_required(papers, tmp_path):
    settings, _ = papers
    node = Node(tmp_path, {**settings, "SAVANNA_PGWIRE_REQUIRE_TLS": "true", "SAVANNA_TENANTS_REQUIRE_TLS": "true"})
    try:
        for port, database in (("pgwire", "savanna_streams"), ("tenants", "postgres")):
            comes_in(psql(node, "sslmode=require", port=port, database=database))
            is_refused(psql(node, "sslmode=require", port=port, database=database, password="wrong"), "password authentication failed")
            is_refused(psql(node, "sslmode=disable", port=port, database=database), "expected an encrypted connection")
    finally:
        node.kill()
