"""Clients of clusters, as their users have them, at the cluster port of a node."""

import shutil
import subprocess

import pytest

from conftest import Server
from ports import free_port


@pytest.fixture(scope="module", params=[1, 3], ids=lambda threads: f"{threads}-threads")
def cluster_port(request, tmp_path_factory):
    port = free_port()
    server = Server(tmp_path_factory.mktemp("savanna-cluster"), "--threads", request.param, "--cluster-port", port)
    yield port
    server.kill()


@pytest.mark.parametrize("language", ["python", "node", "go"])
def test_a_client_of_clusters_works_as_with_redis(cluster_port, run_client, language):
    run_client(language, cluster_port)


def test_redis_cli_works_as_with_redis(cluster_port):
    assert shutil.which("redis-cli"), "expected redis-cli, found none; apt-get install redis-tools"
    ask = lambda *words: subprocess.run(["redis-cli", "-p", str(cluster_port), *words], capture_output=True, text=True, check=True).stdout
    assert ask("-c", "SET", "foo", "bar") == "OK\n" and ask("-c", "GET", "foo") == "bar\n"
    checked = ask("--cluster", "check", f"127.0.0.1:{cluster_port}")
    assert "[OK] All 16384 slots covered." in checked, checked
