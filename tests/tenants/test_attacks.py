"""What a role of a database cannot do to administrators, to other roles, and to other databases."""

import socket
import struct

import psycopg
import pytest

from conftest import ENDLESS, running

SUPERIOR = {"user": "root", "password": "of root"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("attacks")) as server:
        with server.connect(autocommit=True) as connection:
            for name in ("shop", "other"):
                connection.execute(f"CREATE DATABASE {name}")
            connection.execute("CREATE USER root PASSWORD 'of root'")
        with connect(server, "other", **SUPERIOR) as other:
            other.execute("CREATE TABLE secret (a int)")
            other.execute("CREATE USER ann PASSWORD 'of ann'")
        with connect(server, "shop", **SUPERIOR) as shop:
            shop.execute("CREATE USER clerk PASSWORD 'of clerk'")
            shop.execute("CREATE USER peer PASSWORD 'of peer'")
        yield server


def connect(server, database, user="clerk", password="of clerk", **options):
    text = f"host=127.0.0.1 port={server.port} dbname={database}"
    return psycopg.connect(text, user=user, password=password, autocommit=True, **options)


REFUSED = """
ALTER ROLE root PASSWORD 'x'
ALTER ROLE peer PASSWORD 'x'
ALTER ROLE clerk SUPERUSER
ALTER ROLE clerk RENAME TO root
ALTER ROLE ALL SET search_path TO x
ALTER ROLE clerk IN DATABASE other SET search_path TO x
CREATE ROLE root LOGIN PASSWORD 'x'
CREATE USER postgres PASSWORD 'x'
CREATE USER "Root" PASSWORD 'x'
DROP ROLE root
DROP ROLE peer
DROP ROLE IF EXISTS peer
GRANT root TO clerk
GRANT ALL ON DATABASE postgres TO clerk
REVOKE ALL ON DATABASE shop FROM root
SET ROLE root
SET ROLE postgres
SET SESSION AUTHORIZATION root
SET LOCAL SESSION AUTHORIZATION postgres
SELECT set_config('role', 'root', false)
SELECT set_config('session_authorization', 'root', false)
SELECT set_config('is_superuser', 'on', false)
SET is_superuser TO on
CREATE DATABASE mine
DROP DATABASE other
DROP DATABASE shop
ALTER DATABASE other RENAME TO x
ALTER SYSTEM SET x = 1
SELECT * FROM pg_shadow
SELECT * FROM other.public.secret
INSERT INTO pg_catalog.pg_authid (rolname) VALUES ('x')
UPDATE pg_catalog.pg_roles SET rolsuper = true
DELETE FROM pg_catalog.pg_database
TRUNCATE pg_catalog.pg_authid
DROP TABLE pg_catalog.pg_class
CREATE TABLE pg_catalog.x (a int)
CREATE VIEW pg_catalog.pg_roles AS SELECT 1
CREATE SCHEMA pg_evil
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'
CREATE RULE r AS ON SELECT TO t DO INSTEAD SELECT 1
CREATE EXTENSION dblink
DO $$ BEGIN END $$
COPY (SELECT 1) TO '/tmp/x'
COPY t FROM PROGRAM 'id'
SELECT pg_read_file('/etc/passwd')
SELECT pg_ls_dir('.')
SELECT lo_import('/etc/passwd')
LOAD 'x'
DROP OWNED BY root
REASSIGN OWNED BY root TO clerk
COMMENT ON ROLE root IS 'x'
""".strip().splitlines()


@pytest.mark.parametrize("statement", REFUSED)
def test_a_role_of_a_database_is_refused(server, statement):
    with connect(server, "shop") as clerk:
        with pytest.raises(psycopg.Error) as refused:
            clerk.execute(statement)
        assert refused.value.sqlstate[:2] in ("42", "0A", "3F", "55"), refused.value
        assert clerk.execute("SELECT current_user, session_user").fetchone() == ("clerk", "clerk")
        assert clerk.execute("SHOW is_superuser").fetchone() == ("off",)
    for database in ("postgres", "shop", "other"):
        connect(server, database, **SUPERIOR).close()


def test_a_role_is_no_administrator_and_an_administrator_is_one(server):
    query = "SELECT rolname, rolsuper, rolcreaterole, rolcreatedb FROM pg_roles"
    # PostgreSQL has it, too; nobody logs in as it.
    owner = ("pg_database_owner", False, False, False)
    with connect(server, "shop") as clerk, connect(server, "shop", **SUPERIOR) as root:
        assert clerk.info.parameter_status("is_superuser") == "off"
        assert clerk.execute(query).fetchall() == [("clerk", False, False, False), owner]
        assert root.info.parameter_status("is_superuser") == "on"
        assert root.execute(query).fetchall() == [("root", True, True, True), owner]


