"""A node that is drained gets nothing new until that is undone, or until it starts again."""

import http.server
import json
import os
import signal
import subprocess
import threading
import time

import requests

from conftest import NODES, SAVANNA
from test_databases import create, tenants
from test_moves import move


def drain(cluster, asked, node, *words):
    url = f"http://127.0.0.1:{cluster.ports[asked]['http']}"
    ran = subprocess.run([SAVANNA, "drain", node, *words, "--url", url, "--output", "json"], capture_output=True, text=True)
    return ran, json.loads(ran.stdout.splitlines()[-1]) if ran.stdout else None


def drained(cluster, asked):
    return [node["name"] for node in cluster.get(asked, "/api/v1/nodes")["nodes"] if node["is_drained"]]


def owners(cluster, asked):
    return {shard["owner"] for shard in tenants(cluster, asked).values()}


def test_a_drained_node_gets_nothing_new_until_that_is_undone_or_it_starts_again(start):
    cluster = start()
    for name in ("one", "two", "three", "four"):
        create(cluster, NODES[0], name)
    node = next(node for node in NODES if node != cluster.coordinator() and node != cluster.owner("tenants"))
    asked, third = (other for other in NODES if other != node)
    ran, report = drain(cluster, asked, node)
    assert ran.returncode == 0 and report["drained"] and report["moved"] >= 1 and report["stayed"] == 0, ran
    for other in NODES:
        cluster.until(lambda other=other: drained(cluster, other) == [node], f"{other} knows that {node} is drained")
    shown = subprocess.run([SAVANNA, "nodes", "--url", f"http://127.0.0.1:{cluster.ports[asked]['http']}"], capture_output=True, text=True).stdout
    assert [line.split()[0] for line in shown.splitlines() if line.rstrip().endswith("drained")] == [node], shown

    # The node that was asked makes a database, where nodes are alike; this one does not.
    for number in range(4):
        made = create(cluster, node, f"new_{number}")
        assert tenants(cluster, node)[made]["owner"] != node
    refused = cluster.post(asked, "/api/v1/moves", {"shard": "one", "to": node})
    assert f"`savanna drain {node} --undo`" in refused["detail"], refused
    url = f"http://127.0.0.1:{cluster.ports[node]['http']}/api/v1/tenants/restored/restore"
    refused = requests.post(url, data=b"nothing", timeout=10)
    assert refused.status_code == 409 and "is drained" in refused.json()["detail"], refused.text

    # Nor does it get those of a node that is gone.
    pid = cluster.signal(third, signal.SIGKILL)
    cluster.until(lambda: owners(cluster, asked) == {asked}, f"{asked} has all")
    cluster.runs_again(third, pid)
    assert drained(cluster, asked) == [node] and node not in owners(cluster, asked)

    _, report = drain(cluster, asked, node, "--undo")
    assert report == {"node": node, "drained": False, "moved": 0, "stayed": 0}
    assert drained(cluster, asked) == []
    assert cluster.post(asked, "/api/v1/moves", {"shard": "one", "to": node})["stayed"] is None

    ran, report = drain(cluster, third, node)
    assert ran.returncode == 0 and report["moved"] == 1, ran
    pid = cluster.signal(node, signal.SIGKILL)
    cluster.runs_again(node, pid)
    cluster.until(lambda: all(drained(cluster, other) == [] for other in NODES), "it has started again")


