"""`savanna dev --nodes`: one command for all nodes, from the start to the end."""

import os
import signal
import subprocess
import time

from conftest import ANY_PORTS, NODES, SAVANNA


def test_three_nodes_are_ready_soon_and_are_there_again_with_what_they_had(start):
    first = start()
    assert first.ready_after < 5 * float(os.environ.get("CLUSTER_SLOWNESS", "4")), first.ready_after
    assert first.redis("n1").set("kept", "so") and first.redis("n2").get("kept") == "so"
    with first.tenants("n3", autocommit=True) as client:
        client.execute("CREATE TABLE kept (id int)")
        client.execute("INSERT INTO kept VALUES (1)")
    assert first.stop() == 0, first.logs()
    again = start(directory=first.directory)
    assert again.redis("n3").get("kept") == "so"
    with again.tenants("n1") as client:
        assert client.execute("SELECT id FROM kept").fetchall() == [(1,)]
    # The epochs of logs go on.
    shards = again.shards("n1")
    assert shards["keys"]["epoch"] > 1
    assert len({shard["owner"] for shard in shards.values()}) == 3, "each node has one"


def test_the_nodes_leave_when_nobody_looks_after_them_any_more(start):
    cluster = start()
    pids = [status["pid"] for status in cluster.started.values()]
    cluster.kill()
    deadline = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") and "Z" not in state(pid) for pid in pids):
        assert time.monotonic() < deadline, cluster.logs()
        time.sleep(0.1)


def state(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"


def test_a_directory_of_one_node_becomes_a_clusters_and_no_longer_that_of_one(tmp_path, start):
    directory = tmp_path / "data"
    alone = subprocess.Popen([SAVANNA, "dev", "--data-dir", directory, *ANY_PORTS, "--output", "json"], stdout=subprocess.PIPE, text=True)
    try:
        assert alone.stdout.readline()
        # As long as it is there, nobody joins.
        join = [SAVANNA, "node", "--join", directory, "--name", "n9", *ANY_PORTS]
        refused = subprocess.run(join, capture_output=True, text=True, timeout=120, check=False)
        assert refused.returncode == 3 and f"process {alone.pid} serves the data directory alone" in refused.stderr, refused.stderr
    finally:
        alone.send_signal(signal.SIGINT)
        assert alone.wait(timeout=60) == 0
    cluster = start(directory=directory)
    assert cluster.redis("n2").set("a", 1)
    refused = subprocess.run([SAVANNA, "dev", "--data-dir", directory, *ANY_PORTS], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 3 and "is the data directory of a cluster" in refused.stderr, refused.stderr
    assert cluster.redis("n3").get("a") == "1"


def test_a_node_whose_name_another_process_takes_ends_and_is_not_started_again(start):
    cluster = start()
    pid = cluster.status("n1")["pid"]
    join = [SAVANNA, "node", "--join", cluster.directory, "--name", "n1", *ANY_PORTS, "--output", "json"]
    other = subprocess.Popen(join, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert other.stdout.readline()
        deadline = time.monotonic() + 30
        while "node n1 ended, as another process has its name" not in cluster.log.read_text():
            assert time.monotonic() < deadline, cluster.logs()
            time.sleep(0.1)
        assert not os.path.exists(f"/proc/{pid}")
        assert cluster.redis("n2").set("a", 1)
        # Longer than a process that ended is waited for before it is started again.
        time.sleep(2)
        assert other.poll() is None, "nobody takes the name back"
    finally:
        other.send_signal(signal.SIGTERM)
        assert other.wait(timeout=60) == 0


def test_a_node_with_another_lease_is_refused(start):
    cluster = start()
    join = [SAVANNA, "node", "--join", cluster.directory, "--name", "n4", *ANY_PORTS, "--set", "lease.ttl=30s"]
    refused = subprocess.run(join, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 3 and "lease.ttl = 3s" in refused.stderr and "came 30s" in refused.stderr, refused.stderr


def test_a_fourth_node_joins_and_leaves(start):
    cluster = start()
    join = [SAVANNA, "node", "--join", cluster.directory, "--name", "n4", *ANY_PORTS, "--output", "json"]
    fourth = subprocess.Popen(join, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert fourth.stdout.readline()
        names = lambda: [entry["name"] for entry in cluster.get("n1", "/api/v1/nodes")["nodes"]]
        assert names() == [*NODES, "n4"]
    finally:
        fourth.send_signal(signal.SIGTERM)
        assert fourth.wait(timeout=60) == 0
    assert names() == NODES
