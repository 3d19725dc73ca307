"""Brokers that are reached by TLS, and users that log in by SCRAM."""

import subprocess

import psycopg
import pytest

from broker import Broker, certificates, table
from streams import a_node, connect, numbers, rows, run, until


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    certificates(folder, "broker", "client")
    return folder


def one_line(path):
    """As Java's clients take it."""
    return path.read_text().replace("\n", "\\n")


def options(folder, **more):
    given = {"properties.security.protocol": "SASL_SSL", "properties.ssl.truststore.certificates": (folder / "ca.pem").read_text(),
             "properties.sasl.username": "ann", "properties.sasl.password": "open sesame"}
    return given | {name.replace("__", "-").replace("_", "."): value for name, value in more.items()}


def test_users_log_in_by_scram_over_tls_and_rows_are_read_and_written(folder, tmp_path):
    broker = Broker(tmp_path / "broker", password="open sesame", tls=folder)
    try:
        read, written = broker.topic("numbers", 2), broker.topic("passed")
        with a_node(tmp_path) as node:
            ways = [options(folder, properties_sasl_mechanism=mechanism) for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
            run(node, table(broker, "numbers", "n BIGINT", read, **ways[0]), table(broker, "passed", "n BIGINT", written, **ways[1]), "SET 'query.name' = 'passed'",
                "INSERT INTO passed SELECT n FROM numbers")
            broker.write(read, [(row, at % 2) for at, row in enumerate(rows(*range(10)))])
            until(lambda: numbers(broker, written) == list(range(10)), lambda: node.log.read_text())
            broker.kill()
            broker.start()
            broker.write(read, rows(10))
            until(lambda: numbers(broker, written) == list(range(11)), lambda: node.log.read_text(), patience=120)

            def refused(name, match, **more):
                run(node, table(broker, name, "n BIGINT", read, **{**ways[0], **more}))
                with pytest.raises(psycopg.Error, match=match), connect(node) as connection:
                    connection.execute(f"SELECT n FROM {name}").fetchall()

            refused("wrong", "does not let user 'ann' in", **{"properties.sasl.password": "wrong"})
            refused("unknown", "by TLS.*properties.ssl.truststore.certificates", **{"properties.ssl.truststore.certificates": (folder / "client.crt").read_text()})
            with connect(node) as connection:
                assert "BEGIN CERTIFICATE" not in str(connection.execute("SHOW CREATE TABLE numbers").fetchall())
            assert "open sesame" not in node.log.read_text()
    finally:
        broker.kill()


def test_brokers_know_clients_by_their_certificates(folder, tmp_path):
    broker = Broker(tmp_path / "broker", tls=folder, knows_clients=True)
    try:
        name = broker.topic("numbers")
        broker.write(name, rows(1, 2))
        way = {"properties.security.protocol": "SSL", "properties.ssl.truststore.certificates": one_line(folder / "ca.pem"), "scan.bounded.mode": "latest-offset"}
        known = way | {"properties.ssl.keystore.certificate.chain": one_line(folder / "client.crt"), "properties.ssl.keystore.key": one_line(folder / "client.key")}
        with a_node(tmp_path) as node, connect(node) as connection:
            connection.execute(table(broker, "known", "n BIGINT", name, **known))
            assert connection.execute("SELECT n FROM known").fetchall() == [(1,), (2,)]
            connection.execute(table(broker, "stranger", "n BIGINT", name, **way))
            with pytest.raises(psycopg.Error, match="in Kafka at"):
                connection.execute("SELECT n FROM stranger").fetchall()
            subprocess.run(["openssl", "pkcs8", "-topk8", "-v2", "aes256", "-in", folder / "client.key", "-out", folder / "client.enc", "-passout", "pass:of the key"], check=True, timeout=60)
            secret = {"properties.ssl.keystore.key": one_line(folder / "client.enc"), "properties.ssl.key.password": "of the key"}
            connection.execute(table(broker, "encrypted", "n BIGINT", name, **(known | secret)))
            assert connection.execute("SELECT n FROM encrypted").fetchall() == [(1,), (2,)]
            connection.execute(table(broker, "locked", "n BIGINT", name, **(known | secret | {"properties.ssl.key.password": "of another key"})))
            with pytest.raises(psycopg.Error) as locked:
                connection.execute("SELECT n FROM locked").fetchall()
            # What is secret is told nowhere.
            asked = [*(f"SHOW CREATE TABLE {name}" for name in ("known", "encrypted", "locked")), "SHOW TABLES", "SELECT reloptions FROM pg_class", "EXPLAIN SELECT n FROM encrypted"]
            shown = str(locked.value) + "".join(str(connection.execute(statement).fetchall()) for statement in asked)
        for text in (shown, node.log.read_text()):
            assert "of the key" not in text and "of another key" not in text and "PRIVATE KEY" not in text
    finally:
        broker.kill()


def test_authorities_of_the_system_are_trusted_where_a_table_names_none(folder, tmp_path):
    broker = Broker(tmp_path / "broker", tls=folder)
    try:
        name = broker.topic("numbers")
        broker.write(name, rows(1))
        way = {"properties.security.protocol": "SSL", "scan.bounded.mode": "latest-offset"}
        for trusted in (True, False):
            with a_node(tmp_path, environment={"SSL_CERT_FILE": str(folder / "ca.pem")} if trusted else None) as node, connect(node) as connection:
                connection.execute(table(broker, "numbers", "n BIGINT", name, **way) if trusted else "SELECT 1")
                if trusted:
                    assert connection.execute("SELECT n FROM numbers").fetchall() == [(1,)]
                    continue
                with pytest.raises(psycopg.Error, match="by TLS.*certificate verify failed"):
                    connection.execute("SELECT n FROM numbers").fetchall()
    finally:
        broker.kill()


def test_a_certificate_for_another_host_is_refused_unless_that_is_wished(tmp_path):
    folder = tmp_path / "certificates"
    certificates(folder, "broker", "client", host="192.0.2.1")
    broker = Broker(tmp_path / "broker", tls=folder)
    try:
        name = "numbers"
        way = {"properties.security.protocol": "SSL", "properties.ssl.truststore.certificates": one_line(folder / "ca.pem"), "scan.bounded.mode": "latest-offset"}
        broker.topic(name)
        broker.write(name, rows(1))
        with a_node(tmp_path) as node, connect(node) as connection:
            connection.execute(table(broker, "strict", "n BIGINT", name, **way))
            with pytest.raises(psycopg.Error, match="by TLS"):
                connection.execute("SELECT n FROM strict").fetchall()
            connection.execute(table(broker, "lax", "n BIGINT", name, **way, **{"properties.ssl.endpoint.identification.algorithm": "none"}))
            assert connection.execute("SELECT n FROM lax").fetchall() == [(1,)]
    finally:
        broker.kill()