def test_the_last_node_that_takes_databases_is_not_drained(start):
    cluster = start()
    first, second, last = NODES
    for node in (first, second):
        ran, _ = drain(cluster, last, node)
        assert ran.returncode == 0, ran
    ran, _ = drain(cluster, first, last)
    assert ran.returncode == 2 and "no other node" in ran.stderr, ran
    # The node itself refuses it, too, whoever asks.
    refused = requests.put(f"http://127.0.0.1:{cluster.ports[first]['http']}/api/v1/nodes/{last}/drain", timeout=10)
    assert refused.status_code == 409 and "undo the drain of another" in refused.json()["detail"], refused.text
    assert set(drained(cluster, last)) == {first, second}
    assert owners(cluster, last) == {last}

    # Where no other lives, databases are made and restored at a drained node all the same.
    url = f"http://127.0.0.1:{cluster.ports[first]['http']}/api/v1/tenants/restored/restore"
    assert requests.post(url, data=b"nothing", timeout=10).status_code == 409
    pid = cluster.signal(last, signal.SIGSTOP)
    try:
        cluster.until(lambda: not owners(cluster, first) & {last}, f"{first} and {second} have all")
        refused = requests.post(url, data=b"nothing", timeout=10)
        assert refused.status_code == 400, f"it is no backup: {refused.text}"
        shard = create(cluster, first, "late")
        assert tenants(cluster, first)[shard]["owner"] != last
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_move_that_had_begun_does_not_end_at_a_node_that_is_drained_meanwhile(start):
    cluster = start()
    shard = create(cluster, NODES[0], "shop")
    owner = tenants(cluster, NODES[0])[shard]["owner"]
    node = next(node for node in NODES if node not in (owner, cluster.owner("tenants")))
    asked = next(other for other in NODES if other != node)
    client = cluster.tenants(owner, "shop")
    client.execute("CREATE TABLE visits (id int)")
    client.commit()
    client.execute("INSERT INTO visits VALUES (1)")
    moved = []
    # It is waited for until this transaction has ended.
    moving = threading.Thread(target=lambda: moved.append(move(cluster, shard, node, asked, "--technique", "stop-and-copy")))
    moving.start()
    cluster.until(lambda: tenants(cluster, asked)[shard]["moving_to"] == node, "it is on its way")
    # The transaction has five seconds from here on.
    url = f"http://127.0.0.1:{cluster.ports[asked]['http']}"
    assert requests.put(f"{url}/api/v1/nodes/{node}/drain", timeout=10).status_code == 204
    cluster.until(lambda: drained(cluster, node) == [node], "the node itself knows that it is drained")
    command = [SAVANNA, "drain", node, "--url", url, "--output", "json"]
    draining = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert any("on their way" in line for line in draining.stderr), "what is on its way is waited for"
    assert draining.poll() is None
    client.commit()
    moving.join()
    out, _ = draining.communicate(timeout=240)
    report = json.loads(out.splitlines()[-1])
    assert draining.returncode == 0 and (report["drained"], report["stayed"]) == (True, 0), report
    assert "is drained" in moved[0]["stayed"], moved
    for _ in range(10):
        assert node not in owners(cluster, asked) and tenants(cluster, asked)[shard]["owner"] == owner
        time.sleep(0.2)
    assert client.execute("SELECT count(*) FROM visits").fetchone() == (1,), "it was served all the time"