def test_a_role_comes_into_no_other_database(server):
    for database in ("postgres", "other"):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            connect(server, database)


def test_a_role_reads_neither_verifiers_nor_names_of_other_databases(server):
    with connect(server, "shop") as clerk:
        assert clerk.execute("SELECT rolname, rolpassword FROM pg_authid").fetchall() == [("clerk", None), ("pg_database_owner", None)]
        assert clerk.execute("SELECT passwd FROM pg_user").fetchall() == [("********",)]
        assert clerk.execute("SELECT datname FROM pg_database").fetchall() == [("shop",)]
        tables = clerk.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'").fetchall()
        assert ("secret",) not in tables
        with connect(server, "other", "ann", "of ann"):
            names = clerk.execute("SELECT DISTINCT datname FROM pg_stat_activity").fetchall()
            assert names == [("shop",)]


@pytest.mark.parametrize("signal", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_role_ends_nothing_of_others(server, signal):
    with connect(server, "shop") as clerk, connect(server, "other", "ann", "of ann") as ann:
        for user, password in (("root", "of root"), ("peer", "of peer")):
            with connect(server, "shop", user, password) as victim:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    clerk.execute(f"SELECT {signal}(%s)", (victim.info.backend_pid,))
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    clerk.execute(f"SELECT {signal}({victim.info.backend_pid})".encode())
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    clerk.execute(f"SELECT {signal}(pid) FROM pg_stat_activity WHERE usename = %s", (user,))
                assert victim.execute("SELECT 1").fetchone() == (1,)
        assert clerk.execute(f"SELECT {signal}(%s)", (ann.info.backend_pid,)).fetchone() == (False,)
        assert ann.execute("SELECT 1").fetchone() == (1,)


def test_nobody_is_made_to_end_connections_by_reading_or_writing(server):
    """What a role stores is computed with the rights of whoever reads or writes."""
    with connect(server, "shop") as clerk:
        for stored in ("CREATE TABLE trap (a bool DEFAULT pg_terminate_backend(1), b int)",
                       "CREATE TABLE trap (a int CHECK (pg_cancel_backend(a)))",
                       "CREATE TABLE trap (a int, b bool GENERATED ALWAYS AS (pg_terminate_backend(a)) STORED)",
                       "CREATE VIEW trap AS SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
                       "CREATE VIEW trap AS SELECT 1 FROM pg_stat_activity WHERE pg_cancel_backend(pid)"):
            with pytest.raises((psycopg.errors.FeatureNotSupported, psycopg.errors.InvalidObjectDefinition), match="stored|immutable"):
                clerk.execute(stored)
        clerk.execute("CREATE TABLE trap (a int, b bool)")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="stored"):
            clerk.execute("ALTER TABLE trap ALTER COLUMN b SET DEFAULT pg_terminate_backend(1)")
        clerk.execute("DROP TABLE trap")


def test_what_a_role_names_like_the_catalog_deceives_nobody(server):
    with connect(server, "shop") as clerk:
        clerk.execute("CREATE TABLE pg_roles (rolname text, rolsuper bool)")
        clerk.execute("INSERT INTO pg_roles VALUES ('clerk', true)")
    with connect(server, "shop", **SUPERIOR) as root:
        assert root.execute("SELECT rolname FROM pg_roles").fetchall() == [("root",), ("pg_database_owner",)]
        root.execute("DROP TABLE public.pg_roles")


def test_a_role_changes_its_own_password_and_nothing_else(server):
    with connect(server, "shop") as clerk:
        clerk.execute("ALTER ROLE clerk PASSWORD 'new'")
    connect(server, "shop", password="new").close()
    with pytest.raises(psycopg.OperationalError):
        connect(server, "shop")
    with connect(server, "shop", password="new") as clerk:
        clerk.execute("ALTER ROLE clerk PASSWORD 'of clerk'")


def test_a_key_of_somebody_else_cancels_nothing(server):
    with connect(server, "shop", **SUPERIOR) as root:
        root.pgconn.send_query(ENDLESS.encode())
        for secret in (0, 1, -1, 2**31 - 1):
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as guess:
                guess.sendall(struct.pack("!iiii", 16, 80877102, root.info.backend_pid, secret))
                guess.recv(1)
        root.pgconn.consume_input()
        assert root.pgconn.is_busy()
        root.cancel_safe()
        assert root.pgconn.get_result().error_field(67) == b"57014"
        assert root.pgconn.get_result() is None
