"""Nodes that encrypt what they say to each other: every port speaks TLS 1.3 to nodes alone, and nodes that do otherwise are refused."""

import json
import socket
import ssl
import subprocess
import time

import certificates
import pytest

from conftest import ANY_PORTS, NODES, PATIENCE, SAVANNA


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    return certificates.of_nodes(tmp_path_factory.mktemp("certificates"))


def addresses(cluster):
    """Where nodes listen for each other: for what clients ask, for pings, and for the coordinator."""
    nodes = [node["address"] for node in cluster.get("n1", "/api/v1/nodes")["nodes"]]
    pulses = [json.loads(path.read_text())["address"] for path in (cluster.directory / "pulses").iterdir()]
    coordinator = json.loads((cluster.directory / "coordinator.address").read_text())["address"]
    assert len(nodes) == len(pulses) == len(NODES)
    return [*nodes, *pulses, coordinator]


def greet(address, folder, shown):
    """The version of TLS that a node speaks to who shows a certificate, or none; fails if it refuses it."""
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    if shown:
        context.load_cert_chain(folder / f"{shown}.pem", folder / f"{shown}.key")
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as raw:
        with context.wrap_socket(raw, server_hostname="savanna-node") as client:
            version = client.version()
            # A refusal is a word, and comes behind the handshake; who is a node, and says nothing, is left after a while.
            assert client.recv(1) == b""
            return version


def is_closed(client):
    """Whether the other side closes without a word."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def refused(directory, *settings):
    """Why a node does not join the cluster in a directory."""
    words = [word for setting in ("keys.threads=1", "tenants.threads=1", *settings) for word in ("--set", setting)]
    command = [SAVANNA, *words, "node", "--join", directory, "--name", "n9", *ANY_PORTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode != 0 and done.stdout == ""
    return done.stderr


def test_every_port_of_a_node_is_for_nodes_alone(start, signed):
    cluster = start(*certificates.settings(signed))
    for number, node in enumerate(NODES, 1):
        assert cluster.redis(node).incr("visits") == number
    with cluster.tenants("n1", autocommit=True) as client:
        client.execute("CREATE DATABASE shop")
    for node in NODES:
        with cluster.tenants(node, "shop") as client:
            assert client.execute("SELECT 1").fetchone() == (1,)
    for address in addresses(cluster):
        assert greet(address, signed, "node") == "TLSv1.3"
        for shown in (None, "other"):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                greet(address, signed, shown)
        host, port = address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert is_closed(plain)

    # The node with the coordinator is lost, and another one takes over.
    pid = cluster.signal(cluster.coordinator(), 9)
    time.sleep(1)
    cluster.until(lambda: all(cluster.is_served(node) for node in NODES), f"all is served without process {pid}")
    assert cluster.redis("n1").incr("visits") == 4

    why = refused(cluster.directory)
    assert "expected a node that encrypts what it says to others" in why and "set cluster.tls_cert, cluster.tls_key and cluster.tls_ca" in why
    assert cluster.redis("n2").incr("visits") == 5
    assert cluster.stop() == 0, cluster.logs()


@pytest.mark.long
def test_a_cluster_changes_its_encryption_when_all_its_nodes_have_stopped(start, signed):
    cluster = start()
    assert cluster.redis("n1").incr("visits") == 1
    why = refused(cluster.directory, *certificates.settings(signed))
    assert "expected a node that does not encrypt what it says to others" in why and "leave cluster.tls_cert" in why
    assert cluster.redis("n2").incr("visits") == 2
    cluster.kill()
    cluster = start(*certificates.settings(signed))
    assert cluster.redis("n3").incr("visits") == 3
    assert cluster.stop() == 0, cluster.logs()


def test_what_does_not_fit_is_refused_at_the_start(tmp_path, signed):
    directory = tmp_path / "data"
    assert "came one that other nodes would refuse" in refused(directory, *certificates.settings(signed, "other"))
    cert, key, authorities = certificates.settings(signed)
    assert "cluster.tls_ca takes the path of a file, as all of cluster.tls_cert" in refused(directory, cert, key)
    assert "No such file" in refused(directory, "cluster.tls_cert=nowhere", key, authorities)
    open_key = tmp_path / "open.key"
    open_key.write_bytes((signed / "node.key").read_bytes())
    open_key.chmod(0o644)
    assert "expected a file that only its owner can read" in refused(directory, cert, f"cluster.tls_key={open_key}", authorities)
    assert not directory.exists()


@pytest.mark.long
def test_machines_encrypt_what_they_say_to_each_other_and_to_etcd_which_asks_who_they_are(start_machines, signed):
    cluster = start_machines(*certificates.settings(signed), signed=signed)
    for number, node in enumerate(NODES, 1):
        assert cluster.redis(node).incr("visits") == number
    with cluster.tenants("n1", autocommit=True) as client:
        client.execute("CREATE DATABASE shop")
    nodes = cluster.get("n1", "/api/v1/nodes")["nodes"]
    for node in nodes:
        assert greet(node["address"], signed, "node") == "TLSv1.3"
    address = next(node["address"] for node in nodes if node["name"] == "n1")
    cluster.begin("n4", join=address, store=None)
    cluster.wait_for("n4")
    assert cluster.redis("n4").incr("visits") == 4

    # Other nodes, and those whom etcd does not let in.
    plain = [f"{setting.split('=')[0]}=none" for setting in certificates.settings(signed)]
    assert "set cluster.tls_cert, cluster.tls_key and cluster.tls_ca as for those" in cluster.refused("n5", settings=plain)
    why = cluster.refused("n5", join=address, settings=[*plain, "cluster.etcd_user=none"])
    assert "expected an encrypted connection (TLS 1.3), came one that is not" in why
    password = {"SAVANNA_ETCD_PASSWORD": "wrong horse"}
    for expected, options in (
        ("look at cluster.etcd_user and SAVANNA_ETCD_PASSWORD", {"environment": password}),
        ("may not read and write the records of the cluster", {"settings": ["cluster.etcd_user=nobody"]}),
        ("set it, or unset the variable", {"settings": ["cluster.etcd_user=none"]}),
        ("SAVANNA_ETCD_PASSWORD, came none", {"environment": {"SAVANNA_ETCD_PASSWORD": None}}),
        ("expected cluster.etcd_ca", {"settings": ["cluster.etcd_ca=none"]}),
        ("that an authority in cluster.etcd_ca has signed", {"settings": [f"cluster.etcd_ca={signed / 'foreign.pem'}"]}),
        ("look at cluster.etcd_cert", {"settings": ["cluster.etcd_cert=none", "cluster.etcd_key=none"]}),
        ("expected a certificate of etcd for this address", {"join": f"etcds://localhost:{cluster.member.rsplit(':', 1)[1]}/it"}),
        ("expected --join etcds://", {"join": f"etcd://{cluster.member}/it"}),
    ):
        why = cluster.refused("n5", **options)
        assert expected in why and "horse" not in why, why

    # etcd starts again, and knows no token that it has given; then a node is lost.
    cluster.etcd.restart()
    with cluster.tenants("n2", autocommit=True) as client:
        client.execute("CREATE DATABASE bank")
    cluster.lose("n1")
    left = cluster.living()
    cluster.until_served(left)
    assert "n4" in left and cluster.redis("n4").incr("visits") == 5
    assert "horse" not in cluster.logs()
