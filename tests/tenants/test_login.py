"""Who is let in: passwords, roles of one tenant and of all, encryption, cancel keys."""

import base64
import hashlib
import hmac
import socket
import struct
import subprocess
import threading

import psycopg
import pytest

from conftest import busy_with_endless, running


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """A server's certificate, signed by itself."""
    folder = tmp_path_factory.mktemp("papers")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "server.pem"],
        cwd=folder, check=True, capture_output=True,
    )
    return folder


def tls(papers):
    return {"tenants.tls_cert": papers / "server.pem", "tenants.tls_key": papers / "key.pem"}


@pytest.fixture
def server(papers, tmp_path):
    with running(tmp_path, settings={"address": "0.0.0.0", **tls(papers)}) as server:
        yield server


def outside():
    """An address of this machine that is not its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]


def connect(server, user="postgres", database="postgres", **options):
    options = {"host": "127.0.0.1", "port": server.port, "user": user, "dbname": database, "autocommit": True, **options}
    return psycopg.connect(**options)


def refused(server, words, **options):
    with pytest.raises(psycopg.OperationalError, match=words):
        connect(server, **options)


def test_only_this_machine_is_trusted(server):
    refused(server, "expected a client of this machine", host=outside())
    with connect(server) as connection:
        connection.execute("CREATE USER postgres PASSWORD 'open sesame'")
    with connect(server, host=outside(), password="open sesame") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_where_somebody_has_a_password_everybody_needs_one(server):
    with connect(server) as connection:
        connection.execute("CREATE ROLE clerk LOGIN PASSWORD 'pässwörd'")
        connection.execute("CREATE ROLE idle LOGIN")
    refused(server, 'password authentication failed for user "clerk"', user="clerk", password="wrong")
    refused(server, 'password authentication failed for user "idle"', user="idle", password="x")
    refused(server, 'password authentication failed for user "nobody"', user="nobody", password="pässwörd")
    refused(server, "password", user="postgres")
    with connect(server, user="clerk", password="pässwörd") as connection:
        connection.execute("ALTER ROLE clerk PASSWORD 'other'")
        connection.execute("ALTER USER idle WITH PASSWORD 'now'")
    refused(server, "password authentication failed", user="clerk", password="pässwörd")
    with connect(server, user="idle", password="now") as connection:
        connection.execute("DROP ROLE clerk")
        with pytest.raises(psycopg.errors.UndefinedObject):
            connection.execute("DROP ROLE clerk")
    refused(server, "password authentication failed", user="clerk", password="other")


def test_passwords_survive_a_kill_and_are_kept_as_hashes(server):
    with connect(server) as connection:
        connection.execute("CREATE USER postgres PASSWORD 'plain and simple'")
    server.kill()
    kept = b"".join(path.read_bytes() for path in (server.directory / "data").rglob("*") if path.is_file())
    assert b"SCRAM-SHA-256$4096:" in kept and b"plain and simple" not in kept
    server.start()
    server.listen()
    refused(server, "password", user="postgres")
    with connect(server, password="plain and simple"):
        pass


def test_a_password_that_the_client_hashed_is_taken(server):
    with connect(server) as connection:
        hashed = connection.pgconn.encrypt_password(b"secret", b"ada", b"scram-sha-256").decode()
        connection.execute(f"CREATE USER ada PASSWORD '{hashed}'")
    with connect(server, user="ada", password="secret") as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            connection.execute(f"ALTER ROLE ada PASSWORD 'md5{'0' * 32}'")


def test_credentials_of_one_tenant_reach_nothing_of_another(server):
    with connect(server) as connection:
        connection.execute("CREATE DATABASE shop")
        connection.execute("CREATE DATABASE mill")
    for tenant in ("shop", "mill"):
        with connect(server, database=tenant) as connection:
            connection.execute(f"CREATE USER ada PASSWORD '{tenant}'")
            connection.execute(f"CREATE USER {tenant} PASSWORD '{tenant}'")
    with connect(server) as connection:
        connection.execute("CREATE USER root PASSWORD 'root'")
    refused(server, "password authentication failed", user="shop", database="mill", password="shop")
    refused(server, "password authentication failed", user="ada", database="mill", password="shop")
    refused(server, "password authentication failed", user="ada", database="postgres", password="shop")
    refused(server, "password authentication failed", user="ada", database="nowhere", password="shop")
    with connect(server, user="ada", database="shop", password="shop") as connection:
        for statement in ("CREATE DATABASE mine", "DROP DATABASE mill"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
    for tenant in ("shop", "mill"):
        with connect(server, user="root", database=tenant, password="root") as connection:
            connection.execute("CREATE TABLE t (id int)")
    refused(server, 'database "nowhere" does not exist', user="root", database="nowhere", password="root")
    with connect(server, user="root", password="root") as connection:
        connection.execute("CREATE DATABASE mine")


def test_a_role_of_a_database_has_its_own_password_only(server):
    with connect(server) as connection:
        connection.execute("CREATE DATABASE shop")
        connection.execute("CREATE USER root PASSWORD 'root'")
    with connect(server, user="root", database="shop", password="root") as connection:
        connection.execute("CREATE USER ada PASSWORD 'ada'")
        connection.execute("CREATE USER bob PASSWORD 'bob'")
    with connect(server, user="ada", database="shop", password="ada") as connection:
        for statement in ("CREATE USER root PASSWORD 'mine'", "CREATE USER eve PASSWORD 'eve'", "ALTER ROLE bob PASSWORD 'mine'", "DROP ROLE bob"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
        connection.execute("ALTER ROLE ada PASSWORD 'new'")
    with connect(server, user="bob", database="shop", password="bob"):
        pass
    with connect(server, user="ada", database="shop", password="new"):
        pass


def test_a_role_of_the_same_name_does_not_take_an_administrators_place(server):
    with connect(server) as connection:
        connection.execute("CREATE DATABASE shop")
        connection.execute("CREATE USER root PASSWORD 'root'")
    with connect(server, user="root", database="shop", password="root") as connection:
        connection.execute("CREATE USER root PASSWORD 'of the shop'")
    refused(server, "password authentication failed", user="root", database="shop", password="of the shop")
    with connect(server, user="root", database="shop", password="root") as connection:
        connection.execute("DROP DATABASE IF EXISTS mill")


def test_a_proof_is_bound_to_the_certificate(server):
    with connect(server) as connection:
        connection.execute("CREATE USER postgres PASSWORD 'secret'")
    with connect(server, password="secret", sslmode="require", channel_binding="require") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    refused(server, "password authentication failed", password="wrong", sslmode="require", channel_binding="require")
    refused(server, "channel binding", password="secret", sslmode="disable", channel_binding="require")
    with connect(server, password="secret", sslmode="require", channel_binding="disable"):
        pass


def test_psql_requires_encryption_and_channel_binding(server):
    with connect(server) as connection:
        connection.execute("CREATE USER postgres PASSWORD 'secret'")
    def psql(options, password="secret"):
        text = f"host=127.0.0.1 port={server.port} user=postgres dbname=postgres password={password} {options}"
        return server.run("psql", "-X", text, "-c", "\\conninfo", "-Atc", "SELECT 1")

    code, out, error = psql("sslmode=require channel_binding=require")
    assert code == 0 and "SSL connection (protocol: TLSv1.3" in out and out.endswith("1\n"), (out, error)
    code, _, error = psql("sslmode=disable channel_binding=require")
    assert code == 2 and "channel binding" in error
    code, _, error = psql("sslmode=require channel_binding=require", password="wrong")
    assert code == 2 and "password authentication failed" in error


def test_encryption_can_be_required(papers, tmp_path):
    with running(tmp_path, settings={**tls(papers), "tenants.require_tls": "true"}) as server:
        refused(server, "expected an encrypted connection", sslmode="disable")
        with connect(server, sslmode="require") as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)


def test_silent_clients_keep_nobody_out(server):
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(300)]
    with connect(server) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    for client in silent[:20]:
        assert client.recv(1) == b"", "the oldest went"
    for client in silent:
        client.close()


def test_a_client_that_is_one_too_many_hears_so(tmp_path):
    with running(tmp_path, settings={"tenants.max_clients": 2}) as server:
        with connect(server) as first, connect(server):
            refused(server, "sorry, too many clients already")
            first.close()
            # Its place is free when its thread has seen that it went.
            for _ in range(1_000):
                try:
                    connect(server).close()
                    return
                except psycopg.OperationalError as error:
                    assert "too many clients" in str(error)
            raise AssertionError("the place of a client that went stays taken")


def test_who_logs_in_waits_for_nobodys_statement(server):
    """Neither for one in the administrators' database, nor for one in its own to be told whether its password is right."""
    with connect(server) as connection:
        connection.execute("CREATE DATABASE shop")
        connection.execute("CREATE USER postgres PASSWORD 'old'")
        connection.execute("CREATE DATABASE mill")
    with connect(server, database="shop", password="old") as connection:
        connection.execute("CREATE USER clerk PASSWORD 'secret'")
    # Encrypted: whoever cancels (libpq 17) takes an end without a goodbye for a failure.
    with connect(server, password="old", sslmode="require") as busy:
        busy.execute("ALTER ROLE postgres PASSWORD 'new'")
        with busy_with_endless(busy):
            # More often than the statement needs to go aside.
            for _ in range(20):
                for name in ("shop", "mill"):
                    with connect(server, database=name, password="new") as connection:
                        assert connection.execute("SELECT 1").fetchone() == (1,)
                with connect(server, user="clerk", database="shop", password="secret"):
                    pass
                refused(server, "password authentication failed", database="mill", password="old")
                refused(server, "password authentication failed", password="old")
        # What is known while a statement runs does not outlive it.
        busy.execute("ALTER ROLE postgres PASSWORD 'newest'")
    refused(server, "password authentication failed", database="mill", password="new")
    with connect(server, database="mill", password="newest"):
        pass