class Story(http.server.BaseHTTPRequestHandler):
    """A control API that shows at each look what is next in its story."""

    def log_message(self, *_):
        pass

    def answer(self, status, body=None):
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_PUT(self):
        self.server.is_drained = True
        self.answer(204)

    def do_GET(self):
        if self.path == "/api/v1/nodes":
            epoch = 1 if self.server.looked < self.server.restarts_after else 2
            drained = {"n3": {"epoch": epoch, "is_drained": self.server.is_drained and epoch == 1}}
            nodes = [{**node, **drained.get(node["name"], {})} for node in self.server.told["nodes"]["nodes"]]
            return self.answer(200, {"nodes": nodes})
        if self.path == "/api/v1/config":
            return self.answer(404)
        looks = self.server.looks
        self.server.looked += 1
        self.answer(200, {"shards": looks.pop(0) if len(looks) > 1 else looks[0]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/asleep"):
            # None sleeps.
            return self.answer(200, {"moves": []})
        self.server.moves.append((asked["shard"], asked["to"]))
        if asked["to"] in self.server.refuse:
            return self.answer(409, self.server.told["refusal"])
        self.answer(200, {**self.server.told["move"], **{key: asked[key] for key in ("shard", "to", "technique")}, "stayed": None})


def test_a_drain_looks_until_nothing_comes_any_more_and_says_what_stays(start):
    cluster = start()
    shard = create(cluster, NODES[0], "shop")
    known = tenants(cluster, NODES[0])[shard]
    to = next(node for node in NODES if node != known["owner"])
    cluster.until(lambda: all(node["serves_databases"] for node in cluster.get(NODES[0], "/api/v1/nodes")["nodes"]), "all serve databases")
    # As a node says it.
    told = {"nodes": cluster.get(NODES[0], "/api/v1/nodes"), "move": cluster.post(NODES[0], "/api/v1/moves", {"shard": shard, "to": to})}
    cluster.until(lambda: tenants(cluster, NODES[0])[shard]["owner"] == to, "the node that is asked sees where it is")
    told["refusal"] = cluster.post(NODES[0], "/api/v1/moves", {"shard": shard, "to": to})
    assert told["move"]["stayed"] is None and "already" in told["refusal"]["detail"], told
    cluster.kill()
    empty = [{**known, "owner": "n1", "moving_to": None}]
    comes = [{**known, "owner": "n1", "moving_to": "n3"}]
    is_there = [{**known, "owner": "n3", "moving_to": None}]

    def run(looks, refuse=(), restarts_after=1000):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Story)
        server.told, server.looks, server.looked, server.moves, server.refuse = told, looks, 0, [], refuse
        server.is_drained, server.restarts_after = False, restarts_after
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        ran = subprocess.run([SAVANNA, "drain", "n3", "--url", url, "--output", "json"], capture_output=True, text=True, timeout=120)
        server.shutdown()
        return ran, json.loads(ran.stdout.splitlines()[-1]), server

    # What others gave it before they heard of the drain comes late, also after a look that found nothing, and a move ends when it ends.
    ran, report, server = run([empty, is_there, empty, comes, is_there, empty, empty])
    assert ran.returncode == 0 and (report["moved"], report["stayed"]) == (2, 0), ran
    assert server.moves == [(known["shard"], "n1")] * 2 and server.looks == [empty], server.looks
    # One look more says which services stay there.
    assert server.looked == 8

    # A process of the node that has started again is not drained: nothing is moved away from it, and nobody is told that it can be stopped.
    ran, report, server = run([is_there], restarts_after=2)
    assert ran.returncode == 1 and (report["drained"], report["moved"]) == (False, 2), ran
    assert len(server.moves) == 2

    # What cannot go is tried again, and then told.
    ran, report, server = run([is_there], refuse=("n1", "n2"))
    assert ran.returncode == 1 and (report["moved"], report["stayed"]) == (0, 1), ran
    assert [to for _, to in server.moves] == ["n1", "n2"] * 6 and "already" in ran.stderr, ran

    # Where nobody says whether keys move, they are not waited for.
    ran, report, server = run([[*empty, {**is_there[0], "shard": "keys/v/7"}]])
    assert ran.returncode == 0 and (report["drained"], report["moved"], report["stayed"]) == (True, 0, 0), ran
    assert "keys are not waited for" in ran.stderr and "the shards 1 virtual nodes of keys stay there" in ran.stderr, ran

    # A node that takes none keeps none from the others, though it has fewest.
    shards = [f"tenants/{number}" for number in range(90, 94)]
    two_each = [{**is_there[0], "shard": shard, "owner": owner} for shard, owner in zip(shards, ("n1", "n1", "n3", "n3"))]
    ran, report, server = run([two_each, empty, empty], refuse=("n2",))
    assert ran.returncode == 0 and (report["moved"], report["stayed"]) == (2, 0), ran
    assert server.moves == [(shards[2], "n2"), (shards[2], "n1"), (shards[3], "n1")], server.moves
