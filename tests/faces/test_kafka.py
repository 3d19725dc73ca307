"""From Kafka through windows to Kafka: each window is there once, whenever the node is killed."""

import collections
import json
import random
import threading
import time

import psycopg

from broker import Broker, table
from node import Node

SEED = random.randrange(1 << 32)


def connect(node):
    return psycopg.connect(host="127.0.0.1", port=node.ports["pgwire"], user="postgres", dbname="savanna_streams", autocommit=True)


def test_windows_from_kafka_to_kafka_are_there_once_however_often_the_node_is_killed(tmp_path):
    dice = random.Random(SEED)
    broker = Broker(tmp_path / "broker")
    node = None
    try:
        broker.topic("bids", partitions=2)
        broker.topic("counts", partitions=2)
        node = Node(tmp_path)
        with connect(node) as connection:
            for statement in [
                table(broker, "bids", "at TIMESTAMP(3), auction BIGINT, WATERMARK FOR at AS at - INTERVAL '1' SECOND", "bids"),
                table(broker, "counts", "at TIMESTAMP(3), auction BIGINT, bids BIGINT", "counts", key_fields="auction"),
                "SET 'query.name' = 'counts'",
                """INSERT INTO counts SELECT window_start, auction, count(*) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '2' SECOND))
                    GROUP BY window_start, window_end, auction""",
            ]:
                connection.execute(statement)
        expected, stop = collections.Counter(), threading.Event()

        def bid():
            second = 0
            while not stop.is_set():
                rows = []
                for _ in range(200):
                    at, auction = second + dice.randrange(2), dice.randrange(5)
                    expected[(at // 2, auction)] += 1
                    rows.append((json.dumps({"at": f"2026-01-01T00:{at // 60:02}:{at % 60:02}", "auction": auction}).encode(), dice.randrange(2)))
                broker.write("bids", rows)
                second += 1
                time.sleep(0.02)
            # Closes all windows.
            last = json.dumps({"at": "2026-01-02T00:00:00", "auction": 0}).encode()
            broker.write("bids", [(last, 0), (last, 1)])

        writer = threading.Thread(target=bid)
        writer.start()
        for _ in range(3):
            time.sleep(dice.uniform(0.7, 1.5))
            node.kill()
            node = Node(tmp_path)
        time.sleep(0.5)
        stop.set()
        writer.join()
        deadline = time.monotonic() + 90
        while sum(json.loads(value)["bids"] for _, value in broker.read("counts")) < expected.total():
            assert time.monotonic() < deadline, f"seed {SEED}\n{node.log.read_text()}"
            time.sleep(0.2)
        rows = broker.read("counts")
        found = [(json.loads(value)["at"], json.loads(value)["auction"]) for _, value in rows]
        assert len(found) == len(set(found)), f"seed {SEED}: a window is there twice"
        seconds = {(int(at[14:16]) * 60 + int(at[17:19])) // 2: at for at, _ in found}
        counts = {(json.loads(value)["at"], json.loads(value)["auction"]): json.loads(value)["bids"] for _, value in rows}
        assert counts == {(seconds[window], auction): n for (window, auction), n in expected.items()}, f"seed {SEED}"
        assert all(json.loads(key) == {"auction": json.loads(value)["auction"]} for key, value in rows)
        # What a replay writes twice comes later.
        time.sleep(1)
        assert node.stop() == 0, node.log.read_text()
        assert sorted(broker.read("counts")) == sorted(rows), f"seed {SEED}: more came"
    finally:
        if node and node.process.poll() is None:
            node.kill()
        broker.kill()