class Prover:
    """Somebody who takes time to prove that it knows a password (RFC 5802)."""

    def __init__(self, server, user, database):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        startup = struct.pack(">i", 3 << 16) + f"user\0{user}\0database\0{database}\0\0".encode()
        self.socket.sendall(struct.pack(">i", 4 + len(startup)) + startup)
        assert self.message() == (b"R", struct.pack(">i", 10) + b"SCRAM-SHA-256\0\0")
        self.first = b"n=,r=abc"
        self.send(b"SCRAM-SHA-256\0" + struct.pack(">i", 3 + len(self.first)) + b"n,," + self.first)
        kind, body = self.message()
        assert kind == b"R" and body[:4] == struct.pack(">i", 11)
        self.challenge = body[4:]

    def send(self, body):
        self.socket.sendall(b"p" + struct.pack(">i", 4 + len(body)) + body)

    def exactly(self, length):
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            assert more, "the connection ended"
            data += more
        return data

    def message(self):
        kind, length = struct.unpack(">ci", self.exactly(5))
        return kind, self.exactly(length - 4)

    def prove(self, password):
        nonce, salt, iterations = (part[2:] for part in self.challenge.split(b","))
        salted = hashlib.pbkdf2_hmac("sha256", password, base64.b64decode(salt), int(iterations))
        key = hmac.digest(salted, b"Client Key", "sha256")
        last = b"c=biws,r=" + nonce
        said = b",".join([self.first, self.challenge, last])
        signature = hmac.digest(hashlib.sha256(key).digest(), said, "sha256")
        proof = bytes(a ^ b for a, b in zip(key, signature))
        self.send(last + b",p=" + base64.b64encode(proof))
        kind, body = self.message()
        assert kind == b"R" and body[:4] == struct.pack(">i", 12), "the proof was taken"


def test_a_role_of_a_dropped_database_does_not_come_into_one_of_its_name(server):
    with connect(server) as administration:
        for again in (False, True):
            administration.execute("CREATE DATABASE shop")
            with connect(server, database="shop") as connection:
                connection.execute("CREATE USER ada PASSWORD 'pencil'")
            prover = Prover(server, "ada", "shop")
            if again:
                administration.execute("DROP DATABASE shop")
                administration.execute("CREATE DATABASE shop")
            prover.prove(b"pencil")
            kind, body = prover.message()
            if again:
                assert kind == b"E" and b"C3D000\0" in body
            else:
                assert (kind, body) == (b"R", bytes(4)), "let in"
            prover.socket.close()
            administration.execute("DROP DATABASE shop")


def test_connections_can_be_encrypted(server, papers):
    with connect(server) as connection:
        connection.execute("CREATE USER postgres PASSWORD 'secret'")
    with connect(server, password="secret", host="localhost", sslmode="verify-full", sslrootcert=papers / "server.pem") as connection:
        assert connection.pgconn.ssl_in_use
        # More than fits into one record, or into the buffers on the way.
        connection.execute("CREATE TABLE big (id int PRIMARY KEY, t text)")
        text = "x" * 3_000_000
        connection.execute("INSERT INTO big VALUES (1, %s)", (text,))
        assert connection.execute("SELECT t FROM big").fetchone() == (text,)
    with connect(server, password="secret", sslmode="disable") as connection:
        assert not connection.pgconn.ssl_in_use


def test_who_sets_a_password_is_warned_while_no_administrator_has_one(server):
    def warnings(connection, statement):
        told = []

        def tell(notice):
            told.append((notice.severity_nonlocalized, notice.message_primary.split(":")[0]))

        connection.add_notice_handler(tell)
        connection.execute(statement)
        connection.remove_notice_handler(tell)
        return told

    open_to_all = [("WARNING", "no administrator has a password")]
    with connect(server) as administration:
        administration.execute("CREATE DATABASE shop")
        with connect(server, database="shop") as shop:
            assert warnings(shop, "CREATE USER clerk PASSWORD 'secret'") == open_to_all
            assert warnings(shop, "ALTER ROLE clerk PASSWORD 'other'") == open_to_all
            assert warnings(administration, "CREATE USER postgres PASSWORD 'open sesame'") == []
            assert warnings(shop, "ALTER ROLE clerk PASSWORD 'another'") == []


def test_bytes_before_encryption_end_the_connection(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(struct.pack(">ii", 8, 80877103) + b"\0\0\0\x08more")
        assert client.recv(100) == b""


def test_who_waits_is_cancelled_by_its_key_only(server):
    with connect(server) as holder, connect(server) as waiter:
        holder.execute("CREATE TABLE held (id int PRIMARY KEY)")
        holder.execute("INSERT INTO held VALUES (1)")
        holder.execute("BEGIN")
        holder.execute("SELECT * FROM held FOR UPDATE")
        numbers = {connection.pgconn.backend_pid for connection in (holder, waiter)}
        assert all(number > 1_000 for number in numbers), "numbers that count up can be guessed"

        def guess():
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
                client.sendall(struct.pack(">iiii", 16, 80877102, waiter.pgconn.backend_pid, 7))
                assert client.recv(1) == b""
            waiter.cancel()

        timer = threading.Timer(0.3, guess)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            waiter.execute("SELECT * FROM held FOR UPDATE")
        timer.join()
